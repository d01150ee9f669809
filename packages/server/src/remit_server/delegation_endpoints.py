"""The endpoints of delegations and agents, metrics and readiness."""

import asyncio
import os
import time
from collections.abc import Iterable, Iterator
from functools import partial
from urllib.parse import unquote

from msgspec.structs import replace

from remit.policy.reception import Permission, Sender, peer_name, peer_of
from remit.protocol.card import AgentCard
from remit.protocol.codec import decode_submission
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.protocol.records import outline
from remit.protocol.submission import Submission
from remit.runtime.active_runs import ActiveRun
from remit.runtime.engine import Engine
from remit.runtime.events import SHORT_BACKLOG, Events
from remit.runtime.metrics import BUCKETS, PHASES
from remit.runtime.ports import RunSummary, SingleUseProof, Store, StoreError
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
from remit_server.documents.api_values import AgentList, Handle, PublicCard, Reason
from remit_server.event_endpoints import last_event_of
from remit_server.operations import Answered, ApiRequest
from remit_server.streams import STREAM, STREAM_HEADERS, Following, follow, send_events


class DelegationEndpoints:
    """The HTTP endpoints of delegations."""

    def __init__(self, delegations: Delegations) -> None:
        self._delegations = delegations
        self._hub = delegations.hub

    async def ask(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/delegations`."""
        headers = headers_of(scope)
        sender = await self._delegations.sender(scope, headers, submits=True)
        sent = await read_as(decode_submission, await read_json(headers, receive))
        agree(headers, sent)
        if sent.traceparent is None and "traceparent" in headers:
            sent = replace(sent, traceparent=headers["traceparent"][:55])
        request = await self._delegations.received(sent, sender, headers)
        once = self._delegations.gate.once(headers)
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
        found = await self._delegations.end_of(going, request.id, receive, anew=anew)
        if isinstance(found, Response):
            await _send_end(send, request, found)
        else:
            await send_value(send, found, 202, _location(found))

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

    async def look(self, call: ApiRequest) -> Response | Answered:
        """`GET /v1/delegations/{id}`."""
        sender = call.sender
        summary = await self._delegations.find(call.named("id"), sender, call.others)
        if (response := await self._delegations.outcome(summary, sender)) is not None:
            return outward_response(response, peer_name(sender))
        asked = [each.text for each in await self._hub.pending() if each.request.run == summary.run]
        question = next(iter(asked), "") or self._delegations.waiting.question(summary.run)
        state = "waiting" if question or summary.state == "waiting" else "running"
        return Answered(handle_of(call.named("id"), summary.run, state, question), 202)

    async def read_along(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /v1/delegations/{id}/events`."""
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

    async def cancel(self, call: ApiRequest) -> Response | Answered:
        """`POST /v1/delegations/{id}/cancel`."""
        # Read before anything is looked up: a client that disconnects meanwhile still wants it cancelled.
        said = await call.body(Reason)
        name, sender, others = call.named("id"), call.sender, call.others

        async def find() -> RunSummary:
            try:
                return await self._delegations.find(name, sender, others)
            except StoreError:
                raise
            except RemitError:
                await self._hub.store.flush()  # it may have arrived a moment ago, and not be recorded yet
                return await self._delegations.find(name, sender, others)

        order = order_of(name, sender, others, said.reason)
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
    said = (
        ("x-agent-request-id", sent.id),
        ("x-agent-origin", sent.origin),
        ("x-agent-depth", None if sent.remit is None else str(sent.remit.depth)),
        ("x-agent-parent-session", sent.parent_session),
    )
    if problems := tuple(
        Problem(
            name, f"contradicts the envelope, which says {value!r}" if value else "has no counterpart in the envelope"
        )
        for name, value in said
        if name in headers and headers[name] != value and unquote(headers[name]) != value
    ):
        names = ", ".join(problem.path for problem in problems)
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, f"headers contradict the envelope: {names}", problems=problems))


def _location(handle: Handle) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"location", handle.link.encode()),)


MOST = 1_000
PER_PAGE = 50


def public(card: AgentCard) -> PublicCard:
    """Return what others may know of an agent."""
    return PublicCard(
        name=card.name, version=card.version, description=card.description, capabilities=card.capabilities
    )


class LookupEndpoints:
    """The endpoints for agents and runs."""

    def __init__(self, delegations: Delegations) -> None:
        self._hub = delegations.hub
        self._exposed = delegations.exposed

    async def agents(self, call: ApiRequest) -> AgentList:
        """`GET /v1/agents`."""
        return AgentList(agents=tuple(map(public, self._cards(call.sender).values())))

    async def agent(self, call: ApiRequest) -> PublicCard:
        """`GET /v1/agents/{name}`."""
        name, known = call.named("name"), self._cards(call.sender)
        card = known.get(name)
        if card is None:
            why = f"no agent `{name[:100]}` is available to {call.sender.name}{did_you_mean(name, known)}"
            raise RemitError(fault(Code.AGENT_NOT_FOUND, why))
        return public(card)

    def _cards(self, sender: Sender) -> dict[str, AgentCard]:
        exposed = self._exposed()
        return {
            name: card
            for name, card in self._hub.cards.items()
            if name in exposed and (sender.targets is None or name in sender.targets)
        }


# A more frequent probe gets the last result: it must not keep the disk busy.
FRESH_S = 1.0

_PROBE = "remit/readyz"
# A request with one nested call writes some 80 KB of a SQLite log. A smaller probe finds room where no request does.
_PROBE_BYTES = 64 * 1024


class Readiness:
    """Probes the store by writing as much as a request does. Concurrent probes, and those within a second, share it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._probe: asyncio.Task[bool] | None = None
        self._written_at = float("-inf")

    async def can_write(self, wait_s: float) -> bool:
        """Return whether the store wrote something lately, or does so within *wait_s*."""
        if time.monotonic() - self._written_at < FRESH_S:
            return True
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._write(wait_s))
        return await asyncio.shield(self._probe)

    async def _write(self, wait_s: float) -> bool:
        try:
            async with asyncio.timeout(wait_s):
                # It passes the writer, behind what is queued, and is durable on return. Emptied again, it leaves its
                # room to the next request. If another process probes at the same time, the store has written for that.
                revision, _ = await self._store.get(_PROBE) or (0, b"")
                written = await self._store.cas(_PROBE, revision, os.urandom(_PROBE_BYTES))
                if written is not None:
                    await self._store.cas(_PROBE, written, b"")
        except (StoreError, TimeoutError):
            return False
        self._written_at = time.monotonic()
        return True

    async def close(self) -> None:
        """Cancel a running probe."""
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.wait({self._probe})


TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class MetricsPage:
    """The metrics page of a hub."""

    def __init__(self, hub: Engine) -> None:
        self._hub = hub
        self._figures = hub.metrics  # counting starts here

    def page(self, *, ready: bool) -> bytes:
        """Return the metrics in the text format of Prometheus; *ready*: what `/readyz` says."""
        return "".join(f"{line}\n" for line in self._lines(ready)).encode()

    def _lines(self, ready: bool) -> Iterator[str]:
        figures = self._figures
        yield from _head("remit_ready", "gauge", "Whether the server takes requests. 0: no, 1: yes.")
        yield f"remit_ready {int(ready)}"
        yield from _head("remit_delegations_total", "counter", "Delegations that ended, by agent and status.")
        yield from (
            _metric_line("remit_delegations_total", n, agent=a, status=s) for (a, s), n in sorted(figures.ended.items())
        )
        yield from _head("remit_refusals_total", "counter", "Requests that were refused, by agent and code.")
        yield from (
            _metric_line("remit_refusals_total", n, agent=a, code=c) for (a, c), n in sorted(figures.refused.items())
        )
        yield from _head(
            "remit_door_refusals_total", "counter", "Requests refused before they reached an agent, by reason."
        )
        yield from (
            _metric_line("remit_door_refusals_total", n, reason=c) for c, n in sorted(figures.turned_away.items())
        )
        yield from _head("remit_tokens_total", "counter", "Tokens spent, including sub-agents, by agent.")
        for kind, spent in (("completion", figures.completion), ("prompt", figures.prompt)):
            yield from (_metric_line("remit_tokens_total", n, agent=a, kind=kind) for a, n in sorted(spent.items()))
        yield from _head("remit_delegation_seconds", "histogram", "Duration of delegations.")
        for agent, times in sorted(figures.times.items()):
            total = 0
            for bound, number in zip((*BUCKETS, "+Inf"), times, strict=True):
                total += number
                yield _metric_line("remit_delegation_seconds_bucket", total, agent=agent, le=bound)
            yield _metric_line("remit_delegation_seconds_sum", figures.spent_ms[agent] / 1_000, agent=agent)
            yield _metric_line("remit_delegation_seconds_count", total, agent=agent)
        yield from _head("remit_spans_lost_total", "counter", "Spans that could not be delivered to a collector.")
        yield f"remit_spans_lost_total {figures.lost_spans}"
        standing = self._hub.agent_status()
        yield from _head("remit_running", "gauge", "Running delegations.")
        yield from (_metric_line("remit_running", each.running, agent=name) for name, each in standing.items())
        yield from _head("remit_queued", "gauge", "Delegations waiting for a slot.")
        yield from (_metric_line("remit_queued", each.queued, agent=name) for name, each in standing.items())
        yield from _head("remit_breaker", "gauge", "Circuit breaker. 0: closed, 1: half-open, 2: open.")
        yield from (_metric_line("remit_breaker", PHASES[each.breaker], agent=name) for name, each in standing.items())


def _head(name: str, kind: str, meaning: str) -> Iterable[str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"


def _metric_line(name: str, value: float, **labels: object) -> str:
    said = ",".join(f'{label}="{_escaped(str(each))}"' for label, each in labels.items())
    return f"{name}{{{said}}} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
