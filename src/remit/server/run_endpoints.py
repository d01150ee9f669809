"""The endpoints of `/v1/runs`: search, delegations, and the acts on a run: cancel, retry, resume."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from remit.documents.api_runs import PublicRunTree, RunAct, RunCancel, RunList, RunResume, RunRetry, RunTable
from remit.documents.run_search import STANDINGS, RunFilter
from remit.documents.spend import Pricing
from remit.policy.reception import Sender
from remit.policy.redaction import TOKEN
from remit.protocol.codec import decode, encode
from remit.protocol.envelope import USER, Request, Response
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Notice
from remit.runtime.active_runs import ActiveRun
from remit.runtime.clock import LoopClock
from remit.runtime.ports import RunScope, RunSummary, StoreError
from remit.runtime.redactor import has_tokens_in
from remit.runtime.root_request import new_run_id
from remit.runtime.shared_requests import CancelOrder
from remit.server.access import ACCESS, may_see, visible
from remit.server.bodies import Receive, Scope, Send, headers_of, read_as, read_optional_json, send_value
from remit.server.compression import send_large
from remit.server.delegations import Delegations, going_down, order_of, words_for
from remit.server.lookup_endpoints import MOST, PER_PAGE
from remit.server.parameters import parameter, refuse_unknown, words_of
from remit.server.public_run_lines import run_line, search, summary_of
from remit.server.run_trees import RunTrees

T = TypeVar("T", bound=Struct)

_SEARCHED = (
    *("agent", "before", "code", "correlation", "limit", "q", "since_ms", "state", "status", "until_ms", "user"),
)
_ABSENT = -1
_wall_ms = LoopClock().wall_ms


class RunEndpoints:
    """The endpoints for runs."""

    def __init__(self, delegations: Delegations, pricing: Pricing, wall_ms: Callable[[], int] = _wall_ms) -> None:
        self._hub = delegations.hub
        self._delegations = delegations
        self._trees = RunTrees(self._hub.store)
        self._pricing = pricing
        self._wall_ms = wall_ms

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def runs(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/runs`."""
        sender = await self._delegations.sender(scope, headers_of(scope))
        refuse_unknown(scope, *_SEARCHED)
        found = await search(
            self._hub.store,
            _filter(scope),
            _narrowed(visible(sender, scope[ACCESS].others), scope),
            min(parameter(scope, "limit", PER_PAGE), MOST),
            user=parameter(scope, "user", "") or None,
            correlation=parameter(scope, "correlation", "") or None,
        )
        asking = Counter(question.request.run for question in await self._hub.pending())
        lines = tuple(run_line(each, asking[each.run]) for each in found.runs)
        await send_large(send, headers_of(scope), RunList(runs=lines, searched=found.searched, next=found.next))

    async def run(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/runs/{run}`."""
        summary, _ = await self._found(scope)
        delegations = tuple(await self._hub.delegations(summary.run))
        await send_large(send, headers_of(scope), PublicRunTree(run=summary.run, delegations=delegations))

    async def tree(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of all
        """`GET /v1/runs/{run}/tree`."""
        summary, _ = await self._found(scope)
        refuse_unknown(scope, "after")
        now_ms = self._wall_ms()
        found = await self._trees.changes(summary.run, parameter(scope, "after", 0), now_ms, self._pricing.cost)
        if found is None:  # pruned or erased since it was listed
            raise _unknown(summary.run)
        asking = sum(question.request.run == summary.run for question in await self._hub.pending())
        line = run_line(summary, asking)
        value = RunTable(
            run=line,
            seq=found.seq,
            now_ms=now_ms,
            count=found.count,
            currency=self._pricing.currency,
            delegations=found.table,
        )
        await send_large(send, headers_of(scope), value)

    # ── acting ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def cancel(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/runs/{run}/cancel`."""
        headers = headers_of(scope)
        sender = await self._delegations.sender(scope, headers)
        body = await read_optional_json(headers, receive)
        wanted = await read_as(partial(decode, kind=RunCancel), body) if body else RunCancel()
        name, below = scope["path_params"]["run"], wanted.delegation or ""
        order = order_of(name, sender, scope[ACCESS].others, wanted.reason, below if below != name else "")
        if order.delegation:
            await _send_act(send, await self._cancel_below(order, scope, sender))
            return
        run, summary, outcome = await self._delegations.cancel(order, partial(self._seen, scope, sender))
        await _send_act(send, _stopped(run, summary, outcome))

    async def _cancel_below(self, order: CancelOrder, scope: Scope, sender: Sender) -> RunAct:
        path, run = order.delegation, order.run
        by = words_for(order.by, order.reason)
        cancelled = RunAct(run=run, outcome="cancelled", delegation=path, status=Status.CANCELLED)
        # The store may be away; the order says which runs its sender may cancel.
        if path.startswith(f"{run}.") and self._hub.shared.running(order) is not None and self._hub.cancel(path, by):
            return cancelled
        try:
            summary = await self._seen(scope, sender)
        except StoreError:
            if await self._hub.shared.cancel_elsewhere(order) is None:
                raise
            return cancelled
        node = await self._trees.node(summary.run, path) if path.startswith(f"{summary.run}.") else None
        if node is None or node.path != path:
            problem = Problem("delegation", f"no delegation `{path[:100]}` in this run")
            how = "`GET /v1/runs/{run}/tree` lists the delegations of a run; a path begins with the run's id."
            raise RemitError(fault(Code.NOT_FOUND, "no such delegation", problems=(problem,), suggestion=how))
        if node.response is not None or node.lost or summary.response is not None:
            status = node.response.status if node.response else None
            return RunAct(run=summary.run, outcome="over", delegation=path, status=status)
        await self._hub.store.control(summary.run, "cancel", order.by, order.reason, path)
        return RunAct(run=summary.run, outcome="asked", delegation=path)

    async def retry(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/runs/{run}/retry`."""
        summary, sender, wanted = await self._asked(scope, receive, RunRetry)
        if self._delegations.draining:
            raise going_down()
        request = await self._again(summary, wanted)
        going = await self._delegations.begin(request)
        if isinstance(going, ActiveRun):
            await going.decided.wait()
        if isinstance(going, Response) or not going.on_record:
            ended = going if isinstance(going, Response) else await going.task
            code = ended.fault.code if ended.fault else None
            act = RunAct(run=request.run, outcome="refused", status=ended.status, code=code)
        else:
            self._note(request.run, request.target, f"started by {sender.name}, as a retry of run {summary.run}")
            self._note(summary.run, request.target, f"retried by {sender.name}, as run {request.run}")
            act = RunAct(run=request.run, outcome="retried")
        await _send_act(send, act)

    async def _again(self, summary: RunSummary, wanted: RunRetry) -> Request:
        """Return the request that repeats a run, in its user's words; raise a `RemitError` if it cannot be repeated."""
        request = await self._hub.request_of(summary.run)
        if summary.response is None:
            raise _conflict(f"run {summary.run} has not ended", "Cancel it first, or wait until it ends.")
        if summary.response.status is Status.SUCCESS:
            raise _conflict(f"run {summary.run} succeeded", "To repeat it, ask the agent again.")
        if request is None or request.origin != USER:
            why = f"run {summary.run} was sent by the hub {summary.via}" if summary.via else "its request is gone"
            raise _conflict(why, "Retry it at the hub where it started.")
        said = encode((request.objective, request.input, request.handoff, request.files)).decode()
        if TOKEN.search(said) or has_tokens_in(request.files):
            how = "Ask the agent again. Redacted values are kept for a day, and longer in a session."
            raise _conflict(f"the redacted values of run {summary.run} are no longer stored", how)
        now_ms, limits, remit = self._wall_ms(), self._hub.limits, request.remit
        run = new_run_id(now_ms)
        remit = replace(
            remit,
            time_ms=min(wanted.deadline_ms or remit.time_ms, max(limits.root_time_ms, remit.time_ms)),
            tokens=min(wanted.max_tokens or remit.tokens, max(limits.root_tokens, remit.tokens)),
        )
        return replace(
            request,
            id=run,
            run=run,
            remit=remit,
            session=run if request.session == request.run else request.session,
            retry_of=request.id,
            correlation=run if request.correlation in (None, request.run) else request.correlation,
            created_ms=now_ms,
            view=None,
            traceparent=None,
        )

    async def resume(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/runs/{run}/resume`."""
        summary, sender, _ = await self._asked(scope, receive, RunResume)
        match summary.state:
            case "finished":
                status = summary.response.status if summary.response else None
                act = RunAct(run=summary.run, outcome="over", status=status)
            case "silent":
                self._note(summary.run, summary.agent, f"{sender.name} asks to resume it")
                self._hub.shared.sweep_soon()
                act = RunAct(run=summary.run, outcome="resuming")
            case "running" | "waiting" as state:
                act = RunAct(run=summary.run, outcome=state)
        await _send_act(send, act)

    # ── who asks for what ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _found(self, scope: Scope) -> tuple[RunSummary, Sender]:
        """Return the run that the path names, and the sender; raise a `RemitError` unless the sender may see it."""
        sender = await self._delegations.sender(scope, headers_of(scope))
        return await self._seen(scope, sender), sender

    async def _seen(self, scope: Scope, sender: Sender) -> RunSummary:
        run: str = scope["path_params"]["run"]
        summary = await summary_of(self._hub.store, run)
        if summary is None or not may_see(sender, summary, scope[ACCESS].others):
            raise _unknown(run, sender)
        return summary

    async def _asked(self, scope: Scope, receive: Receive, kind: type[T]) -> tuple[RunSummary, Sender, T]:
        """Return the run, the sender, and the body of an act."""
        headers = headers_of(scope)
        summary, sender = await self._found(scope)
        body = await read_optional_json(headers, receive)
        return summary, sender, await read_as(partial(decode, kind=kind), body) if body else kind()

    def _note(self, run: str, agent: str, text: str) -> None:
        """Record for operators who did something with a run."""
        self._hub.store.append(Kind.NOTICE, self._wall_ms(), run, run, Notice(delegation=run, agent=agent, text=text))


def _stopped(run: str, summary: RunSummary | None, outcome: Response | None) -> RunAct:
    if outcome is None:
        return RunAct(run=run, outcome="asked")
    code = outcome.fault.code if outcome.fault else None
    over = (summary is not None and summary.response is not None) or code is not Code.CANCELLED
    return RunAct(run=run, outcome="over" if over else "cancelled", status=outcome.status, code=code)


async def _send_act(send: Send, act: RunAct) -> None:
    await send_value(send, act, 202 if act.outcome in ("asked", "resuming") else 200)


def _filter(scope: Scope) -> RunFilter:
    return RunFilter(
        text=parameter(scope, "q", "").strip(),
        states=frozenset(words_of(scope, "state", STANDINGS)),
        statuses=frozenset(map(Status, words_of(scope, "status", tuple(Status)))),
        codes=frozenset(map(Code, words_of(scope, "code", tuple(Code)))),
    )


def _narrowed(of: RunScope, scope: Scope) -> RunScope:
    """Return the scope of a reader, narrowed to what is searched for."""
    agent, before = parameter(scope, "agent", ""), parameter(scope, "before", "")
    since_ms, until_ms = (parameter(scope, name, _ABSENT) for name in ("since_ms", "until_ms"))
    if agent:
        of = of._replace(agents=[agent] if of.agents is None or agent in of.agents else [])
    return of._replace(
        before=before or None,
        since_ms=None if since_ms == _ABSENT else since_ms,
        until_ms=None if until_ms == _ABSENT else until_ms,
    )


def _conflict(why: str, how: str) -> RemitError:
    return RemitError(fault(Code.STATE_CONFLICT, why, suggestion=how))


def _unknown(run: str, sender: Sender | None = None) -> RemitError:
    who = f" that {sender.name} may see" if sender is not None else ""
    return RemitError(fault(Code.NOT_FOUND, f"no run `{run[:100]}`{who}"))
