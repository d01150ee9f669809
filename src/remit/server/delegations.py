"""`/v1/delegations`: ask, look how far it is, read along, cancel."""

import asyncio
import logging
import re
from collections.abc import Callable, Collection, MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any, Literal
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.reception import Permission, Sender, peer_name
from remit.policy.session_names import peer_of, with_session_of_peer
from remit.protocol.codec import MAX_BYTES, decode, decode_submission
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.records import outline
from remit.protocol.submission import Submission
from remit.runtime.engine import Engine
from remit.runtime.events import SHORT_BACKLOG, Events
from remit.runtime.ports import ANYONES, RunScope, RunSummary, SingleUseProof
from remit.runtime.root_runs import ActiveRun
from remit.server.access import ACCESS, Access
from remit.server.bodies import (
    ClientGone,
    Headers,
    Receive,
    Scope,
    Send,
    headers_of,
    prefers,
    quality,
    read_as,
    read_json,
    send_bytes,
    send_fault,
    send_response,
    send_value,
)
from remit.server.gate import Gate
from remit.server.refusals import REFUSALS, SENDER, Refusals, note
from remit.server.streams import Following, follow
from remit.server.waiting import Leaving, RunWaiters

log = logging.getLogger("remit")

# As long as a hub waits for an answer to come after a cancel: the grace time of a callee, and a little for the way.
CANCEL_WAIT_S = 3.5
GONE = "whoever asked hung up"
STREAM = "text/event-stream"
# As many digits as the number of a record may have.
_NUMBER = re.compile("[0-9]{1,18}", re.ASCII)
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class Handle(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delegation that has not ended: where to look again."""

    id: str
    run: str
    state: Literal["running", "waiting"]
    question: str = ""
    """What a person is asked, while it waits for one."""
    link: str
    """Where its end can be had."""
    events: str
    """Where it can be read along."""


class Reason(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why something is cancelled."""

    reason: str = ""


class Delegations:
    """The delegations that come in over HTTP."""

    def __init__(self, hub: Engine, gate: Gate, exposed: Callable[[], Collection[str]]) -> None:
        self.hub = hub
        self.gate = gate
        self.exposed = exposed
        self.draining = False
        self.streams: set[Events] = set()
        self.waiting = RunWaiters(hub)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._granted: set[str] = set()
        """The runs that came with a credential, whose tokens are to be settled."""

    @property
    def under_way(self) -> int:
        """How many that came here have not ended."""
        return len(self._tasks)

    async def idle(self) -> None:
        """Return once nothing is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def close(self) -> None:
        """Hear no more of the hub; whoever still waits is told where to look later."""
        self.waiting.close()

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/delegations`."""
        headers = headers_of(scope)
        sender = await self.sender(scope, headers, submits=True)
        sent = await read_as(decode_submission, await read_json(headers, receive))
        agree(headers, sent)
        if sent.traceparent is None and "traceparent" in headers:
            sent = replace(sent, traceparent=headers["traceparent"][:55])
        request = await self.received(sent, sender, headers)
        once = self.gate.once(headers)
        if (welcome := quality(headers, STREAM)) and welcome >= quality(headers, "application/json"):
            await self._stream(request, once, receive, send, anew=sent.id is None)
        elif prefers(headers, "respond-async"):
            await self._hand_over(request, once, send)
        else:
            await self._answer(request, once, receive, send, anew=sent.id is None)

    async def sender(self, scope: Scope, headers: Headers, *, submits: bool = False) -> Sender:
        """Return who sends a request, if it proves that for this method and path, and may use it; or a `RemitError`."""
        query: bytes = scope["query_string"]
        path = scope["raw_path"].decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")
        refusals: Refusals = scope[REFUSALS]
        address = refusals.address_of(scope, headers)
        refusals.admit(address, headers)
        try:
            sender = await self.gate.sender(headers, scope["method"], path, submits=submits)
        except RemitError as error:
            if error.fault.code is Code.UNAUTHENTICATED:
                refusals.failures.failed(address, headers)
            raise
        refusals.failures.proven(address, headers)
        scope[SENDER] = sender.name
        access: Access = scope[ACCESS]
        if access.needs is not None and access.needs not in sender.may:
            raise RemitError(
                fault(
                    Code.PERMISSION_DENIED,
                    f"{sender.name} may not use this: it needs the permission `{access.needs}`",
                    suggestion=f'Say `may = ["{access.needs}"]` in `[clients.{sender.name}]` of the team file.',
                )
            )
        return sender

    async def received(self, sent: Submission, sender: Sender, headers: Headers) -> Request:
        """Return what was sent as a request of this hub, within what its sender's credential allows."""
        if self.draining:
            raise going_down()
        await self._check_reference(sent, sender)
        grant = await self.gate.grant(headers, sender, sent)
        request = self.hub.receive(sent, sender, exposed=self.exposed(), grant=grant)
        if grant is not None:
            try:
                request = await self.gate.received(request)
            except BaseException:
                self.hub.forget(request.run)
                raise
            self._granted.add(request.run)
        self.hub.pass_on(request.run, headers)
        return request

    async def _check_reference(self, sent: Submission, sender: Sender) -> None:
        """Refuse a client's reference to a conversation with an agent that it may not ask: that is not its to show."""
        history = sent.handoff.history if sent.handoff is not None else None
        if history is None or sender.targets is None or sender.is_hub:
            return
        owner = await self.hub.store.owner(history)
        if owner is not None and owner.agent not in sender.targets:
            why = f"there is no conversation `{history[:100]}` that {sender.name} may see"
            raise RemitError(fault(Code.NOT_FOUND, why))

    async def _answer(
        self, request: Request, once: SingleUseProof | None, receive: Receive, send: Send, *, anew: bool
    ) -> None:
        """Answer with how a request ended, or with a handle, if it waits for a person."""
        going = await self.begin(request, once)
        if isinstance(going, Response):
            await _send_end(send, request, going)
            return
        found = await self.end_of(going, request.id, receive, anew=anew)
        if isinstance(found, Response):
            await _send_end(send, request, found)
        else:
            await send_value(send, found, 202, _location(found))

    async def end_of(
        self, going: ActiveRun, name: str, receive: Receive | None = None, *, anew: bool = False, questions: bool = True
    ) -> Response | Handle:
        """Return how a request ended that is under way; a handle by that name, if it does not end for now.

        That is if it waits for a person, unless *questions* are not wanted, and if this server goes down before. With
        *receive*, raise `ClientGone` when whoever asked hangs up; one that is carried out *anew* whenever it is sent is
        cancelled then, since nobody could ask for its answer.
        """
        first = self.waiting.first(going, questions=questions)

        def gone() -> None:
            if anew:
                self.hub.cancel(going.run, GONE)
            if not first.done():
                first.set_exception(ClientGone)

        leaving = None if receive is None else Leaving(receive, gone, self.waiting.soon)
        try:
            found = await first
        finally:
            first.cancel()
            if leaving is not None:
                leaving.cancel()
        if isinstance(found, Response):
            return found
        if found is None and not going.on_record:
            raise going_down()
        return _handle(name, going.on_record or going.run, "running" if found is None else "waiting", found or "")

    async def begin(
        self, request: Request, once: SingleUseProof | None = None, *, counted: bool = False
    ) -> ActiveRun | Response:
        """Start a request, or find the same under way: it goes on, whoever waits for it.

        One that is *counted* is held to the fan-out and cycle limits of the agent that asks.
        """
        try:
            going = await (self.hub.begin_counted(request) if counted else self.hub.begin(request, once))
        except BaseException:
            self._settle(request.run, 0)
            raise
        if isinstance(going, Response) or going.run != request.run:
            self._settle(request.run, 0)  # it never began, or is counted under the first that was sent
        if isinstance(going, ActiveRun):
            self._tasks.add(going.task)
            await self.waiting.watch(going, partial(self._ended, going.run))
        return going

    def drop(self, request: Request) -> None:
        """Let go of what was received and will not be begun."""
        self.hub.forget(request.run)
        self._settle(request.run, 0)

    def _ended(self, run: str, task: asyncio.Task[Response]) -> None:
        self._tasks.discard(task)
        failed = task.cancelled() or task.exception() is not None
        self._settle(run, 0 if failed else task.result().usage.total)

    def _settle(self, run: str, used: int) -> None:
        if run in self._granted:
            self._granted.remove(run)
            task = asyncio.ensure_future(self.gate.ended(run, used))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _hand_over(self, request: Request, once: SingleUseProof | None, send: Send) -> None:
        going = await self.begin(request, once)
        if isinstance(going, Response):
            await _send_end(send, request, going)
            return
        await going.decided.wait()  # nothing is acknowledged before it is safely recorded
        if going.task.done():
            await _send_end(send, request, going.task.result())
            return
        handle = _handle(request.id, going.on_record, "running")
        await send_value(send, handle, 202, _location(handle))

    async def _stream(
        self, request: Request, once: SingleUseProof | None, receive: Receive, send: Send, *, anew: bool
    ) -> None:
        with self.hub.follow(request.run, backlog=SHORT_BACKLOG) as events:
            going = await self.begin(request, once)
            if isinstance(going, ActiveRun):
                await going.decided.wait()
            if isinstance(going, Response) or not going.on_record:
                await _send_end(send, request, going if isinstance(going, Response) else going.task.result())
                return
            if going.on_record == request.run:
                following = Following(run=request.run, peer=peer_of(request))
                await self._send_stream(following, events, receive, send, anew=anew)
                return
        with self.hub.follow(going.on_record, backlog=SHORT_BACKLOG) as events:
            following = Following(run=going.on_record, peer=peer_of(request))
            await self._send_stream(following, events, receive, send)

    # ── looking, reading along, cancelling ────────────────────────────────────────────────────────────────────────────

    async def look(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/delegations/{id}`."""
        summary, sender = await self._found(scope)
        if (response := await self.hub.outcome(summary.run)) is not None:
            await send_value(send, with_session_of_peer(response, peer_name(sender)))
            return
        asked = [each.text for each in await self.hub.pending() if each.request.run == summary.run]
        question = next(iter(asked), "") or self.waiting.question(summary.run)
        state = "waiting" if question or summary.state == "waiting" else "running"
        await send_value(send, _handle(scope["path_params"]["id"], summary.run, state, question), 202)

    async def read_along(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /v1/delegations/{id}/events`."""
        summary, sender = await self._found(scope)
        last = headers_of(scope).get("last-event-id", "0").strip()
        if _NUMBER.fullmatch(last) is None:
            problem = Problem("Last-Event-ID", "give the number of the last event that was received")
            raise RemitError(fault(Code.MALFORMED_ENVELOPE, "the header Last-Event-ID is wrong", problems=(problem,)))
        if scope["method"] == "HEAD":
            await send_bytes(send, 200, b"", tuple(STREAM_HEADERS))
            return
        with self.hub.follow(summary.run, backlog=SHORT_BACKLOG) as events:
            following = Following(run=summary.run, after=int(last), peer=peer_name(sender))
            await self._send_stream(following, events, receive, send)

    async def _send_stream(
        self, following: Following, events: Events, receive: Receive, send: Send, *, anew: bool = False
    ) -> None:
        """Send a run's events; one that is carried out *anew* whenever it is sent ends when its asker hangs up."""
        location = (b"location", f"/v1/delegations/{following.run}".encode())

        def gone() -> None:
            events.close()
            if anew:
                self.hub.cancel(following.run, GONE)

        leaving = Leaving(receive, gone, self.waiting.soon)
        self.streams.add(events)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, location]})
            async for frames in follow(self.hub, following, events):
                await send({"type": "http.response.body", "body": frames, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            leaving.cancel()
            self.streams.discard(events)

    async def cancel(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/delegations/{id}/cancel`."""
        headers = headers_of(scope)
        sender = await self.sender(scope, headers)
        # Read before anything is looked up: who hangs up meanwhile wants it stopped all the same.
        body = await optional(headers, receive)
        said = await read_as(partial(decode, kind=Reason), body) if body else Reason()
        name: str = scope["path_params"]["id"]
        try:
            summary = await self.find(name, sender, scope[ACCESS].others)
        except RemitError:
            await self.hub.store.flush()  # it may have come a moment ago, and be about to be recorded
            summary = await self.find(name, sender, scope[ACCESS].others)
        outcome = await self.stop(summary, sender.name, said.reason)
        if outcome is None:
            await send_value(send, _handle(name, summary.run, "running"), 202)
        elif may_see(sender, summary, Permission.READ):
            await send_value(send, with_session_of_peer(outcome, peer_name(sender)))
        else:  # to stop a run is not to read what it had to say
            await send_value(send, outline(outcome))

    async def stop(self, summary: RunSummary, by: str, reason: str) -> Response | None:
        """Cancel a run, wherever it is carried out, and return how it ended; None if it takes longer than is polite."""
        words = f"by {by}" + (f": {reason[:200]}" if reason else "")
        if summary.response is None and not self.hub.cancel(summary.run, words):
            await self.hub.store.control(summary.run, "cancel", by, reason[:200])
        try:
            async with asyncio.timeout(CANCEL_WAIT_S):
                await self.hub.store.wait(summary.run)
        except TimeoutError:
            return None
        return await self.hub.outcome(summary.run)

    async def _found(self, scope: Scope) -> tuple[RunSummary, Sender]:
        """Return the run that the path names, and who wants to know of it."""
        sender = await self.sender(scope, headers_of(scope))
        return await self.find(scope["path_params"]["id"], sender, scope[ACCESS].others), sender

    async def find(self, name: str, sender: Sender, others: Permission | None = None) -> RunSummary:
        """Return a run by its id, or by the sender's own; raise a `RemitError` unless it may be seen.

        With the permission *others* it may be anyone's.
        """
        store = self.hub.store
        for summary in await store.runs(run=name, limit=1):
            if summary.run == name and may_see(sender, summary, others):
                return summary
        runs = await store.named(name, RunScope(users=sender.users, agents=sender.targets, via=sender.name))
        if len(runs) == 1:  # two users of a client may have chosen the same: then it names neither
            (summary,) = await store.runs(run=runs[0], limit=1)
            return summary
        raise RemitError(fault(Code.NOT_FOUND, f"there is no delegation `{name[:100]}` that {sender.name} may see"))


async def _send_end(send: Send, request: Request, response: Response) -> None:
    await send_response(send, with_session_of_peer(response, peer_of(request)))


def going_down() -> RemitError:
    """Return why nothing more is taken."""
    how = "Ask another server, or try again in 1 s."
    return RemitError(fault(Code.OVERLOADED, "this server is shutting down", retry_after_ms=1_000, suggestion=how))


def visible(sender: Sender, others: Permission | None = None) -> RunScope:
    """Return which runs a sender may see: those that it could have asked for; with the permission *others* all."""
    if others is not None and others in sender.may:
        return ANYONES
    return RunScope(users=sender.users, agents=sender.targets, via=sender.name if sender.is_hub else None)


def may_see(sender: Sender, summary: RunSummary, others: Permission | None = None) -> bool:
    """Say whether a run is one of those."""
    users, agents, via = visible(sender, others)
    return (
        (users is None or summary.user in users)
        and (agents is None or summary.agent in agents)
        and via in (None, summary.via)
    )


def agree(headers: Headers, sent: Submission) -> None:
    """Refuse headers that contradict the envelope beside which they are sent (X9)."""
    said = (
        ("x-agent-request-id", sent.id),
        ("x-agent-origin", sent.origin),
        ("x-agent-depth", None if sent.remit is None else str(sent.remit.depth)),
        ("x-agent-parent-session", sent.parent_session),
    )
    if problems := tuple(
        Problem(name, f"contradicts the envelope, which says {value!r}" if value else "says what the envelope does not")
        for name, value in said
        if name in headers and headers[name] != value and unquote(headers[name]) != value
    ):
        names = ", ".join(problem.path for problem in problems)
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, f"headers contradict the envelope: {names}", problems=problems))


async def optional(headers: Headers, receive: Receive, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the body of a request that need not have one."""
    there = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    return await read_json(headers, receive, max_bytes) if there else b""


def _handle(name: str, run: str, state: Literal["running", "waiting"], question: str = "") -> Handle:
    link = f"/v1/delegations/{run}"
    return Handle(id=name, run=run, state=state, question=question, link=link, events=f"{link}/events")


def _location(handle: Handle) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"location", handle.link.encode()),)


Endpoint = Callable[[Scope, Receive, Send], Any]


def guarded(endpoint: Endpoint, access: Access | None = None) -> "Guarded":
    """Return an endpoint whose refusals are sent, and which ends quietly when whoever asked has hung up.

    *access* says who may use it; None: that is checked otherwise.
    """
    return Guarded(endpoint, access)


class Guarded:
    """An endpoint as an application."""

    def __init__(self, endpoint: Endpoint, access: Access | None) -> None:
        self._endpoint = endpoint
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False
        scope[ACCESS] = self.access
        if named := scope.get("path_params"):
            # Decoded only now: an id may hold a slash, which is none of the path's.
            scope["path_params"] = {name: unquote(value) for name, value in named.items()}

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._endpoint(scope, receive, sending)
        except RemitError as error:
            if not started:
                with suppress(RemitError):  # a header that stands there twice
                    note(scope, headers_of(scope), error.fault)
                await send_fault(send, error.fault)
        except ClientGone:
            pass
        except Exception as error:  # noqa: BLE001 - logged without what it must not show
            log.error("%s %r failed: %s", scope["method"], scope["path"][:100], type(error).__name__)
            if not started:
                await send_fault(send, fault(Code.DELEGATION_FAILED, f"the server failed ({type(error).__name__})"))
