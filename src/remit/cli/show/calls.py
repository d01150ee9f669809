"""Calls of sub-agents as lines: while they go on, and as the history of a run or a conversation."""

from collections.abc import Iterable, Iterator

from remit.cli.show.tree import Node
from remit.cli.show.tree_lines import spell_ms, tools_used
from remit.documents.runs import DelegationLine
from remit.protocol.envelope import PREVIEW_LENGTH
from remit.protocol.errors import Fault
from remit.protocol.lifecycle import Status
from remit.text.terminal import one_line

# What a model is asked to do can be pages long; `runs show` has all of it.
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
    took += [spell_ms(response.duration_ms)] if response.status is not Status.REFUSED else []
    spent = f" ({', '.join(took)})" if took else ""
    used = f" tools: {tools}" if tools else ""
    return f"{one_line(node.agent)} returned: {response.status.upper()}{spent}{used}{_why(response.fault)}"


def history(calls: Iterable[DelegationLine]) -> Iterator[str]:
    """Yield a few lines for each call, oldest first; what the user asked themselves is none."""
    for call in calls:
        if call.parent is not None:
            yield _headline(call)
            yield from (f"    {name:5}{text}" for name, text in _facts(call) if text)


def _headline(call: DelegationLine) -> str:
    spent = f"{'about ' if call.usage.estimated else ''}{call.usage.total:,} tokens" if call.usage.total else ""
    shown = f"ctx {call.context_tokens:,}" if call.context_tokens else ""
    tools = ", ".join(one_line(tool, 60) + (f" ×{count}" if count > 1 else "") for tool, count in call.tools.items())
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
    yield "why", f"{call.fault.code}: {one_line(call.fault.message)}" if call.fault else ""


def _why(fault: Fault | None) -> str:
    return f" {fault.code}: {one_line(fault.message)}" if fault else ""
