"""The kinds of stores, how long they keep texts, and what removes the rest."""

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from remit.ports.keys import HubKeys

DAY_MS = 24 * 3_600_000


class StoreEngine(NamedTuple):
    """What a plugin does with a kind of database, each by its address; it cannot do what is left out."""

    store: str = ""
    """Makes the store of an address: it takes the address and options, and returns a `Store`."""
    upkeep: str = ""
    """Removes rows beside the hubs: it takes the place of the store, and returns an `Upkeep`."""
    commands: str = ""
    """Does the work of commands: it takes the team, and returns the database as they use it."""


class Retention(NamedTuple):
    """For how many milliseconds each kind of data is kept; None: for ever."""

    records: int | None = None
    """Everything about a run."""
    messages: int | None = None
    """The texts in it: what was asked, answered, reported and given to tools; and notes."""
    vault: int | None = None
    """The values behind placeholders."""
    facts: int | None = None
    """Facts about users."""

    @property
    def is_forever(self) -> bool:
        return all(each is None for each in self)

    def rule(self) -> str:
        """Return the rule as it stands in statements about removals."""
        given = {name: getattr(self, name) for name in self._fields}
        return ", ".join(f"{name} {_days(ms)}" for name, ms in given.items() if ms is not None) or "for ever"


FOREVER = Retention()


@runtime_checkable
class RetainingStore(Protocol):
    """A store that removes what is no longer kept, and erases users."""

    retention: Retention
    vault_key: bytes | None


class Erased(NamedTuple):
    """What was erased."""

    subject: str
    """The keyed digest of the user's name in the record."""
    rows: int
    facts: int
    values: int
    refused: tuple[str, ...] = ()
    """Segments that were left as they are, and why."""


class Pruned(NamedTuple):
    """What was removed, or would be."""

    rows: int = 0
    """Records."""
    texts: int = 0
    """Records of which only the texts were removed."""
    values: int = 0
    """Values behind placeholders."""
    facts: int = 0
    """Facts about users, and notes of conversations."""
    bytes: int = 0
    """About how many bytes all of it takes."""
    returned: int = 0
    """By how many bytes the store has shrunk."""
    refused: tuple[str, ...] = ()
    """Segments that were left as they are, and why."""

    @property
    def is_empty(self) -> bool:
        return not (self.rows or self.texts or self.values or self.facts)


class Upkeep(Protocol):
    """A connection that removes rows from a store, beside the hubs that write. It is used in a thread."""

    def prune(self, keep: Retention, *, stopped: Callable[[], bool]) -> Pruned:
        """Remove what *keep* no longer keeps; it ends early once *stopped* returns true."""
        ...

    def erase(self, user: str, keys: HubKeys) -> Erased:
        """Remove everything of a user, whose redacted values are encrypted with *keys*, and record it."""
        ...

    def close(self) -> None: ...


def _days(ms: int) -> str:
    return f"{ms / DAY_MS:g}d"
