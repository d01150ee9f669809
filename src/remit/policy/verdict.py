"""What a guard can say of a request, and the fold that asks them all."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from remit.policy.limits import Limits
from remit.protocol.card import AgentCard
from remit.protocol.codec import VERSIONS
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, Fault, fault
from remit.protocol.remit import Remit


class Allow(Struct, frozen=True):
    """Nothing to object."""


class Rewrite(Struct, frozen=True):
    """Allowed in this form."""

    request: Request
    struck: Mapping[str, str | int] = {}
    """What was taken out of it, by the tokens that stand there now."""


class Refuse(Struct, frozen=True):
    """Not allowed, and why."""

    fault: Fault


class Ask(Struct, frozen=True):
    """A person must agree first."""

    question: str
    editable: frozenset[str] = frozenset()
    """What the person may change before agreeing: `objective`, `input`."""


Verdict = Allow | Rewrite | Refuse | Ask

ALLOW = Allow()


class Finding(NamedTuple):
    """Something in a text that is personal or secret, and of which kind."""

    start: int
    end: int
    kind: str
    """In capitals: `EMAIL`, `CREDIT_CARD`."""
    score: float = 1.0


# A page of a customer list has hundreds. Each costs 0.1 ms and a row of the store.
MAX_FINDINGS = 10_000

Detector = Callable[[str], Iterable[Finding]]
"""Finds what is personal or secret in a text; in order, and without overlaps."""


class Sealing(NamedTuple):
    """How a run's tokens are made: what is looked for, and the key that makes them this run's own."""

    key: bytes
    detect: Detector
    bare: Detector | None = None
    """The same without what is known of the run, where that is more."""
    most: int = MAX_FINDINGS
    """How many different values may be taken out of one request or answer."""


class Facts(Struct, frozen=True, kw_only=True, gc=False):
    """The local facts that guards may look at besides the request: a snapshot, taken when the request is judged."""

    target: AgentCard | None
    """The callee's card; None if nobody of that name is registered."""
    address: str = ""
    """The callee as it would stand in a chain: `agent@hub`."""
    caller: AgentCard | None = None
    """The card of the agent that asks; None if a person does."""
    held: Remit | None = None
    """The remit under which the caller itself works."""
    limits: Limits = Limits()
    agents: Collection[str] = ()
    versions: tuple[str, ...] = VERSIONS.readable
    asked_tools: frozenset[str] | None = None
    """The tools that the caller wants the callee held to."""
    session_user: str | None = None
    session_agent: str | None = None
    """Whose the request's session is already, if it is anyone's."""
    at_once: int = 1
    """How many delegations of the caller's would be under way at once, this one included."""
    delegations: int = 0
    """How many delegations the run has asked for, this one included."""
    agent_delegations: int = 0
    """How many of them the caller has asked for."""
    record_bytes: int = 0
    """What the records of the run take, as far as they are written."""
    repeated: bool = False
    """Whether the caller has asked the same of the same callee, with success or without an end so far."""
    overrun: bool = False
    """Whether someone in this run has spent more than it was granted."""
    rate_wait_ms: int = 0
    breaker_wait_ms: int = 0
    approved: frozenset[str] = frozenset()
    """The questions to which a person has said yes."""
    sealing: Sealing | None = None
    """How personal data is redacted; None if it is not."""
    counted: bool = False
    """Whether the tokens of a large request have been counted before, or will be: that takes too long to do twice."""


Guard = Callable[[Request, Facts], Verdict]


def judge(request: Request, facts: Facts, guards: Iterable[Guard]) -> Rewrite | Refuse | Ask:
    """Ask each guard in turn; the first objection stands, and what they rewrote is what goes on."""
    struck: Mapping[str, str | int] = {}
    for guard in guards:
        verdict = guard(request, facts)
        if verdict is ALLOW:
            continue
        match verdict:
            case Allow():
                continue
            case Rewrite(request=rewritten, struck=more):
                struck = {**struck, **more} if more else struck
                if not _says_the_same(request, rewritten):
                    message = (
                        "a guard rewrote more than what is said: a request's route is fixed, and its remit only narrows"
                    )
                    return refuse(Code.PERMISSION_DENIED, message, suggestion="Correct the guard.")
                request = rewritten
            case Ask(question=question) if question in facts.approved:
                continue
            case (Refuse() | Ask()) as objection:
                return objection
            case _:  # guards come from users too, and what is not a verdict is not a yes
                return refuse(
                    Code.PERMISSION_DENIED,
                    f"a guard gave no verdict but a {type(verdict).__name__}",
                    suggestion=GUARD_FAILED,
                )
    return Rewrite(request, struck)


def _says_the_same(request: Request, rewritten: Request) -> bool:
    """Say whether only the content differs, and no one may do more than before."""
    return rewritten.remit.within(request.remit) and all(
        getattr(request, field) == getattr(rewritten, field) for field in _ROUTE
    )


_ROUTE = ("version", "id", "origin", "target", "capability", "run", "parent", "session", "parent_session")


GUARD_FAILED = "Correct the guard; the log of the hub says where it failed."
"""What is advised where a guard of the team's own cannot judge."""


def refuse(code: Code, message: str, *, retry_after_ms: int | None = None, suggestion: str | None = None) -> Refuse:
    """Return the refusal for *code*."""
    return Refuse(fault(code, message, retry_after_ms=retry_after_ms, suggestion=suggestion))
