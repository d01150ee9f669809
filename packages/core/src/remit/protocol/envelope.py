"""The two envelopes, request and response, and the values that they carry."""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Literal, TypedDict, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.files import File, Files
from remit.protocol.lifecycle import Status
from remit.protocol.remit import Count, Name, Names, Priority, Remit, Tools
from remit.protocol.typed import TypeMismatch, name_of, read_as

T = TypeVar("T")
P = TypeVar("P", bound=Struct)

VERSION = "1.0"

# How much of a text is shown where the whole of it would be a copy.
PREVIEW_LENGTH = 200

# What a codec can read and write. JSON is where static types end, so this is the one `Any` that passes a codec.
Json = Any

# Envelopes are frozen and hold no references back, so the garbage collector need not track them (`gc=False`): with many
# in flight that is a tenth of a hop.
Text = Annotated[str, Meta(max_length=100_000)]
Share = Annotated[float, Meta(ge=0, le=1)]

# These have no length limit: redacted texts may become longer, and have to be read again.
Keyword = Annotated[str, Meta(min_length=1)]
FilePath = Annotated[str, Meta(min_length=1)]

# The origin of a person's own request; no agent may have this name.
USER = "user"

# The target of a call by a capability that no agent offers; no agent may have this name either.
NOBODY = "?"

# What an agent says to give a conversation back to the agent that handed it over.
BACK = "back"


# What an agent tells its hub about its model: `{"name": "openai:gpt-5-mini", "cached": 1200, "calls": […]}`, of which
# `cached` is the number of prompt tokens that the provider read from its cache, `beside` the number of those that are
# not in the usage, because they do not count against a budget, and `calls` has each call with its time and tokens:
# `{"at_ms": …, "ms": …, "input": …, "output": …, "cached": …, "model": …, "provider": …, "finish": …}`.
MODEL = "remit.model"
"""The key of a response's metadata under which its model is recorded; nobody else is told."""

HANDLING = "handling"
"""The key of a response's metadata that says whether an agent answered itself, and why."""

_USABLE = (Status.SUCCESS, Status.PARTIAL)


class Source(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A document or record, and its owner."""

    owner_scope: Name  # Its owner: a user, or a shared scope.
    source_id: Name  # Its id at its owner.
    relevance: Share | None = None  # How much it matters here, from 0 to 1.


Forwarded = Literal["result", "artifacts"]
"""What each step of a chain receives from the step before it."""


class Artifact(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A piece of structured data that belongs to an answer."""

    type: Annotated[Literal["table", "json", "url", "id", "file"], Meta(extra={"else": "json"})]
    """The form of its value; any other of a peer is read as JSON."""
    value: Json  # The data.
    label: str = ""  # A title for people.


class Usage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Tokens spent by a callee and all below it, and their cost; `overrun` is what went beyond its grant."""

    prompt: Count = 0  # Input tokens, with those of the cache.
    completion: Count = 0  # Output tokens.
    overrun: Count = 0  # Tokens beyond the grant.
    estimated: bool = False  # Whether the numbers are an estimate.
    cache_write: Count = 0  # Input tokens that the provider wrote to its cache.
    cache_read: Count = 0  # Input tokens that it read from its cache.
    cost: Count = 0  # Cost of the priced tokens, in millionths of the team's currency.
    priced: Count = 0  # Tokens whose cost is in `cost`.

    @property
    def total(self) -> int:
        """Input and output tokens together."""
        return self.prompt + self.completion

    @property
    def unpriced(self) -> int:
        """Tokens that are not in `cost`, because the price of their model is not known."""
        return max(0, self.prompt + self.completion - self.priced)

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt=self.prompt + other.prompt,
            completion=self.completion + other.completion,
            overrun=self.overrun + other.overrun,
            estimated=self.estimated or other.estimated,
            cache_write=self.cache_write + other.cache_write,
            cache_read=self.cache_read + other.cache_read,
            cost=self.cost + other.cost,
            priced=self.priced + other.priced,
        )

    def beyond(self, part: "Usage") -> "Usage":
        """Return what was spent besides *part*, such as that of the delegations below."""
        return Usage(
            prompt=max(0, self.prompt - part.prompt),
            completion=max(0, self.completion - part.completion),
            estimated=self.estimated,
            cache_write=max(0, self.cache_write - part.cache_write),
            cache_read=max(0, self.cache_read - part.cache_read),
            cost=max(0, self.cost - part.cost),
            priced=max(0, self.priced - part.priced),
        )


class Handoff(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What the callee is told about the work so far, so that nothing is asked or analysed twice."""

    original_request: Text = ""
    """The user's request, in the user's words."""
    history: str | None = None
    """The session in which the conversation so far is kept."""
    position: str = ""
    """The position in the workflow: "Step 3 of 5 (Financial Analysis)"."""
    prior_agents: tuple[Name, ...] = ()  # The agents that worked on it before.
    prior_outputs: dict[str, Json] = {}  # Their results, by agent.
    decisions: tuple[str, ...] = ()  # What was decided and must hold.
    constraints: dict[str, Json] = {}  # Conditions that the answer must meet.
    findings: tuple[str, ...] = ()  # What was found so far.
    data: dict[str, Json] = {}  # Structured data for the callee.
    assumptions: tuple[str, ...] = ()  # What is assumed and was not checked.
    facts: tuple[str, ...] = ()  # What is known for certain.
    references: tuple[Source, ...] = ()  # Documents and records that it refers to.


Known = Literal["none", "decisions", "all"]
"""Which notes of a conversation are passed on: none, what was decided and must hold, or facts and answers as well."""


class ContextFilter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Which part of the caller's conversation the callee may see; an empty one asks for the newest that fit."""

    last_messages: Count | None = None  # At most this many, the newest.
    roles: Names | None = None  # Only messages of these roles.
    keywords: Annotated[tuple[Keyword, ...], Meta(max_length=100)] | None = None
    """Only messages with one of these words."""
    include_summary: bool = False  # Whether a summary of the conversation is added.
    include_workspace: bool = False  # Whether the workspace is described.
    workspace_files: Annotated[tuple[FilePath, ...], Meta(max_length=100)] | None = None
    """Only these files of the workspace."""
    include_contents: bool = False
    """Whether the content of the named files is shown, as far as there is room, and not only their names."""
    max_age_seconds: Count | None = None  # Only messages that are not older.
    include_facts: bool = False  # Whether the saved facts about the user are added, of all conversations.
    known: Known | None = None
    """Which notes of the conversation the callee may see, never more than its caller may. None: an agent that is called
    by another sees none; the agent that the user talks to sees all notes of its own session."""


class Handover(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The agent that takes a conversation over, and what it sees of it."""

    to: Name | None = None  # The agent; None: the one that handed the conversation over, which gets it back.
    reason: str = ""  # Why; recorded.
    context: ContextFilter = ContextFilter(known="all")  # Which part of the conversation it sees.


class ToolFinding(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What a tool, or an agent that was asked as one, returned to an agent."""

    tool: Name  # Its name.
    arguments: Json = None  # What it was given.
    result: str = ""  # What the model of the agent read.
    hidden: tuple[str, ...] = ()
    """Tokens in it that stand for values which the agent itself had; set by the hub."""


class Message(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """One message of a conversation."""

    role: Literal["user", "assistant"]  # Whether the user or an agent wrote it.
    text: str  # What was said.
    name: str = ""
    """Its author: `user`, or an agent."""
    tokens: Count = 0  # Its length in tokens.
    at_ms: Count = 0  # When it was said, in milliseconds since 1970.
    seq: Count = 0
    """The number of the record that holds its text, which is stored once. 0: it has none here."""
    delegation: str = ""
    """The request that it belongs to."""
    findings: tuple[ToolFinding, ...] = ()
    """What tools returned to its author, if that is the agent that reads it: nobody else sees them."""


class Note(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A known fact of a conversation, so that no agent asks for it or works it out again."""

    kind: Literal["fact", "decision", "constraint", "answer"]  # What kind of statement it is.
    text: str  # The statement.
    by: str = ""
    """The agent that stated it; empty: the user."""


class View(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What a callee sees of the conversation in which it is called: no tool calls, no reasoning, nothing twice."""

    messages: tuple[Message, ...] = ()  # The messages that the filter selected.
    summary: str = ""  # The summary of the conversation.
    workspace: str = ""  # The description of the workspace.
    known: tuple[Note, ...] = ()  # The notes that it may see.
    seen: tuple[Count, ...] = ()
    """Numbers of messages that are left out because the callee's session was shown them before."""
    tokens: Count = 0
    """The tokens of everything that the callee is given to read: this view and the task."""

    def recorded(self) -> "View":
        """Return the view as it is stored: the numbers of its messages, and the start of the rest, but no text
        twice.
        """
        return View(
            # Messages without a number were said at another hub, and are recorded nowhere else here.
            messages=tuple(
                Message(role=each.role, text="", tokens=each.tokens, seq=each.seq) if each.seq else each
                for each in self.messages
            ),
            summary=self.summary[:PREVIEW_LENGTH],
            workspace=self.workspace[:PREVIEW_LENGTH],
            known=self.known,
            seen=self.seen,
            tokens=self.tokens,
        )


class Assignment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What an agent is asked to do: the part that a `Call`, a `Request` and a `Submission` have in common."""

    objective: Text = ""
    """The objective: a short goal."""
    input: Json = None
    """The full message or the capability's inputs."""
    capability: Name | None = None
    """The code of the capability."""
    session: Name | None = None
    """The callee's session; None starts a new one."""
    handoff: Handoff | None = None
    """What the callee is told about the work so far."""
    correlation: str | None = None
    """An id of your own, by which its run can be found."""
    context: ContextFilter | None = None
    """Which part of the conversation the callee sees."""
    files: Files = ()
    """Files for the callee: their content as base64, or a URL that nobody here fetches. It gets no others, also not
    those of its caller."""
    hints: tuple[str, ...] = ()
    """Short remarks for the callee."""
    reason: str = ""
    """Why this callee is asked; recorded, and part of traces."""
    refined_by: Name | None = None
    """Who rephrased the request."""
    retry_of: Name | None = None
    """The request that this one repeats."""


def fields_of(part: type[P], given: P) -> dict[str, Any]:
    """Return the fields that *given* has from *part*, as arguments for another class that has them."""
    return {name: getattr(given, name) for name in part.__struct_fields__}


class BoundedAssignment(Assignment, frozen=True, kw_only=True):
    """An assignment with the bounds that its caller sets."""

    max_tokens: Count | None = None
    """The most tokens that it may spend."""
    max_cost: Count | None = None
    """The most money that it may spend, in millionths of the team's currency."""
    deadline_ms: Count | None = None
    """The time that it has, in milliseconds."""
    max_depth: Count | None = None
    """How deep delegations below it may go."""
    context_tokens: Count | None = None
    """The most tokens of conversation that the callee is shown."""
    tools: Tools | None = None
    """The tools that it may use: names, or by name conditions on the arguments, as of a rule's `where`:
    `{"pay": {"amount": "<= 100", "to": ["bob"]}}`. All that its callers set holds, too. None: all of its own."""
    targets: Names | None = None
    """The agents that it and those below it may call; None: all that it may."""
    may_delegate: bool = True
    """Whether it may call others."""
    priority: Priority | None = None
    """Its place in queues; never above its caller's."""


class AssignmentOptions(TypedDict, total=False):
    """The fields of a `BoundedAssignment` besides its objective, as keyword arguments."""

    input: Json
    capability: str | None
    session: str | None
    handoff: Handoff | None
    correlation: str | None
    context: ContextFilter | None
    files: Sequence[File]
    hints: tuple[str, ...]
    reason: str
    refined_by: str | None
    retry_of: str | None
    max_tokens: int | None
    max_cost: int | None
    deadline_ms: int | None
    max_depth: int | None
    context_tokens: int | None
    tools: Collection[str] | Mapping[str, Any] | None
    targets: Collection[str] | None
    may_delegate: bool
    priority: Priority | None


class Call(BoundedAssignment, frozen=True, kw_only=True):
    """A delegation that an agent requests: the arguments of `delegate`, or part of an answer in place of a result.

    Each limit left at None takes the default of the capability, the callee or the team; none can exceed what is left.
    """

    target: Name | None = None
    """The agent to call; None: whoever offers the capability."""
    queued: bool = False
    """Whether it waits for a place where its caller may have no more calls at once; otherwise it is refused."""
    step: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_~-]{0,99}\Z")] | None = None
    """Its name among its caller's calls: it identifies the call after a restart, whatever the order of calls."""
    handover: tuple[Handover, ...] | None = None
    """Set by the hub where the callee takes a conversation over; see `Request.handover`."""


Act = Literal["call", "tool", "answer", "tokens", "price"]
"""What needs permission: a call of an agent, the use of a tool, an answer, more tokens, or a model whose price is not
known."""


class Request(Assignment, frozen=True, kw_only=True):
    """A request of an agent, or a person, to another agent, within a remit."""

    version: str  # The version of the envelope.
    id: Name  # Its id, unique for its sender.
    origin: Name  # The caller: `user`, or an agent.
    target: Name  # The agent that is asked.
    remit: Remit  # What the callee may do and spend.
    run: Name = ""
    """The trace id of the tree of delegations that this is part of."""
    parent: Name | None = None
    """The delegation, and so the span, that asked for this one."""
    parent_session: Name | None = None  # The caller's session.
    created_ms: Count | None = None
    """When it was made, in milliseconds since 1970, for people to read; no deadline depends on it."""
    view: View | None = None
    """The part of the conversation that the filter selected."""
    traceparent: str | None = None
    """Its parent span in a trace that began elsewhere (W3C); None: the run is its own trace."""
    via: Name | None = None
    """The sender, if it came from elsewhere: a hub, or a client of this one."""
    handover: tuple[Handover, ...] | None = None
    """Set where its target takes the conversation over, or has handed it over before: the agents behind the target that
    the conversation goes on to, one after another, without asking the target. Empty: the target answers itself."""
    approved: tuple[str, ...] = ()
    """Digests of the questions about it that a person has approved, for the other hubs of the team; never sent."""
    act: Act = "call"
    """Whether its target is an agent that is called, a tool that its origin uses with `input` as arguments, or, in a
    question to a person, an agent whose run needs more tokens (`tokens`) or whose model has no price (`price`)."""

    @property
    def path(self) -> str:
        """Its path in the run: the run's id for the root, whatever id its sender chose; else its own id, `run.2.1`."""
        return self.run if self.parent is None else self.id

    @property
    def sender(self) -> str:
        """The sender that chose its id: two clients, or two hubs, may choose the same independently."""
        return self.origin if self.via is None else f"{self.origin}@{self.via}"

    @property
    def key(self) -> tuple[str, str, str]:
        """Sender, user and id: equal requests have equal keys."""
        return self.sender, self.remit.user, self.id


class Strategy(StrEnum):
    """How several responses become one answer."""

    FIRST_SUCCESS = "first-success"
    """The first success in time; the others are not waited for."""
    BEST_CONFIDENCE = "best-confidence"
    """The response with the highest confidence."""
    MERGE_ALL = "merge-all"
    """All successes, one after another."""
    AI_BLEND = "ai-blend"
    """All successes, combined into one text by a model, without what they do not support; otherwise as `merge-all`."""
    DEFAULT = "default"
    """All successes, without repetitions.

    The default, because a caller of several agents usually wants all that they know: choosing one would lose the rest,
    and blending needs a model. What they all say appears once, and what only one says keeps its structure.
    """


class AnswerContent(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What an agent has to say: the part that an `Answer` and a `Response` have in common."""

    result: Json = None  # The result: any JSON value.
    summary: str = ""  # The result in a sentence.
    confidence: Share | None = None  # How sure the agent is, from 0 to 1.
    artifacts: tuple[Artifact, ...] = ()  # Structured data that belongs to the result.
    new_facts: tuple[str, ...] = ()  # What became known; kept with the conversation.
    sources: tuple[Source, ...] = ()  # Documents and records that it rests on.
    requires_followup: bool = False  # Whether somebody has to come back to it.
    warnings: tuple[str, ...] = ()  # What the caller should be careful about.
    finished: tuple[str, ...] = ()  # Requested parts that are in the result.
    unfinished: tuple[str, ...] = ()
    """Requested parts that are not in the result; naming any makes the answer partial."""
    metadata: dict[str, Json] = {}  # Further values for the caller.
    files: Files = ()
    """Files that belong to the answer."""


class Answer(AnswerContent, frozen=True):
    """The return value of an agent's code, from which the runtime makes the response.

    With `calls` the agent names agents that should do the work instead: the runtime executes these calls in the agent's
    name. With `handover` another agent takes the conversation over: it answers this request, unless there is a result,
    and the next ones of the session.
    """

    usage: Usage | None = None  # Tokens spent, if the agent counts them itself.
    calls: tuple[Call, ...] = ()  # Agents that should do the work instead.
    strategy: Strategy = Strategy.MERGE_ALL
    """How the answers of several `calls` become one."""
    handover: str | Handover | None = None
    """The agent that takes the conversation over; `"back"`: the one that handed it over to this agent."""
    findings: tuple[ToolFinding, ...] = ()
    """What tools returned to the agent: kept for its own next turns in the session, and given to nobody else."""


class Response(AnswerContent, frozen=True, kw_only=True):
    """The outcome of a request: always a value, whatever happened."""

    version: str  # The version of the envelope.
    id: Name
    """The id of the request."""
    target: Name  # The agent that was asked.
    status: Status  # How it ended.
    run: Name = ""  # The id of the run, for `remit runs show`.
    session: Name | None = None
    """The session of the callee's conversation."""
    usage: Usage = Usage()  # Tokens spent by the callee and all below it.
    duration_ms: Count = 0  # How long it took, in milliseconds, with the time in a queue.
    queued_ms: Count = 0  # How much of it was in a queue.
    waited_ms: Count = 0
    """How long its clock was stopped while a person was asked."""
    fault: Fault | None = None  # What went wrong, unless it is a success.
    tool_calls: tuple[str, ...] = ()  # The tools that were used, in order.
    path: tuple[Name, ...] = ()
    """The agents that the answer passed through, if the callee handed the request over."""
    handover: tuple[Handover, ...] = ()
    """The agents to which the conversation was handed over, one after another: the last one answers next."""
    findings: tuple[ToolFinding, ...] = ()
    """What tools returned to the agent: kept for its own next turns in the session, and given to nobody else."""
    agent_version: str = "1.0"  # The version of the agent that answered.
    capability_version: str | None = None  # The version of the capability.
    cache: Literal["none", "miss", "hit", "similar"] = "none"
    """Whether the cache was consulted, and what it found: the same request, or one that asks for the same."""

    @property
    def ok(self) -> bool:
        """Whether it ended with a success or a partial success; a timeout may still carry finished parts."""
        return self.status in _USABLE

    def outward(self) -> "Response":
        """Return the response for everyone except its hub's own programs: see `Fault.outward`.

        They are not told the model either: that is how an agent is made, not what it is for.
        """
        shown = self.fault and self.fault.outward()
        if self.findings:
            return replace(self, findings=()).outward()
        if MODEL in self.metadata:
            return replace(self, fault=shown, metadata={k: v for k, v in self.metadata.items() if k != MODEL})
        return self if shown is self.fault else replace(self, fault=shown)

    def unwrap(self) -> Json:
        """Return the result, or raise the fault as a `RemitError`."""
        if self.ok:
            return self.result
        raise RemitError(self.fault or fault(Code.DELEGATION_FAILED, f"{self.target} gave no reason"))

    def result_as(self, kind: type[T]) -> T:
        """Return the result as a value of *kind*, or raise a `RemitError`: the fault, or each invalid field.

        *kind* may be a pydantic model, a dataclass, a TypedDict, a msgspec Struct, an attrs class, an enum, or a
        container of these.
        """
        value = self.unwrap()
        try:
            return read_as(value, kind)
        except TypeMismatch as error:
            message = f"the result of {self.target} is not a {name_of(kind)}"
            raise error.error(Code.RESULT_VALIDATION_FAILED, message) from None


class Level(StrEnum):
    """A confidence in words."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"
    SPECULATIVE = "SPECULATIVE"


# The least confidence for each.
LEVELS = ((0.8, Level.HIGH), (0.5, Level.MEDIUM), (0.2, Level.LOW), (0.0, Level.SPECULATIVE))


def level_of(confidence: float) -> Level:
    """Return the word for a confidence from 0 to 1."""
    return next((level for least, level in LEVELS if confidence >= least), Level.SPECULATIVE)


def share_of(level: Level) -> float:
    """Return the number for a word: the middle of its range."""
    at = [each for _, each in LEVELS].index(level)
    bounds = [1.0, *(least for least, _ in LEVELS)]
    return round((bounds[at] + bounds[at + 1]) / 2, 3)
