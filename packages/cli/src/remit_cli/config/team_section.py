"""Sections that plugins bring to the team file, and the type of a whole file."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from msgspec import Struct, defstruct

from remit.plugin import brought, named
from remit.protocol.card import Sees
from remit.protocol.orchestration import Workflow
from remit.protocol.problems import WrongPart
from remit.runtime.registry import team_invalid
from remit_cli.config.sections.agents import AgentSection
from remit_cli.config.team import Names, Team, TeamFile

if TYPE_CHECKING:  # a file is checked without a hub
    from remit.hub.hub import Hub

T = TypeVar("T")


class Inspection(Struct, frozen=True, kw_only=True):
    """A file that is being checked."""

    said: dict[str, Any]
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

    def of(self, team: TeamFile) -> T:
        """Return the value in a team."""
        return getattr(team, self.key, self.default)


@cache
def sections() -> tuple[TeamSection[Any], ...]:
    """Return the sections of all plugins."""
    found = tuple(named(address) for bring in brought("sections") for address in bring())
    keys = [*TeamFile.__struct_fields__, *(each.key for each in found if each.kind is not None)]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise team_invalid(f"an installed plugin brings a section that there is already: {', '.join(sorted(twice))}")
    return found


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


def hosted(team: TeamFile) -> dict[str, AgentSection]:
    """Return the agents that a hub with this file runs itself."""
    return {name: agent for name, agent in team.agents.items() if is_hosted(team, name)}
