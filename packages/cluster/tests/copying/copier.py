"""Copies a store, and kills itself in the middle: a process for the tests.

The arguments: source, target, the file with the key of a database, and how many writes to allow; at the next one the
process is killed in the middle of its transaction.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remit.stores import POSTGRES
from remit_cluster.copying import postgres, sqlite, stores
from remit_cluster.copying.copy import CopyPlace, DatabaseToCopy, copy_between

# So that a small store has many pages.
PAGE_ROWS = 40


def place(word: str, key: Path) -> CopyPlace:
    return DatabaseToCopy(url=word, key_file=key) if word.startswith(POSTGRES) else Path(word)


def main(source: str, target: str, key: str, writes: int) -> None:
    left = [writes]

    def counted(write: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any, **named: Any) -> Any:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return write(*values, **named)

        return call

    for module in (sqlite, postgres, stores):
        vars(module)["PAGE_ROWS"] = PAGE_ROWS
    for module, name in ((sqlite, "sync"), (os, "replace")):
        vars(module)[name] = counted(vars(module)[name])
    for writer, name in (
        *((sqlite.SqliteWriter, "insert"), (postgres.DatabaseWriter, "insert"), (postgres.DatabaseWriter, "finish")),
    ):
        setattr(writer, name, counted(getattr(writer, name)))
    copied = asyncio.run(copy_between(place(source, Path(key)), place(target, Path(key))))
    assert copied.verdict.ok


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
