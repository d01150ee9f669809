"""The verdicts of guards, and the function that asks all guards in turn."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeVar

from msgspec import Struct

from remit.policy.limits import Limits
from remit.protocol.card import AgentCard, ToolCard
from remit.protocol.codec import VERSIONS
from remit.protocol.envelope import AnswerContent, Json, Request
from remit.protocol.errors import Code, Fault, fault
from remit.protocol.remit import Remit


class Allow(Struct, frozen=True):
    """A verdict: no objection."""


class Rewrite(Struct, frozen=True):
    """A verdict: allowed in this form."""

    request: Request
    """The request to go on with: other content, the same route, never a larger remit."""
    struck: Mapping[str, str | int] = {}
    """The raw values that were removed, by their tokens."""
    answer: AnswerContent | None = None
    """Of an answer: what else than its result is to be changed, such as its summary; None: nothing."""


class Refuse(Struct, frozen=True):
    """A verdict: not allowed, and why."""

    fault: Fault
    """The reason."""


class Ask(Struct, frozen=True):
    """A verdict: a person must agree first, or an agent must be heard."""

    question: str
    """The question to the person, or to the agent."""
    editable: frozenset[str] = frozenset()
    """The fields that the person may edit before approving: `objective`, `input`."""
    agent: str = ""
    """Of an answer: the agent that is asked in place of a person. What it returns is in `facts.opinions`."""


Verdict = Allow | Rewrite | Refuse | Ask
"""What a guard returns."""

ALLOW = Allow()
"""The verdict that lets a request pass as it is."""


class Finding(NamedTuple):
    """A match of personal data or a secret in a text, with its kind."""

    start: int
    """Where it begins in the text."""
    end: int
    """Where it ends."""
    kind: str
    """In capitals: `EMAIL`, `CREDIT_CARD`."""
    score: float = 1.0
    """How certain it is, from 0 to 1."""


# A page of a customer list has hundreds. Each costs 0.1 ms and a row of the store.
MAX_FINDINGS = 10_000

Detector = Callable[[str], Iterable[Finding]]
"""Finds personal data and secrets in a text; in order, and without overlaps."""


class Sealing(NamedTuple):
    """How a run's tokens are made: the detector, and the key that makes them unique to this run."""

    key: bytes
    detect: Detector
    bare: Detector | None = None
    """The same without the run's known secrets, if there are any."""
    most: int = MAX_FINDINGS
    """How many different values may be removed from one request or answer."""


class Facts(Struct, frozen=True, kw_only=True, gc=False):
    """The local facts that guards may use besides the request: a snapshot, taken when the request is judged."""

    target: AgentCard | None
    """The callee's card; None if no such agent is registered, or for the use of a tool."""
    tool: ToolCard | None = None
    """The card of the tool that would be used; None if there is none, or the agent may not use it."""
    address: str = ""
    """The callee's address in a chain: `agent@hub`."""
    caller: AgentCard | None = None
    """The card of the calling agent; None if a person asks."""
    held: Remit | None = None
    """The caller's own remit."""
    limits: Limits = Limits()
    """The limits of the hub."""
    agents: Collection[str] = ()
    """The names of all agents."""
    versions: tuple[str, ...] = VERSIONS.readable
    """The versions of the envelope that can be read."""
    asked_tools: frozenset[str] | None = None
    """The tools that the caller allows the callee."""
    judged_elsewhere: bool | None = None
    """Whether the hub of the callee judges the uses of tools by the remit; None: the callee runs on this hub."""
    session_user: str | None = None
    """The user of the request's session, if it has one."""
    session_agent: str | None = None
    """The owner of the request's session, if it has one."""
    at_once: int = 1
    """How many delegations the caller would have in flight, including this one."""
    delegations: int = 0
    """How many delegations the run has asked for, including this one."""
    agent_delegations: int = 0
    """How many of them the caller has asked for."""
    record_bytes: int = 0
    """The recorded bytes of the run, as far as they are written."""
    repeated: bool = False
    """Whether the caller has made the same call before, with success or still in flight."""
    overrun: bool = False
    """Whether someone in this run has spent more than was granted."""
    rate_wait_ms: int = 0
    """How long the rate limit asks to wait; 0: not at all."""
    breaker_wait_ms: int = 0
    """How long the circuit breaker asks to wait; 0: not at all."""
    approved: frozenset[str] = frozenset()
    """The questions that a person has approved."""
    sealing: Sealing | None = None
    """How personal data is redacted; None if it is not."""
    answer: AnswerContent | None = None
    """The answer that is judged, whole; its result is also the request's input. None: a call or a use of a tool."""
    opinions: Mapping[str, Json] = {}
    """What agents returned that guards had asked about the answer, by agent."""
    counted: bool = False
    """Whether the tokens of a large request are counted elsewhere: counting twice takes too long."""


Guard = Callable[[Request, Facts], Verdict]
"""Judges a request by itself and by facts; it awaits nothing, and reads no clock."""


G = TypeVar("G", bound=Guard)


def on_answer(guard: G) -> G:
    """Have a guard judge answers before their callers get them, in place of calls and uses of tools.

    It is given the answer as a request whose `act` is `answer`: from who answers, its `origin`, to who asked, its
    `target`, with the result as `input`. `facts.answer` is all of it.
    """
    setattr(guard, _ON_ANSWER, True)
    return guard


def judges_answers(guard: Guard) -> bool:
    """Return whether a guard judges answers."""
    return getattr(guard, _ON_ANSWER, False)


_ON_ANSWER = "__judges_answers__"

GUARD_FAILED = "Correct the guard; the log of the hub says where it failed."
"""The suggestion where a team's own guard cannot judge."""


def refuse(code: Code, message: str, *, retry_after_ms: int | None = None, suggestion: str | None = None) -> Refuse:
    """Return the refusal with *code*."""
    return Refuse(fault(code, message, retry_after_ms=retry_after_ms, suggestion=suggestion))
