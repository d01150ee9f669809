"""The store of a hub."""

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple, Protocol

from remit.protocol.envelope import ContextFilter, Message, Note
from remit.protocol.errors import RemitError
from remit.runtime.ports.archive import Archive, Listings, Recorder
from remit.runtime.ports.requests import NO_RUN, Decision, Journal, Question, Requests, RunEpoch


class StoreError(RemitError):
    """The store cannot keep its promises; the fault says why and how to fix it."""


FACTS = "facts "
"""Prefix of the scopes of sealed values in facts about users.

They are kept as long as the facts, whichever run ends.
"""

# More than this is a history, not a list of things to remember.
MOST_NOTES = 24


class SealedValue(NamedTuple):
    """The encrypted raw value of a token, and whether the run's user may have it back."""

    token: str
    value: bytes
    of_user: bool


class Vault(Protocol):
    """The encrypted values of a conversation's tokens; the store cannot read them.

    A scope is a session and is kept as long as the session. A run without a session is its own scope and is deleted
    with its outcome.
    """

    def secret(self) -> bytes:
        """Return 32 secret bytes, readable only with this store's key and the same for all who share the store."""
        ...

    def seal(self, scope: str, sealed: Sequence[SealedValue]) -> None:
        """Store values; durable like a record. The first value of a token counts; `of_user` stays set once set."""
        ...

    async def unseal(self, scope: str) -> list[SealedValue]:
        """Return all values of a scope."""
        ...


class Inbox(Protocol):
    """Questions that wait for a person, in whichever process the person answers."""

    async def put(self, question: Question) -> Question:
        """Add a question, durable on return. An existing question stays unchanged and is returned."""
        ...

    async def decide(self, question: str, decision: Decision) -> bool:
        """Answer a question, durable on return; False: unknown, expired or already answered."""
        ...

    async def decision(self, question: str) -> Decision | None:
        """Return the decision so far, whichever process wrote it."""
        ...

    async def withdraw(self, question: str) -> None:
        """Withdraw a question that needs no answer any more."""
        ...

    async def pending(self) -> list[Question]:
        """Return the questions that can still be answered, oldest first."""
        ...


ControlAction = Literal["cancel", "reload"]


class ControlCommand(NamedTuple):
    """A command to the hubs that share a store."""

    seq: int
    run: str
    """The run that it is about; empty: it is for every hub."""
    action: ControlAction
    by: str
    reason: str
    delegation: str = ""
    """The path of the delegation of that run that it is about; empty: the whole run."""


class Controls(Protocol):
    """Commands from one process to the runs of another."""

    async def control(self, run: str, action: ControlAction, by: str, reason: str, delegation: str = "") -> int:
        """Send a command to every hub that shares this store; durable on return. Returns its number.

        With *delegation*, it is about that delegation of the run and everything below it.
        """
        ...

    async def controls(self, after: int, run: str | None = None) -> list[ControlCommand]:
        """Return the commands after number *after*, optionally about one run.

        Commands older than a day may be gone, unless their run may still be resumed.
        """
        ...

    async def last_control(self) -> int:
        """Return the number of the newest command, 0 if there is none."""
        ...


class Conversations(Protocol):
    """The messages of each session, found without reading all of it. Only the record has the texts."""

    async def messages(self, session: str, wanted: ContextFilter, *, now_ms: int, tokens: int) -> list[Message]:
        """Return what `policy.context.select` chooses of everything committed in a session, oldest first."""
        ...

    async def seen(self, session: str, messages: Collection[int]) -> frozenset[int]:
        """Return which of these message numbers are in a session: said there, or shown to its agent before."""
        ...

    def note(self, session: str, notes: Sequence[Note], of: RunEpoch = NO_RUN) -> None:
        """Store notes of a conversation; durable like a record. A note that is stored again becomes the newest.

        They are refused as records are, if the epoch of the run that makes them is stale.
        """
        ...

    async def notes(self, session: str) -> list[Note]:
        """Return the notes of a conversation: the newest `MOST_NOTES`, oldest first."""
        ...


class Counters(Protocol):
    """Shared counters and small values."""

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
    """Everything that a hub remembers. It is opened before the hub's first request and closed after its last."""

    @property
    def listings(self) -> Listings:
        """Lists of what the store holds, for people."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Make everything durable and close; nothing that was appended before is lost."""
        ...
