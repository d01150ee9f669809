"""The hub that a Python program opens: SQLite beside it, agents from plain functions.

`Hub` adds to the engine what a program needs around it. Each part of that is a module of this package.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, TypeVar, Unpack

from msgspec.structs import replace

from remit import detectors
from remit.agents.function import AgentFunction, agent_from, closing, function_of, tool_from
from remit.agents.threads import Threads
from remit.agents.token_count import token_counter as default_token_counter
from remit.hub.a2a_agents import A2aOptions, a2a_agent
from remit.hub.blocking import Background
from remit.hub.blocking import ask as ask_blocking
from remit.hub.cards import AgentOptions, RemoteOptions, local_card, remote_card, seen_by
from remit.hub.isolation import Isolation
from remit.hub.mcp_tools import HubMcpServers, McpOptions, mcp_settings
from remit.hub.orchestration import ClassifierName, Orchestration, refuse_unsound, refuse_unused_model
from remit.policy.breaker import BreakerSettings
from remit.policy.limits import Limits
from remit.policy.verdict import Detector, Guard
from remit.protocol.card import AgentCard, Authority, Capability, Confirmation
from remit.protocol.envelope import Response
from remit.protocol.submission import AskOptions
from remit.runtime.approvers import InboxApprover
from remit.runtime.engine import Engine
from remit.runtime.ports import (
    Agent,
    Approver,
    Clock,
    Credential,
    Remote,
    Store,
    Summarizer,
    TokenCounter,
    Workspace,
)
from remit.runtime.registry import team_invalid
from remit.runtime.shared_limits import SharedLimits
from remit.stores import STORE_PATH
from remit.stores.addresses import secret_files, store_at
from remit.text.thresholds import DECISION_MS, THRESHOLDS, Thresholds
from remit.transports.local import LocalTransport

if TYPE_CHECKING:  # most hubs have no telemetry, no servers, no models and no orchestrator
    from pydantic_ai.models import Model

    from remit.agents.entailment import EntailmentModel
    from remit.agents.intent_classifier import Classifier
    from remit.agents.mcp.settings import Settings
    from remit.agents.model import ModelAgent
    from remit.hub.telemetry import HubTelemetry, TelemetryOptions
    from remit.policy.plan import Workflow
    from remit.server.a2a.routes import Exposure
    from remit.text.classification import Scorer
    from remit.transports.nats.bus import Bus

DEFAULT_STORE = Path(STORE_PATH)
# More threads than this for one agent wait for the same thing, and each costs memory.
MAX_THREADS = 32

Function = TypeVar("Function", bound=AgentFunction)
ToolFunction = TypeVar("ToolFunction", bound=Callable[..., object])


class Hub(Engine):
    """Where agents live and call each other, on embedded defaults: no server, no key.

    *name* is its name in chains and records. *store* is a store, the path of an SQLite file (default: `.remit/hub.db`),
    or the address of a PostgreSQL database that several hubs share. *durability* says what an answer survives once it
    is given: `"power"`, a power cut; `"process"`, the process being killed. *redaction* finds personal data that agents
    must not see in each other's requests; True stands for the detectors that come with Remit. *limits* hold for every
    delegation. *guards* judge it after Remit's own. *authority* is that of `Limits`: with `"caller"` no agent can use a
    tool or ask an agent on behalf of a caller that could not, unless its own `authority` is `"own"`. *approver* answers
    when a guard asks; `"inbox"` leaves the question in the store for `remit pending` or `hub.decide`. *token_counter*
    counts the tokens of a text (default: exactly with the extra `tokens`, else by an estimate). *workspace* is the
    folder that callees may be told of. *summarizer* makes summaries of conversations, better than those made without a
    model. *shared* says that other hubs share the store: rate limits, breakers and rankings hold over all of them.
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
        token_counter: TokenCounter | None = None,
        workspace: Workspace | Path | str | None = None,
        summarizer: Summarizer | None = None,
        clock: Clock | None = None,
        shared: bool = False,
    ) -> None:
        self._isolation = Isolation()
        self._mcp = HubMcpServers(can_ask_person=approver is not None)
        self._telemetry: HubTelemetry | None = None
        self.bus: Bus | None = None
        limits = limits or Limits()
        count = default_token_counter() if token_counter is None else token_counter
        if store is None or isinstance(store, str | Path):
            store = store_at(DEFAULT_STORE if store is None else store, durability=durability, count=count)
            folders = [path.parent for path in secret_files(store)[-1:]]
            self._ignored = next((each for each in folders if each.name == DEFAULT_STORE.parent.name), None)
        self._isolation.hide(path.absolute() for path in secret_files(store))
        super().__init__(
            name=name,
            store=store,
            transport=LocalTransport(),
            limits=limits if authority is None else replace(limits, authority=authority),
            guards=guards,
            breaker=breaker,
            approver=InboxApprover(store) if approver == "inbox" else approver,
            redaction=detectors.detector_pipeline() if redaction is True else redaction or None,
            vault_key=vault_key,
            count=count,
            workspace=_folder(workspace) if isinstance(workspace, str | Path) else workspace,
            summarizer=summarizer,
            clock=clock,
        )
        self._shared = SharedLimits(self._parts, self._dispatch.routing) if shared else None
        self._closers += [] if self._shared is None else [self._shared.close]
        if (aclose := getattr(summarizer, "aclose", None)) is not None:
            self._closers.append(aclose)
        self._orchestration = Orchestration(
            cards=lambda: self.cards,
            max_fan_out=lambda: self._parts.limits.max_fan_out,
            now=self._parts.clock.now,
            wall_ms=self._parts.clock.wall_ms,
        )

    async def __aenter__(self) -> Self:
        self._orchestration.check()
        await super().__aenter__()
        if self._shared is not None:
            self._shared.open()
        if self._telemetry is not None:
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
        """Ask like `ask`, without await: from scripts and notebooks, even if an event loop is already running.

        If the hub is not open, it is opened for this call only; for several calls use `with hub:`.
        """
        if self.loop is not None:
            return ask_blocking(self, agent, text, user, options)
        with self:
            return ask_blocking(self, agent, text, user, options)

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
            process = self._isolation.process_agent(name, agent, options.get("env", ()), options.get("sandbox", False))
            card = local_card(name, agent, function, options)
            self.register(card, self._orchestration.placed(card, process, self.ranking, options), process.close)
            return
        if options.get("env") or options.get("sandbox"):
            raise team_invalid(f'agent `{name}`: `env` and `sandbox` need isolation="process"')
        function = function_of(agent)
        card = local_card(name, agent, function, options)
        self._mcp.note_agent(card, agent)
        threads = Threads(name, min(card.concurrency, MAX_THREADS))
        code = agent_from(function, threads)
        self.register(card, self._orchestration.placed(card, code, self.ranking, options), closing(function, threads))

    def configure_isolation(self, *, folder: Path, environ: Mapping[str, str], hidden: Iterable[Path] = ()) -> None:
        """Set the code folder and the environment of isolated agents, and hide files from every sandbox.

        It applies to agents that are added later. By default, code is imported from where the hub imports, the
        environment is that of this process, and the store and its key are hidden.
        """
        self._isolation.configure(folder=folder, environ=environ, hidden=hidden)

    def connect(
        self,
        name: str,
        url: str,
        *,
        remote: str | None = None,
        token: str | None = None,
        credential: Credential | None = None,
        **options: Unpack[RemoteOptions],
    ) -> None:
        """Add an agent of another hub, at *url*, where its name is *remote*; it is asked like any other.

        *token* authenticates this hub to the other; *credential* does so for each request: it takes the request and
        the body, and returns headers. `RemoteOptions` lists the options.
        """
        from remit.transports.http import HubPeer  # most hubs have no remote agents

        peer = HubPeer(url, token=token, credential=credential, max_bytes=self._parts.limits.max_result_bytes)
        self.register(remote_card(name, options), peer.agent(remote or name), peer.close)

    def serve(
        self,
        *,
        clients: Mapping[str, str] | None = None,
        hubs: Mapping[str, str] | None = None,
        permissions: Mapping[str, Collection[str]] | None = None,
        may_approve: Collection[str] = (),
        agents: Collection[str] | None = None,
        users: Mapping[str, Collection[str]] | None = None,
        a2a: "Exposure | bool" = False,
        host: str = "127.0.0.1",
        port: int = 0,
        hosts: Collection[str] = (),
        mcp_tools: Collection[str] = (),
        mcp_sampling: bool = True,
    ) -> AbstractAsyncContextManager[str]:
        """Serve this hub, which is open, over HTTP until the block ends; the block is given the address.

        *clients* and *hubs* are the senders that are accepted: tokens by name. A hub speaks for its agents, under its
        own name. *permissions* grants more by name: `metrics` reads the metrics, `read` the runs and records of all
        users, `control` cancels them, `reveal` reads personal values in clear. Users of the clients in *may_approve*
        may answer questions about their own runs over MCP. *agents* can be asked (default: all), and *mcp_tools*
        (`"*"`: all) are MCP tools of their own. *users* lists, by client, the users that it may ask for (default: any).
        With *a2a* the agents also speak A2A, below `/a2a/NAME`. *hosts* are more host names of `/mcp`: `host`,
        `host:port`, or `http://host` without encryption. *mcp_sampling*: whether agents may ask the model of an MCP
        host that waits for them.
        """
        from remit.hub.serving import serving  # most hubs are not served

        senders = clients or {}, hubs or {}, permissions or {}
        offered = hosts, mcp_tools, mcp_sampling
        return serving(self, *senders, may_approve, agents, users or {}, a2a, host, port, *offered)

    def mcp(
        self,
        name: str,
        command: str | None = None,
        args: Sequence[str] = (),
        *,
        allow: Collection[str],
        **options: Unpack[McpOptions],
    ) -> None:
        """Let agents use tools of an MCP server: one that *command* starts, or one at *url*.

        Only the tools in *allow* become tools of the hub, with the name `NAME.TOOL`, or with *prefix* in the place of
        NAME. The server starts with the first request to an agent that may use one of them, and ends with the hub. It
        gets *env* and the variables of this process that every program needs; *token* authenticates this hub to a
        server at a *url*. *sees* are the kinds of personal data that its tools are given in clear: for all, or by tool.
        """
        self.add_mcp(mcp_settings(name, command, args, allow, options))

    def add_mcp(self, settings: "Settings") -> None:
        """Add an MCP server as `mcp` does, by its settings."""
        self._closers.append(self._mcp.add(self, settings))

    def register(
        self, card: AgentCard, agent: Agent | Remote, close: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Add an agent under its card; *close* is awaited when the hub closes."""
        if card.tools and not isinstance(agent, Remote):
            agent = self._mcp.equip(agent)
        super().register(card, agent, close)

    def connect_a2a(self, name: str, card_url: str, **options: Unpack[A2aOptions]) -> None:
        """Add an agent that speaks A2A, by the URL of its card; it is asked like any other.

        *token* authenticates this hub to it, and *credential* does so for each request. With *keys* one of them must
        have signed the card. The card may refer to its own host and to *hosts*. A host in a private network is
        accepted only if *hosts* names it, or with *private*. `A2aOptions` lists the options.
        """
        self.register(*a2a_agent(name, card_url, options, self._parts.limits.max_result_bytes))

    def workflow(
        self,
        workflow: "Workflow",
        *,
        phrases: Mapping[str, str] | None = None,
        glossary: Mapping[str, str] | None = None,
        model: "str | Model | ModelAgent | None" = None,
        time_ms: int | None = None,
        tokens: int | None = None,
    ) -> None:
        """Add a workflow as an agent of the same name: asking it executes its steps, and survives a restart.

        *phrases* are what users read while a capability is in progress, *glossary* the preferred term for each variant.
        A *model* combines several results into one text, which is used only if it says no more than they do; else the
        answer gives them one after another.
        """
        refuse_unsound(workflow)
        self._orchestration.add_words(phrases, glossary)
        agent = self._orchestration.workflow_agent(workflow, model)
        named = {agent for step in workflow.steps for agent in (step.agent, *step.fallback) if agent is not None}
        callees = named if all(step.agent for step in workflow.steps) else {"*"}
        self._add_for_caller(workflow.name, agent, may_call=callees, time_ms=time_ms, tokens=tokens)
        self._orchestration.workflows[workflow.name] = workflow

    def orchestrator(
        self,
        name: str = "orchestrator",
        *,
        classifier: ClassifierName | Callable[[Sequence[Capability]], "Classifier | Scorer"] = "words",
        model: "str | Model | ModelAgent | None" = None,
        narrate: Literal["template", "model"] = "template",
        plans: Literal["rules", "model"] = "rules",
        conflicts: "str | Model | ModelAgent | EntailmentModel | None" = None,
        confirm: Confirmation = "unsure",
        thresholds: Thresholds = THRESHOLDS,
        phrases: Mapping[str, str] | None = None,
        glossary: Mapping[str, str] | None = None,
        cache_ms: int = DECISION_MS,
        time_ms: int | None = None,
        tokens: int | None = None,
    ) -> None:
        """Add an agent that finds the capability or workflow that a user's text asks for, and delegates to it.

        The *model* classifies the text if it is the *classifier*, and combines several results into one text if it is
        to *narrate*. If it makes the *plans*, it proposes those of requests with several parts; a proposal that does
        not stand in the request is dropped. The model named by *conflicts* reads the results of the orchestrator and of
        all workflows for contradictions, after the rules: a language model, which has to quote them, or an
        `EntailmentModel`. *confirm* says when a user has to agree before a capability that is not `read_only` is used.
        A decision is reused for *cache_ms* when the same user repeats the same words.
        """
        refuse_unused_model(name, classifier, narrate, plans, model)
        self._orchestration.add_words(phrases, glossary)
        agent = self._orchestration.orchestrator_agent(
            name,
            classifier=classifier,
            model=model,
            narrate=narrate,
            plans=plans,
            conflicts=conflicts,
            confirm=confirm,
            thresholds=thresholds,
            cache_ms=cache_ms,
        )
        self._add_for_caller(name, agent, may_call={"*"}, time_ms=time_ms, tokens=tokens)
        self._orchestration.planners.add(name)

    def _add_for_caller(
        self, name: str, agent: object, *, may_call: Collection[str], time_ms: int | None, tokens: int | None
    ) -> None:
        """Add an agent whose callees have the authority of its caller."""
        self.add(name, agent, may_call=may_call, time_ms=time_ms, tokens=tokens, resumable=True)
        self._parts.registry.describe(replace(self.cards[name], passes_on=True))

    def tool(
        self,
        name: str | None = None,
        *,
        description: str | None = None,
        safe_to_repeat: bool = False,
        sees: Collection[str] | Mapping[str, Collection[str]] = (),
    ) -> Callable[[ToolFunction], ToolFunction]:
        """Register the decorated function as a tool: its parameters are its schema; `user` is filled from the remit.

        *sees* are the kinds of personal data that it is given in clear, in all parameters (`["EMAIL"]`) or by
        parameter (`{"email": ["EMAIL"]}`). The agents that use it get placeholders, also in its results.
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

    def telemetry(self, endpoint: str | None = None, **options: "Unpack[TelemetryOptions]") -> None:
        """Send spans of every run, and metrics, to the OpenTelemetry collector at *endpoint*.

        The default endpoint is that in `OTEL_EXPORTER_OTLP_ENDPOINT`. An *exporter* of OpenTelemetry's SDK gets the
        spans instead, and no metrics. With *content* spans include messages, redacted; *sample* is the share of the
        runs that begin here that is traced. Call it before the hub is opened; it needs the extra `otel`.
        """
        if self._open or self._telemetry is not None:
            raise team_invalid("call `telemetry` once, and before the hub is opened")
        from remit.hub.telemetry import HubTelemetry  # most hubs have none

        self._telemetry = HubTelemetry(self, self._parts.registry.hub, self._orchestration, endpoint, options)
        self._parts.sample_ratio = self._telemetry.sample
        self._closers.append(self._telemetry.close)


def _folder(path: str | Path) -> Workspace:
    from remit.stores.workspace import Folder  # most hubs have none

    return Folder(path)
