"""Makes a store from its address."""

from pathlib import Path
from typing import Any, Literal

from remit.installed import brought, named
from remit.ports import Store, StoreError, TokenCounter
from remit.protocol.errors import Code, fault
from remit.stores import STORE_PATH

# A store is imported once it is used: a program that only names `Hub` does not wait for it.


def store_at(place: Path | str, *, durability: Literal["power", "process"], count: TokenCounter) -> Store:
    """Return the store at an address that a plugin knows, or in the SQLite file at a path, not open yet."""
    from remit.stores.checkpoints import key_path

    if isinstance(place, str) and "://" in place:
        return database_at(place, key=key_path(Path(STORE_PATH)), count=count)
    from remit.stores.sqlite import SqliteStore

    return SqliteStore(Path(place), durability=durability, count=count)


def database_at(url: str, **options: Any) -> Store:
    """Return the store at an address that a plugin knows, not open yet; *options* are for what makes it."""
    scheme = url.partition("://")[0]
    known = {name: kind.store for stores in brought("stores") for name, kind in stores().items() if kind.store}
    if scheme not in known:
        which = ", ".join(f"`{name}://`" for name in sorted(known)) or "none"
        why = f"no installed plugin opens a store at `{scheme}://`; known: {which}"
        how = "Correct the address, install what knows it, or give the path of an SQLite file."
        raise StoreError(fault(Code.STORE_UNAVAILABLE, why, suggestion=how))
    return named(known[scheme])(url, **options)


def secret_files(store: Store) -> list[Path]:
    """Return the files of a store that agents must not read, its key last."""
    from remit.stores.checkpoints import key_path
    from remit.stores.sqlite import SqliteStore

    if isinstance(store, SqliteStore):
        return [store.path, key_path(store.path)]
    # The class is not imported without its driver.
    key: Path | None = getattr(store, "key_file", None)
    return [] if key is None else [key]
