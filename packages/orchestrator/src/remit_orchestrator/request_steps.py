"""The steps of a workflow for the capabilities that a user's request asks for."""

from collections.abc import Callable, Sequence

from remit.policy.budget import split_tokens
from remit.protocol.card import Capability
from remit.protocol.envelope import Json
from remit.protocol.orchestration import Step
from remit.runtime.brief import Brief
from remit_orchestrator.text.intent import DetectedIntent
from remit_orchestrator.workflow_plan import literal


def user_text(brief: Brief) -> str:
    """Return the user's words without the data that may accompany them."""
    return brief.objective or brief.text


def request_step(
    brief: Brief,
    name: str,
    intent: DetectedIntent,
    capability: Capability,
    *,
    text: str,
    given: Json,
    title: str,
    among: int,
    after: tuple[str, ...] = (),
) -> Step:
    """Return the step for one capability; its tokens are an equal share *among* so many steps.

    The orchestrator needs no time and tokens for itself, so its callees get all of them, unless they ask for less.
    """
    offered = {code for each in brief.delegates for code in each.capabilities}
    is_workflow = intent.code == intent.target and intent.code not in offered
    return Step(
        name=name,
        agent=intent.target if is_workflow else None,
        capability=None if is_workflow else intent.code,
        # The user's words: braces in them are not references.
        objective=literal(text),
        input=literal(given),
        after=after,
        title=title,
        time_ms=brief.time_left_ms() if capability.time_ms is None else capability.time_ms,
        tokens=split_tokens(brief.tokens_left(), among) if capability.tokens is None else capability.tokens,
        # The callee does what the user asked for, and the files are part of the request.
        files=True,
    )


def request_steps(
    brief: Brief,
    intents: Sequence[DetectedIntent],
    capabilities: Sequence[Capability],
    text: str,
    inputs: Sequence[Json],
    title: Callable[[str], str],
) -> tuple[Step, ...]:
    """Return a step for each capability that a request asks for; *title* names a capability for users."""
    wanted = zip(intents, capabilities, inputs, strict=True)
    return tuple(
        request_step(
            brief,
            f"part{place}",
            intent,
            capability,
            text=text,
            given=given,
            title=title(intent.code),
            among=len(intents),
        )
        for place, (intent, capability, given) in enumerate(wanted, 1)
    )
