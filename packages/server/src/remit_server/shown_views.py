"""What the callee of a recorded request was shown, beside what was held back from it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from remit.policy.context import message_of
from remit.policy.held_back import held_back, note_kinds_held_back
from remit.policy.reception import powers_of
from remit.policy.redaction import TEXT_FIELDS, kind_of
from remit.policy.restoring import tokens_in
from remit.protocol.card import AgentCard
from remit.protocol.envelope import ContextFilter, Message, Request, View
from remit.protocol.remit import MAX_INTEGER
from remit.runtime.engine import Engine
from remit.runtime.ports import Store
from remit_server.delegation_views import (
    HeldBackMessageView,
    HeldBackPart,
    HeldBackView,
    MessageView,
    RedactedView,
    ShownView,
)

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


async def shown_to(hub: Engine, case: ShownCase) -> tuple[ShownView, HeldBackView]:
    """Return what the callee of a request saw, and what it did not."""
    request, cards = case.request, hub.cards
    card = cards.get(request.target)
    said = await _said_before(hub.store, case)
    shown = await _shown_messages(hub.store, request.view or View(), {each.seq: each for each in said})
    powers = None if card is None else powers_of(card, request.remit)
    seen = ShownView(
        objective=request.objective,
        input=request.input,
        hints=request.hints,
        reason=request.reason,
        handoff=request.handoff,
        messages=tuple(map(_message, shown)),
        seen_before=len(request.view.seen) if request.view is not None else 0,
        summary=request.view.summary if request.view is not None else "",
        workspace=request.view.workspace if request.view is not None else "",
        notes=request.view.known if request.view is not None else (),
        tokens=request.view.tokens if request.view is not None else None,
        tools=() if powers is None else tuple(sorted(powers.tools or ())),
        targets=() if card is None else tuple(sorted(_reachable(card, request, cards))),
        sees=() if card is None else tuple(sorted(_kinds_seen(card, request))),
    )
    return seen, _held_back(case, said, [each.text for each in shown], cards)


def _held_back(
    case: ShownCase, said: Sequence[Message], shown: Sequence[str], cards: dict[str, AgentCard]
) -> HeldBackView:
    request, card = case.request, cards.get(case.request.target)
    caller = cards.get(request.origin) if case.caller is not None else None
    kept = held_back(said, request, case.at_ms) if case.caller is not None else []
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


async def _said_before(store: Store, case: ShownCase) -> list[Message]:
    """Return the messages of the caller's conversation that were said before the call, oldest first."""
    if case.caller is None:
        return []
    session = case.request.parent_session or case.caller.path
    found = await store.messages(session, ContextFilter(last_messages=MOST_READ), now_ms=0, tokens=MAX_INTEGER)
    return [each for each in found if each.seq < case.seq and each.delegation != case.request.path]


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
    return MessageView(
        seq=message.seq,
        role=message.role,
        name=message.name,
        text=message.text,
        tokens=message.tokens,
        at_ms=message.at_ms,
        delegation=message.delegation,
    )


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


# ── redaction ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def redaction_tokens(request: Request) -> list[tuple[str, str]]:
    """Return the tokens in the texts of a recorded request, each with its place."""
    said = {name: msgspec.to_builtins(getattr(request, name)) for name in TEXT_FIELDS[Request]}
    contents = {"files": [file.text for file in request.files]}
    return [*tokens_in(said), *tokens_in(contents)]


def _redacted(request: Request, shown: Iterable[str], card: AgentCard | None) -> Iterator[RedactedView]:
    found = [*redaction_tokens(request), *tokens_in({"messages": list(shown)})]
    counted = Counter((_field(place), kind_of(token)) for place, token in found)
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
    for name in sorted(has - gets):
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
