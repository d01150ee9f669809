"""Each record of a run as one line of plain text, for logs and for terminals that cannot draw."""

from remit.cli.show.tree import Node
from remit.cli.show.tree_lines import spell_ms, tools_used
from remit.protocol.envelope import USER, Request, Response
from remit.protocol.errors import Fault
from remit.protocol.records import Approval, ChainBreak, Delta, Notice, Progress, Record, Refusal, SharedStep, ToolUse
from remit.text.terminal import one_line


def sentence(record: Record, node: Node) -> str:
    """Return one record of the delegation *node* as a sentence."""
    match record.body:
        case Request() as request:
            return f"{_who(request)} asks {one_line(request.target)}{_for(request)}"
        case Response() as response:
            tools = tools_used(node)
            return f"{one_line(node.agent)}: {_end(response)}" + (f", tools: {tools}" if tools else "")
        case Refusal(request=request, response=response):
            return f"{_who(request)} asks {one_line(request.target)}{_for(request)}: {_end(response)}"
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


def _for(request: Request) -> str:
    wanted = one_line(request.objective or request.capability or "")
    return f": {wanted}" if wanted else ""


def _end(response: Response) -> str:
    tokens = f", {response.usage.total:,} tokens" if response.usage.total else ""
    took = f" in {spell_ms(response.duration_ms)}" if response.duration_ms else ""
    return f"{response.status}{took}{tokens}{_why(response.fault)}"


def _use(use: ToolUse) -> str:
    tool = one_line(use.tool) + (f", which saw {', '.join(use.revealed)}" if use.revealed else "")
    if use.begun:
        return f"starts to use {tool}"
    if use.fault is not None:
        return f"could not use {tool}{_why(use.fault)}"
    return f"used {tool}" + (", from the journal" if use.replayed else f" ({spell_ms(use.duration_ms)})")


def _why(fault: Fault | None) -> str:
    return f", {fault.code}: {one_line(fault.message)}" if fault else ""
