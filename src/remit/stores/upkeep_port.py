"""The steps of upkeep that every kind of store can do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from remit.protocol.records import Notice
from remit.runtime.keys import HubKeys
from remit.runtime.ports import FACTS
from remit.runtime.signing import CheckpointKey
from remit.stores.opening import STORE
from remit.stores.removal_plan import RemovedPart, Selection
from remit.stores.segments import SealedSegment

Ageing = Literal["values", "fact_values", "facts", "notes"]
"""What is kept for a time besides records: redacted values, those of facts, facts, and notes of conversations."""


class Belongings(NamedTuple):
    """The runs and sessions of a user, and all scopes of their redacted values."""

    user: str
    runs: tuple[str, ...]
    sessions: tuple[str, ...]
    scopes: tuple[str, ...]


class Deleted(NamedTuple):
    """What was deleted of a user besides records."""

    values: int
    facts: int


class Kept(NamedTuple):
    """One thing that is kept about a user."""

    what: str
    """`record`, `fact`, `note`, `session`, `request`, `question` or `value`."""
    content: dict[str, Any]


def erasure_notice(deleted: Deleted, rows: int, subject: str) -> Notice:
    """Return what the record says about an erasure."""
    text = (
        f"erased the user with the digest {subject}: {rows} records, {deleted.facts} facts,"
        f" {deleted.values} redacted values"
    )
    return Notice(delegation=STORE, agent="remit", text=text)


def scopes_of(user: str, runs: tuple[str, ...], sessions: tuple[str, ...], keys: HubKeys) -> tuple[str, ...]:
    """Return the scopes of a user's redacted values; those of facts stand under a digest of the name."""
    facts = f"{FACTS}{keys.digest(user.encode(errors='surrogatepass')).hex()}"
    return tuple(sorted({*runs, *sessions, facts}))


class StoreUpkeep(Protocol):
    """A connection that removes rows, beside the hubs that write."""

    @property
    def key(self) -> CheckpointKey: ...

    def now_ms(self) -> int:
        """Return the time by which ages are judged."""
        ...

    def close(self) -> None: ...

    def segments(self) -> list[SealedSegment]:
        """Return the sealed segments, oldest first."""
        ...

    def has(self, segment: SealedSegment, selection: Selection) -> bool:
        """Return whether a segment has rows of a selection."""
        ...

    def remove(self, segment: SealedSegment, selection: Selection, *, dry: bool = False) -> RemovedPart:
        """Remove rows of a segment in one transaction, together with the signed statement that says so.

        Nothing is removed from a segment that does not verify: that would destroy what shows the tampering. With *dry*,
        nothing is removed, and the result says what would be.
        """
        ...

    def forget(self, what: Ageing, before_ms: int, *, dry: bool) -> int:
        """Delete what is older; return how many there are."""
        ...

    def seal(self) -> None:
        """Sign everything that is committed."""
        ...

    def archive(self, segment: SealedSegment, folder: Path) -> bool:
        """Write a segment into an archive; False: it is there already. A segment that does not verify is refused."""
        ...

    def give_back(self) -> int:
        """Free the space of removed rows, without making hubs wait; return by how many bytes the store has shrunk."""
        ...

    @property
    def gives_back(self) -> bool:
        """Whether the space of removed rows is given back to the file system without `rebuild`."""
        ...

    def rebuild(self) -> int:
        """Write everything anew, without free space; hubs wait meanwhile. Return as `give_back` does."""
        ...

    def check_no_open_run(self, user: str) -> None:
        """Raise `StoreError` while a run of a user is open."""
        ...

    def belongings(self, user: str, keys: HubKeys) -> Belongings:
        """Return what belongs to a user; *keys* are those with which redacted values are encrypted."""
        ...

    def delete(self, of: Belongings, rows: int, subject: str) -> Deleted:
        """Delete what is kept about a user besides records, and record the erasure of *rows* records.

        Raises `StoreError` if a run of the user is open.
        """
        ...

    def kept_about(self, user: str, keys: HubKeys) -> Iterator[Kept]:
        """Yield everything that is kept about a user; *keys* are those with which redacted values are encrypted."""
        ...
