"""The processes of this machine, as their kernel tells of them."""

import os
from pathlib import Path


def descendants(of: int | None = None) -> set[int]:
    """Return the processes that one started, directly or not; without a number those of this one."""
    children: dict[int, set[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has just ended
            children.setdefault(parent, set()).add(int(folder.name))
    pids: set[int] = set()
    left = [os.getpid() if of is None else of]
    while left:
        new = children.get(left.pop(), set()) - pids
        pids |= new
        left.extend(new)
    return pids
