"""Archives and prunes a store until it is killed: a process for the tests.

The first argument is the file, the second the time in milliseconds, the third the folder of the archive. It prints one
line when it begins.
"""

import sys
from pathlib import Path

from remit.ports.upkeep import Retention
from remit_cli.store_archive import archive_segment
from remit_cli.upkeep.sqlite import SqliteUpkeep

DAY_MS = 24 * 3_600_000


def main(path: str, now_ms: int, folder: str) -> None:
    print("begun", flush=True)
    upkeep = SqliteUpkeep(Path(path), durability="process", wall_ms=lambda: now_ms)
    keep = Retention(records=5 * DAY_MS)
    upkeep.prune(keep, archived=lambda each: archive_segment(upkeep, each, Path(folder)))
    upkeep.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
