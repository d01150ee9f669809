"""Whether the workflows of a team file can be carried out."""

from collections.abc import Collection, Iterator

from remit.config.line_numbers import Place
from remit.config.sections.orchestration import WorkflowSection
from remit.policy.plan_problems import Offered, problems
from remit.protocol.codec import WrongPart


def impossible(
    name: str, section: WorkflowSection, *, agents: Offered, capabilities: Collection[str]
) -> Iterator[WrongPart]:
    """Say what keeps a workflow from being carried out, each with its place in the file."""
    places = {step.name: index for index, step in enumerate(section.steps)}
    for each in problems(section.workflow(name), agents=agents, capabilities=capabilities):
        yield WrongPart(("workflows", name, *_place(each.path, places)), each.message)
    for index, step in enumerate(section.steps):
        if name in (step.agent, *step.fallback):
            yield WrongPart(("workflows", name, "steps", index), "a workflow cannot be a step of itself")


def _place(path: str, places: dict[str, int]) -> Place:
    """Return where a problem stands: steps are named there by their names, and counted here."""
    first, *rest = path.split(".")
    return (first, places[rest[0]], *rest[1:]) if rest else (first,)
