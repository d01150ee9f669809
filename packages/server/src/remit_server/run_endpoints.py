"""The endpoints of `/v1/runs`: search, delegations, workflows, and the acts on a run: cancel, retry, resume."""

from collections import Counter
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from remit.policy.reception import Permission, Sender
from remit.policy.redaction import TOKEN
from remit.ports import ANYONES, RunScope, RunSummary, StoreError
from remit.protocol.codec import encode
from remit.protocol.envelope import USER, Request, Response
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Notice
from remit.protocol.remit import lower
from remit.runtime.active_runs import ActiveRun
from remit.runtime.clock import LoopClock
from remit.runtime.redactor import has_tokens_in
from remit.runtime.root_request import new_run_id
from remit.runtime.shared_requests import CancelOrder
from remit_server.access import may_see, visible
from remit_server.delegation_detail import DelegationDetails
from remit_server.delegation_views import DelegationDetail
from remit_server.delegations import Delegations, going_down, order_of, words_for
from remit_server.documents.api import CANCEL_RUN, RESUME_RUN, RETRY_RUN, RUN, RUN_TREE, RUNS, Parameter, RunsQuery
from remit_server.documents.api_values import (
    PublicRunTree,
    RunAct,
    RunCancel,
    RunList,
    RunResume,
    RunRetry,
    RunTable,
)
from remit_server.documents.spend import Pricing
from remit_server.documents.workflows import RunWorkflows, workflows_of
from remit_server.operations import Answered, ApiRequest, answers, get, parameter, words_in
from remit_server.policy_endpoints import TeamPolicy
from remit_server.run_trees import RunFilter, run_line, search, summary_of

MOST, PER_PAGE = 1_000, 50
_CHANGED_AFTER = Parameter(name="after", kind="integer", meaning="Only delegations that changed after this record.")
_PATH = Parameter(
    name="path",
    place="path",
    meaning="The path of the delegation: the id of the run for the first one, `run.2.1` for others.",
)
_wall_ms = LoopClock().wall_ms


class RunEndpoints:
    """The endpoints for runs."""

    def __init__(
        self, delegations: Delegations, policy: TeamPolicy, pricing: Pricing, wall_ms: Callable[[], int] = _wall_ms
    ) -> None:
        self._hub = delegations.hub
        self._delegations = delegations
        self._trees = delegations.trees
        self._details = DelegationDetails(self._hub, self._trees, policy)
        self._pricing = pricing
        self._wall_ms = wall_ms

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────

    @answers(RUNS)
    async def runs(self, call: ApiRequest) -> RunList:
        query = call.query(RunsQuery)
        page = await search(
            self._hub.store,
            _filter(query),
            _narrowed(visible(call.sender, call.others), query),
            min(query.get("limit", PER_PAGE), MOST),
            user=query.get("user"),
            correlation=query.get("correlation"),
        )
        asking = Counter(question.request.run for question in await self._hub.pending())
        lines = tuple(run_line(each, asking[each.run]) for each in page.runs)
        return RunList(runs=lines, searched=page.searched, next=page.next)

    @answers(RUN_TREE)
    async def run(self, call: ApiRequest) -> PublicRunTree:
        summary = await self._visible_run(call)
        delegations = tuple(await self._hub.delegations(summary.run))
        return PublicRunTree(run=summary.run, delegations=delegations)

    @answers(get("/v1/runs/{run}/tree", RUN, _CHANGED_AFTER, is_large=True, others=Permission.READ))
    async def tree(self, call: ApiRequest) -> RunTable:
        """All delegations of a run in columns, or those that changed.

        Columns are small: ten thousand delegations take some hundred kilobytes with gzip.
        """
        summary = await self._visible_run(call)
        now_ms = self._wall_ms()
        changes = await self._trees.changes(summary.run, parameter(call.scope, "after", 0), now_ms, self._pricing.cost)
        if changes is None:  # pruned or erased since it was listed
            raise _unknown(summary.run)
        asking = sum(question.request.run == summary.run for question in await self._hub.pending())
        line = run_line(summary, asking)
        return RunTable(
            run=line,
            seq=changes.seq,
            now_ms=now_ms,
            count=changes.count,
            currency=self._pricing.currency,
            delegations=changes.table,
        )

    @answers(get("/v1/runs/{run}/delegations/{path}", RUN, _PATH, others=Permission.READ))
    async def delegation_detail(self, call: ApiRequest) -> DelegationDetail:
        """One delegation: its remit, what its callee saw, the verdicts, the answer and its records."""
        run, path = (await self._visible_run(call)).run, call.named("path")
        detail = await self._details.read(run, path, others=visible(call.sender, Permission.READ) == ANYONES)
        if detail is None:
            how = f"`GET /v1/runs/{run[:100]}` lists the delegations of the run."
            raise RemitError(fault(Code.NOT_FOUND, f"run {run} has no delegation `{path[:100]}`", suggestion=how))
        return detail

    @answers(get("/v1/runs/{run}/workflow", RUN, others=Permission.READ))
    async def workflow(self, call: ApiRequest) -> RunWorkflows:
        """The workflows that a run follows, with the state of each step."""
        run = (await self._visible_run(call)).run
        return workflows_of(run, await self._trees.tree(run), self._wall_ms())

    # ── acting ────────────────────────────────────────────────────────────────────────────────────────────────────────

    @answers(CANCEL_RUN)
    async def cancel(self, call: ApiRequest) -> Answered:
        wanted = await call.body(RunCancel)
        name, below = call.named("run"), wanted.delegation or ""
        order = order_of(name, call.sender, call.others, wanted.reason, below if below != name else "")
        if order.delegation:
            return _act(await self._cancel_below(order, call))
        run, summary, outcome = await self._delegations.cancel(order, partial(self._visible_run, call))
        return _act(_stopped(run, summary, outcome))

    async def _cancel_below(self, order: CancelOrder, call: ApiRequest) -> RunAct:
        path, run = order.delegation, order.run
        by = words_for(order.by, order.reason)
        cancelled = RunAct(run=run, outcome="cancelled", delegation=path, status=Status.CANCELLED)
        # The store may be away; the order says which runs its sender may cancel.
        if path.startswith(f"{run}.") and self._hub.shared.running(order) is not None and self._hub.cancel(path, by):
            return cancelled
        try:
            summary = await self._visible_run(call)
        except StoreError:
            if await self._hub.shared.cancel_elsewhere(order) is None:
                raise
            return cancelled
        tree = await self._trees.tree(summary.run)
        node = tree.nodes.get(path) if path.startswith(f"{summary.run}.") else None
        if node is None or node.path != path:
            problem = Problem("delegation", f"no delegation `{path[:100]}` in this run")
            how = "`GET /v1/runs/{run}/tree` lists the delegations of a run; a path begins with the run's id."
            raise RemitError(fault(Code.NOT_FOUND, "no such delegation", problems=(problem,), suggestion=how))
        if node.response is not None or node.lost or summary.response is not None:
            status = node.response.status if node.response else None
            return RunAct(run=summary.run, outcome="over", delegation=path, status=status)
        await self._hub.store.control(summary.run, "cancel", order.by, order.reason, path)
        return RunAct(run=summary.run, outcome="asked", delegation=path)

    @answers(RETRY_RUN)
    async def retry(self, call: ApiRequest) -> Answered:
        summary, sender = await self._visible_run(call), call.sender
        wanted = await call.body(RunRetry)
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
        return _act(act)

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
        content = encode((request.objective, request.input, request.handoff, request.files)).decode()
        if TOKEN.search(content) or has_tokens_in(request.files):
            how = "Ask the agent again. Redacted values are kept for a day, and longer in a session."
            raise _conflict(f"the redacted values of run {summary.run} are no longer stored", how)
        now_ms, limits, remit = self._wall_ms(), self._hub.limits, request.remit
        run = new_run_id(now_ms)
        remit = replace(
            remit,
            time_ms=min(wanted.deadline_ms or remit.time_ms, max(limits.root_time_ms, remit.time_ms)),
            tokens=min(wanted.max_tokens or remit.tokens, max(limits.root_tokens, remit.tokens)),
            cost=_cost_again(wanted.max_cost, remit.cost, limits.root_cost),
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

    @answers(RESUME_RUN)
    async def resume(self, call: ApiRequest) -> Answered:
        summary, sender = await self._visible_run(call), call.sender
        await call.body(RunResume)
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
        return _act(act)

    # ── who asks for what ─────────────────────────────────────────────────────────────────────────────────────────────

    async def _visible_run(self, call: ApiRequest) -> RunSummary:
        """Return the run that the path names; raise a `RemitError` unless the sender may see it."""
        run = call.named("run")
        summary = await summary_of(self._hub.store, run)
        if summary is None or not may_see(call.sender, summary, call.others):
            raise _unknown(run, call.sender)
        return summary

    def _note(self, run: str, agent: str, text: str) -> None:
        """Record for operators who did something with a run."""
        self._hub.store.append(Kind.NOTICE, self._wall_ms(), run, run, Notice(delegation=run, agent=agent, text=text))


def _stopped(run: str, summary: RunSummary | None, outcome: Response | None) -> RunAct:
    if outcome is None:
        return RunAct(run=run, outcome="asked")
    code = outcome.fault.code if outcome.fault else None
    over = (summary is not None and summary.response is not None) or code is not Code.CANCELLED
    return RunAct(run=run, outcome="over" if over else "cancelled", status=outcome.status, code=code)


def _act(act: RunAct) -> Answered:
    return Answered(act, 202 if act.outcome in ("asked", "resuming") else 200)


def _filter(query: RunsQuery) -> RunFilter:
    return RunFilter(
        text=query.get("q", "").strip(),
        states=frozenset(words_in(query.get("state", ""))),
        statuses=frozenset(map(Status, words_in(query.get("status", "")))),
        codes=frozenset(map(Code, words_in(query.get("code", "")))),
    )


def _narrowed(of: RunScope, query: RunsQuery) -> RunScope:
    """Return the scope of a reader, narrowed to what is searched for."""
    if agent := query.get("agent"):
        of = of._replace(agents=[agent] if of.agents is None or agent in of.agents else [])
    return of._replace(before=query.get("before"), since_ms=query.get("since_ms"), until_ms=query.get("until_ms"))


def _cost_again(wanted: int | None, had: int | None, most: int | None) -> int | None:
    """Return the money of a run that is retried: never more than the hub grants, or the run had. None: no limit."""
    return lower(had if wanted is None else wanted, None if had is None or most is None else max(had, most))


def _conflict(why: str, how: str) -> RemitError:
    return RemitError(fault(Code.STATE_CONFLICT, why, suggestion=how))


def _unknown(run: str, sender: Sender | None = None) -> RemitError:
    who = f" that {sender.name} may see" if sender is not None else ""
    return RemitError(fault(Code.NOT_FOUND, f"no run `{run[:100]}`{who}"))
