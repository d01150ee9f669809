"""Adds workflows and orchestrators to a hub, and agents that decide who answers a request."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from remit.hub.hub import Hub
from remit.protocol.card import AgentCard, Capability, Confirmation
from remit.protocol.orchestration import DECISION_MS, THRESHOLDS, Thresholds
from remit.runtime.brief import Agent
from remit_orchestrator.orchestration import (
    ClassifierName,
    Orchestration,
    refuse_unsound,
    refuse_unused_model,
    trainer,
)

if TYPE_CHECKING:  # most hubs have no models
    from pydantic_ai.models import Model

    from remit.protocol.orchestration import Workflow
    from remit_models.model import ModelAgent
    from remit_orchestrator.entailment import EntailmentModel
    from remit_orchestrator.intent_classifier import Classifier
    from remit_orchestrator.text.classification import Scorer


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
    classifier: ClassifierName | Callable[[Sequence[Capability]], "Classifier | Scorer"] = "words",
    model: "str | Model | ModelAgent | None" = None,
    narrate: Literal["template", "model"] = "template",
    plans: Literal["rules", "model"] = "rules",
    conflicts: "str | Model | ModelAgent | EntailmentModel | None" = None,
    confirm: Confirmation = "unsure",
    thresholds: Thresholds = THRESHOLDS,
    phrases: Mapping[str, str] | None = None,
    glossary: Mapping[str, str] | None = None,
    cache_ms: int = DECISION_MS,
    time_ms: int | None = None,
    tokens: int | None = None,
) -> None:
    """Add an agent that finds the capability or workflow that a user's text asks for, and delegates to it.

    The *model* classifies the text if it is the *classifier*, and combines several results into one text if it is to
    *narrate*. If it makes the *plans*, it proposes those of requests with several parts; a proposal that does not stand
    in the request is dropped. The model named by *conflicts* reads the results of the orchestrator and of all workflows
    for contradictions, after the rules: a language model, which has to quote them, or an `EntailmentModel`. *confirm*
    says when a user has to agree before a capability that is not `read_only` is used. A decision is reused for
    *cache_ms* when the same user repeats the same words.
    """
    refuse_unused_model(name, classifier, narrate, plans, model)
    orchestration = _orchestration(hub)
    orchestration.add_words(phrases, glossary)
    agent = orchestration.orchestrator_agent(
        name,
        classifier=classifier,
        model=model,
        narrate=narrate,
        plans=plans,
        conflicts=conflicts,
        confirm=confirm,
        thresholds=thresholds,
        cache_ms=cache_ms,
    )
    _add_for_caller(hub, name, agent, may_call={"*"}, time_ms=time_ms, tokens=tokens)


def routed(hub: Hub, card: AgentCard, agent: Agent) -> Agent:
    """Return an agent that hands requests to others where that is better (K4)."""
    from remit_orchestrator.placement import PlacedAgent

    def offered() -> list[Capability]:
        return list({each.code: each for other in hub.cards.values() for each in other.capabilities}.values())

    return PlacedAgent(agent, card, offered, hub.ranking, trainer("words"))


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
