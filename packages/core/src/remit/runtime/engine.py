"""The engine of a hub: agents, guards, store and transport, wired together and opened."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from copy import copy
from functools import partial
from typing import NamedTuple, Self, TypeVar, Unpack, cast

from msgspec.structs import replace

from remit.policy.breaker import BreakerSettings
from remit.policy.guards import GUARDS
from remit.policy.limits import Limits
from remit.policy.reception import Sender
from remit.policy.routing import Ranked
from remit.policy.verdict import Facts, Guard, Sealing
from remit.protocol.card import AgentCard, ToolCard
from remit.protocol.codec import checked
from remit.protocol.envelope import USER, AssignmentOptions, Call, Json, Request, Response
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import Delegation, Record
from remit.protocol.remit import Grant
from remit.protocol.submission import AskOptions, Submission
from remit.protocol.trace import passed_on
from remit.runtime.active_runs import ActiveRun
from remit.runtime.agent_status import (
    AgentStatus,
    LiveRun,
    agent_status,
    delegations_of,
    live_runs,
    outcome_of,
    request_of,
)
from remit.runtime.approvers import decide
from remit.runtime.brief import Brief
from remit.runtime.brief_backend import LocalBriefBackend
from remit.runtime.context import RuntimeContext
from remit.runtime.delegation.admission import RootAdmission, facts_of_root
from remit.runtime.delegation.dispatch import Dispatch, attempt_at, draft, facts_of_call
from remit.runtime.events import BACKLOG, Events, HubEvents
from remit.runtime.execution import Executor
from remit.runtime.frames import Frame, Run
from remit.runtime.incoming import IncomingRequests
from remit.runtime.leases import Leases
from remit.runtime.metrics import HubMetrics
from remit.runtime.ports import (
    Agent,
    Clock,
    Companion,
    ControlCommand,
    Decision,
    OtherHubs,
    Question,
    Remote,
    SingleUseProof,
    Store,
    Tool,
)
from remit.runtime.registry import team_invalid
from remit.runtime.root_request import new_run_id, root_request
from remit.runtime.root_runs import RootRecords, RootRuns
from remit.runtime.shared_requests import SharedRequests
from remit.runtime.watchdog import Watchdog

# The run that the request would belong to.
PREVIEW_RUN = "explained"

_NONE: frozenset[str] = frozenset()


class HubSettings(NamedTuple):
    """The settings by which a hub judges requests now."""

    limits: Limits
    breaker: BreakerSettings
    guards: tuple[Guard, ...]
    """The guards before the schema and redaction, in order; the team's own last."""


class TeamChange(NamedTuple):
    """Other settings under which a call is previewed."""

    limits: Limits
    cards: Iterable[AgentCard]
    """The cards that differ; all of them are of agents that the hub has."""
    guards: Iterable[Guard]
    """The team's own guards."""


class CallPreview(NamedTuple):
    """A call that was not made: the request, and what would judge it."""

    request: Request
    facts: Facts
    guards: tuple[Guard, ...]


def settings_of(parts: RuntimeContext) -> HubSettings:
    """Return the present settings of a hub."""
    return HubSettings(parts.limits, parts.ledger.settings, parts.guards)


def preview(parts: RuntimeContext, origin: str, call: Call, user: str, change: TeamChange | None = None) -> CallPreview:
    """Return what would be judged if *user* had asked *origin*, and *origin* nothing but this call.

    *origin* is an agent, or `user` for a request of the user's own. Rates and breakers are those of the hub, also under
    a *change*. Raises a `RemitError` if the changed cards do not fit together.
    """
    parts = parts if change is None else _changed(parts, change)
    # The tokens of redacted values are made with a key that nobody keeps: they mean nothing in any run.
    detect = parts.redactor.detector
    sealing = None if detect is None else Sealing(os.urandom(32), detect)
    request, facts = _preview(parts, origin, call, user, sealing)
    return CallPreview(request, facts, parts.guards)


def _changed(parts: RuntimeContext, change: TeamChange) -> RuntimeContext:
    registry = copy(parts.registry)
    registry.agents = dict(registry.agents)
    registry.replace(change.cards)
    return replace(parts, registry=registry, limits=change.limits, guards=(*GUARDS, *change.guards))


def _preview(
    parts: RuntimeContext, origin: str, call: Call, user: str, sealing: Sealing | None
) -> tuple[Request, Facts]:
    call, limits, now = checked(call), parts.limits, parts.clock.now()
    target = call.target or ""
    entry = parts.registry.agents.get(target)
    if origin == USER:
        options = cast("AskOptions", {name: getattr(call, name) for name in AssignmentOptions.__optional_keys__})
        request = root_request(target, call.objective, user, options, run=PREVIEW_RUN, created_ms=0, limits=limits)
        run = Run(request, 0, None, sealing)
        return request, facts_of_root(parts, request, run, entry, now)
    asked = root_request(origin, "", user, {}, run=PREVIEW_RUN, created_ms=0, limits=limits)
    caller = Frame(asked, parts.registry.agents[origin], Run(asked, 0, None, sealing), None, now)
    attempt = replace(attempt_at(caller, call, parts.registry.agents), entry=entry)
    request = draft(caller, call, attempt.card, attempt.path, limits.root_time_ms, 0, limits)
    return request, facts_of_call(parts, attempt, request, caller.card, now, repeated=False)


# How long a server or a worker may take after its drain, so that both end before others kill it: a container is given
# 30 seconds to stop (`deploy/`), of which 20 are for the drain by default.
CLOSE_S = 8.0
# What is left for the rest when the answers of a server are sent, when the runs have ended, and when all resources but
# the store are closed.
AFTER_ANSWERS_S, AFTER_RUNS_S, AFTER_RESOURCES_S = 6.0, 3.0, 2.0
# A task that is cancelled when the time is over has this long to end.
_LAST_S = 0.5


class ClosingTime:
    """The moment by which a hub has closed; without one, it takes as long as it takes."""

    def __init__(self) -> None:
        self.until: float | None = None
        """In the time of the event loop."""

    def begin(self, drain_s: float) -> None:
        """Set the moment: a drain from now on, and the time to close after it."""
        self.until = asyncio.get_running_loop().time() + drain_s + CLOSE_S

    def left_s(self, reserve_s: float, most_s: float) -> float:
        """Return how much time there is until only *reserve_s* is left, at most *most_s*."""
        if self.until is None:
            return most_s
        return max(0.0, min(most_s, self.until - reserve_s - asyncio.get_running_loop().time()))

    @asynccontextmanager
    async def leaving(self, reserve_s: float, what: str) -> AsyncGenerator[None]:
        """Give up what the block does when only *reserve_s* is left."""
        limit = asyncio.timeout_at(None if self.until is None else self.until - reserve_s)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            _say_given_up(what)

    async def close_each(
        self, closers: Iterable[Callable[[], Awaitable[None]]], worded: Callable[[BaseException], str]
    ) -> None:
        """Close resources one after another; a failure in one does not keep the others open."""
        for close in closers:
            try:
                async with self.leaving(AFTER_RESOURCES_S, "a resource"):
                    await close()
            except Exception as error:  # noqa: BLE001 - logged; the store has yet to be closed
                log.error("failed to close a resource: %s", worded(error))

    async def finish(self, work: Coroutine[None, None, None], what: str) -> None:
        """Close the last of it; if that hangs even when it is cancelled, leave it behind."""
        if self.until is None:
            await work
            return
        task = asyncio.create_task(work)
        await asyncio.wait({task}, timeout=self.left_s(_LAST_S, CLOSE_S))
        if not task.done():
            _say_given_up(what)
            task.cancel()
            await asyncio.wait({task}, timeout=_LAST_S)
        if task.done() and not task.cancelled():
            task.result()


def _say_given_up(what: str) -> None:
    log.error("the time to close is over: %s was not closed in order, and the next hub resumes what it can", what)


log = logging.getLogger("remit")

T = TypeVar("T")

# A client that calls while the hub is closed can find another hub in a second.
CLOSED_MS = 1_000


class Engine:
    """Runs agents that call each other. Use it as an async context manager."""

    loop: asyncio.AbstractEventLoop | None = None
    """The event loop of the open hub."""
    process: int = 0
    """The process that opened the hub; a process forked from it has a copy of the hub, and not its threads."""

    def __init__(self, parts: RuntimeContext) -> None:
        store, name = parts.store, parts.registry.hub
        self._parts = parts
        self._dispatch = Dispatch(self._parts)
        self._executor = Executor(self._dispatch, partial(LocalBriefBackend, self._dispatch))
        admission = RootAdmission(self._parts, self._dispatch.admission)
        worker = f"{name}-{os.urandom(8).hex()}"
        records = RootRecords(self._parts, self._dispatch.recording, self._dispatch.refusals, worker)
        self._runs = RootRuns(self._dispatch, admission, records)
        self._leases = Leases(self._dispatch, admission, records, self._runs)
        self.shared = SharedRequests(self._parts, admission, records, self._runs, self._leases)
        """Requests from and for the hubs that share this hub's store."""
        self.lent_models = self._parts.lent_models
        """Models that MCP hosts lend to the runs that they wait for."""
        self._watchdog = Watchdog(self._frames, self._report_blocking)
        self._parts.ledger.begun = self._watchdog.wake
        self._stop_serving: list[Callable[[], None]] = []
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._companions: list[Companion] = []
        self._checks: list[Callable[[], None]] = []
        self._kept: dict[type, object] = {}
        self.made_of: dict[str, object] = {}
        """What the agents were made of, by name, for those that were given as a value."""
        self._events = HubEvents(store, self._parts.outflow, parts.clock)
        self._metrics: HubMetrics | None = None
        self._incoming = IncomingRequests(self._parts, self._runs)
        self.closing = ClosingTime()
        self._open = False

    # ── who is there ──────────────────────────────────────────────────────────────────────────────────────────────────

    def register(
        self, card: AgentCard, agent: Agent | Remote, close: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Add an agent under its card; *close* is awaited when the hub closes."""
        self._parts.registry.add(card, agent)
        if close is not None:
            self._closers.append(close)
        if self._open:
            self._serve(card)

    def register_tool(self, tool: Tool, close: Callable[[], Awaitable[None]] | None = None) -> None:
        """Add a tool that agents may use if their card and remit name it; *close* is awaited when the hub closes."""
        self._parts.registry.add_tool(tool)
        if close is not None:
            self._closers.append(close)

    def describe(self, card: AgentCard) -> None:
        """Replace an agent's card before the hub is opened; see `reconfigure` for later."""
        self._parts.registry.describe(card)

    def describe_tool(self, card: ToolCard) -> None:
        """Replace a tool's card once more is known about the tool; later calls see the new card."""
        self._parts.registry.describe_tool(card)

    @property
    def cards(self) -> dict[str, AgentCard]:
        """The agents that are registered, by name."""
        return {card.name: card for card in self._parts.registry.cards()}

    @property
    def tool_cards(self) -> dict[str, ToolCard]:
        """The tools that are registered, by name."""
        return {name: tool.card for name, tool in self._parts.registry.tools.items()}

    def is_remote(self, agent: str) -> bool:
        """Return whether an agent lives on another hub."""
        entry = self._parts.registry.agents.get(agent)
        return entry is not None and isinstance(entry.agent, Remote)

    @property
    def remotes(self) -> dict[str, Remote]:
        """The agents on other hubs, by name, as they were registered."""
        agents = self._parts.registry.agents
        return {name: entry.agent for name, entry in agents.items() if isinstance(entry.agent, Remote)}

    @property
    def store(self) -> Store:
        """The store of this hub."""
        return self._parts.store

    def reconfigure(
        self,
        *,
        limits: Limits | None = None,
        breaker: BreakerSettings | None = None,
        cards: Iterable[AgentCard] = (),
        guards: Iterable[Guard] | None = None,
    ) -> None:
        """Replace limits, breaker settings, cards or guards without dropping a run.

        *cards* replace cards of the same names, *guards* the team's own. Delegations in flight keep the time, tokens
        and tools that they were granted; new requests are judged by the new settings.
        """
        parts, cards = self._parts, list(cards)
        for card in cards if self._open else ():
            old = self.cards.get(card.name, card)
            if (card.concurrency, card.queue) != (old.concurrency, old.queue):
                raise team_invalid(
                    f"the concurrency and queue of `{card.name}` cannot be changed while the hub is open"
                )
        judges = parts.guards if guards is None else (*GUARDS, *guards)
        parts.registry.replace(cards)
        parts.limits = limits or parts.limits
        parts.ledger.settings = breaker or parts.ledger.settings
        parts.guards = judges
        parts.cache.clear()  # new cards and guards may lead to other answers

    def on_reload(self, reload: Callable[[ControlCommand], Awaitable[None]]) -> None:
        """Call *reload* when another process asks every hub on this store to reload its configuration."""
        self._leases.on_reload = reload

    def resume_only(self, runs: Collection[str]) -> None:
        """Resume only these of the orphaned runs and leave the rest to other hubs."""
        self._leases.only = frozenset(runs)

    def warm(self) -> None:
        """Load in a thread what the first request with personal data needs; for hubs that serve many requests."""
        self._parts.redactor.warm()

    def notify_runs(self, text: str) -> None:
        """Record a notice for operators in every run that is in flight here."""
        for frame in self._frames():
            if frame.parent is None:
                self._dispatch.recording.notice(frame, text)

    def accompany(self, companion: Companion, other_hubs: OtherHubs | None = None) -> None:
        """Open and close *companion* with this hub; *other_hubs* are those to which it connects this one."""
        self._companions.append(companion)
        self._parts.registry.other_hubs = other_hubs or self._parts.registry.other_hubs
        self._closers.append(companion.close)

    def before_agents(self, prepare: Callable[[Brief], Awaitable[None]]) -> None:
        """Await *prepare* with its brief before each agent of this hub that may use tools starts."""
        self._parts.before_agents.append(prepare)

    def when_opening(self, check: Callable[[], None]) -> None:
        """Call *check* when the hub is about to open; an error that it raises keeps the hub closed."""
        self._checks.append(check)

    def when_closed(self, close: Callable[[], Awaitable[None]]) -> None:
        """Await *close* when the hub closes, after its runs have ended."""
        self._closers.append(close)

    def keep(self, part: object) -> None:
        """Keep what a plugin has for this hub, one of each type."""
        self._kept[type(part)] = part

    def kept(self, kind: type[T]) -> T | None:
        """Return the part of that type that a plugin keeps here."""
        return cast("T | None", self._kept.get(kind))

    async def drain(self, within_s: float) -> None:
        """Take nothing new from other hubs, and return once what was taken has ended, or *within_s* is over."""
        for each in self._companions:
            await each.drain(within_s)

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        if self._open:
            self.refuse_if_forked()
            raise RemitError(fault(Code.TEAM_INVALID, "the hub is open already", suggestion=""))
        for check in (*self._checks, self._parts.registry.check):
            check()
        await self._parts.store.open()
        try:
            self._parts.redactor.open(self._parts.store)
            for card in self.cards.values():
                self._serve(card)
            self._watchdog.start()
            await self._leases.open()
        except BaseException:
            await self._shut()
            raise
        self._open = True
        self.loop, self.process = asyncio.get_running_loop(), os.getpid()
        for each in self._companions:
            await each.open()
        return self

    def refuse_if_forked(self) -> None:
        """Raise a `RuntimeError` in a process that was forked after the hub was opened: nothing here would answer."""
        if self.process != os.getpid():
            raise RuntimeError("this process was forked while the hub was open: create and open a hub after the fork")

    async def __aexit__(self, *_: object) -> None:
        self._open, self.loop = False, None
        try:
            async with self.closing.leaving(AFTER_RUNS_S, "a run"):
                for each in self._companions:
                    await each.leave()
                await self._leases.close()
                await self._runs.close()
                await self._incoming.close()
        finally:
            await self._shut()

    async def _shut(self) -> None:
        """Close everything; a failure in one part does not keep the others open."""
        self._watchdog.stop()
        for leave in self._stop_serving:
            leave()
        self._stop_serving.clear()
        await self.closing.close_each(self._closers, self._parts.redactor.worded)
        for task in self._dispatch.tasks.abandoned:
            task.cancel()
        self._dispatch.tasks.close()
        try:
            await self.closing.finish(self._parts.store.close(), "the store")
        finally:
            self._events.close()

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, agent: str, text: str = "", *, user: str, **options: Unpack[AskOptions]) -> Response:
        """Ask an agent for a user and return the response; nothing leaves the hub before it is recorded."""
        return await self._runs.ask(self._request(agent, text, user, options))

    def receive(
        self,
        sent: Submission,
        sender: Sender,
        *,
        exposed: Collection[str] | None = None,
        grant: Grant | None = None,
        unmarked: bool = False,
    ) -> Request:
        """Turn a request from elsewhere into a request of this hub; it is not judged yet (see `begin`).

        *exposed* are the agents that can be called from elsewhere; None: all. Raises a `RemitError` for a request that
        *sender* may not make. *grant*, the rights of its credential, bounds the rest. An *unmarked* one may come from
        this hub, and not say so.
        """
        if not self._open:
            raise RemitError(fault(Code.OVERLOADED, "the hub is not open", retry_after_ms=CLOSED_MS))
        return self._incoming.receive(sent, sender, exposed, grant, unmarked=unmarked)

    def forget(self, run: str) -> None:
        """Drop what is stored for a run that was received but will not begin."""
        self._incoming.forget(run)

    def forward_headers(self, run: str, headers: Mapping[str, str]) -> None:
        """Forward these headers of a request to every hub that its run calls."""
        if found := passed_on(headers):
            self._parts.passed_on[run] = found

    async def begin(self, request: Request, once: SingleUseProof | None = None) -> ActiveRun | Response:
        """Start a received request, or attach to an equal one in flight; *once* is its single-use proof, if any."""
        return await self._incoming.begin(request, once)

    async def begin_peer_call(self, request: Request) -> ActiveRun | Response:
        """Start a peer agent's request like `begin`, within the fan-out limit and without a cycle of that agent."""
        return await self._incoming.begin_peer_call(request)

    async def peer_call_ended(self, request: Request) -> None:
        """Return once the end of a request that `begin_peer_call` started is counted."""
        await self._incoming.peer_call_ended(request)

    async def outcome(self, run: str, *, raw: bool = True) -> Response | None:
        """Return the outcome of a run as its user gets it, or with tokens; None if it has not ended or is unknown."""
        return await outcome_of(self._parts, run, raw=raw)

    async def request_of(self, run: str, *, raw: bool = True) -> Request | None:
        """Return the root request of a run in the user's words, or with tokens; None if nothing is recorded."""
        return await request_of(self._parts, run, raw=raw)

    def stream(
        self, agent: str, text: str = "", *, user: str, **options: Unpack[AskOptions]
    ) -> AsyncGenerator[Record, None]:
        """Ask like `ask` and yield the run's records as they are committed; the last one holds the response.

        Closing the generator before the end cancels the run.
        """
        return self._events.stream(partial(self._request, agent, text, user, options), self._runs.ask)

    def events(self) -> Events:
        """Return the records of this hub from now on, as they are committed."""
        return self._events.of_hub()

    def follow(self, run: str, *, backlog: int = BACKLOG, live: bool = True, raw: bool = True) -> Events:
        """Return the records of a run from now on, with its *live* text, *raw* as its caller gets it or with tokens.

        *backlog* is how many unread entries are kept; the oldest are dropped first.
        """
        return self._events.of_run(run, backlog=backlog, live=live, raw=raw)

    def is_running(self, run: str) -> bool:
        """Return whether this hub executes a run."""
        return run in self._parts.ledger.frames

    def cancel(self, delegation: str, reason: str = "asked for") -> bool:
        """Stop a run, or one delegation of it, and everything below; False if no such id is in flight here."""
        return self._runs.cancel(delegation, reason)

    def extend(self, run: str, tokens: int, reason: str) -> bool:
        """Grant a run more tokens, as a person who answers for it decides; False if it is not in flight here."""
        return self._runs.extend(run, tokens, reason)

    async def pending(self) -> list[Question]:
        """Return the pending questions in the store's inbox, oldest first."""
        return await self._parts.store.pending()

    async def decide(
        self, question: str, *, agreed: bool, by: str, reason: str = "", edits: dict[str, Json] | None = None
    ) -> Question:
        """Answer a question of the inbox, given by its id or an unambiguous part of it, in a person's name."""
        decision = Decision(agreed=agreed, by=by, reason=reason, edits=edits or {})
        return await decide(self._parts.store, question, decision)

    @property
    def metrics(self) -> HubMetrics:
        """The counters of this hub, since they were first read."""
        if self._metrics is None:
            self._metrics = HubMetrics(lambda name: name in self._parts.registry.agents, self._parts.clock.wall_ms())
            self._parts.store.listen(self._metrics.count, patient=True)
        return self._metrics

    def agent_status(self) -> dict[str, AgentStatus]:
        """Return the current load and breaker of each agent."""
        return agent_status(self._parts)

    def live_runs(self) -> list[LiveRun]:
        """Return the runs in progress here, and what each has left."""
        return live_runs(self._parts)

    @property
    def clock(self) -> Clock:
        """The clock of this hub."""
        return self._parts.clock

    @property
    def name(self) -> str:
        """The name of this hub in chains and records."""
        return self._parts.registry.hub

    def sample(self, ratio: float) -> None:
        """Keep the spans of this share of the runs that begin here; other hubs keep those of the same runs."""
        self._parts.sample_ratio = ratio

    @property
    def can_ask_person(self) -> bool:
        """Whether a person answers when a guard asks."""
        return self._parts.approver is not None

    @property
    def is_open(self) -> bool:
        """Whether the hub is open."""
        return self._open

    @property
    def limits(self) -> Limits:
        """The limits in force."""
        return self._parts.limits

    async def ranking(self, capability: str) -> tuple[Ranked, ...]:
        """Return the current ranking of the agents that offer a capability, best first, each with the reasons."""
        parts = self._parts
        if self._open:
            await self._dispatch.routing.recall()
        return parts.ledger.explained(capability, parts.registry.offering(capability), parts.clock.now())

    def preview(self, origin: str, call: Call, user: str, change: TeamChange | None = None) -> CallPreview:
        """Return the request that a call would make, and what judges it; nothing is asked or recorded."""
        return preview(self._parts, origin, call, user, change)

    @property
    def settings(self) -> HubSettings:
        """The limits, breaker settings and guards that hold now."""
        return settings_of(self._parts)

    async def delegations(self, run: str) -> list[Delegation]:
        """Return the delegations of a run: caller, callee, objective and outcome."""
        return await delegations_of(self._parts.store, run)

    def _request(self, agent: str, text: str, user: str, options: AskOptions) -> Request:
        if not self._open:
            raise RemitError(fault(Code.TEAM_INVALID, "the hub is not open: use `async with hub:`", suggestion=""))
        if self.loop is not asyncio.get_running_loop():
            raise RuntimeError("the hub runs in another event loop, opened by `with hub:`: use `hub.ask_sync(...)`")
        created_ms = self._parts.clock.wall_ms()
        run = new_run_id(created_ms)
        return root_request(agent, text, user, options, run=run, created_ms=created_ms, limits=self._parts.limits)

    def _serve(self, card: AgentCard) -> None:
        remote = self.remotes.get(card.name)
        slots = card.concurrency if remote is None else remote.slots(card.concurrency)
        serve, execute = self._parts.transport.serve, self._executor.execute
        self._stop_serving.append(serve(card.name, slots, card.queue, execute, elsewhere=remote is not None))

    def _frames(self) -> list[Frame]:
        return list(self._parts.ledger.frames.values())

    def _report_blocking(self, frame: Frame) -> None:
        self._dispatch.recording.notice(
            frame, f"{frame.card.name} blocked the event loop; make it async, or a plain function, or a process"
        )
