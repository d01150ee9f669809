"""The team file: its sections by key, those that plugins bring included, and its JSON Schema for editors.

The structs of the sections are the only source: the loader validates files against them, editors use the JSON Schema
that is generated from them, and `docs/reference/team.md` is generated from that schema.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct, defstruct

from remit.installed import brought, named
from remit.policy.limits import Limits
from remit.protocol.card import AgentCard, Sees
from remit.protocol.conditions import ValueBounds
from remit.protocol.orchestration import Workflow
from remit.protocol.problems import WrongPart
from remit.runtime.registry import team_invalid
from remit_cli.config.rules import Rule
from remit_cli.config.sections.agents import (
    AgentSection,
    CapabilitySection,
    OrchestratorSection,
    StepSection,
    ToolSection,
    WorkflowSection,
)
from remit_cli.config.sections.hub import (
    A2aSection,
    ApprovalsSection,
    BreakerSection,
    BudgetsSection,
    ClientSection,
    ContextSection,
    IdentitySection,
    LimitsSection,
    PeerSection,
    PriceSection,
    RedactionSection,
    ServeSection,
    StoreSection,
)
from remit_cli.config.values import (
    AgentName,
    Code,
    Currency,
    ModelName,
    Section,
    duration_ms,
    meanings,
    optional_millionths,
)

if TYPE_CHECKING:
    from remit.hub.hub import Hub
    from remit.runtime.shared_requests import CancelOrder


Names = Mapping[str, Collection[str]]
"""The names of agents, tools, capabilities and workflows in a file, including those with invalid sections."""


class TeamFile(Section, frozen=True, kw_only=True):
    """The team of a Remit hub: its agents and their settings."""

    name: AgentName = "local"
    """The hub's name; it follows the `@` in chains."""
    version: Literal[1] = 1
    """The version of this format."""
    store: StoreSection = StoreSection()
    """Where everything is recorded."""
    limits: LimitsSection = LimitsSection()
    """Limits of every delegation."""
    budgets: BudgetsSection = BudgetsSection()
    """Time and tokens."""
    prices: dict[ModelName, PriceSection] = {}
    """What models cost, by name as in `model`; see `remit docs budgets`."""
    currency: Currency = "USD"
    """The currency of all `prices`."""
    breaker: BreakerSection = BreakerSection()
    """When calls to a failing agent are refused."""
    agents: dict[AgentName, AgentSection] = {}
    """The agents, by name."""
    capabilities: dict[Code, CapabilitySection] = {}
    """Capabilities of agents, by code."""
    tools: dict[AgentName, ToolSection] = {}
    """Tools for agents, by name."""
    workflows: dict[AgentName, WorkflowSection] = {}
    """Workflows, by name."""
    orchestrator: OrchestratorSection | None = None
    """The agent that routes any request of a user: `remit ask`."""
    glossary: dict[str, str] = {}
    """The preferred term for each variant: `turnover = "revenue"`."""
    rules: tuple[Rule, ...] = ()
    """Which calls are refused or need approval."""
    approvals: ApprovalsSection = ApprovalsSection()
    """Who answers when a call needs approval."""
    redaction: RedactionSection = RedactionSection()
    """Data that is kept from agents."""
    context: ContextSection = ContextSection()
    """What callees are shown of a conversation."""
    identity: IdentitySection = IdentitySection()
    """How this hub authenticates itself."""
    peers: dict[AgentName, PeerSection] = {}
    """Other hubs, by name."""
    clients: dict[AgentName, ClientSection] = {}
    """Programs that call over HTTP, by name."""
    serve: ServeSection = ServeSection()
    """How the hub is served over HTTP."""
    a2a: A2aSection | None = None
    """Serves agents over A2A as well."""


class Team(TeamFile, frozen=True, kw_only=True):
    """A loaded team: the file with overrides applied and JSON Schemas read, and the path of the file."""

    file: Path
    overrides: tuple[str, ...] = ()
    """Overrides from the command line; they take precedence over the file."""

    @property
    def folder(self) -> Path:
        """The folder that relative paths start from, and that agents' code is imported from."""
        return self.file.parent

    @property
    def workspace(self) -> Path | None:
        """The folder that callees may be told of."""
        return None if self.context.workspace is None else self.folder / self.context.workspace

    @property
    def store_path(self) -> Path:
        """The SQLite file."""
        return self.folder / self.store.path

    @property
    def everyone(self) -> tuple[str, ...]:
        """All names that can be asked: agents, workflows and the orchestrator."""
        return (*self.agents, *self.workflows, *([] if self.orchestrator is None else [self.orchestrator.name]))

    def settled_limits(self) -> Limits:
        """Return limits, budgets and the approval timeout for the runtime."""
        limits, budgets = self.limits, self.budgets
        return Limits(
            **{name: getattr(limits, name) for name in limits.__struct_fields__ if name != "grace"},
            grace_ms=duration_ms(limits.grace),
            root_time_ms=duration_ms(budgets.run_time),
            delegation_time_ms=duration_ms(budgets.delegation_time),
            root_tokens=budgets.run_tokens,
            at_limit=budgets.at_limit,
            more_tokens=budgets.more_tokens,
            user_tokens_per_day=budgets.per_user_per_day,
            delegation_tokens=budgets.delegation_tokens,
            root_cost=optional_millionths(budgets.run_cost),
            user_cost_per_day=optional_millionths(budgets.cost_per_user_per_day),
            delegation_cost=optional_millionths(budgets.delegation_cost),
            currency=self.currency,
            overrun=budgets.overrun,
            context_tokens=budgets.context_tokens,
            approval_timeout_ms=duration_ms(self.approvals.timeout),
        )


T = TypeVar("T")


class Inspection(Struct, frozen=True, kw_only=True):
    """A file that is being checked."""

    values: dict[str, Any]
    """The file as it was written, with overrides applied."""
    team: TeamFile
    """The valid part of it."""
    names: Names
    folder: Path
    environ: Mapping[str, str]
    secrets: bool
    """Whether secrets have to be in the environment."""
    opens_files: bool
    """Whether files that it names are looked at."""
    starts_programs: bool
    """Whether programs that it names have to be there."""


class Composition(Struct, frozen=True, kw_only=True):
    """A hub that is being made from a team."""

    hub: "Hub"
    team: Team
    environ: Mapping[str, str]
    takes: bool = False
    """Whether the hub takes requests of other hubs."""


class TeamHubs(Protocol):
    """The other hubs of a team."""

    def hosted(self) -> tuple[Mapping[str, str], Mapping[str, AgentCard]]:
        """Return where agents are hosted, in words, and the cards of all agents that another hub hosts.

        Raise a `RemitError` if the hubs cannot be asked.
        """
        ...

    def cancel(self, order: "CancelOrder") -> bool:
        """Tell the hubs to cancel a run, and return whether one of them confirms it."""
        ...


class TeamSection(Struct, Generic[T], frozen=True, kw_only=True):
    """A section of the team file that a plugin brings, and what it does.

    Secrets in it are found by their types, `values.Secret` and `values.Variable`.
    """

    key: str
    kind: Any
    """The type of its value, annotated with its meaning; None: the file has the key without the plugin."""
    default: T
    after: str = ""
    """The key that it follows in the reference (default: it stands at the end)."""
    one_of: tuple[str, ...] = ()
    """Keys of which each table of the section has exactly one, for editors."""
    problems: Callable[[Inspection], Iterable[WrongPart]] = lambda _: ()
    """Return what the types alone cannot show to be wrong."""
    uncallable: Callable[[Inspection], Iterable[WrongPart]] = lambda _: ()
    """Return models that cannot be called."""
    warnings: Callable[[TeamFile], Iterable[WrongPart]] = lambda _: ()
    """Return valid settings that may not do what was intended."""
    unencrypted: Callable[[TeamFile], Iterable[WrongPart]] = lambda _: ()
    """Return addresses to which secrets or requests go without encryption."""
    needs_secrets: Callable[[TeamFile], bool] = lambda _: True
    """Return whether the agents of a team cannot run without the secrets in the section."""
    tools_in: Callable[[dict[str, Any]], Iterable[str]] = lambda _: ()
    """Return the names of the tools that the section adds to a file, as far as it is valid."""
    tools_see: Callable[[TeamFile], Mapping[str, Sees]] = lambda _: {}
    """Return the kinds of personal data that each of these tools sees."""
    add_tools: Callable[[Composition], None] = lambda _: None
    """Add tools to a hub that has no agents yet."""
    hosts: Callable[[TeamFile, str], bool] = lambda _team, _agent: True
    """Return whether a hub with the file runs an agent itself, and so needs its code and its secrets."""
    shares_store: Callable[[TeamFile], bool] = lambda _: False
    """Return whether other hubs have the same store."""
    connect: Callable[[Composition, str, AgentSection], bool] = lambda _made, _name, _agent: False
    """Add an agent that is reached in the way of the section, and return True; False if it is another kind of agent."""
    compose: Callable[[Composition], None] = lambda _: None
    """Change a hub that has its agents, and is not open yet."""
    step_order: Callable[[Workflow], Mapping[str, Collection[str]]] = lambda _: {}
    """Return the steps that each step of a workflow waits for."""
    beside: Callable[[Composition], AbstractAsyncContextManager[None]] = lambda _: nullcontext()
    """Run while a server of the team runs."""
    beside_device: Callable[[Team, str], AbstractAsyncContextManager[None]] = lambda _team, _command: nullcontext()
    """Run while a command runs the device of the team."""
    other_hubs: Callable[[Team], TeamHubs | None] = lambda _: None
    """Return the other hubs of the team, for commands; None if the section is no way to them."""

    def of(self, team: TeamFile) -> T:
        """Return the value in a team."""
        return getattr(team, self.key, self.default)


@cache
def sections() -> tuple[TeamSection[Any], ...]:
    """Return the sections of all plugins."""
    brought_by_plugins = tuple(named(address) for bring in brought("sections") for address in bring())
    keys = [*TeamFile.__struct_fields__, *(each.key for each in brought_by_plugins if each.kind is not None)]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise team_invalid(f"an installed plugin brings a section that there is already: {', '.join(sorted(twice))}")
    return brought_by_plugins


@cache
def file_type() -> type[TeamFile]:
    """Return the type of a file, with the sections of all plugins."""
    return _with_sections(TeamFile)


@cache
def team_type() -> type[Team]:
    """Return the type of a loaded team, with the sections of all plugins."""
    return _with_sections(Team)


def _with_sections(base: type[T]) -> type[T]:
    fields = [(each.key, each.kind, each.default) for each in sections() if each.kind is not None]
    made = defstruct(
        base.__name__,
        fields,
        bases=(cast("type[Struct]", base),),
        namespace={"__doc__": base.__doc__},
        frozen=True,
        kw_only=True,
    )
    return cast("type[T]", made)


@cache
def file_keys() -> tuple[str, ...]:
    """Return the keys of a file in the order of the reference."""
    keys = list(TeamFile.__struct_fields__)
    for each in sections():
        if each.kind is not None:
            keys.insert(keys.index(each.after) + 1 if each.after else len(keys), each.key)
    return tuple(keys)


def tables(team: TeamFile, key: str) -> Mapping[str, Any]:
    """Return the tables of a section by name; none if no plugin brings the section."""
    return getattr(team, key, {})


def is_hosted(team: TeamFile, agent: str) -> bool:
    """Return whether a hub with this file runs an agent itself, and so needs its code and its secrets."""
    return all(each.hosts(team, agent) for each in sections())


def remotes() -> dict[str, str]:
    """Return the addresses of what reaches agents elsewhere, by the scheme of their `address`: plugins bring them."""
    return {scheme: code for bring in brought("remotes") for scheme, code in bring().items()}


def hosted(team: TeamFile) -> dict[str, AgentSection]:
    """Return the agents that a hub with this file runs itself."""
    return {name: agent for name, agent in team.agents.items() if is_hosted(team, name)}


def team_schema() -> dict[str, Any]:
    """Return the JSON Schema of a team file (draft 2020-12), for completion and checks in editors."""
    schema = cast("dict[str, Any]", _as_editors_read(msgspec.json.schema(_in_order())))
    definitions = schema["$defs"]
    for section in (TeamFile, Rule, ValueBounds, *_sections_in_code(Section)):
        properties = definitions.get(section.__name__, {}).get("properties", {})
        for key, meaning in meanings(section).items():
            properties[key] = {"description": meaning, **properties[key]}
    kinds = ("run", "model", "peer", "card", "device", "address")
    definitions[AgentSection.__name__]["oneOf"] = [{"required": [kind]} for kind in kinds]
    definitions[StepSection.__name__]["anyOf"] = [{"required": ["agent"]}, {"required": ["capability"]}]
    definitions[WorkflowSection.__name__]["required"] = ["steps"]
    for each in sections():
        if each.one_of:
            table = schema["$defs"][TeamFile.__name__]["properties"][each.key]["additionalProperties"]["$ref"]
            definitions[table.rpartition("/")[2]]["oneOf"] = [{"required": [key]} for key in each.one_of]
    # Some editors do not follow a reference at the top level.
    file = definitions.pop(TeamFile.__name__) | {"title": "remit.toml"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **file, "$defs": definitions}


def _sections_in_code(above: type[Section]) -> Iterator[type[Section]]:
    """Yield the kinds of sections that stand in a module; the type of a whole file is made, and has no source."""
    for kind in above.__subclasses__():
        if kind.__name__ != TeamFile.__name__:
            yield kind
            yield from _sections_in_code(kind)


def _in_order() -> type[Struct]:
    """Return the type of a file with its keys in the order of the reference."""
    kinds = {each.name: each.type for each in msgspec.structs.fields(file_type())}
    empty = file_type()()
    fields = [(key, kinds[key], getattr(empty, key)) for key in file_keys()]
    about = {"__doc__": TeamFile.__doc__}
    return defstruct(TeamFile.__name__, fields, bases=(Section,), namespace=about, kw_only=True)


def _as_editors_read(schema: object) -> object:
    r"""Return a schema without null, which TOML does not have, and with `$` in patterns: ECMA-262 has no `\Z`."""
    from inspect import cleandoc  # not needed to read a team file, and large

    if isinstance(schema, list):
        return [_as_editors_read(each) for each in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _as_editors_read(each) for name, each in cast("dict[str, object]", schema).items()}
    for name, each in cast("dict[str, dict[str, object]]", schema).get("properties", {}).items():
        # One of them may be called `default`.
        cast("dict[str, object]", plain["properties"])[name] = _as_editors_read(each)
    if isinstance(pattern := plain.get("pattern"), str):
        plain["pattern"] = pattern.replace(r"\Z", "$")
    if isinstance(text := plain.get("description"), str):
        plain["description"] = cleandoc(text)  # Python 3.13 does so by itself
    if "default" in plain and (plain["default"] is None or isinstance(plain["default"], dict)):
        del plain["default"]
    options = plain.get("anyOf")
    if isinstance(options, list):
        left = [each for each in cast("list[dict[str, object]]", options) if each != {"type": "null"}]
        if len(left) == 1:
            del plain["anyOf"]
            return {**left[0], **plain}
        plain["anyOf"] = left
    return plain
