"""An MCP server with one tool that must not be used twice: `python bank_server.py FOLDER`, over stdio."""

import sys
from pathlib import Path

import quick_shed

FOLDER = Path(sys.argv[1])


def charge(what: str) -> object:
    """Charge, for good; the second time it takes for ever to say so."""
    with (FOLDER / "charges").open("a") as file:
        file.write(f"{what}\n")
    return quick_shed.NEVER if what == "second" else f"paid for {what}"


if __name__ == "__main__":
    quick_shed.serve(charge)
