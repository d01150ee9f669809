"""A workflow as an agent: it delegates its steps, in parallel where possible, and answers with their results.

Each step is requested under its name, so after a restart the journal answers finished steps in any order.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from msgspec.structs import replace

from remit.ports.brief import Brief
from remit.protocol.envelope import Answer, ContextFilter, Handoff, Json, Response
from remit.protocol.errors import Code, RemitError
from remit.protocol.lifecycle import Status
from remit.protocol.orchestration import Step, Workflow
from remit.protocol.records import StepPlan
from remit.words.components import Component, Findings
from remit_orchestrator.conflict_reader import ConflictReader, ModelReader, QuoteReader
from remit_orchestrator.text.conflicts import find
from remit_orchestrator.text.conflicts.decided import decided_conflicts, with_decisions
from remit_orchestrator.text.conflicts.second_reader import DEMANDS
from remit_orchestrator.text.constraints import broken, demands_of, pointed_out
from remit_orchestrator.text.summaries import notes_of
from remit_orchestrator.workflow_answer import Narrator, Wording, answer_of, blend_of, compared_of, title_of
from remit_orchestrator.workflow_plan import (
    INPUT,
    REQUEST,
    NextSteps,
    StepOutcome,
    filled,
    planned_steps,
    ready,
    waits_for,
)

# A callee's retry time is respected up to this; a step has its own time, and so has the workflow.
MAX_WAIT_MS = 60_000
# The progress text while a model combines the results.
_TELLING = "Putting the results together…"


Gate = Callable[[Step, Mapping[str, StepOutcome], Mapping[str, Response]], Step | StepOutcome | None]
"""Returns a step if it may begin, its outcome if it is not to be done, or None if it has to wait for the user."""


class ExecutionSettings(NamedTuple):
    """What all executions of workflows in one hub share."""

    words: Callable[[], Wording]
    at_once: Callable[[], int]
    """How many delegations an agent may have in progress."""
    reader: Callable[[], ConflictReader | None]
    """The second reader of the results."""
    narrator: Narrator | None = None
    """Has a model write one text from several results."""


class WorkflowAgent:
    """Executes a workflow within each brief; run it as a resumable agent, so that it survives a restart."""

    remit_role = "workflow"

    def __init__(self, workflow: Workflow, settings: ExecutionSettings) -> None:
        self.workflow = workflow
        self.description = workflow.description
        self._settings = settings

    async def __call__(self, brief: Brief) -> Answer:
        return await WorkflowExecution(self.workflow, brief, self._settings).run()

    async def aclose(self) -> None:
        """Close the connections to the model that combines the results, if there is one."""
        if self._settings.narrator is not None:
            await self._settings.narrator.aclose()


class WorkflowExecution:
    """One execution of a workflow."""

    def __init__(
        self,
        workflow: Workflow,
        brief: Brief,
        settings: ExecutionSettings,
        *,
        request: str | None = None,
        recalled: Handoff | None = None,
        gate: Gate | None = None,
        before: Mapping[str, Response] | None = None,
    ) -> None:
        """*gate* is asked before each step; *before* has results of earlier runs, which steps may come after.

        *recalled* is what was done earlier in the conversation.
        """
        self._workflow = workflow
        self._waits = {step.name: waits_for(step) for step in workflow.steps}
        self._brief = brief
        self._words = settings.words()
        self._narrator = settings.narrator
        self._reader = settings.reader()
        self._request = brief.original_request if request is None else request
        # What was agreed to with a "yes" is still what the user asked for before.
        self._handed_on = _request_of(brief) if request is None else request
        self._room = asyncio.Semaphore(settings.at_once())
        self._given: Json = brief.request.input
        self._recalled = recalled or _NOTHING
        """If nothing was done there is nothing to show, and an answer that is cached for the user can be given."""
        self._gate = gate
        self._held: set[str] = set()
        """Steps that wait for the user."""
        self._before = dict(before or {})
        self._ended = {name: _outcome(response) for name, response in self._before.items()}
        self._responses = dict(self._before)
        self._unsaid = StepPlan(steps=planned_steps(workflow, self._waits, title_of))
        """What the next progress report says of the plan."""

    async def run(self) -> Answer:
        """Execute all possible steps and return the answer; raises the first fault if no step succeeded."""
        await self._do_all()
        if not any(ended.usable for ended in self._ended.values()) and not any(
            map(_has_part, self._responses.values())
        ):
            for response in self._responses.values():
                if response.fault is not None:
                    raise RemitError(response.fault)
        return await self._written_answer()

    @property
    def ended(self) -> Mapping[str, StepOutcome]:
        """The outcomes of the steps so far."""
        return self._ended

    @property
    def responses(self) -> Mapping[str, Response]:
        """The responses of the steps that were asked."""
        return self._responses

    def templated_answer(self) -> Answer:
        """Return the answer by the template, also if nothing succeeded."""
        return self._answer()

    async def _written_answer(self) -> Answer:
        """Return the answer, written by a model if there is one; otherwise, or if that fails, by the template."""
        components = compared_of(self._workflow, self._ended, self._responses, self._words)
        findings, metadata = self._with_decisions(find(components)), dict[str, Json]()
        if self._reader is not None:
            reading = await self._reader.read(components, findings, self._brief)
            findings, metadata = reading.findings, reading.metadata
        against = await self._against_demands(components)
        known = self._workflow, self._ended, self._responses, self._words, findings
        blend = None if self._narrator is None else blend_of(*known, self._request)
        if self._narrator is None or blend is None:
            answer = answer_of(*known)
            answer = replace(answer, metadata=answer.metadata | metadata) if metadata else answer
            return pointed_out(answer, against, self._words.clean)
        self._brief.progress(_TELLING, partial=self._partial_answer)
        narration = await self._narrator.tell(blend, self._brief, self._reader)
        answer = answer_of(*known, blend=narration.text)
        answer = replace(answer, metadata=answer.metadata | metadata | narration.metadata)
        return pointed_out(answer, against, self._words.clean)

    async def _against_demands(self, components: Sequence[Component]) -> list[str]:
        """Return what a model as second reader quotes of the results as going against what the user demanded."""
        demands = demands_of((*self._brief.known, *notes_of(self._request)))
        if not (demands and components and isinstance(self._reader, ModelReader)):
            return []
        return broken(await QuoteReader(self._reader.model, DEMANDS).quotes(demands, components, self._brief))

    async def _do_all(self) -> None:
        running: dict[asyncio.Task[StepOutcome], Step] = {}
        try:
            while True:
                begun = [*(step.name for step in running.values()), *self._held]
                next_steps = self._admitted(ready(self._workflow, self._ended, self._given, begun, waits=self._waits))
                self._skip(next_steps)
                if len(next_steps.begin) == 1 and not next_steps.skip and not running:
                    [step] = next_steps.begin
                    self._ended[step.name] = await self._do(step)
                    continue
                for step in next_steps.begin:
                    running[asyncio.get_running_loop().create_task(self._do(step))] = step
                if next_steps.skip:
                    continue  # other steps may wait for one that will not be done
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

    def _skip(self, next_steps: NextSteps) -> None:
        self._ended |= {step.name: ended for step, ended in next_steps.skip}
        skipped = {step.name: ended.why for step, ended in next_steps.skip}
        self._unsaid = replace(self._unsaid, skipped=self._unsaid.skipped | skipped)

    def _say_begun(self, step: Step) -> None:
        """Report that a step begins, and what those who watch do not know of the plan yet."""
        plan, self._unsaid = self._unsaid, _NOTHING_NEW
        self._brief.progress(
            self._words.progress(step), partial=self._partial_answer, plan=None if plan == _NOTHING_NEW else plan
        )

    def _admitted(self, next_steps: NextSteps) -> NextSteps:
        """Return the next steps as the gate lets them pass."""
        if self._gate is None:
            return next_steps
        begin: list[Step] = []
        skip = list(next_steps.skip)
        for step in next_steps.begin:
            match self._gate(step, self._ended, self._responses):
                case Step() as passed:
                    begin.append(passed)
                case StepOutcome() as outcome:
                    skip.append((step, outcome))
                case None:
                    self._held.add(step.name)
        return NextSteps(begin=tuple(begin), skip=tuple(skip))

    async def _do(self, step: Step) -> StepOutcome:
        """Execute a step, with retries and fallback agents, until it succeeds or no agent is left."""
        async with self._room:
            self._say_begun(step)
            names = (step.name if attempt == 1 else f"{step.name}~{attempt}" for attempt in count(1))
            unknown = count(1)
            for agent in (step.agent, *step.fallback):
                for left in reversed(range(step.attempts)):
                    response = await self._ask(step, agent, next(names))
                    while _is_unknown(response) and await self._brief.confirm(
                        self._repeat_question(step, next(unknown))
                    ):
                        response = await self._ask(step, agent, next(names))
                    self._responses[step.name] = response
                    if response.ok:
                        return _outcome(response)
                    if _is_unknown(response):  # nobody approved doing it again, here or elsewhere
                        return self._failed(step)
                    if not left or not await self._may_retry(response):
                        break
            return self._failed(step)

    def _repeat_question(self, step: Step, times: int) -> str:
        """Return a question with a unique id: an approval of one step, or after one restart, does not count for
        the next.
        """
        place = 1 + [each.name for each in self._workflow.steps].index(step.name)
        which = f"{self._words.clean(title_of(step))} (step {place} of {len(self._workflow.steps)})"
        begun = "" if times == 1 else f" It was begun {times} times so far."
        return f"It is not known whether this was done before the restart: {which}.{begun} Shall it be done again?"

    def _failed(self, step: Step) -> StepOutcome:
        why = self._responses[step.name].fault
        return StepOutcome(state="failed", why="" if why is None else why.outward().message, result=step.default)

    def _partial_answer(self) -> Answer:
        """Return the partial answer if the time runs out: the steps that are done."""
        return self._answer() if any(ended.usable for ended in self._ended.values()) else Answer()

    def _answer(self) -> Answer:
        known = self._workflow, self._ended, self._responses, self._words
        return answer_of(*known, self._with_decisions(find(compared_of(*known))))

    def _with_decisions(self, findings: Findings) -> Findings:
        """Return findings read with what the user decided before about the same values."""
        if not findings.conflicts:
            return findings
        decisions = (note.text for note in self._brief.known if note.kind == "decision")
        return with_decisions(findings, decided_conflicts(decisions))

    async def _ask(self, step: Step, agent: str | None, name: str) -> Response:
        results = self._results()
        options: dict[str, Any] = {
            "objective": filled(step.objective, results) if step.objective else title_of(step),
            "input": filled(step.input, results),
            "capability": step.capability,
            "deadline_ms": step.time_ms,
            "max_tokens": step.tokens if step.share is None else int(step.share * self._brief.remit.tokens),
            "max_cost": step.cost,
            "context": _shown(step.context, _RECENT if self._recalled.prior_agents else _NOTES_ALONE),
            "handoff": self._handoff(step),
            "step": name,
            "files": self._brief.files if step.files else (),
        }
        return await self._brief.delegate(agent, **options)

    def _results(self) -> dict[str, Json]:
        done = {name: ended.result for name, ended in self._ended.items()}
        return {**done, INPUT: self._given, REQUEST: self._handed_on or self._brief.text}

    def _handoff(self, step: Step) -> Handoff:
        """Return the handoff to a step's callee (K5): the results of the steps that it waits for."""
        order = [*self._before, *(each.name for each in self._workflow.steps)]
        before = [name for name in order if name in self._waits[step.name] and self._ended[name].usable]
        came = [self._responses[name] for name in before]
        position = f"Step {order.index(step.name) + 1} of {len(order)} ({title_of(step)})"
        # The caller's handoff holds for all steps.
        given, earlier = self._brief.handoff, self._recalled
        return replace(
            given,
            original_request=self._handed_on,
            # A filter says which part of the conversation the callee sees, so it must not get the whole conversation
            # beside it.
            history=self._brief.request.session if step.context is None else None,
            position=f"{position}, within {given.position}" if given.position else position,
            prior_agents=tuple(
                dict.fromkeys((*earlier.prior_agents, *given.prior_agents, *(each.target for each in came)))
            ),
            prior_outputs={
                **earlier.prior_outputs,
                **given.prior_outputs,
                **{name: self._ended[name].result for name in before},
            },
            findings=(*given.findings, *(each.summary for each in came if each.summary)),
            # The limitations of a result are assumptions for all steps that build on it.
            assumptions=(*given.assumptions, *(warning for each in came for warning in each.warnings)),
        )

    async def _may_retry(self, response: Response) -> bool:
        """Return whether a retry may help, after the pause."""
        why = response.fault
        if why is None or not why.recoverable:
            return False
        wait_ms = min(why.retry_after_ms or 0, MAX_WAIT_MS)
        if wait_ms >= self._brief.time_left_ms():
            return False
        if wait_ms:
            await asyncio.sleep(wait_ms / 1_000)
        return True


def _outcome(response: Response) -> StepOutcome:
    """Return the outcome of a step that succeeded."""
    state = "done" if response.status is Status.SUCCESS else "partial"
    return StepOutcome(state=state, result=response.result, confidence=response.confidence)


def _is_unknown(response: Response) -> bool:
    return response.fault is not None and response.fault.code is Code.OUTCOME_UNKNOWN


# ── the answer ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _request_of(brief: Brief) -> str:
    """Return the user's request for the callees of steps; if an agent is the caller, only if it handed the
    request on.
    """
    return brief.original_request if brief.request.parent is None else brief.handoff.original_request


def _shown(wanted: ContextFilter | None, otherwise: ContextFilter) -> ContextFilter:
    """Return the filter for a step's callee: everything known, unless the step says otherwise (K14)."""
    if wanted is None:
        return otherwise
    return wanted if wanted.known is not None else replace(wanted, known="all")


_NOTES_ALONE = ContextFilter(last_messages=0, known="all")
# The last three requests and their answers: what goes further back is in the notes.
_RECENT = ContextFilter(last_messages=6, known="all")
_NOTHING = Handoff()
_NOTHING_NEW = StepPlan()


def _has_part(response: Response) -> bool:
    """Tell whether a step that ran out of time had finished a part, which is worth telling."""
    return response.status is Status.TIMEOUT and response.result not in (None, "")
