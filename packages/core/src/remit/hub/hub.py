"""The hub that a Python program opens: SQLite beside it, agents from plain functions.

`Hub` has every operation of a hub, and holds the parts that carry them out (`runtime/engine.py`).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, TypeVar, Unpack, cast

from remit.agents.cards import AgentOptions, local_card, refuse_unknown, seen_by
from remit.agents.function import agent_from, closing, function_of, tool_from
from remit.agents.threads import Threads
from remit.agents.token_count import token_counter as default_token_counter
from remit.hub.recording.files import NewCalls
from remit.hub.recording.recorder import HubRecording, Replay, recorded, replayed
from remit.installed import brought
from remit.policy.breaker import BreakerSettings
from remit.policy.limits import Limits
from remit.policy.reception import Sender
from remit.policy.routing import Ranked
from remit.policy.verdict import Detector, Guard
from remit.ports import (
    Agent,
    AgentFunction,
    Approver,
    Clock,
    Companion,
    ControlCommand,
    ConversationReader,
    Decision,
    OtherHubs,
    Question,
    Remote,
    RetainingStore,
    SingleUseProof,
    Store,
    Summarizer,
    TokenCounter,
    Tool,
    Workspace,
)
from remit.ports.brief import Brief
from remit.ports.text_reader import text_reader
from remit.protocol.card import AgentCard, Rate, ToolCard
from remit.protocol.envelope import AnswerContent, Call, Json, Request, Response, Usage
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import Delegation, Record
from remit.protocol.remit import Grant
from remit.protocol.submission import AskOptions, Submission
from remit.protocol.trace import passed_on
from remit.runtime.active_runs import ActiveRun
from remit.runtime.agent_status import (
    AgentStatus,
    HubMetrics,
    LiveRun,
    agent_status,
    delegations_of,
    live_runs,
    outcome_of,
    request_of,
)
from remit.runtime.answer_cache import Cache
from remit.runtime.approvers import InboxApprover, decide, find, reveal
from remit.runtime.clock import LoopClock
from remit.runtime.context import RuntimeContext
from remit.runtime.engine import Background, Lifecycle, engine_of
from remit.runtime.events import BACKLOG, Events, Outflow
from remit.runtime.ledger import Ledger
from remit.runtime.preview import (
    CallPreview,
    HubGuards,
    HubSettings,
    TeamChange,
    guards_with,
    preview,
    preview_answer,
    preview_use,
)
from remit.runtime.purse import Prices, priced
from remit.runtime.redactor import Redactor
from remit.runtime.registry import Registry, team_invalid
from remit.runtime.root_request import new_run_id, root_request
from remit.runtime.sessions import Sessions
from remit.stores import STORE_PATH
from remit.stores.addresses import secret_files, store_at
from remit.transports.local import LocalTransport

log = logging.getLogger("remit")

DEFAULT_STORE = Path(STORE_PATH)
# More threads than this for one agent wait for the same thing, and each costs memory.
MAX_THREADS = 32
# A client that calls while the hub is closed can find another hub in a second.
CLOSED_MS = 1_000

T = TypeVar("T")
Function = TypeVar("Function", bound=AgentFunction)
ToolFunction = TypeVar("ToolFunction", bound=Callable[..., object])


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class HubOptions(TypedDict, total=False):
    """Options of a hub; each may be left out."""

    name: str
    """Its name in chains and records (default: `local`)."""
    store: Store | Path | str | None
    """A store, the path of an SQLite file (default: `.remit/hub.db`), or the address of a PostgreSQL database that
    several hubs share."""
    durability: Literal["power", "process"]
    """What an answer survives once it is given: `"power"` (default), a power cut; `"process"`, the process being
    killed."""
    limits: Limits | None
    """The limits of every delegation."""
    guards: Iterable[Guard]
    """What judges every delegation and use of a tool after Remit's own guards, and answers (`on_answer`)."""
    breaker: BreakerSettings | None
    """When calls of a failing agent are paused, and for how long."""
    approver: Approver | Literal["inbox"] | None
    """Who answers when a guard asks; `"inbox"` leaves the question in the store for `remit pending` or
    `hub.decide`."""
    redaction: Detector | bool
    """What finds personal data that agents must not see in each other's requests; True (default): the detectors that
    are installed."""
    vault_key: bytes | None
    """The key that encrypts redacted values; None: one derived from the store's key."""
    token_counter: TokenCounter | None
    """Counts the tokens of a text (default: exactly with the extra `tokens`, else by an estimate)."""
    workspace: Workspace | Path | str | None
    """The folder that callees may be told of."""
    summarizer: Summarizer | None
    """Makes summaries of conversations, better than those made without a model."""
    prices: Prices | None
    """What the tokens of models cost: `PriceBook().cost` of `remit_server.model_prices`."""
    clock: Clock | None
    """The clock of deadlines, rates and records (default: that of the event loop)."""
    shared: bool
    """Whether other hubs share the store: rate limits, breakers and rankings hold over all of them."""


class Hub:
    """Where agents live and call each other, on embedded defaults: no server, no key."""

    _ignored: Path | None = None

    def __init__(self, **options: Unpack[HubOptions]) -> None:
        refuse_unknown(options, HubOptions.__optional_keys__)
        store, prices, workspace = options.get("store"), options.get("prices"), options.get("workspace")
        summarizer, vault_key, approver = options.get("summarizer"), options.get("vault_key"), options.get("approver")
        redaction, count = options.get("redaction", True), options.get("token_counter") or default_token_counter()
        if store is None or isinstance(store, str | Path):
            durability = options.get("durability", "power")
            store = store_at(DEFAULT_STORE if store is None else store, durability=durability, count=count)
            folders = [path.parent for path in secret_files(store)[-1:]]
            self._ignored = next((each for each in folders if each.name == DEFAULT_STORE.parent.name), None)
        if vault_key is not None and isinstance(store, RetainingStore):
            store.vault_key = vault_key  # who erases a user looks for their values with it
        if isinstance(workspace, str | Path):
            from remit.stores.workspace import Folder  # most hubs have none

            workspace = Folder(workspace)
        clock = options.get("clock") or LoopClock()
        reader = partial(_conversations, store, summarizer and _priced(summarizer, prices), count)
        guards = guards_with(options.get("guards", ()))
        redactor = Redactor(_installed_detector() if redaction is True else redaction or None, vault_key)
        self._parts = RuntimeContext(
            registry=Registry(options.get("name", "local")),
            ledger=Ledger(options.get("breaker") or BreakerSettings()),
            store=store,
            transport=LocalTransport(),
            clock=clock,
            limits=options.get("limits") or Limits(),
            guards=guards.before,
            answer_guards=guards.answers,
            approver=InboxApprover(store) if approver == "inbox" else approver,
            redactor=redactor,
            sessions=Sessions(store, clock, count, reader, redactor.recall_facts, workspace),
            outflow=Outflow(clock),
            cache=Cache(),
            prices=prices,
        )
        self._engine = engine_of(self._parts, shares_limits=options.get("shared", False))
        self._lifecycle = Lifecycle(self._engine)
        if (aclose := getattr(summarizer, "aclose", None)) is not None:
            self._lifecycle.closers.append(aclose)
        self.closing = self._lifecycle.closing
        """The moment by which this hub has closed."""
        self.shared = self._engine.shared
        """Requests from and for the hubs that share this hub's store."""
        self.lent_models = self._parts.lent_models
        """Models that MCP hosts lend to the runs that they wait for."""
        self.made_of: dict[str, object] = {}
        """What the agents were made of, by name, for those that were given as a value."""
        self._kept: dict[type, object] = {}
        self._metrics: HubMetrics | None = None
        for bring in brought("companions"):
            for companion in bring(self):
                self.accompany(companion)

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_open(self) -> bool:
        """Whether the hub is open."""
        return self._lifecycle.is_open

    async def __aenter__(self) -> Self:
        await self._lifecycle.open()
        if self._ignored is not None:
            (self._ignored / ".gitignore").write_text("*\n", encoding="ascii")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._lifecycle.close()

    def __enter__(self) -> Self:
        """Open the hub in a thread of its own, for programs that do not await; ask it with `ask_sync`."""
        background = Background(self)
        background.wait_until_open()
        self._background = background
        return self

    def __exit__(self, *_: object) -> None:
        self._background.close()

    def when_opening(self, check: Callable[[], None]) -> None:
        """Call *check* when the hub is about to open; an error that it raises keeps the hub closed."""
        self._lifecycle.checks.append(check)

    def when_closed(self, close: Callable[[], Awaitable[None]]) -> None:
        """Await *close* when the hub closes, after its runs have ended."""
        self._lifecycle.closers.append(close)

    def accompany(self, companion: Companion, other_hubs: OtherHubs | None = None) -> None:
        """Open and close *companion* with this hub; *other_hubs* are those to which it connects this one."""
        self._lifecycle.companions.append(companion)
        self._parts.registry.other_hubs = other_hubs or self._parts.registry.other_hubs
        self._lifecycle.closers.append(companion.close)

    async def drain(self, within_s: float) -> None:
        """Take nothing new from other hubs, and return once what was taken has ended, or *within_s* is over."""
        for each in self._lifecycle.companions:
            await each.drain(within_s)

    # ── agents and tools ──────────────────────────────────────────────────────────────────────────────────────────────

    def agent(self, name: str, **options: Unpack[AgentOptions]) -> Callable[[Function], Function]:
        """Register the decorated function as an agent; it stays callable."""

        def add(function: Function) -> Function:
            self.add(name, function, **options)
            return function

        return add

    def add(self, name: str, agent: object, **options: Unpack[AgentOptions]) -> None:
        """Add an agent: a function, async or not, a `ModelAgent`, or an agent of any framework that Remit knows.

        With `isolation="process"` it may be a text, `"module:function"`, and the hub does not import it. *env* names
        more variables for its process; *sandbox* keeps it from all files, hosts and processes that are not named.
        """
        if options.get("isolation") == "process":
            function = None if isinstance(agent, str) else function_of(agent)
            card = local_card(name, agent, function, options)
            secret = [path.absolute() for path in secret_files(self.store)]
            code, close = _brought("isolated_agent", name, 'isolation="process"')(self, name, agent, options, secret)
        else:
            if options.get("env") or options.get("sandbox"):
                raise team_invalid(f'agent `{name}`: `env` and `sandbox` need isolation="process"')
            function = function_of(agent)
            card = local_card(name, agent, function, options)
            threads = Threads(name, min(card.concurrency, MAX_THREADS))
            code, close = agent_from(function, threads), closing(function, threads)
        if options.get("route"):
            code = _brought("routed_agent", name, "route")(self, card, code)
        self.register(card, code, close)
        self.made_of[name] = agent

    def tool(
        self,
        name: str | None = None,
        *,
        description: str | None = None,
        safe_to_repeat: bool = False,
        sees: Collection[str] | Mapping[str, Collection[str]] = (),
        clear: bool = False,
        rate: Rate | None = None,
    ) -> Callable[[ToolFunction], ToolFunction]:
        """Register the decorated function as a tool: its parameters are its schema; `user` is filled from the remit.

        *sees* are the kinds of personal data that it is given in clear, in all parameters (`["EMAIL"]`) or by
        parameter (`{"email": ["EMAIL"]}`). The agents that use it get placeholders, also in its results. Models get
        its results with placeholders, unless it is *clear*. *rate* is how often all agents together may use it.
        """

        def add(function: ToolFunction) -> ToolFunction:
            threads = Threads(name or function.__name__, MAX_THREADS)
            tool = tool_from(
                function,
                name,
                threads,
                description=description,
                safe_to_repeat=safe_to_repeat,
                sees=seen_by(sees, f"tool `{name or function.__name__}`"),
                clear=clear,
                rate=rate,
            )
            self.register_tool(tool, threads.close)
            return function

        return add

    def register(
        self, card: AgentCard, agent: Agent | Remote, close: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Add an agent under its card; *close* is awaited when the hub closes."""
        self._parts.registry.add(card, agent)
        if close is not None:
            self._lifecycle.closers.append(close)
        if self.is_open:
            self._lifecycle.serve(card)

    def register_tool(self, tool: Tool, close: Callable[[], Awaitable[None]] | None = None) -> None:
        """Add a tool that agents may use if their card and remit name it; *close* is awaited when the hub closes."""
        self._parts.registry.add_tool(tool)
        if close is not None:
            self._lifecycle.closers.append(close)

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

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, agent: str, text: str = "", *, user: str, **options: Unpack[AskOptions]) -> Response:
        """Ask an agent for a user and return the response; nothing leaves the hub before it is recorded."""
        return await self._engine.runs.ask(self._request(agent, text, user, options))

    def ask_sync(self, agent: str, text: str = "", *, user: str, **options: Unpack[AskOptions]) -> Response:
        """Ask like `ask`, without await: from scripts and notebooks, even if an event loop is already running.

        If the hub is not open, it is opened for this call only; for several calls use `with hub:`.
        """
        if not self.is_open:
            with self:
                return self.ask_sync(agent, text, user=user, **options)
        loop = self._lifecycle.running_loop()
        if loop is _running_loop():
            raise RuntimeError(
                "ask_sync would block the event loop that the hub runs in: use `await hub.ask(...)` here"
            )
        future = asyncio.run_coroutine_threadsafe(self.ask(agent, text, user=user, **options), loop)
        try:
            return future.result()
        except BaseException:  # the wait was interrupted: nobody waits for the run any more
            future.cancel()
            raise

    def stream(
        self, agent: str, text: str = "", *, user: str, **options: Unpack[AskOptions]
    ) -> AsyncGenerator[Record, None]:
        """Ask like `ask` and yield the run's records as they are committed; the last one holds the response.

        Closing the generator before the end cancels the run.
        """
        return self._engine.events.stream(partial(self._request, agent, text, user, options), self._engine.runs.ask)

    def cancel(self, delegation: str, reason: str = "asked for") -> bool:
        """Stop a run, or one delegation of it, and everything below; False if no such id is in flight here."""
        return self._engine.runs.cancel(delegation, reason)

    def extend(self, run: str, tokens: int, reason: str, *, cost: int = 0) -> bool:
        """Grant a run more tokens, and money in millionths, as a person who answers for it decides; False if it is not
        in flight here.
        """
        return self._engine.runs.extend(run, tokens, reason, cost)

    async def pending(self) -> list[Question]:
        """Return the pending questions in the store's inbox, oldest first."""
        return await self._parts.store.pending()

    async def decide(
        self, question: str, *, agreed: bool, by: str, reason: str = "", edits: dict[str, Json] | None = None
    ) -> Question:
        """Answer a question of the inbox, given by its id or an unambiguous part of it, in a person's name."""
        decision = Decision(agreed=agreed, by=by, reason=reason, edits=edits or {})
        return await decide(self._parts.store, question, decision)

    async def reveal(self, question: str, *, by: str) -> Question:
        """Return a pending question with the personal values behind its tokens; the record names them and who reads."""
        parts = self._parts
        return await reveal(parts.store, parts.redactor, find(await parts.store.pending(), question), by)

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
        if not self.is_open:
            raise RemitError(fault(Code.OVERLOADED, "the hub is not open", retry_after_ms=CLOSED_MS))
        return self._engine.incoming.receive(sent, sender, exposed, grant, unmarked=unmarked)

    def forget(self, run: str) -> None:
        """Drop what is stored for a run that was received but will not begin."""
        self._engine.incoming.forget(run)

    def forward_headers(self, run: str, headers: Mapping[str, str]) -> None:
        """Forward these headers of a request to every hub that its run calls."""
        if forwarded := passed_on(headers):
            self._parts.passed_on[run] = forwarded

    async def begin(self, request: Request, once: SingleUseProof | None = None) -> ActiveRun | Response:
        """Start a received request, or attach to an equal one in flight; *once* is its single-use proof, if any."""
        return await self._engine.incoming.begin(request, once)

    async def begin_peer_call(self, request: Request) -> ActiveRun | Response:
        """Start a peer agent's request like `begin`, within the fan-out limit and without a cycle of that agent."""
        return await self._engine.incoming.begin_peer_call(request)

    async def peer_call_ended(self, request: Request) -> None:
        """Return once the end of a request that `begin_peer_call` started is counted."""
        await self._engine.incoming.peer_call_ended(request)

    def _request(self, agent: str, text: str, user: str, options: AskOptions) -> Request:
        if not self.is_open:
            raise RemitError(fault(Code.TEAM_INVALID, "the hub is not open: use `async with hub:`", suggestion=""))
        if self._lifecycle.loop is not asyncio.get_running_loop():
            raise RuntimeError("the hub runs in another event loop, opened by `with hub:`: use `hub.ask_sync(...)`")
        created_ms = self._parts.clock.wall_ms()
        run = new_run_id(created_ms)
        return root_request(agent, text, user, options, run=run, created_ms=created_ms, limits=self._parts.limits)

    # ── what happens and what happened ────────────────────────────────────────────────────────────────────────────────

    async def outcome(self, run: str, *, raw: bool = True) -> Response | None:
        """Return the outcome of a run as its user gets it, or with tokens; None if it has not ended or is unknown."""
        return await outcome_of(self._parts, run, raw=raw)

    async def request_of(self, run: str, *, raw: bool = True) -> Request | None:
        """Return the root request of a run in the user's words, or with tokens; None if nothing is recorded."""
        return await request_of(self._parts, run, raw=raw)

    async def delegations(self, run: str) -> list[Delegation]:
        """Return the delegations of a run: caller, callee, objective and outcome."""
        return await delegations_of(self._parts.store, run)

    def events(self) -> Events:
        """Return the records of this hub from now on, as they are committed."""
        return self._engine.events.of_hub()

    def follow(self, run: str, *, backlog: int = BACKLOG, live: bool = True, raw: bool = True) -> Events:
        """Return the records of a run from now on, with its *live* text, *raw* as its caller gets it or with tokens.

        *backlog* is how many unread entries are kept; the oldest are dropped first.
        """
        return self._engine.events.of_run(run, backlog=backlog, live=live, raw=raw)

    def is_running(self, run: str) -> bool:
        """Return whether this hub executes a run."""
        return run in self._parts.ledger.frames

    def live_runs(self) -> list[LiveRun]:
        """Return the runs in progress here, and what each has left."""
        return live_runs(self._parts)

    def agent_status(self) -> dict[str, AgentStatus]:
        """Return the current load and breaker of each agent."""
        return agent_status(self._parts)

    async def ranking(self, capability: str) -> tuple[Ranked, ...]:
        """Return the current ranking of the agents that offer a capability, best first, each with the reasons."""
        parts = self._parts
        if self.is_open:
            await self._engine.dispatch.routing.recall()
        return parts.ledger.explained(capability, parts.registry.offering(capability), parts.clock.now())

    @property
    def metrics(self) -> HubMetrics:
        """The counters of this hub, since they were first read."""
        if self._metrics is None:
            self._metrics = HubMetrics(lambda name: name in self._parts.registry.agents, self._parts.clock.wall_ms())
            self._parts.store.listen(self._metrics.count, patient=True)
        return self._metrics

    def preview(self, origin: str, call: Call, user: str, change: TeamChange | None = None) -> CallPreview:
        """Return the request that a call would make, and what judges it; nothing is asked or recorded."""
        return preview(self._parts, origin, call, user, change)

    def preview_answer(self, agent: str, origin: str, content: AnswerContent, user: str) -> CallPreview:
        """Return an agent's answer to *origin* as the guards of answers would see it; nothing is asked or recorded."""
        return preview_answer(self._parts, agent, origin, content, user)

    def preview_use(
        self, agent: str, tool: str, arguments: dict[str, Json], user: str, *, own: bool = False
    ) -> CallPreview:
        """Return the use of a tool by an agent as a request, and what judges it; nothing is used or recorded.

        With *own*, it is a tool that the agent brings along.
        """
        return preview_use(self._parts, agent, tool, arguments, user, own=own)

    # ── recording and replaying ───────────────────────────────────────────────────────────────────────────────────────

    def record(self, path: Path | str) -> AbstractAsyncContextManager[HubRecording]:
        """Record what the models, tools, people and other hubs reply in all runs that begin within the block.

        The file is written at the end of the block, without personal data, keys and headers.
        """
        from remit import __version__

        return recorded(self._parts, Path(path), self._detector_of_recordings(), __version__)

    def replay(self, path: Path | str, *, new: NewCalls = "refuse") -> AbstractAsyncContextManager[Replay]:
        """Answer models, tools, people and other hubs from a recording in all runs that begin within the block.

        *new* says what happens with a call that is not in the recording: it is refused, or really made. Afterwards
        the replay has the differences; its `check()` raises an error that names the first one.
        """
        return replayed(self._parts, Path(path), self._detector_of_recordings(), new)

    def _detector_of_recordings(self) -> Detector | None:
        """Return what finds personal data in recordings, for a hub that redacts none."""
        return None if self._parts.redactor.detector is not None else _installed_detector()

    # ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def name(self) -> str:
        """The name of this hub in chains and records."""
        return self._parts.registry.hub

    @property
    def store(self) -> Store:
        """The store of this hub."""
        return self._parts.store

    @property
    def clock(self) -> Clock:
        """The clock of this hub."""
        return self._parts.clock

    @property
    def limits(self) -> Limits:
        """The limits in force."""
        return self._parts.limits

    @property
    def settings(self) -> HubSettings:
        """The limits, breaker settings and guards that hold now."""
        parts = self._parts
        return HubSettings(parts.limits, parts.ledger.settings, parts.guards, parts.answer_guards)

    @property
    def can_ask_person(self) -> bool:
        """Whether a person answers when a guard asks."""
        return self._parts.approver is not None

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
        for card in cards if self.is_open else ():
            old = self.cards.get(card.name, card)
            if (card.concurrency, card.queue) != (old.concurrency, old.queue):
                raise team_invalid(
                    f"the concurrency and queue of `{card.name}` cannot be changed while the hub is open"
                )
        judges = HubGuards(parts.guards, parts.answer_guards) if guards is None else guards_with(guards)
        parts.registry.replace(cards)
        parts.limits = limits or parts.limits
        parts.ledger.settings = breaker or parts.ledger.settings
        parts.guards, parts.answer_guards = judges
        parts.cache.clear()  # new cards and guards may lead to other answers

    def on_reload(self, reload: Callable[[ControlCommand], Awaitable[None]]) -> None:
        """Call *reload* when another process asks every hub on this store to reload its configuration."""
        self._engine.leases.on_reload = reload

    def resume_only(self, runs: Collection[str]) -> None:
        """Resume only these of the orphaned runs and leave the rest to other hubs."""
        self._engine.leases.only = frozenset(runs)

    def before_agents(self, prepare: Callable[[Brief], Awaitable[None]]) -> None:
        """Await *prepare* with its brief before each agent of this hub that may use tools starts."""
        self._parts.before_agents.append(prepare)

    def sample(self, ratio: float) -> None:
        """Keep the spans of this share of the runs that begin here; other hubs keep those of the same runs."""
        self._parts.sample_ratio = ratio

    def warm(self) -> None:
        """Load in a thread what the first request with personal data needs; for hubs that serve many requests."""
        self._parts.redactor.warm()

    def notify_runs(self, text: str) -> None:
        """Record a notice for operators in every run that is in flight here."""
        for frame in self._engine.frames():
            if frame.parent is None:
                self._engine.dispatch.recording.notice(frame, text)

    def keep(self, part: object) -> None:
        """Keep what a plugin has for this hub, one of each type."""
        self._kept[type(part)] = part

    def kept(self, kind: type[T]) -> T | None:
        """Return the part of that type that a plugin keeps here."""
        return cast("T | None", self._kept.get(kind))


def _brought(hook: str, agent: str, option: str) -> Callable[..., Any]:
    """Return what the first plugin brings for an option of an agent."""
    for bring in brought(hook):
        return bring
    raise team_invalid(f"agent `{agent}`: no installed plugin knows the option {option}")


def _installed_detector() -> Detector | None:
    """Return the detector of the first plugin that brings one."""
    for bring in brought("redaction"):
        return bring()
    log.warning("no detectors are installed: personal data is not redacted; redaction=False says that this is meant")
    return None


def _conversations(store: Store, summarizer: Summarizer | None, count: TokenCounter) -> ConversationReader:
    # Most hubs never continue a conversation, and the language modules take memory.
    return text_reader().conversations(store, summarizer, count)


def _priced(summarizer: Summarizer, prices: Prices | None) -> Summarizer:
    """Return a summarizer that says what its summaries cost."""
    model = str(getattr(summarizer, "model", ""))

    async def summarize(text: str, max_tokens: int) -> tuple[str, Usage]:
        summary, usage = await summarizer(text, max_tokens)
        return summary, priced(prices, "", usage, model)

    return summarize
