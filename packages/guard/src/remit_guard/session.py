"""One session of a coding tool as a run of a hub.

The session is the root of the run. Each sub-agent is a delegation on its parent's brief, and lasts as long as the tool
runs it, so that depth, fan-out, tokens and time are judged by the same guards as in any other run.
"""

import asyncio
import hashlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import Any
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from remit.hub.hub import Hub
from remit.policy.budget import amounts
from remit.policy.guards import judge
from remit.policy.verdict import Ask, Facts, Guard, Refuse
from remit.ports.brief import Brief, as_arguments
from remit.protocol.envelope import MODEL, Answer, Json, Response
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.runtime.agent_status import LiveRun
from remit.runtime.brief_tools import shortened
from remit_guard.days import DayLedger, DayLimit, DayTotal
from remit_guard.settings import GuardSettings
from remit_guard.shell_commands import started_tool
from remit_guard.tokens import TokenUse
from remit_guard.tool_use import TEXT_CHARACTERS, GuardedUse, UseVerdict, use_in_words
from remit_server.documents.common import GuardedSessionUse

# What is recorded of a task: enough to know it again.
TASK_CHARACTERS = 4_000
# Whoever watches sees what an agent used in steps of this share of the limit.
REPORTED_SHARE = 0.005
# What is shown of a shell command: a few lines.
COMMAND_CHARACTERS = 400
# For how long, since a use of a tool was told of, its answer is given again: hooks in several files tell of it at the
# same time. Models may give the same id to what they do next, and a yes of a person is for one use.
AGAIN_S = 2.0

_REPORT = "Do not go on; report what you have."
_OVER = f"The time of this session is over, or it was cancelled. {_REPORT}"
_PRICE_IT = "Give its price in `[prices]` of the team file."


@dataclass(slots=True, eq=False)
class GuardedAgent:
    """An agent that a tool runs: the session itself, or a sub-agent."""

    kind: str
    brief: Brief | None = None
    """Its delegation, once that was allowed."""
    started: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: str = ""
    stopped: str = ""
    """Why it must not go on; empty: it may."""
    refused: Fault | None = None
    """Why it must not start."""
    counted: dict[str, TokenUse] = field(default_factory=dict[str, TokenUse])
    """What was charged already, by message of the model."""
    counts_cached: bool = False
    """Whether tokens that were read from a cache are part of its usage."""
    reported: int = 0
    """The tokens that those who watch were told of."""

    @property
    def spent(self) -> TokenUse:
        """What it spent itself, without its sub-agents."""
        return sum(self.counted.values(), TokenUse())

    async def last(self, brief: Brief) -> Answer:
        """Run as the code of a delegation: from the moment it is allowed to the end that the tool reports."""
        self.brief = brief
        self.started.set()
        try:
            await self.ended.wait()
        except asyncio.CancelledError:
            self.stopped = self.stopped or _OVER
            raise
        return Answer(self.outcome, metadata={MODEL: self._model()})

    def _model(self) -> dict[str, Json]:
        """Return what the record tells of its model: prices and the spend are reckoned from it."""
        names = [use.model for use in self.counted.values() if use.model]
        cached = self.spent.cached
        tokens_read = {"cached" if self.counts_cached else "beside": cached} if cached else {}
        return {"name": names[-1] if names else "", **tokens_read}


class GuardedSession:
    """The tree of agents of one session."""

    def __init__(
        self,
        hub: Hub,
        tool: str,
        name: str,
        settings: GuardSettings,
        days: DayLedger,
        project: str = "",
        guards: Sequence[Guard] = (),
    ) -> None:
        self.tool = tool
        self.name = name
        self.project = project
        """The project whose limits hold for it; empty: none."""
        self.settings = settings
        self.heard_s = 0.0
        """When the tool last told of it, by the clock of the service."""
        self.root = GuardedAgent(tool, counts_cached=settings.cached)
        self.agents: dict[str, GuardedAgent] = {}
        """Sub-agents that the tool has started, by the id that it gives them."""
        self.waiting: dict[str, GuardedAgent] = {}
        """Sub-agents that may start, by the id of the tool's request."""
        self.asking: set[asyncio.Task[Any]] = set()
        """Tasks that wait for a person."""
        self._hub = hub
        self._calls: dict[GuardedAgent, asyncio.Task[Response]] = {}
        self._run: asyncio.Task[Response] | None = None
        self._limit = settings.tokens
        """The tokens of the session, with those that were granted later."""
        self._near_limit = asyncio.Lock()
        """Held while a person is asked about sub-agents near the limit."""
        self._near_limit_agreed = False
        """Whether a person has agreed that sub-agents start up to the limit."""
        self._unpriced: dict[str, bool] = {}
        """The models in use whose price is not known where money is limited, and whether a person lets them go on."""
        self._near_limit_declined = 0
        """How often a person did not."""
        self._guards = guards
        """What judges each use of a tool; empty: nothing does, and each is only recorded."""
        self._uses: dict[bytes, asyncio.Future[UseVerdict]] = {}
        """What uses of tools that were just told of are answered."""
        self._days = days
        self._day_limits = settings.day_limits(project)
        self._by_day: dict[date, int] = {}
        """The tokens of the session on each day."""
        self._warned: set[tuple[date, DayLimit]] = set()

    # ── the session ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def open(self, user: str, task: str) -> Fault | None:
        """Begin the run; return why it is refused."""
        settings = self.settings
        self._run = asyncio.create_task(
            self._hub.ask(
                self.tool,
                task,
                user=user,
                correlation=self.name,
                max_tokens=settings.tokens,
                max_cost=settings.cost,
                deadline_ms=settings.time_ms,
                max_depth=settings.depth,
            )
        )
        refused = await _first(self.root.started, self._run)
        return None if refused is None else refused.fault

    @property
    def run(self) -> str:
        """The id of the run; empty before it has begun."""
        return "" if self.root.brief is None else self.root.brief.request.run

    async def close(self, outcome: str) -> None:
        """End the run, and every sub-agent that the tool did not report as ended."""
        for agent in (*self.agents.values(), *self.waiting.values()):
            self._end(agent, "The session ended before it did.")
        await asyncio.gather(*self._calls.values(), return_exceptions=True)
        self._end(self.root, outcome)
        if self._run is not None:
            await asyncio.gather(self._run, return_exceptions=True)

    # ── sub-agents ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def spawn(
        self, parent: GuardedAgent, request: str, agent: str, title: str, task: str, tokens: int
    ) -> str | None:
        """Ask whether *parent* may start an agent of a kind; return the refusal as a sentence for its model."""
        if parent.stopped or parent.brief is None:
            return parent.stopped or _OVER
        refused = await self._agree(agent) or await self._agree_to_day(agent, tokens)
        if isinstance(refused, str):
            return refused
        if request in self.waiting:  # the guard is in two files of the tool, and the answer to the first hook decides
            return None
        return await self.begin(parent, request, agent, title, task, tokens, refused)

    async def begin(
        self,
        parent: GuardedAgent,
        request: str,
        agent: str,
        title: str,
        task: str,
        tokens: int,
        refused: Fault | None = None,
    ) -> str | None:
        """Begin the delegation of a sub-agent that nobody needs to agree to; return the refusal by the hub."""
        assert parent.brief is not None
        new = self.waiting[request] = GuardedAgent(agent, refused=refused, counts_cached=self.settings.cached)
        self._days.hold(new, self.project, tokens)
        call = asyncio.create_task(
            parent.brief.delegate(
                agent, objective=title, input=task[:TASK_CHARACTERS], correlation=request, max_tokens=tokens
            )
        )
        call.add_done_callback(lambda _: self._days.release(new))
        reply = await _first(new.started, call)
        if reply is None:
            self._calls[new] = call
            return None
        self.waiting.pop(request, None)
        return "The sub-agent was not started." if reply.fault is None else self._in_words(reply.fault)

    def bind(self, request: str, agent: str) -> GuardedAgent | None:
        """Note the id that the tool gives a sub-agent that may start; None if nobody allowed it."""
        bound = self.waiting.pop(request, None)
        if bound is not None:
            if (earlier := self.agents.get(agent)) is not None:  # it was woken: what it was charged for stays charged
                bound.counted = earlier.counted
            self.agents[agent] = bound
        return bound

    def settle(self, agent: str, kind: str, stopped: str = "") -> GuardedAgent:
        """Note a sub-agent without a delegation, whose tokens are charged to the session: it ended, or must end."""
        known = self.agents[agent] = GuardedAgent(kind, stopped=stopped)
        known.ended.set()
        return known

    def give_up(self, request: str) -> None:
        """Note that a sub-agent that may start does not."""
        if (unstarted := self.waiting.pop(request, None)) is not None:
            self._end(unstarted, "It was not started.")

    def end(self, agent: str, outcome: str) -> None:
        """Note that a sub-agent has ended."""
        if (ended := self.agents.get(agent)) is not None:
            self._end(ended, outcome)

    def _end(self, agent: GuardedAgent, outcome: str) -> None:
        if not agent.ended.is_set():
            agent.outcome = outcome
            agent.ended.set()

    # ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def permit(self, agent: GuardedAgent, use: GuardedUse) -> UseVerdict:
        """Judge the use of a tool before it happens; a use that several hooks tell of is judged once."""
        if not use.id:
            return await self._verdict(agent, use)
        key, loop = hashlib.sha256(msgspec.json.encode((agent.kind, use))).digest(), asyncio.get_running_loop()
        if (earlier := self._uses.get(key)) is not None:
            return await asyncio.shield(earlier)
        mine, over = loop.create_future(), loop.time() + AGAIN_S
        self._uses[key] = mine
        try:
            mine.set_result(await self._verdict(agent, use))
        finally:
            mine.cancel()  # if there was no answer
            loop.call_at(over, self._uses.pop, key, None)
        return mine.result()

    async def _verdict(self, agent: GuardedAgent, use: GuardedUse) -> UseVerdict:
        if use.command and (refused := await self._refusal_of_command(use.command)) is not None:
            return UseVerdict(refused=refused)
        # What nothing judges is shortened before anything reads it.
        given = passed = use.arguments if self._guards else shortened(use.arguments, TEXT_CHARACTERS)

        async def pass_on(arguments: dict[str, Json]) -> Json:
            nonlocal passed
            passed = arguments
            return use.id or uuid4().hex  # what the tool will return is not known, and is no repetition

        brief = self.root.brief if agent.brief is None or agent.ended.is_set() else agent.brief
        try:
            if brief is None or self._run is None or self._run.done():
                return self._verdict_without_run(agent, use)
            with self._waiting_for_person():
                await brief.use_own_tool(
                    use.tool,
                    given,
                    pass_on,
                    safe_to_repeat=not use.changes,
                    recorded_characters=TEXT_CHARACTERS if self._guards else None,
                )
        except RemitError as error:
            if brief is self.root.brief and error.fault.code is Code.CANCELLED:
                return self._verdict_without_run(agent, use)  # its run is ending
            # Without guards it can only fail to be recorded, and a person who works with the tool goes on.
            return UseVerdict(refused=self._in_words(error.fault) if self._guards else "")
        return UseVerdict(arguments=None if passed == given else passed)

    def _verdict_without_run(self, agent: GuardedAgent, use: GuardedUse) -> UseVerdict:
        """Judge the use of a tool after the time of the session: rules hold, and nobody can be asked."""
        if not self._guards or self.root.brief is None:
            return UseVerdict()
        request = replace(
            self.root.brief.request, act="tool", origin=agent.kind, target=use.tool, input=use.arguments, objective=""
        )
        match judge(request, Facts(target=None), self._guards):
            case Refuse(fault=why):
                return UseVerdict(refused=self._in_words(why))
            case Ask(question=question):
                return UseVerdict(refused=f"Nobody can be asked after the time of this session: {question}")
            case verdict:
                changed = as_arguments(use.tool, verdict.request.input)
                return UseVerdict(arguments=None if changed == use.arguments else changed)

    async def _refusal_of_command(self, command: str) -> str | None:
        rule, brief = self.settings.shell, self.root.brief
        program = None if rule == "allow" or brief is None else started_tool(command)
        if program is None or brief is None:
            return None
        shown = f"`{program}` in a shell of {self.tool} is a session outside of this tree"
        try:
            if rule == "ask" and await self._ask(f"{shown}: {command[:COMMAND_CHARACTERS]}\nMay it run?"):
                return None
            brief.progress(f"refused: {shown}")
        except RemitError:
            pass  # the run is over, and nobody can be asked
        return f"{shown}, with a budget of its own. Start a sub-agent instead, or do the work yourself."

    # ── tokens and money ──────────────────────────────────────────────────────────────────────────────────────────────

    def count(self, agent: GuardedAgent, uses: Mapping[str, TokenUse]) -> None:
        """Charge what an agent's messages cost, as far as it was not charged before.

        What becomes known after an agent has ended is charged to the session, so that the total is right.
        """
        payer = self.root if agent.ended.is_set() else agent
        added = 0
        for message, use in uses.items():
            new = use - agent.counted.get(message, TokenUse())
            agent.counted[message] = use
            tokens = new.usage(cached=self.settings.cached).total
            if tokens:
                day = use.day or self._days.today()
                self._by_day[day] = self._by_day.get(day, 0) + tokens
                added += tokens
            if tokens or new.cached:
                self._charge(payer, new, use.model)
        if added:
            for day, tokens in self._by_day.items():
                self._days.note(day, DayTotal(self.tool, self.name, self.project, tokens))
            self._days.use_held(payer, added)
            if not self._days.held(payer) and (limit := self._exceeded(0)) is not None:
                self._stop(payer, f"The {limit.name} are spent. {_REPORT}")

    def _charge(self, agent: GuardedAgent, use: TokenUse, model: str) -> None:
        if agent.brief is None or agent.ended.is_set():
            return
        try:
            agent.brief.spend(
                prompt=use.input + use.cached,
                completion=use.output,
                cache_write=use.written,
                cache_read=use.cached,
                model=model,
                uncounted=0 if self.settings.cached else use.cached,
            )
            self._report(agent)
        except RemitError as error:
            no_tokens, no_money = agent.brief.tokens_left() == 0, agent.brief.cost_left() == 0
            if not (no_tokens or no_money):
                self._note_unpriced(agent, model, error.fault)
                return
            if self.settings.at_limit == "warn":
                self._go_on(tokens=no_tokens, money=no_money)
            self._stop(agent, f"{_spent(money=no_money)} ({error.fault.message})")

    def _note_unpriced(self, agent: GuardedAgent, model: str, why: Fault) -> None:
        """Stop an agent whose model has no price, unless a person let that model go on, or the limit only warns."""
        if model not in self._unpriced and self.settings.at_limit == "warn" and agent.brief is not None:
            agent.brief.progress(f"{why.message}; the limit only warns")
        if not self._unpriced.setdefault(model, False):
            self._stop(agent, f"{why.message}. {_PRICE_IT} {_REPORT}")

    def _report(self, agent: GuardedAgent) -> None:
        """Let those who watch see what an agent has used, each time that it is noticeably more."""
        used = agent.spent.usage(cached=self.settings.cached).total
        if agent.brief is not None and used - agent.reported >= REPORTED_SHARE * self.settings.tokens:
            agent.reported = used
            agent.brief.progress("")

    def _stop(self, agent: GuardedAgent, why: str) -> None:
        # A person works with the session itself; that one only starts no more.
        if self.settings.at_limit != "warn" and agent is not self.root:
            agent.stopped = agent.stopped or why

    @property
    def used(self) -> int:
        """The tokens of all agents that count."""
        everyone = (self.root, *self.agents.values(), *self.waiting.values())
        return sum(agent.spent.usage(cached=self.settings.cached).total for agent in everyone)

    async def _agree(self, kind: str) -> str | None:
        """Have a person agree to more sub-agents near and at the limit; return the refusal."""
        assert self.root.brief is not None
        settings, run = self.settings, self._live()
        if (refused := await self._agree_to_unpriced(kind, run.cost)) is not None:
            return refused
        use = f"{self.tool} has used {self._use_in_words()}."
        no_tokens = self.root.brief.tokens_left() < settings.reserve
        no_money = run.cost is not None and run.cost - run.cost_used < settings.cost_reserve
        match settings.at_limit:
            case "stop":
                pass  # the guards refuse it, with their own sentence
            case "warn":
                if no_tokens or no_money:
                    self._go_on(tokens=no_tokens, money=no_money)
            case "ask" if no_tokens or no_money:
                if not await self._ask(f"{use} Start one more {kind}?"):
                    return f"{_spent(money=no_money)} A person was asked, and did not agree to more."
                tokens = self._beyond + settings.reserve if no_tokens else 0
                cost = self._cost_beyond + settings.cost_reserve if no_money else 0
                self._extend(tokens, cost, "a person agreed to one more sub-agent")
            case "ask":
                share = max(self.used / settings.tokens, run.cost_used / settings.cost if settings.cost else 0)
                if share >= settings.ask_at and not await self._agree_near_limit(use):
                    return "A person was asked whether more sub-agents may start, and did not agree."
        return None

    async def _agree_to_unpriced(self, kind: str, most: int | None) -> str | None:
        """Have a person agree once to each model in use that has no price, if money is limited; return the refusal."""
        if most is None or self.settings.at_limit == "warn":
            return None
        for model in [model for model, agreed in self._unpriced.items() if not agreed]:
            of = f"`{model}`" if model else f"the model of {self.tool}"
            why = f"The price of {of} is not known, and {self.tool} has a limit of {self._money(most)}."
            if self.settings.at_limit == "stop":
                return f"{why} {_PRICE_IT}"
            if not await self._ask(f"{why} Start one more {kind}, and let the model go on without a price?"):
                return f"{why} A person was asked, and did not agree. {_PRICE_IT}"
            self._unpriced[model] = True
        return None

    async def _agree_near_limit(self, use: str) -> bool:
        """Have a person agree once to all sub-agents up to the limit; one answer is for all that ask at once."""
        declined = self._near_limit_declined
        with self._waiting_for_person():
            async with self._near_limit:
                if not self._near_limit_agreed and self._near_limit_declined == declined:
                    self._near_limit_agreed = await self._ask(f"{use} May it start more sub-agents, up to the limit?")
                    self._near_limit_declined += not self._near_limit_agreed
                return self._near_limit_agreed

    async def _agree_to_day(self, kind: str, tokens: int) -> str | Fault | None:
        """Have a person agree to one more sub-agent at the limit of a day; return the refusal.

        It ends with a look at the limits and no wait after it, so that nobody else takes what is left meanwhile.
        """
        assert self.root.brief is not None
        while (limit := self._exceeded(tokens)) is not None:
            use = f"{self._days.used(limit):,} of the {limit.name} are used or set aside"
            match self.settings.at_limit:
                case "stop":
                    return fault(Code.TOKEN_BUDGET_EXCEEDED, use, suggestion=_REPORT)
                case "warn":
                    key = self._days.today(), limit
                    if key not in self._warned:
                        self._warned.add(key)
                        self.root.brief.progress(f"{use}; the limit only warns")
                    return None
                case "ask":
                    if not await self._ask(f"{use}. Start one more {kind}?"):
                        return f"The {limit.name} are spent. A person was asked, and did not agree to more. {_REPORT}"
                    self._days.grant(limit, max(0, tokens - self._days.left(limit)))
        return None

    def _exceeded(self, tokens: int) -> DayLimit | None:
        """Return a limit of the day that leaves less than so many tokens."""
        return next((each for each in self._day_limits if self._days.left(each) < tokens), None)

    async def _ask(self, question: str) -> bool:
        """Ask a person."""
        assert self.root.brief is not None
        with self._waiting_for_person():
            return await self.root.brief.confirm(question)

    @contextmanager
    def _waiting_for_person(self) -> Generator[None]:
        task = asyncio.current_task()
        assert task is not None
        is_new = task not in self.asking
        self.asking.add(task)
        try:
            yield
        finally:
            if is_new:
                self.asking.discard(task)

    @property
    def _beyond(self) -> int:
        """The tokens that were used beyond the limit."""
        return max(0, self.used - self._limit)

    @property
    def _cost_beyond(self) -> int:
        """The money that was used beyond the limit."""
        run = self._live()
        return max(0, run.cost_used - (run.cost or 0))

    def _live(self) -> LiveRun:
        """Return what the run has used and has left."""
        return next(each for each in self._hub.live_runs() if each.run == self.run)

    def use(self) -> GuardedSessionUse:
        """Return what it has used of its limits."""
        run = next((each for each in self._hub.live_runs() if each.run == self.run), None)
        return GuardedSessionUse(
            tool=self.tool,
            session=self.name,
            tokens=self.used,
            token_limit=self._limit,
            cost=None if run is None else run.cost_used,
            cost_limit=None if run is None else run.cost,
        )

    def _use_in_words(self) -> str:
        return use_in_words(self.use(), self._hub.limits.currency)

    def _money(self, cost: int) -> str:
        return f"{amounts(cost)[0]} {self._hub.limits.currency}"

    def _go_on(self, *, tokens: bool, money: bool) -> None:
        settings, reason = self.settings, f"{self._use_in_words()} were used; the limit only warns"
        more = self._beyond + settings.tokens if tokens else 0
        self._extend(more, self._cost_beyond + (settings.cost or 0) if money else 0, reason)

    def _extend(self, tokens: int, cost: int, reason: str) -> None:
        if self._hub.extend(self.run, tokens, reason, cost=cost):
            self._limit += tokens

    def _in_words(self, why: Fault) -> str:
        """Return a refusal as its model should read it: what happened, and what to do."""
        what_to_do = why.suggestion
        if why.code is Code.RECORD_LIMIT_EXCEEDED:
            what_to_do = (
                f"Nothing more can be done in this session. Tell the person to end it and to resume it in {self.tool}, "
                "or to begin a new one: that begins a new record."
            )
        return f"{why.code}: {why.message.rstrip('.')}. {what_to_do}".strip()


async def _first(started: asyncio.Event, call: asyncio.Task[Response]) -> Response | None:
    """Wait until a callee has started, or its call has ended without that; return the response then."""
    begins = asyncio.create_task(started.wait())
    try:
        await asyncio.wait({begins, call}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        begins.cancel()
    return None if started.is_set() else await call


def _spent(*, money: bool) -> str:
    return f"The {'money of this session is' if money else 'tokens of this session are'} spent. {_REPORT}"
