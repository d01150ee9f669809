"""A plan of several parts: how far it has come, in plain words, and the steps that carry it out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from remit.ports.brief import Brief
from remit.protocol.card import Capability
from remit.protocol.codec import encode, text_of
from remit.protocol.envelope import Json, Response
from remit.protocol.orchestration import Step
from remit.words.components import cut, in_words, short_value
from remit_orchestrator.dialogue.gate import OPTIONS, PLANNED_FROM, DetectedIntent, GateDecision, Label, words_for
from remit_orchestrator.dialogue.phrases import Phrases, phrase_set, tokens
from remit_orchestrator.dialogue.spans import TextPiece
from remit_orchestrator.workflow_plan import literal

# A result in an open question is stored in the conversation, whose size is limited; a longer one is cut.
_LONGEST_RESULT = 20_000
# A longer value is cut where it is shown, and marked so.
_LONGEST_SHOWN = 80

Offered = Mapping[str, tuple[Label, Capability]]
How = Literal["act", "confirm", "ask", "cannot", "left", "background"]


class PlannedPart(Struct, frozen=True, kw_only=True):
    """A part of a request, and what is to be done about it."""

    text: str
    """What is asked for, in the user's words."""
    whole: str
    """With its condition: the parts together are the whole request."""
    how: How
    """`left`: the user does not want it after all. `background`: it is no request, and is told with the others."""
    code: str = ""
    """What it asks for; empty if that is not known, or nothing serves it."""
    options: tuple[str, ...] = ()
    """What it may ask for, if the user has to choose."""
    after: tuple[int, ...] = ()
    """The places of the parts that come before it."""
    strict: bool = False
    """Whether it needs their success."""
    condition: str = ""
    """In the user's words: it is asked about before the part is done."""
    values: dict[str, Json] = {}
    """Fields that the reader found in the words."""
    guessed: bool = False
    """Whether the reader is not sure of it: then it is said back with the words that it was read from."""

    @classmethod
    def of(
        cls,
        text: str,
        place: int,
        pieces: Sequence[TextPiece],
        decision: GateDecision,
        labels: Mapping[str, Label],
        phrases: Phrases,
    ) -> "PlannedPart":
        """Return the part that a piece of a request asks for."""
        piece = pieces[place]
        sure = decision.action in {"do", "say_back"}
        guessed = not sure and decision.action == "offer" and decision.confidence >= PLANNED_FROM and len(pieces) > 1
        code = decision.codes[0] if sure or guessed else ""
        how: How = "act" if decision.action == "do" else "confirm"
        if not code:
            request = piece.opens or piece.listed
            how = "background" if not request else "ask" if decision.action == "offer" else "cannot"
        reads = bool(code) and labels[code].read_only
        between = text[pieces[place - 1].action.end : piece.action.start] if place else ""
        orders = phrase_set(phrases, "order")
        ordered = any(True for at in range(len(tokens(between))) for _ in orders.lengths_at(tokens(between), at))
        follows = place > 0 and (not reads or ordered or bool(piece.condition))
        return cls(
            text=piece.action.of(text),
            whole=piece.whole.of(text),
            how=how,
            code=code,
            options=decision.codes[:OPTIONS] if how == "ask" else (),
            after=tuple(range(place)) if follows else (),
            strict=ordered,
            condition="" if piece.shared and reads else piece.condition,
            values=decision.values.get(code, {}),
            guessed=guessed,
        )


class PlanState(Struct, frozen=True, kw_only=True):
    """A plan, and how far it has come."""

    parts: tuple[PlannedPart, ...]
    text: str
    """The whole request, in the user's words."""
    given: Json = None
    answers: dict[str, Json] = {}
    """The values that the user gave for the fields that were asked for."""
    inputs: dict[str, Json] = {}
    """What each part would be done with, by the name of its step."""
    confirmed: dict[str, Json] = {}
    """What the user has seen of them and agreed to: what changes something is done with nothing else."""
    came: dict[str, Response] = {}
    """The responses so far, by the name of the part."""
    settled: tuple[int, ...] = ()
    """The places of parts that are done, or will not be done."""
    decided: dict[str, bool] = {}
    """Whether the user wants a part under its condition, or with a value of a result, by the name of its step."""
    agreed: bool = False
    topic: dict[str, Json] = field(default_factory=dict[str, Json], name="asked")
    """What the open question is about."""


PART = "part"


def step_name(at: int) -> str:
    """Return the name of a part's step."""
    return f"{PART}{at + 1}"


def open_parts(state: PlanState) -> list[int]:
    """Return the places of the parts that are not settled."""
    return [at for at in range(len(state.parts)) if at not in state.settled]


def objective(state: PlanState, part: PlannedPart) -> str:
    """Return what a callee is asked, in the user's words: the part, and what was said besides."""
    return "\n".join([part.text, *(each.text for each in state.parts if each.how == "background")])


def with_code(state: PlanState, at: int, code: str) -> PlanState:
    """Return a state in which the user has said what a part asks for, or, with no code, that it is to be left out."""
    parts = list(state.parts)
    parts[at] = replace(parts[at], code=code, options=(), how="act" if code else "left")
    return replace(state, parts=tuple(parts), topic={})


def without_missing(parts: Sequence[PlannedPart], offered: Offered) -> tuple[PlannedPart, ...]:
    """Return parts of which what is no longer offered cannot be done: days may have passed."""
    return tuple(
        replace(each, code="", options=(), how="cannot") if {each.code, *each.options} - {"", *offered} else each
        for each in parts
    )


def may_come(state: PlanState, at: int, offered: Offered) -> bool:
    """Return whether the results before a part may give its missing fields: "find a slot and book it"."""
    before = [offered[code][1] for each in range(at) if (code := state.parts[each].code) in offered]
    return any(each.result_schema and each.result_schema.get("properties") for each in before)


def shown(values: Json, text: str) -> str:
    """Return the values of an input as users read them; what they have just said is not repeated."""
    if isinstance(values, dict):
        named = cast("dict[str, Json]", values)
        return ", ".join(f"{in_words(name)}: {_short(each)}" for name, each in named.items() if each != text)
    return "" if values is None or values == text else _short(values)


def _short(value: Json) -> str:
    return short_value(value) or cut(text_of(value), _LONGEST_SHOWN)


def spoken_part(state: PlanState, at: int, offered: Offered) -> str:
    """Return a part with the values that it is done with, for users."""
    part = state.parts[at]
    labels = {code: label for code, (label, _) in offered.items()}
    words = words_for(part.code, labels) or f"“{part.text}”"
    values = shown(state.inputs.get(step_name(at)), part.text)
    spoken = f"{words} ({values})" if values else words
    return f"{spoken} – “{part.text}”" if part.guessed else spoken


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
        request_step(brief, f"{PART}{place}", intent, capability, text=text, given=given, title=title(intent.code))
        for place, (intent, capability, given) in enumerate(wanted, 1)
    )


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


def part_metadata(state: PlanState, at: int, done: Sequence[int]) -> dict[str, Json]:
    """Return what an answer says of a part; *done*: the places of those that were carried out."""
    part = state.parts[at]
    outcome = "waits"
    if at in done:
        outcome = "did"
    elif part.how in {"cannot", "left", "background"} or at in state.settled:
        outcome = "cannot" if part.how == "cannot" else "left_out"
    elif part.how == "ask":
        outcome = "offered"
    elif state.topic.get("place") == at:
        outcome = "asked"
    return {"text": part.whole, "capability": part.code or None, "outcome": outcome}


def question_metadata(state: PlanState) -> dict[str, Json]:
    """Return what an answer says of itself that puts the open question of a plan."""
    kind, place = state.topic.get("kind"), cast("int", state.topic.get("place", 0))
    decision = {"choose": "offered", "confirm": "said_back"}.get(str(kind), "asked")
    options = state.parts[place].options if kind == "choose" else [each.code for each in state.parts if each.code]
    done = [at for at in range(len(state.parts)) if step_name(at) in state.came]
    parts = [part_metadata(state, at, done) for at in range(len(state.parts))]
    return {"decision": decision, "options": list(options), "parts": cast("Json", parts)}


def read_state(pending: Mapping[str, Any]) -> PlanState:
    """Return the state that was stored with an open question."""
    return msgspec.convert(pending["plan"], PlanState)
