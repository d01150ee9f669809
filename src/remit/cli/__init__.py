"""The command line: stdout is data, stderr is progress, and the exit code says how it went."""

from remit.cli.main import main

__all__ = ["main"]
