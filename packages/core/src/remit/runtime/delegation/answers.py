"""Answers on their way to their caller, judged in the same fold of guards as calls and uses of tools."""

import logging
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from msgspec.structs import replace

from remit.policy.guards import judge
from remit.policy.restoring import restore
from remit.policy.verdict import Ask, Facts, Refuse, Rewrite
from remit.policy.weight import is_light_response
from remit.ports import Remote
from remit.protocol.codec import checked, convert
from remit.protocol.envelope import MODEL, Answer, AnswerContent, Call, Json, Request, Response, fields_of
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.runtime.aside import aside
from remit.runtime.context import Delegator, RuntimeContext
from remit.runtime.frames import Frame

log = logging.getLogger("remit")

JudgeAnswer = Callable[[Request, Facts], Awaitable[Rewrite | Refuse | Ask]]

_NOTHING = AnswerContent()
_NO_OPINIONS: dict[str, Json] = {}
WITHHELD = "What was finished is withheld: a guard of this hub does not let it pass as it is."


def is_judged_above(parts: RuntimeContext, frame: Frame) -> bool:
    """Return whether another hub of the same team asked, which judges the answer by the same guards."""
    return frame.parent is None and frame.request.via == parts.registry.hub


def content_of(response: Response) -> AnswerContent:
    """Return the content of a response, without the note about its model, which its caller does not get."""
    content = AnswerContent(**fields_of(AnswerContent, response))
    if MODEL not in content.metadata:
        return content
    return replace(content, metadata={name: each for name, each in content.metadata.items() if name != MODEL})


def with_content(response: Response, content: AnswerContent) -> Response:
    """Return a response with other content."""
    model = {name: each for name, each in response.metadata.items() if name == MODEL}
    return replace(response, **fields_of(AnswerContent, replace(content, metadata=content.metadata | model)))


def answer_of(frame: Frame, content: AnswerContent) -> Request:
    """Return an answer as the request that guards judge, and that a person is shown: its result is the input."""
    asked = frame.request
    return Request(
        version=asked.version,
        id=asked.id,
        origin=frame.card.name,
        target=asked.origin,
        remit=asked.remit,
        objective=asked.objective,
        capability=asked.capability,
        input=content.result,
        run=asked.run,
        parent=asked.parent,
        session=asked.session,
        parent_session=asked.parent_session,
        created_ms=asked.created_ms,
        act="answer",
    )


def facts_of_answer(
    parts: RuntimeContext,
    frame: Frame,
    content: AnswerContent,
    approved: frozenset[str] = frozenset(),
    opinions: Mapping[str, Json] = _NO_OPINIONS,
) -> Facts:
    """Return the facts that the guards need about an answer: the target is who gets it."""
    return Facts(
        target=None if frame.parent is None else frame.parent.card,
        caller=frame.card,
        held=frame.request.remit,
        limits=parts.limits,
        agents=parts.registry.agents,
        approved=approved,
        sealing=frame.run.sealing,
        answer=content,
        opinions=opinions,
    )


class AnswerJudgement:
    """Judges each answer before its caller gets it, wherever the callee runs."""

    def __init__(self, dispatch: Delegator, judge_answer: JudgeAnswer) -> None:
        self._dispatch = dispatch
        self._parts = dispatch.parts
        self._judge = judge_answer

    async def judged(self, frame: Frame, response: Response) -> Response:
        """Return the response as the guards let it pass: as it is, changed, or without its content."""
        held = content_of(response)
        if held == _NOTHING or is_judged_above(self._parts, frame):
            return response
        known = frame.run.known
        light = is_light_response(response)
        raw = content_of(restore(response, known) if light else await aside.run(restore, response, dict(known)))
        try:
            passed = await self._passed(frame, raw)
            if passed == raw:
                return response
            return await self._changed(frame, response, held, passed)
        except RemitError as error:
            # Guards saw raw values, and may have named them.
            return withheld(frame, response, self._parts.redactor.clean(error.fault, frame.run.sealing))

    async def _passed(self, frame: Frame, content: AnswerContent) -> AnswerContent:
        """Return what the guards let pass of an answer, as a person may have edited it; raise if nothing is."""
        approved, questions, opinions = frozenset[str](), 0, dict[str, Json]()
        while True:
            request, facts = answer_of(frame, content), facts_of_answer(self._parts, frame, content, approved, opinions)
            match await self._judge(request, facts):
                case Rewrite(answer=passed):
                    return content if passed is None else passed
                case Refuse(fault=why):
                    raise RemitError(why)
                case Ask(question=question, agent=agent) if agent and agent not in opinions:
                    opinions[agent] = await self._opinion(frame, agent, question, _shown(content))
                case Ask() as ask:
                    shown = replace(request, input=_shown(content), files=content.files)
                    self._dispatch.tasks.pause(frame)
                    try:
                        edits = await self._dispatch.approval.ask_person(shown, ask, questions, frame.run)
                    finally:
                        self._dispatch.tasks.unpause(frame)
                    approved, questions = (frozenset[str]() if edits else approved) | {ask.question}, questions + 1
                    if "input" in edits:
                        content, opinions = _edited(content, edits["input"]), {}

    async def _opinion(self, frame: Frame, agent: str, question: str, about: Json) -> Json:
        """Return what an agent thinks of an answer, as a call of whoever gave it; raise if it gives no opinion."""
        asking = frame.parent if isinstance(frame.agent, Remote) else frame
        if asking is None:
            why = f"{agent} cannot be asked about an answer of {frame.card.name}, which runs elsewhere"
            raise RemitError(fault(Code.PERMISSION_DENIED, why))
        begun = await self._dispatch.begin(asking, Call(target=agent, objective=question, input=about))
        if isinstance(begun, Frame):
            begun.consulted = True
            (begun,) = await self._dispatch.tasks.join(None, (begun,))
        if begun.fault is not None:
            raise RemitError(begun.fault)
        return begun.result

    async def _changed(self, frame: Frame, response: Response, held: AnswerContent, passed: AnswerContent) -> Response:
        """Return the response with what a guard or a person made of its content, with tokens again."""
        valid = checked(Answer(**fields_of(AnswerContent, passed)))
        what = f"what was changed in the answer of {frame.card.name}"
        changed = with_content(response, AnswerContent(**fields_of(AnswerContent, valid)))
        clean, mine = await self._parts.redactor.strike_given(frame.run, changed, msgspec.to_builtins(held), what)
        self._dispatch.recording.notice(frame, f"its answer was changed before {frame.request.origin} got it")
        frame.partial = frame.streamed = None
        return restore(clean, mine)


def _shown(content: AnswerContent) -> Json:
    """Return what a person is shown of an answer: its result, or all of it if it has more; files are shown apart."""
    own = replace(content, files=())
    return content.result if own == AnswerContent(result=content.result) else msgspec.to_builtins(own)


def _edited(content: AnswerContent, given: Json) -> AnswerContent:
    if _shown(content) is content.result:
        return replace(content, result=given)
    return replace(convert(given, AnswerContent), files=content.files)


def withheld(frame: Frame, response: Response, why: Fault) -> Response:
    """Return the response without its content; a success has failed for this reason."""
    frame.partial = frame.streamed = None
    if response.ok:
        response = replace(response, status=Status.FAILED, fault=why)
    return with_content(response, _NOTHING)


def judged_unfinished(parts: RuntimeContext, frame: Frame, response: Response) -> Response:
    """Return the response of a stopped delegation, without its content unless all guards let that pass as it is.

    Nothing can be awaited for it any more, so nobody is asked.
    """
    if content_of(response) == _NOTHING or is_judged_above(parts, frame):
        return response
    content = content_of(restore(response, frame.run.known))
    try:
        verdict = judge(answer_of(frame, content), facts_of_answer(parts, frame, content), parts.answer_guards)
    except Exception as error:  # noqa: BLE001 - guards come from users, too
        log.error("a guard failed on %s: %s", frame.path, parts.redactor.traced(error))
        verdict = None
    if isinstance(verdict, Rewrite) and verdict.answer == content:
        return response
    return with_content(response, AnswerContent(warnings=(WITHHELD,)))
