"""The tables of the file of `remit eval`: cases with what must hold of the answer and of the calls between agents."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct

from remit.protocol.envelope import Json
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit_cli.config.values import AgentName, Duration, Money, Positive, Run
from remit_cli.config.values import Code as CapabilityCode

Share = Annotated[float, Meta(ge=0, le=1)]
Times = Annotated[int, Meta(ge=0)]


class CaseTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file, in which an unknown key is an error. The text below a field says what its key means."""


class TimesRange(CaseTable, frozen=True, kw_only=True):
    """How often something happens at least and at most."""

    at_least: Times = 0
    at_most: Times | None = None


class ExpectedUse(CaseTable, frozen=True, kw_only=True):
    """A use of a tool that must occur."""

    tool: str
    """The tool."""
    agent: AgentName | None = None
    """Which agent uses it (default: any)."""
    arguments: dict[str, Json] = {}
    """Arguments that it is given; others are not compared. Personal values are compared as placeholders."""
    times: Times | TimesRange = TimesRange(at_least=1)
    """How often, counting only uses that fit (default: at least once)."""


class Expectation(CaseTable, frozen=True, kw_only=True):
    """What must hold of a run: of its answer, and of the calls between agents."""

    status: Status = Status.SUCCESS
    """How the run must end."""
    code: Code | None = None
    """The error code that it must end with."""
    equals: Any = UNSET
    """The answer, as text or as data."""
    contains: str | tuple[str, ...] = ()
    """Texts that must be in the answer."""
    lacks: str | tuple[str, ...] = ()
    """Texts that must not be in the answer."""
    matches: str | None = None
    """A regular expression that must match somewhere in the answer."""
    answer_schema: dict[str, Any] | str | None = msgspec.field(default=None, name="schema")
    """A JSON Schema that the answer must fit: a table, or the path of a file."""
    check: Run | None = None
    """A function of the response and the list of delegations. It returns false or the reason why they are wrong."""
    asked: dict[AgentName, Times | TimesRange] = {}
    """How often agents must be called by other agents: `{ clerk = 1 }`, `{ clerk = { at_most = 3 } }`."""
    not_asked: tuple[AgentName, ...] = ()
    """Agents that must not be called."""
    order: tuple[AgentName, ...] = ()
    """Agents that must be called in this order; there may be other calls between them."""
    refused: dict[str, Code] | None = None
    """The calls and tools that must be refused, with their error codes, and no others: `{}` if nothing may be."""
    tools: tuple[ExpectedUse, ...] = ()
    """Uses of tools that must occur."""
    not_used: tuple[str, ...] = ()
    """Tools that must not be used."""
    max_tokens: Positive | None = None
    """Most tokens that the run may spend."""
    max_cost: Money | None = None
    """Most money that it may cost."""
    max_time: Duration | None = None
    """Most time that it may take."""


class EvalCase(CaseTable, frozen=True, kw_only=True):
    """One case: what is asked, and what is expected."""

    agent: AgentName | None = None
    """The agent to ask (default: that of the file)."""
    task: str = ""
    """The task."""
    turns: tuple[str, ...] = ()
    """Several texts in one session, in place of `task`. The last answer is checked, and the calls of all turns."""
    input: Any = None
    """Input for the agent."""
    capability: CapabilityCode | None = None
    """The capability to ask for."""
    user: str | None = None
    """The user to ask as (default: that of the file)."""
    approve: bool = False
    """Whether questions to a person are approved (default: they are declined)."""
    runs: Positive | None = None
    """How often it is run (default: as the file says)."""
    threshold: Share | None = None
    """The share of its own runs that must pass, besides the threshold of the file."""
    expect: Expectation = Expectation()
    """What must hold."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts to send, one after another."""
        return self.turns or (self.task,)


class EvalFile(CaseTable, frozen=True, kw_only=True):
    """Cases to evaluate a team by."""

    agent: AgentName | None = None
    """The agent to ask, where a case names none."""
    user: str = "eval"
    """The user to ask as."""
    runs: Positive = 1
    """How often each case is run."""
    threshold: Share = 1.0
    """The share of all runs that must pass."""
    recordings: str | None = None
    """A folder with a recording of each case, which answers in place of models, tools and people."""
    cases: dict[str, EvalCase]
    """The cases, by name."""
