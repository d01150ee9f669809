"""Workflows, and the agent that users can ask for anything."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from remit.config.sections.base import Section
from remit.config.values import (
    AgentName,
    Code,
    Duration,
    ModelName,
    Secret,
    StepAfter,
    StepName,
    Url,
    duration,
    optional_ms,
)
from remit.policy.plan import MAX_ATTEMPTS, MAX_CONDITION, Share, Step, Workflow
from remit.protocol.envelope import ContextFilter
from remit.protocol.remit import Count
from remit.text.intent import DECISION_MS, Thresholds

_THRESHOLDS = Thresholds()


class StepSection(Section, frozen=True, kw_only=True):
    """One step: who is asked for what, when, and what is done if that fails. It needs `agent`, `capability` or both."""

    name: Annotated[StepName, Meta(description="How other steps refer to it.")]
    agent: Annotated[AgentName | None, Meta(description="Who is asked: an agent, or another workflow.")] = None
    capability: Annotated[
        Code | None, Meta(description="What is asked for; without `agent`, whoever has it is found.")
    ] = None
    objective: Annotated[
        str,
        Meta(description="What is to be done; `{step}` and `{step.path}` stand for results. Else its title or name."),
    ] = ""
    input: Annotated[
        Any, Meta(description="What it is given; a text that is only a reference, `{step.path}`, becomes the value.")
    ] = None
    after: Annotated[
        tuple[StepAfter, ...],
        Meta(description="Steps that must have ended, besides those that it refers to; `a?`: however `a` ended."),
    ] = ()
    when: Annotated[
        Annotated[str, Meta(max_length=MAX_CONDITION)] | None,
        Meta(description="A condition, `npv.value > 0 and not audit.failed`: if it does not hold, it is skipped."),
    ] = None
    fallback: Annotated[tuple[AgentName, ...], Meta(description="Agents that are asked in turn if it fails.")] = ()
    attempts: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)],
        Meta(description=f"How often each is asked where asking again may help, at most {MAX_ATTEMPTS} times."),
    ] = 1
    time: Annotated[Duration | None, Meta(description="Time for it; else as for any delegation.")] = None
    tokens: Annotated[Count | None, Meta(description="Tokens for it; else as for any delegation.")] = None
    share: Annotated[
        Share | None, Meta(description="Instead of `tokens`, its part of the workflow's tokens: `0.25`.")
    ] = None
    optional: Annotated[
        bool,
        Meta(description="Whether the workflow succeeds, and steps that refer to it begin, without it."),
    ] = False
    default: Annotated[
        Any,
        Meta(description="What references to it stand for if it was skipped or, where steps go on without it, failed."),
    ] = None
    title: Annotated[
        str, Meta(description="What the user reads while it is at work; else its capability's `phrase`.")
    ] = ""
    context: Annotated[
        ContextFilter | None,
        Meta(
            description="What its callee sees of the conversation, by `last_messages`, `roles`, `keywords`, "
            "`max_age_seconds`, `include_summary`, `include_workspace`, `workspace_files` and "
            "`include_contents`, and of what is known in it by `known` (all, unless it says otherwise)."
        ),
    ] = None

    def step(self) -> Step:
        """Return the step as a workflow holds it."""
        converted = ("input", "default", "time")
        said = {field: getattr(self, field) for field in self.__struct_fields__ if field not in converted}
        # TOML has dates, JSON has not.
        given, default = msgspec.to_builtins((self.input, self.default))
        return Step(**said, input=given, default=default, time_ms=optional_ms(self.time))


class WorkflowSection(Section, frozen=True, kw_only=True):
    """A workflow: steps that are carried out in order, or side by side, when the agent of its name is asked."""

    description: Annotated[str, Meta(description="What it is for.")] = ""
    examples: Annotated[tuple[str, ...], Meta(description="What people say who want it.")] = ()
    result: Annotated[
        StepName | None, Meta(description="The step whose result is the workflow's; else all are told as one text.")
    ] = None
    narrate: Annotated[
        Literal["template", "model"],
        Meta(description="Who tells its results as one text: a template, or the orchestrator's model."),
    ] = "template"
    time: Annotated[Duration | None, Meta(description="Time for one request; else the caller's or the budget's.")] = (
        None
    )
    tokens: Annotated[Count | None, Meta(description="Tokens for one request; else the caller's or the budget's.")] = (
        None
    )
    steps: Annotated[
        tuple[StepSection, ...], Meta(description="The steps, in the order in which their results are told.")
    ] = ()

    def workflow(self, name: str) -> Workflow:
        """Return the workflow as a hub takes it."""
        return Workflow(
            name=name,
            description=self.description,
            steps=tuple(each.step() for each in self.steps),
            result=self.result,
            examples=self.examples,
        )


class OrchestratorSection(Section, frozen=True, kw_only=True):
    """An agent that finds out what a user wants, among all capabilities and workflows, and has it done."""

    name: Annotated[AgentName, Meta(description="What it is called.")] = "orchestrator"
    classifier: Annotated[
        Literal["words", "embeddings", "model"],
        Meta(
            description="How it tells what is wanted: by words; by meaning, which needs the extra `intent`; or by "
            "asking its `model`."
        ),
    ] = "words"
    model: Annotated[
        ModelName | None,
        Meta(description='The model of `classifier = "model"` and `narrate = "model"`, named as for an agent.'),
    ] = None
    base_url: Annotated[Url | None, Meta(description="The server of that model, as for an agent.")] = None
    api_key: Annotated[Secret | None, Meta(description="The key for that model, as for an agent.")] = None
    settings: Annotated[dict[str, Any], Meta(description="Settings of that model, as for an agent.")] = {}
    narrate: Annotated[
        Literal["template", "model"],
        Meta(description="Who tells several results as one text: a template, or the model if it adds nothing."),
    ] = "template"
    cache: Annotated[
        Duration, Meta(description='How long a decision counts when a user says the same again; `"0s"`: not at all.')
    ] = duration(DECISION_MS)
    act: Annotated[Share, Meta(description="How sure it must be to act.")] = _THRESHOLDS.act
    also: Annotated[Share, Meta(description="How sure of a further thing that the same request asks for.")] = (
        _THRESHOLDS.also
    )
    offer: Annotated[Share, Meta(description="How sure that one of several options is meant, to offer them.")] = (
        _THRESHOLDS.offer
    )
    close: Annotated[Share, Meta(description="What share of the best an option must have to be offered beside it.")] = (
        _THRESHOLDS.close
    )
    nothing: Annotated[Share, Meta(description="Below this it says that nothing fits.")] = _THRESHOLDS.nothing
    time: Annotated[Duration | None, Meta(description="Time for one request; else that of a run.")] = None
    tokens: Annotated[Count | None, Meta(description="Tokens for one request; else those of a run.")] = None

    def thresholds(self) -> Thresholds:
        """Return how sure it must be, as the orchestrator takes it."""
        return Thresholds(act=self.act, also=self.also, offer=self.offer, close=self.close, nothing=self.nothing)
