"""Carries out a request of several parts: in order, under their conditions, and with the results of those before.

A question to the user ends the run. The plan and the results so far are stored with it, so the reply continues there,
even after a restart, and nothing is done twice. What the user has agreed to is done with exactly what was shown.
"""

from collections.abc import Mapping
from datetime import date
from typing import Literal, cast

from msgspec.structs import replace

from remit.ports.brief import Brief
from remit.protocol.card import Schema
from remit.protocol.envelope import Answer, Json, Response
from remit.protocol.errors import RemitError
from remit.protocol.orchestration import Step, Workflow
from remit_orchestrator.conversation import Conversation, FilledInputs, fits, merged_input
from remit_orchestrator.dialogue.gate import DetectedIntent, words_for
from remit_orchestrator.dialogue.phrases import Phrases
from remit_orchestrator.dialogue.questions import question_for
from remit_orchestrator.dialogue.replies import Agreed, ChosenOption, NoneOfThese, TurnedDown, numbers_in, read_reply
from remit_orchestrator.plan_state import (
    PART,
    Offered,
    PlanState,
    fields_of,
    may_come,
    objective,
    open_parts,
    part_metadata,
    question_metadata,
    request_step,
    spoken_part,
    step_name,
    stored_response,
    with_code,
    without_missing,
)
from remit_orchestrator.text.constraints import with_breaches
from remit_orchestrator.text.replies import fields, takes_yes, wanted
from remit_orchestrator.workflow import ExecutionSettings, WorkflowExecution
from remit_orchestrator.workflow_plan import StepOutcome, literal

_UNSEEN = object()


def with_reply(
    state: PlanState, reply: str, expected: Mapping[str, Schema], today: date, phrases: Phrases
) -> PlanState | Literal["again", "dropped"] | None:
    """Return the plan with what a reply says, or None if the reply is about something else.

    *expected* are the fields that the question asked for, *today* the day of the reply.
    """
    topic = state.topic
    options = cast("list[str]", topic.get("options", []))
    meant = read_reply(reply, options, phrases)
    place = cast("int", topic.get("place", 0))
    match topic["kind"]:
        case "choose":
            match meant:
                case ChosenOption(place=chosen):
                    return with_code(state, place, state.parts[place].options[chosen])
                case NoneOfThese() | TurnedDown():
                    return with_code(state, place, "")
                case _:
                    return "again" if isinstance(meant, Agreed) else None
        case "fields":
            if meant == TurnedDown():
                return "dropped"
            if meant == Agreed() and not topic.get("offered") and not takes_yes(expected):
                return "again"
            values = fields(reply, expected, fits, today)
            offered = cast("dict[str, Json]", topic.get("offered", {}))
            if offered and meant == Agreed():
                values = {**offered, **(values or {})}
            return None if values is None else replace(state, answers={**state.answers, **values}, topic={})
        case "confirm":
            listed = [at for at in open_parts(state) if state.parts[at].code]
            if chosen := numbers_in(reply, len(listed), phrases):
                wanted_parts = {listed[place] for place in chosen}
                for at in listed:
                    state = state if at in wanted_parts else with_code(state, at, "")
                meant = Agreed()
            if meant == Agreed():
                return replace(state, agreed=True, confirmed=dict(state.inputs), topic={})
            return "dropped" if meant == TurnedDown() else "again" if isinstance(meant, Agreed | TurnedDown) else None
        case _:
            if meant not in {Agreed(), TurnedDown()}:
                return "again" if isinstance(meant, Agreed | TurnedDown) else None
            name = step_name(place)
            confirmed = {**state.confirmed, name: state.inputs.get(name)} if meant == Agreed() else state.confirmed
            decided = {**state.decided, name: meant == Agreed()}
            return replace(state, decided=decided, confirmed=confirmed, topic={})


async def advance(
    offered: Offered,
    settings: ExecutionSettings,
    brief: Brief,
    state: PlanState,
    talk: Conversation,
    phrases: Phrases,
) -> tuple[Answer, PlanState | None]:
    """Ask what has to be known before anything is done, or do what can be done.

    Returns the state to store with the question in the answer; None if nothing is asked.
    """
    state = replace(state, parts=without_missing(state.parts, offered))
    texts, parts = phrases.texts, state.parts
    clean = settings.words().clean_question
    unclear = next((at for at in open_parts(state) if parts[at].how == "ask"), None)
    if unclear is not None:
        labels = {code: label for code, (label, _) in offered.items()}
        names = [words_for(code, labels) for code in parts[unclear].options]
        listed = [f"{place}. {words}" for place, words in enumerate([*names, texts.none], 1)]
        question = f"{texts.about_part.format(text=parts[unclear].text)} {texts.pick}"
        topic: dict[str, Json] = {"kind": "choose", "place": unclear, "options": cast("Json", names)}
        return _asked(clean("\n".join((question, *listed))), replace(state, topic=topic))
    filled = _filled_inputs(state, talk, offered)
    inputs = {
        step_name(at): merged_input(each.inputs[0], state.confirmed.get(step_name(at))) for at, each in filled.items()
    }
    state = replace(state, inputs=inputs)
    missing: dict[str, Schema] = {}
    known: dict[str, Json] = {}
    for at, each in filled.items():
        if not may_come(state, at, offered):
            missing |= each.missing
            known |= each.offered
    if missing:
        await talk.keep(brief)
        topic = {"kind": "fields", "names": list(missing), "offered": known}
        return _asked(clean(question_for(missing, texts, known)), replace(state, topic=topic))
    waiting = [at for at in open_parts(state) if parts[at].code and not parts[at].condition]
    risky = [
        at
        for at in waiting
        if parts[at].how == "confirm" or not offered[parts[at].code][0].read_only or offered[parts[at].code][0].confirm
    ]
    if not state.agreed and risky:
        await talk.keep(brief)
        question = "\n".join((texts.plan, *_lines(state, offered, phrases), *_left(state, phrases), texts.agree))
        return _asked(clean(question), replace(state, topic={"kind": "confirm"}))
    return await _Run(settings, brief, state, offered, talk, phrases).answer()


def _lines(state: PlanState, offered: Offered, phrases: Phrases) -> list[str]:
    lines: list[str] = []
    for at in open_parts(state):
        part = state.parts[at]
        if not part.code:
            continue
        then = f"{phrases.texts.then} " if part.strict else ""
        condition = f" – {phrases.texts.only_if.format(condition=part.condition)}" if part.condition else ""
        lines.append(f"{len(lines) + 1}. {then}{spoken_part(state, at, offered)}{condition}")
    return lines


def _left(state: PlanState, phrases: Phrases) -> list[str]:
    """Return what is not done, for the parts that are still open."""
    open_texts = [state.parts[at] for at in open_parts(state)]
    cannot = [phrases.texts.cannot_part.format(text=each.text) for each in open_texts if each.how == "cannot"]
    left = [phrases.texts.left_out.format(text=each.text) for each in open_texts if each.how == "left"]
    besides = [phrases.texts.background.format(text=each.text) for each in open_texts if each.how == "background"]
    return [*cannot, *left, *besides]


class _Run:
    """What one run does of a plan."""

    def __init__(
        self,
        settings: ExecutionSettings,
        brief: Brief,
        state: PlanState,
        offered: Offered,
        talk: Conversation,
        phrases: Phrases,
    ) -> None:
        self._settings = settings
        self._words = settings.words()
        self._brief = brief
        self._state = state
        self._offered = offered
        self._talk = talk
        self._phrases = phrases
        self._held: dict[int, dict[str, Json]] = {}
        """What has to be asked before a part can begin."""
        self._refused = {at for at in open_parts(state) if state.decided.get(step_name(at)) is False}
        self._inputs = dict(state.inputs)

    async def answer(self) -> tuple[Answer, PlanState | None]:
        """Do what can be done; return the answer, and the state if there is a question left."""
        state = self._state
        doable = [at for at in open_parts(state) if state.parts[at].code and at not in self._refused]
        steps = tuple(self._step(at, doable) for at in doable)
        answer, ended, responses = Answer(""), dict[str, StepOutcome](), dict[str, Response]()
        if steps:
            execution = WorkflowExecution(
                Workflow(name="orchestrator", steps=steps),
                self._brief,
                self._settings,
                request=state.text,
                gate=self.gate,
                before=state.came,
                recalled=self._talk.handoff(),
            )
            try:
                answer = await execution.run()
            except RemitError:
                if not self._held and not _left(state, self._phrases):
                    raise
                answer = execution.templated_answer()
            ended, responses = dict(execution.ended), dict(execution.responses)
            answer = await self._remembered(answer, doable, responses)
        done = [at for at in doable if step_name(at) in ended and at not in self._held]
        text = str(answer.result) if any(ended[step_name(at)].wanted for at in done) else ""
        left = [*_left(state, self._phrases), *self._refused_lines()]
        unserved = [at for at in open_parts(state) if state.parts[at].how in {"cannot", "left", "background"}]
        state = replace(
            state,
            inputs=self._inputs,
            came={name: stored_response(each) for name, each in responses.items() if each.ok},
            settled=tuple(sorted({*state.settled, *done, *self._refused, *unserved})),
        )
        question, topic = self._question(state)
        state = replace(state, topic=topic)
        carried_out = [at for at in range(len(state.parts)) if step_name(at) in state.came]
        now = [state.parts[at].code for at in done if step_name(at) in responses]
        paragraphs = [text, "\n".join(self._words.clean_question(line) for line in left), question]
        metadata = answer.metadata | {
            "decision": "did" if now else "asked" if question else "noted",
            "options": now,
            "parts": [part_metadata(state, at, carried_out) for at in range(len(state.parts))],
            "intents": [
                {"capability": each.code, "agent": self._offered[each.code][0].target}
                for each in state.parts
                if each.code
            ],
        }
        whole = replace(
            answer,
            result="\n\n".join(each for each in paragraphs if each),
            unfinished=(*answer.unfinished, *(each.text for each in state.parts if each.how == "cannot")),
            requires_followup=answer.requires_followup or bool(question),
            metadata=metadata,
        )
        return whole, state if question else None

    def _refused_lines(self) -> list[str]:
        left_out = self._phrases.texts.left_out
        return [left_out.format(text=self._state.parts[at].text) for at in sorted(self._refused)]

    def _question(self, state: PlanState) -> tuple[str, dict[str, Json]]:
        """Return the question about the first part that is held, and what it is about."""
        if not self._held:
            return "", {}
        at = min(self._held)
        topic = self._held[at]
        if topic["kind"] == "fields":
            schemas = cast("dict[str, Schema]", topic["schemas"])
            return question_for(schemas, self._phrases.texts), {"kind": "fields", "names": list(schemas), "place": at}
        texts = self._phrases.texts
        part = spoken_part(state, at, self._offered)
        if state.parts[at].condition:
            question = texts.asked_condition.format(condition=state.parts[at].condition, part=part)
        else:
            question = texts.confirm.format(best=part)
        return self._words.clean_question(question), {"kind": "condition", "place": at}

    def _step(self, at: int, doable: list[int]) -> Step:
        part, state = self._state.parts[at], self._state
        label, capability = self._offered[part.code]
        known = {*doable, *(each for each in range(len(state.parts)) if step_name(each) in state.came)}
        return request_step(
            self._brief,
            step_name(at),
            DetectedIntent(part.code, label.target),
            capability,
            text=objective(state, part),
            given=self._inputs.get(step_name(at)),
            title=self._words.title(part.code),
            after=tuple(f"{step_name(each)}{'' if part.strict else '?'}" for each in part.after if each in known),
        )

    async def _remembered(self, answer: Answer, doable: list[int], responses: Mapping[str, Response]) -> Answer:
        """Remember what was done; return the answer with what breaks a demand of the user."""
        codes = {step_name(at): self._state.parts[at].code for at in doable}
        fresh = {name: each for name, each in responses.items() if name not in self._state.came}
        self._talk.learn_done(codes, self._state.text, fresh, self._inputs)
        for name in fresh:
            if name in codes:
                self._talk.learn_given(self._offered[codes[name]][1], self._inputs.get(name))
        changed = any(not self._offered[codes[name]][0].read_only for name in fresh if name in codes)
        await self._talk.keep(self._brief, changed=changed)
        return with_breaches(answer, self._brief.known, self._state.text, fresh.values(), self._words.clean_question)

    # ── before a part begins ──────────────────────────────────────────────────────────────────────────────────────────

    def gate(
        self,
        step: Step,
        ended: Mapping[str, StepOutcome],
        responses: Mapping[str, Response],  # noqa: ARG002 - as a workflow calls its gate
    ) -> Step | StepOutcome | None:
        """Return the step if it may begin, or None if the user has to be asked: under a condition, always."""
        at = int(step.name.removeprefix(PART)) - 1
        part = self._state.parts[at]
        agreed = self._state.decided.get(step.name) is True
        if part.condition and not agreed:
            self._fill(at, ended)
            self._held[at] = {"kind": "condition"}
            return None
        if self._lacking(at):
            self._fill(at, ended)
            if still := self._lacking(at):
                schema = self._offered[part.code][1].input_schema
                self._held[at] = {"kind": "fields", "schemas": cast("Json", wanted(schema, still))}
                return None
        values = self._inputs.get(step.name)
        if not self._offered[part.code][0].read_only and self._state.confirmed.get(step.name, _UNSEEN) != values:
            # The user has not seen these values: they came from a result, or from a later reply.
            self._held[at] = {"kind": "values"}
            return None
        return replace(step, input=literal(values))

    def _lacking(self, at: int) -> list[str]:
        schema = self._offered[self._state.parts[at].code][1].input_schema or {}
        given = self._inputs.get(step_name(at))
        known = cast("dict[str, Json]", given) if isinstance(given, dict) else {}
        return [name for name in cast("list[str]", schema.get("required", [])) if name not in known]

    def _fill(self, at: int, ended: Mapping[str, StepOutcome]) -> None:
        """Fill fields that are missing from the results before a part, the nearest first."""
        name = step_name(at)
        given = self._inputs.get(name)
        known = dict(cast("dict[str, Json]", given)) if isinstance(given, dict) else {}
        for each in reversed(range(at)):
            result = ended[step_name(each)].result if step_name(each) in ended else None
            known |= fields_of(result, [field for field in self._lacking(at) if field not in known])
        if known:
            self._inputs[name] = known


def _filled_inputs(state: PlanState, talk: Conversation, offered: Offered) -> dict[int, FilledInputs]:
    """Return the input of each open part, by its place: from its words, the request, and what was given before.

    A field that is missing in a part is taken from another part: "what do 4 pages cost, and then order them".
    """
    parts = {at: each for at in open_parts(state) if (each := state.parts[at]).code}

    def filled(at: int, given: Json) -> FilledInputs:
        part = parts[at]
        capability = offered[part.code][1]
        properties = cast("Mapping[str, Schema]", (capability.input_schema or {}).get("properties") or {})
        answers: dict[str, Json] = {name: each for name, each in state.answers.items() if name in properties}
        known = merged_input(dict(part.values), given) if part.values else given
        known = merged_input(known or {}, answers) if answers else known
        return FilledInputs.of(talk, [capability], objective(state, part), known)

    made = {at: filled(at, state.given) for at in parts}
    stated: dict[str, Json] = {}
    for each in made.values():
        values: Json = each.stated
        stated |= cast("dict[str, Json]", values) if isinstance(values, dict) else {}
    for at, each in made.items():
        missing = {name: schema for name, schema in each.missing.items() if name in stated}
        shared: dict[str, Json] = {name: stated[name] for name, schema in missing.items() if fits(schema, stated[name])}
        if shared:
            made[at] = filled(at, merged_input(state.given, shared))
    return made


def _asked(question: str, state: PlanState) -> tuple[Answer, PlanState]:
    return Answer(question, requires_followup=True, metadata=question_metadata(state)), state
