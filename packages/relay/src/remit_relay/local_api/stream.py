"""The event stream of the local API: everything that changes, resumable, nothing lost and nothing twice."""

import asyncio
from collections.abc import AsyncGenerator, Iterable

from msgspec import Struct

from remit.protocol.codec import encode
from remit_relay.local_api.events import Change, DraftText, StreamReady
from remit_relay.local_api.routes import NO_STORE
from remit_relay.local_api.state import DeviceViews
from remit_relay.session.moves import ENDED
from remit_relay.session.run import Overlay
from remit_server.bodies import Receive, Scope, Send, headers_of, send_bytes
from remit_server.streams import KEEP_ALIVE, KEEP_ALIVE_S, PIECE, STREAM_HEADERS, DelayedCalls, send_events

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
            pieces = (piece async for frames in self._told(only, after, news, gone) for piece in _pieces(frames))
            await send_events(pieces, receive, send, left=leave, soon=self._soon, headers=NO_STORE)

    async def _told(
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
        found = self._changes.since(number)
        return [self._numbered(each) for each in found if only is None or _run_of(each) == only]

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
