"""The endpoints of delegations: ask, look, read along, cancel."""

from functools import partial
from urllib.parse import unquote

from msgspec.structs import replace

from remit.policy.reception import Permission, peer_name, peer_of
from remit.ports import RunSummary, SingleUseProof, StoreError
from remit.protocol.codec import decode_submission
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.records import outline
from remit.protocol.submission import Submission
from remit.runtime.active_runs import ActiveRun
from remit.runtime.events import SHORT_BACKLOG, Events
from remit_server.access import OPERATION, asked_for, may_see
from remit_server.bodies import (
    Headers,
    Receive,
    Scope,
    Send,
    headers_of,
    outward_response,
    prefers,
    quality,
    read_as,
    read_json,
    send_bytes,
    send_response,
    send_value,
)
from remit_server.delegations import GONE, Delegations, handle_of, order_of
from remit_server.documents.api import ASK, CANCEL, LOOK, READ_ALONG
from remit_server.documents.api_values import Handle, Reason
from remit_server.event_endpoints import last_event_of
from remit_server.operations import Answered, ApiRequest, answers, sends
from remit_server.streams import STREAM, STREAM_HEADERS, Following, follow, send_events


class DelegationEndpoints:
    """The HTTP endpoints of delegations."""

    def __init__(self, delegations: Delegations) -> None:
        self._delegations = delegations
        self._hub = delegations.hub

    @sends(ASK)
    async def ask(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        sender = await self._delegations.sender(scope, headers, submits=True)
        sent = await read_as(decode_submission, await read_json(headers, receive))
        agree(headers, sent)
        if sent.traceparent is None and "traceparent" in headers:
            sent = replace(sent, traceparent=headers["traceparent"][:55])
        request = await self._delegations.received(sent, sender, headers)
        once = self._delegations.gate.once(headers) if sender.is_hub else None
        if (welcome := quality(headers, STREAM)) and welcome >= quality(headers, "application/json"):
            await self._stream(request, once, receive, send, anew=sent.id is None)
        elif prefers(headers, "respond-async"):
            await self._hand_over(request, once, send)
        else:
            await self._answer(request, once, receive, send, anew=sent.id is None)

    async def _answer(
        self, request: Request, once: SingleUseProof | None, receive: Receive, send: Send, *, anew: bool
    ) -> None:
        """Answer with the outcome of a request, or with a handle if it waits for approval."""
        going = await self._delegations.begin(request, once)
        if isinstance(going, Response):
            await _send_end(send, request, going)
            return
        end = await self._delegations.end_of(going, request.id, receive, anew=anew)
        if isinstance(end, Response):
            await _send_end(send, request, end)
        else:
            await send_value(send, end, 202, _location(end))

    async def _hand_over(self, request: Request, once: SingleUseProof | None, send: Send) -> None:
        going = await self._delegations.begin(request, once)
        if isinstance(going, Response):
            await _send_end(send, request, going)
            return
        await going.decided.wait()  # nothing is acknowledged before it is durable
        if going.task.done():
            await _send_end(send, request, going.task.result())
            return
        handle = handle_of(request.id, going.on_record, "running")
        await send_value(send, handle, 202, _location(handle))

    async def _stream(
        self, request: Request, once: SingleUseProof | None, receive: Receive, send: Send, *, anew: bool
    ) -> None:
        with self._hub.follow(request.run, backlog=SHORT_BACKLOG) as events:
            going = await self._delegations.begin(request, once)
            if isinstance(going, ActiveRun):
                await going.decided.wait()
            if isinstance(going, Response) or not going.on_record:
                await _send_end(send, request, going if isinstance(going, Response) else going.task.result())
                return
            if going.on_record == request.run:
                following = Following(run=request.run, peer=peer_of(request))
                await self._send_stream(following, events, receive, send, anew=anew)
                return
        with self._hub.follow(going.on_record, backlog=SHORT_BACKLOG) as events:
            following = Following(run=going.on_record, peer=peer_of(request))
            await self._send_stream(following, events, receive, send)

    # ── looking, reading along, cancelling ────────────────────────────────────────────────────────────────────────────

    @answers(LOOK)
    async def look(self, call: ApiRequest) -> Response | Answered:
        sender = call.sender
        summary = await self._delegations.find(call.named("id"), sender, call.others)
        if (response := await self._delegations.outcome(summary, sender)) is not None:
            return outward_response(response, peer_name(sender))
        questions = [each.text for each in await self._hub.pending() if each.request.run == summary.run]
        question = next(iter(questions), "") or self._delegations.waiting.question(summary.run)
        state = "waiting" if question or summary.state == "waiting" else "running"
        return Answered(handle_of(call.named("id"), summary.run, state, question), 202)

    @sends(READ_ALONG)
    async def read_along(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = await self._delegations.sender(scope, headers_of(scope))
        summary = await self._delegations.find(scope["path_params"]["id"], sender, scope[OPERATION].others)
        last = last_event_of(headers_of(scope), 0)
        if scope["method"] == "HEAD":
            await send_bytes(send, 200, b"", tuple(STREAM_HEADERS))
            return
        with self._hub.follow(summary.run, backlog=SHORT_BACKLOG, raw=asked_for(sender, summary)) as events:
            outcome = partial(self._delegations.outcome, summary, sender)
            following = Following(run=summary.run, after=last, peer=peer_name(sender), outcome=outcome)
            await self._send_stream(following, events, receive, send)

    async def _send_stream(
        self, following: Following, events: Events, receive: Receive, send: Send, *, anew: bool = False
    ) -> None:
        """Send a run's events; if it has no id to ask for it again (*anew*), cancel it when the client disconnects."""
        location = (b"location", f"/v1/delegations/{following.run}".encode())

        def gone() -> None:
            events.close()
            if anew:
                self._hub.cancel(following.run, GONE)

        frames, soon = follow(self._hub, following, events), self._delegations.waiting.soon
        self._delegations.streams.add(events)
        try:
            await send_events(frames, receive, send, left=gone, soon=soon, headers=[location])
        finally:
            self._delegations.streams.discard(events)

    @answers(CANCEL)
    async def cancel(self, call: ApiRequest) -> Response | Answered:
        # Read before anything is looked up: a client that disconnects meanwhile still wants it cancelled.
        body = await call.body(Reason)
        name, sender, others = call.named("id"), call.sender, call.others

        async def find() -> RunSummary:
            try:
                return await self._delegations.find(name, sender, others)
            except StoreError:
                raise
            except RemitError:
                await self._hub.store.flush()  # it may have arrived a moment ago, and not be recorded yet
                return await self._delegations.find(name, sender, others)

        order = order_of(name, sender, others, body.reason)
        run, summary, outcome = await self._delegations.cancel(order, find)
        if outcome is None:
            return Answered(handle_of(name, run, "running"), 202)
        if summary is not None and may_see(sender, summary, Permission.READ):
            response = await self._delegations.outcome(summary, sender) or outcome
            return outward_response(response, peer_name(sender))
        return Answered(outline(outcome), 200)  # permission to cancel a run does not include reading its result


async def _send_end(send: Send, request: Request, response: Response) -> None:
    await send_response(send, outward_response(response, peer_of(request)))


def agree(headers: Headers, sent: Submission) -> None:
    """Refuse headers that contradict the envelope (X9)."""
    stated = (
        ("x-agent-request-id", sent.id),
        ("x-agent-origin", sent.origin),
        ("x-agent-depth", None if sent.remit is None else str(sent.remit.depth)),
        ("x-agent-parent-session", sent.parent_session),
    )
    if problems := tuple(
        Problem(
            name, f"contradicts the envelope, which says {value!r}" if value else "has no counterpart in the envelope"
        )
        for name, value in stated
        if name in headers and headers[name] != value and unquote(headers[name]) != value
    ):
        names = ", ".join(problem.path for problem in problems)
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, f"headers contradict the envelope: {names}", problems=problems))


def _location(handle: Handle) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"location", handle.link.encode()),)
