"""Validation of a workflow: every problem, each with its place."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from remit.policy.plan import CONSTANTS, INPUT, REQUEST, Step, Workflow, asked, awaited, references, waits_for
from remit.protocol.codec import checked
from remit.protocol.errors import Problem, RemitError
from remit.protocol.problems import did_you_mean

Offered = Mapping[str, Collection[str] | None]
"""The agents and the capabilities of each; None: those are not known."""


def problems(
    workflow: Workflow, *, agents: Offered | None = None, capabilities: Collection[str] | None = None
) -> tuple[Problem, ...]:
    """Return every problem of a workflow, each with its place; empty: it can be run."""
    try:
        checked(workflow)
    except RemitError as error:  # a program may have put anything into its fields
        return tuple(Problem(each.path.removeprefix("$."), each.message) for each in error.fault.problems)
    return tuple(_problems(workflow, agents, capabilities))


def _problems(workflow: Workflow, agents: Offered | None, capabilities: Collection[str] | None) -> Iterator[Problem]:
    names = [step.name for step in workflow.steps]
    if not names:
        yield Problem("steps", "a workflow needs at least one step")
    for name in dict.fromkeys(each for each in names if names.count(each) > 1):
        yield Problem(f"steps.{name}", "there are two steps with this name")
    for name in sorted({INPUT, REQUEST, *CONSTANTS}.intersection(names)):
        yield Problem(f"steps.{name}", f"no step may be called `{name}`, which is reserved")
    if workflow.result is not None and workflow.result not in names:
        yield Problem("result", f"there is no step `{workflow.result}`{did_you_mean(workflow.result, names)}")
    yield from _unknown("compare", "step", workflow.compare, names)
    if len(set(workflow.compare)) == 1:
        yield Problem("compare", "name at least two steps")
    if sum(step.share or 0 for step in workflow.steps) > 1.0 + 1e-9:
        yield Problem("steps", "the shares of all steps add up to more than 1")
    sound = True
    for step in workflow.steps:
        for problem in _of_step(step, names, agents, capabilities):
            sound = False
            yield problem
    if sound:
        yield from _circles(workflow.steps)


def _of_step(
    step: Step, names: Collection[str], agents: Offered | None, capabilities: Collection[str] | None
) -> Iterator[Problem]:
    place = f"steps.{step.name}"
    if step.agent is None and step.capability is None:
        yield Problem(place, "set `agent` or `capability`")
    yield from _unknown(f"{place}.agent", "agent", [step.agent] if step.agent else [], agents)
    yield from _unknown(f"{place}.fallback", "agent", step.fallback, agents)
    yield from _unknown(f"{place}.capability", "capability", [step.capability] if step.capability else [], capabilities)
    if step.capability is not None and (capabilities is None or step.capability in capabilities):
        yield from _unable(place, step, step.capability, agents or {})
    if step.share is not None and step.tokens is not None:
        yield Problem(f"{place}.share", "give either a share or a number of tokens")
    others = [name for name in names if name != step.name]
    yield from _unknown(f"{place}.after", "step", awaited(step), others, step.name)
    for field in ("objective", "input"):
        said = [name for name, _ in references(getattr(step, field))]
        yield from _unknown(f"{place}.{field}", "step", said, [*others, INPUT, REQUEST], step.name)
    try:
        yield from _unknown(f"{place}.when", "step", [name for name, _ in asked(step)], others, step.name)
    except ValueError as error:
        yield Problem(f"{place}.when", str(error))


def _unable(place: str, step: Step, code: str, agents: Offered) -> Iterator[Problem]:
    """Return which of a step's agents do not offer its capability."""
    if agents and not any(codes is None or code in codes for codes in agents.values()):
        yield Problem(f"{place}.capability", f"no agent has the capability `{code}`")
        return
    for key, named in (("agent", (step.agent,)), ("fallback", step.fallback)):
        for name in named:
            codes = None if name is None else agents.get(name)
            if codes is not None and code not in codes:
                yield Problem(f"{place}.{key}", f"`{name}` does not have the capability `{code}`")


def _unknown(
    place: str, kind: str, named: Iterable[str], known: Collection[str] | None, own: str = ""
) -> Iterator[Problem]:
    for name in dict.fromkeys(named):
        if name == own:
            yield Problem(place, "a step cannot wait for itself")
        elif known is not None and name not in known:
            yield Problem(place, f"there is no {kind} `{name}`{did_you_mean(name, known)}")


def _circles(steps: Iterable[Step]) -> Iterator[Problem]:
    """Return the steps that wait for themselves through others."""
    left = {step.name: waits_for(step) for step in steps}
    while free := [name for name, others in left.items() if not others & left.keys()]:
        for name in free:
            del left[name]
    if left:
        yield Problem("steps", f"these steps wait for each other: {', '.join(sorted(left))}")
