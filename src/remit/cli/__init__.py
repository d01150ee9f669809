"""The command line: data on stdout, progress on stderr, the outcome in the exit code."""

from remit.cli.main import main

__all__ = ["main"]
