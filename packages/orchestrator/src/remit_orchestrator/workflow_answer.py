"""The answer of a workflow, from the results of its steps: by a template, or written by a model and checked."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.aggregate import Blend, with_findings
from remit.policy.budget import estimate, grant_time_ms
from remit.ports.brief import Brief
from remit.protocol.card import Schema
from remit.protocol.envelope import Answer, Json, Response
from remit.protocol.errors import Code, RemitError
from remit.protocol.files import fitting
from remit.protocol.orchestration import Step, Workflow
from remit.words.components import Findings, capital
from remit.words.failures import plain_part
from remit.words.names import unified, without_names
from remit_models.model import ModelAgent, model_agent
from remit_models.prompting import ModelPrompt
from remit_orchestrator.conflict_reader import ConflictReader, ModelReader, QuoteReader
from remit_orchestrator.text.conflicts.fields import SameFields, with_same_fields
from remit_orchestrator.text.faithfulness import Held, hold
from remit_orchestrator.text.narration import NOTHING_DONE, NarrativeSection, narrate, progress_phrase, section_of
from remit_orchestrator.workflow_plan import StepOutcome, questions

if TYPE_CHECKING:
    from pydantic_ai.models import Model


log = logging.getLogger("remit")

# A model writes a page in less time. Waiting longer would keep finished results from the user.
PATIENCE_MS = 30_000
# No model answers in less time.
LEAST_MS = 1_000


class ModelNarration(Struct, frozen=True, kw_only=True):
    """The text that a model wrote from several results, or the reason why there is none."""

    text: str = ""
    held: Held | None = None
    """How the results bear out what the model wrote; None if it wrote nothing."""
    why: str = ""
    """Why the model wrote nothing."""

    @property
    def metadata(self) -> dict[str, Json]:
        """The same as metadata for programs."""
        if self.held is None:
            return {"narrated": "template", "not_told": self.why}
        return {"narrated": "model" if self.text else "template", **self.held.metadata}


def narrator_of(model: "str | Model | ModelAgent | None") -> "Narrator | None":
    """Return the narrator for a model, given in any form; None without a model."""
    return None if model is None else Narrator(model_agent(model))


class Narrator:
    """Has a model write one text from several results, within the remaining budget of a brief."""

    def __init__(self, model: ModelAgent) -> None:
        self._model = model
        self.aclose = model.aclose

    async def tell(self, blend: Blend, brief: Brief, reader: ConflictReader | None) -> ModelNarration:
        """Return what the results carry of the model's text, if it came in time and nothing essential is missing.

        Where it has other words than the results, the second reader has to quote what bears it out; without a language
        model as second reader, the model that wrote it.
        """
        # The text is about as long as the results it is written from.
        if brief.tokens_left() < 2 * estimate(blend.prompt):
            return ModelNarration(why="too few tokens are left")
        time_ms = grant_time_ms(self._model.patience_ms(PATIENCE_MS), brief.time_left_ms())
        if time_ms < LEAST_MS:
            return ModelNarration(why="too little time is left")
        try:
            prompt = ModelPrompt(instructions=blend.instructions, messages=(), task=blend.material)
            answer = await self._model.reply(brief, prompt, time_ms=time_ms)
        except RemitError as error:
            if error.fault.code is Code.CANCELLED:
                raise
            log.warning("%s could not write one text from the results: %s", self._model.name, error.fault.code)
            return ModelNarration(why=error.fault.message)
        if answer.unfinished:
            return ModelNarration(why="; ".join(answer.unfinished))
        text = str(answer.result).strip()
        # Checking every statement against all results takes long, so it runs in a thread.
        held = await asyncio.to_thread(hold, text, blend)
        if held.unsupported and not held.rejected:
            model = reader.model if isinstance(reader, ModelReader) else self._model
            unsure = [sentence for sentence, _ in held.unsupported]
            if quotes := await QuoteReader(model).quotes(unsure, blend.components, brief):
                held = await asyncio.to_thread(hold, text, blend, quotes)
        return ModelNarration(text=held.text, held=held)


# The answer if the step with the result was not done but others were, and the answer if no step had to be done.
_NOT_REACHED = "This could not be finished."


_NOT_NEEDED = "Nothing had to be done."


class Wording(Struct, frozen=True, kw_only=True):
    """A team's wording for texts to users, and the fields of its results that hold the same thing."""

    glossary: Mapping[str, str] = {}
    """The preferred term for each variant."""
    phrases: Mapping[str, str] = {}
    """Progress texts by capability code."""
    descriptions: Mapping[str, str] = {}
    """Descriptions of capabilities by code."""
    forbidden: Collection[str] = ()
    """Names of agents and codes of capabilities, which are never shown to users."""
    data: Collection[str] = ()
    """Codes of capabilities whose results are data, by their schemas."""
    same_fields: Callable[[], SameFields] = dict[str, tuple[tuple[str, str], ...]]
    """Reads the schemas of results; a function, because most answers compare nothing."""

    def clean(self, text: str) -> str:
        """Return a text with the team's terms, and without names and codes."""
        return without_names(unified(text, self.glossary), self.forbidden)

    def clean_question(self, text: str) -> str:
        """Return a question, an offer or a title without names and codes; its words are the team's own already."""
        return without_names(text, self.forbidden)

    def clean_result(self, result: Json, capability: str | None) -> Json:
        """Return a result that is a text for people as `clean` does; data are never rewritten.

        Data are everything but texts, what the schema of its capability restricts, a single word, and a text that is
        JSON or markup.
        """
        if not isinstance(result, str) or capability in self.data or not _is_prose(result):
            return result
        return self.clean(result)

    def title(self, code: str) -> str:
        """Return the title of a step for a capability, for users."""
        return progress_phrase(code, self.phrases, self.descriptions.get(code, ""), forbidden=self.forbidden)

    def progress(self, step: Step) -> str:
        """Return the progress text of a step, for users (K6)."""
        if step.title:
            return without_names(step.title, self.forbidden)
        about = self.descriptions.get(step.capability or "", "")
        return progress_phrase(step.capability, self.phrases, about, forbidden=self.forbidden)


def is_data(schema: Schema | None) -> bool:
    """Return whether a schema describes data: anything but a text without restrictions on its content."""
    return schema is not None and (schema.get("type") != "string" or not _RESTRICTIONS.isdisjoint(schema))


_RESTRICTIONS = frozenset({"enum", "const", "pattern", "format", "contentMediaType", "contentEncoding"})


def _is_prose(text: str) -> bool:
    return len(text.split(None, 1)) > 1 and text.lstrip()[0] not in "{[<"


def title_of(step: Step) -> str:
    """Return the heading for a step's result: its progress text, without the words that say it is in progress."""
    title = step.title.rstrip("…. ")
    bare = title.removeprefix("Let me ").removeprefix("Working on ")
    return (title if bare == title else capital(bare)) or step.name.replace("_", " ").capitalize()


def blend_of(
    workflow: Workflow,
    ended: Mapping[str, StepOutcome],
    responses: Mapping[str, Response],
    words: Wording,
    findings: Findings,
    request: str,
) -> Blend | None:
    """Return the material from which a model writes a workflow's answer; None if there is at most one result.

    A result that already combines others, and names conflicts or missing parts, is not rewritten: these could be lost.
    """
    _, reported, _ = _reported_steps(workflow, ended)
    sections = [each for step in reported if (each := _section(step, ended, responses)).result not in (None, "")]
    for section in sections:
        response = responses[section.name]
        if section.whole and (response.unfinished or response.requires_followup or _conflicts(response.metadata)):
            return None
    if len(sections) < 2:
        return None
    return Blend(
        request=request, components=tuple(sections), conflicts=findings.conflicts, glossary=dict(words.glossary)
    )


def compared_of(
    workflow: Workflow, ended: Mapping[str, StepOutcome], responses: Mapping[str, Response], words: Wording
) -> list[NarrativeSection]:
    """Return the results that may contradict each other, each with the question that it answers."""
    step_questions = questions(workflow)
    useful, _, _ = _reported_steps(workflow, ended)
    sections = [replace(_section(step, ended, responses), question=step_questions[step.name]) for step in useful]
    if len(sections) < 2:
        return sections
    return with_same_fields(sections, [step.capability for step in useful], words.same_fields())


def _reported_steps(workflow: Workflow, ended: Mapping[str, StepOutcome]) -> tuple[list[Step], list[Step], bool]:
    """Return the steps with a result, those that users are told of, and whether all of that is the answer."""
    steps = [step for step in workflow.steps if step.name in ended]
    useful = [step for step in steps if ended[step.name].usable]
    whole = workflow.result is None or workflow.result not in ended or not ended[workflow.result].usable
    # A step with a false condition was not requested, so it is not missing. The step with the result is never left out.
    reported = [step for step in steps if ended[step.name].wanted or step.name == workflow.result]
    if whole and workflow.result is not None:
        # The other steps served a goal that was not reached: their results are not what was asked for.
        reported = [step for step in reported if step not in useful]
    return useful, reported, whole


def answer_of(
    workflow: Workflow,
    ended: Mapping[str, StepOutcome],
    responses: Mapping[str, Response],
    words: Wording,
    findings: Findings,
    *,
    blend: str = "",
) -> Answer:
    """Return the answer of a workflow: results and confidence, conflicts, missing parts and the reasons.

    *blend* is a text that combines the results.
    """
    useful, reported, whole = _reported_steps(workflow, ended)
    answered = useful if whole else [step for step in useful if step.name == workflow.result]
    came = [responses[step.name] for step in answered]
    narrative = narrate(
        [_section(step, ended, responses) for step in reported],
        findings,
        glossary=words.glossary,
        forbidden=words.forbidden,
        blend=blend,
        nothing=_without_results(useful, reported),
    )
    rated = [each for step in useful if (each := ended[step.name].confidence) is not None]
    finished = chain.from_iterable(_finished(step, responses[step.name]) for step in useful)
    unfinished = (
        *(title_of(step) for step in reported if _is_unfinished(step, workflow, ended)),
        # What is missing in a part is missing in the whole.
        *(plain_part(missing) for response in came for missing in response.unfinished),
    )
    files, left_out = fitting([file for response in came for file in response.files])
    answer = Answer(
        narrative.text if whole else words.clean_result(ended[answered[0].name].result, answered[0].capability),
        summary="" if whole else narrative.text,
        confidence=sum(rated) / len(rated) if rated else None,
        finished=tuple(map(words.clean_question, finished)),
        unfinished=tuple(map(words.clean_question, unfinished)),
        files=files,
        warnings=left_out,
        metadata={
            "workflow": workflow.name,
            "steps": {name: {"state": each.state, "why": each.why} for name, each in ended.items()},
        },
    )
    answer = with_findings(answer, findings)
    titles = {step.name: words.clean_question(title_of(step)) for step in useful}
    conflicts = [_read_by_users(each, titles, words, with_question=whole) for each in _conflicts(answer.metadata)]
    conflicts += [each for response in came for each in _conflicts(response.metadata)]
    return replace(
        answer,
        requires_followup=(whole and bool(narrative.questions)) or any(each.requires_followup for each in came),
        metadata=answer.metadata | {"conflicts": conflicts},
    )


def _is_unfinished(step: Step, workflow: Workflow, ended: Mapping[str, StepOutcome]) -> bool:
    """Return whether a step failed that its workflow needs: a required one, or the one that gives the result."""
    return not ended[step.name].usable and (not step.optional or step.name == workflow.result)


def _without_results(useful: Collection[Step], reported: Collection[Step]) -> str:
    """Return the sentence for an answer without any text from a step; it agrees with what was finished."""
    if useful:
        return _NOT_REACHED
    return NOTHING_DONE if reported else _NOT_NEEDED


def _finished(step: Step, response: Response) -> tuple[str, ...]:
    """Return the finished work of a step; for a nested workflow, each of its own steps."""
    return response.finished if "workflow" in response.metadata and response.finished else (title_of(step),)


def _conflicts(metadata: Mapping[str, Json]) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", metadata.get("conflicts", []))


def _read_by_users(
    conflict: dict[str, Any], titles: Mapping[str, str], words: Wording, *, with_question: bool
) -> dict[str, Any]:
    """Return a conflict with its question and its sources in the words that users read.

    If only one result is returned, the user is not asked: the question would not be in the text that the user reads.
    """
    values = [each | {"sources": [titles[name] for name in each["names"]]} for each in conflict["values"]]
    question = words.clean(conflict["question"]) if with_question and conflict["question"] else None
    return conflict | {"values": values, "question": question}


def _section(step: Step, ended: Mapping[str, StepOutcome], responses: Mapping[str, Response]) -> NarrativeSection:
    """Return the section of a step; sources are distinguished by the steps' names, which nobody reads."""
    response = responses.get(step.name)
    if response is None:
        why = "what it builds on could not be done" if ended[step.name].wanted else "its condition does not hold"
        return NarrativeSection(step.name, title=title_of(step), skipped=why)
    # For a step that timed out, the finished part is included.
    result = ended[step.name].result if ended[step.name].usable else response.result
    whole = "workflow" in response.metadata and not response.summary
    return replace(section_of(title_of(step), response), name=step.name, result=result, whole=whole)
