"""A run as lines: its tree, its records, and its calls of sub-agents."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple

from remit.policy.budget import amounts
from remit.protocol.envelope import PREVIEW_LENGTH, USER, Request, Response, Usage
from remit.protocol.errors import Fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import (
    Approval,
    ChainBreak,
    Delta,
    Notice,
    Progress,
    Record,
    Refusal,
    Removal,
    SharedStep,
    ToolUse,
)
from remit.runtime.run_tree import Node, Tree
from remit.words.terminal import one_line
from remit_cli.show.screen import cell_sized, cells, spell_ms
from remit_server.documents.delegation_table import handling_of, model_in
from remit_server.documents.runs import DelegationLine

# How many candidates are examined, as a multiple of the height; the rest would not fit anyway.
CANDIDATES = 8
# Below these terminal widths, details beside name and state are left out, the least important first.
WIDTH_FOR_TOKENS = 72
WIDTH_FOR_TIME = 48
MAX_NAME_SHARE = 0.4
MIN_NAME = 12

_ASCII = str.maketrans("├└│─…×“”→·═", '|`|-.x"">-=')


class TreeLine(NamedTuple):
    """One line of the tree, in columns; *style* names its state, for colouring."""

    guides: str
    name: str
    state: str
    time: str
    tokens: str
    detail: str
    style: str


Part = tuple[str, str]
"""A piece of text and the name of its style."""


# ── choosing delegations ──────────────────────────────────────────────────────────────────────────────────────────────


def lines_of(tree: Tree, now_ms: int, height: int | None = None) -> list[TreeLine]:
    """Return the tree in at most *height* lines; nodes without a line are counted in their place."""
    if tree.root is None:
        return []
    shown = None if height is None or tree.root.size <= height else _worth_showing(tree, tree.root, max(height, 1))
    return list(_walk(tree.root, shown, now_ms))


class _Shown:
    """The delegations that get a line, and the number of lines."""

    def __init__(self, root: Node) -> None:
        self.children: dict[Node, list[Node]] = {root: []}
        self.lines = 1

    def cost(self, node: Node) -> int:
        """Return how many lines it takes to show *node*, with its ancestors that are not shown yet."""
        return sum(1 + self._rest_with(each) - self._rest(each) for each in self._missing(node))

    def add(self, node: Node) -> None:
        self.lines += self.cost(node)
        for each in self._missing(node):
            assert each.parent is not None
            self.children.setdefault(each.parent, []).append(each)
            self.children.setdefault(each, [])

    def _missing(self, node: Node) -> list[Node]:
        return [each for each in node.lineage() if each not in self.children]

    def _rest(self, node: Node) -> int:
        """Return 1 if the parent of *node* has a line for the children that are not shown."""
        assert node.parent is not None
        shown = len(self.children.get(node.parent, ()))
        return int(0 < shown < len(node.parent.children))

    def _rest_with(self, node: Node) -> int:
        assert node.parent is not None
        return int(len(self.children.get(node.parent, ())) + 1 < len(node.parent.children))


def _worth_showing(tree: Tree, root: Node, height: int) -> dict[Node, list[Node]]:
    """Return the nodes to show, each with its children to show.

    By importance: waiting for a person; running, oldest first, so that they stay; failed; most recently ended.
    """
    shown = _Shown(root)
    latest = list(islice(reversed(tree.over), CANDIDATES * height))
    faults = [node for node in latest if node.fault is not None]
    under_way = list(islice(tree.in_flight.values(), CANDIDATES * height))
    asking = [node for node in tree.in_flight.values() if node.question]
    for node in chain(asking, under_way, faults, latest):
        if shown.lines >= height:
            break
        if node not in shown.children and shown.lines + shown.cost(node) <= height:
            shown.add(node)
    return {node: _with_single_hidden(node, children) for node, children in shown.children.items()}


def _with_single_hidden(node: Node, shown: list[Node]) -> list[Node]:
    """Return the children in order; a single hidden one is shown, because its count would take a line, too."""
    if shown and len(node.children) - len(shown) == 1:
        return node.children
    return sorted(shown, key=lambda each: each.place)


def _walk(root: Node, shown: dict[Node, list[Node]] | None, now_ms: int) -> Iterator[TreeLine]:
    # An explicit stack: a tree may be deeper than Python's recursion limit.
    waiting: list[tuple[Node, str, str] | TreeLine] = [(root, "", "")]
    while waiting:
        each = waiting.pop()
        if isinstance(each, TreeLine):
            yield each
            continue
        node, first, rest = each
        children = node.children if shown is None else shown.get(node, [])
        hidden = len(node.children) - len(children)
        yield _line(node, first, now_ms, below=node.size - 1 if hidden and not children else 0)
        below: list[tuple[Node, str, str] | TreeLine] = []
        for child in children:
            last = child is children[-1] and not hidden
            below.append((child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  ")))
        if hidden and children:
            below.append(_more(node, children, rest + "└─ "))
        waiting += reversed(below)


def _more(node: Node, shown: list[Node], guides: str) -> TreeLine:
    ended = node.ended - Counter(each.response.status for each in shown if each.response)
    under_way = node.open - sum(each.response is None for each in shown)
    count = len(node.children) - len(shown)
    return TreeLine(guides, f"… {count:,} more", "", "", "", tallied(ended, under_way), "more")


def tallied(ended: Counter[Status], under_way: int = 0) -> str:
    """Return the number of each outcome, successes first."""
    parts = [f"{ended[status]:,} {status}" for status in Status if ended[status] > 0]
    return ", ".join([*parts, *([f"{under_way:,} under way"] if under_way else [])])


# ── the content of a line ─────────────────────────────────────────────────────────────────────────────────────────────


def _line(node: Node, guides: str, now_ms: int, below: int) -> TreeLine:
    state = node.state
    # A delegation that never began took no time; how long the others took is unknown.
    time = "" if state is Status.REFUSED or node.lost else spell_ms(node.taken_ms(now_ms))
    tokens = _tokens(node)
    if node.response is None and node.request is not None and not node.lost:
        time = f"{time} / {spell_ms(node.request.remit.time_ms)}"
        tokens = f"{tokens or 0} / {node.granted:,}"
    detail = _detail(node)
    if below:
        detail = f"+{below:,} below" + (f", {detail}" if detail else "")
    return TreeLine(guides, one_line(node.agent, 100), state, time, tokens, detail, state)


def _tokens(node: Node) -> str:
    total, cost = node.usage.total, cost_text(node.usage)
    return f"{'~' if node.usage.estimated else ''}{total:,}{cost and f' ({cost})'}" if total else ""


def cost_text(usage: Usage, granted: int | None = None) -> str:
    """Return a cost in the team's currency: `0.42`, `0.42 of 0.50`, `0.42+` if it is not all; empty if not known."""
    if not usage.priced and not usage.cost:
        return ""
    spent, *most = amounts(usage.cost, *([] if granted is None else [granted]))
    return " of ".join((spent + ("+" if usage.unpriced else ""), *most))


def _detail(node: Node) -> str:
    """Return the most important detail: why it failed, what it waits for, what it does, or its objective."""
    tools = tools_used(node)
    used = f"[{tools}]" if tools else ""
    if node.fault is not None:
        # The reason why the whole run failed is printed below the tree.
        return f"{node.fault.code}: {one_line(node.fault.message)}" if node.parent else str(node.fault.code)
    if node.response is not None:
        unfinished = node.response.unfinished
        objective = f"not finished: {one_line(', '.join(unfinished))}" if unfinished else _objective(node)
        placed, model = handling_of(node), model_in(node.response.metadata)
        cached = f"(+{model.beside:,} cached)" if model and model.beside else ""
        return " ".join(filter(None, (objective, f"({one_line(placed)})" if placed else "", used, cached)))
    if node.question:
        return f"“{one_line(node.question)}”"
    if node.using:
        return f"uses {one_line(node.using, 60)}"
    return f"{one_line(node.last_message) or _objective(node)} {used}".strip()


def _objective(node: Node) -> str:
    return one_line(node.request.objective or node.request.capability or "") if node.request else ""


def tools_used(node: Node) -> str:
    """Return the tools that a delegation used and those that it was refused, and how often."""
    return _times(
        Counter(node.tools) + Counter({f"{tool} refused": count for tool, count in node.refused_tools.items()})
    )


def _times(tools: Mapping[str, int]) -> str:
    return ", ".join(one_line(tool, 60) + (f" ×{count}" if count > 1 else "") for tool, count in tools.items())


# The styles of the parts of a line, in the words of rich.
STYLES = {
    "head": "dim",
    "guides": "dim",
    "name": "bold",
    "figures": "",
    "detail": "dim",
    "more": "dim",
    "running": "cyan",
    "waiting": "dim",
    "asking": "bold magenta",
    "success": "green",
    "partial": "yellow",
    "timeout": "yellow",
    "cancelled": "yellow",
    "failed": "red",
    "refused": "red",
    "not begun": "dim",
    "unknown": "red",
    "saying": "",
}


# ── in columns ────────────────────────────────────────────────────────────────────────────────────────────────────────

_HEAD = TreeLine("", "agent", "state", "time", "tokens", "", "head")


def in_columns(lines: Iterable[TreeLine], width: int, *, unicode: bool = True, head: bool = True) -> list[list[Part]]:
    """Return each line as its parts, none wider than *width* cells."""
    rows = list(lines)
    if head and width >= WIDTH_FOR_TOKENS and rows:
        rows.insert(0, _HEAD)
    widest = max((cells(row.guides + row.name) for row in rows if row.state), default=0)
    name_width = min(widest, max(MIN_NAME, int(width * MAX_NAME_SHARE)))
    state_width = max((len(row.state) for row in rows), default=0)
    time_width = max((len(row.time) for row in rows), default=0) if width >= WIDTH_FOR_TIME else 0
    tokens_width = max((len(row.tokens) for row in rows), default=0) if width >= WIDTH_FOR_TOKENS else 0
    return [
        list(_fitted(_parts(row, name_width, state_width, time_width, tokens_width), width, unicode=unicode))
        for row in rows
    ]


def _parts(row: TreeLine, name_width: int, state_width: int, time_width: int, tokens_width: int) -> Iterator[Part]:
    if not row.state:
        yield row.guides, "guides"
        yield f"{row.name}: {row.detail}", row.style
        return
    # Deep in the tree, the guide lines would leave no room for the name.
    guides = row.guides[-max(name_width // 2, name_width - cells(row.name)) :]
    room = name_width - len(guides)
    yield guides, "guides"
    yield cell_sized(_cut(row.name, room), room) + "  ", "name" if row.style != "head" else "head"
    yield f"{row.state:{state_width}}", row.style
    if time_width:
        yield f"  {row.time:>{time_width}}", row.style if row.style == "head" else "figures"
    if tokens_width:
        yield f"  {row.tokens:>{tokens_width}}", row.style if row.style == "head" else "figures"
    if row.detail:
        yield f"  {row.detail}", "detail"


def _fitted(parts: Iterable[Part], width: int, *, unicode: bool) -> Iterator[Part]:
    left = width
    for text, style in parts:
        if not unicode:
            text = plain_ascii(text)
        if cells(text) > left:
            text = _cut(text, left) if unicode else text[:left]
        left -= cells(text)
        yield (text, style)


def _cut(text: str, width: int) -> str:
    """Return a text in at most *width* cells, with an ellipsis if it was cut."""
    if cells(text) <= width:
        return text
    return cell_sized(text, width - 1).rstrip() + "…" if width > 1 else text[:0]


def plain_ascii(text: str) -> str:
    """Return a text for a terminal that supports only ASCII."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def sentence(record: Record, node: Node) -> str:
    """Return one record of the delegation *node* as a sentence."""
    match record.body:
        case Request() as request:
            return f"{_who(request)} asks {one_line(request.target)}{_purpose(request)}"
        case Response() as response:
            tools = tools_used(node)
            return f"{one_line(node.agent)}: {_end(response)}" + (f", tools: {tools}" if tools else "")
        case Refusal(request=request, response=response):
            return f"{_who(request)} asks {one_line(request.target)}{_purpose(request)}: {_end(response)}"
        case Progress() as progress:
            return f"{one_line(progress.agent)}: {one_line(progress.text)}"
        case Delta() as delta:
            return f"{one_line(delta.agent)} says: {one_line(delta.text)}"
        case ToolUse() as use:
            return f"{one_line(use.agent)} {_use(use)}"
        case Notice() as notice:
            return f"{one_line(notice.agent)}: {one_line(notice.text)}"
        case Approval(agreed=None) as approval:
            return f"{one_line(approval.agent)}: a person is asked: {one_line(approval.question)}"
        case Approval() as approval:
            answer = "agreed" if approval.agreed else "declined"
            by = one_line(approval.by) or "the approver"
            edited = f", changed: {', '.join(approval.edited)}" if approval.edited else ""
            reason = f" ({one_line(approval.reason)})" if approval.reason else ""
            return f"{one_line(approval.agent)}: {by} {answer}{reason}{edited}"
        case SharedStep() as step:
            return _shared(step)
        case ChainBreak() as broken:
            return f"{one_line(broken.finding)}: {one_line(broken.text)}"
        case Removal() as removal:
            return f"{removal.why} in rows {removal.first} to {removal.last}: {one_line(removal.rule)}"


def _shared(step: SharedStep) -> str:
    own, other = one_line(step.profile) or "an agent that is not shared", f"device {one_line(step.device)}"
    turn = f", turn {step.turn}" if step.turn else ""
    mode = f", {one_line(step.mode)}" if step.mode else ""
    between = f"{own} with {other}{turn}{mode}" if step.side == "asks" else f"{own} for {other}"
    person = f" by {one_line(step.by)}" if step.by else ""
    person += f" ({one_line(step.via)})" if step.via and step.via != step.by else ""
    label = f", {one_line(step.label)}" if step.label else ""
    rules = f", because of {', '.join(map(one_line, step.rules))}" if step.rules else ""
    state = f", now {one_line(step.state)}" if step.state else ""
    why = "".join(f", {one_line(each)}" for each in (step.code, step.failure) if each)
    return f"{between}: {one_line(step.event)}{person}{label}{rules}{state}{why}"


def _who(request: Request) -> str:
    return one_line(request.remit.user if request.origin == USER else request.origin)


def _purpose(request: Request) -> str:
    wanted = one_line(request.objective or request.capability or "")
    return f": {wanted}" if wanted else ""


def _end(response: Response) -> str:
    tokens = f", {response.usage.total:,} tokens" if response.usage.total else ""
    tokens += f", cost {cost}" if (cost := cost_text(response.usage)) else ""
    took = f" in {spell_ms(response.duration_ms)}" if response.duration_ms else ""
    return f"{response.status}{took}{tokens}{_why(response.fault)}"


def _use(use: ToolUse) -> str:
    tool = one_line(use.tool) + (f", which saw {', '.join(use.revealed)}" if use.revealed else "")
    tool += " in clear for models" if use.clear else ""
    if use.begun:
        return f"starts to use {tool}"
    if use.fault is not None:
        return f"could not use {tool}{_why(use.fault)}"
    return f"used {tool}" + (", from the journal" if use.replayed else f" ({spell_ms(use.duration_ms)})")


def _why(fault: Fault | None) -> str:
    return f", {fault.code}: {one_line(fault.message)}" if fault else ""


# An objective can be pages long; `runs show` prints all of it.
MAX_TASK = 200


def call_line(node: Node) -> str:
    """Return caller, callee and objective of a call."""
    caller = node.request.origin if node.request else node.parent.agent if node.parent else ""
    wanted = (node.request.objective or node.request.capability or "") if node.request else ""
    task = one_line(wanted, MAX_TASK)
    return f"{one_line(caller)} → {one_line(node.agent)}" + (f": {task}" if task else "")


def return_line(node: Node) -> str:
    """Return status, cost and tools of a call."""
    assert node.response is not None, "it has ended"
    response, tools = node.response, tools_used(node)
    took = [f"{response.usage.total:,} tokens"] if response.usage.total else []
    took += [f"cost {cost}"] if (cost := cost_text(response.usage)) else []
    took += [spell_ms(response.duration_ms)] if response.status is not Status.REFUSED else []
    spent = f" ({', '.join(took)})" if took else ""
    used = f" tools: {tools}" if tools else ""
    return f"{one_line(node.agent)} returned: {response.status.upper()}{spent}{used}{_reason(response.fault)}"


def history(calls: Iterable[DelegationLine]) -> Iterator[str]:
    """Yield a few lines for each call, oldest first; the user's own requests are not calls."""
    for call in calls:
        if call.parent is not None:
            yield _headline(call)
            yield from (f"    {name:5}{text}" for name, text in _facts(call) if text)


def _headline(call: DelegationLine) -> str:
    spent = f"{'about ' if call.usage.estimated else ''}{call.usage.total:,} tokens" if call.usage.total else ""
    shown = f"ctx {call.context_tokens:,}" if call.context_tokens else ""
    tools = _times(call.tools)
    took = "" if call.state == Status.REFUSED else spell_ms(call.duration_ms)
    parts = [_ENDINGS.get(call.state, call.state.upper()), took, spent, shown, f"tools: {tools}" if tools else ""]
    return f"[{one_line(call.origin or '?')} -> {one_line(call.agent)}] {'  '.join(part for part in parts if part)}"


_ENDINGS: dict[str, str] = {
    **{status: f"FAILED ({status})" for status in Status},
    Status.FAILED: "FAILED",
    Status.SUCCESS: "OK",
    Status.PARTIAL: "OK (partial)",
}


def _facts(call: DelegationLine) -> Iterator[tuple[str, str]]:
    yield "task", one_line(call.objective or call.capability or "", MAX_TASK)
    yield "gave", one_line(call.preview, PREVIEW_LENGTH)
    yield "handling", one_line(call.handling)
    yield "why", f"{call.fault.code}: {one_line(call.fault.message)}" if call.fault else ""


def _reason(fault: Fault | None) -> str:
    return f" {fault.code}: {one_line(fault.message)}" if fault else ""
