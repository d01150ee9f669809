"""The card of an agent: its abilities, and what its team allows it to do."""

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.remit import Count, Name, Names
from remit.protocol.typed import JsonSchema, is_type, schema_of

Schema = JsonSchema

# An agent with more calls than this at once is a queue; and a queue longer than that answers nobody in time.
CONCURRENCY = 256
QUEUE = 1_024


class Rate(Struct, frozen=True, forbid_unknown_fields=True):
    """How often an agent may be called, or a tool used: *calls* in each window of *seconds*."""

    calls: Annotated[int, Meta(ge=1)]
    """The most calls in a window."""
    seconds: Annotated[float, Meta(gt=0)]
    """The length of a window."""


if TYPE_CHECKING:

    class SchemaField:
        """A field that accepts a JSON Schema, or a type that has one, and holds the schema."""

        def __get__(self, instance: object, owner: type[object], /) -> Schema | None: ...

        def __set__(self, instance: object, value: Schema | type[object] | None, /) -> None: ...


class Capability(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something an agent can do, by code."""

    code: Name
    """Its code: `TAX_DEDUCTIBLE`."""
    version: str = "1.0"
    """Its version."""
    description: str = ""
    """What it does, for callers and models."""
    if TYPE_CHECKING:
        input_schema: SchemaField = SchemaField()
        result_schema: SchemaField = SchemaField()
    else:
        input_schema: Schema | None = None
        result_schema: Schema | None = None
    time_ms: Count | None = None
    """The time of a call, unless the caller sets less."""
    tokens: Count | None = None
    """The tokens of a call, unless the caller sets less."""
    cost: Count | None = None
    """The money of a call in millionths of the team's currency, unless the caller sets less."""
    read_only: bool = False
    """Whether it changes nothing."""
    cache_ms: Count | None = None
    """How long an answer may be reused; only for `read_only` capabilities."""
    cache_similar: bool = False
    """Whether an answer may also be reused for requests that ask the same in other words."""
    public: bool = False
    """Whether users may get each other's answers."""
    hedge_ms: Count | None = None
    """After how long a second agent with this capability is called too, if the first has not answered by then."""
    examples: tuple[str, ...] = ()
    """Requests that it is for, in the words of users."""
    confirm: bool = False
    """Whether a user has to agree each time although it only reads; to what changes something, always."""
    undo: Name | None = None
    """The capability that undoes it."""
    sees: Names = frozenset()
    """Kinds of personal data that it needs (`IBAN`): it gets them raw."""
    sees_fields: Names = frozenset()
    """Fields of its input, by dotted path, that it gets raw."""

    def __post_init__(self) -> None:
        for field, written in (("input_schema", False), ("result_schema", True)):
            given = getattr(self, field)
            if is_type(given):
                try:
                    force_setattr(self, field, schema_of(given, written=written))
                except TypeError as error:
                    why = f"capability `{self.code}`: {field} cannot be described as JSON: {error}"
                    raise RemitError(fault(Code.TEAM_INVALID, why)) from error

    def contradictions(self) -> dict[str, str]:
        """Return the inconsistent settings, by field."""
        problems: dict[str, str] = {}
        if self.cache_similar and (not self.read_only or self.cache_ms is None):
            problems["cache_similar"] = (
                "only answers that are kept can be given to others, and only those of what changes nothing are: "
                "say that it is `read_only` and for how long its answers are kept, or leave this out"
            )
        if self.hedge_ms is not None and not self.read_only:
            problems["hedge_ms"] = (
                "only what changes nothing may be asked of two agents at once: "
                "say that it is `read_only`, or leave this out"
            )
        return problems


Sees = Names | dict[Name, Names]
"""Kinds of personal data that a tool gets raw: in all of its arguments, or by argument."""


class ToolCard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A function that agents may use, with the schema of its arguments."""

    name: Name
    """Its name."""
    description: str = ""
    """What it does, for models."""
    input_schema: Schema
    """The JSON Schema of its arguments."""
    safe_to_repeat: bool = False
    """Whether it may be used again after a restart."""
    sees: Sees = frozenset()
    """The kinds of personal data that it gets raw, set by its team; its agents get tokens, also in its results."""
    clear: bool = False
    """Whether models get its results unredacted."""
    rate: Rate | None = None
    """How often it may be used, by all agents together; None: there is no limit."""


Authority = Literal["own", "caller"]
"""Whose tools and targets an agent has when another calls it: its own, or at most the caller's."""


_EVERYONE: frozenset[str] = frozenset({"*"})
_NOBODY: frozenset[str] = frozenset()


class AgentCard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An agent's name and abilities, and the limits that its team sets."""

    name: Name
    """Its name in the team."""
    version: str = "1.0"
    """Its version."""
    description: str = ""
    """What it is for, for callers and models."""
    capabilities: tuple[Capability, ...] = ()
    """What it can do."""
    tools: Names = frozenset()
    """The tools that it may use."""
    sees: Names = frozenset()
    """Kinds of personal data that it may see raw, in requests to it and in answers to it."""
    clear: bool = False
    """Whether its model gets what its tools and callees return unredacted."""
    prompt: str = ""
    """The instructions that its team gives it; its code finds them in the brief."""
    may_call: Names = frozenset()
    """The agents that it may call; `*`: all."""
    allow_sub_agent_calls: bool | None = None
    """None: as `may_call` implies. True without `may_call`: it may call everyone. False forbids every call."""
    hands_over_to: Names = frozenset()
    """The agents to which its model may hand the conversation with the user over; it has to be able to call them."""
    max_sub_agent_depth: Count | None = None
    """How many levels of delegation may follow below this agent."""
    recursive: bool = False
    """Whether it may be called below itself, as a kind of agent that calls others of its kind; depth still ends it."""
    authority: Authority | None = None
    """Whether it is limited to the tools and targets of its caller; None: the default of its hub."""
    passes_on: bool = False
    """Whether it acts for its caller, as a workflow does: its callees have the caller's authority."""
    concurrency: Annotated[int, Meta(ge=1)] = CONCURRENCY
    """The most calls at once."""
    queue: Count = QUEUE
    """The most calls that wait for a slot."""
    rate: Rate | None = None
    """How often it may be called."""
    tool_rates: dict[Name, Rate] = {}
    """How often it may use each tool of its own, by name."""
    time_ms: Count | None = None
    """The time of a call, unless the caller sets less."""
    tokens: Count | None = None
    """The tokens of a call, unless the caller sets less."""
    cost: Count | None = None
    """The money of a call in millionths of the team's currency, unless the caller sets less."""
    draws: bool = False
    """Whether it goes on with its caller's tokens once its own are spent, as long as the caller has any left."""
    resumable: bool = False
    """Whether its code may be run again after a restart, with finished steps answered from the journal."""
    isolation: Literal["task", "process"] = "task"
    """Whether its code runs in the hub or in a process of its own."""

    @property
    def callees(self) -> frozenset[str]:
        """The agents that the team lets this one call; `*` is everyone."""
        if self.allow_sub_agent_calls is None:
            return self.may_call
        return (self.may_call or _EVERYONE) if self.allow_sub_agent_calls else _NOBODY

    def may_reach(self, target: str) -> bool:
        """Return whether the team lets this agent call *target*."""
        callees = self.callees
        return target in callees or "*" in callees

    def capability(self, code: str) -> Capability | None:
        """Return the capability of that code, if the agent has it."""
        for each in self.capabilities:  # a request asks some ten times: a generator would cost three times as much
            if each.code == code:
                return each
        return None
