"""An agent that finds out what a user wants, delegates it, and gives one answer.

A question to the user ends the run: the reply comes as the next request of the session, even days later.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from remit.ports.brief import Brief
from remit.protocol.card import Capability, Schema
from remit.protocol.envelope import Answer, Json
from remit.protocol.orchestration import Thresholds, Workflow
from remit.runtime.aside import aside
from remit_orchestrator.conversation import (
    Conversation,
    FilledInputs,
    RecalledConversations,
    fits,
    keep_question,
    merged_input,
    take_question,
    without_options,
)
from remit_orchestrator.follow_ups import (
    as_input,
    asked_to_look_again,
    followed_up,
    known_answer,
    noted,
    nothing_offered,
    purpose,
    remember_answer,
    repeatable,
)
from remit_orchestrator.intent_classifier import (
    Classifier,
    DecisionCache,
    PlanProposer,
    allowed_capabilities,
    without_model,
)
from remit_orchestrator.plan_state import PlanState, given_up, kept, read_state, request_steps, user_text, with_intent
from remit_orchestrator.planned_request import advance, is_option, with_reply, with_words
from remit_orchestrator.text.conflicts.decided import disputes_of, settled_disputes
from remit_orchestrator.text.constraints import with_breaches
from remit_orchestrator.text.fields import question_for
from remit_orchestrator.text.intent import (
    PHRASES,
    Choose,
    Confirm,
    Decision,
    DetectedIntent,
    Label,
    Planned,
    Routed,
    Unclear,
    Unknown,
    Vague,
    continued,
    decide,
    offer,
    plan,
)
from remit_orchestrator.text.lexicon import alternatives
from remit_orchestrator.text.replies import agrees, asks_for_something, chosen, fields, wanted
from remit_orchestrator.workflow import ExecutionSettings, WorkflowExecution

_NO = re.compile(rf"\W*(?:{alternatives('orchestrator.no')})(?:,? (?:thanks|thank you|danke))?\W*", re.IGNORECASE)
_HELP = re.compile(rf"\W*(?:{alternatives('orchestrator.help')})\W*", re.IGNORECASE)
# No reply to a question is longer, and searching a megabyte would block the event loop.
_LONGEST_REPLY = 2_000
# The warning to users whose request the fallback classified, because the model could not.
_FALLBACK_WARNING = "Your request was classified without the model, and may have been misunderstood."


class OrchestratorDecision(Struct, frozen=True):
    """The decision about a user's request, and how it was made."""

    decision: Decision
    cache_status: Literal["hit", "miss", "bypass"]
    notice: str = ""
    plan_notice: str = ""
    """Why the plan that a model proposed was not taken."""


class Orchestrator:
    """Routes a user's request to a capability or a workflow."""

    remit_role = "planner"
    description = "Finds out what you want, has it done, and answers."

    def __init__(
        self,
        offered: Callable[[], Mapping[str, tuple[Label, Capability]]],
        train: Callable[[Sequence[Capability]], Classifier],
        settings: ExecutionSettings,
        *,
        thresholds: Thresholds,
        proposer: PlanProposer | None,
        decisions: DecisionCache,
        wall_ms: Callable[[], int],
        cache_ms: int,
        aclose: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._offered = offered
        self._train = train
        self._thresholds = thresholds
        self._settings = settings
        self._words = settings.words
        self._proposer = proposer
        self._decisions = decisions
        self._conversations = RecalledConversations(wall_ms)
        self._cache_ms = cache_ms
        self.aclose = aclose
        self._trained: tuple[tuple[Capability, ...], Classifier] | None = None

    async def __call__(self, brief: Brief) -> Answer:
        try:
            return await self._answered(brief)
        finally:
            self._conversations.close(brief)

    async def _answered(self, brief: Brief) -> Answer:
        message = user_text(brief)
        pending = await take_question(brief)
        if pending is not None and (answer := await self._replied(brief, pending)) is not None:
            return replace(answer, metadata=answer.metadata | {"cache_status": "bypass"})
        if len(message) <= _LONGEST_REPLY and _HELP.fullmatch(message):
            return Answer(self._words().clean_question(offer(self._labels(brief))), metadata={"cache_status": "bypass"})
        talk = await self._conversations.of(brief)
        if (last := asked_to_look_again(message, talk)) is not None:
            talk.anew = True
            return await self._carry_out(brief, [self._intent(code) for code in last.codes], last.request, last.given)
        decided = await self._decided(brief, message)
        answer = await self._in_context(brief, decided.decision, message) or await self._follow(
            brief, decided.decision, message
        )
        how: dict[str, Json] = {"cache_status": decided.cache_status}
        if decided.plan_notice:
            how |= {"planned_by": "rules", "plan_notice": decided.plan_notice}
        if not decided.notice:
            return replace(answer, metadata=answer.metadata | how)
        how["notice"] = decided.notice
        return replace(answer, metadata=answer.metadata | how, warnings=(*answer.warnings, _FALLBACK_WARNING))

    async def _decided(self, brief: Brief, message: str) -> OrchestratorDecision:
        """Return the decision about the user's request; after a restart, the one made before it."""

        async def decision() -> Json:
            return msgspec.to_builtins(await self._decide(brief, message))

        return msgspec.convert(await brief.once("decision", decision), OrchestratorDecision)

    async def _decide(self, brief: Brief, message: str) -> OrchestratorDecision:
        classifier = await self._classifier()
        labels = self._labels(brief)
        key = self._decisions.key(brief.user, message, labels)
        if (known := self._decisions.get(key)) is not None:
            return OrchestratorDecision(known, "hit")
        classified = await classifier.classify(message, brief)
        decision, why = plan(classified, labels, self._thresholds), ""
        if self._proposer is not None:
            choice = await self._proposer.choose(
                brief,
                message,
                decision,
                offered={code: each for code, each in self._offered().items() if code in labels},
                classifier=without_model(classifier),
                thresholds=self._thresholds,
                today=(await self._conversations.of(brief)).today,
            )
            decision, why = choice.decision, choice.notice
        # A fallback's decision was the best at that time only, so it is not cached.
        if not classified.notice and not why:
            self._decisions.put(key, decision)
        return OrchestratorDecision(decision, "miss", classified.notice, why)

    def _labels(self, brief: Brief) -> dict[str, Label]:
        within = allowed_capabilities(brief)
        return {code: label for code, (label, _) in self._offered().items() if code in within}

    async def _follow(self, brief: Brief, decision: Decision, message: str) -> Answer:
        match decision:
            case Routed(primary=primary):
                return await self._carry_out(brief, (primary,), message, brief.request.input)
            case Choose(options=options):
                listed = "\n".join(f"{place}. {option.words}" for place, option in enumerate(options, 1))
                codes = [option.intent.code for option in options]
                pending = {"options": codes, "words": [option.words for option in options], "text": message}
                return await self._ask(brief, f"{PHRASES.pick}\n{listed}", pending | {"input": brief.request.input})
            case Unclear(question=question, option=option):
                pending = {"options": [option.code], "words": [""], "text": message, "input": brief.request.input}
                return await self._ask(brief, question, pending)
            case Confirm(intents=intents, question=question):
                return await self._carry_out(brief, intents, message, brief.request.input, confirm=question)
            case Planned():
                return await self._advanced(brief, PlanState(plan=decision, text=message, given=brief.request.input))
            case Vague(question=question):
                return await self._ask(brief, question, without_options(message, brief.request.input))
            case Unknown(reply=reply):
                return Answer(self._words().clean_question(reply), confidence=0.0, metadata={"intent": None})

    async def _in_context(self, brief: Brief, decision: Decision, text: str) -> Answer | None:
        """Answer a text that asks for nothing by itself, if the conversation says what it means."""
        if not isinstance(decision, Choose | Unclear | Vague | Unknown):
            return None
        meant = followed_up(text, await self._conversations.of(brief), self._offered())
        if meant is not None and meant[0] in self._labels(brief):
            return await self._carry_out(brief, [self._intent(meant[0])], text, as_input(brief.request.input, meant[1]))
        receipt = noted(text, brief.known)
        return Answer(self._words().clean_question(receipt), metadata={"intent": None}) if receipt else None

    async def _classifier(self) -> Classifier:
        """Return a classifier for the current capabilities; it is trained again, in a thread, when they change."""
        offered = tuple(capability for _, capability in self._offered().values())
        if self._trained is None or self._trained[0] != offered:
            self._trained = (offered, await asyncio.to_thread(self._train, offered))
            self._decisions.clear()
        return self._trained[1]

    # ── questions to the user ─────────────────────────────────────────────────────────────────────────────────────────

    async def _ask(self, brief: Brief, question: str, pending: dict[str, Json]) -> Answer:
        await keep_question(brief, pending)
        return Answer(self._words().clean_question(question), requires_followup=True, metadata={"asked": list(pending)})

    async def _replied(self, brief: Brief, pending: dict[str, Any]) -> Answer | None:
        """Continue with the open question if this is the reply to it; None if it is a new request."""
        message = user_text(brief)
        reply = message[:_LONGEST_REPLY]
        if "disputes" in pending:
            return await self._settle(brief, reply, pending["disputes"])
        if "plan" in pending:
            return await self._plan_replied(brief, pending, message)
        if "missing" in pending:
            values = await self._given_fields(brief, pending, message)
            receipt = noted(message, brief.known) if values is None else ""
            if values is None and not receipt:
                return None
            intents = [self._intent(code) for code in pending["codes"]]
            answer = await self._carry_out(brief, intents, pending["text"], {**pending["input"], **(values or {})})
            return replace(answer, result=f"{receipt}\n\n{answer.result}") if receipt else answer
        confirmed = pending.get("confirm")
        meant = chosen(reply, [""] if confirmed else pending["words"])
        if meant is None:
            if _NO.fullmatch(reply):
                return await self._ask(
                    brief, PHRASES.again, without_options(pending["text"], pending["input"], refused=True)
                )
            return await self._continued(brief, pending, message)
        text = f"{pending['text']}\n{message}" if meant.more else pending["text"]
        given = merged_input(pending["input"], brief.request.input)
        codes = confirmed or [pending["options"][meant.place]]
        if meant.more:
            offered, talk = self._offered(), await self._conversations.of(brief)
            given = talk.corrected([offered[code][1] for code in codes if code in offered], message, given)
        return await self._carry_out(brief, [self._intent(code) for code in codes], text, given)

    async def _given_fields(self, brief: Brief, pending: dict[str, Any], text: str) -> dict[str, Json] | None:
        """Return the fields that a reply gives; None if it gives none, or asks for something else instead."""
        expected = self._wanted(pending["codes"], pending["missing"])
        today = (await self._conversations.of(brief)).today
        long = len(text) > _LONGEST_REPLY
        values = await aside.run(fields, text, expected, fits, today) if long else fields(text, expected, fits, today)
        offered: dict[str, Json] = pending.get("offered", {})
        if offered and not long and agrees(text):
            return {**offered, **(values or {})}
        if values is None or long or not asks_for_something(text):
            return values

        async def other() -> Json:
            decision = (await self._decide(brief, text)).decision
            return isinstance(decision, Routed) and decision.primary.code not in pending["codes"]

        return None if await brief.once("other", other) else values

    async def _continued(self, brief: Brief, pending: dict[str, Any], message: str) -> Answer | None:
        """Read a reply in the user's own words together with those that led to the question; None if it is for itself.

        "My appointment on Monday" and "cancel it" say together what neither says alone.
        """
        if len(message) > _LONGEST_REPLY or len(pending["text"]) > _LONGEST_REPLY:
            return None
        offered = pending.get("confirm") or pending["options"]

        async def read() -> Json:
            alone = (await self._decide(brief, message)).decision
            # What is to be done mostly stands in the reply, and is said first in a request.
            together = await (await self._classifier()).classify(f"{message} {pending['text']}", brief)
            labels = self._labels(brief)
            among = {code: label for code, label in labels.items() if code in offered} or labels
            joint = decide(together, among, self._thresholds)
            return {
                "decision": msgspec.to_builtins(continued(alone, joint, offered, refused=pending.get("refused", False)))
            }

        kept = cast("dict[str, Any]", await brief.once("continued", read))
        decision = msgspec.convert(kept["decision"], Decision | None)
        if decision is None:
            return None
        text = f"{pending['text']}\n{message}"
        given = merged_input(pending["input"], brief.request.input)
        # What was said back needs a yes: whatever else is said, it is asked again.
        again = str(pending.get("question", ""))
        if isinstance(decision, Routed):
            return await self._carry_out(brief, (decision.primary,), text, given, confirm=again)
        if isinstance(decision, Confirm):
            # Whoever chose among options in other words has chosen, unless it is always to be confirmed.
            labels = self._labels(brief)
            chose = pending.get("options") and all(labels[each.code].confirm != "always" for each in decision.intents)
            confirm = "" if chose else again or decision.question
            return await self._carry_out(brief, decision.intents, text, given, confirm=confirm)
        return None

    async def _plan_replied(self, brief: Brief, pending: dict[str, Any], message: str) -> Answer:
        """Continue a plan with the reply to the question about it; ask again if the reply says nothing about it."""
        state, talk = read_state(pending), await self._conversations.of(brief)
        state = replace(state, given=merged_input(state.given, brief.request.input))
        about = state.topic
        codes = [each.intent.code for each in state.plan.parts if each.intent is not None]
        expected = self._wanted(codes, about.get("names", ()))
        refused = _NO.fullmatch(message[:_LONGEST_REPLY]) is not None
        if about["kind"] == "confirm" and refused:
            return await self._ask(brief, PHRASES.again, without_options(state.text, state.given, refused=True))
        further = with_reply(state, message[:_LONGEST_REPLY], expected, talk.today, refused=refused)
        if further is not None:
            return await self._advanced(brief, further)
        decided = (await self._decided(brief, message)).decision
        match decided:
            case Routed(primary=meant) | Confirm(intents=(meant,)) if is_option(state, meant.code):
                chosen_part = with_intent(state, int(about["place"]), meant)
                return await self._advanced(brief, with_words(chosen_part, message))
            case Routed() | Confirm() | Planned():
                answer = await self._follow(brief, decided, message)
                undone = [given_up(each) for at, each in enumerate(state.plan.parts) if at not in state.settled]
                return replace(answer, result="\n\n".join((str(answer.result), "\n".join(undone))))
            case _:
                return await self._ask(brief, str(pending["question"]), pending)

    async def _advanced(self, brief: Brief, state: PlanState) -> Answer:
        """Do what can be done of a plan; store the question that is left, with what was done so far."""
        talk = await self._conversations.of(brief)
        answer, waiting = await advance(self._offered(), self._settings, brief, state, talk)
        if waiting is not None:
            pending = kept(waiting, answer.result)
            await keep_question(brief, pending)
            return replace(
                answer, metadata=answer.metadata | {"asked": list(waiting.topic), "planned_by": waiting.plan.by}
            )
        if "conflicts" in answer.metadata and (disputes := disputes_of(answer)):
            await keep_question(brief, {"disputes": disputes})
        return answer

    async def _settle(self, brief: Brief, reply: str, disputes: list[dict[str, Any]]) -> Answer | None:
        """Store which value the user chose where sources disagree, so that later agents in the conversation know it."""
        decisions, left = settled_disputes(reply, disputes)
        if not decisions:
            return None
        for decision in decisions:
            brief.note("decision", decision)
        text = self._words().clean("\n".join((*decisions, *(str(each["question"]) for each in left))))
        return await self._ask(brief, text, {"disputes": cast("Json", left)}) if left else Answer(text)

    def _intent(self, code: str) -> DetectedIntent:
        """Return the capability that the user agreed to; days later it may no longer be offered."""
        label, _ = self._offered().get(code, (Label(target=""), None))
        return DetectedIntent(code, label.target, 1.0)

    def _wanted(self, codes: Sequence[str], names: Sequence[str]) -> dict[str, Schema]:
        """Return the current schemas of the fields that the user was asked for."""
        offered = self._offered()
        schemas: dict[str, Schema] = {}
        for code in codes:
            schema = offered[code][1].input_schema if code in offered else None
            schemas |= {name: each for name, each in wanted(schema, names).items() if not schemas.get(name)}
        return schemas

    # ── delegating ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _carry_out(
        self,
        brief: Brief,
        intents: Sequence[DetectedIntent],
        text: str,
        given: Json,
        *,
        confirm: str = "",
    ) -> Answer:
        """Have it done; or ask for what is missing for it, or else the question by which the user has to *confirm* it.

        Whoever gives what is missing agrees to what the question says it is for.
        """
        offered = self._offered()
        if any(intent.code not in offered for intent in intents):
            return Answer(nothing_offered(offered), confidence=0.0, metadata={"intent": None})
        talk = await self._conversations.of(brief)
        filled = FilledInputs.of(talk, [offered[intent.code][1] for intent in intents], text, given)
        codes: list[Json] = [each.code for each in intents]
        if filled.missing or confirm:
            await talk.keep(brief)
        if filled.missing:
            lack: dict[str, Json] = {"codes": codes, "missing": list(filled.missing), "input": filled.stated or {}}
            question = f"{filled.lead}{purpose(confirm)}{question_for(filled.missing, filled.offered)}"
            return await self._ask(brief, question, lack | {"text": text, "offered": filled.offered})
        if confirm:
            agreed: dict[str, Json] = {"confirm": codes, "question": confirm, "text": text, "input": filled.stated}
            return await self._ask(brief, f"{filled.lead}{filled.confirmation(confirm)}", agreed)
        return await self._perform(brief, intents, text, filled, talk)

    async def _perform(
        self, brief: Brief, intents: Sequence[DetectedIntent], text: str, filled: FilledInputs, talk: Conversation
    ) -> Answer:
        """Have it done by whoever offers it, with what is known of the conversation, and remember what came of it."""
        intent_records = [
            {"capability": each.code, "agent": each.target, "confidence": round(each.confidence, 2)} for each in intents
        ]
        offered = [self._offered()[each.code] for each in intents]
        question = repeatable(brief, intents, offered, text, filled.inputs, filled.stated, self._cache_ms)
        if (known := known_answer(question, talk)) is not None:
            return replace(known, metadata=known.metadata | {"intents": intent_records})
        capabilities = [capability for _, capability in offered]
        steps = request_steps(brief, intents, capabilities, text, filled.inputs, self._words().title)
        execution = WorkflowExecution(
            Workflow(name="orchestrator", steps=steps),
            brief,
            self._settings,
            request=text,
            recalled=talk.handoff(),
        )
        answer = await execution.run()
        if disputes := disputes_of(answer):
            await keep_question(brief, {"disputes": disputes})
        talk.learn_done(
            {step.name: intent.code for step, intent in zip(steps, intents, strict=True)}, text, execution.responses
        )
        answer = with_breaches(answer, brief.known, text, execution.responses.values(), self._words().clean)
        if filled.lead and isinstance(answer.result, str):
            answer = replace(answer, result=f"{filled.lead.strip()}\n\n{answer.result}")
        remember_answer(question, answer, talk)
        await talk.keep(brief, changed=not all(label.read_only for label, _ in offered))
        return replace(answer, metadata=answer.metadata | {"intents": intent_records})
