"""What the agents of a coding tool may do in one session."""

import os
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from remit.installed import brought
from remit.policy.verdict import Guard
from remit_guard.days import DayLimit

AtLimit = Literal["ask", "stop", "warn"]
ShellRule = Literal["allow", "ask", "deny"]
Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(gt=0, le=1)]


class KindLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one kind of sub-agent."""

    tokens: Positive
    """Tokens of one sub-agent of this kind, with all below it."""


class ToolLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one tool in place of those for all; None: as for all."""

    tokens: Positive | None = None
    cost: Positive | None = None
    depth: Positive | None = None
    at_once: Positive | None = None
    time_ms: Positive | None = None
    reserve: Positive | None = None
    ask_at: Share | None = None
    at_limit: AtLimit | None = None
    cached: bool | None = None


class ProjectLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of the sessions in one folder and those below it; None: as for all."""

    tokens: Positive | None = None
    """Tokens of one session and all of its sub-agents."""
    cost: Positive | None = None
    """Money of one session and all of its sub-agents, in millionths."""
    day: Positive | None = None
    """Tokens of all sessions in a day."""


class GuardSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one session of a tool."""

    # A public report has 5.4 billion tokens in one task; two million are a long day of one person's work.
    tokens: Positive = 2_000_000
    """Tokens of the session and all of its sub-agents."""
    cost: Positive | None = None
    """Money of the session and all of its sub-agents, in millionths; None: no limit."""
    depth: Positive = 4
    """Levels of sub-agents below the session."""
    at_once: Positive = 6
    """Sub-agents of one agent that run at once."""
    time_ms: Positive = 7_200_000
    """How long sub-agents are started."""
    # The first request of a sub-agent with its instructions and tools; less would let a burst begin what cannot go on.
    reserve: Positive = 20_000
    """Tokens that are set aside for each sub-agent when it starts."""
    ask_at: Share = 0.8
    """The share of the tokens or the money at which a person is asked whether more sub-agents may start."""
    at_limit: AtLimit = "ask"
    """At the limit of tokens or money: ask a person before each further sub-agent, start nothing more, or go on and say
    so."""
    cached: bool = False
    """Whether tokens count that the model's provider reads from a cache."""
    kinds: dict[str, KindLimits] = {}
    """Limits of kinds of sub-agents, by the name that the tool gives them."""
    tools: dict[str, ToolLimits] = {}
    """Limits of single tools, by the names of their commands."""

    day: Positive | None = None
    """Tokens of all sessions of the user in a day, in local time; None: no limit."""
    projects: dict[str, ProjectLimits] = {}
    """Limits of projects, by their folders; `~` is the home of the user."""

    notify: bool = True
    """Whether a question is also told on the desktop."""

    # Scripts that run a tool are common, and each is a session under the guard too; and what cannot be made sure is not
    # promised unasked.
    shell: ShellRule = "allow"
    """What happens to a command of a tool's shell that starts a session of a coding tool."""

    def project_of(self, folder: str) -> str:
        """Return the project with limits that a folder is in, the innermost; empty: none."""
        if not folder:
            return ""
        inside = Path(os.path.realpath(folder))
        places = {name: Path(os.path.realpath(os.path.expanduser(name))) for name in self.projects}
        containing = [name for name, place in places.items() if inside.is_relative_to(place)]
        return max(containing, key=lambda name: len(places[name].parts), default="")

    def of_project(self, project: str) -> "GuardSettings":
        """Return the limits of one session in a project; empty: in none."""
        own = self.projects.get(project, ProjectLimits())
        return replace(self, tokens=own.tokens or self.tokens, cost=own.cost or self.cost)

    @property
    def cost_reserve(self) -> int:
        """The money that a sub-agent needs to start: the share of it that `reserve` is of the tokens."""
        return 0 if self.cost is None else max(1, self.cost * self.reserve // self.tokens)

    def day_limits(self, project: str) -> tuple[DayLimit, ...]:
        """Return the limits of a day that hold for a session in a project; empty: in none."""
        limits = [DayLimit(self.day)] if self.day is not None else []
        own = self.projects[project].day if project else None
        return (*limits, *([] if own is None else [DayLimit(own, project)]))

    def of_tool(self, tool: str) -> "GuardSettings":
        """Return the limits of one tool."""
        own = asdict(self.tools[tool]) if tool in self.tools else {}
        return replace(self, tools={}, **{name: value for name, value in own.items() if value is not None})

    def widest(self) -> "GuardSettings":
        """Return the largest of the limits that a hub sets for all tools alike."""
        every = [self, *map(self.of_tool, self.tools)]
        return replace(
            self,
            depth=max(each.depth for each in every),
            at_once=max(each.at_once for each in every),
            time_ms=max(each.time_ms for each in every),
            tokens=max(each.tokens for each in every),
        )


class GuardRules(NamedTuple):
    """What judges by the rules of a team."""

    guards: tuple[Guard, ...] = ()
    are_about_tools: bool = False
    """Whether one of the rules is about uses of tools."""

    @property
    def tool_guards(self) -> tuple[Guard, ...]:
        """What judges each use of a tool; empty: nothing does."""
        plugins = tuple(guard for bring in brought("guards") for guard in bring())
        return (*plugins, *self.guards) if plugins or self.are_about_tools else ()


NO_RULES = GuardRules()
