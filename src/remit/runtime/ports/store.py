"""A store: everything that a hub remembers."""

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple, Protocol

from remit.protocol.envelope import ContextFilter, Message, Note
from remit.protocol.errors import RemitError
from remit.runtime.ports.approvals import Decision, Question
from remit.runtime.ports.archive import Archive
from remit.runtime.ports.records import Recorder
from remit.runtime.ports.requests import Journal, Requests


class StoreError(RemitError):
    """The store cannot do what it promises; its fault says why and what to mend."""


FACTS = "facts "
"""How the scopes begin under which values in facts about users are kept: as long as the facts, whatever run ends."""

# More is a history, and not what somebody should bear in mind.
MOST_NOTES = 24


class SealedValue(NamedTuple):
    """A raw value that a run's token stands for, encrypted, and whether the run's user may have it back."""

    token: str
    value: bytes
    of_user: bool


class Vault(Protocol):
    """What the tokens of a conversation stand for; the store cannot read it.

    A scope is a session, and is kept as long; for a run without one it is the run, and goes with the run's outcome.
    """

    def secret(self) -> bytes:
        """Return 32 bytes that only those who may read this store's key know; the same for all who share the store."""
        ...

    def seal(self, scope: str, sealed: Sequence[SealedValue]) -> None:
        """Keep values; durable like a record, the first of each token counts, `of_user` once said stays."""
        ...

    async def unseal(self, scope: str) -> list[SealedValue]:
        """Return everything kept for a scope."""
        ...


class Inbox(Protocol):
    """Questions that wait for a person, whichever process they sit at."""

    async def put(self, question: Question) -> Question:
        """Put a question there, durable on return; one that is there already stays as it is, and is returned."""
        ...

    async def decide(self, question: str, decision: Decision) -> bool:
        """Answer a question, durable on return; False: it is not there, has expired, or was answered before."""
        ...

    async def decision(self, question: str) -> Decision | None:
        """Return what was answered so far, whichever process wrote it."""
        ...

    async def withdraw(self, question: str) -> None:
        """Take back a question to which no answer is wanted any more."""
        ...

    async def pending(self) -> list[Question]:
        """Return the questions that can still be answered, oldest first."""
        ...


class ControlCommand(NamedTuple):
    """What someone outside wants of the hubs that share a store."""

    seq: int
    run: str
    """The run that it is about; empty: it is for every hub."""
    action: Literal["cancel", "reload"]
    by: str
    reason: str


class Controls(Protocol):
    """How one process reaches the runs of another."""

    async def control(self, run: str, action: Literal["cancel", "reload"], by: str, reason: str) -> int:
        """Tell every hub that shares this store; durable on return, which is its number."""
        ...

    async def controls(self, after: int, run: str | None = None) -> list[ControlCommand]:
        """Return what was said after number *after*, about one run if asked.

        Those that are a day old may be gone, unless their run may still be taken up.
        """
        ...

    async def last_control(self) -> int:
        """Return the number of the newest, 0 if there is none."""
        ...


class Conversations(Protocol):
    """What was said in each session, found without reading all of it; the record alone has the text."""

    async def messages(self, session: str, wanted: ContextFilter, *, now_ms: int, tokens: int) -> list[Message]:
        """Return what `policy.context.select` chooses of everything committed in a session, oldest first."""
        ...

    async def seen(self, session: str, messages: Collection[int]) -> frozenset[int]:
        """Return which of these messages, by number, stand in a session: said there, or shown to its agent before."""
        ...

    def note(self, session: str, notes: Sequence[Note]) -> None:
        """Keep what became known in a conversation; durable like a record, each kept once."""
        ...

    async def notes(self, session: str) -> list[Note]:
        """Return what is known in a conversation, the newest `MOST_NOTES` of it, oldest first."""
        ...


class Counters(Protocol):
    """Small shared numbers and values."""

    async def incr(self, key: str, n: int, window_ms: int) -> int:
        """Add *n* in the current window and return the window's total."""
        ...

    async def cas(self, key: str, revision: int, value: bytes) -> int | None:
        """Write *value* if the key is still at *revision* (0: absent); return the new revision, or None if it moved."""
        ...

    async def get(self, key: str) -> tuple[int, bytes] | None:
        """Return revision and value."""
        ...


class Store(Recorder, Requests, Journal, Vault, Inbox, Controls, Conversations, Counters, Archive, Protocol):
    """Everything a hub remembers. It is opened before the hub's first request and closed after its last."""

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Make everything durable and let go; what was appended before is not lost."""
        ...
