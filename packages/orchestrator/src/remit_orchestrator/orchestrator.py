"""An agent that finds out what a user wants, delegates it, and gives one answer.

A reader proposes commands, a gate decides what is done about them. A question to the user ends the run: the reply comes
as the next request of the session, even days later.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from remit.ports.brief import Brief
from remit.protocol.card import Capability, Schema
from remit.protocol.envelope import Answer, Json
from remit.protocol.orchestration import Workflow
from remit.runtime.aside import aside
from remit_orchestrator.conversation import (
    Conversation,
    DoneWork,
    FilledInputs,
    RecalledConversations,
    fits,
    keep_question,
    merged_input,
    only_text,
    take_question,
)
from remit_orchestrator.dialogue.commands import (
    Agree,
    AskAbout,
    Choose,
    Command,
    Correct,
    Deny,
    Repeat,
    SetField,
    SmallTalk,
    TakeBack,
    TextSpan,
)
from remit_orchestrator.dialogue.gate import OPTIONS, DetectedIntent, GateDecision, Label, decide, words_for
from remit_orchestrator.dialogue.phrases import Phrases, Texts, consists_of, phrase_set, tokens
from remit_orchestrator.dialogue.questions import OpenQuestion, Option, question_for, quotable
from remit_orchestrator.dialogue.replies import (
    LONGEST_REPLY,
    Agreed,
    ChosenOption,
    NamedInPart,
    NoneOfThese,
    Other,
    TurnedDown,
    after_words,
    gives_only,
    read_reply,
)
from remit_orchestrator.dialogue.spans import TextPiece
from remit_orchestrator.follow_ups import known_answer, noted, remember_answer, repeatable
from remit_orchestrator.plan_state import (
    PlannedPart,
    PlanState,
    question_metadata,
    read_state,
    request_steps,
    shown,
    user_text,
)
from remit_orchestrator.planned_request import advance, with_reply
from remit_orchestrator.request_reading import RequestReading, is_one_request
from remit_orchestrator.text.conflicts.decided import disputes_of, settled_disputes
from remit_orchestrator.text.constraints import with_breaches
from remit_orchestrator.text.replies import asks_for_something, fields, takes_yes, wanted
from remit_orchestrator.workflow import ExecutionSettings, WorkflowExecution

# The warning to users whose request another reader read, because the model could not.
_FALLBACK_WARNING = "Your request was read without the model, and may have been misunderstood."
# A follow-up names what is different: "and the day after tomorrow in Rome?".
_MOST_FOLLOWING = 8

_Known = Mapping[str, tuple[Label, Capability]]


class Orchestrator:
    """Routes a user's request to a capability or a workflow."""

    remit_role = "planner"
    description = "Finds out what you want, has it done, and answers."

    def __init__(
        self,
        offered: Callable[[], _Known],
        reading: RequestReading,
        settings: ExecutionSettings,
        *,
        phrases: Phrases,
        wall_ms: Callable[[], int],
        cache_ms: int,
        aclose: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._offered = offered
        self._reading = reading
        self._phrases = phrases
        self._texts = phrases.texts
        self._settings = settings
        self._words = settings.words
        self._conversations = RecalledConversations(wall_ms)
        self._cache_ms = cache_ms
        self.aclose = aclose

    async def __call__(self, brief: Brief) -> Answer:
        try:
            return await self._answered(brief)
        finally:
            self._conversations.close(brief)

    async def _answered(self, brief: Brief) -> Answer:
        text = user_text(brief)
        pending = await take_question(brief)
        if pending is not None and "disputes" in pending:
            answer = await self._settle(brief, text[:LONGEST_REPLY], pending["disputes"])
            if answer is not None:
                return _uncached(answer)
            pending = None
        if pending is not None and (answer := await self._replied(brief, pending, text)) is not None:
            return _uncached(answer)
        return await self._new(brief, text, pending)

    # ── replies ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _replied(self, brief: Brief, pending: dict[str, Any], text: str) -> Answer | None:
        """Continue with the open question if this is the reply to it; None if it is a new text."""
        if "plan" in pending:
            return await self._plan_replied(brief, pending, text)
        asked = msgspec.convert(pending, OpenQuestion)
        if any(each.code not in self._reading.labels(brief) for each in asked.options):
            return self._menu(brief, self._texts.cannot, "cannot")  # days later it may no longer be offered
        names = [each.words for each in asked.options]
        meant = read_reply(text, [] if asked.kind == "fields" else names, self._phrases)
        if asked.kind == "fields":
            return await self._fields_replied(brief, asked, text, refused=meant == TurnedDown())
        match meant:
            case Agreed(rest=""):
                if asked.preferred or len(asked.options) == 1:
                    return await self._agreed(brief, asked.options[0])
                return await self._again(brief, pending, asked.question)
            case ChosenOption(place=place):
                return await self._agreed(brief, asked.options[place])
            case NamedInPart(place=place):
                return await self._say_back(brief, (asked.options[place],), asked.text)
            case NoneOfThese():
                if asked.more:
                    return await self._offer(brief, asked.more, asked.text, given=brief.request.input)
                return self._plain(self._texts.again, "noted")
            case TurnedDown(rest=""):
                return self._plain(self._texts.dropped, "noted")
            case Agreed(rest=rest) | TurnedDown(rest=rest):
                return await self._corrected_option(brief, asked.options[0], rest)
            case Other():
                # "To the station": a value that the best guess lacks.
                lacks = asked.preferred and asked.options[0].missing
                return await self._corrected_option(brief, asked.options[0], text) if lacks else None

    async def _agreed(self, brief: Brief, option: Option) -> Answer:
        """Do what the user agreed to with exactly what was shown; ask for what is missing."""
        if option.missing:
            return await self._ask_fields(brief, option, purpose="", agreed=True)
        return await self._perform(brief, option)

    async def _corrected_option(self, brief: Brief, option: Option, rest: str) -> Answer | None:
        """Say an option back with other values; None if the words give none."""
        _, capability = self._offered()[option.code]
        talk = await self._conversations.of(brief)
        rest = after_words(rest, phrase_set(self._phrases, "correct").prefix(tokens(rest))) or rest
        given = talk.corrected(capability, rest, option.input)
        if given is None:
            return None
        changed = await self._option(brief, option.code, option.text, given)
        if changed.missing:
            return await self._ask_fields(brief, changed, purpose=quotable(changed.words))
        return await self._say_back(brief, (changed,), option.text)

    async def _fields_replied(self, brief: Brief, asked: OpenQuestion, text: str, *, refused: bool) -> Answer | None:
        """Take the fields that a reply gives; what changes something is said back with them."""
        [option] = asked.options
        label, capability = self._offered()[option.code]
        if refused:
            return self._plain(self._texts.dropped, "noted")
        no_values = phrase_set(self._phrases, "undo", "again", "greet", "help")
        if consists_of(tokens(text[:LONGEST_REPLY]), no_values, phrase_set(self._phrases, "fillers")):
            return await self._again(brief, msgspec.to_builtins(asked), asked.question)
        if asks_for_something(text[:LONGEST_REPLY]) and await self._asks_for_another(brief, text, asked):
            return None
        expected = wanted(capability.input_schema, option.missing)
        agreed = read_reply(text, [], self._phrases) == Agreed()
        if agreed and not asked.offered and not takes_yes(expected):
            return await self._again(brief, msgspec.to_builtins(asked), asked.question)
        today = (await self._conversations.of(brief)).today
        values = await aside.run(fields, text, expected, fits, today)
        if asked.offered and agreed:
            values = {**asked.offered, **(values or {})}
        given = merged_input(option.stated, brief.request.input)
        if values is None and given == option.stated:
            return None
        given = merged_input(given, values or {})
        filled = await self._option(brief, option.code, option.text, given)
        if filled.missing:
            return await self._ask_fields(brief, filled, purpose="", agreed=asked.agreed)
        free = any(isinstance(each, str) and len(each.split()) > 2 for each in (values or {}).values())
        # Who has chosen it, and gives nothing but a number or one of a few words, has seen all that is sent.
        seen = asked.agreed and filled.input == merged_input(option.input, values or {})
        certain = seen and gives_only(text, values or {}, expected, self._phrases)
        if not label.confirm and (certain or (label.read_only and not free)):
            return await self._perform(brief, filled)
        return await self._say_back(brief, (filled,), option.text)

    async def _asks_for_another(self, brief: Brief, text: str, asked: OpenQuestion) -> bool:
        """Return whether a text surely asks for another capability than the one whose fields are asked for."""
        pieces = await self._reading.pieces(brief, text)
        talk = await self._conversations.of(brief)
        read, _ = await self._reading.read(brief, text, pieces, msgspec.to_builtins(asked), talk, name="other")
        decisions = self._reading.decided(read, self._reading.labels(brief))
        return any(
            each.confidence >= self._reading.thresholds.do and each.codes[:1] != (asked.options[0].code,)
            for each in decisions
        )

    async def _again(self, brief: Brief, pending: dict[str, Json], question: str) -> Answer:
        """Ask the same question again, for a reply that is no answer to it."""
        await keep_question(brief, pending)
        asked = f"{self._texts.not_understood}\n{question}"
        if "plan" in pending:
            metadata = question_metadata(read_state(pending))
            return Answer(self._words().clean_question(asked), requires_followup=True, metadata=metadata)
        again = msgspec.convert(pending, OpenQuestion)
        return self._asked(asked, again.decision, _codes_of(pending))

    # ── new texts ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _new(self, brief: Brief, text: str, pending: dict[str, Any] | None) -> Answer:
        talk = await self._conversations.of(brief)
        if (answer := await self._by_phrases(brief, text, talk, pending)) is not None:
            return _uncached(answer)
        labels = self._reading.labels(brief)
        pieces = await self._reading.pieces(brief, text)
        read, status = await self._reading.read(brief, text, pieces, pending, talk)
        if len(pieces) == 1 and (answer := await self._commanded(brief, read.commands.by_piece[0], talk, pending)):
            return _uncached(answer)
        decisions = self._reading.decided(read, labels)
        whole = decisions.pop() if len(decisions) > len(pieces) else None
        clear = any(each.action in {"do", "say_back"} for each in (*decisions, *((whole,) if whole else ())))
        if not clear and (receipt := noted(text, brief.known)):
            if pending is None:
                return _uncached(self._plain(receipt, "noted"))
            await keep_question(brief, pending)
            return self._asked(f"{receipt}\n\n{pending['question']}", "noted", _codes_of(pending))
        if (
            len(pieces) == 1
            and whole is None
            and (not clear or decisions[0].codes[:1] == tuple(each.code for each in talk.done[-1:]))
        ):
            last = talk.done[-1] if talk.done and pending is None else None
            if (answer := await self._like_the_last(brief, text, last, alone=True)) is not None:
                return _uncached(answer)
        if whole is not None and is_one_request(pieces, decisions, whole, labels, self._reading.thresholds):
            answer = await self._decided_alone(brief, text, whole, pending)
            if len(pieces) > 1 and pending is None and answer.metadata["decision"] != "cannot":
                answer = _after(answer, [self._texts.one_request.format(text=" ".join(text.split()))])
        elif len(pieces) > 1 or (pieces and pieces[0].condition):
            answer = await self._planned(brief, text, pieces, decisions, pending)
        else:
            answer = await self._decided_alone(brief, text, decisions[0] if decisions else None, pending)
        how: dict[str, Json] = {"cache_status": status}
        if not read.commands.notice:
            return replace(answer, metadata=answer.metadata | how)
        how["notice"] = read.commands.notice
        return replace(answer, metadata=answer.metadata | how, warnings=(*answer.warnings, _FALLBACK_WARNING))

    async def _by_phrases(
        self, brief: Brief, text: str, talk: Conversation, pending: dict[str, Any] | None
    ) -> Answer | None:
        """Answer a text that is nothing but a phrase, or a phrase and values for what was done last."""
        words = tokens(text) if len(text) <= LONGEST_REPLY else ()
        if not words:
            return None
        phrases, fillers = self._phrases, phrase_set(self._phrases, "fillers")
        last = talk.done[-1] if talk.done else None
        if consists_of(words, phrase_set(phrases, "again"), fillers):
            return await self._repeat(brief, last)
        if last is not None and pending is None and consists_of(words, phrase_set(phrases, "undo"), fillers):
            return await self._take_back(brief, last)
        if consists_of(words, phrase_set(phrases, "deny", "never_mind"), fillers):
            return self._plain(self._texts.dropped, "noted")
        if consists_of(words, phrase_set(phrases, "greet", "help", "agree"), fillers):
            if pending is not None:
                return await self._ask_again(brief, pending)
            return self._menu(brief, self._texts.greeting, "greeted")
        return await self._like_the_last(brief, text, last, alone=False)

    async def _like_the_last(self, brief: Brief, text: str, last: DoneWork | None, *, alone: bool) -> Answer | None:
        """Do the last thing with the values of a text that follows it up; None if it has none.

        *alone*: the text asks for nothing else, so that all of it may be the value.
        """
        words = tokens(text) if len(text) <= LONGEST_REPLY else ()
        if last is None:
            return None
        for kind, most in (("correct", len(words)), ("follow_up", _MOST_FOLLOWING)):
            count = phrase_set(self._phrases, kind).prefix(words)
            rest = after_words(text, count)
            if count and rest and len(words) - count <= most:
                answer = await self._with_other_values(brief, last, rest, {}, alone=alone)
                if answer is not None:
                    return answer
        if not alone or len(words) > _MOST_FOLLOWING:
            return None
        return await self._with_other_values(brief, last, text, {}, alone=False)

    async def _commanded(
        self, brief: Brief, commands: Sequence[Command], talk: Conversation, pending: dict[str, Any] | None
    ) -> Answer | None:
        """Answer what a reader proposes besides capabilities; a model's agreement is never enough to act."""
        last = talk.done[-1] if talk.done else None
        match commands[0] if commands else None:
            case SmallTalk() | AskAbout():
                return None if pending is not None else self._menu(brief, self._texts.greeting, "greeted")
            case Repeat():
                return await self._repeat(brief, last)
            case TakeBack() if last is not None and pending is None:
                return await self._take_back(brief, last)
            case Correct(span=span, values=values) if last is not None or pending is not None:
                return await self._with_command(brief, last, pending, span.of(user_text(brief)), values)
            case SetField(field=name, value=value, span=span) if last is not None or pending is not None:
                values = {} if value is None else {name: value}
                return await self._with_command(brief, last, pending, span.of(user_text(brief)), values)
            case Choose(option=number) if pending is not None and "options" in pending:
                asked = msgspec.convert(pending, OpenQuestion)
                if 0 < number <= len(asked.options):
                    return await self._say_back(brief, (asked.options[number - 1],), asked.text)
                return await self._ask_again(brief, pending)
            case Agree() if pending is not None:
                return await self._ask_again(brief, pending)
            case Deny():
                return self._plain(self._texts.dropped, "noted")
            case _:
                return None

    async def _with_command(
        self,
        brief: Brief,
        last: DoneWork | None,
        pending: dict[str, Any] | None,
        words: str,
        values: Mapping[str, Json],
    ) -> Answer | None:
        """Do the last thing, or say back what the question is about, with other values."""
        if pending is not None and "options" in pending:
            option = msgspec.convert(pending, OpenQuestion).options[0]
            last = DoneWork(option.code, "", option.text, None, option.input)
        return None if last is None else await self._with_other_values(brief, last, words, values)

    async def _ask_again(self, brief: Brief, pending: dict[str, Any]) -> Answer:
        return await self._again(brief, pending, str(pending["question"]))

    async def _decided_alone(
        self, brief: Brief, text: str, decision: GateDecision | None, pending: dict[str, Any] | None
    ) -> Answer:
        """Do what was decided about a text that asks for one thing."""
        given = brief.request.input
        if decision is None or not decision.codes:
            return await self._ask_again(brief, pending) if pending else self._menu(brief, self._texts.cannot, "cannot")
        if pending is not None and decision.action in {"offer", "cannot"}:
            other = await self._changed(brief, text, pending) or await self._joined(brief, text, pending)
            return other or await self._ask_again(brief, pending)
        before = _given_up(pending, self._texts)
        first = decision.codes[0]
        if decision.action == "do" or (decision.action == "say_back" and not before):
            best = await self._option(brief, first, text, merged_input(decision.values.get(first), given))
            if decision.action == "do":
                answer = await (
                    self._ask_fields(brief, best, purpose="") if best.missing else self._perform(brief, best)
                )
                return _after(answer, before)
        if decision.action in {"do", "say_back"}:
            options = [
                await self._option(brief, code, text, merged_input(decision.values.get(code), given))
                for code in decision.codes
            ]
            if options[0].missing and (len(options) == 1 or decision.confidence >= self._reading.thresholds.do):
                return _after(await self._ask_fields(brief, options[0], purpose=quotable(options[0].words)), before)
            return _after(await self._say_back(brief, options, text), before)
        if decision.action == "offer":
            return await self._offer(brief, decision.codes, text, given=given)
        return await self._offer(brief, decision.codes, text, given=given, cannot=True)

    async def _changed(self, brief: Brief, text: str, pending: dict[str, Any]) -> Answer | None:
        """Ask about the best guess with a value that a text changes: "Friday is better"; None if it changes none."""
        if "plan" in pending:
            return None
        asked = msgspec.convert(pending, OpenQuestion)
        if asked.kind == "options" and not asked.preferred:
            return None
        return await self._corrected_option(brief, asked.options[0], text)

    async def _joined(self, brief: Brief, text: str, pending: dict[str, Any]) -> Answer | None:
        """Say back what a reply means together with the words that led to the question; None if they say no more."""
        if "options" not in pending or "plan" in pending:
            return None
        asked = msgspec.convert(pending, OpenQuestion)
        if asked.kind != "options" or asked.preferred or len(asked.text) > LONGEST_REPLY:
            return None
        joint = f"{text}\n{asked.text}"
        codes = {each.code for each in asked.options}
        labels = {code: each for code, each in self._reading.labels(brief).items() if code in codes}
        read = await self._reading.support.read(
            joint, [TextSpan(0, len(joint))], self._reading.state(brief, (), None, None), brief
        )
        decision = decide(read.by_piece[0], labels, thresholds=self._reading.thresholds)
        if decision.action not in {"do", "say_back"}:
            return None
        options = [await self._option(brief, code, joint, brief.request.input) for code in decision.codes]
        return await self._say_back(brief, options, joint)

    async def _planned(
        self,
        brief: Brief,
        text: str,
        pieces: Sequence[TextPiece],
        decisions: Sequence[GateDecision],
        pending: dict[str, Any] | None,
    ) -> Answer:
        """Make a plan of several pieces, and begin with it."""
        labels = self._reading.labels(brief)
        parts = tuple(
            PlannedPart.of(text, place, pieces, decision, labels, self._phrases)
            for place, decision in enumerate(decisions)
        )
        if not any(each.code or each.options for each in parts):
            if pending is not None:
                return await self._ask_again(brief, pending)
            codes = list(dict.fromkeys(code for each in decisions for code in each.codes))[:OPTIONS]
            return await self._offer(brief, codes, text, given=brief.request.input, cannot=True)
        state = PlanState(parts=parts, text=text, given=brief.request.input)
        return _after(await self._advanced(brief, state), _given_up(pending, self._texts))

    async def _plan_replied(self, brief: Brief, pending: dict[str, Any], text: str) -> Answer | None:
        """Continue a plan with the reply to the question about it; None if the reply says nothing about it."""
        state, talk = read_state(pending), await self._conversations.of(brief)
        state = replace(state, given=merged_input(state.given, brief.request.input))
        expected = self._wanted([each.code for each in state.parts if each.code], state.topic.get("names", ()))
        further = await aside.run(with_reply, state, text[:LONGEST_REPLY], expected, talk.today, self._phrases)
        if further == "dropped":
            left = [f"“{each.text}”" for at, each in enumerate(state.parts) if at not in state.settled and each.code]
            return self._plain(f"{self._texts.dropped} ({', '.join(left)})" if left else self._texts.dropped, "noted")
        if further == "again":
            return await self._ask_again(brief, pending)
        return None if further is None else await self._advanced(brief, further)

    async def _advanced(self, brief: Brief, state: PlanState) -> Answer:
        """Do what can be done of a plan; store the question that is left, with what was done so far."""
        talk = await self._conversations.of(brief)
        answer, waiting = await advance(self._offered(), self._settings, brief, state, talk, self._phrases)
        if waiting is not None:
            await keep_question(brief, {"plan": msgspec.to_builtins(waiting), "question": answer.result})
        elif "conflicts" in answer.metadata and (disputes := disputes_of(answer)):
            await keep_question(brief, {"disputes": disputes})
        return answer

    # ── questions to the user ─────────────────────────────────────────────────────────────────────────────────────────

    async def _option(self, brief: Brief, code: str, text: str, given: Json) -> Option:
        """Return a capability with exactly the input that it would be used with."""
        talk = await self._conversations.of(brief)
        _, capability = self._offered()[code]
        filled = await aside.run(FilledInputs.of, talk, [capability], text, given)
        words = words_for(code, self._reading.labels(brief)) or f"“{text}”"
        return Option(
            code=code,
            words=words,
            values=shown(filled.inputs[0], text),
            text=text,
            input=filled.inputs[0],
            stated=filled.stated,
            missing=tuple(filled.missing),
            lead=filled.lead(self._texts).strip(),
        )

    async def _say_back(self, brief: Brief, options: Sequence[Option], text: str) -> Answer:
        """Say back the best guess for a yes, with the others beside it."""
        if len(options) == 1:
            lines = [self._texts.confirm.format(best=quotable(options[0].shown))]
        else:
            lines = [self._texts.first_or_another, *self._listed(options)]
        asked = OpenQuestion(
            kind="options", question="\n".join(lines), text=text, options=tuple(options), preferred=True
        )
        return await self._keep(brief, asked)

    async def _offer(
        self, brief: Brief, codes: Sequence[str], text: str, *, given: Json, cannot: bool = False
    ) -> Answer:
        """Offer up to three capabilities and none of these; more are offered if it is none of them."""
        if not codes:
            return self._menu(brief, self._texts.cannot, "cannot")
        options = [await self._option(brief, code, text, given) for code in codes[:OPTIONS]]
        heading = self._texts.perhaps_cannot if cannot else self._texts.pick
        question = "\n".join((heading, *self._listed(options)))
        asked = OpenQuestion(
            kind="options", question=question, text=text, options=tuple(options), more=tuple(codes[OPTIONS:])
        )
        return await self._keep(brief, asked, "cannot" if cannot else None)

    def _listed(self, options: Sequence[Option]) -> list[str]:
        return [f"{place}. {each}" for place, each in enumerate([*(one.shown for one in options), self._texts.none], 1)]

    async def _ask_fields(self, brief: Brief, option: Option, *, purpose: str, agreed: bool = False) -> Answer:
        """Ask for the fields that are missing."""
        _, capability = self._offered()[option.code]
        talk = await self._conversations.of(brief)
        missing = wanted(capability.input_schema, option.missing)
        filled = FilledInputs.of(talk, [capability], option.text, option.stated)
        asking = question_for(missing, self._texts, filled.offered)
        question = f"{filled.lead(self._texts)}{f'{purpose}? ' if purpose else ''}{asking}"
        asked = OpenQuestion(
            kind="fields",
            question=question,
            text=option.text,
            options=(option,),
            offered=filled.offered,
            agreed=agreed,
        )
        return await self._keep(brief, asked)

    async def _keep(self, brief: Brief, asked: OpenQuestion, decision: str | None = None) -> Answer:
        await keep_question(brief, msgspec.to_builtins(asked))
        return self._asked(asked.question, decision or asked.decision, [each.code for each in asked.options])

    def _asked(self, question: str, decision: str, codes: Sequence[str]) -> Answer:
        metadata: dict[str, Json] = {"decision": decision, "options": list(codes)}
        return Answer(self._words().clean_question(question), requires_followup=True, metadata=metadata)

    def _plain(self, text: str, decision: str) -> Answer:
        metadata: dict[str, Json] = {"decision": decision, "options": [], "intent": None}
        return Answer(self._words().clean_question(text), metadata=metadata)

    def _menu(self, brief: Brief, heading: str, decision: str) -> Answer:
        """Return what can be done, with what only reads apart from what changes something."""
        labels = self._reading.labels(brief)
        groups: dict[bool, dict[str, None]] = {True: {}, False: {}}
        for code in labels:
            if words := words_for(code, labels):
                groups[labels[code].read_only].setdefault(words)
        lines = [f"{heading} {self._texts.offer}" if any(groups.values()) else heading]
        headed = all(groups.values())
        for title, words in zip((self._texts.tells, self._texts.does), groups.values(), strict=True):
            lines += [title] if headed else []
            lines += (f"- {each}" for each in words)
        answer = self._plain("\n".join(lines), decision)
        return replace(answer, confidence=0.0) if decision == "cannot" else answer

    async def _settle(self, brief: Brief, reply: str, disputes: list[dict[str, Any]]) -> Answer | None:
        """Store which value the user chose where sources disagree, so that later agents in the conversation know it."""
        decisions, left = settled_disputes(reply, disputes)
        if not decisions:
            return None
        for decision in decisions:
            brief.note("decision", decision)
        text = self._words().clean("\n".join((*decisions, *(str(each["question"]) for each in left))))
        if not left:
            return Answer(text, metadata={"decision": "noted", "options": []})
        await keep_question(brief, {"disputes": cast("Json", left)})
        return Answer(text, requires_followup=True, metadata={"decision": "asked", "options": []})

    def _wanted(self, codes: Sequence[str], names: Sequence[str]) -> dict[str, Schema]:
        """Return the current schemas of the fields that the user was asked for."""
        offered = self._offered()
        schemas: dict[str, Schema] = {}
        for code in codes:
            schema = offered[code][1].input_schema if code in offered else None
            schemas |= {name: each for name, each in wanted(schema, names).items() if not schemas.get(name)}
        return schemas

    # ── after an act ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _repeat(self, brief: Brief, last: DoneWork | None) -> Answer:
        """Do the last thing again: at once if it only reads, else after a yes."""
        if last is None or last.code not in self._reading.labels(brief):
            return self._plain(self._texts.nothing_done, "noted")
        talk = await self._conversations.of(brief)
        talk.anew = True
        option = await self._option(brief, last.code, last.request, last.input)
        return await self._perform_or_confirm(brief, option)

    async def _perform_or_confirm(self, brief: Brief, option: Option) -> Answer:
        label, _ = self._offered()[option.code]
        if option.missing:
            return await self._ask_fields(brief, option, purpose=quotable(option.words))
        if label.read_only and not label.confirm:
            return await self._perform(brief, option)
        return await self._say_back(brief, (option,), option.text)

    async def _with_other_values(
        self, brief: Brief, last: DoneWork, words: str, values: Mapping[str, Json], *, alone: bool = True
    ) -> Answer | None:
        """Do the last thing with other values; None if the words give none. *alone*: all of them may be one."""
        if last.code not in self._reading.labels(brief):
            return None
        _, capability = self._offered()[last.code]
        talk = await self._conversations.of(brief)
        known: Json = last.input
        before = cast("dict[str, Json]", known) if isinstance(known, dict) else {}
        given = {**before, **values} if values else talk.corrected(capability, words, known)
        if given is None and alone:
            given = only_text(capability, words, before)
        if given is None:
            return None
        return await self._perform_or_confirm(brief, await self._option(brief, last.code, words, given))

    async def _take_back(self, brief: Brief, last: DoneWork) -> Answer:
        """Say back what undoes the last thing, or say who can be asked."""
        labels = self._reading.labels(brief)
        label = labels.get(last.code)
        if label is None or label.undo not in labels:
            whom = "" if label is None else self._texts.who_can.format(agent=label.target)
            metadata: dict[str, Json] = {"decision": "cannot", "options": []}
            # The agent is named on purpose: it is who can be asked.
            return Answer(f"{self._texts.no_undo} {whom}".strip(), metadata=metadata)
        known: dict[str, Json] = {}
        results: tuple[Json, ...] = (last.input, last.output)
        for each in results:
            known |= cast("dict[str, Json]", each) if isinstance(each, dict) else {}
        _, capability = self._offered()[label.undo]
        properties = cast("Mapping[str, object]", (capability.input_schema or {}).get("properties") or {})
        given: dict[str, Json] = {name: each for name, each in known.items() if name in properties}
        option = await self._option(brief, label.undo, last.request, given or None)
        if option.missing:
            return await self._ask_fields(brief, option, purpose=quotable(option.words))
        return await self._say_back(brief, (option,), option.text)

    # ── delegating ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _perform(self, brief: Brief, option: Option) -> Answer:
        """Have it done by whoever offers it, with exactly the input of the option, and remember what came of it."""
        label, capability = self._offered()[option.code]
        talk = await self._conversations.of(brief)
        intent = DetectedIntent(option.code, label.target)
        metadata: dict[str, Json] = {
            "decision": "did",
            "options": [option.code],
            "intents": [{"capability": option.code, "agent": label.target}],
        }
        question = repeatable(
            brief, [intent], [(label, capability)], option.text, [option.input], option.stated, self._cache_ms
        )
        talk.learn_given(capability, option.stated)
        if (known := known_answer(question, talk)) is not None:
            return replace(known, metadata=known.metadata | metadata)
        steps = request_steps(brief, [intent], [capability], option.text, [option.input], self._words().title)
        execution = WorkflowExecution(
            Workflow(name="orchestrator", steps=steps),
            brief,
            self._settings,
            request=option.text,
            recalled=talk.handoff(),
        )
        answer = await execution.run()
        if disputes := disputes_of(answer):
            await keep_question(brief, {"disputes": disputes})
        codes = {step.name: option.code for step in steps}
        inputs = {step.name: option.input for step in steps}
        talk.learn_done(codes, option.text, execution.responses, inputs)
        answer = with_breaches(answer, brief.known, option.text, execution.responses.values(), self._words().clean)
        if option.lead and isinstance(answer.result, str):
            answer = replace(answer, result=f"{option.lead}\n\n{answer.result}")
        remember_answer(question, answer, talk)
        await talk.keep(brief, changed=not label.read_only)
        return replace(answer, metadata=answer.metadata | metadata)


def _uncached(answer: Answer) -> Answer:
    return replace(answer, metadata={"cache_status": "bypass"} | answer.metadata)


def _codes_of(pending: Mapping[str, Any]) -> list[str]:
    return [each["code"] for each in pending.get("options", ())]


def _given_up(pending: dict[str, Any] | None, texts: Texts) -> list[str]:
    """Return what is not gone on with, because the user asks for something else."""
    if pending is None or "plan" not in pending:
        return []
    state = read_state(pending)
    return [
        texts.given_up.format(text=each.text)
        for at, each in enumerate(state.parts)
        if at not in state.settled and each.code
    ]


def _after(answer: Answer, lines: Sequence[str]) -> Answer:
    return replace(answer, result="\n\n".join((str(answer.result), "\n".join(lines)))) if lines else answer
