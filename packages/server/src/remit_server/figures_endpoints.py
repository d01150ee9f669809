"""The endpoints for figures: spend, series over time, budgets, and the metrics of a server with several workers."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypedDict, TypeVar

from remit.policy.limits import Limits
from remit.policy.reception import Permission, Sender
from remit.ports import RunScope, Store
from remit.protocol.records import Kind, Record
from remit.runtime.agent_status import LiveRun
from remit_server.access import visible
from remit_server.delegations import Delegations
from remit_server.documents.api import Parameter, parameters_of
from remit_server.documents.common import shown_as
from remit_server.documents.figures import DAY_MS, HOUR_MS, HOURLY_MS, RecordFigures, SumKey, Sums
from remit_server.documents.spend import (
    STEP_MS,
    AgentRate,
    BudgetState,
    LimitLine,
    Pricing,
    RateUse,
    RunBudget,
    Series,
    SeriesOf,
    SeriesStep,
    SpendBy,
    SpendTable,
    UserDay,
    series_lines,
    spend_rows,
    total_of,
)
from remit_server.operations import ApiRequest, answers, get

T = TypeVar("T")

# A page takes some 30 ms to read and to add; other requests are answered in between.
PAGE = 1_000
# How long one request may read on. A record of a million rows is read after a few of them.
READ_S = 0.5


class CurrentFigures:
    """Reads the record from its beginning, in pages, and goes on from there with each request.

    If rows are removed from the record (because a user is erased, or by the retention rule), it begins anew, so that
    nothing stays here that was removed there.
    """

    def __init__(self, store: Store, *, page: int = PAGE, read_s: float = READ_S) -> None:
        self._store = store
        self._page = page
        self._read_s = read_s
        self._figures: RecordFigures | None = None
        self._removed_until = 0
        """Removals up to this row were complete before the record was read."""
        self._is_stale = False
        self._after = 0
        """The last row that was seen since rows were removed."""
        self.complete = False
        """Whether everything was read when somebody last asked."""

    async def look(self, at: Callable[[RecordFigures], T]) -> T:
        """Read on for a bounded time, and return what *at* makes of the figures; it is called in a thread."""
        async with self._reading:
            until = time.monotonic() + self._read_s
            while not await self._read_page() and time.monotonic() < until:
                pass
            assert self._figures is not None, "the first page makes them"
            return await asyncio.to_thread(at, self._figures)

    async def _read_page(self) -> bool:
        """Read a page, and return whether it was the last one."""
        figures = self._figures
        if figures is None:
            self._removed_until = await self._store.newest()
            figures = self._figures = RecordFigures()
        after = self._after if self._is_stale else figures.after
        records = await self._store.records(after=after, limit=self._page)
        self._add(figures, records)
        at_end = len(records) < self._page
        if at_end and self._is_stale:
            # All removals so far are known now: what is read from here on is what they left.
            self._removed_until, self._is_stale, self._figures = self._after, False, RecordFigures()
            at_end = False
        self.complete = at_end
        return at_end

    def _add(self, figures: RecordFigures, records: list[Record]) -> None:
        for record in records:
            if record.kind is Kind.REMOVED and record.seq > self._removed_until and not self._is_stale:
                self._is_stale, self._figures = True, RecordFigures()
            if self._is_stale:
                self._after = record.seq
            else:
                figures.add(record)

    @cached_property
    def _reading(self) -> asyncio.Lock:
        return asyncio.Lock()


MOST_ROWS = 1_000
_ROWS = 100
# A chart with more points is not read.
MOST_STEPS = 400
# Users and runs in one answer about budgets.
MOST_USERS = 200
MOST_RUNS = 500


class PeriodQuery(TypedDict, total=False):
    """The period of figures."""

    since_ms: Annotated[int, Parameter(meaning="Begin of the period, in milliseconds since 1970.")]
    until_ms: Annotated[int, Parameter(meaning="End of the period; without it, now.")]


class SpentQuery(PeriodQuery, total=False):
    """What is counted, in which period."""

    user: Annotated[str, Parameter(meaning="Only this user.")]
    agent: Annotated[str, Parameter(meaning="Only this agent.")]
    capability: Annotated[str, Parameter(meaning="Only this capability.")]
    model: Annotated[str, Parameter(meaning="Only this model.")]


class SpendQuery(SpentQuery, total=False):
    """The rows of a table of what was spent."""

    by: Annotated[SpendBy, Parameter(meaning="What the rows are about (default: `agent`).")]
    after: Annotated[int, Parameter(meaning="Skip so many rows.")]
    limit: Annotated[int, Parameter(meaning="Maximum number of rows.")]


class SeriesQuery(SpentQuery, total=False):
    """The lines of a chart."""

    what: Annotated[SeriesOf, Parameter(meaning="What is shown (default: `runs`).")]
    step: Annotated[SeriesStep, Parameter(meaning="Length of a step (default: `hour`).")]


class FiguresEndpoints:
    """The endpoints for spend, series and budgets."""

    def __init__(self, delegations: Delegations, figures: CurrentFigures, pricing: Pricing) -> None:
        self._hub = delegations.hub
        self._delegations = delegations
        self._figures = figures
        self._pricing = pricing
        self._wall_ms = delegations.hub.clock.wall_ms

    @answers(get("/v1/spend", *parameters_of(SpendQuery), others=Permission.READ))
    async def spend(self, call: ApiRequest) -> SpendTable:
        """What was spent, by user, agent, capability, day or model."""
        query = call.query(SpendQuery)
        by = query.get("by", "agent")
        since_ms, until_ms = period_of(query, 30 * DAY_MS, self._wall_ms())
        after, limit = query.get("after", 0), min(query.get("limit", _ROWS), MOST_ROWS)
        wanted = self._filter(call, query)

        def table(figures: RecordFigures) -> SpendTable:
            rows = spend_rows(figures.between(since_ms, until_ms), by, wanted, self._pricing)
            totals = total_of(figures.between(since_ms, until_ms), wanted, self._pricing)
            page = rows[after : after + limit]
            return SpendTable(
                by=by,
                since_ms=since_ms,
                until_ms=until_ms,
                currency=self._pricing.currency,
                rows=tuple(page),
                totals=totals.row(""),
                next=after + limit if page and after + limit < len(rows) else None,
                complete=self._figures.complete,
                through_ms=figures.through_ms,
                from_ms=figures.from_ms,
            )

        return await self._figures.look(table)

    @answers(get("/v1/series", *parameters_of(SeriesQuery), others=Permission.READ))
    async def series(self, call: ApiRequest) -> Series:
        """Figures over time."""
        query = call.query(SeriesQuery)
        what, step = query.get("what", "runs"), query.get("step", "hour")
        step_ms = STEP_MS[step]
        since_ms, until_ms = period_of(query, DAY_MS if step == "hour" else 30 * DAY_MS, self._wall_ms())
        # Single hours of earlier days are not known any more.
        first_ms = max(since_ms, until_ms - MOST_STEPS * step_ms, self._wall_ms() - HOURLY_MS if step == "hour" else 0)
        since_ms = first_ms - first_ms % step_ms
        times = tuple(range(since_ms, until_ms, step_ms))
        wanted = self._filter(call, query)

        def lines(figures: RecordFigures) -> Series:
            return Series(
                what=what,
                step=step,
                currency=self._pricing.currency,
                at_ms=times,
                lines=series_lines(figures.between(since_ms, until_ms), times, what, step, wanted, self._pricing),
                complete=self._figures.complete,
                through_ms=figures.through_ms,
                from_ms=figures.from_ms,
            )

        return await self._figures.look(lines)

    @answers(get("/v1/budgets", others=Permission.READ))
    async def budgets(self, call: ApiRequest) -> BudgetState:
        """The limits in force, and what is used of them now."""
        of, now_ms, limits = visible(call.sender, call.others), self._wall_ms(), self._hub.limits
        day_ms = now_ms - now_ms % DAY_MS
        # A run on its way may be anyone's: whose client sent it is not known here, so a hub sees none of them.
        live = [each for each in self._hub.live_runs() if of.via is None and in_scope(of, each.user, each.agent, None)]

        def state(figures: RecordFigures) -> BudgetState:
            return BudgetState(
                limits=limit_lines(limits),
                day_ms=day_ms,
                users=_users(figures, day_ms, of, live, limits),
                runs=tuple(shown_as(RunBudget, run) for run in live[:MOST_RUNS]),
                rates=self._rates(call.sender),
                complete=self._figures.complete,
                through_ms=figures.through_ms,
            )

        return await self._figures.look(state)

    def _rates(self, sender: Sender) -> tuple[AgentRate, ...]:
        exposed, cards = self._delegations.exposed(), self._hub.cards
        return tuple(
            AgentRate(agent=name, rate=RateUse(limit=rate, calls=each.rate_calls, wait_ms=each.rate_wait_ms))
            for name, each in self._hub.agent_status().items()
            if (rate := cards[name].rate) is not None
            and name in exposed
            and (sender.targets is None or name in sender.targets)
        )

    def _filter(self, call: ApiRequest, query: SpentQuery) -> Callable[[SumKey], bool]:
        """Return the filter of a query, within what its sender may see."""
        of = visible(call.sender, call.others)
        user, agent = query.get("user"), query.get("agent")
        capability, model = query.get("capability"), query.get("model")

        def wanted(key: SumKey) -> bool:
            return (
                in_scope(of, key.user, key.root, key.via)
                and user in (None, key.user)
                and agent in (None, key.agent)
                and capability in (None, key.capability)
                and (model is None or model == self._pricing.model_of(key))
            )

        return wanted


def period_of(query: PeriodQuery, span_ms: int, now_ms: int) -> tuple[int, int]:
    """Return the period that is asked for, from a whole hour on and until now at most; else the last *span_ms*."""
    until_ms = min(query.get("until_ms", now_ms + 1), now_ms + 1)
    since_ms = min(query.get("since_ms", max(0, until_ms - span_ms)), until_ms)
    return since_ms - since_ms % HOUR_MS, until_ms


def in_scope(of: RunScope, user: str, root: str, via: str | None) -> bool:
    """Return whether a reader may see figures of a run: as `may_see` decides for the run itself."""
    return (
        (of.users is None or user in of.users)
        and (of.agents is None or root in of.agents)
        and (of.via is None or of.via == via)
    )


def limit_lines(limits: Limits) -> tuple[LimitLine, ...]:
    """Return the limits in force, by their keys in the team file."""
    lines: list[tuple[str, int | None, Literal["tokens", "millionths", "ms", "delegations", "bytes", "levels"]]] = [
        ("budgets.run_tokens", limits.root_tokens, "tokens"),
        ("budgets.delegation_tokens", limits.delegation_tokens, "tokens"),
        ("budgets.context_tokens", limits.context_tokens, "tokens"),
        ("budgets.per_user_per_day", limits.user_tokens_per_day, "tokens"),
        ("budgets.cost_per_user_per_day", limits.user_cost_per_day, "millionths"),
        ("budgets.run_cost", limits.root_cost, "millionths"),
        ("budgets.delegation_cost", limits.delegation_cost, "millionths"),
        ("budgets.run_time", limits.root_time_ms, "ms"),
        ("budgets.delegation_time", limits.delegation_time_ms, "ms"),
        ("limits.max_depth", limits.max_depth, "levels"),
        ("limits.max_fan_out", limits.max_fan_out, "delegations"),
        ("limits.max_agent_delegations", limits.max_agent_delegations, "delegations"),
        ("limits.max_delegations", limits.max_delegations, "delegations"),
        ("limits.max_record_bytes", limits.max_record_bytes, "bytes"),
        ("limits.max_result_bytes", limits.max_result_bytes, "bytes"),
    ]
    return tuple(LimitLine(name=name, value=value, unit=unit) for name, value, unit in lines if value is not None)


def _users(
    figures: RecordFigures, day_ms: int, of: RunScope, live: Collection[LiveRun], limits: Limits
) -> tuple[UserDay, ...]:
    spent: dict[str, Sums] = {}
    for period in figures.between(day_ms, day_ms + DAY_MS):
        for key, sums in period.sums.items():
            if in_scope(of, key.user, key.root, key.via):
                spent.setdefault(key.user, Sums()).add(sums)
    reserved, held = Counter[str](), Counter[str]()
    for run in live:
        # What has ended below it is in the sums of the day.
        reserved[run.user] += max(run.granted, run.used) - run.tokens_ended
        held[run.user] += max(run.cost or 0, run.cost_used) - run.cost_ended
    rows = [
        UserDay(
            user=user,
            spent=spent[user].tokens if user in spent else 0,
            reserved=reserved[user],
            limit=limits.user_tokens_per_day,
            cost_spent=spent[user].cost if user in spent else 0,
            cost_reserved=held[user],
            cost_limit=limits.user_cost_per_day,
        )
        for user in spent.keys() | reserved.keys()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.spent - row.reserved, row.user))[:MOST_USERS])


log = logging.getLogger("remit")

# A worker that does not answer by then is left out: a scrape has ten seconds in all.
ANSWER_S = 2.0

# Metrics that are not added up. All workers share the store: whether it can write is said by the worker that is asked.
_WORST = {"remit_breaker": max, "remit_ready": min}


class WorkerPlace(NamedTuple):
    """The place of a worker process among those of one server."""

    number: int
    """Counted from 1."""
    workers: int
    folder: Path
    """Where the workers' own sockets are."""

    def socket(self, number: int) -> Path:
        """Return the socket at which a worker tells its metrics."""
        return self.folder / f"{number}.sock"


class WorkerMetrics:
    """Tells this worker's metrics to the other workers, and adds theirs to a page."""

    def __init__(self, place: WorkerPlace) -> None:
        self._worker = place
        self._server: asyncio.Server | None = None

    async def open(self, page: Callable[[], bytes]) -> None:
        """Tell other workers this worker's metrics from now on; *page* returns them."""

        async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:  # noqa: ARG001 - asyncio's
            writer.write(page())
            writer.close()

        path = self._worker.socket(self._worker.number)
        path.unlink(missing_ok=True)  # of a worker that was killed
        self._server = await asyncio.start_unix_server(tell, path)

    async def close(self) -> None:
        """Tell nothing more."""
        if self._server is not None:
            self._server.close()

    async def of_all(self, own: bytes) -> bytes:
        """Return the metrics of all workers together, given those of this one."""
        others = [number for number in range(1, self._worker.workers + 1) if number != self._worker.number]
        return combined([own, *filter(None, await asyncio.gather(*map(self._ask, others)))])

    async def _ask(self, number: int) -> bytes:
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(self._worker.socket(number))
                try:
                    return await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            log.warning("worker %d does not tell its metrics, and is left out of the page", number)
            return b""


def combined(pages: list[bytes]) -> bytes:
    """Return one page from pages in the text format of Prometheus: numbers of the same name and labels are added."""
    values: dict[str, float] = {}
    heads: dict[str, list[str]] = {}
    order: dict[str, list[str]] = {}
    for page in pages:
        family = ""
        for line in page.decode().splitlines():
            if line.startswith("#"):
                family = line.split(" ", 3)[2]
                known = heads.setdefault(family, [])
                if line not in known:
                    known.append(line)
                continue
            sample, _, text = line.rpartition(" ")
            value = float(text)
            if sample in values:
                values[sample] = _WORST[family](values[sample], value) if family in _WORST else values[sample] + value
            else:
                values[sample] = value
                order.setdefault(family, []).append(sample)
    lines = [
        line
        for family, head in heads.items()
        for line in (*head, *(f"{sample} {values[sample]:.15g}" for sample in order.get(family, ())))
    ]
    return "".join(f"{line}\n" for line in lines).encode()
