"""Makes what a team file names outside Python: the store, the models and the detector of personal data."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from remit.installed import brought, install_command
from remit.policy.budget import estimate
from remit.policy.verdict import Detector
from remit.ports import LanguageModel, Store, TokenCounter
from remit.protocol.errors import RemitError, in_sentences
from remit.protocol.problems import WrongPart
from remit.runtime.registry import team_invalid
from remit_cli.config.checks import known_secret
from remit_cli.config.code import code_at, find_code
from remit_cli.config.origins import Place
from remit_cli.config.sections.agents import AgentSection
from remit_cli.config.sections.hub import ContextSection
from remit_cli.config.team import Team, TeamFile, hosted
from remit_redaction.pipeline import DEFAULT_REGIONS, detector_pipeline


def model_agent(agent: AgentSection, environ: Mapping[str, str] = os.environ) -> Any:
    """Return an agent backed by a model, or raise a `RemitError` if its API key is not in the environment."""
    assert agent.model is not None, "only an agent of a model is one"
    return _model_agent(
        agent.model,
        base_url=agent.base_url,
        api_key=known_secret(agent.api_key, environ),
        settings=agent.settings,
        max_tool_rounds=agent.max_tool_rounds,
        max_output_tokens=agent.max_output_tokens,
        history_tokens=agent.history_tokens,
        sub_agent_arguments=agent.sub_agent_arguments,
        structured_answers=agent.structured_answers,
    )


def _model_agent(model: str, **settings: Any) -> LanguageModel:
    """Return an agent of the first plugin for language models."""
    for bring in brought("model_agent"):
        return bring(model, **settings)
    raise team_invalid(f"no installed plugin calls language models: {install_command()}")


def summarizer_of(context: ContextSection, environ: Mapping[str, str] = os.environ) -> Any:
    """Return the summarizer with a model; None if no model is configured."""
    if context.summary_model is None:
        return None
    key = known_secret(context.summary_api_key, environ)
    return _model_agent(context.summary_model, base_url=context.summary_base_url, api_key=key).summarizer()


def uncallable(team: TeamFile, environ: Mapping[str, str]) -> Iterator[WrongPart]:
    """Return models of agents and of summaries that cannot be called."""
    for name, agent in hosted(team).items():
        if agent.model is not None and agent.run is None:
            yield from uncallable_model(("agents", name, "model"), agent, environ)
    context = team.context
    if context.summary_model is not None:
        made = AgentSection(
            model=context.summary_model, base_url=context.summary_base_url, api_key=context.summary_api_key
        )
        yield from uncallable_model(("context", "summary_model"), made, environ)


def uncallable_model(place: Place, agent: AgentSection, environ: Mapping[str, str]) -> Iterator[WrongPart]:
    """Return why the model of an agent cannot be called: an unknown one, or one whose package or file is missing.

    A missing API key is reported where the file names it.
    """
    if agent.api_key is not None and not environ.get(agent.api_key.removeprefix("$"), "").strip():
        return
    try:
        model_agent(agent, environ).check()
    except RemitError as error:
        yield WrongPart(place, in_sentences(error.fault.message, error.fault.suggestion))


def detector_of(team: Team) -> Detector | bool:
    """Return the detector for data that a team's agents must not see; False if redaction is off."""
    return detector_in(team) if team.redaction.enabled else False


def detector_in(team: Team) -> Detector:
    """Return the detector of a team, also if nothing is redacted."""
    section = team.redaction
    return detector_pipeline(
        kinds=section.kinds,
        extra=[find_code(code_at, run, team.folder) for run in section.detectors],
        patterns=section.patterns,
        regions=DEFAULT_REGIONS if section.regions is None else section.regions,
    )


def store_of(
    team: Team,
    environ: Mapping[str, str] = os.environ,
    *,
    make_key: bool = True,
    count: TokenCounter = estimate,
) -> Store:
    """Return the store of a team, not open yet. Without *make_key*, a missing key is not created."""
    section = team.store
    if section.url is None:
        from remit.stores.sqlite import SqliteStore  # a file is checked without a store

        return SqliteStore(
            team.store_path,
            durability=section.durability,
            make_key=make_key,
            count=count,
            encrypt=section.encrypt,
        )
    from remit.stores.addresses import database_at
    from remit.stores.checkpoints import key_path

    return database_at(
        section.url,
        # Where it is for a file, so that a store can be moved without a new key.
        key=key_path(team.store_path),
        password=known_secret(section.password, environ),
        pooler=section.pooler,
        make_key=make_key,
        encrypt=section.encrypt,
        count=count,
    )
