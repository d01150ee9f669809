"""Makes the models and the detector that a team file names, and checks that the models can be called."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.config.checks import secret_of
from remit.config.sections.agents import AgentSection
from remit.config.sections.hub import ContextSection
from remit.config.sections.orchestration import ConflictsSection
from remit.config.team import TeamFile
from remit.protocol.errors import RemitError, in_sentences
from remit.protocol.problems import WrongPart
from remit.runtime.registry import team_invalid

if TYPE_CHECKING:  # it imports the event loop, which most commands do not need
    from remit.agents.entailment import EntailmentModel
    from remit.agents.model import ModelAgent
    from remit.runtime.ports import Summarizer

from remit.config.code import code_at, found
from remit.config.team import Team
from remit.detectors.pipeline import DEFAULT_REGIONS, detector_pipeline
from remit.policy.verdict import Detector


def model_agent(agent: AgentSection, environ: Mapping[str, str] = os.environ) -> ModelAgent:
    """Return an agent backed by a model, or raise a `RemitError` if its API key is not in the environment."""
    from remit.agents.model import ModelAgent

    assert agent.model is not None, "only an agent of a model is one"
    return ModelAgent(
        agent.model,
        base_url=agent.base_url,
        api_key=_key(agent.api_key, environ),
        settings=agent.settings,
        max_tool_rounds=agent.max_tool_rounds,
        max_output_tokens=agent.max_output_tokens,
        history_tokens=agent.history_tokens,
        sub_agent_arguments=agent.sub_agent_arguments,
        structured_answers=agent.structured_answers,
    )


def summarizer_of(context: ContextSection, environ: Mapping[str, str] = os.environ) -> Summarizer | None:
    """Return the summarizer with a model; None if no model is configured."""
    if context.summary_model is None:
        return None
    from remit.agents.model import summarizer

    key = _key(context.summary_api_key, environ)
    return summarizer(context.summary_model, base_url=context.summary_base_url, api_key=key)


def orchestrator_model(team: TeamFile, environ: Mapping[str, str] = os.environ) -> ModelAgent | None:
    """Return the model of the orchestrator and workflows, or None."""
    section = team.orchestrator
    if section is None or section.model is None:
        return None
    from remit.agents.model import ModelAgent

    key = _key(section.api_key, environ)
    return ModelAgent(section.model, base_url=section.base_url, api_key=key, settings=section.settings)


def conflicts_model(team: Team, environ: Mapping[str, str] = os.environ) -> ModelAgent | EntailmentModel | None:
    """Return the model that reads results for conflicts, or None."""
    section = None if team.orchestrator is None else team.orchestrator.conflicts
    if section is None:
        return None
    if section.onnx is not None:
        return _entailment_model(section, section.onnx, team.folder)
    return model_agent(_as_agent(section), environ)


def _entailment_model(section: ConflictsSection, onnx: str, folder: Path) -> EntailmentModel:
    from remit.agents.entailment import EntailmentModel

    return EntailmentModel(folder / onnx, labels=section.labels, threshold=section.threshold)


def _as_agent(section: ConflictsSection) -> AgentSection:
    return AgentSection(
        model=section.model, base_url=section.base_url, api_key=section.api_key, settings=section.settings
    )


_OF_LANGUAGE_MODELS = {"base_url", "api_key", "settings"}
_OF_ENTAILMENT_MODELS = {"labels", "threshold"}


def undecided_reader(said: dict[str, Any], team: TeamFile) -> Iterator[WrongPart]:
    """Return a second reader of conflicts that is not of exactly one kind, and keys that its kind does not have."""
    if team.orchestrator is None or team.orchestrator.conflicts is None:
        return
    place, keys = ("orchestrator", "conflicts"), said["orchestrator"]["conflicts"]
    if ("model" in keys) == ("onnx" in keys):
        why = 'needs one of two: a `model`, as in `model = "openai:gpt-5-mini"`, or `onnx`, the path of a model\'s file'
        yield WrongPart(place, why)
    elif "model" in keys:
        for key in sorted(_OF_ENTAILMENT_MODELS & keys.keys()):
            yield WrongPart((*place, key), f"`{key}` is for a second reader that has `onnx`")
    else:
        for key in sorted(_OF_LANGUAGE_MODELS & keys.keys()):
            yield WrongPart((*place, key), f"`{key}` is for a second reader that has a `model`")


def uncallable(team: TeamFile, folder: Path, environ: Mapping[str, str]) -> Iterator[WrongPart]:
    """Return models that cannot be called: unknown ones, and those whose package, file or API key is missing."""
    for name, agent in team.hosted.items():
        if agent.model is not None and agent.run is None and _is_set(agent.api_key, environ):
            yield from _why_not(("agents", name, "model"), agent, environ)
    context = team.context
    if context.summary_model is not None and _is_set(context.summary_api_key, environ):
        made = AgentSection(
            model=context.summary_model, base_url=context.summary_base_url, api_key=context.summary_api_key
        )
        yield from _why_not(("context", "summary_model"), made, environ)
    section = team.orchestrator
    if section is not None and section.model is not None and _is_set(section.api_key, environ):
        made = AgentSection(
            model=section.model, base_url=section.base_url, api_key=section.api_key, settings=section.settings
        )
        yield from _why_not(("orchestrator", "model"), made, environ)
    reader = None if section is None else section.conflicts
    if reader is not None and reader.onnx is not None:
        try:
            _entailment_model(reader, reader.onnx, folder).check()
        except RemitError as error:
            yield WrongPart(("orchestrator", "conflicts", "onnx"), error.fault.message)
    elif reader is not None and reader.model is not None and _is_set(reader.api_key, environ):
        yield from _why_not(("orchestrator", "conflicts", "model"), _as_agent(reader), environ)
    if section is not None and section.classifier == "embeddings":
        from remit.classifiers.embeddings import check

        try:
            check()
        except RemitError as error:
            yield WrongPart(("orchestrator", "classifier"), error.fault.message)


def _why_not(place: tuple[str, ...], agent: AgentSection, environ: Mapping[str, str]) -> Iterator[WrongPart]:
    try:
        model_agent(agent, environ).check()
    except RemitError as error:
        yield WrongPart(place, in_sentences(error.fault.message, error.fault.suggestion))


def _is_set(reference: str | None, environ: Mapping[str, str]) -> bool:
    """Return whether an API key is set; a missing one is reported where the file names it."""
    return reference is None or bool(environ.get(reference.removeprefix("$"), "").strip())


def _key(reference: str | None, environ: Mapping[str, str]) -> str | None:
    try:
        return None if reference is None else secret_of(reference, environ)
    except ValueError as error:
        raise team_invalid(str(error)) from error


def detector_of(team: Team) -> Detector | bool:
    """Return the detector for data that a team's agents must not see; False if redaction is off."""
    said = team.redaction
    if not said.enabled:
        return False
    return detector_pipeline(
        kinds=said.kinds,
        extra=[found(code_at, run, team.folder) for run in said.detectors],
        patterns=said.patterns,
        regions=DEFAULT_REGIONS if said.regions is None else said.regions,
    )
