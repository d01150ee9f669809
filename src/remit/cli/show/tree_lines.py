"""The tree as lines: which delegations are worth a line where there is little room, and what each line says."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from remit.cli.show.tree import Node, Tree
from remit.protocol.lifecycle import Status
from remit.text.terminal import one_line

# How many times the height is looked at for what deserves a line; the rest would not fit anyway.
CANDIDATES = 8
# Below these widths of a terminal, what a line says beside name and state is left out, the least telling first.
WIDTH_FOR_TOKENS = 72
WIDTH_FOR_TIME = 48
MAX_NAME_SHARE = 0.4
MIN_NAME = 12

_ASCII = str.maketrans("├└│─…×“”→·═", '|`|-.x"">-=')


class TreeLine(NamedTuple):
    """One line of the tree, in columns; *style* names how it stands, for whoever colours it."""

    guides: str
    name: str
    state: str
    time: str
    tokens: str
    detail: str
    style: str


Part = tuple[str, str]
"""A piece of text and the name of its style."""


# ── which delegations ─────────────────────────────────────────────────────────────────────────────────────────────────


def lines_of(tree: Tree, now_ms: int, height: int | None = None) -> list[TreeLine]:
    """Return the tree in at most *height* lines; what has no room is counted where it would stand."""
    if tree.root is None:
        return []
    shown = None if height is None or tree.root.size <= height else _worth_showing(tree, tree.root, max(height, 1))
    return list(_walk(tree.root, shown, now_ms))


class _Shown:
    """The delegations that get a line, and how many lines that makes."""

    def __init__(self, root: Node) -> None:
        self.children: dict[Node, list[Node]] = {root: []}
        self.lines = 1

    def cost(self, node: Node) -> int:
        """Return how many lines it takes to show *node*, with those above it that are not shown yet."""
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
    """Choose what waits for a person; what is under way, oldest first, so that it stays; faults; what ended last."""
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
    return {node: _with_a_lone_one(node, children) for node, children in shown.children.items()}


def _with_a_lone_one(node: Node, shown: list[Node]) -> list[Node]:
    """Return the children in order; a single one that is missing takes no more room than to say so."""
    if shown and len(node.children) - len(shown) == 1:
        return node.children
    return sorted(shown, key=lambda each: each.place)


def _walk(root: Node, shown: dict[Node, list[Node]] | None, now_ms: int) -> Iterator[TreeLine]:
    # A stack of our own: a tree may be deeper than Python's.
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
    """Return how many ended how, the successful ones first."""
    parts = [f"{ended[status]:,} {status}" for status in Status if ended[status] > 0]
    return ", ".join([*parts, *([f"{under_way:,} under way"] if under_way else [])])


# ── what a line says ──────────────────────────────────────────────────────────────────────────────────────────────────


def _line(node: Node, guides: str, now_ms: int, below: int) -> TreeLine:
    state = node.state
    # What never began took no time, and how long the rest took is not known.
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
    total = node.usage.total
    return f"{'~' if node.usage.estimated else ''}{total:,}" if total else ""


def _detail(node: Node) -> str:
    """Return the most telling thing: why it failed, whom it waits for, what it does, what it is for."""
    tools = tools_used(node)
    used = f"[{tools}]" if tools else ""
    if node.fault is not None:
        # Why the whole run failed is told below the tree, in full.
        return f"{node.fault.code}: {one_line(node.fault.message)}" if node.parent else str(node.fault.code)
    if node.response is not None:
        unfinished = node.response.unfinished
        said = f"not finished: {one_line(', '.join(unfinished))}" if unfinished else _wanted(node)
        return f"{said} {used}".strip()
    if node.question:
        return f"“{one_line(node.question)}”"
    if node.using:
        return f"uses {one_line(node.using, 60)}"
    return f"{one_line(node.said) or _wanted(node)} {used}".strip()


def _wanted(node: Node) -> str:
    return one_line(node.request.objective or node.request.capability or "") if node.request else ""


def tools_used(node: Node) -> str:
    """Return the tools that a delegation used, and how often."""
    return ", ".join(one_line(tool, 60) + (f" ×{count}" if count > 1 else "") for tool, count in node.tools.items())


def spell_ms(ms: int) -> str:
    """Return a time as one says it: the longer, the coarser."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 9_950:
        return f"{ms / 1_000:.1f} s" if ms % 1_000 else f"{ms // 1_000} s"
    seconds = round(ms / 1_000)
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7_200:
        return f"{seconds // 60} min" + (f" {seconds % 60} s" if seconds % 60 else "")
    return f"{seconds // 3_600} h" + (f" {seconds % 3_600 // 60} min" if seconds % 3_600 >= 60 else "")


# ── in columns ────────────────────────────────────────────────────────────────────────────────────────────────────────

_HEAD = TreeLine("", "agent", "state", "time", "tokens", "", "head")


def in_columns(lines: Iterable[TreeLine], width: int, *, unicode: bool = True, head: bool = True) -> list[list[Part]]:
    """Return each line as its parts, none wider than *width* cells."""
    rows = list(lines)
    if head and width >= WIDTH_FOR_TOKENS and rows:
        rows.insert(0, _HEAD)
    widest = max((cell_len(row.guides + row.name) for row in rows if row.state), default=0)
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
    # Deep down, the guides alone would leave no room for the name.
    guides = row.guides[-max(name_width // 2, name_width - cell_len(row.name)) :]
    room = name_width - len(guides)
    yield guides, "guides"
    yield set_cell_size(_cut(row.name, room), room) + "  ", "name" if row.style != "head" else "head"
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
        if cell_len(text) > left:
            text = _cut(text, left) if unicode else text[:left]
        left -= cell_len(text)
        yield (text, style)


def _cut(text: str, width: int) -> str:
    """Return a text in at most *width* cells, with a sign that there was more."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 1 else text[:0]


def plain_ascii(text: str) -> str:
    """Return a text for a terminal that knows no other letters."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()
