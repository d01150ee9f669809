"""An answer in another dialect as a stream: what its agent says on the way, then the whole reply."""

from collections.abc import Awaitable, Callable

from remit.dialects.exchange import ForeignMessage
from remit.policy.session_names import peer_of
from remit.protocol.codec import encode
from remit.protocol.envelope import Request, Response
from remit.protocol.records import Delta, Progress, Record, Refusal
from remit.runtime.events import SHORT_BACKLOG
from remit.runtime.root_runs import ActiveRun
from remit.server.bodies import Receive, Send
from remit.server.delegations import GONE, STREAM_HEADERS, Delegations
from remit.server.streams import KEEP_ALIVE, Following, ends, follow_records
from remit.server.waiting import Leaving

Reply = Callable[[Response], Awaitable[ForeignMessage]]


async def stream(
    delegations: Delegations, request: Request, receive: Receive, send: Send, reply: Reply, *, anew: bool, counted: bool
) -> Response | None:
    """Carry a request out and send what is said of it; return its end if it was refused before it began.

    One that is carried out *anew* whenever it is sent is cancelled when its asker hangs up.
    """
    hub = delegations.hub
    with hub.follow(request.run, backlog=SHORT_BACKLOG) as events:
        going = await delegations.begin(request, counted=counted)
        if isinstance(going, Response):
            return going
        await going.decided.wait()
        if not going.on_record:
            return await going.task

        def gone() -> None:
            events.close()
            if anew:
                hub.cancel(going.run, GONE)

        leaving = Leaving(receive, gone, delegations.waiting.soon)
        delegations.streams.add(events)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            async for records in follow_records(hub, _following(going, request), events):
                if not records:
                    await _send(send, KEEP_ALIVE)
                for record in records:
                    if (end := _end(record)) is not None and counted:
                        await hub.counted(request)
                    piece = _frame(b"response", (await reply(end)).body) if end is not None else _event_bytes(record)
                    if piece:
                        await _send(send, piece)
            await send({"type": "http.response.body", "body": b""})
        finally:
            leaving.cancel()
            delegations.streams.discard(events)
    return None


def _following(going: ActiveRun, request: Request) -> Following:
    task = going.task if going.on_record == request.run else None
    return Following(run=going.on_record, peer=peer_of(request), task=task)


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


def _end(record: Record) -> Response | None:
    match record.body:
        case Response() as response if ends(record):
            return response
        case Refusal(response=response) if ends(record):
            return response
        case _:
            return None


def _event_bytes(record: Record) -> bytes:
    """Return what the agent that was asked says; what happens below it is its own business."""
    match record.body:
        case Delta(delegation=place, text=text) if place == record.run:
            return _frame(b"delta", encode({"text": text}))
        case Progress(delegation=place, text=text) if place == record.run:
            return _frame(b"progress", encode({"text": text}))
        case _:
            return b""


def _frame(kind: bytes, data: bytes) -> bytes:
    return b"event: " + kind + b"\ndata: " + data + b"\n\n"
