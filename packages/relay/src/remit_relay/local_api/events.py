"""The numbered changes behind the event stream of the local API."""

import asyncio
import re
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from msgspec import Struct

from remit.runtime.clock import LoopClock
from remit_relay.client.connection import State
from remit_relay.local_api.public_devices import ConnectionView, DeviceView, ProfileView
from remit_relay.local_api.public_runs import UnreadView
from remit_relay.session.run import Overlay

_MARK = re.compile(r"([0-9a-f]{8})-([0-9]{1,15})", re.ASCII)

_now_ms = LoopClock().wall_ms

# A draft that is being written is shown this often: people do not read faster, and each event holds the whole text.
DRAFT_S = 0.1

Kind = Literal["run", "device", "profile", "connection", "unread"]
Changed = Overlay | DeviceView | ProfileView | ConnectionView | UnreadView


class Change(NamedTuple):
    """Something that changed, in its newest state, and the number of its last change."""

    number: int
    kind: Kind
    value: Changed


class DraftText(NamedTuple):
    """A draft that an agent is writing."""

    version: int
    run: str
    draft: str
    text: Callable[[], str]


class StreamReady(Struct, frozen=True, kw_only=True):
    """Sent to a reader once it has the current state of everything."""

    resumed: bool
    """Whether it got all changes since its last event. If not, it got the current state of everything but ended runs,
    and may list those."""


class Changes:
    """The changes of a device, numbered: a `SessionService` calls `changed`, readers follow or reconnect.

    Only the newest state of each thing is kept, and it is the whole state: a reader that was away or is slow gets the
    current state and needs none of the states between. So memory grows only with the number of runs, and no reader
    needs a queue.
    """

    def __init__(self, now_ms: Callable[[], int] = _now_ms) -> None:
        # Numbers start anew in each process; the name says which process a number belongs to.
        self._name = secrets.token_hex(4)
        self._now_ms = now_ms
        self._newest: dict[tuple[Kind, str], Change] = {}
        self._readers: set[asyncio.Event] = set()
        self.is_read = asyncio.Event()
        """Set while there is a reader."""
        self._drafts: dict[str, DraftText] = {}
        self._waking: asyncio.TimerHandle | None = None
        self.number = 0
        self.drafted = 0
        """The version of the newest text of a draft."""
        self.connection: ConnectionView | None = None
        """The connection to the gateway; None: it is not known."""

    # ── what changes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def changed(self, run: Overlay) -> None:
        """Note that a run changed."""
        writing = self._drafts.get(run.id)
        if writing is not None and writing.draft != run.prompt:
            del self._drafts[run.id]
        self.note("run", run.id, run)

    def linked(self, state: State, why: str, since_ms: int | None = None) -> None:
        """Note the state of the connection to the gateway; without *since_ms*, it is so since now."""
        before = self.connection
        if before is not None and (before.state, before.why) == (state, why):
            return
        if since_ms is None:
            since_ms = before.since_ms if before is not None and before.state == state else self._now_ms()
        self.connection = ConnectionView(state=state, since_ms=since_ms, why=why)
        self.note("connection", "", self.connection)

    def note(self, kind: Kind, key: str, value: Changed) -> None:
        """Note that something else changed; *key* tells it apart from others of its kind."""
        self.number += 1
        self._newest.pop((kind, key), None)  # keeps them in the order of their numbers
        self._newest[kind, key] = Change(self.number, kind, value)
        self.wake()

    def writes(self, run: str, draft: str, text: Callable[[], str]) -> None:
        """Note that an agent has written more of a draft; *text* returns all of it. This is not numbered."""
        self.drafted += 1
        self._drafts[run] = DraftText(self.drafted, run, draft, text)
        if self._readers and self._waking is None:
            self._waking = asyncio.get_running_loop().call_later(DRAFT_S, self._wake_for_drafts)

    def _wake_for_drafts(self) -> None:
        self._waking = None
        self.wake()

    # ── for readers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def since(self, number: int) -> list[Change]:
        """Return what changed after *number*, in order, each in its current state."""
        found: list[Change] = []
        for change in reversed(self._newest.values()):
            if change.number <= number:
                break
            found.append(change)
        return found[::-1]

    def drafts_since(self, version: int) -> list[DraftText]:
        """Return the drafts that are being written and got longer after *version*."""
        return [each for each in self._drafts.values() if each.version > version]

    def mark(self, number: int) -> str:
        """Return the mark of a number, from which a reader can continue."""
        return f"{self._name}-{number}"

    def number_of(self, mark: str) -> int | None:
        """Return the number of a mark; None if it is invalid or of another process."""
        found = _MARK.fullmatch(mark)
        if found is None or found[1] != self._name or int(found[2]) > self.number:
            return None
        return int(found[2])

    @contextmanager
    def reading(self) -> Generator[asyncio.Event]:
        """Have an event that is set whenever there are changes; the reader clears it before it reads."""
        event = asyncio.Event()
        self._readers.add(event)
        self.is_read.set()
        try:
            yield event
        finally:
            self._readers.discard(event)
            if not self._readers:
                self.is_read.clear()

    def wake(self) -> None:
        """Wake all readers, even if nothing changed."""
        for event in self._readers:
            event.set()
