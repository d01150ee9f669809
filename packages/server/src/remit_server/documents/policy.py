"""Documents about guards and their verdicts."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from remit.protocol.card import Authority
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, Fault


class GuardLine(Struct, frozen=True, kw_only=True):
    """A guard."""

    name: Annotated[str, Meta(description="Its name.")]
    says: Annotated[str, Meta(description="The condition it checks.")]


class Guards(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.guards/1"):
    """The guards that judge a request. Printed by `remit policy guards --json`."""

    guards: Annotated[tuple[GuardLine, ...], Meta(description="The guards, in evaluation order.")]


class GuardVerdict(Struct, frozen=True, kw_only=True):
    """The verdict of one guard."""

    guard: Annotated[str, Meta(description="Its name.")]
    verdict: Annotated[
        Literal["allow", "rewrite", "refuse", "ask", "failed"],
        Meta(description="Its verdict; `failed`: it raised an error, so the request is refused."),
    ]
    says: Annotated[str, Meta(description="Reason, unless it allows the request.")] = ""
    code: Annotated[Code | None, Meta(description="The error code if it refuses.")] = None


class Struck(Struct, frozen=True, kw_only=True):
    """A personal or secret value in a request; the value itself is not included."""

    kind: Annotated[str, Meta(description="Kind of value: `EMAIL`, `IBAN`.")]
    place: Annotated[str, Meta(description="Location in the request: `objective`, `input.customer.iban`.")]
    shown: Annotated[bool, Meta(description="Whether the callee sees the original value.")]


class Placing(Struct, frozen=True, kw_only=True):
    """Whether an agent should delegate a request or handle it itself."""

    agent: Annotated[str, Meta(description="The deciding agent: the caller, or the agent the user asks.")]
    decision: Annotated[
        Literal["route", "local"], Meta(description="`route`: delegate it; `local`: handle it without delegating.")
    ]
    reason: Annotated[
        Literal["capability", "intent", "expertise", "data", "scope", "latency", "simplicity", "equivalence"],
        Meta(description="The deciding reason: the first four favor delegating, the others oppose it."),
    ]
    why: Annotated[str, Meta(description="The reason as a sentence.")]
    capability: Annotated[str, Meta(description="The capability, as named or as recognized in the text.")]
    confidence: Annotated[
        float | None, Meta(description="Probability that the text asks for it; null: it was named explicitly.")
    ] = None


class Explanation(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.explanation/1"):
    """What would happen to a request, with the verdict of each guard. Printed by `remit policy explain --json`."""

    origin: Annotated[str, Meta(description="The caller.")]
    target: Annotated[str, Meta(description="The callee.")]
    outcome: Annotated[
        Literal["allowed", "asks", "refused"],
        Meta(description="The outcome; `asks`: a person must approve first."),
    ]
    by: Annotated[str, Meta(description="The deciding guard; empty if none objects.")] = ""
    question: Annotated[str, Meta(description="The question to the person.")] = ""
    editable: Annotated[tuple[str, ...], Meta(description="Fields that the person may edit before approving.")] = ()
    fault: Annotated[Fault | None, Meta(description="Why it would be refused.")] = None
    guards: Annotated[tuple[GuardVerdict, ...], Meta(description="The verdict of each guard, in evaluation order.")]
    struck: Annotated[tuple[Struck, ...], Meta(description="Values that redaction found.")] = ()
    authority: Annotated[
        Authority | None,
        Meta(description="Source of its tools and targets: its own, or limited to its caller's."),
    ] = None
    tools: Annotated[tuple[str, ...], Meta(description="The tools it could use.")] = ()
    targets: Annotated[tuple[str, ...], Meta(description="The agents it could call.")] = ()
    place: Annotated[
        Placing | None,
        Meta(description="Whether delegating makes sense; null: no capability is named or recognized."),
    ] = None
    request: Annotated[
        Request, Meta(description="The request as it would be recorded, with tokens in place of redacted values.")
    ]
    exit_code: Annotated[int, Meta(description="Exit code of the command.")]
