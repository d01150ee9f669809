"""Runs a script of the console's sources (`check`, `test`) with the Node of a wheel: `make check` and `make test`.

What passed is not run again before a file that it reads has changed: the two take more than a minute of CPU together.
"""

import hashlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "packages" / "server"))

from hatch_build import NotBuilt, install, npm  # noqa: E402 - it lies beside the package

WEB = ROOT / "web"
# The checks read the client for TypeScript, too.
READ = (WEB, ROOT / "clients" / "ts")


def digest() -> str:
    """Return a digest of every file that a script may read; the lock file stands for what is installed."""
    found = hashlib.sha256()
    for folder in READ:
        for path in sorted(folder.rglob("*")):
            if "node_modules" not in path.parts and path.is_file():
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                found.update(f"{path.relative_to(ROOT).as_posix()}\n{content}\n".encode())
    return found.hexdigest()


def main() -> None:
    """Run the script that is named, unless it passed with these files before."""
    passed, files = WEB / "node_modules" / f".remit-passed-{sys.argv[1]}", digest()
    if passed.exists() and passed.read_text(encoding="ascii") == files:
        return
    try:
        node = install(WEB)
    except NotBuilt as error:
        sys.stderr.write(f"NOT TESTED: the sources of the console: {error}\n")
        return
    try:
        npm(node, WEB, "run", "--silent", sys.argv[1])
    except NotBuilt as error:
        sys.exit(str(error))
    passed.write_text(files, encoding="ascii")


if __name__ == "__main__":
    main()
