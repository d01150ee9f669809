"""What the guards would say."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from remit.protocol.card import Authority
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, Fault


class GuardLine(Struct, frozen=True, kw_only=True):
    """A guard."""

    name: Annotated[str, Meta(description="Its name.")]
    says: Annotated[str, Meta(description="What holds if it does not object.")]


class Guards(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.guards/1"):
    """The guards that judge a request. Printed by `remit policy guards --json`."""

    guards: Annotated[tuple[GuardLine, ...], Meta(description="The guards, in the order in which they are asked.")]


class GuardVerdict(Struct, frozen=True, kw_only=True):
    """What one guard says of a request."""

    guard: Annotated[str, Meta(description="Its name.")]
    verdict: Annotated[
        Literal["allow", "rewrite", "refuse", "ask", "failed"],
        Meta(description="What it says; `failed`: it raised an error, which refuses the request."),
    ]
    says: Annotated[str, Meta(description="Why, if it does not simply allow it.")] = ""
    code: Annotated[Code | None, Meta(description="The code of its refusal.")] = None


class Struck(Struct, frozen=True, kw_only=True):
    """Something personal or secret in a request; what it is is not said."""

    kind: Annotated[str, Meta(description="Of which kind it is: `EMAIL`, `IBAN`.")]
    place: Annotated[str, Meta(description="Where in the request: `objective`, `input.customer.iban`.")]
    shown: Annotated[bool, Meta(description="Whether the team lets the callee see it as it is.")]


class Placing(Struct, frozen=True, kw_only=True):
    """Whether an agent should hand a request on, or handle it itself."""

    agent: Annotated[str, Meta(description="The agent that decides: the one that would ask, or that the user asks.")]
    decision: Annotated[Literal["route", "local"], Meta(description="Hand it on, or handle it where it is.")]
    reason: Annotated[
        Literal["capability", "intent", "expertise", "data", "scope", "latency", "simplicity", "equivalence"],
        Meta(description="Which reason decides: the first four speak for handing it on, the others against."),
    ]
    why: Annotated[str, Meta(description="The same as a sentence.")]
    capability: Annotated[str, Meta(description="The capability that is named, or that the text asks for.")]
    confidence: Annotated[
        float | None, Meta(description="How likely it is that the text asks for it; null: it is named.")
    ] = None


class Explanation(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.explanation/1"):
    """What would become of a request, guard by guard. Printed by `remit policy explain --json`."""

    origin: Annotated[str, Meta(description="Who would ask.")]
    target: Annotated[str, Meta(description="Who would be asked.")]
    outcome: Annotated[
        Literal["allowed", "asks", "refused"],
        Meta(description="What would happen: `asks`: a person would be asked first."),
    ]
    by: Annotated[str, Meta(description="The guard that decides; empty if none objects.")] = ""
    question: Annotated[str, Meta(description="What a person would be asked.")] = ""
    editable: Annotated[tuple[str, ...], Meta(description="What the person may change before agreeing.")] = ()
    fault: Annotated[Fault | None, Meta(description="Why it would be refused.")] = None
    guards: Annotated[tuple[GuardVerdict, ...], Meta(description="What each guard says, in their order.")]
    struck: Annotated[tuple[Struck, ...], Meta(description="What redaction finds.")] = ()
    authority: Annotated[
        Authority | None,
        Meta(description="Whose tools and targets it would have: its own, or no more than its caller has."),
    ] = None
    tools: Annotated[tuple[str, ...], Meta(description="The tools that it could use.")] = ()
    targets: Annotated[tuple[str, ...], Meta(description="The agents that it could ask.")] = ()
    place: Annotated[
        Placing | None,
        Meta(
            description="Whether it should be handed on at all; null: it names no capability, and none is heard in it."
        ),
    ] = None
    request: Annotated[Request, Meta(description="The request as it would be recorded: with tokens for what is found.")]
    exit_code: Annotated[int, Meta(description="With what the command exits.")]
