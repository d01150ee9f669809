"""Puts together what the record shows of one delegation."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from remit.hub.hub import Hub
from remit.policy.context import PASSED_NOTES, matches, message_of
from remit.policy.reception import powers_of
from remit.policy.redaction import TEXT_FIELDS, kind_of
from remit.policy.restoring import tokens_in
from remit.ports import Store
from remit.protocol.card import AgentCard
from remit.protocol.envelope import ContextFilter, Known, Message, Request, Response, Usage, View
from remit.protocol.errors import Fault
from remit.protocol.records import (
    Approval,
    Notice,
    Progress,
    Record,
    ToolUse,
    outward,
    request_in,
    response_in,
)
from remit.protocol.remit import MAX_INTEGER
from remit.runtime.audit.chain import KeepsChain
from remit.runtime.run_tree import Node, Tree
from remit_server.delegation_views import (
    ApprovalView,
    AuditedRow,
    AuditedRows,
    BreakerThen,
    CallBelow,
    CarvedMoney,
    CarvedTime,
    CarvedTokens,
    DelegationDetail,
    HeldBackBy,
    HeldBackMessageView,
    HeldBackPart,
    HeldBackView,
    MessageView,
    OutcomeBefore,
    RedactedView,
    RemitView,
    SaidView,
    ShownView,
    ToolUseView,
)
from remit_server.documents.common import shown_as
from remit_server.documents.verdicts import RecordedCase, recorded_verdicts, with_terms
from remit_server.policy_endpoints import TeamPolicy
from remit_server.run_trees import RunTrees

# A longer conversation is read in its own view; these are the newest that were said before the call.
MOST_MESSAGES = 200
# The most messages of a session that are read to find those.
MOST_READ = 2_000


class ShownCase(NamedTuple):
    """A recorded request, and what is needed to say what its callee saw."""

    request: Request
    seq: int
    """The number of its record."""
    at_ms: int
    caller: Request | None
    """The recorded request of its caller; None if a person asked."""
    filters: Sequence[ContextFilter | None]
    """The filters of its own request and of those above it, the user's last."""
    callers: Sequence[str]
    """The agents that set those filters, in the same order."""
    others: bool
    """Whether the reader may also read messages of other runs."""


async def shown_to(hub: Hub, case: ShownCase) -> tuple[ShownView, HeldBackView]:
    """Return what the callee of a request saw, and what it did not."""
    request, cards = case.request, hub.cards
    card = cards.get(request.target)
    earlier = await _earlier_messages(hub.store, case)
    view = request.view or View()
    shown = await _shown_messages(hub.store, view, {each.seq: each for each in earlier})
    powers = None if card is None else powers_of(card, request.remit)
    seen = shown_as(
        ShownView,
        request,
        messages=tuple(map(_message, shown)),
        seen_before=len(view.seen),
        summary=view.summary,
        workspace=view.workspace,
        notes=view.known,
        tokens=request.view.tokens if request.view is not None else None,
        tools=() if powers is None else tuple(sorted(powers.tools or ())),
        targets=() if card is None else tuple(sorted(_reachable(card, request, cards))),
        sees=() if card is None else tuple(sorted(_kinds_seen(card, request))),
    )
    return seen, _held_back(case, earlier, [each.text for each in shown], cards)


def _held_back(
    case: ShownCase, earlier: Sequence[Message], shown: Sequence[str], cards: dict[str, AgentCard]
) -> HeldBackView:
    request, card = case.request, cards.get(case.request.target)
    caller = cards.get(request.origin) if case.caller is not None else None
    kept = held_back(earlier, request, case.at_ms) if case.caller is not None else []
    readable = [each for each in kept if case.others or _is_of_run(each.message, request.run)]
    listed = readable[-MOST_MESSAGES:]
    return HeldBackView(
        filter=request.context,
        messages=tuple(
            HeldBackMessageView(message=_message(each.message), by=each.by, why=each.why) for each in listed
        ),
        earlier=len(kept) - len(listed),
        parts=tuple(_parts(case)),
        redacted=tuple(_redacted(request, shown, card)),
        tools=tuple(_tools_held_back(case, caller, card)),
        targets=tuple(_targets_held_back(case, caller, card, cards)),
    )


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _earlier_messages(store: Store, case: ShownCase) -> list[Message]:
    """Return the messages of the caller's conversation that were said before the call, oldest first."""
    if case.caller is None:
        return []
    session = case.request.parent_session or case.caller.path
    messages = await store.messages(session, ContextFilter(last_messages=MOST_READ), now_ms=0, tokens=MAX_INTEGER)
    return [each for each in messages if each.seq < case.seq and each.delegation != case.request.path]


async def _shown_messages(store: Store, view: View, known: dict[int, Message]) -> list[Message]:
    """Return the messages of a view with their texts, which the record has once."""
    shown: list[Message] = []
    for each in view.messages:
        whole = known.get(each.seq) if each.seq else each
        if whole is None:
            (record, *_) = await store.records(after=each.seq - 1, limit=1) or [None]
            is_it = record is not None and record.seq == each.seq
            whole = message_of(record, lambda _, tokens=each.tokens: tokens) if record is not None and is_it else None
        shown.append(whole or each)
    return shown


def _message(message: Message) -> MessageView:
    return shown_as(MessageView, message)


def _is_of_run(message: Message, run: str) -> bool:
    return message.delegation == run or message.delegation.startswith(f"{run}.")


def _parts(case: ShownCase) -> Iterator[HeldBackPart]:
    wanted = case.request.context
    if case.caller is None:
        return
    if wanted is None or not wanted.include_summary:
        yield HeldBackPart(what="summary", why="the call does not set `include_summary`")
    if wanted is None or not (wanted.include_workspace or wanted.include_contents):
        yield HeldBackPart(what="workspace", why="the call does not set `include_workspace`")
    kinds, first = note_kinds_held_back(case.filters)
    if first >= 0:
        own = case.filters[first]
        known = "has no context filter" if own is None else f"has `known` = {own.known or 'none'}"
        why = f"the request by {case.callers[first]} {known}"
        yield HeldBackPart(what=f"notes: {', '.join(sorted(kinds))}", why=why)


# ── why a message was held back ───────────────────────────────────────────────────────────────────────────────────────


class HeldBackMessage(NamedTuple):
    """A message that a callee was not shown, and why."""

    message: Message
    by: HeldBackBy
    why: str


def held_back(messages: Iterable[Message], request: Request, now_ms: int) -> list[HeldBackMessage]:
    """Return which of the *messages*, said before *request* was made at *now_ms*, its callee was not shown."""
    view, wanted = request.view, request.context
    shown = {each.seq for each in view.messages} if view is not None else set[int]()
    seen = frozenset(view.seen) if view is not None else frozenset[int]()
    rest = [each for each in messages if each.seq not in shown]
    if wanted is None:
        return [HeldBackMessage(each, HeldBackBy.NO_FILTER, _NO_FILTER) for each in rest]
    matching = [each.seq for each in messages if matches(each, wanted, now_ms)]
    newest = frozenset(matching if wanted.last_messages is None else matching[-wanted.last_messages :])
    return [HeldBackMessage(each, *_reason(each, wanted, now_ms, seen, newest, request)) for each in rest]


_NO_FILTER = "the call has no context filter, so nothing of the conversation is passed on"


def _reason(
    message: Message,
    wanted: ContextFilter,
    now_ms: int,
    seen: frozenset[int],
    newest: frozenset[int],
    request: Request,
) -> tuple[HeldBackBy, str]:
    if message.seq in seen:
        return HeldBackBy.SEEN_BEFORE, "its session was shown this message before"
    if wanted.last_messages == 0:
        return HeldBackBy.NONE_WANTED, "`last_messages` is 0: no message is passed on"
    if not matches(message, ContextFilter(max_age_seconds=wanted.max_age_seconds), now_ms):
        return HeldBackBy.AGE, f"older than `max_age_seconds` = {wanted.max_age_seconds}"
    if not matches(message, ContextFilter(roles=wanted.roles), now_ms):
        roles = ", ".join(sorted(wanted.roles or ()))
        return HeldBackBy.ROLE, f"its role is {message.role}; `roles` has only {roles or 'none'}"
    if not matches(message, ContextFilter(keywords=wanted.keywords), now_ms):
        return HeldBackBy.KEYWORD, f"contains none of the `keywords`: {', '.join(wanted.keywords or ()) or 'none'}"
    if message.seq not in newest:
        return HeldBackBy.COUNT, f"not among the newest {wanted.last_messages} (`last_messages`)"
    room = request.remit.context_tokens
    return HeldBackBy.TOKENS, f"did not fit into the {room:,} tokens of context (`context_tokens`)"


def note_kinds_held_back(callers: Sequence[ContextFilter | None]) -> tuple[frozenset[str], int]:
    """Return the kinds of notes that a callee may not see, and which of the filters is the first to exclude one.

    *callers* are as for `remit.policy.context.notes_for`: the filter of its own request first, the user's last. The
    number is -1 if no kind is excluded.
    """
    everything = PASSED_NOTES["all"]
    passed, first = everything, -1
    for index, each in enumerate(callers):
        default: Known = "all" if index == len(callers) - 1 else "none"
        allowed = PASSED_NOTES[(each.known if each is not None else None) or default]
        if first < 0 and allowed != everything:
            first = index
        passed &= allowed
    return everything - passed, first


# ── redaction ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def redaction_tokens(request: Request) -> list[tuple[str, str]]:
    """Return the tokens in the texts of a recorded request, each with its place."""
    texts = {name: msgspec.to_builtins(getattr(request, name)) for name in TEXT_FIELDS[Request]}
    contents = {"files": [file.text for file in request.files]}
    return [*tokens_in(texts), *tokens_in(contents)]


def _redacted(request: Request, shown: Iterable[str], card: AgentCard | None) -> Iterator[RedactedView]:
    tokens = [*redaction_tokens(request), *tokens_in({"messages": list(shown)})]
    counted = Counter((_field(place), kind_of(token)) for place, token in tokens)
    for (place, kind), count in counted.items():
        yield RedactedView(place=place, kind=kind, count=count, in_clear=_in_clear(place, kind, card, request))


def _field(place: str) -> str:
    """Return the place of a value without the index of a message: a view may have hundreds."""
    return "messages" if place.startswith("messages[") else place


def _kinds_seen(card: AgentCard, request: Request) -> frozenset[str]:
    capability = card.capability(request.capability) if request.capability is not None else None
    return card.sees if capability is None else card.sees | capability.sees


def _in_clear(place: str, kind: str, card: AgentCard | None, request: Request) -> bool:
    if card is None:
        return False
    capability = card.capability(request.capability) if request.capability is not None else None
    fields = frozenset[str]() if capability is None else capability.sees_fields
    inside = place.removeprefix("input.") if place.startswith("input.") else None
    return kind in _kinds_seen(card, request) or (
        inside is not None and any(inside == each or inside.startswith((f"{each}.", f"{each}[")) for each in fields)
    )


# ── tools and targets ─────────────────────────────────────────────────────────────────────────────────────────────────


def _reachable(card: AgentCard, request: Request, cards: Iterable[str]) -> Iterator[str]:
    powers = powers_of(card, request.remit)
    if not request.remit.may_delegate:
        return
    for name in cards:
        if name != card.name and card.may_reach(name) and (powers.targets is None or name in powers.targets):
            yield name


def _tools_held_back(case: ShownCase, caller: AgentCard | None, card: AgentCard | None) -> Iterator[HeldBackPart]:
    if caller is None or card is None or case.caller is None:
        return
    has = powers_of(caller, case.caller.remit).tools or frozenset()
    gets = powers_of(card, case.request.remit).tools or frozenset()
    for name in sorted(frozenset(has).difference(gets)):
        own = name in card.tools
        why = "its remit does not name it" if own else f"`tools` of {card.name} does not name it"
        yield HeldBackPart(what=name, why=why)


def _targets_held_back(
    case: ShownCase, caller: AgentCard | None, card: AgentCard | None, cards: dict[str, AgentCard]
) -> Iterator[HeldBackPart]:
    if caller is None or card is None or case.caller is None:
        return
    gets = set(_reachable(card, case.request, cards))
    for name in sorted(set(_reachable(caller, case.caller, cards)) - gets - {card.name}):
        if not case.request.remit.may_delegate:
            why = "it was asked without permission to delegate"
        elif not card.may_reach(name):
            why = f"`may_call` of {card.name} does not name it"
        else:
            why = "its remit does not name it"
        yield HeldBackPart(what=name, why=why)


# Each is read by itself; a delegation that reports more often is read in the audit log.
MOST_ROWS = 200
# The records before a request in which earlier outcomes of its callee are looked for, and how many are shown.
LOOK_BACK = 500
MOST_OUTCOMES = 10
# Rows whose digests are checked while a person waits: about 0.2 s.
MOST_AUDITED = 20_000


class DelegationDetails:
    """Reads delegations from the record: what a tree says of them, and their texts as they are stored now."""

    def __init__(self, hub: Hub, trees: RunTrees, policy: TeamPolicy) -> None:
        self._hub = hub
        self._trees = trees
        self._policy = policy

    async def read(self, run: str, path: str, *, others: bool) -> DelegationDetail | None:
        """Return a delegation, or None if the run has none of that path.

        With *others* the reader may also read what was said in other runs of the same conversation.
        """
        await self._hub.store.flush()
        tree = await self._trees.tree(run)
        node, waiting = tree.nodes.get(path), None
        if node is None or node.request is None:
            # A call that waits for a person is not recorded as a request yet.
            for question in await self._hub.pending():
                if question.request.path == path and question.request.run == run:
                    waiting = question.request
                    above = tree.nodes.get(waiting.parent) if waiting.parent is not None else None
                    node = node or Node(path, above, waiting.target, question.asked_ms)
        if node is None or node.path != path or (node.request is None and waiting is None):
            return None
        return await self._detail(tree, node, waiting, others=others)

    async def _records(self, node: Node) -> list[Record]:
        """Return the records of a delegation: its request, its end, and as many others as are shown."""
        others = [seq for seq in node.seqs if seq not in (node.asked_seq, node.ended_seq)]
        wanted = {*others[-MOST_ROWS:], *(seq for seq in (node.asked_seq, node.ended_seq) if seq)}
        records: list[Record] = []
        for seq in sorted(wanted):
            page = await self._hub.store.records(after=seq - 1, limit=1)
            records += [record for record in page if record.seq == seq]
        return records

    async def _request_of(self, node: Node) -> Request | None:
        """Return the request of a delegation as it is stored now."""
        if node.asked_seq:
            for record in await self._hub.store.records(after=node.asked_seq - 1, limit=1):
                return request_in(record.body) if record.seq == node.asked_seq else None
        return None

    async def _detail(
        self, tree: Tree, node: Node, waiting: Request | None, *, others: bool
    ) -> DelegationDetail | None:
        hub, records, seq = self._hub, await self._records(node), node.first_seq or tree.seq + 1
        request = waiting or next(filter(None, (request_in(each.body) for each in records)), None)
        if request is None:
            return None  # removed since the tree was read
        response = next(filter(None, (response_in(each.body) for each in records)), None)
        fault = response.fault if response is not None and node.is_refused else None
        above = [await self._request_of(each) for each in node.lineage() if each is not node]
        caller = above[0] if above else None
        lineage = [request, *filter(None, above)]
        shown, kept = await shown_to(
            hub,
            ShownCase(
                request=request,
                seq=seq,
                at_ms=node.asked_ms,
                caller=caller,
                filters=[each.context for each in lineage],
                callers=[each.origin for each in lineage],
                others=others,
            ),
        )
        approvals = [each for each in records if isinstance(each.body, Approval)]
        cards = hub.cards
        verdicts = recorded_verdicts(
            RecordedCase(
                request=request,
                node=node,
                seq=seq,
                tree=tree,
                limits=hub.settings.limits,
                guards=hub.settings.guards,
                card=cards.get(request.target),
                caller=cards.get(request.origin),
                parent=caller,
                fault=fault,
                approvals=[each.body for each in approvals if isinstance(each.body, Approval)],
                tokens=[kind_of(token) for _, token in redaction_tokens(request)],
            )
        )
        breaker = next(each for each in verdicts if each.guard == "breaker")
        rows = [each for each in records if each.seq]
        return shown_as(
            DelegationDetail,
            request,
            run=tree.root.path if tree.root else request.run,
            path=node.path,
            state="asking" if waiting is not None else node.state,
            user=request.remit.user,
            asked_ms=node.asked_ms,
            ended_ms=node.ended_ms,
            remit=_remit(node, seq, request, caller, response),
            shown=shown,
            held_back=kept,
            verdicts=verdicts,
            breaker=await self._breaker(node, seq, breaker.verdict, breaker.says, fault),
            response=None if response is None else response.outward(),
            advice=tuple(self._policy.advise(response.fault, request)) if response and response.fault else (),
            calls=tuple(_below(each) for each in node.children if each.request is not None),
            said=tuple(_reports(records)),
            tools=tuple(_tool_uses(records)),
            approvals=tuple(_approvals(approvals)),
            audit=await self._audited(rows),
            left_out=len(node.seqs) - len(rows),
        )

    async def _audited(self, records: Sequence[Record]) -> AuditedRows:
        """Return the rows of a delegation, with the verdict on the part of the record from its first to its last."""
        store, seqs = self._hub.store, [each.seq for each in records]
        intact: dict[int, bool] = {}
        says = "The hash chain of these rows was not checked."
        if seqs and isinstance(store, KeepsChain) and seqs[-1] - seqs[0] < MOST_AUDITED:
            intact = await store.chain.intact(seqs[0], seqs[-1])
            broken = [seq for seq, is_intact in intact.items() if not is_intact]
            where = f"rows {seqs[0]:,} to {seqs[-1]:,} of the record"
            says = f"Each of {where} follows from the row before it in the hash chain."
            if broken:
                says = f"Of {where}, row {broken[0]:,} does not follow from the row before it: the record was changed."
        elif seqs and isinstance(store, KeepsChain):
            says = "Too many rows lie between its first and its last one; the page Audit verifies the whole record."
        return AuditedRows(
            rows=tuple(
                AuditedRow(seq=each.seq, kind=each.kind, at_ms=each.at_ms, intact=intact.get(each.seq))
                for each in records
            ),
            intact=all(intact.values()) if intact else None,
            says=says,
        )

    async def _breaker(self, node: Node, seq: int, verdict: str, says: str, fault: Fault | None) -> BreakerThen:
        state: Literal["closed", "probing", "open", "not_asked"] = "closed"
        if verdict == "refuse":
            state, says = "open", f"open: {node.agent} had failed too often"
        elif verdict in ("not_asked", "unknown"):
            state, says = "not_asked", "the request was refused before the breaker was asked"
        elif node.is_probe:
            state = "probing"
        before: list[OutcomeBefore] = []
        for record in await self._hub.store.records(after=max(0, seq - LOOK_BACK - 1), limit=LOOK_BACK):
            match record.body:
                case Response(target=node.agent) as ended if record.seq < seq:
                    code = ended.fault.code if ended.fault is not None else None
                    before.append(
                        OutcomeBefore(run=record.run, path=ended.id, at_ms=record.at_ms, status=ended.status, code=code)
                    )
                case _:
                    pass
        return BreakerThen(
            state=state,
            says=says,
            retry_after_ms=fault.retry_after_ms if fault is not None and state == "open" else None,
            before=tuple(reversed(before[-MOST_OUTCOMES:])),
        )


def _remit(node: Node, seq: int, request: Request, caller: Request | None, response: Response | None) -> RemitView:
    remit, usage = request.remit, response.usage if response is not None else Usage()
    below = [each for each in node.children if each.request is not None]
    cost_below = sum(each.usage.cost for each in below)
    used_below = sum(each.usage.total if each.response else each.granted or 0 for each in below)
    left, time_left = None, None
    if caller is not None and node.parent is not None:
        beside = [each for each in node.asked_before(seq) if not each.is_refused]
        held = sum((each.granted or 0) if each.is_open_at(seq) else each.usage.total for each in beside)
        left = max(0, caller.remit.tokens - held)
        time_left = max(0, caller.remit.time_ms - (node.asked_ms - node.parent.asked_ms))
    return shown_as(
        RemitView,
        remit,
        tokens=CarvedTokens(
            caller=None if caller is None else caller.remit.tokens,
            left_before=left,
            granted=remit.tokens,
            used=None if response is None else usage.total,
            own=None if response is None else max(0, usage.total - sum(each.usage.total for each in below)),
            below=used_below,
            given_back=None if response is None else max(0, remit.tokens - usage.total),
            overrun=usage.overrun,
        ),
        cost=CarvedMoney(
            caller=None if caller is None else caller.remit.cost,
            granted=remit.cost,
            used=None if response is None else usage.cost,
            own=None if response is None else max(0, usage.cost - cost_below),
            below=cost_below,
            unpriced=usage.unpriced,
        ),
        time_ms=CarvedTime(
            caller=None if caller is None else caller.remit.time_ms,
            left_before=time_left,
            granted=remit.time_ms,
            used=None if response is None else response.duration_ms,
            queued=0 if response is None else response.queued_ms,
            asked=0 if response is None else response.waited_ms,
        ),
        tools=None if remit.tools is None else with_terms(remit.tools),
        targets=None if remit.targets is None else tuple(sorted(remit.targets)),
    )


def _below(node: Node) -> CallBelow:
    return CallBelow(
        path=node.path,
        target=node.agent,
        tokens=node.granted or 0,
        used=node.usage.total,
        status=node.response.status if node.response else None,
        code=node.fault.code if node.fault else None,
    )


def _reports(records: Sequence[Record]) -> Iterator[SaidView]:
    for record in records:
        match record.body:
            case Progress(text=text):
                yield SaidView(seq=record.seq, at_ms=record.at_ms, kind="progress", text=text)
            case Notice(text=text, code=code):
                yield SaidView(seq=record.seq, at_ms=record.at_ms, kind="notice", text=text, code=code)
            case _:
                pass


def _tool_uses(records: Sequence[Record]) -> Iterator[ToolUseView]:
    for record in records:
        match outward(record).body:
            case ToolUse(begun=False) as use:
                yield shown_as(ToolUseView, use, seq=record.seq, at_ms=record.at_ms)
            case _:
                pass


class _RecordedApproval(NamedTuple):
    at_ms: int
    body: Approval


def _approvals(records: Sequence[Record]) -> Iterator[ApprovalView]:
    """Yield the questions about a delegation, each with its answer."""
    questions: dict[str, _RecordedApproval] = {}
    answered: dict[str, _RecordedApproval] = {}
    for record in records:
        if isinstance(body := record.body, Approval):
            (questions if body.agreed is None else answered).setdefault(body.id, _RecordedApproval(record.at_ms, body))
    for id, question in {**answered, **questions}.items():
        answer = answered.get(id)
        decided = answer.body if answer is not None else question.body
        yield shown_as(
            ApprovalView,
            decided,
            question=question.body.question,
            asked_ms=question.at_ms,
            answered_ms=None if answer is None else answer.at_ms,
        )
