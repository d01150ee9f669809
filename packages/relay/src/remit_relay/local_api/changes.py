"""What the local API shows of a device now, and what changes: everything, resumable, nothing lost and nothing twice."""

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Literal, NamedTuple

from msgspec import Struct

from remit import __version__
from remit.protocol.codec import encode
from remit.runtime.clock import LoopClock
from remit_relay.client.connection import DevicePresence, GatewayConnection, State
from remit_relay.local_api.access import NO_STORE
from remit_relay.local_api.views import (
    ConnectionView,
    Counts,
    DeviceView,
    ProfileView,
    SharedAgentView,
    SharedRunLine,
    SharedRunView,
    SharedStatus,
    Surroundings,
    UnreadView,
    device_view,
    line,
    profile_view,
    view,
)
from remit_relay.serve_shared import Shared
from remit_relay.session.moves import ENDED
from remit_relay.session.run import Overlay
from remit_relay.session_service import SessionService
from remit_server.bodies import Receive, Scope, Send, headers_of, send_bytes
from remit_server.delegations import DelayedCalls
from remit_server.streams import KEEP_ALIVE, KEEP_ALIVE_S, PIECE, STREAM_HEADERS, send_events

# ── numbered changes ──────────────────────────────────────────────────────────────────────────────────────────────────

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
        newer: list[Change] = []
        for change in reversed(self._newest.values()):
            if change.number <= number:
                break
            newer.append(change)
        return newer[::-1]

    def drafts_since(self, version: int) -> list[DraftText]:
        """Return the drafts that are being written and got longer after *version*."""
        return [each for each in self._drafts.values() if each.version > version]

    def mark(self, number: int) -> str:
        """Return the mark of a number, from which a reader can continue."""
        return f"{self._name}-{number}"

    def number_of(self, mark: str) -> int | None:
        """Return the number of a mark; None if it is invalid or of another process."""
        match = _MARK.fullmatch(mark)
        if match is None or match[1] != self._name or int(match[2]) > self.number:
            return None
        return int(match[2])

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


# ── the state as it is shown ──────────────────────────────────────────────────────────────────────────────────────────

PresenceOf = Callable[[str], DevicePresence | None]
"""Returns whether a device is present; None if that is not known."""


class DeviceParts(Struct, frozen=True, kw_only=True):
    """The parts of a running device besides its runs, as far as they are shown."""

    link: GatewayConnection | None = None
    shared: Mapping[str, Shared] = {}
    """The agents that the device shares, by their shared names."""
    presence: PresenceOf = lambda _: None


class DeviceViews:
    """Makes all views, and notes in *changes* what changed by other ways than a step of a run."""

    def __init__(
        self, host: SessionService, changes: Changes, parts: DeviceParts, *, now_ms: Callable[[], int]
    ) -> None:
        self.host = host
        self.changes = changes
        self._parts = parts
        self._now_ms = now_ms
        self._started_ms = now_ms()
        self._looking = asyncio.Lock()
        self._devices: dict[str, DeviceView] = {}
        self._profiles: dict[str, ProfileView] = {}
        self._unread: UnreadView | None = None
        self._counted: dict[str, tuple[Overlay, int]] = {}
        """The unread entries of each run, as of its state then."""

    # ── views ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, run: Overlay) -> SharedRunView:
        """Return the view of a run."""
        around = Surroundings(
            now_ms=self._now_ms(),
            unread=self.host.marks.unread(run),
            profile=self.host.profiles.get(run.profile),
            activity=self.host.activity(run),
        )
        return view(self.host.displayed(run), around)

    def line(self, run: Overlay) -> SharedRunLine:
        """Return a displayed run in one line."""
        return line(run, self.host.marks.unread(run))

    def profiles(self) -> list[ProfileView]:
        """Return all profiles, by name."""
        return [profile_view(self.host.profiles[name]) for name in sorted(self.host.profiles)]

    async def devices(self) -> list[DeviceView]:
        """Return all known devices, by name."""
        known = await self.host.known()
        return [device_view(peer, offers, self._parts.presence(peer.device)) for peer, offers in known]

    def unread(self) -> UnreadView:
        """Return what the user has not read."""
        for run in self.host.runs:
            known = self._counted.get(run.id)
            if known is None or known[0] is not run:
                self._counted[run.id] = (run, self.host.marks.unread(run))
        devices: dict[str, int] = {}
        for run, count in self._counted.values():
            if count:
                devices[run.device] = devices.get(run.device, 0) + count
        runs = {run.id: count for run, count in self._counted.values() if count}
        return UnreadView(total=sum(runs.values()), devices=devices, runs=runs)

    async def read(self, run: Overlay, number: int) -> Overlay:
        """Note that the user has read a run up to an entry."""
        await self.host.read(run, number)
        self._counted.pop(run.id, None)
        now = next(each for each in self.host.runs if each.id == run.id)
        self.changes.changed(now)
        return now

    async def status(self) -> SharedStatus:
        """Return the device in short."""
        self._see_connection()
        device, runs = self.host.device, self.host.runs
        open_runs = [run for run in runs if run.state not in ENDED]
        shared = self._parts.shared
        return SharedStatus(
            version=__version__,
            device=device.id,
            name=device.card.name,
            started_ms=self._started_ms,
            connection=self.changes.connection,
            shared=tuple(
                SharedAgentView(
                    name=name,
                    description=shared[name].description,
                    devices=tuple(sorted(shared[name].profile.allowed_shared_device_ids)),
                )
                for name in sorted(shared)
            ),
            counts=Counts(
                runs=len(runs),
                open_runs=len(open_runs),
                drafts=sum(run.waits for run in open_runs),
                questions=sum(len(run.questions) for run in open_runs),
                unread=self.unread().total,
                devices=len(await self.host.known()),
                profiles=len(self.host.profiles),
            ),
        )

    # ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def refresh(self) -> None:
        """Read everything anew, and note what changed."""
        async with self._looking:
            for device in await self.devices():
                if self._devices.get(device.id) != device:
                    self._devices[device.id] = device
                    self.changes.note("device", device.id, device)
            self.look()

    def look(self) -> None:
        """Note what changed, as far as it can be seen without reading the device's file."""
        self._see_connection()
        for profile in self.profiles():
            if self._profiles.get(profile.id) != profile:
                self._profiles[profile.id] = profile
                self.changes.note("profile", profile.id, profile)
        unread = self.unread()
        if unread != self._unread:
            self._unread = unread
            self.changes.note("unread", "", unread)

    def _see_connection(self) -> None:
        if self._parts.link is not None:
            status = self._parts.link.status
            self.changes.linked(status.state, status.why, status.since_ms)


# ── the event stream ──────────────────────────────────────────────────────────────────────────────────────────────────

# More drafts than a device writes at once.
_REMEMBERED = 16


class DraftPart(Struct, frozen=True, kw_only=True):
    """The text of a draft so far, while an agent writes it."""

    run: str
    draft: str
    """The id that the draft will have."""
    text: str


class EventStream:
    """Serves the changes of a device to any number of readers."""

    def __init__(self, state: DeviceViews) -> None:
        self._state = state
        self._changes = state.changes
        self._soon = DelayedCalls()
        self._ending = False
        self._drafts: dict[str, tuple[int, bytes]] = {}
        """The last event of each draft with its version: all readers get the same bytes."""

    def end(self) -> None:
        """Release all readers."""
        self._ending = True
        self._changes.wake()

    async def serve(self, scope: Scope, receive: Receive, send: Send, only: str | None) -> None:
        """Send the events, of the run *only* if it is given, until the reader leaves."""
        if scope["method"] == "HEAD":
            await send_bytes(send, 200, b"", (*STREAM_HEADERS, *NO_STORE))
            return
        after = self._changes.number_of(headers_of(scope).get("last-event-id", "").strip())
        with self._changes.reading() as news:
            gone = asyncio.Event()

            def leave() -> None:
                gone.set()
                news.set()

            await self._state.refresh()
            pieces = (piece async for frames in self._events_for(only, after, news, gone) for piece in _pieces(frames))
            await send_events(pieces, receive, send, left=leave, soon=self._soon, headers=NO_STORE)

    async def _events_for(
        self, only: str | None, after: int | None, news: asyncio.Event, gone: asyncio.Event
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield the state that a reader does not have, then `StreamReady`, then changes."""
        seen, drafted = self._changes.number, 0
        # The current state has no numbers: a reader that loses the connection in it gets all of it again.
        first = self._now(only) if after is None else self._since(after, only)
        yield [*first, _ready(self._changes.mark(seen), resumed=after is not None)]
        while not gone.is_set():
            news.clear()
            self._state.look()
            frames = self._since(seen, only)
            seen = self._changes.number
            frames += [self._draft(each) for each in self._changes.drafts_since(drafted) if only in (None, each.run)]
            drafted = self._changes.drafted
            if frames:
                yield frames
                continue
            if self._ending:  # what happened until then was told
                return
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    await news.wait()
            except TimeoutError:
                yield [KEEP_ALIVE]

    def _now(self, only: str | None) -> list[bytes]:
        """Return the current state of everything but ended runs, or of one run."""
        runs = self._state.host.runs
        if only is not None:
            return [self._frame("run", run) for run in runs if run.id == only]
        things = [change for change in self._changes.since(0) if change.kind != "run"]
        return [
            *(self._frame(change.kind, change.value) for change in things),
            *(self._frame("run", run) for run in runs if run.state not in ENDED),
        ]

    def _since(self, number: int, only: str | None) -> list[bytes]:
        changes = self._changes.since(number)
        return [self._numbered(each) for each in changes if only is None or _run_of(each) == only]

    def _numbered(self, change: Change) -> bytes:
        return f"id: {self._changes.mark(change.number)}\n".encode() + self._frame(change.kind, change.value)

    def _frame(self, kind: str, value: object) -> bytes:
        return _event(kind, self._state.run(value) if isinstance(value, Overlay) else value)

    def _draft(self, draft: DraftText) -> bytes:
        version, frame = self._drafts.get(draft.run, (0, b""))
        if version != draft.version:
            text = self._state.host.displayed_part(draft.text())
            frame = _event("draft", DraftPart(run=draft.run, draft=draft.draft, text=text))
            if len(self._drafts) >= _REMEMBERED:
                self._drafts.clear()
            self._drafts[draft.run] = draft.version, frame
        return frame


def _run_of(change: Change) -> str:
    return change.value.id if isinstance(change.value, Overlay) else ""


def _event(kind: str, value: object) -> bytes:
    return f"event: {kind}\ndata: ".encode() + encode(value) + b"\n\n"


def _ready(mark: str, *, resumed: bool) -> bytes:
    return f"id: {mark}\n".encode() + _event("ready", StreamReady(resumed=resumed))


def _pieces(frames: Iterable[bytes]) -> list[bytes]:
    """Return events joined to pieces of a size that is written ahead of a slow reader."""
    pieces: list[bytes] = []
    together: list[bytes] = []
    size = 0
    for frame in frames:
        if together and size + len(frame) > PIECE:
            pieces.append(b"".join(together))
            together, size = [], 0
        together.append(frame)
        size += len(frame)
    return [*pieces, b"".join(together)]
