"""`GET /v1/events`: one stream of events for all runs that the sender may see."""

import re

from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.records import Kind
from remit.server.access import ACCESS
from remit.server.bodies import Headers, Receive, Scope, Send, headers_of, send_bytes
from remit.server.delegations import Delegations
from remit.server.event_stream import RecordTail, StreamReader, StreamWanted
from remit.server.parameters import parameter, refuse_unknown, words_of, wrong_parameter
from remit.server.run_waiters import DisconnectWatcher
from remit.server.streams import STREAM_HEADERS

FORMS = ("records", "runs")
# Deltas are never stored.
KINDS = tuple(kind for kind in Kind if kind is not Kind.DELTA)

# The maximum number of digits of a record number.
NUMBER = re.compile("[0-9]{1,18}", re.ASCII)
_ABSENT = -1


class EventEndpoints:
    """The stream of all runs."""

    def __init__(self, delegations: Delegations) -> None:
        self._delegations = delegations
        self._store = delegations.hub.store
        self.tail = RecordTail(self._store)

    async def events(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /v1/events`."""
        sender = await self._delegations.sender(scope, headers_of(scope))
        wanted = _wanted(scope)
        if scope["method"] == "HEAD":
            await send_bytes(send, 200, b"", tuple(STREAM_HEADERS))
            return
        reader = StreamReader(self.tail, self._store, sender, scope[ACCESS].others)
        await self.tail.open()
        leaving = DisconnectWatcher(receive, reader.close, self._delegations.waiting.soon)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            async for frames in reader.frames(wanted):
                await send({"type": "http.response.body", "body": frames, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            leaving.cancel()
            self.tail.leave()


def _wanted(scope: Scope) -> StreamWanted:
    refuse_unknown(scope, "after", "form", "kinds", "run")
    form = parameter(scope, "form", FORMS[0])
    if form not in FORMS:
        raise wrong_parameter("form", f"unknown form `{form[:100]}`; known: {', '.join(FORMS)}")
    after = parameter(scope, "after", _ABSENT)
    # A browser that connects again sends the header, beside the address with which it began.
    last = last_event_of(headers_of(scope), after)
    return StreamWanted(
        after=None if last == _ABSENT else last,
        run=parameter(scope, "run", "") or None,
        kinds=frozenset(map(Kind, words_of(scope, "kinds", KINDS))),
        light=form == "runs",
    )


def last_event_of(headers: Headers, absent: int) -> int:
    """Return the number in the header `Last-Event-ID`, or raise a `RemitError` if it is not a number."""
    if "last-event-id" not in headers:
        return absent
    last = headers["last-event-id"].strip()
    if NUMBER.fullmatch(last) is None:
        problem = Problem("Last-Event-ID", "give the number of the last event that was received")
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, "invalid header Last-Event-ID", problems=(problem,)))
    return int(last)
