"""The section `[guard]` of the team file: what sub-agents of coding tools may do."""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from remit.installed import named
from remit.protocol.problems import WrongPart
from remit_cli.config.checks import in_other_currency
from remit_cli.config.rules import Rule, guard_of
from remit_cli.config.team import Inspection, Team, TeamSection
from remit_cli.config.values import Duration, Money, Section, duration, in_code
from remit_guard.settings import (
    NO_RULES,
    AtLimit,
    GuardRules,
    GuardSettings,
    KindLimits,
    Positive,
    ProjectLimits,
    Share,
    ShellRule,
    ToolLimits,
)

_SETTINGS = GuardSettings()


class GuardKindSection(Section, frozen=True, kw_only=True):
    """Limits of one kind of sub-agent, by the name that the tool gives it."""

    tokens: Positive
    """Tokens of one sub-agent of this kind, with all below it."""


Tokens = Annotated[Positive, Meta(description="Tokens of a session and all of its sub-agents.")]
Cost = Annotated[Money, Meta(description="Money of a session and all of its sub-agents (default: no limit).")]
Depth = Annotated[Positive, Meta(description="Levels of sub-agents below the session.")]
AtOnce = Annotated[Positive, Meta(description="Sub-agents of one agent that run at once.")]
Time = Annotated[Duration, Meta(description="How long a session may start sub-agents.")]
Reserve = Annotated[Positive, Meta(description="Tokens that are set aside for each sub-agent when it starts.")]
AskAt = Annotated[
    Share,
    Meta(description="Share of the tokens or the money at which a person is asked whether more sub-agents may start."),
]
AtTheLimit = Annotated[
    AtLimit,
    Meta(
        description="At the limit of tokens or money: `ask` a person before each further sub-agent, `stop`, so that "
        "none starts, or `warn` and go on."
    ),
]
Cached = Annotated[bool, Meta(description="Whether tokens count that the model's provider reads from a cache.")]


class GuardToolSection(Section, frozen=True, kw_only=True):
    """Limits of the sessions of one tool; a key that is missing is taken from `[guard]`."""

    tokens: Tokens | None = None
    cost: Cost | None = None
    depth: Depth | None = None
    at_once: AtOnce | None = None
    time: Time | None = None
    reserve: Reserve | None = None
    ask_at: AskAt | None = None
    at_limit: AtTheLimit | None = None
    cached: Cached | None = None

    def limits(self) -> ToolLimits:
        """Return them for the guard."""
        return ToolLimits(**in_code(self, ToolLimits.__struct_fields__))


class GuardProjectSection(Section, frozen=True, kw_only=True):
    """Limits of the sessions in a folder and those below it; of several that fit, the innermost holds."""

    tokens: Tokens | None = None
    cost: Cost | None = None
    day: Annotated[Positive, Meta(description="Tokens of all sessions in it in a day.")] | None = None


class GuardSection(Section, frozen=True, kw_only=True):
    """Limits of each session of a coding tool; see `remit docs guard-coding-tools`."""

    tokens: Tokens = _SETTINGS.tokens
    cost: Cost | None = None
    depth: Depth = _SETTINGS.depth
    at_once: AtOnce = _SETTINGS.at_once
    time: Time = duration(_SETTINGS.time_ms)
    reserve: Reserve = _SETTINGS.reserve
    ask_at: AskAt = _SETTINGS.ask_at
    at_limit: AtTheLimit = _SETTINGS.at_limit
    cached: Cached = _SETTINGS.cached
    kinds: dict[str, GuardKindSection] = {}
    """Limits of kinds of sub-agents, by name."""
    tools: dict[str, GuardToolSection] = {}
    """Limits of single tools, by name."""

    day: Positive | None = None
    """Tokens of all sessions in a day, in local time (default: no limit)."""
    projects: dict[str, GuardProjectSection] = {}
    """Limits of projects, by folder; `~` is your home."""

    notify: bool = _SETTINGS.notify
    """Whether a question is also told on the desktop, by `notify-send` or `osascript`."""

    shell: ShellRule = _SETTINGS.shell
    """A shell command that starts a session of a coding tool outside of the tree, such as `claude -p`: `allow` it,
    `ask` a person, or `deny` it."""

    rules: tuple[Rule, ...] = ()
    """What happens to uses of tools and starts of sub-agents that match; see `[[rules]]`. Tools have the names and
    arguments that the coding tool gives them, and agents the names of their kinds."""

    def team_rules(self) -> GuardRules:
        """Return its rules for the guard."""
        if not self.rules:
            return NO_RULES
        return GuardRules((guard_of(self.rules),), any(rule.is_about_tools for rule in self.rules))

    def settings(self) -> GuardSettings:
        """Return them for the guard."""
        values = in_code(self, GuardSettings.__struct_fields__)
        values["kinds"] = {name: KindLimits(tokens=each.tokens) for name, each in self.kinds.items()}
        values["projects"] = {
            name: ProjectLimits(**in_code(each, ProjectLimits.__struct_fields__))
            for name, each in self.projects.items()
        }
        values["tools"] = {name: each.limits() for name, each in self.tools.items()}
        return GuardSettings(**values)


def _misnamed(file: Inspection) -> Iterator[WrongPart]:
    """Return tools that the guard does not know, folders that depend on where it is started, and other currencies."""
    section = GUARD.of(file.team)
    if section is None:
        return
    limited = {("guard",): section}
    limited |= {("guard", "tools", name): each for name, each in section.tools.items()}
    limited |= {("guard", "projects", name): each for name, each in section.projects.items()}
    yield from in_other_currency({(*place, "cost"): each.cost for place, each in limited.items()}, file.team.currency)
    for name in section.projects:
        if not name.startswith("~") and not Path(name).is_absolute():
            message = "expected the folder of a project from the root or your home on, such as `~/shop`"
            yield WrongPart(("guard", "projects", name), message)
    for index, rule in enumerate(section.rules):
        if rule.on == "answer":
            message = "a coding tool's sub-agents answer the tool, not this hub: leave the rule out"
            yield WrongPart(("guard", "rules", index, "on"), message)
    if not section.tools:
        return
    from remit_guard.tools.known_tools import TOOLS  # they bring a hub

    for name in section.tools:
        if name not in TOOLS:
            message = f"there is no coding tool `{name}`; known tools: {', '.join(TOOLS)}"
            yield WrongPart(("guard", "tools", name), message)


def _guarding(team: Team, command: str) -> AbstractAsyncContextManager[None]:
    """Run the guard beside a device, if the team file has one."""
    if GUARD.of(team) is None:
        return nullcontext()
    return named("remit_guard.commands.guarding:guarding_beside")(team, command)


GUARD: TeamSection[GuardSection | None] = TeamSection(
    key="guard",
    kind=Annotated[GuardSection | None, Meta(description="Limits of the sub-agents of coding tools.")],
    default=None,
    problems=_misnamed,
    beside_device=_guarding,
)
