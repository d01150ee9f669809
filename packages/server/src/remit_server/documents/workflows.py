"""The workflows of a run as graphs: the steps that were planned, and what has become of each."""

from typing import Any, Literal, cast

from msgspec import Struct

from remit.protocol.errors import Code
from remit.protocol.records import PlannedStep
from remit.runtime.run_tree import Node, Tree
from remit_server.documents.common import shown_as

StepState = Literal[
    "success",
    "partial",
    "failed",
    "timeout",
    "refused",
    "cancelled",
    "planned",
    "skipped",
    "not done",
    "waiting",
    "running",
    "asking",
    "not begun",
    "unknown",
]
"""Planned: it has not begun. Not done: the workflow ended before. Otherwise the state of its last delegation."""


class StepAttempt(Struct, frozen=True, kw_only=True):
    """One delegation of a step: the first, or a retry."""

    delegation: str
    agent: str
    state: StepState
    code: Code | None
    """Why it did not succeed."""
    started_ms: int
    duration_ms: int


class WorkflowStep(Struct, frozen=True, kw_only=True):
    """A step and what has become of it."""

    name: str
    title: str
    agent: str
    """The agent that was asked last, or will be; empty: whoever offers the capability."""
    capability: str
    after: tuple[str, ...]
    """The steps that must have ended before."""
    when: str
    """The condition under which it is done; empty: always."""
    optional: bool
    state: StepState
    why: str
    """Why it was skipped or did not succeed."""
    fallback: tuple[str, ...]
    """Agents that are asked in turn if it fails."""
    attempts: tuple[StepAttempt, ...]


class WorkflowGraph(Struct, frozen=True, kw_only=True):
    """The steps of one workflow, in the order of their results in the answer."""

    name: str
    delegation: str
    """The delegation of the agent that executes it."""
    agent: str
    state: StepState
    planned: bool
    """Whether the plan is on record. If not, the steps are known from the answer, without their dependencies."""
    steps: tuple[WorkflowStep, ...]


class RunWorkflows(Struct, frozen=True, kw_only=True):
    """The workflows of a run, the outermost first; empty if the run followed none."""

    run: str
    workflows: tuple[WorkflowGraph, ...]


def workflows_of(run: str, tree: Tree, now_ms: int) -> RunWorkflows:
    """Return the workflows that a run follows."""
    graphs = [_graph(node, now_ms) for node in tree.nodes_in_order() if node.plan or _reported_steps(node)]
    return RunWorkflows(run=run, workflows=tuple(sorted(graphs, key=lambda each: each.delegation.count("."))))


def _reported_steps(node: Node) -> dict[str, dict[str, str]]:
    """Return what the answer of a workflow says of its steps."""
    metadata: Any = node.response.metadata if node.response else {}
    if not isinstance(metadata.get("workflow"), str) or not isinstance(metadata.get("steps"), dict):
        return {}
    steps = cast("dict[str, Any]", metadata["steps"])
    return {name: cast("dict[str, str]", each) for name, each in steps.items() if isinstance(each, dict)}


def _graph(node: Node, now_ms: int) -> WorkflowGraph:
    reported = _reported_steps(node)
    workflow = node.response.metadata.get("workflow") if node.response else None
    steps = list(node.plan.values()) or [PlannedStep(name=name) for name in reported]
    names = {step.name for step in steps}
    attempts: dict[str, list[Node]] = {}
    for child in node.children:
        name = child.path.removeprefix(f"{node.path}.").partition("~")[0]
        if name in names:
            attempts.setdefault(name, []).append(child)
    return WorkflowGraph(
        name=workflow if isinstance(workflow, str) else node.agent,
        delegation=node.path,
        agent=node.agent,
        state=_state(node),
        planned=bool(node.plan),
        steps=tuple(_step(node, step, attempts.get(step.name, []), reported, now_ms) for step in steps),
    )


def _step(
    node: Node,
    step: PlannedStep,
    attempts: list[Node],
    reported: dict[str, dict[str, str]],
    now_ms: int,
) -> WorkflowStep:
    last = attempts[-1] if attempts else None
    fault = last.fault.outward() if last and last.fault else None
    # The answer of a workflow says in its own words why a step was skipped or failed.
    why = (
        reported.get(step.name, {}).get("why", "")
        or node.skipped.get(step.name, "")
        or (fault.message if fault else "")
    )
    return shown_as(
        WorkflowStep,
        step,
        agent=(last.agent if last else step.agent) or "",
        capability=step.capability or "",
        state=_state(last) if last else _unasked(node, step.name, reported),
        why=why,
        attempts=tuple(_attempt(each, now_ms) for each in attempts),
    )


def _unasked(node: Node, name: str, reported: dict[str, dict[str, str]]) -> StepState:
    """Return the state of a step that no agent was asked for."""
    if name in node.skipped or reported.get(name, {}).get("state") == "skipped":
        return "skipped"
    if node.response is None and not node.lost:
        return "planned"
    # A step of an earlier run in the conversation has its result from there.
    return "success" if reported.get(name, {}).get("state") in ("done", "partial") else "not done"


def _state(node: Node) -> StepState:
    return cast("StepState", str(node.state))


def _attempt(node: Node, now_ms: int) -> StepAttempt:
    return StepAttempt(
        delegation=node.path,
        agent=node.agent,
        state=_state(node),
        code=node.fault.code if node.fault else None,
        started_ms=node.started_ms,
        duration_ms=node.taken_ms(now_ms),
    )
