"""What the orchestrator and the workflows of a team file mean: their checks, and the agents that they give a hub."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.protocol.card import Capability
from remit.protocol.envelope import USER
from remit.protocol.errors import RemitError
from remit.protocol.problems import WrongPart
from remit_cli.config.checks import OF_MODELS
from remit_cli.config.origins import Place
from remit_cli.config.resources import model_agent, uncallable_model
from remit_cli.config.sections.agents import (
    AgentSection,
    ConflictsSection,
    EncoderSection,
    OrchestratorSection,
    WorkflowSection,
)
from remit_cli.config.team import Composition, Inspection, Names, Team, TeamFile, TeamSection
from remit_cli.config.values import duration_ms, optional_ms
from remit_orchestrator.dialogue.phrases import LANGUAGES, phrases_of
from remit_orchestrator.workflow_plan import Offered, problems, waits_for

if TYPE_CHECKING:  # every command with a team imports this module
    from remit_models.model import ModelAgent
    from remit_orchestrator.conflict_reader import EntailmentModel
    from remit_orchestrator.readers.embeddings import EncoderFiles

# ── checks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _problems(inspection: Inspection) -> Iterator[WrongPart]:
    values, team = inspection.values, inspection.team
    yield from _modelless(values, team)
    yield from _impossible_workflows(values, team, inspection.names)
    yield from _undecided_reader(values, team)


def _modelless(values: dict[str, Any], team: TeamFile) -> Iterator[WrongPart]:
    """Return uses of the orchestrator's model if there is none, and a model that nothing uses."""
    section = team.orchestrator
    keys: dict[str, Any] = {} if section is None else values["orchestrator"]
    users = [("workflows", name, "narrate") for name, each in team.workflows.items() if each.narrate == "model"]
    users += [("orchestrator", key) for key in ("reader", "narrate") if getattr(section, key, None) == "model"]
    if "model" not in keys:
        for place in users:
            needs = "a `model`" if place[0] == "orchestrator" else "a `model` in `[orchestrator]`"
            yield WrongPart(place, f'`{place[-1]} = "model"` needs {needs}, as in "openai:gpt-5-mini"')
        for key in OF_MODELS & keys.keys():
            yield WrongPart(("orchestrator", key), f"`{key}` is for an orchestrator that has a `model`")
    elif not users:
        why = 'nothing uses it: say `reader = "model"` or `narrate = "model"`'
        yield WrongPart(("orchestrator", "model"), why)


_OF_LANGUAGE_MODELS = {"base_url", "api_key", "settings"}
_OF_ENTAILMENT_MODELS = {"labels", "threshold"}


def _undecided_reader(values: dict[str, Any], team: TeamFile) -> Iterator[WrongPart]:
    """Return a second reader of conflicts that is not of exactly one kind, and keys that its kind does not have."""
    if team.orchestrator is None or team.orchestrator.conflicts is None:
        return
    place, keys = ("orchestrator", "conflicts"), values["orchestrator"]["conflicts"]
    if ("model" in keys) == ("onnx" in keys):
        why = 'needs one of two: a `model`, as in `model = "openai:gpt-5-mini"`, or `onnx`, the path of a model\'s file'
        yield WrongPart(place, why)
    elif "model" in keys:
        for key in sorted(_OF_ENTAILMENT_MODELS & keys.keys()):
            yield WrongPart((*place, key), f"`{key}` is for a second reader that has `onnx`")
    else:
        for key in sorted(_OF_LANGUAGE_MODELS & keys.keys()):
            yield WrongPart((*place, key), f"`{key}` is for a second reader that has a `model`")


def _impossible_workflows(values: dict[str, Any], team: TeamFile, names: Names) -> Iterator[WrongPart]:
    """Return workflows that cannot be executed, and those whose name is taken."""
    # The capabilities of an agent with an invalid section are unknown.
    callees: dict[str, Collection[str] | None] = dict.fromkeys((*names["agents"], *names["workflows"]))
    callees |= dict.fromkeys(team.workflows, ())
    callees |= {name: agent.capabilities for name, agent in team.agents.items()}
    if team.orchestrator is not None:
        name = team.orchestrator.name
        if name == USER or name in (*names["agents"], *names["workflows"]):
            yield WrongPart(("orchestrator", "name"), f"`{name}` is taken; give the orchestrator another name")
    for name, section in team.workflows.items():
        place = ("workflows", name)
        if name == USER:
            yield WrongPart(place, f"`{USER}` is the name of the user; give the workflow another name")
        elif name in names["agents"]:
            yield WrongPart(place, f"there is an agent `{name}`; give the workflow another name")
        if values["workflows"][name].get("steps", []) and not section.steps:
            continue  # the problems of its steps are reported already
        yield from _impossible(name, section, agents=callees, capabilities=names["capabilities"])


def _impossible(
    name: str, section: WorkflowSection, *, agents: Offered, capabilities: Collection[str]
) -> Iterator[WrongPart]:
    """Return the reasons why a workflow cannot be executed, each with its place in the file."""
    places = {step.name: index for index, step in enumerate(section.steps)}
    for each in problems(section.workflow(name), agents=agents, capabilities=capabilities):
        yield WrongPart(("workflows", name, *_place_in_file(each.path, places)), each.message)
    for index, step in enumerate(section.steps):
        if name in (step.agent, *step.fallback):
            yield WrongPart(("workflows", name, "steps", index), "a workflow cannot be a step of itself")


def _place_in_file(path: str, places: dict[str, int]) -> Place:
    """Return the place of a problem in the file, where steps are counted; the problem names them."""
    first, *rest = path.split(".")
    return (first, places[rest[0]], *rest[1:]) if rest else (first,)


def _uncallable(inspection: Inspection) -> Iterator[WrongPart]:
    """Return models that cannot be called, and those whose package or file is missing."""
    section, environ = inspection.team.orchestrator, inspection.environ
    if section is None:
        return
    if section.model is not None:
        yield from uncallable_model(("orchestrator", "model"), _as_agent(section), environ)
    reader = section.conflicts
    if reader is not None and reader.onnx is not None:
        try:
            _entailment_model(reader, reader.onnx, inspection.folder).check()
        except RemitError as error:
            yield WrongPart(("orchestrator", "conflicts", "onnx"), error.fault.message)
    elif reader is not None and reader.model is not None:
        yield from uncallable_model(("orchestrator", "conflicts", "model"), _as_agent(reader), environ)
    try:
        phrases_of(_language(section, inspection.folder))
    except RemitError as error:
        yield WrongPart(("orchestrator", "language"), error.fault.message)
    key = "encoder" if section.encoder is not None else "reader"
    try:
        if section.encoder is not None:
            _encoder(section.encoder, inspection.folder).check()
        if section.encoder is not None or section.reader == "embeddings":
            from remit_orchestrator.readers.embeddings import check

            check(encoder=section.encoder is not None)
    except RemitError as error:
        yield WrongPart(("orchestrator", key), error.fault.message)


def _language(section: OrchestratorSection, folder: Path) -> str:
    """Return the language, or the path of a file of phrases, which the team file names relative to itself."""
    return section.language if section.language in LANGUAGES else str(folder / section.language)


def _encoder(section: EncoderSection, folder: Path) -> "EncoderFiles":
    from remit_orchestrator.readers.embeddings import EncoderFiles

    return EncoderFiles(
        onnx=folder / section.onnx,
        onnx_sha256=section.onnx_sha256,
        tokenizer=folder / section.tokenizer,
        tokenizer_sha256=section.tokenizer_sha256,
    )


def _warnings(team: TeamFile) -> Iterator[WrongPart]:
    """Return one warning for all capabilities that have too few examples."""
    if team.orchestrator is None:
        return
    from remit_orchestrator.examples import ENOUGH_EXAMPLES, few_examples

    known = [Capability(code=code, examples=each.examples) for code, each in team.capabilities.items()]
    if few := few_examples(known):
        codes = ", ".join(f"`{code}`" for code, _ in few)
        why = f"fewer than {ENOUGH_EXAMPLES} examples: {codes}. Users are asked back more often: `remit intents check`"
        yield WrongPart(("orchestrator",), why)


# ── agents ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _compose(made: Composition) -> None:
    hub, team, section = made.hub, made.team, made.team.orchestrator
    if section is None and not team.workflows:
        return
    from remit_orchestrator.adding import add_orchestrator, add_workflow

    model: ModelAgent | None = None
    if section is not None and section.model is not None:
        model = model_agent(_as_agent(section), made.environ)
    phrases = {code: each.phrase for code, each in team.capabilities.items() if each.phrase}
    for name, workflow in team.workflows.items():
        add_workflow(
            hub,
            workflow.workflow(name),
            model=model if workflow.narrate == "model" else None,
            phrases=phrases,
            glossary=team.glossary,
            time_ms=optional_ms(workflow.time),
            tokens=workflow.tokens,
        )
    if section is not None:
        add_orchestrator(
            hub,
            section.name,
            reader=section.reader,
            model=model if "model" in (section.reader, section.narrate) else None,
            narrate=section.narrate,
            language=_language(section, team.folder),
            encoder=None if section.encoder is None else _encoder(section.encoder, team.folder),
            conflicts=_conflicts_model(team, section.conflicts, made.environ),
            cache_ms=duration_ms(section.cache),
            thresholds=section.thresholds(),
            phrases=phrases,
            glossary=team.glossary,
            time_ms=optional_ms(section.time),
            tokens=section.tokens,
        )


def _conflicts_model(
    team: Team, section: ConflictsSection | None, environ: Mapping[str, str]
) -> "ModelAgent | EntailmentModel | None":
    """Return the model that reads results for conflicts, or None."""
    if section is None:
        return None
    if section.onnx is not None:
        return _entailment_model(section, section.onnx, team.folder)
    return model_agent(_as_agent(section), environ)


def _entailment_model(section: ConflictsSection, onnx: str, folder: Path) -> "EntailmentModel":
    from remit_orchestrator.conflict_reader import EntailmentModel

    return EntailmentModel(folder / onnx, labels=section.labels, threshold=section.threshold)


def _as_agent(section: OrchestratorSection | ConflictsSection) -> AgentSection:
    return AgentSection(
        model=section.model, base_url=section.base_url, api_key=section.api_key, settings=section.settings
    )


ORCHESTRATION: TeamSection[OrchestratorSection | None] = TeamSection(
    key="orchestrator",
    kind=None,
    default=None,
    problems=_problems,
    uncallable=_uncallable,
    warnings=_warnings,
    compose=_compose,
    step_order=lambda workflow: {step.name: waits_for(step) for step in workflow.steps},
)
