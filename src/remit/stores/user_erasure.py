"""Erases a user from a file that hubs have open; what that needs is imported only then."""

from collections.abc import Callable
from pathlib import Path

import apsw

from remit.runtime.keys import HubKeys
from remit.stores.connection import Durability, translate
from remit.stores.retention import Erased


def erase_user(path: Path, user: str, keys: HubKeys, durability: Durability, wall_ms: Callable[[], int]) -> Erased:
    """Erase a user from the file of a store that hubs may have open."""
    from remit.stores.erase import erase
    from remit.stores.upkeep import Upkeep

    try:
        upkeep = Upkeep(path, durability=durability, wall_ms=wall_ms)
        try:
            return erase(upkeep, user, keys)
        finally:
            upkeep.close()
    except (apsw.Error, OSError) as error:
        raise translate(error, path) from error
