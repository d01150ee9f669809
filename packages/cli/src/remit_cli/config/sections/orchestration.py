"""Sections for workflows and the orchestrator."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from remit.protocol.card import Confirmation
from remit.protocol.envelope import ContextFilter
from remit.protocol.orchestration import (
    DECISION_MS,
    ENTAILMENT_THRESHOLD,
    MAX_ATTEMPTS,
    MAX_CONDITION,
    THRESHOLDS,
    Share,
    Step,
    Thresholds,
    Workflow,
)
from remit.protocol.remit import Count
from remit_cli.config.values import (
    AgentName,
    Code,
    Duration,
    ModelName,
    Secret,
    Section,
    StepAfter,
    StepName,
    Url,
    duration,
    in_code,
)


class StepSection(Section, frozen=True, kw_only=True):
    """One step: which agent is asked, when, and what happens if it fails. It needs `agent`, `capability` or both."""

    name: Annotated[StepName, Meta(description="The name by which other steps refer to it.")]
    agent: Annotated[AgentName | None, Meta(description="The agent or workflow that is asked.")] = None
    capability: Annotated[
        Code | None,
        Meta(description="The capability that is asked for; without `agent`, an agent that has it is found."),
    ] = None
    objective: Annotated[
        str,
        Meta(
            description="The objective; `{step}` and `{step.path}` are replaced by results (default: the "
            "step's title or name)."
        ),
    ] = ""
    input: Annotated[
        Any,
        Meta(description="The input; a text that is only a reference, `{step.path}`, is replaced by the value itself."),
    ] = None
    after: Annotated[
        tuple[StepAfter, ...],
        Meta(
            description="Steps that must have ended before, besides those that it refers to; `a?` means: "
            "however `a` ended."
        ),
    ] = ()
    when: Annotated[
        Annotated[str, Meta(max_length=MAX_CONDITION)] | None,
        Meta(
            description="A condition, such as `npv.value > 0 and not audit.failed`; if it is false, the step "
            "is skipped."
        ),
    ] = None
    fallback: Annotated[
        tuple[AgentName, ...], Meta(description="Agents that are asked in turn if the step fails.")
    ] = ()
    attempts: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)],
        Meta(description=f"How often each agent is asked if a retry may help, at most {MAX_ATTEMPTS} times."),
    ] = 1
    time: Annotated[Duration | None, Meta(description="Time for the step (default: as for any delegation).")] = None
    tokens: Annotated[Count | None, Meta(description="Tokens for the step (default: as for any delegation).")] = None
    share: Annotated[
        Share | None, Meta(description="The step's share of the workflow's tokens, such as `0.25`; replaces `tokens`.")
    ] = None
    optional: Annotated[
        bool,
        Meta(description="Whether the workflow can succeed, and steps that refer to it can start, without it."),
    ] = False
    default: Annotated[
        Any,
        Meta(
            description="The value of references to it if it was skipped, or if it failed and other steps "
            "continue without it."
        ),
    ] = None
    title: Annotated[
        str, Meta(description="What the user reads while it is in progress (default: the capability's `phrase`).")
    ] = ""
    context: Annotated[
        ContextFilter | None,
        Meta(
            description="What its callee sees of the conversation, by `last_messages`, `roles`, `keywords`, "
            "`max_age_seconds`, `include_summary`, `include_workspace`, `workspace_files` and "
            "`include_contents`, and of its notes by `known` (default: all)."
        ),
    ] = None
    files: Annotated[bool, Meta(description="Whether its callee gets the files of the workflow's request.")] = False

    def step(self) -> Step:
        """Return the step for a workflow."""
        said = in_code(self, Step.__struct_fields__)
        # TOML has dates, JSON does not.
        said["input"], said["default"] = msgspec.to_builtins((self.input, self.default))
        return Step(**said)


class WorkflowSection(Section, frozen=True, kw_only=True):
    """A workflow: steps that run in order or in parallel when the agent of the same name is asked."""

    description: Annotated[str, Meta(description="The purpose of the workflow.")] = ""
    examples: Annotated[tuple[str, ...], Meta(description="Examples of what users say when they want it.")] = ()
    result: Annotated[
        StepName | None, Meta(description="The step whose result is the workflow's (default: all results as one text).")
    ] = None
    compare: Annotated[
        tuple[StepName, ...],
        Meta(
            description='Steps that check each other, `["a", "b"]`: contradictions between their results are told '
            "(default: only those between steps that ask the same)."
        ),
    ] = ()
    narrate: Annotated[
        Literal["template", "model"],
        Meta(description="What combines the results into one text: a template, or the orchestrator's model."),
    ] = "template"
    time: Annotated[
        Duration | None, Meta(description="Time for one request (default: the caller's or the budget's).")
    ] = None
    tokens: Annotated[
        Count | None, Meta(description="Tokens for one request (default: the caller's or the budget's).")
    ] = None
    steps: Annotated[
        tuple[StepSection, ...], Meta(description="The steps, in the order of their results in the answer.")
    ] = ()

    def workflow(self, name: str) -> Workflow:
        """Return the workflow for the hub."""
        return Workflow(
            name=name,
            description=self.description,
            steps=tuple(each.step() for each in self.steps),
            result=self.result,
            compare=self.compare,
            examples=self.examples,
        )


class ConflictsSection(Section, frozen=True, kw_only=True):
    """The second reader of results, which looks for contradictions after the rules: a `model`, or an `onnx` file."""

    model: Annotated[
        ModelName | None, Meta(description="The language model that reads the results, named as for an agent.")
    ] = None
    base_url: Annotated[Url | None, Meta(description="The server of that model, as for an agent.")] = None
    api_key: Annotated[Secret | None, Meta(description="The API key for that model, as for an agent.")] = None
    settings: Annotated[dict[str, Any], Meta(description="Settings of that model, as for an agent.")] = {}
    onnx: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="In place of `model`: an entailment model (ONNX), relative to the team file's folder, with its "
            "`tokenizer.json` beside it. It needs the extra `intent`."
        ),
    ] = None
    labels: Annotated[
        tuple[str, ...],
        Meta(
            description="The names of its outputs in their order, one of them `contradiction` (default: `id2label` of "
            "the `config.json` beside it)."
        ),
    ] = ()
    threshold: Annotated[
        Share, Meta(description="How probable a contradiction has to be to be pointed out by that model.")
    ] = ENTAILMENT_THRESHOLD


class OrchestratorSection(Section, frozen=True, kw_only=True):
    """An agent that finds the capability or workflow that a user asks for, and delegates to it."""

    name: Annotated[AgentName, Meta(description="The name of the orchestrator.")] = "orchestrator"
    classifier: Annotated[
        Literal["words", "embeddings", "model"],
        Meta(
            description="How requests are classified: by words; by meaning (`embeddings`), which needs the "
            "extra `intent`; or by the `model`."
        ),
    ] = "words"
    model: Annotated[
        ModelName | None,
        Meta(
            description='The model for `classifier = "model"`, `narrate = "model"` and `plans = "model"`, named as for '
            "an agent."
        ),
    ] = None
    base_url: Annotated[Url | None, Meta(description="The server of that model, as for an agent.")] = None
    api_key: Annotated[Secret | None, Meta(description="The API key for that model, as for an agent.")] = None
    settings: Annotated[dict[str, Any], Meta(description="Settings of that model, as for an agent.")] = {}
    narrate: Annotated[
        Literal["template", "model"],
        Meta(
            description="What makes one text of several results: a template, or the model, as far as they support it."
        ),
    ] = "template"
    plans: Annotated[
        Literal["rules", "model"],
        Meta(
            description="What makes the plan of a request with several parts: rules, or the model, if its proposal "
            "stands in the request."
        ),
    ] = "rules"
    conflicts: Annotated[
        ConflictsSection | None,
        Meta(
            description="A second reader that looks for contradictions as well, in the results of the orchestrator "
            "and of all workflows: a `model`, with `base_url`, `api_key` and `settings`; or `onnx`, with `labels` "
            "and `threshold` (default: rules alone)."
        ),
    ] = None
    cache: Annotated[
        Duration, Meta(description='How long a decision is reused when a user repeats a request; `"0s"` disables it.')
    ] = duration(DECISION_MS)
    confirm: Annotated[
        Confirmation,
        Meta(
            description="When a user has to agree before a capability that is not `read_only` is used: `never`, if it "
            "is `unsure` that the request asks for it, or `always`."
        ),
    ] = "unsure"
    act: Annotated[
        Share, Meta(description="Confidence needed to act, if the classifier does not say how clear a request is.")
    ] = THRESHOLDS.act
    read: Annotated[
        Share, Meta(description="Confidence needed for a capability that is `read_only`, if the request is clear.")
    ] = THRESHOLDS.read
    change: Annotated[
        Share,
        Meta(description="Confidence needed for a capability that changes something, if the request is clear."),
    ] = THRESHOLDS.change
    also: Annotated[Share, Meta(description="Confidence needed for a further capability in the same request.")] = (
        THRESHOLDS.also
    )
    offer: Annotated[Share, Meta(description="Confidence needed to offer several options.")] = THRESHOLDS.offer
    close: Annotated[
        Share,
        Meta(description="Share of the best option's confidence that another option needs to be offered as well."),
    ] = THRESHOLDS.close
    nothing: Annotated[Share, Meta(description="Below this confidence it answers that nothing fits.")] = (
        THRESHOLDS.nothing
    )
    time: Annotated[Duration | None, Meta(description="Time for one request (default: that of a run).")] = None
    tokens: Annotated[Count | None, Meta(description="Tokens for one request (default: those of a run).")] = None

    def thresholds(self) -> Thresholds:
        """Return the confidence thresholds for the orchestrator."""
        return Thresholds(
            act=self.act,
            read=self.read,
            change=self.change,
            also=self.also,
            offer=self.offer,
            close=self.close,
            nothing=self.nothing,
        )
