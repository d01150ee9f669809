"""Streams of events, read to their end: a lost connection goes on after the last event that was received."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec
from msgspec import Struct

from remit.protocol.envelope import Response
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import Body, Kind, outcome_in
from remit.protocol.records import read_body as read_record
from remit_server.client.calls import ApiCall
from remit_server.client.connection import BUSY, LOST, MOST_BYTES, PAUSE_S, HubConnection
from remit_server.transports.remote_calls import StreamEvent, stream_events

# A server that comes back does so within seconds; nobody waits longer between two looks.
MOST_PAUSE_S = 5.0


class RunEvent(Struct, frozen=True, kw_only=True):
    """One event of a run."""

    number: int | None
    """Its number in the record; None for a part of an answer (`delta`), which is not stored."""
    kind: Kind
    """What it is about."""
    run: str
    """The run that it belongs to."""
    at_ms: int
    """When it happened, in milliseconds since 1970."""
    body: Body
    """What happened, by its kind: a `Request`, `Progress`, `Delta`, `Approval`, `Response` and so on."""

    @property
    def outcome(self) -> Response | None:
        """The outcome of the run, if this is its last event."""
        return outcome_in(self.run, self.body)


class _Stored(Struct):
    """The fields of every event."""

    run: str
    body: msgspec.Raw
    at_ms: int = 0


async def run_events(connection: HubConnection, call: ApiCall, after: int | None) -> AsyncGenerator[RunEvent]:
    """Yield the events of one run, from its start or after a number, until it has ended."""
    async for event in all_events(connection, call, after):
        yield event
        if event.outcome is not None:
            return


async def all_events(connection: HubConnection, call: ApiCall, after: int | None) -> AsyncGenerator[RunEvent]:
    """Yield events without end; raise a `RemitError` if the server refuses."""
    pause_s = PAUSE_S
    while True:
        more = {} if after is None else {"last-event-id": str(after)}
        try:
            async with connection.sent(call, accept="text/event-stream", **more) as reply:
                if reply.status == 200:
                    async for each in stream_events(reply, MOST_BYTES):
                        pause_s, event = PAUSE_S, _read(each)
                        after = event.number or after
                        yield event
                elif reply.status not in BUSY:
                    raise await connection.refusal(reply)
        except LOST:
            pass  # or the server stopped: it, or another one, has the rest
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, MOST_PAUSE_S)


def _read(event: StreamEvent) -> RunEvent:
    try:
        stored = msgspec.json.decode(event.data, type=_Stored)
        body = read_record(event.kind, bytes(stored.body))
    except msgspec.MsgspecError as error:
        raise RemitError(fault(Code.DELEGATION_FAILED, f"the server sent an invalid event: {error}")) from error
    number = None if event.number is None else int(event.number)
    return RunEvent(number=number, kind=event.kind, run=stored.run, at_ms=stored.at_ms, body=body)
