"""Keeps the newest messages of each MCP session, so that a host whose stream broke gets what it missed.

The SDK names a stream by the number of its request alone, which every session counts from one. The messages are
therefore kept by session, and the session of a request is found in the context of its task.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import takewhile
from weakref import WeakSet, WeakValueDictionary

import mcp_types as types
from mcp.server.streamable_http import GET_STREAM_KEY, EventCallback, EventMessage, EventStore
from msgspec import Struct

# A whole answer of the largest size, and thousands of progress messages.
SESSION_BYTES = 4_000_000
# Beyond it, the session that keeps most loses its oldest messages.
TOTAL_BYTES = 64_000_000
# What a message takes besides its text, roughly.
OVERHEAD = 500
# A host has a few calls open at once; the ends of older streams are forgotten.
MOST_STREAMS = 1_000
# How soon a host should come back; most would wait for as long without being told.
RETRY_MS = 1_000

SessionKey = tuple[str, str | None, str]
"""Client, user and id of a session: an id that somebody else has learnt finds nothing."""


class KeptMessage(Struct, frozen=True):
    """A message to a host, with the stream that it belongs to; without text if it only marks the begin of a stream."""

    stream: int
    text: bytes
    """In JSON: the objects of a message take up to ten times as much memory."""

    @property
    def size(self) -> int:
        return OVERHEAD + len(self.text)


class StreamState(Struct):
    """A stream of one request: its number in the session, and whether the request is answered."""

    number: int
    ended: bool = False


class SessionMessages:
    """The newest messages of one session, in all of its streams."""

    def __init__(self) -> None:
        self.size = 0
        self.version: str | None = None
        """The protocol version that the session agreed on."""
        self.is_closed = False
        self._kept: OrderedDict[int, KeptMessage] = OrderedDict()
        self._streams: OrderedDict[str, StreamState] = OrderedDict()
        self._count = 0
        self._changed = asyncio.Event()

    def add(self, stream: str, message: types.JSONRPCMessage | None) -> str:
        """Keep a message of a stream, and return its id."""
        state = self._streams.get(stream)
        if state is None or state.ended:  # a host may use the number of a request again
            state = StreamState(self._next())
            self._streams[stream] = state
            self._streams.move_to_end(stream)
            if len(self._streams) > MOST_STREAMS:
                # A call that goes on is not forgotten for newer ones that have ended.
                ended = (name for name, each in self._streams.items() if each.ended)
                del self._streams[next(ended, next(iter(self._streams)))]
        state.ended = isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and stream != GET_STREAM_KEY
        number = self._next()
        text = "" if message is None else message.model_dump_json(by_alias=True, exclude_unset=True)
        kept = self._kept[number] = KeptMessage(state.number, text.encode())
        self.size += kept.size
        while self.size > SESSION_BYTES:
            self.drop_oldest()
        self._wake()
        return f"{state.number}-{number}"

    def _next(self) -> int:
        self._count += 1
        return self._count

    def drop_oldest(self) -> None:
        """Forget the oldest message."""
        _, dropped = self._kept.popitem(last=False)
        self.size -= dropped.size

    def close(self) -> None:
        """Forget everything, and end every replay that waits for more."""
        self.is_closed = True
        self._kept.clear()
        self.size = 0
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def replay(self, last: str, send: EventCallback) -> str | None:
        """Send what was kept after the message *last* of its stream, and what comes until the request is answered.

        Return the name of a stream that is of no request, once the kept messages are sent: the SDK continues it.
        """
        stream, _, number = last.partition("-")
        if not (stream.isdecimal() and number.isdecimal() and len(last) < 50):
            return None
        wanted, sent = int(stream), int(number)
        while True:
            changed = self._changed
            newer = takewhile(lambda each, last=sent: each[0] > last, reversed(self._kept.items()))
            for at, kept in reversed([each for each in newer if each[1].stream == wanted]):
                sent = at
                if kept.text:
                    await send(EventMessage(types.jsonrpc_message_adapter.validate_json(kept.text), f"{wanted}-{at}"))
            entry = next(((name, each) for name, each in self._streams.items() if each.number == wanted), None)
            if entry is None or self.is_closed:
                return None
            name, state = entry
            if name == GET_STREAM_KEY:
                return name
            if changed is self._changed:
                if state.ended:
                    return None
                await changed.wait()


_SESSION: ContextVar[SessionMessages | None] = ContextVar("remit_mcp_session", default=None)


def note_version(version: str) -> None:
    """Note the protocol version that the session of the current request agreed on."""
    if (session := _SESSION.get()) is not None:
        session.version = version


class SessionReplay(EventStore):
    """The messages of all sessions; those of a session are forgotten when it ends."""

    def __init__(self) -> None:
        self._all: WeakSet[SessionMessages] = WeakSet()
        # The tasks of a session hold its messages, by their context.
        self._by_key: WeakValueDictionary[SessionKey, SessionMessages] = WeakValueDictionary()

    @contextmanager
    def serving(self, key: SessionKey | None) -> Generator[SessionMessages]:
        """Serve a request of a session in this block; without a key, or with an unknown one, of a new session."""
        session = None if key is None else self._by_key.get(key)
        if session is None:
            session = SessionMessages()
            self._all.add(session)
        before = _SESSION.set(session)
        try:
            yield session
        finally:
            _SESSION.reset(before)

    def opened(self, key: SessionKey, session: SessionMessages) -> None:
        """Note the key of a session that was opened."""
        self._by_key[key] = session

    def close(self) -> None:
        """End every replay."""
        for session in list(self._all):
            session.close()

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        session = _SESSION.get()
        assert session is not None, "the SDK stores messages in tasks that a request has started"
        event = session.add(stream_id, message)
        while sum(each.size for each in self._all) > TOTAL_BYTES:
            max(self._all, key=lambda each: each.size).drop_oldest()
        return event

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        session = _SESSION.get()
        return None if session is None else await session.replay(last_event_id, send_callback)
