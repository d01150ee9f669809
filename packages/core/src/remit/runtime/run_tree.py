"""The delegations of a run and their states, folded from the run's records.

Whatever shows a run is a projection of this tree: commands, the HTTP API, the console, spans, `hub.delegations`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from remit.policy.breaker import PROBE_NOTICE
from remit.protocol.codec import text_of
from remit.protocol.envelope import NOBODY, PREVIEW_LENGTH, Json, Request, Response, Usage
from remit.protocol.errors import Code, Fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import (
    Approval,
    ChainBreak,
    Delegation,
    Delta,
    Notice,
    PlannedStep,
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


class ToolRun(NamedTuple):
    """A use of a tool: how it ended or, while it runs, how it began."""

    use: ToolUse
    input: Json
    """The arguments; they may be in the record of its start alone."""
    seq: int
    """Its first record."""
    begun_ms: int
    ended_ms: int | None = None


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
        self.is_refused = False
        """Whether this hub refused it, so that it never began."""
        self.is_probe = False
        """Whether it was let through while the breaker of its agent was open."""
        self.known_ms = self.started_ms = self.asked_ms = at_ms
        """When its first record was written, when it began, and when it was first asked for.

        A person may be asked before its request is recorded, and edit it afterwards.
        """
        self.ended_ms: int | None = None
        self.seqs: list[int] = []
        """The numbers of its records, in order."""
        self.first_seq = self.asked_seq = 0
        """The first record of its request, and the one with its last form; 0: it is not recorded yet."""
        self.ended_seq: int | None = None
        self.children: list[Node] = []
        self.size = 1
        """Itself and all below."""
        self.open = 0
        """Children that have not ended."""
        self.ended: Counter[Status] = Counter()
        """Children that have."""
        self.question = ""
        self.tools: Counter[str] = Counter()
        self.refused_tools: Counter[str] = Counter()
        """The uses of tools that were refused before they began."""
        self.running_tools: list[ToolRun] = []
        """The tools that it currently uses, as far as their start was recorded."""
        self.last_tool: ToolRun | None = None
        """The use of a tool that ended last."""
        self.last_message = ""
        """Its last progress report, or the last note about it."""
        self.saying = ""
        """The end of its streamed answer so far."""
        self.plan: dict[str, PlannedStep] = {}
        """The steps that it planned, by name, if it follows a workflow."""
        self.skipped: dict[str, str] = {}
        """Why it skipped steps."""
        self.below = Usage()
        """The usage of the children that have ended."""
        self.reported = self.so_far = Usage()
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
    def using(self) -> str:
        """The tool that it currently uses, the last one that began; empty if there is none."""
        return self.running_tools[-1].use.tool if self.running_tools and self.response is None else ""

    @property
    def fault(self) -> Fault | None:
        return self.response.fault if self.response else None

    @property
    def usage(self) -> Usage:
        """The usage of itself and all below; until it has ended, as far as it was reported."""
        return self.response.usage if self.response else self.so_far

    @property
    def own(self) -> Usage:
        """Its usage without all below; until it has ended, as far as it was reported."""
        return self.response.usage.beyond(self.below) if self.response else self.reported

    @property
    def granted(self) -> int | None:
        """The tokens that it was granted, if it has begun."""
        return self.request.remit.tokens if self.request else None

    @property
    def cost_granted(self) -> int | None:
        """The money it was granted, in millionths; None: there is no limit, or it is not known."""
        return self.request.remit.cost if self.request else None

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

    def is_open_at(self, seq: int) -> bool:
        """Return whether it had begun and not ended when a record was written."""
        return not self.is_refused and 0 < self.first_seq < seq and (self.ended_seq is None or self.ended_seq > seq)

    def asked_before(self, seq: int) -> "list[Node]":
        """Return the calls of the same caller that were recorded before a record."""
        beside = self.parent.children if self.parent is not None else []
        return [each for each in beside if 0 < each.first_seq < seq]

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
        self.seq = 0
        """The number of the newest record."""
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

    @property
    def user(self) -> str | None:
        """The user of the run, if its request is recorded."""
        return self.root.request.remit.user if self.root and self.root.request else None

    def nodes_in_order(self) -> list[Node]:
        """Return every delegation once, a parent before its children."""
        # The run of a part that another hub executed is a second name of its delegation.
        return [node for path, node in self.nodes.items() if node.path == path]

    def join(self, handed_over: Iterable[tuple[str, str]]) -> list[str]:
        """Return the runs that other hubs of the team executed as parts of this one, as far as they are new.

        Given are request ids with the runs. The records of such a run, fed from now on, are those of its delegation.
        """
        runs: list[str] = []
        for delegation, run in handed_over:
            node = self._by_request.get(delegation) or self.nodes.get(delegation)
            if node is not None and run not in self.nodes:
                self.nodes[run] = self._parts[run] = node
                runs.append(run)
        return runs

    def feed(self, record: Record) -> Node:
        """Apply the next record of the run, and return its delegation."""
        node = self._applied(record)
        if record.seq:  # a piece of a text has none
            node.seqs.append(record.seq)
            self.seq = max(self.seq, record.seq)
        return node

    def forget(self, node: Node) -> None:
        """Drop a delegation and all below it, if all have ended, so that following a long run takes little memory."""
        below = [node]
        for each in below:
            below += each.children
        if any(each.response is None for each in below):
            return
        for each in below:
            del self.nodes[each.path]
            self.over.remove(each)
            if each.request is not None:
                self._by_request.pop(each.request.id, None)
        if node.parent is not None:
            node.parent.children.remove(node)

    def _applied(self, record: Record) -> Node:
        match record.body:
            case Request(parent=None) if record.run in self._parts:
                return self._parts[record.run]  # the caller's hub has recorded it
            case Request() as request:
                return self._note_request(record, request)
            case Response() as response:
                # The id of a root request is its sender's choice; the others are paths.
                path = response.id if response.id.startswith(f"{record.run}.") else record.run
                node = self._by_request.get(response.id) or self._node(record, path, response.target)
                return self._over(node, response, record)
            case Refusal(request=request, response=response):
                node = self._note_request(record, request)
                node.is_refused = True
                return self._over(node, response, record)
            case Progress() as progress:
                node = self._node(record, progress.delegation, progress.agent)
                node.last_message = progress.text or node.last_message
                if progress.plan is not None:
                    node.plan |= {step.name: step for step in progress.plan.steps}
                    node.skipped |= progress.plan.skipped
                if progress.usage is not None and node.response is None:
                    own = progress.usage.beyond(node.below)
                    _add(node, own.beyond(node.reported))
                    node.reported = own
                return node
            case Delta() as delta:
                node = self._node(record, delta.delegation, delta.agent)
                node.saying = (node.saying + delta.text)[-SAYING:]
                return node
            case ToolUse() as use:
                return self._used(self._node(record, use.delegation, use.agent), use, record)
            case Notice() as notice:
                node = self._node(record, notice.delegation, notice.agent)
                node.last_message = notice.text
                node.is_probe = node.is_probe or notice.text == PROBE_NOTICE
                self.notes.append(TreeNote(record.at_ms, notice))
                return node
            case Approval() as approval:
                node = self._node(record, approval.delegation, approval.agent)
                return self._consented(node, approval, record.at_ms)
            case SharedStep() as step:
                node = self._node(record, record.run, step.profile or NOBODY)
                node.last_message = step.event
                return node
            case ChainBreak(text=text) | Removal(rule=text):
                node = self._node(record, record.run, NOBODY)
                node.last_message = text
                return node

    def _note_request(self, record: Record, request: Request) -> Node:
        node = self._node(record, request.path, request.target, request.parent)
        self._by_request[request.id] = node
        if node.response is not None:
            self._reopen(node)
        if node.request is None:
            node.asked_ms, node.first_seq = record.at_ms, record.seq
        node.agent, node.request, node.started_ms = request.target, request, record.at_ms
        node.asked_seq = record.seq
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

    def _over(self, node: Node, response: Response, record: Record) -> Node:
        if node.response is not None:
            return node
        self._answered(node, record.at_ms)
        node.ended_ms, node.ended_seq = record.at_ms, record.seq
        _add(node, response.usage.beyond(node.so_far))
        node.response = response
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
        node.response = node.ended_ms = node.ended_seq = None
        node.is_refused = False
        node.running_tools.clear()
        self.in_flight[node.path] = node
        self.over.remove(node)
        self.tally[status] -= 1
        if node.parent is not None:
            node.parent.open += 1
            node.parent.ended[status] -= 1

    def _used(self, node: Node, use: ToolUse, record: Record) -> Node:
        if use.begun:
            node.running_tools.append(ToolRun(use, use.input, record.seq, record.at_ms))
            return node
        node.last_tool = _ended(node, use, record)
        if use.refused or (use.fault is not None and use.fault.code is Code.TOOL_NOT_ALLOWED):
            node.refused_tools[use.tool] += 1
        else:
            node.tools[use.tool] += 1
        if use.fault is not None:
            node.last_message = f"{use.tool}: {use.fault.message}"
        return node

    # ── a person is asked ─────────────────────────────────────────────────────────────────────────────────────────────

    def _consented(self, node: Node, approval: Approval, at_ms: int) -> Node:
        earlier = self.consents.get(approval.id)
        if approval.agreed is None:
            self.consents[approval.id] = TreeApproval(at_ms, approval, None)
            if not node.question:
                self._pause(node, at_ms)
            node.question = approval.question
            return node
        self.consents[approval.id] = TreeApproval(earlier.at_ms if earlier else at_ms, approval, at_ms)
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


def _ended(node: Node, use: ToolUse, record: Record) -> ToolRun:
    """Return a use of a tool that has ended, with its recorded start, which is no longer among the running ones."""
    begun_ms = record.at_ms - use.duration_ms
    same = [each for each in node.running_tools if each.use.tool == use.tool]
    if not same or use.replayed:
        return ToolRun(use, use.input, record.seq, begun_ms, record.at_ms)
    # The same tool may run several times at once: this is the one that began at the same time.
    run = min(same, key=lambda each: abs(each.begun_ms - begun_ms))
    node.running_tools.remove(run)
    known = run.input if run.input is not None else use.input
    return run._replace(use=use, input=known, ended_ms=record.at_ms)


def _add(node: Node, usage: Usage) -> None:
    """Count tokens for a delegation and all above it."""
    if usage.total or usage.cost:
        for each in node.lineage():
            each.so_far += usage


def _above(node: Node) -> Iterator[Node]:
    return iter(()) if node.parent is None else node.parent.lineage()


def delegations(tree: Tree) -> list[Delegation]:
    """Return the delegations of a run, one line each, in the order of their requests."""
    begun = [node for node in tree.nodes_in_order() if node.request is not None]
    return [_line(node, node.request) for node in sorted(begun, key=lambda each: each.first_seq) if node.request]


def _line(node: Node, request: Request) -> Delegation:
    response = node.response
    return Delegation(
        id=node.path,
        parent=request.parent,
        origin=request.origin,
        target=request.target,
        user=request.remit.user,
        objective=request.objective,
        depth=request.remit.depth,
        started_ms=node.asked_ms,
        status=response.status if response else None,
        preview=text_of(response.result)[:PREVIEW_LENGTH] if response else "",
        duration_ms=response.duration_ms if response else 0,
        usage=response.usage if response else Usage(),
        tool_calls=response.tool_calls if response else (),
        fault=node.fault,
    )
