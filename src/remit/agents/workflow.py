"""A workflow as an agent: it asks for its steps, side by side where it can, and answers with what they came to.

Each step is asked for under its name, so after a restart the journal answers those that were done, in whichever order.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.aggregate import with_findings
from remit.policy.conflicts import find
from remit.policy.narrate import Section, narrate, plain, progress_phrase, section_of
from remit.policy.plan import INPUT, REQUEST, Ended, Step, Workflow, filled, ready, waits_for
from remit.protocol.envelope import Answer, Handoff, Json, Response
from remit.protocol.errors import Code, RemitError
from remit.protocol.lifecycle import Status
from remit.runtime.brief import Brief

# As many delegations as an agent may have under way if its team says nothing else.
AT_ONCE = 3
# Who says when to come back is believed up to here; a step has its own time, and the workflow too.
MAX_WAIT_MS = 60_000


class Words(Struct, frozen=True, kw_only=True):
    """How a team wants its users to be spoken to."""

    glossary: Mapping[str, str] = {}
    """The one term for each variant of it."""
    phrases: Mapping[str, str] = {}
    """What users read while a capability is at work, by its code."""
    descriptions: Mapping[str, str] = {}
    """What capabilities are for, by their codes."""
    forbidden: Collection[str] = ()
    """Names of agents and codes of capabilities: users never read them."""

    def title(self, code: str) -> str:
        """Return what a step for a capability is called where users read it."""
        return progress_phrase(code, self.phrases, self.descriptions.get(code, ""), forbidden=self.forbidden)

    def progress(self, step: Step) -> str:
        """Return what users read while a step is at work (K6)."""
        if step.title:
            return plain(step.title, self.forbidden)
        about = self.descriptions.get(step.capability or "", "")
        return progress_phrase(step.capability, self.phrases, about, forbidden=self.forbidden)


class WorkflowAgent:
    """Carries out a workflow within each brief; run it as a resumable agent, so that it survives a restart."""

    def __init__(
        self, workflow: Workflow, *, words: Callable[[], Words] = Words, at_once: Callable[[], int] = lambda: AT_ONCE
    ) -> None:
        self.workflow = workflow
        self.description = workflow.description
        self._words = words
        self._at_once = at_once

    async def __call__(self, brief: Brief) -> Answer:
        return await Course(self.workflow, brief, self._words(), self._at_once()).run()


class Course:
    """One carrying out of a workflow."""

    def __init__(self, workflow: Workflow, brief: Brief, words: Words, at_once: int) -> None:
        self._workflow = workflow
        self._brief = brief
        self._words = words
        self._room = asyncio.Semaphore(at_once)
        self._given: Json = brief.request.input
        self._ended: dict[str, Ended] = {}
        self._responses: dict[str, Response] = {}

    async def run(self) -> Answer:
        """Do what can be done, and return what it came to; raises the first fault if nothing could be."""
        await self._do_all()
        if not any(ended.usable for ended in self._ended.values()):
            for response in self._responses.values():
                if response.fault is not None:
                    raise RemitError(response.fault)
        return self._answer()

    async def _do_all(self) -> None:
        running: dict[asyncio.Task[Ended], Step] = {}
        try:
            while True:
                found = ready(self._workflow, self._ended, self._given, [step.name for step in running.values()])
                self._ended |= {step.name: ended for step, ended in found.skip}
                for step in found.begin:
                    running[asyncio.get_running_loop().create_task(self._do(step))] = step
                if found.skip:
                    continue  # others may wait for what is not going to be done
                if not running:
                    return
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    self._ended[running.pop(task).name] = task.result()
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)

    async def _do(self, step: Step) -> Ended:
        """Ask for a step, again and elsewhere if need be, until it is done or nobody is left to ask."""
        async with self._room:
            self._brief.progress(self._words.progress(step), partial=self._so_far())
            names = (step.name if attempt == 1 else f"{step.name}~{attempt}" for attempt in count(1))
            for agent in (step.agent, *step.fallback):
                for _ in range(step.attempts):
                    response = await self._ask(step, agent, next(names))
                    while _is_unknown(response) and await self._brief.confirm(_again(step)):
                        response = await self._ask(step, agent, next(names))
                    self._responses[step.name] = response
                    if response.ok:
                        state = "done" if response.status is Status.SUCCESS else "partial"
                        return Ended(state=state, result=response.result, confidence=response.confidence)
                    if _is_unknown(response):  # nobody agreed to do it again, here or elsewhere
                        return self._failed(step)
                    if not await self._may_help(response):
                        break
            return self._failed(step)

    def _failed(self, step: Step) -> Ended:
        why = self._responses[step.name].fault
        return Ended(state="failed", why="" if why is None else why.message)

    def _so_far(self) -> Answer | None:
        """Return what is kept if the time runs out: what was done until now."""
        return self._answer() if any(ended.usable for ended in self._ended.values()) else None

    def _answer(self) -> Answer:
        return answer_of(self._workflow, self._ended, self._responses, self._words)

    async def _ask(self, step: Step, agent: str | None, name: str) -> Response:
        results = self._results()
        options: dict[str, Any] = {
            "objective": filled(step.objective, results) if step.objective else _title(step),
            "input": filled(step.input, results),
            "capability": step.capability,
            "deadline_ms": step.time_ms,
            "max_tokens": self._tokens(step),
            "context": step.context,
            "handoff": self._handoff(step),
            "step": name,
        }
        return await self._brief.delegate(agent, **options)

    def _results(self) -> dict[str, Json]:
        done = {name: ended.result for name, ended in self._ended.items()}
        return {**done, INPUT: self._given, REQUEST: self._brief.original_request}

    def _tokens(self, step: Step) -> int | None:
        if step.share is None:
            return step.tokens
        return int(step.share * self._brief.remit.tokens)

    def _handoff(self, step: Step) -> Handoff:
        """Return what the callee of a step is told of the work so far (K5): of what came before, what it waits for."""
        order = [each.name for each in self._workflow.steps]
        before = [name for name in order if name in waits_for(step) and self._ended[name].usable]
        return Handoff(
            original_request=self._brief.original_request,
            history=self._brief.request.session,
            position=f"Step {order.index(step.name) + 1} of {len(order)} ({_title(step)})",
            prior_agents=tuple(dict.fromkeys(self._responses[name].target for name in before)),
            prior_outputs={name: self._ended[name].result for name in before},
        )

    async def _may_help(self, response: Response) -> bool:
        """Say whether asking again may help, once it is time to."""
        why = response.fault
        if why is None or not why.recoverable:
            return False
        wait_ms = min(why.retry_after_ms or 0, MAX_WAIT_MS)
        if wait_ms >= self._brief.time_left_ms():
            return False
        if wait_ms:
            await asyncio.sleep(wait_ms / 1_000)
        return True


def _is_unknown(response: Response) -> bool:
    return response.fault is not None and response.fault.code is Code.OUTCOME_UNKNOWN


def _again(step: Step) -> str:
    return f"It is not known whether this was done before the restart: {_title(step)}. Shall it be done again?"


# ── the answer ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _title(step: Step) -> str:
    return step.title.rstrip("…. ") or step.name.replace("_", " ").capitalize()


def answer_of(
    workflow: Workflow, ended: Mapping[str, Ended], responses: Mapping[str, Response], words: Words
) -> Answer:
    """Return what a workflow came to: what was done and how sure that is, where it differs, what was not, and why."""
    steps = [step for step in workflow.steps if step.name in ended]
    useful = [step for step in steps if ended[step.name].usable]
    # A step whose condition does not hold is not missing: it was not asked for.
    told = [step for step in steps if ended[step.name].wanted]
    findings = find([_section(step, ended, responses) for step in useful])
    narrative = narrate(
        [_section(step, ended, responses) for step in told],
        findings,
        glossary=words.glossary,
        forbidden=words.forbidden,
    )
    rated = [each for step in useful if (each := ended[step.name].confidence) is not None]
    whole = workflow.result is None or workflow.result not in ended
    answer = Answer(
        narrative.text if whole else ended[workflow.result or ""].result,
        summary="" if whole else narrative.text,
        confidence=sum(rated) / len(rated) if rated else None,
        requires_followup=bool(narrative.questions),
        finished=tuple(map(_title, useful)),
        unfinished=tuple(_title(step) for step in told if not step.optional and not ended[step.name].usable),
        metadata={
            "workflow": workflow.name,
            "steps": {name: {"state": each.state, "why": each.why} for name, each in ended.items()},
        },
    )
    return with_findings(answer, findings)


def _section(step: Step, ended: Mapping[str, Ended], responses: Mapping[str, Response]) -> Section:
    """Return what is told of a step; sources are told apart by the steps' names, which nobody reads."""
    response = responses.get(step.name)
    if response is None:
        return Section(step.name, title=_title(step), skipped="what it builds on could not be done")
    return replace(section_of(_title(step), response), name=step.name, result=ended[step.name].result)
