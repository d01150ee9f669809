"""The summary of a finished run, as text and as a document."""

from collections.abc import Iterator
from typing import Literal

from msgspec.structs import replace

from remit.protocol.codec import text_of
from remit.protocol.envelope import PREVIEW_LENGTH, Response, Usage
from remit.protocol.errors import TABLE, Code
from remit.protocol.lifecycle import Status
from remit.runtime.run_tree import Node, Tree
from remit.words.failures import plain_failure, with_plain_summary
from remit.words.names import revealing, without_names
from remit.words.terminal import one_line
from remit_cli.show.screen import spell_ms, worded
from remit_cli.show.tree_lines import tallied
from remit_server.documents.delegation_table import handling_in
from remit_server.documents.runs import ApprovalLine, Branch, DelegationLine, NoticeLine, RunDetails, RunTree, Spent

State = Literal["waiting", "running", "silent", "finished"]


def exit_code(response: Response) -> int:
    """Return the exit code for the outcome of a run; a partial answer is an answer."""
    if response.ok:
        return 0
    return TABLE[response.fault.code if response.fault else Code.DELEGATION_FAILED].exit_code


# ── in a few lines ────────────────────────────────────────────────────────────────────────────────────────────────────


def summary(tree: Tree, response: Response, *, interrupted: bool = False, plainly: bool = False) -> Iterator[str]:
    """Yield the outcome of a run, its cost and its warnings; for one that the user *interrupted*, without the reason.

    Said *plainly*, for a user, it names neither agents nor codes.
    """
    yield headline(tree, response)
    if response.fault is not None and not interrupted:
        yield plain_failure(response.fault) if plainly else worded(response.fault)
    if response.finished and response.status is not Status.SUCCESS:
        yield f"finished: {join_parts(response.finished)}"
    if response.unfinished:
        yield f"not finished: {join_parts(response.unfinished)}"
    hidden = revealing(_names_in(tree)) if plainly else ()
    for warning in response.warnings:
        yield f"warning: {one_line(without_names(warning, hidden))}"


def _names_in(tree: Tree) -> Iterator[str]:
    for node in tree.nodes.values():
        yield node.agent
        if node.request is not None and node.request.capability is not None:
            yield node.request.capability


def headline(tree: Tree, response: Response) -> str:
    """Return one line for the whole run."""
    parts = [response.status + (f" in {spell_ms(response.duration_ms)}" if response.duration_ms else "")]
    if total := response.usage.total:
        granted = f" of {tree.root.granted:,}" if tree.root and tree.root.granted else ""
        parts.append(f"{'about ' if response.usage.estimated else ''}{total:,}{granted} tokens")
    below = len(tree.nodes) - 1
    if below > 0:
        others = tree.tally.copy()
        others[response.status] -= 1
        ends = f" ({tallied(others)})" if others.total() else ""
        parts.append(f"{below:,} delegation{'s' if below > 1 else ''}{ends}")
    return ", ".join(parts)


def join_parts(parts: tuple[str, ...], most: int = 10) -> str:
    """Return the names of parts; if there are many, only the first ones."""
    shown = ", ".join(one_line(part, 60) for part in parts[:most])
    return f"{shown} and {len(parts) - most:,} more" if len(parts) > most else shown


# ── as documents ──────────────────────────────────────────────────────────────────────────────────────────────────────


def details(tree: Tree, run: str, state: State, store: object, now_ms: int) -> RunDetails:
    """Return everything that is known about a run."""
    root, response = tree.root, tree.response
    assert root is not None, "there is no run without a record"
    request = root.request
    told = RunDetails(
        run=run,
        session=request.session if request else None,
        agent=root.agent,
        user=request.remit.user if request else None,
        via=request.via if request else None,
        request=request.id if request and request.via else None,
        objective=request.objective if request else "",
        input=request.input if request else None,
        capability=request.capability if request else None,
        started_ms=root.started_ms,
        state=state,
        status=None,
        exit_code=None,
        usage=spent(root.usage),
        duration_ms=root.taken_ms(now_ms),
        delegations=tuple(delegation(node, now_ms) for node in tree.nodes_in_order()),
        approvals=tuple(_approvals(tree)),
        notices=tuple(_notices(tree)),
        store=str(store),
    )
    if response is None:
        return told
    return replace(
        told,
        session=response.session or told.session,
        status=response.status,
        exit_code=exit_code(response),
        result=response.result,
        summary=with_plain_summary(response).summary,
        confidence=response.confidence,
        artifacts=response.artifacts,
        files=response.files,
        warnings=response.warnings,
        finished=response.finished,
        unfinished=response.unfinished,
        fault=response.fault,
    )


def delegation(node: Node, now_ms: int) -> DelegationLine:
    """Return one delegation."""
    request = node.request
    return DelegationLine(
        delegation=node.path,
        parent=node.parent.path if node.parent else None,
        origin=request.origin if request else None,
        agent=node.agent,
        capability=request.capability if request else None,
        objective=request.objective if request else "",
        state=node.state,
        started_ms=node.started_ms,
        duration_ms=node.taken_ms(now_ms),
        time_ms=request.remit.time_ms if request else None,
        usage=spent(node.usage),
        tokens=node.granted,
        context_tokens=node.shown,
        tools=dict(node.tools),
        said=node.said,
        preview=text_of(node.response.result)[:PREVIEW_LENGTH] if node.response else "",
        fault=node.fault,
        handling=handling_in(node.response.metadata) if node.response else "",
    )


def spent(usage: Usage) -> Spent:
    """Return the usage, with every figure."""
    return Spent(
        total=usage.total,
        prompt=usage.prompt,
        completion=usage.completion,
        overrun=usage.overrun,
        estimated=usage.estimated,
    )


def branches(tree: Tree, run: str, now_ms: int) -> RunTree | None:
    """Return the delegations as a tree; None if nothing is known."""
    if tree.root is None:
        return None
    made: dict[str, Branch] = {}
    # Children are called after their parents, so in reverse order each node finds its children already made.
    for node in reversed(tree.nodes_in_order()):
        children = tuple(made.pop(child.path) for child in node.children)
        made[node.path] = Branch(delegation=delegation(node, now_ms), children=children)
    return RunTree(run=run, root=made[tree.root.path])


def _approvals(tree: Tree) -> Iterator[ApprovalLine]:
    for asked_ms, approval, answered_ms in tree.consents.values():
        yield ApprovalLine(
            question=approval.id,
            delegation=approval.delegation,
            agent=approval.agent,
            text=approval.question,
            asked_ms=asked_ms,
            answered_ms=answered_ms,
            agreed=approval.agreed,
            by=approval.by,
            reason=approval.reason,
            edited=approval.edited,
        )


def _notices(tree: Tree) -> Iterator[NoticeLine]:
    for at_ms, notice in tree.notes:
        yield NoticeLine(
            at_ms=at_ms, delegation=notice.delegation, agent=notice.agent, text=notice.text, code=notice.code
        )
