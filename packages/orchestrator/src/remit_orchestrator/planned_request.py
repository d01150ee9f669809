"""Carries out a request of several parts: in order, under their conditions, and with the results of those before.

A question to the user ends the run. The plan and the results so far are stored with it, so the reply continues there,
even after a restart, and nothing is done twice.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Literal, cast

from msgspec.structs import replace

from remit.ports.brief import Brief
from remit.protocol.card import Schema
from remit.protocol.envelope import Answer, Json, Response
from remit.protocol.errors import RemitError
from remit.protocol.orchestration import Step, Workflow
from remit_orchestrator.conversation import Conversation, FilledInputs, fits, merged_input
from remit_orchestrator.plan_state import (
    PART,
    Offered,
    PlanState,
    asking,
    fields_of,
    in_order,
    left_out,
    may_come,
    not_done,
    objective,
    open_parts,
    part_metadata,
    request_step,
    ruled,
    spoken_plan,
    step_name,
    stored_response,
    understood_as,
    with_intent,
    without_missing,
)
from remit_orchestrator.text.conditions import Ruling, is_about_success, rule
from remit_orchestrator.text.constraints import with_breaches
from remit_orchestrator.text.fields import as_before, question_for
from remit_orchestrator.text.intent import PHRASES, PlannedPart
from remit_orchestrator.text.replies import agrees, chosen, fields, wanted
from remit_orchestrator.workflow import ExecutionSettings, WorkflowExecution
from remit_orchestrator.workflow_plan import StepOutcome, literal


def with_reply(
    state: PlanState, reply: str, expected: Mapping[str, Schema], today: date, *, refused: bool
) -> PlanState | None:
    """Return the plan with what a reply says; None if the reply is about something else.

    *refused*: the reply is a no. *expected* are the fields that the question asked for, *today* the day of the reply.
    """
    topic = state.topic
    match topic["kind"]:
        case "choose":
            return _chosen(state, int(topic["place"]), reply, refused=refused)
        case "fields":
            values = fields(reply, expected, fits, today)
            offered: dict[str, Json] = topic.get("offered", {})
            if offered and agrees(reply):
                values = {**offered, **(values or {})}
            return None if values is None else _filled(state, values, agreed=bool(topic["agrees"]))
        case "condition":
            return _decided(state, str(topic["clause"]), reply, refused=refused)
        case _:
            meant = chosen(reply, [""])
            if meant is None:
                return None
            agreed = replace(state, agreed=True, topic={})
            return with_words(agreed, reply) if meant.more else agreed


def _chosen(state: PlanState, at: int, reply: str, *, refused: bool) -> PlanState | None:
    if refused:
        return with_intent(state, at, None)
    options = state.plan.parts[at].options
    meant = chosen(reply, [each.words for each in options])
    return None if meant is None else with_intent(state, at, options[meant.place].intent)


def _filled(state: PlanState, values: dict[str, Json], *, agreed: bool) -> PlanState:
    given: Json = state.given
    before = cast("dict[str, Json]", given) if isinstance(given, dict) else {}
    return replace(state, given={**before, **values}, agreed=state.agreed or agreed, topic={})


def _decided(state: PlanState, clause: str, reply: str, *, refused: bool) -> PlanState | None:
    meant = chosen(reply, [""])
    # "It is negative" decides it as a result would.
    holds = False if refused else True if meant is not None else rule(clause, reply, clause).holds
    return None if holds is None else replace(state, decided={**state.decided, clause: holds}, topic={})


def with_words(state: PlanState, words: str) -> PlanState:
    """Return a plan with something that the user said besides."""
    context = f"{state.plan.context}\n{words}" if state.plan.context else words
    return replace(state, plan=replace(state.plan, context=context))


def is_option(state: PlanState, code: str) -> bool:
    """Return whether the user was asked to choose what a part means, and this is one of the options."""
    if state.topic["kind"] != "choose":
        return False
    options = state.plan.parts[cast("int", state.topic["place"])].options
    return code in {each.intent.code for each in options}


async def advance(
    offered: Offered, settings: ExecutionSettings, brief: Brief, state: PlanState, talk: Conversation
) -> tuple[Answer, PlanState | None]:
    """Ask what has to be known before anything is done, or do what can be done.

    Returns the state to store with the question in the answer; None if nothing is asked.
    """
    state = replace(state, plan=without_missing(state.plan, offered))
    parts = state.plan.parts
    unclear = next((at for at in open_parts(state) if parts[at].how == "ask"), None)
    if unclear is not None:
        return _choice(parts[unclear]), replace(state, topic={"kind": "choose", "place": unclear})
    labels = {code: label for code, (label, _) in offered.items()}
    plan_text = spoken_plan([parts[at] for at in in_order(parts) if at in open_parts(state)], labels)
    cannot = [not_done(each) for each in parts if each.how == "cannot"]
    filled = _filled_inputs(state, talk, offered)
    lead = as_before({name: each for part in filled.values() for name, each in part.earlier.items()})
    proposed = understood_as(plan_text) if state.plan.by == "model" and not state.came else ""
    missing, known = _missing(state, filled, offered)
    if missing:
        await talk.keep(brief)
        confirms = not state.agreed and any(parts[at].how == "confirm" for at in open_parts(state))
        purpose = f"{plan_text}? " if confirms else proposed
        question = "\n".join((*cannot, f"{_spaced(lead)}{purpose}{question_for(missing, known)}"))
        topic: dict[str, Json] = {"kind": "fields", "names": list(missing), "agrees": confirms, "offered": known}
        return _asking(settings.words().clean_question(question)), replace(state, topic=topic)
    if not state.agreed and any(parts[at].how == "confirm" for at in open_parts(state)):
        await talk.keep(brief)
        question = " ".join((*cannot, f"{_spaced(lead)}{PHRASES.confirm.replace('{options}', plan_text)}"))
        return _asking(question), replace(state, topic={"kind": "confirm"})
    answer, waiting = await _Run(settings, brief, state, offered, talk, filled).answer()
    before = "\n\n".join(each for each in (lead, "" if state.agreed else proposed.strip()) if each)
    return (replace(answer, result=f"{before}\n\n{answer.result}") if before else answer), waiting


class _Run:
    """What one run does of a plan."""

    def __init__(
        self,
        settings: ExecutionSettings,
        brief: Brief,
        state: PlanState,
        offered: Offered,
        talk: Conversation,
        filled: Mapping[int, FilledInputs],
    ) -> None:
        self._settings = settings
        self._words = settings.words()
        self._brief = brief
        self.state = state
        self._offered = offered
        self._talk = talk
        self._filled_inputs = filled
        self._lines: dict[int, str] = {}
        self._held: dict[int, dict[str, Json]] = {}
        """What has to be asked before a part can begin."""
        self._responses: Mapping[str, Response] = {}

    async def answer(self) -> tuple[Answer, PlanState | None]:
        """Do what can be done; return the answer, and the state if there is a question left."""
        state, parts = self.state, self.state.plan.parts
        self._leave_undone()
        doable = [at for at in open_parts(state) if parts[at].intent is not None and at not in self._lines]
        steps = tuple(self._step(at, doable) for at in in_order(parts) if at in doable)
        answer, ended = Answer(""), dict[str, StepOutcome]()
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
                if not self._lines:
                    raise
                answer = execution.templated_answer()
            ended, self._responses = execution.ended, execution.responses
            answer = await self._remembered(answer, doable)
        done = [at for at in doable if step_name(at) in ended]
        nothing = not any(ended[step_name(at)].wanted for at in done)
        text = "" if nothing else str(answer.result)
        state = replace(
            state,
            came={name: stored_response(each) for name, each in self._responses.items() if each.ok},
            settled=tuple(sorted({*state.settled, *done, *(at for at in self._lines if at not in self._held)})),
        )
        return self._composed(answer, text, state)

    def _composed(self, answer: Answer, text: str, state: PlanState) -> tuple[Answer, PlanState | None]:
        parts = state.plan.parts
        lines = [self._lines[at] for at in in_order(parts) if at in self._lines]
        undone = tuple(parts[at].text for at in self._lines if parts[at].how == "cannot")
        metadata = answer.metadata | {"plan": [part_metadata(at, parts, state) for at in range(len(parts))]}
        intents = [each.intent for each in parts if each.intent is not None]
        metadata["planned_by"] = state.plan.by
        metadata["intents"] = [
            {"capability": each.code, "agent": each.target, "confidence": round(each.confidence, 2)} for each in intents
        ]
        question, topic = self._question()
        paragraphs = [
            text,
            "\n".join(self._words.clean_question(line) for line in lines),
            self._words.clean_question(question),
        ]
        whole = replace(
            answer,
            result="\n\n".join(each for each in paragraphs if each),
            unfinished=(*answer.unfinished, *undone),
            requires_followup=answer.requires_followup or bool(question),
            metadata=metadata,
        )
        return whole, replace(state, topic=topic) if question else None

    def _question(self) -> tuple[str, dict[str, Json]]:
        """Return the question about the first part that is held, and what it is about."""
        if not self._held:
            return "", {}
        at = min(self._held)
        topic = self._held[at]
        if topic["kind"] == "condition":
            parts = [self.state.plan.parts[place] for place in open_parts(self.state)]
            return asking(parts, str(topic["clause"]), str(topic["because"])), topic
        schemas = cast("dict[str, Schema]", topic["schemas"])
        return question_for(schemas), {"kind": "fields", "names": list(schemas), "agrees": False}

    def _leave_undone(self) -> None:
        """Note the parts that nothing serves, and those that build on them."""
        parts = self.state.plan.parts
        for at in open_parts(self.state):
            part = parts[at]
            if part.how == "cannot":
                self._lines[at] = not_done(part)
            elif part.how == "left":
                self._lines[at] = left_out(part)
            elif (
                part.refers and part.condition is None and any(parts[each].how == "cannot" for each in part.after[-1:])
            ):
                self._lines[at] = not_done(part, builds_on=True)

    def _step(self, at: int, doable: Sequence[int]) -> Step:
        part, state = self.state.plan.parts[at], self.state
        intent = part.intent
        assert intent is not None
        _, capability = self._offered[intent.code]
        known = {*doable, *(each for each in range(len(state.plan.parts)) if step_name(each) in state.came)}
        # A part that changes something needs the success of those before it, and so does one that builds on them.
        strict = part.condition is None and (part.refers or not capability.read_only)
        return request_step(
            self._brief,
            step_name(at),
            intent,
            capability,
            text=objective(state, part),
            given=self._filled_inputs[at].inputs[0],
            title=self._words.title(intent.code),
            after=tuple(f"{step_name(each)}{'' if strict else '?'}" for each in part.after if each in known),
        )

    async def _remembered(self, answer: Answer, doable: Sequence[int]) -> Answer:
        """Remember what was done; return the answer with what breaks a demand of the user."""
        intents = {at: intent for at in doable if (intent := self.state.plan.parts[at].intent) is not None}
        fresh = {name: each for name, each in self._responses.items() if name not in self.state.came}
        codes = {step_name(at): intent.code for at, intent in intents.items()}
        self._talk.learn_done(codes, self.state.text, fresh)
        changed = any(not self._offered[codes[name]][1].read_only for name in fresh if name in codes)
        await self._talk.keep(self._brief, changed=changed)
        return with_breaches(answer, self._brief.known, self.state.text, fresh.values(), self._words.clean_question)

    # ── before a part begins ──────────────────────────────────────────────────────────────────────────────────────────

    def gate(
        self, step: Step, ended: Mapping[str, StepOutcome], responses: Mapping[str, Response]
    ) -> Step | StepOutcome | None:
        """Return the step if it may begin, its outcome if it is not to be done, or None if the user has to be asked."""
        at = int(step.name.removeprefix(PART)) - 1
        part = self.state.plan.parts[at]
        if part.condition is not None:
            outcome = self._decided(at, part, ended, responses)
            if not isinstance(outcome, bool):
                return outcome
        return self._filled(at, part, step, ended)

    def _decided(
        self, at: int, part: PlannedPart, ended: Mapping[str, StepOutcome], responses: Mapping[str, Response]
    ) -> StepOutcome | Literal[True] | None:
        condition = part.condition
        assert condition is not None
        by_user = condition.clause in self.state.decided
        if by_user:
            ruling = Ruling(self.state.decided[condition.clause])
        else:
            ruling = self._ruling(at, part, ended, responses)
        if ruling is None:
            return StepOutcome(state="skipped", why="what its condition asks about could not be found out")
        if ruling.holds is None:
            self._held[at] = {"kind": "condition", "clause": condition.clause, "because": ruling.because}
            return None
        done = ruling.holds == condition.holds
        self._lines[at] = ruled(part, ruling, done=done, by_user=by_user)
        if done:
            return True
        return StepOutcome(state="skipped", wanted=False, why=f"its condition does not hold: {condition.wording}")

    def _ruling(
        self, at: int, part: PlannedPart, ended: Mapping[str, StepOutcome], responses: Mapping[str, Response]
    ) -> Ruling | None:
        """Decide a condition from the results before it, the nearest first; None if there should be one and is none."""
        condition = part.condition
        assert condition is not None
        parts = self.state.plan.parts
        order = in_order(parts)
        earlier = [each for each in reversed(order[: order.index(at)]) if parts[each].intent is not None]
        # What was not done because of its own condition says nothing.
        earlier = [each for each in earlier if step_name(each) not in ended or ended[step_name(each)].wanted]
        if not earlier:
            return Ruling(None)
        wants = is_about_success(condition.clause)
        if wants is not None:
            worked = _has_worked(ended.get(step_name(earlier[0])), responses.get(step_name(earlier[0])))
            return Ruling(worked == wants, "that worked" if worked else "that did not work")
        known = [each for each in earlier if step_name(each) in ended and ended[step_name(each)].usable]
        if not known:
            return None
        for each in known:
            ruling = rule(condition.clause, ended[step_name(each)].result, parts[each].text)
            if ruling.holds is not None:
                because = ruling.because
                return Ruling(ruling.holds, f"the result says “{because.rstrip('.')}”")
            if ruling.because:
                return ruling
        return Ruling(None)

    def _filled(self, at: int, part: PlannedPart, step: Step, ended: Mapping[str, StepOutcome]) -> Step | None:
        """Fill required fields from the results before; hold the step if some are still missing."""
        intent = part.intent
        assert intent is not None
        _, capability = self._offered[intent.code]
        filled = self._filled_inputs[at]
        given, lacking = filled.inputs[0], list(filled.missing)
        if not lacking:
            return step
        fields = dict(cast("dict[str, Json]", given)) if isinstance(given, dict) else {}
        for each in reversed(part.after):
            result = ended[step_name(each)].result if step_name(each) in ended else None
            fields |= fields_of(result, [name for name in lacking if name not in fields])
        still = [name for name in lacking if name not in fields]
        if still:
            schemas = wanted(capability.input_schema, still)
            self._held[at] = {"kind": "fields", "schemas": cast("Json", schemas)}
            self._lines.pop(at, None)  # told when it is done
            return None
        return replace(step, input=literal(fields))


# ── the parts of a state ──────────────────────────────────────────────────────────────────────────────────────────────


def _filled_inputs(state: PlanState, talk: Conversation, offered: Offered) -> dict[int, FilledInputs]:
    """Return the input of each open part, by its place: from its words, the request, and what was given before.

    A field that is missing in a part is taken from another part: "what do 4 pages cost, and then order them".
    """
    parts = {at: each for at in open_parts(state) if (each := state.plan.parts[at]).intent is not None}

    def filled(at: int, given: Json) -> FilledInputs:
        intent = parts[at].intent
        assert intent is not None
        known = merged_input(dict(parts[at].values), given) if parts[at].values else given
        return FilledInputs.of(talk, [offered[intent.code][1]], objective(state, parts[at]), known)

    filled_inputs = {at: filled(at, state.given) for at in parts}
    stated: dict[str, Json] = {}
    for each in filled_inputs.values():
        values: Json = each.stated
        stated |= cast("dict[str, Json]", values) if isinstance(values, dict) else {}
    for at, each in filled_inputs.items():
        missing = {name: schema for name, schema in each.missing.items() if name in stated}
        shared: dict[str, Json] = {name: stated[name] for name, schema in missing.items() if fits(schema, stated[name])}
        if shared:
            filled_inputs[at] = filled(at, merged_input(state.given, shared))
    return filled_inputs


def _missing(
    state: PlanState, filled: Mapping[int, FilledInputs], offered: Offered
) -> tuple[dict[str, Schema], dict[str, Json]]:
    """Return the fields that have to be asked for, of all parts at once, and values from before for them.

    Fields that a result may give are not asked for.
    """
    schemas: dict[str, Schema] = {}
    known: dict[str, Json] = {}
    for at, each in filled.items():
        if not may_come(state, state.plan.parts[at], offered):
            schemas |= each.missing
            known |= each.offered
    return schemas, known


def _spaced(lead: str) -> str:
    """Return a sentence with a space after it; an empty one stays empty."""
    return f"{lead} " if lead else ""


def _has_worked(ended: StepOutcome | None, response: Response | None) -> bool:
    if ended is None or not ended.usable:
        return False
    denied = rule("that worked", None if response is None else response.result)
    return denied.holds is not False


def _choice(part: PlannedPart) -> Answer:
    listed = "\n".join(f"{place}. {option.words}" for place, option in enumerate(part.options, 1))
    return _asking(f"You said “{part.text}”. {PHRASES.pick}\n{listed}")


def _asking(question: str) -> Answer:
    return Answer(question, requires_followup=True)
