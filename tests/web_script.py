"""Runs a script of the console's sources (`check`, `test`) with the Node of a wheel: `make check` and `make test`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "packages" / "server"))

from hatch_build import NotBuilt, install, npm  # noqa: E402 - it lies beside the package

WEB = ROOT / "web"


def main() -> None:
    """Run the script that is named."""
    try:
        node = install(WEB)
    except NotBuilt as error:
        sys.stderr.write(f"NOT TESTED: the sources of the console: {error}\n")
        return
    try:
        npm(node, WEB, "run", "--silent", sys.argv[1])
    except NotBuilt as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
