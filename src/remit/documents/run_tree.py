"""The delegations of a run and their states, folded from the run's records."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

from remit.protocol.envelope import NOBODY, Request, Response, Usage
from remit.protocol.errors import Code, Fault
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

Unended = Literal["waiting", "running", "asking", "not begun", "unknown"]
"""Waiting: for agents that it called, or for its start. Asking: a person must approve first. After the end of
the run, if no outcome of this part was recorded: not begun, or unknown.
"""


# Nobody reads more of an unfinished answer than a terminal shows at once.
SAYING = 4_000


class Node:
    """One delegation, as far as known."""

    def __init__(self, path: str, parent: "Node | None", agent: str, at_ms: int) -> None:
        self.path = path
        self.parent = parent
        self.place = len(parent.children) if parent else 0
        self.agent = agent
        self.request: Request | None = None
        """None if it is known only from other records."""
        self.response: Response | None = None
        self.lost = False
        """Whether the run ended without recording its outcome."""
        self.started_ms = at_ms
        self.children: list[Node] = []
        self.size = 1
        """Itself and all below."""
        self.open = 0
        """Children that have not ended."""
        self.ended: Counter[Status] = Counter()
        """Children that have."""
        self.question = ""
        self.tools: Counter[str] = Counter()
        self.using = ""
        """The tool that it currently uses, if its start was recorded."""
        self.said = ""
        """Its last progress report, or the last note about it."""
        self.saying = ""
        """The end of its streamed answer so far."""
        self.below = Usage()
        """The usage of the children that have ended."""
        self.own = self.so_far = Usage()
        """What it reported as its own use, and the same with all below it, as far as known."""
        self.pauses = 0
        self.paused_ms = self.paused_since = 0

    @property
    def state(self) -> Status | Unended:
        """Its current state."""
        if self.response is not None:
            return self.response.status
        if self.lost:
            return "unknown" if self.request else "not begun"
        if self.question:
            return "asking"
        return "waiting" if self.open or self.request is None else "running"

    @property
    def fault(self) -> Fault | None:
        return self.response.fault if self.response else None

    @property
    def usage(self) -> Usage:
        """The usage of itself and all below; until it has ended, as far as it was reported."""
        return self.response.usage if self.response else self.so_far

    @property
    def granted(self) -> int | None:
        """The tokens that it was granted, if it has begun."""
        return self.request.remit.tokens if self.request else None

    @property
    def shown(self) -> int | None:
        """The tokens of its context, if it was shown any of the conversation."""
        return self.request.view.tokens if self.request and self.request.view else None

    def taken_ms(self, now_ms: int) -> int:
        """Return how long it took, or has taken so far, without the time that it waited for a person."""
        if self.response is not None:
            return self.response.duration_ms
        paused = self.paused_ms + (now_ms - self.paused_since if self.pauses else 0)
        return max(0, now_ms - self.started_ms - paused)

    def lineage(self) -> "Iterator[Node]":
        """Yield this node and its ancestors, the root last."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


class TreeNote(NamedTuple):
    """A note to the operator about a delegation."""

    at_ms: int
    notice: Notice


# The part of a question's id after the id of its delegation.
_MARK = re.compile(r"[0-9a-f]{8}")


class TreeApproval(NamedTuple):
    """A question to a person, with the answer if there is one."""

    at_ms: int
    approval: Approval
    answered_ms: int | None

    @property
    def is_here(self) -> bool:
        """Whether this hub asks: the id of another hub's question also contains its whole id there."""
        return _MARK.fullmatch(self.approval.id.removeprefix(f"{self.approval.delegation}-")) is not None

    @property
    def todo(self) -> str:
        """The command that answers it, or where to answer it."""
        if self.is_here:
            return f"remit pending approve {self.approval.id}"
        return "Answer this question on the hub that runs this agent: remit pending list"


class Tree:
    """The delegations of one run; `feed` it the run's records in order."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.nodes: dict[str, Node] = {}
        self.in_flight: dict[str, Node] = {}
        self.over: list[Node] = []
        """Delegations that have ended, in order."""
        self.tally: Counter[Status] = Counter()
        self.notes: list[TreeNote] = []
        self.consents: dict[str, TreeApproval] = {}
        self._by_request: dict[str, Node] = {}
        self._parts: dict[str, Node] = {}
        """The runs of other hubs that are delegations of this one."""

    @property
    def response(self) -> Response | None:
        """The response of the run, if it has ended."""
        return self.root.response if self.root else None

    def nodes_in_order(self) -> list[Node]:
        """Return every delegation once, a parent before its children."""
        # The run of a part that another hub executed is a second name of its delegation.
        return [node for path, node in self.nodes.items() if node.path == path]

    def called(self, delegation: str) -> Node | None:
        """Return the delegation with that request id."""
        return self._by_request.get(delegation) or self.nodes.get(delegation)

    def join(self, run: str, node: Node) -> None:
        """Take the records of *run*, fed from now on, as those of *node*: another hub of the team executed it."""
        self.nodes[run] = node
        self._parts[run] = node

    def feed(self, record: Record) -> Node:
        """Apply the next record of the run, and return its delegation."""
        match record.body:
            case Request(parent=None) if record.run in self._parts:
                return self._parts[record.run]  # the caller's hub has recorded it
            case Request() as request:
                return self._asked(record, request)
            case Response() as response:
                node = self._by_request.get(response.id) or self._node(record, record.run, response.target)
                return self._over(node, response, record.at_ms)
            case Refusal(request=request, response=response):
                return self._over(self._asked(record, request), response, record.at_ms)
            case Progress() as progress:
                node = self._node(record, progress.delegation, progress.agent)
                node.said = progress.text or node.said
                if progress.usage is not None and node.response is None:
                    own = _without(progress.usage, node.below)
                    _add(node, _without(own, node.own))
                    node.own = own
                return node
            case Delta() as delta:
                node = self._node(record, delta.delegation, delta.agent)
                node.saying = (node.saying + delta.text)[-SAYING:]
                return node
            case ToolUse() as use:
                return self._used(self._node(record, use.delegation, use.agent), use)
            case Notice() as notice:
                node = self._node(record, notice.delegation, notice.agent)
                node.said = notice.text
                self.notes.append(TreeNote(record.at_ms, notice))
                return node
            case Approval() as approval:
                node = self._node(record, approval.delegation, approval.agent)
                return self._consented(node, approval, record.at_ms)
            case SharedStep() as step:
                node = self._node(record, record.run, step.profile or NOBODY)
                node.said = step.event
                return node
            case ChainBreak() as broken:
                node = self._node(record, record.run, NOBODY)
                node.said = broken.text
                return node
            case Removal() as removal:
                node = self._node(record, record.run, NOBODY)
                node.said = removal.rule
                return node

    def _asked(self, record: Record, request: Request) -> Node:
        node = self._node(record, request.path, request.target, request.parent)
        self._by_request[request.id] = node
        if node.response is not None:
            self._reopen(node)
        node.agent, node.request, node.started_ms = request.target, request, record.at_ms
        self._answered(node, record.at_ms)
        return node

    def _node(self, record: Record, path: str, agent: str, parent: str | None = None) -> Node:
        """Return the delegation at *path*; one that is not known yet is added."""
        known = self.nodes.get(path)
        if known is not None:
            known.agent = agent if known.agent == NOBODY else known.agent
            return known
        above = None
        if path != record.run:
            # A slow listener may have lost records: their delegations are still added, with only their position.
            above = self._node(record, parent or path.rpartition(".")[0] or record.run, NOBODY)
        node = self.nodes[path] = self.in_flight[path] = Node(path, above, agent, record.at_ms)
        if above is None:
            self.root = node
            return node
        above.children.append(node)
        above.open += 1
        for each in above.lineage():
            each.size += 1
        return node

    def _over(self, node: Node, response: Response, at_ms: int) -> Node:
        if node.response is not None:
            return node
        self._answered(node, at_ms)
        _add(node, _without(response.usage, node.so_far))
        node.response = response
        node.using = ""
        self.in_flight.pop(node.path, None)
        self.over.append(node)
        self.tally[response.status] += 1
        if node.parent is not None:
            node.parent.open -= 1
            node.parent.ended[response.status] += 1
            node.parent.below += response.usage
        else:
            for each in self.in_flight.values():
                each.lost = True
            self.in_flight.clear()
        return node

    def _reopen(self, node: Node) -> None:
        """Mark a delegation as running again: it ended when its hub closed, and another hub has resumed it."""
        assert node.response is not None
        status = node.response.status
        node.response = None
        self.in_flight[node.path] = node
        self.over.remove(node)
        self.tally[status] -= 1
        if node.parent is not None:
            node.parent.open += 1
            node.parent.ended[status] -= 1

    def _used(self, node: Node, use: ToolUse) -> Node:
        if use.begun:
            node.using = use.tool
            return node
        node.using = ""
        if use.fault is None or use.fault.code is not Code.TOOL_NOT_ALLOWED:
            node.tools[use.tool] += 1
        if use.fault is not None:
            node.said = f"{use.tool}: {use.fault.message}"
        return node

    # ── a person is asked ─────────────────────────────────────────────────────────────────────────────────────────────

    def _consented(self, node: Node, approval: Approval, at_ms: int) -> Node:
        asked = self.consents.get(approval.id)
        if approval.agreed is None:
            self.consents[approval.id] = TreeApproval(at_ms, approval, None)
            if not node.question:
                self._pause(node, at_ms)
            node.question = approval.question
            return node
        self.consents[approval.id] = TreeApproval(asked.at_ms if asked else at_ms, approval, at_ms)
        self._answered(node, at_ms)
        if approval.agreed and node.response is None:
            node.started_ms = at_ms
        return node

    def _answered(self, node: Node, at_ms: int) -> None:
        if node.question:
            node.question = ""
            self._unpause(node, at_ms)

    def _pause(self, node: Node, at_ms: int) -> None:
        """Stop the clocks of all ancestors, as the hub does while it waits for a person."""
        for above in _above(node):
            above.pauses += 1
            if above.pauses == 1:
                above.paused_since = at_ms

    def _unpause(self, node: Node, at_ms: int) -> None:
        for above in _above(node):
            above.pauses -= 1
            if above.pauses == 0:
                above.paused_ms += at_ms - above.paused_since


def _without(usage: Usage, known: Usage) -> Usage:
    """Return what was used since *known*."""
    return Usage(
        prompt=max(0, usage.prompt - known.prompt),
        completion=max(0, usage.completion - known.completion),
        estimated=usage.estimated,
    )


def _add(node: Node, usage: Usage) -> None:
    """Count tokens for a delegation and all above it."""
    if usage.total:
        for each in node.lineage():
            each.so_far += usage


def _above(node: Node) -> Iterator[Node]:
    return iter(()) if node.parent is None else node.parent.lineage()
