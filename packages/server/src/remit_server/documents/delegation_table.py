"""All delegations of a run in columns: small enough to send ten thousand of them at once."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from remit.protocol.envelope import HANDLING, MODEL, Json, Response
from remit.protocol.lifecycle import Status
from remit.runtime.run_tree import Node, Tree
from remit.words.terminal import one_line
from remit_server.model_prices import PER


class ModelUse(Struct, frozen=True, kw_only=True):
    """The model of an answer, and what its provider read from a cache."""

    name: str = ""
    cached: int = 0
    """Tokens of the prompt that were read from a cache."""
    beside: int = 0
    """Tokens that were read from a cache and are not part of the usage."""


def model_in(metadata: dict[str, Json]) -> ModelUse | None:
    """Return what an answer tells of its model in its metadata; None if it names none."""
    match metadata.get(MODEL):
        case {"name": str(name), **rest}:
            return ModelUse(name=name, cached=_count(rest.get("cached")), beside=_count(rest.get("beside")))
        case _:
            return None


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def handling_of(node: Node) -> str:
    """Return who handled a delegation: as a handover or a decision of its agent says; empty if neither does."""
    response = node.response
    return "" if response is None else _handover_of(node, response) or _decision_in(response.metadata)


def _handover_of(node: Node, response: Response) -> str:
    """Return what became of the conversation with the user in a delegation."""
    first = response.handover[0].to if response.handover else None
    if first is not None and any(each.agent == first for each in list(node.lineage())[1:]):
        return f"handed the conversation back to {first}"
    if response.handover:
        return f"the conversation is with {response.handover[-1].to} now"
    took_over = node.request is not None and node.request.handover is not None and node.parent is not None
    return "took the conversation over" if took_over else ""


def _decision_in(metadata: Mapping[str, Json]) -> str:
    try:
        handling = msgspec.convert(metadata.get(HANDLING), dict[str, str])
    except msgspec.ValidationError:
        return ""
    if handling.get("decision") not in ("route", "local"):
        return ""
    who = "routed" if handling["decision"] == "route" else "handled locally"
    return f"{who}: {handling.get('why', '')}"


# As much of a text as fits into one line of a wide screen.
LINE_LENGTH = 140

CostOf = Callable[[str, str, int, int, int], float | None]
"""Returns what tokens cost, given agent, model (empty: not recorded), prompt tokens, completion tokens, and how many of
the prompt tokens came from a cache; None: not known.
"""


class DelegationTable(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Delegations of a run, one column for each property: entry *i* of every column belongs to delegation *i*.

    A parent stands before its children. Names and states are numbers of entries of `names`; -1: none.
    """

    names: tuple[str, ...]
    """Agents, capabilities, states and error codes."""
    path: tuple[str, ...]
    """The path in the run without the run's id: `""` for the root, `2.1` for its grandchild. A part of the run that
    another hub executed has paths of its own, which begin with `/`.
    """
    parents: dict[str, str] = {}
    """The parent of each path whose parent is not the path before its last dot."""
    agent: tuple[int, ...]
    origin: tuple[int, ...]
    """The caller; -1: not known."""
    capability: tuple[int, ...]
    objective: tuple[str, ...]
    """The first line of the objective."""
    state: tuple[int, ...]
    """How it ended: `success`, `partial`, `failed`, `timeout`, `refused`, `cancelled`; or where it stands: `waiting`,
    `running`, `asking`; or `unknown`, `not begun`, if the run ended without recording it.
    """
    code: tuple[int, ...]
    """The error code."""
    note: tuple[str, ...]
    """The most important detail: the error message, the question to a person, the last progress message, or what became
    of the conversation that was handed over."""
    started: tuple[int, ...]
    """Milliseconds from the start of the run."""
    took: tuple[int, ...]
    """Milliseconds, so far if it has not ended, without the time that it waited for a person."""
    own: tuple[int, ...]
    """Milliseconds of `took` in which none of its children was at work."""
    tokens: tuple[int, ...]
    """Tokens spent, children included."""
    own_tokens: tuple[int, ...]
    """Tokens spent, children not included."""
    tools: tuple[int, ...]
    """Number of uses of tools."""
    cost: tuple[float | None, ...] = ()
    """Estimated cost, children included; empty if no price is known."""
    own_cost: tuple[float | None, ...] = ()


def table_of(tree: Tree, nodes: Iterable[Node], now_ms: int, cost: CostOf | None = None) -> DelegationTable:
    """Return these delegations of a run."""
    assert tree.root is not None, "there is no run without a record"
    root, nodes, names = tree.root, list(nodes), _Names()
    costs = {} if cost is None else _costs(tree, cost)
    known = bool(costs) and any(own is not None for own, _ in costs.values())
    return DelegationTable(
        path=tuple(short_path(node.path, root.path) for node in nodes),
        parents={
            short_path(node.path, root.path): short_path(node.parent.path, root.path)
            for node in nodes
            if node.parent is not None and node.path.rpartition(".")[0] != node.parent.path
        },
        agent=tuple(names.number(node.agent) for node in nodes),
        origin=tuple(names.number(node.request.origin if node.request else None) for node in nodes),
        capability=tuple(names.number(node.request.capability if node.request else None) for node in nodes),
        objective=tuple(_line(node.request.objective) if node.request else "" for node in nodes),
        state=tuple(names.number(node.state) for node in nodes),
        code=tuple(names.number(node.fault.code if node.fault else None) for node in nodes),
        note=tuple(_note(node) for node in nodes),
        started=tuple(max(0, node.started_ms - root.started_ms) for node in nodes),
        took=tuple(took(node, now_ms) for node in nodes),
        own=tuple(own_ms(node, now_ms) for node in nodes),
        tokens=tuple(node.usage.total for node in nodes),
        own_tokens=tuple(node.own.total for node in nodes),
        tools=tuple(node.tools.total() for node in nodes),
        cost=tuple(costs[node.path][1] for node in nodes) if known else (),
        own_cost=tuple(costs[node.path][0] for node in nodes) if known else (),
        names=names.all,
    )


class _Names:
    """Names in the order in which they are first used."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str | None) -> int:
        return -1 if name is None else self._numbers.setdefault(name, len(self._numbers))

    @property
    def all(self) -> tuple[str, ...]:
        return tuple(self._numbers)


def short_path(path: str, run: str) -> str:
    """Return a path without the id of its run; a path of another run begins with `/`."""
    if path == run:
        return ""
    return path[len(run) + 1 :] if path.startswith(f"{run}.") else f"/{path}"


def took(node: Node, now_ms: int) -> int:
    """Return how long a delegation took, or has taken so far; 0 if it never began or its end is not known."""
    return 0 if node.lost or node.state is Status.REFUSED else node.taken_ms(now_ms)


def own_ms(node: Node, now_ms: int) -> int:
    """Return how much of its time a delegation spent while none of its children was at work."""
    whole = took(node, now_ms)
    if not node.children or not whole:
        return whole
    first, last = node.started_ms, node.started_ms + whole
    spans = ((each.started_ms, each.started_ms + took(each, now_ms)) for each in node.children)
    return whole - covered([(max(start, first), min(end, last)) for start, end in spans])


def covered(spans: Sequence[tuple[int, int]]) -> int:
    """Return the length of what intervals cover together; where they overlap, it counts once."""
    total, until = 0, None
    for start, end in sorted(spans):
        begin = start if until is None else max(start, until)
        if end > begin:
            total += end - begin
            until = end
    return total


def _costs(tree: Tree, cost: CostOf) -> dict[str, tuple[float | None, float | None]]:
    """Return what each delegation cost, by its path: itself, and with its children."""
    whole: dict[str, float | None] = {}
    own: dict[str, float | None] = {}
    # Children are called after their parents, so in reverse order each node finds the costs of its children.
    for node in reversed(tree.nodes_in_order()):
        model, spent = _model(node), node.own
        read, cached = spent.prompt + model.beside, model.cached + model.beside
        # Without a price in the record, the hub knew none then.
        known = spent.cost / PER if spent.cost or spent.priced else None
        if known is None and (read or spent.completion):
            known = cost(node.agent, model.name, read, spent.completion, cached)
        own[node.path] = known
        parts = [each for each in (own[node.path], *(whole[child.path] for child in node.children)) if each is not None]
        whole[node.path] = sum(parts) if parts else None
    return {path: (own[path], whole[path]) for path in own}


def _model(node: Node) -> ModelUse:
    """Return the model that a delegation was answered with, as far as it was told."""
    return (model_in(node.response.metadata) if node.response else None) or ModelUse()


def _note(node: Node) -> str:
    if node.fault is not None:
        return _line(node.fault.outward().message)
    if node.response is not None:
        return _line(_handover_of(node, node.response))
    return _line(node.question or node.last_message)


def _line(text: str) -> str:
    # Most are short and plain, and there are thousands of them.
    return text if len(text) <= LINE_LENGTH and text.isprintable() else one_line(text, LINE_LENGTH)
