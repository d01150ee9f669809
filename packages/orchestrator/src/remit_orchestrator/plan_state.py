"""A plan of several parts: how far it has come, in plain words, and the steps that carry it out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from remit.ports.brief import Brief
from remit.protocol.card import Capability
from remit.protocol.codec import encode
from remit.protocol.envelope import Json, Response
from remit.protocol.orchestration import Step
from remit.words.components import capital
from remit_orchestrator.text.conditions import Ruling
from remit_orchestrator.text.intent import DetectedIntent, Label, Planned, PlannedPart, words_for
from remit_orchestrator.text.request_plan import Condition
from remit_orchestrator.text.vocabulary import DESCRIPTION_VERBS, REQUEST_VERBS
from remit_orchestrator.workflow_plan import literal

_CANNOT = "I did not do this, because I cannot do it: “{text}”."
_BUILDS_ON = "I did not do this, because it builds on something that I cannot do: “{text}”."
_LEFT_OUT = "I left this out, as you said: “{text}”."
_GIVEN_UP = "I did not go on with “{text}”, because you asked for something else."


def in_order(parts: Sequence[PlannedPart]) -> list[int]:
    """Return the places of the parts in the order in which they are done; those that wait for each other as said."""
    ordered: list[int] = []
    left = list(range(len(parts)))
    while left:
        place = next((at for at in left if not set(parts[at].after) & set(left)), left[0])
        left.remove(place)
        ordered.append(place)
    return ordered


def spoken_plan(parts: Sequence[PlannedPart], labels: Mapping[str, Label]) -> str:
    """Return a plan as one sentence without a full stop: "Look up a result, then, if it is positive, book a visit"."""
    done = [parts[place] for place in in_order(parts) if parts[place].intent is not None]
    names = [_describe_part(each, labels) for each in done]
    phrases: list[str] = []
    for place, (each, name) in enumerate(zip(done, names, strict=True)):
        # Two parts for one capability are told apart by the user's own words.
        words = name if names.count(name) < 2 else f"{name} (“{each.text}”)".strip()
        condition = each.condition
        if condition is not None and " " not in condition.wording:
            phrases.append(f"{condition.wording[:1].lower()}{condition.wording[1:]} {words}")
        elif condition is not None:
            phrases.append(
                f"{'then, ' if place else ''}{condition.wording[:1].lower()}{condition.wording[1:]}, {words}"
            )
        elif place and each.after:
            phrases.append(f"then {words}")
        else:
            phrases.append(words)
    last = phrases[-1] if phrases else ""
    plain = len(phrases) > 1 and last == names[-1]
    return capital(f"{', '.join(phrases[:-1])} and {last}" if plain else ", ".join(phrases))


def understood_as(plan_text: str) -> str:
    """Return the sentence that shows a plan before it is carried out, and a space; empty if nothing can be done."""
    return f"I understood: {plan_text}. " if plan_text else ""


def _describe_part(part: PlannedPart, labels: Mapping[str, Label]) -> str:
    code = "" if part.intent is None else part.intent.code
    words = (words_for(code, labels) if code in labels else "") or f"“{part.text}”"
    first = words.split(" ", 1)[0]
    # A German noun keeps its capital letter.
    return words[:1].lower() + words[1:] if first.casefold() in DESCRIPTION_VERBS | REQUEST_VERBS else words


def ruled(part: PlannedPart, ruling: Ruling, *, done: bool, by_user: bool = False) -> str:
    """Return why a part was done or not done: its condition, and what in the result decides it."""
    condition = part.condition
    assert condition is not None
    what = f"so I went on with “{part.text}”." if done else f"so I did not do this: “{part.text}”."
    if by_user:
        return f"As you said, this is {'' if ruling.holds else 'not '}so: “{condition.clause}”, {what}"
    return f"You said {_quoted(condition)}: {ruling.because}, {what}"


def _quoted(condition: Condition) -> str:
    if condition.clause in condition.wording or not condition.wording:
        return f"“{condition.wording or condition.clause}”"
    return f"“{condition.wording}” (about “{condition.clause}”)"


def asking(parts: Sequence[PlannedPart], clause: str, because: str) -> str:
    """Return the question whether a clause holds, with what follows from the answer."""
    those = [each for each in parts if each.condition is not None and each.condition.clause == clause]
    yes = [f"“{each.text}”" for each in those if each.condition is not None and each.condition.holds]
    no = [f"“{each.text}”" for each in those if each.condition is not None and not each.condition.holds]
    why = f" The result says “{because}”." if because else ""
    then = f"If so, I go on with {' and '.join(yes)}" if yes else "If so, I leave it out"
    otherwise = f"; if not, with {' and '.join(no)}." if yes and no else "."
    if no and not yes:
        then = f"If not, I go on with {' and '.join(no)}"
    return f"I cannot tell whether this is so: “{clause}”.{why} Is it? {then}{otherwise} Please say yes or no."


def not_done(part: PlannedPart, *, builds_on: bool = False) -> str:
    """Return that a part is not served by anything."""
    return (_BUILDS_ON if builds_on else _CANNOT).replace("{text}", part.text)


def left_out(part: PlannedPart) -> str:
    """Return that the user did not want a part after all."""
    return _LEFT_OUT.replace("{text}", part.text)


def given_up(part: PlannedPart) -> str:
    """Return that a part was waiting for a reply that did not come."""
    return _GIVEN_UP.replace("{text}", part.text)


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
    after: tuple[str, ...] = (),
) -> Step:
    """Return the step for one capability; its callee gets all the time that is left, unless it asks for less."""
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
        tokens=capability.tokens,
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
        )
        for place, (intent, capability, given) in enumerate(wanted, 1)
    )


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
    topic: dict[str, Json] = field(default_factory=dict[str, Json], name="asked")
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
    return replace(state, plan=replace(state.plan, parts=tuple(parts)), topic={})


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
        "condition": None if part.condition is None else part.condition.wording or part.condition.clause,
        "settled": at in state.settled,
    }


def kept(state: PlanState, question: Json) -> dict[str, Json]:
    """Return a state as it is stored with an open question."""
    return {"plan": msgspec.to_builtins(state), "question": question}


def read_state(pending: Mapping[str, Any]) -> PlanState:
    """Return the state that was stored with an open question."""
    return msgspec.convert(pending["plan"], PlanState)
