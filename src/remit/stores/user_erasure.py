"""Erases a user from a store that hubs have open; what that needs is imported only then."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from remit.runtime.keys import HubKeys
from remit.stores.connection import Durability, translate
from remit.stores.retention import Erased

if TYPE_CHECKING:
    from remit.stores.upkeep_port import StoreUpkeep


def file_upkeep(path: Path, durability: Durability, wall_ms: Callable[[], int]) -> "Callable[[], StoreUpkeep]":
    """Return what opens the upkeep of an SQLite file."""

    def opened() -> "StoreUpkeep":
        from remit.stores.upkeep import Upkeep  # most processes that open a store never need it

        return Upkeep(path, durability=durability, wall_ms=wall_ms)

    return opened


def erase_user(opened: "Callable[[], StoreUpkeep]", user: str, keys: HubKeys) -> Erased:
    """Erase a user from a store, whose upkeep *opened* opens, in a thread."""
    from remit.stores.erase import erase

    upkeep = opened()
    try:
        return erase(upkeep, user, keys)
    finally:
        upkeep.close()


def erase_from_file(path: Path, opened: "Callable[[], StoreUpkeep]", user: str, keys: HubKeys) -> Erased:
    """Erase a user from the SQLite file of a store."""
    try:
        return erase_user(opened, user, keys)
    except (apsw.Error, OSError) as error:
        raise translate(error, path) from error
