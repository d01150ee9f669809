"""A plan of several parts, and how far it has come."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.card import Capability
from remit.protocol.codec import encode
from remit.protocol.envelope import Json, Response
from remit_orchestrator.text.intent import DetectedIntent, Label, Planned, PlannedPart

Offered = Mapping[str, tuple[Label, Capability]]


# A result in an open question is stored in the conversation, whose size is limited; a longer one is cut.
_LONGEST_RESULT = 20_000


class PlanState(Struct, frozen=True, kw_only=True):
    """A plan, and how far it has come."""

    plan: Planned
    text: str
    """The whole request, in the user's words."""
    given: Json = None
    came: dict[str, Response] = {}
    """The responses so far, by the name of the part."""
    settled: tuple[int, ...] = ()
    """The places of parts that are done, or will not be done."""
    decided: dict[str, bool] = {}
    """The conditions that the user decided."""
    agreed: bool = False
    asked: dict[str, Json] = {}
    """What the open question is about."""


PART = "part"


def step_name(at: int) -> str:
    """Return the name of a part's step."""
    return f"{PART}{at + 1}"


def open_parts(state: PlanState) -> list[int]:
    """Return the places of the parts that are not settled."""
    return [at for at in range(len(state.plan.parts)) if at not in state.settled]


def objective(state: PlanState, part: PlannedPart) -> str:
    """Return what a callee is asked, in the user's words: the part, and what was said besides."""
    if part.named:
        return state.text
    return f"{part.text}\n{state.plan.context}" if state.plan.context else part.text


def may_come(state: PlanState, part: PlannedPart, offered: Offered) -> bool:
    """Return whether the results before a part may give its missing fields: "find a slot and book it"."""
    before = [state.plan.parts[at].intent for at in part.after]
    capabilities = [offered[each.code][1] for each in before if each is not None and each.code in offered]
    if any(each.result_schema and each.result_schema.get("properties") for each in capabilities):
        return True
    return part.refers and any(each.read_only for each in capabilities)


def without_missing(plan: Planned, offered: Offered) -> Planned:
    """Return a plan in which what is no longer offered cannot be done: days may have passed."""
    return replace(
        plan,
        parts=tuple(
            replace(each, intent=None, how="cannot")
            if each.intent is not None and each.intent.code not in offered
            else each
            for each in plan.parts
        ),
    )


def with_intent(state: PlanState, at: int, intent: DetectedIntent | None) -> PlanState:
    """Return a state in which the user has said what a part asks for, or that it is to be left out."""
    parts = list(state.plan.parts)
    parts[at] = replace(parts[at], intent=intent, options=(), how="left" if intent is None else "act")
    return replace(state, plan=replace(state.plan, parts=tuple(parts)), asked={})


def fields_of(result: Json, names: Sequence[str]) -> dict[str, Json]:
    """Return the fields of a result by name; of a list with a single entry, those of the entry."""
    several = cast("list[Json]", result) if isinstance(result, list) else []
    source: Json = several[0] if len(several) == 1 else cast("Json", result)
    if not isinstance(source, dict):
        return {}
    fields = cast("dict[str, Json]", source)
    return {name: fields[name] for name in names if fields.get(name) is not None}


def stored_response(response: Response) -> Response:
    """Return what later parts need of a response."""
    result = response.result
    if len(encode(result)) > _LONGEST_RESULT:
        result = response.summary or str(result)[:_LONGEST_RESULT]
    kept = Response(version=response.version, id=response.id, target=response.target, status=response.status)
    return replace(
        kept,
        result=result,
        summary=response.summary,
        confidence=response.confidence,
        warnings=response.warnings,
        finished=response.finished,
    )


def part_metadata(at: int, parts: Sequence[PlannedPart], state: PlanState) -> dict[str, Json]:
    part = parts[at]
    return {
        "text": part.text,
        "capability": None if part.intent is None else part.intent.code,
        "after": [each + 1 for each in part.after],
        "condition": None if part.condition is None else part.condition.said or part.condition.clause,
        "settled": at in state.settled,
    }


def kept(state: PlanState, question: Json) -> dict[str, Json]:
    """Return a state as it is stored with an open question."""
    return {"plan": msgspec.to_builtins(state), "question": question}


def read_state(asked: Mapping[str, Any]) -> PlanState:
    """Return the state that was stored with an open question."""
    return msgspec.convert(asked["plan"], PlanState)
