"""The hub that a Python program opens: SQLite beside it, agents from plain functions."""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeVar, Unpack

from msgspec.structs import replace

from remit.agents.function import AgentFunction, agent_from, closing, tool_from
from remit.agents.model import ModelAgent
from remit.agents.recognise import described, function_of
from remit.agents.sandbox import Sandbox, demand
from remit.agents.threads import Threads
from remit.agents.token_count import token_counter
from remit.agents.typed import with_schemas
from remit.detectors.pipeline import pipeline
from remit.hub.arguments import listed, names_of, permissions_of, seen_by, seen_by_server
from remit.hub.blocking import Background
from remit.hub.blocking import ask as ask_blocking
from remit.policy.breaker import BreakerSettings
from remit.policy.limits import Limits
from remit.policy.plan import Workflow
from remit.policy.plan_problems import problems
from remit.policy.verdict import Detector, Guard
from remit.protocol.card import CONCURRENCY, QUEUE, AgentCard, Authority, Capability, Rate
from remit.protocol.codec import did_you_mean
from remit.protocol.envelope import Answer, Response
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.runtime.approvers import InboxApprover
from remit.runtime.brief import Brief
from remit.runtime.engine import Engine
from remit.runtime.ports import (
    Agent,
    Approver,
    Classifier,
    Clock,
    Credential,
    Remote,
    Store,
    Summarizer,
    TokenCounter,
    Workspace,
)
from remit.runtime.registry import team_invalid
from remit.runtime.root_request import AskOptions
from remit.runtime.schemas import check_schema
from remit.stores import STORE_PATH
from remit.stores.checkpoints import key_path
from remit.stores.sqlite import SqliteStore
from remit.text.intent import DECISION_MS, THRESHOLDS, Label, Scorer, Thresholds
from remit.transports.local import LocalTransport

if TYPE_CHECKING:
    # most hubs have nobody to tell, and no servers
    from opentelemetry.sdk.trace.export import SpanExporter
    from pydantic_ai.models import Model

    from remit.agents.mcp.server import McpServer
    from remit.agents.mcp.settings import Settings
    from remit.agents.process import ProcessAgent
    from remit.server.a2a.routes import Exposure
    from remit.telemetry.exporter import Telemetry
    from remit.telemetry.spans import Who

DEFAULT_STORE = Path(STORE_PATH)
# A process takes some 20 MB, and more of them than this only share the processors.
PROCESSES = 2 * (os.cpu_count() or 1)
# More threads than this for one agent wait for the same thing, and each costs memory.
MAX_THREADS = 32

# How an orchestrator finds out what is wanted.
Hearing = Literal["words", "embeddings", "model"]

Function = TypeVar("Function", bound=AgentFunction)
ToolFunction = TypeVar("ToolFunction", bound=Callable[..., object])


class AgentOptions(TypedDict, total=False):
    """What may be said of an agent besides its name and its code."""

    description: str | None
    version: str
    capabilities: Iterable[Capability | str]
    tools: Collection[str]
    may_call: Collection[str]
    allow_sub_agent_calls: bool | None
    max_sub_agent_depth: int | None
    authority: Authority | None
    concurrency: int | None
    queue: int
    rate: Rate | None
    time_ms: int | None
    tokens: int | None
    resumable: bool
    isolation: Literal["task", "process"]
    env: Collection[str]
    sandbox: Sandbox | bool
    sees: Collection[str]
    prompt: str


class Hub(Engine):
    """Where agents live and call each other, on embedded defaults: no server, no key.

    *store* is a store, or the path of an SQLite file (`.remit/hub.db` if nothing is said). *durability* says what an
    answer survives once it is given: `"power"`, a power cut; `"process"`, the process being killed. *redaction* finds
    what agents must not see of each other's requests; True stands for the detectors that come with Remit. *authority*
    is what `Limits` has under that name: with `"caller"` no agent can use a tool or ask an agent in the name of another
    that could not, unless its own `authority` is `"own"`. *approver*
    answers when a guard asks; `"inbox"` leaves the question in the store for `remit pending`, or `hub.decide`. *count*
    counts tokens, exactly if the extra `tokens` is there and nothing else is said; *workspace* is the folder that
    callees may be told of; *summarizer* makes better summaries of conversations than those made without a model.
    """

    _ignored: Path | None = None

    def __init__(
        self,
        *,
        name: str = "local",
        store: Store | Path | str | None = None,
        durability: Literal["power", "process"] = "power",
        limits: Limits | None = None,
        authority: Authority | None = None,
        guards: Iterable[Guard] = (),
        breaker: BreakerSettings | None = None,
        approver: Approver | Literal["inbox"] | None = None,
        redaction: Detector | bool = True,
        vault_key: bytes | None = None,
        count: TokenCounter | None = None,
        workspace: Workspace | Path | str | None = None,
        summarizer: Summarizer | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._workflows: list[Workflow] = []
        self._code_folder: Path | None = None
        self._environ: Mapping[str, str] = os.environ
        self._hidden: list[Path] = []
        """What no sandbox may lead to."""
        self._mcp: dict[str, McpServer] = {}
        """The MCP servers of those tools that have one."""
        self._planners: set[str] = set()
        self._make_telemetry: Callable[[], Telemetry] | None = None
        self._telemetry: Telemetry | None = None
        self._phrases: dict[str, str] = {}
        self._glossary: dict[str, str] = {}
        limits = limits or Limits()
        count = token_counter() if count is None else count
        if store is None or isinstance(store, str | Path):
            path = DEFAULT_STORE if store is None else Path(store)
            store = SqliteStore(path, durability=durability, count=count)
            self._ignored = path.parent if path.parent.name == DEFAULT_STORE.parent.name else None
        if isinstance(store, SqliteStore):
            self._hidden += [store.path.absolute(), key_path(store.path.absolute())]
        super().__init__(
            name=name,
            store=store,
            transport=LocalTransport(),
            limits=limits if authority is None else replace(limits, authority=authority),
            guards=guards,
            breaker=breaker,
            approver=InboxApprover(store) if approver == "inbox" else approver,
            redaction=pipeline() if redaction is True else redaction or None,
            vault_key=vault_key,
            count=count,
            workspace=_folder(workspace) if isinstance(workspace, str | Path) else workspace,
            summarizer=summarizer,
            clock=clock,
        )
        if (aclose := getattr(summarizer, "aclose", None)) is not None:
            self._closers.append(aclose)

    async def __aenter__(self) -> Self:
        offered = {name: {each.code for each in card.capabilities} for name, card in self.cards.items()}
        for workflow in self._workflows:
            if found := problems(workflow, agents=offered, capabilities=set[str]().union(*offered.values())):
                raise _unsound(workflow, found)
        await super().__aenter__()
        if self._make_telemetry is not None:
            self._telemetry = self._make_telemetry()
            self._telemetry.open()
        if self._ignored is not None:
            (self._ignored / ".gitignore").write_text("*\n", encoding="ascii")
        return self

    def __enter__(self) -> Self:
        """Open the hub in a thread of its own, for programs that do not await; ask it with `ask_sync`."""
        background = Background(self)
        background.wait_until_open()
        self._background = background
        return self

    def __exit__(self, *_: object) -> None:
        self._background.close()

    def ask_sync(self, agent: str, text: str = "", *, user: str, **options: Unpack[AskOptions]) -> Response:
        """Ask like `ask`, without await: from scripts and notebooks, also where an event loop is running already.

        A hub that is not open is opened for this one question; for several, ask within `with hub:`.
        """
        if self.loop is not None:
            return ask_blocking(self, agent, text, user, options)
        with self:
            return ask_blocking(self, agent, text, user, options)

    def agent(self, name: str, **options: Unpack[AgentOptions]) -> Callable[[Function], Function]:
        """Make the decorated function an agent; it stays callable as it was."""

        def add(function: Function) -> Function:
            self.add(name, function, **options)
            return function

        return add

    def add(
        self,
        name: str,
        agent: object,
        *,
        description: str | None = None,
        version: str = "1.0",
        capabilities: Iterable[Capability | str] = (),
        tools: Collection[str] = (),
        may_call: Collection[str] = (),
        allow_sub_agent_calls: bool | None = None,
        max_sub_agent_depth: int | None = None,
        authority: Authority | None = None,
        concurrency: int | None = None,
        queue: int = QUEUE,
        rate: Rate | None = None,
        time_ms: int | None = None,
        tokens: int | None = None,
        resumable: bool = False,
        isolation: Literal["task", "process"] = "task",
        env: Collection[str] = (),
        sandbox: Sandbox | bool = False,
        sees: Collection[str] = (),
        prompt: str = "",
    ) -> None:
        """Add an agent: a function, async or not, a `ModelAgent`, or an agent of any framework that Remit knows.

        With `isolation="process"` it may also be a text, `"module:function"`: then the hub itself does not import it.
        *env* names the variables of the environment that its process is given besides those that every program needs;
        *sandbox* keeps it from all files, hosts and processes that are not named.
        """
        if isolation == "process":
            process = self._process_agent(name, agent, env, sandbox)
            function = None if isinstance(agent, str) else function_of(agent)
        else:
            if env or sandbox:
                raise team_invalid(f'agent `{name}`: `env` and `sandbox` need isolation="process"')
            process, function = None, function_of(agent)
        if concurrency is None:
            concurrency = CONCURRENCY if isolation == "task" else PROCESSES
        card = AgentCard(
            name=name,
            version=version,
            description=description or (described(agent, function) if function and description is None else ""),
            capabilities=tuple(_capability(each, name) for each in with_schemas(capabilities, function)),
            tools=names_of(tools, name, "tools"),
            may_call=names_of(may_call, name, "may_call"),
            allow_sub_agent_calls=allow_sub_agent_calls,
            max_sub_agent_depth=max_sub_agent_depth,
            authority=authority,
            concurrency=concurrency,
            queue=queue,
            rate=rate,
            time_ms=time_ms,
            tokens=tokens,
            resumable=resumable,
            isolation=isolation,
            sees=names_of(sees, name, "sees"),
            prompt=prompt,
        )
        if function is None or process is not None:
            assert process is not None, "only a process takes a name in the place of a function"
            self.register(card, process, process.close)
        else:
            threads = Threads(name, min(concurrency, MAX_THREADS))
            self.register(card, agent_from(function, threads), closing(function, threads))

    def _process_agent(self, name: str, agent: object, env: Collection[str], sandbox: Sandbox | bool) -> "ProcessAgent":
        from remit.agents.process import ProcessAgent  # most hubs have none
        from remit.agents.spawn import ProcessEnvironment

        wanted = (Sandbox() if sandbox else None) if isinstance(sandbox, bool) else sandbox
        if wanted is not None:
            demand(wanted, name)
        around = ProcessEnvironment(
            folder=self._code_folder,
            environ=self._environ,
            env=names_of(env, name, "env"),
            sandbox=wanted,
            hidden=self._hidden,
        )
        if isinstance(agent, str):
            if not all(agent.partition(":")):
                raise team_invalid(f'agent `{name}`: "{agent}" does not name a function as "module:function"')
            return ProcessAgent(agent, around=around)
        return ProcessAgent(function_of(agent), around=around)

    def isolate_with(self, *, folder: Path, environ: Mapping[str, str], hidden: Iterable[Path] = ()) -> None:
        """Say where the code of isolated agents is, where their variables come from, and what no sandbox may lead to.

        Holds for agents that are added after it. Without it, code is where the hub imports from, variables are those of
        this process, and the store with its key is hidden.
        """
        self._code_folder, self._environ = folder, environ
        self._hidden.extend(hidden)

    def connect(
        self,
        name: str,
        url: str,
        *,
        remote: str | None = None,
        token: str | None = None,
        credential: Credential | None = None,
        description: str = "",
        version: str = "1.0",
        capabilities: Iterable[Capability | str] = (),
        concurrency: int = CONCURRENCY,
        queue: int = QUEUE,
        rate: Rate | None = None,
        time_ms: int | None = None,
        tokens: int | None = None,
        sees: Collection[str] = (),
        authority: Authority | None = None,
    ) -> None:
        """Add an agent that lives at another hub, at *url*, where it is called *remote*; it is asked like any other.

        *token* proves this hub to that one; *credential* does so request by request: it is given the request and what
        is sent, and returns headers.
        """
        from remit.transports.http import HubPeer  # most hubs are alone

        peer = HubPeer(url, token=token, credential=credential, max_bytes=self._parts.limits.max_result_bytes)
        card = AgentCard(
            name=name,
            version=version,
            description=description,
            capabilities=tuple(_capability(each, name) for each in capabilities),
            concurrency=concurrency,
            queue=queue,
            rate=rate,
            time_ms=time_ms,
            tokens=tokens,
            sees=names_of(sees, name, "sees"),
            authority=authority,
            resumable=True,  # a hub that is asked the same again, under the same id, does not do it twice
        )
        self.register(card, peer.agent(remote or name), peer.close)

    @asynccontextmanager
    async def serve(
        self,
        *,
        clients: Mapping[str, str] | None = None,
        hubs: Mapping[str, str] | None = None,
        may: Mapping[str, Collection[str]] | None = None,
        answers: Collection[str] = (),
        agents: Collection[str] | None = None,
        users: Mapping[str, Collection[str]] | None = None,
        a2a: "Exposure | bool" = False,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> AsyncGenerator[str, None]:
        """Serve this hub, which is open, over HTTP until the block ends; what is given is its address.

        *clients* and *hubs* are who may come, each by name with the token that proves it; a hub speaks for its agents,
        under the name that it gives itself. *may* says by name what else they may do: `metrics` reads the figures,
        `read` everyone's runs and the record, `control` cancels everyone's runs. Users of clients in *answers* may
        answer over MCP what a person is asked about their own runs. *agents* are those that can be asked; None: all.
        *users* are those for whom a client may ask, by the client's name; who is not there asks for anyone. With *a2a*
        the agents speak A2A, too, below `/a2a/NAME`.
        """
        from remit.runtime.clock import LoopClock
        from remit.server.app import Api  # most hubs are not served
        from remit.server.server import Server
        from remit.transports.credentials.incoming import Authenticator, KnownSender
        from remit.transports.listening import listening

        named = [(name, token, False) for name, token in (clients or {}).items()]
        named += [(name, token, True) for name, token in (hubs or {}).items()]
        about = {"users": users or {}, "may": may or {}, "answers": answers}
        _refuse_confusion([(name, token) for name, token, _ in named], about)
        known = [
            KnownSender(
                name=name,
                token=token,
                is_hub=is_hub,
                may=permissions_of(name, (may or {}).get(name, ())),
                answers=name in answers,
                users=None if name not in (users or {}) else names_of((users or {})[name], name, "users"),
            )
            for name, token, is_hub in named
        ]
        door = Authenticator(known, wall_ms=LoopClock().wall_ms)
        exposed = None if agents is None else names_of(agents, "served", "agents")
        api = Api(
            self,
            door,
            exposed=lambda: self.cards if exposed is None else exposed,
            a2a=_exposure() if a2a is True else a2a or None,
        )
        with listening(host, port) as bound:
            async with Server(api, bound=bound) as server:
                yield server.address

    def mcp(
        self,
        name: str,
        command: str | None = None,
        args: Sequence[str] = (),
        *,
        url: str | None = None,
        allow: Collection[str],
        env: Mapping[str, str] | None = None,
        folder: Path | str | None = None,
        token: str | None = None,
        safe_to_repeat: Collection[str] = (),
        sees: Collection[str] | Mapping[str, Collection[str] | Mapping[str, Collection[str]]] = (),
        prefix: str | None = None,
        time_ms: int | None = None,
        max_output: int | None = None,
    ) -> None:
        """Let agents use tools of an MCP server: one that *command* starts, or one at *url*.

        The tools in *allow*, and no others, become tools of the hub, called `NAME.TOOL` or as *prefix* says. It is
        started with the first request to an agent that may use one of them, and ends with the hub. Of this process's
        environment it gets what every program needs, and *env*; *token* proves this hub to a server at a *url*.
        *sees* are the kinds of personal data that its tools are given as they are, as with `tool`: those of all its
        tools, or by tool.
        """
        from remit.agents.mcp.settings import MAX_OUTPUT, TIME_S, Settings, reach_of  # most hubs have none

        self.add_mcp(
            Settings(
                name=name,
                reach=reach_of(name, command, args, env or {}, folder, url, token),
                allow=tuple(listed(allow, name, "allow")),
                safe_to_repeat=frozenset(listed(safe_to_repeat, name, "safe_to_repeat")),
                sees=seen_by_server(sees, f"MCP server `{name}`"),
                prefix=prefix,
                time_s=TIME_S if time_ms is None else time_ms / 1_000,
                max_output=MAX_OUTPUT if max_output is None else max_output,
            )
        )

    def add_mcp(self, settings: "Settings") -> None:
        """Add an MCP server as `mcp` does, by its settings."""
        from remit.agents.mcp.server import McpServer

        server = McpServer(settings, self.describe_tool)
        for tool in server.tools():
            self.register_tool(tool)
            self._mcp[tool.card.name] = server
        self._closers.append(server.close)

    def register(
        self, card: AgentCard, agent: Agent | Remote, close: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Add an agent under its card; *close* is awaited when the hub closes."""
        if card.tools and not isinstance(agent, Remote):
            agent = self._equipped(agent)
        super().register(card, agent, close)

    def _equipped(self, agent: Agent) -> Agent:
        """Return an agent that begins once it is known what the MCP tools take that it may use."""

        async def answer(brief: Brief) -> Answer:
            if self._mcp:
                for server in {self._mcp[tool] for tool in brief.tools if tool in self._mcp}:
                    await server.ready()
            return await agent(brief)

        return answer

    def connect_a2a(
        self,
        name: str,
        card_url: str,
        *,
        token: str | None = None,
        credential: Credential | None = None,
        keys: Collection[str] = (),
        hosts: Collection[str] = (),
        private: bool = False,
        description: str = "",
        version: str = "1.0",
        capabilities: Iterable[Capability | str] = (),
        concurrency: int = CONCURRENCY,
        queue: int = QUEUE,
        rate: Rate | None = None,
        time_ms: int | None = None,
        tokens: int | None = None,
        sees: Collection[str] = (),
        authority: Authority | None = None,
    ) -> None:
        """Add an agent that speaks A2A, by the address of its card; it is asked like any other.

        *token* proves this hub to it, and *credential* does so request by request. With *keys* its card has to be
        signed by one of them. The card may lead to the host that it lies at, and to *hosts*; these are in the public
        network unless they are named there, or are *private*.
        """
        from remit.dialects.a2a.translator import TONGUE  # most hubs are alone
        from remit.transports.a2a.agent import A2aAgent
        from remit.transports.a2a.peer import A2aPeer

        peer = A2aPeer(
            card_url,
            TONGUE,
            token=token,
            credential=credential,
            keys=keys,
            hosts=hosts,
            private=private,
            max_bytes=self._parts.limits.max_result_bytes,
        )
        card = AgentCard(
            name=name,
            version=version,
            description=description,
            capabilities=tuple(_capability(each, name) for each in capabilities),
            concurrency=concurrency,
            queue=queue,
            rate=rate,
            time_ms=time_ms,
            tokens=tokens,
            sees=names_of(sees, name, "sees"),
            authority=authority,
            resumable=True,  # it is asked for by what the other side calls it, and never begun a second time
        )
        self.register(card, A2aAgent(peer, name), peer.close)

    def workflow(
        self,
        workflow: Workflow,
        *,
        phrases: Mapping[str, str] | None = None,
        glossary: Mapping[str, str] | None = None,
        model: "str | Model | ModelAgent | None" = None,
        time_ms: int | None = None,
        tokens: int | None = None,
    ) -> None:
        """Add a workflow as an agent of its own name: asking it carries out its steps, and survives a restart.

        *phrases* are what users read while a capability is at work, *glossary* the one term for each variant of it.
        A *model* tells several results as one, if it tells only what they say; else they are told in turn.
        """
        from remit.agents.telling import narrator_of
        from remit.agents.workflow import WorkflowAgent  # most hubs have none

        if found := problems(workflow):
            raise _unsound(workflow, found)
        named = {agent for step in workflow.steps for agent in (step.agent, *step.fallback) if agent is not None}
        self._phrases |= phrases or {}
        self._glossary |= glossary or {}
        agent = WorkflowAgent(
            workflow,
            words=self._words,
            at_once=lambda: self._parts.limits.max_fan_out,
            narrator=narrator_of(model),
        )
        self.add(
            workflow.name,
            agent,
            may_call=named if all(step.agent for step in workflow.steps) else {"*"},
            time_ms=time_ms,
            tokens=tokens,
            resumable=True,
        )
        self._parts.registry.describe(replace(self.cards[workflow.name], passes_on=True))
        self._workflows.append(workflow)

    def orchestrator(
        self,
        name: str = "orchestrator",
        *,
        classifier: Hearing | Callable[[Sequence[Capability]], Classifier | Scorer] = "words",
        model: "str | Model | ModelAgent | None" = None,
        narrate: Literal["template", "model"] = "template",
        thresholds: Thresholds = THRESHOLDS,
        phrases: Mapping[str, str] | None = None,
        glossary: Mapping[str, str] | None = None,
        cache_ms: int = DECISION_MS,
        time_ms: int | None = None,
        tokens: int | None = None,
    ) -> None:
        """Add an agent that finds out what a user wants, among all capabilities and workflows, and has it done.

        The *model* says what is wanted if it is the *classifier*, and tells several results as one if it is to
        *narrate*. What was decided about a user's words counts for *cache_ms* when they say the same again.
        """
        from remit.agents.deciding import Decisions
        from remit.agents.listening import hearing
        from remit.agents.model import model_agent
        from remit.agents.orchestrator import Orchestrator  # most hubs have none
        from remit.agents.telling import narrator_of

        uses = [f'{key}="model"' for key, said in (("classifier", classifier), ("narrate", narrate)) if said == "model"]
        if uses and model is None:
            raise team_invalid(f"orchestrator `{name}`: {uses[0]} needs a `model`")
        if model is not None and not uses:
            why = 'nothing uses its `model`: say classifier="model", narrate="model", or both'
            raise team_invalid(f"orchestrator `{name}`: {why}")
        self._phrases |= phrases or {}
        self._glossary |= glossary or {}
        asked = None if model is None else model_agent(model)
        agent = Orchestrator(
            lambda: self._offered(name),
            hearing(
                classifier if callable(classifier) else trainer(classifier),
                asked if classifier == "model" else None,
                thresholds.act,
            ),
            thresholds=thresholds,
            words=self._words,
            at_once=lambda: self._parts.limits.max_fan_out,
            narrator=narrator_of(asked if narrate == "model" else None),
            decisions=Decisions(self._parts.clock.now, cache_ms),
            aclose=None if asked is None else asked.aclose,
        )
        self.add(name, agent, may_call={"*"}, time_ms=time_ms, tokens=tokens, resumable=True)
        self._parts.registry.describe(replace(self.cards[name], passes_on=True))
        self._planners.add(name)

    def _offered(self, orchestrator: str) -> dict[str, tuple[Label, Capability]]:
        """Return what users can ask for: each capability with who has it, and each workflow under its own name."""
        found: dict[str, tuple[Label, Capability]] = {}
        for card in self.cards.values():
            for each in card.capabilities if card.name != orchestrator else ():
                found.setdefault(
                    each.code, (Label(target=card.name, description=each.description), _within(each, card))
                )
        for each in self._workflows:
            asked = Capability(code=each.name, description=each.description, examples=each.examples)
            asked = _within(asked, self.cards[each.name])
            found[each.name] = (Label(target=each.name, description=each.description), asked)
        return found

    def _words(self) -> Any:
        from remit.agents.workflow import Wording

        capabilities = [each for card in self.cards.values() for each in card.capabilities]
        flows = {each.name: each.description for each in self._workflows}
        return Wording(
            phrases=self._phrases,
            glossary=self._glossary,
            descriptions={each.code: each.description for each in capabilities} | flows,
            forbidden={name for name in (*self.cards, *(each.code for each in capabilities)) if _is_code(name)},
        )

    def tool(
        self,
        name: str | None = None,
        *,
        description: str | None = None,
        safe_to_repeat: bool = False,
        sees: Collection[str] | Mapping[str, Collection[str]] = (),
    ) -> Callable[[ToolFunction], ToolFunction]:
        """Make the decorated function a tool: its parameters are its schema, and `user` is filled from the remit.

        *sees* are the kinds of personal data (`["EMAIL"]`) that it is given as they are, in all parameters or by
        parameter (`{"email": ["EMAIL"]}`). The agents that use it get tokens, also for what it returns.
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
            )
            self.register_tool(tool, threads.close)
            return function

        return add

    def telemetry(
        self,
        endpoint: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        service: str | None = None,
        content: bool = False,
        sample: float = 1.0,
        metrics: bool = True,
        every_s: float = 60.0,
        exporter: "SpanExporter | None" = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Deliver spans of all that is done here, and metrics, to the OpenTelemetry collector at *endpoint*.

        Without an endpoint it is the one that `OTEL_EXPORTER_OTLP_ENDPOINT` names; an *exporter* of OpenTelemetry's SDK
        gets the spans instead, and no metrics. *content* lets what is said go along, redacted; of the runs that begin
        here *sample* is the share that is traced. Said before the hub is opened; it needs the extra `otel`.
        """
        from remit.telemetry.setup import sink_for, telemetry_for  # most hubs have nobody to tell

        if self._open or self._make_telemetry is not None:
            raise team_invalid("say once where spans go, and before the hub is opened")
        if not 0 <= sample <= 1 or not every_s > 0:
            raise team_invalid("`sample` is a share from 0 to 1, and `every_s` a number of seconds above 0")
        name = self._parts.registry.hub
        sink = sink_for(name, endpoint, headers=headers or {}, service=service, exporter=exporter, environ=environ)
        self._parts.sample_ratio = sample
        self._make_telemetry = lambda: telemetry_for(
            self,
            name,
            sink,
            self._described(),
            content=content,
            sample=sample,
            every_s=every_s if metrics and exporter is None else None,
        )
        self._closers.append(self._close_telemetry)

    def _described(self) -> "Callable[[str], Who]":
        """Return what says of an agent what its spans are named by."""
        from remit.telemetry.spans import Role, Who

        roles = dict.fromkeys((each.name for each in self._workflows), Role.WORKFLOW)
        roles |= dict.fromkeys(self._planners, Role.PLANNER)
        return lambda name: Who(roles.get(name, Role.AGENT), self.is_elsewhere(name))

    async def _close_telemetry(self) -> None:
        telemetry, self._telemetry = self._telemetry, None
        if telemetry is not None:
            await telemetry.close()


def _within(capability: Capability, card: AgentCard) -> Capability:
    """Return a capability with the time and tokens that a call for it gets where its caller says nothing."""
    return replace(
        capability,
        time_ms=card.time_ms if capability.time_ms is None else capability.time_ms,
        tokens=card.tokens if capability.tokens is None else capability.tokens,
    )


def _exposure() -> "Exposure":
    from remit.server.a2a.routes import Exposure

    return Exposure()


def _folder(path: str | Path) -> Workspace:
    from remit.stores.workspace import Folder  # most hubs have none

    return Folder(path)


def trainer(name: Hearing) -> Callable[[Sequence[Capability]], Scorer]:
    """Return what makes of capabilities that which knows them by the text alone: by words, also in a model's place."""

    def train(capabilities: Sequence[Capability]) -> Scorer:
        if name == "embeddings":
            from remit.classifiers.embeddings import Embeddings

            return Embeddings(capabilities)
        from remit.classifiers.words import WordClassifier

        return WordClassifier(capabilities)

    return train


# Codes of the contract that names agents have two or three letters; four leave room.
LONGEST_CODE = 4


def _is_code(name: str) -> bool:
    """Say whether a name would tell a user that there are agents; one that is a plain word tells nothing."""
    return not name.isalpha() or (name.isupper() and len(name) <= LONGEST_CODE)


def _unsound(workflow: Workflow, found: tuple[Problem, ...]) -> RemitError:
    named = tuple(Problem(f"workflows.{workflow.name}.{problem.path}", problem.message) for problem in found)
    return RemitError(fault(Code.TEAM_INVALID, f"the workflow `{workflow.name}` cannot be carried out", problems=named))


def _refuse_confusion(who: Sequence[tuple[str, str]], about: Mapping[str, Collection[str]]) -> None:
    """Refuse names and tokens by which two could be taken for each other, and what is said of nobody."""
    owners: dict[str, str] = {}
    names = [name for name, _ in who]
    for name, token in who:
        if names.count(name) > 1:
            raise team_invalid(f"`{name}` is a client and a hub; give one of them another name")
        if (owner := owners.setdefault(token, name)) != name:
            raise team_invalid(f"`{owner}` and `{name}` have the same token, so that nobody could tell who asks")
    for what, said in about.items():
        for name in said:
            if name not in names:
                near = did_you_mean(name, names)
                raise team_invalid(f"`{what}` speaks of `{name}`, which is neither a client nor a hub{near}")


def _capability(capability: Capability | str, agent: str) -> Capability:
    if isinstance(capability, str):
        return Capability(code=capability)
    if not isinstance(capability, Capability):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise team_invalid(f"agent `{agent}`: a `{type(capability).__qualname__}` is no capability: give its code")
    for field, schema in (("input_schema", capability.input_schema), ("result_schema", capability.result_schema)):
        if schema is not None and (wrong := check_schema(schema)):
            raise team_invalid(
                f"agent `{agent}`, capability `{capability.code}`: {field} is not a JSON Schema: {wrong}"
            )
    return capability
