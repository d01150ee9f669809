"""Does the upkeep of a store until it is killed: a process for the tests.

The first argument says what it does, the second is the file, the third the time in milliseconds. It prints one line
when it begins.
"""

import sys
from pathlib import Path

from remit.ports.keys import HubKeys
from remit.ports.upkeep import Retention
from remit_cli.upkeep.sqlite import SqliteUpkeep

DAY_MS = 24 * 3_600_000


def main(what: str, path: str, now_ms: int) -> None:
    print("begun", flush=True)
    upkeep = SqliteUpkeep(Path(path), durability="process", wall_ms=lambda: now_ms)
    if what == "erase":
        upkeep.erase("ann", HubKeys(b"secret"))
        return
    if what == "texts":
        upkeep.prune(Retention(messages=5 * DAY_MS))
    upkeep.prune(Retention(records=5 * DAY_MS))
    upkeep.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
