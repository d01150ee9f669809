"""`/dialects/{name}`: clients that send the envelopes of other systems work unchanged."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from remit.policy.reception import Sender, of_agent, peer_name, peer_of
from remit.policy.weight import is_light_response
from remit.protocol.codec import encode, malformed
from remit.protocol.envelope import NOBODY, VERSION, Request, Response
from remit.protocol.errors import Code, Fault, Problem, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Delta, Progress, Record, response_in
from remit.protocol.remit import LONGEST_NAME
from remit.protocol.submission import Submission
from remit.runtime.active_runs import ActiveRun
from remit.runtime.aside import SMALL_BODY, aside
from remit.runtime.events import SHORT_BACKLOG
from remit.words.failures import with_plain_summary
from remit_server.bodies import (
    Receive,
    Scope,
    Send,
    headers_of,
    outward_response,
    quality,
    read_as,
    read_json,
    send_bytes,
)
from remit_server.delegations import GONE, Delegations
from remit_server.dialects import NAMES, find
from remit_server.dialects.exchange import Dialect, ForeignMessage
from remit_server.documents.api import ApiOperation, Parameter
from remit_server.operations import sends
from remit_server.refusals import note
from remit_server.streams import KEEP_ALIVE, STREAM, Following, ends, follow_records, send_events

_Reply = Callable[[Response], Awaitable[ForeignMessage]]

# Where each dialect has the fields that this hub checks: errors must name the client's field, not ours.
_PLACES = {
    "employee": {
        "$.user": "$.user_id",
        "$.origin": "$.origin_employee",
        "$.session": "$.child_session_id",
        "$.parent_session": "$.parent_session_id",
    },
    "librarian": {
        "$.user": "$.context.user",
        "$.origin": "$.context.delegationChain",
        "$.parent_session": "$.context.sessionId",
    },
    "contract": {
        "$.user": "$.context.user_id",
        "$.origin": "$.source_agent",
        "$.session": "$.context.session_id",
        "$.parent_session": "$.context.session_id",
    },
    "subagent": {"$.user": "$.remit.user"},
}


# A refused envelope is read once more for the ids to echo, outside the event loop if it is large.
_ECHOED_BYTES = 4 * SMALL_BODY
# Dialects in which all agents of a user share one session id. Here a session belongs to one agent.
_SHARED = frozenset({"contract"})
# Dialects that limit fan-out and cycles: for agents elsewhere, only this hub can enforce that.
_COUNTED = frozenset({"employee"})


_NAME = Parameter(name="name", place="path", meaning="The dialect.", one_of=NAMES)
_REST = Parameter(name="rest", place="path", meaning="What clients of the dialect append, or the agent to ask.")
SPEAK = ApiOperation(
    method="POST",
    path="/dialects/{name}",
    name="speak",
    summary="Ask in the envelope of another system.",
    description="The documents of each dialect define its requests and responses.",
    takes=dict[str, Any],
    answer=Any,
    failure=Any,
    parameters=(_NAME,),
)
# Clients append paths of their own to the base URL: `/.netlify/functions/chat-internal`.
SPEAK_AT = replace(SPEAK, path="/dialects/{name}/{rest:path}", name="speak_at", parameters=(_NAME, _REST))


class DialectEndpoints:
    """Delegations in other dialects: translates requests and responses, and nothing else."""

    def __init__(self, delegations: Delegations) -> None:
        self._delegations = delegations

    @sends(SPEAK, SPEAK_AT)
    async def speak(self, scope: Scope, receive: Receive, send: Send) -> None:
        name: str = scope["path_params"]["name"]
        if name not in NAMES:
            known = f"Use one of {', '.join(NAMES)}."
            raise RemitError(fault(Code.NOT_FOUND, f"unknown dialect `{name[:100]}`", suggestion=known))
        dialect, headers = find(name), headers_of(scope)
        # If an envelope does not name the agent, the path does: `/dialects/librarian/<name>`.
        target = scope["path_params"].get("rest", "") if name == "librarian" else ""
        foreign = ForeignMessage(headers=headers, target=target)
        sent = sender = None
        try:
            sender = await self._delegations.sender(scope, headers)
            foreign = ForeignMessage(headers=headers, target=target, body=await read_json(headers, receive))
            sent = await read_as(lambda _: dialect.submission(foreign), foreign.body)
            if name in _SHARED and sent.session is not None:
                sent = _in_own_part(sent, sent.session)
            exchange = _Exchange(name, foreign, sent, sender, receive, send)
            response = await self._ended(exchange)
            if response is None:
                return  # the answer was streamed
            response = outward_response(response, peer_name(sender))
        except RemitError as error:
            note(scope, headers, error.fault)
            # The problems of an unreadable envelope already name its own fields.
            why = error.fault if sent is None else _placed(name, error.fault, sender)
            response = _refused(sent, why, self._version_of(sent, error.fault))
            if sent is None and len(foreign.body) > _ECHOED_BYTES:
                foreign = ForeignMessage(
                    headers=headers, target=target
                )  # it was not read, and is too large to read for the answer
            if sender is None or not sender.is_hub:
                response = with_plain_summary(response)
        await _send_reply(await _reply(dialect, response, foreign), foreign, send)

    def _version_of(self, sent: Submission | None, why: Fault) -> str | None:
        """Return the version of the agent that was asked for, unless the sender may not see it."""
        delegations = self._delegations
        if sent is None or why.code is Code.AGENT_NOT_FOUND or sent.target not in delegations.exposed():
            return None
        return delegations.hub.cards[sent.target].version

    async def _ended(self, exchange: "_Exchange") -> Response | None:
        """Return the outcome of a request; None if it was sent as a stream."""
        message, name, anew = exchange.message, exchange.name, exchange.sent.id is None
        request = await self._delegations.received(exchange.sent, exchange.sender, message.headers)
        counted = name in _COUNTED
        welcome = quality(message.headers, STREAM)
        if welcome and welcome >= quality(message.headers, "application/json"):
            return await _stream(
                self._delegations,
                request,
                exchange.receive,
                exchange.send,
                partial(_reply, find(name), message=message),
                anew=anew,
                counted=counted,
            )
        try:
            return await self._end(request, exchange.receive, anew=anew, counted=counted)
        finally:
            if counted:
                await self._delegations.hub.peer_call_ended(request)

    async def _end(self, request: Request, receive: Receive, *, anew: bool, counted: bool) -> Response:
        delegations = self._delegations
        going = await delegations.begin(request, counted=counted)
        if isinstance(going, Response):
            return going
        # No dialect can express that a request waits for approval: its clients wait, too.
        end = await delegations.end_of(going, going.run, receive, anew=anew, questions=False)
        if not isinstance(end, Response):
            why = "this server is shutting down before the request ended"
            raise RemitError(fault(Code.OUTCOME_UNKNOWN, why, suggestion="Send the same request again."))
        return end


class _Exchange(NamedTuple):
    """One request in a dialect that was decoded, and the connection of its client."""

    name: str
    message: ForeignMessage
    sent: Submission
    sender: Sender
    receive: Receive
    send: Send


async def _reply(dialect: Dialect, response: Response, message: ForeignMessage) -> ForeignMessage:
    if is_light_response(response) and len(message.body) <= SMALL_BODY:
        return dialect.reply(response, message)
    return await aside.run(dialect.reply, response, message)


async def _send_reply(reply: ForeignMessage, message: ForeignMessage, send: Send) -> None:
    headers = {"content-type": "application/json", **reply.headers}
    if not message.body:
        headers["connection"] = "close"  # nobody has read it, or will
    pairs = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items())
    await send_bytes(send, reply.status, reply.body, pairs)


def _in_own_part(sent: Submission, session: str) -> Submission:
    """Return a request of a shared session in the part of it that belongs to its target."""
    own = of_agent(session, sent.target)
    if len(own) > LONGEST_NAME:
        problem = Problem(
            "$.context.session_id", f"together with the agent's name it exceeds {LONGEST_NAME} characters"
        )
        raise RemitError(malformed((problem,)))
    return replace(sent, session=own, parent_session=sent.parent_session or session)


def _placed(dialect: str, why: Fault, sender: Sender | None) -> Fault:
    """Return a fault with the field names of the dialect. A client that acts for agents counts as unauthenticated."""
    places, paths = _PLACES[dialect], [each.path for each in why.problems]
    if paths == ["$.origin"] and sender is not None and not sender.is_hub:
        # The documents require a service's own token for this, never a user's.
        message = "this token belongs to a client; only a peer may act for agents"
        suggestion = "Send the token of a peer: `token` in `[peers.NAME]` of the team file."
        return fault(Code.UNAUTHENTICATED, message, suggestion=suggestion)
    if not places.keys() & set(paths):
        return why
    return malformed(tuple(Problem(places.get(each.path, each.path), each.message) for each in why.problems))


def _refused(sent: Submission | None, why: Fault, version: str | None) -> Response:
    return Response(
        version=VERSION,
        id=(sent.id if sent is not None else None) or NOBODY,
        target=NOBODY if sent is None else sent.target,
        status=Status.REFUSED,
        fault=why.outward(),
        agent_version=version or "1.0",
    )


# ── answers as streams ────────────────────────────────────────────────────────────────────────────────────────────────


async def _stream(
    delegations: Delegations,
    request: Request,
    receive: Receive,
    send: Send,
    reply: _Reply,
    *,
    anew: bool,
    counted: bool,
) -> Response | None:
    """Run a request and stream its events; return its outcome if it was refused before it began.

    A request without an id of its own (*anew*) is cancelled when the client disconnects.
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

        async def frames() -> AsyncGenerator[bytes]:
            async for records in follow_records(hub, _following(going, request), events):
                if not records:
                    yield KEEP_ALIVE
                for record in records:
                    if (end := _outcome_in(record)) is not None and counted:
                        await hub.peer_call_ended(request)
                    if end is not None:
                        yield _frame(b"response", (await reply(outward_response(end, peer_of(request)))).body)
                    elif piece := _event_bytes(record):
                        yield piece

        delegations.streams.add(events)
        try:
            await send_events(frames(), receive, send, left=gone, soon=delegations.waiting.soon)
        finally:
            delegations.streams.discard(events)
    return None


def _following(going: ActiveRun, request: Request) -> Following:
    task = going.task if going.on_record == request.run else None
    return Following(run=going.on_record, peer=peer_of(request), task=task)


def _outcome_in(record: Record) -> Response | None:
    return response_in(record.body) if ends(record) else None


def _event_bytes(record: Record) -> bytes:
    """Return what the called agent says; events below it are not sent."""
    match record.body:
        case Delta(delegation=place, text=text) if place == record.run:
            return _frame(b"delta", encode({"text": text}))
        case Progress(delegation=place, text=text) if place == record.run:
            return _frame(b"progress", encode({"text": text}))
        case _:
            return b""


def _frame(kind: bytes, data: bytes) -> bytes:
    return b"event: " + kind + b"\ndata: " + data + b"\n\n"
