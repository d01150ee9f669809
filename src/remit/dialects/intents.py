"""The contract's intent classification: what a user wants, and which agent does it."""

from typing import Annotated

from msgspec import Meta, Struct

from remit.protocol.codec import checked, decode, encode, malformed
from remit.protocol.errors import Problem, RemitError
from remit.protocol.remit import Name


class IntentTarget(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agents for the secondary intents."""

    agent: Name
    capability: Name


class IntentClassification(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """INTENT CLASSIFICATION: the primary and secondary intents of a user, and the agents for them."""

    primary_intent: Name
    intent_confidence: Annotated[float, Meta(ge=0, le=1)]
    target_agent: Name
    target_capability: Name
    secondary_intents: tuple[Name, ...] = ()
    secondary_targets: tuple[IntentTarget, ...] = ()


class Intent(Struct, frozen=True, kw_only=True):
    """One intent of a user, and the agent for it."""

    name: str
    agent: str
    capability: str
    confidence: float | None = None
    """The confidence; the document has none for secondary intents."""


def classified(primary: Intent, *secondary: Intent) -> bytes:
    """Return an intent classification as the document writes it."""
    return encode(
        checked(
            IntentClassification(
                primary_intent=primary.name,
                intent_confidence=primary.confidence or 0.0,
                target_agent=primary.agent,
                target_capability=primary.capability,
                secondary_intents=tuple(each.name for each in secondary),
                secondary_targets=tuple(
                    IntentTarget(agent=each.agent, capability=each.capability) for each in secondary
                ),
            )
        )
    )


def intents(body: bytes) -> tuple[Intent, ...]:
    """Return the intents of a classification, the primary one first."""
    words = decode(body, IntentClassification)
    if len(words.secondary_intents) != len(words.secondary_targets):
        problem = Problem("$.secondary_targets", "each of `secondary_intents` has its target, in the same order")
        raise RemitError(malformed((problem,)))
    primary = Intent(
        name=words.primary_intent,
        agent=words.target_agent,
        capability=words.target_capability,
        confidence=words.intent_confidence,
    )
    besides = zip(words.secondary_intents, words.secondary_targets, strict=True)
    return (primary, *(Intent(name=name, agent=each.agent, capability=each.capability) for name, each in besides))
