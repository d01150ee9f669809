"""Evaluates the guards of a team on a hypothetical request, and advises whether to delegate it."""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from remit.cli.places import importing, placeholder_secrets, reading
from remit.cli.store_view import place_of
from remit.config.composition import guards_of, hub_of
from remit.config.models import detector_of
from remit.config.team import Team
from remit.documents.policy import Explanation, GuardVerdict, Placing, Struck
from remit.hub.orchestration import trainer
from remit.policy.permission import Powers, authority_of, powers_of
from remit.policy.redaction import Held, kind_of
from remit.policy.restoring import reveal, tokens_in
from remit.policy.routing import TrackRecord
from remit.policy.verdict import ALLOW, GUARD_FAILED, Allow, Ask, Facts, Guard, Refuse, Rewrite, Sealing, Verdict
from remit.protocol.card import AgentCard, Capability
from remit.protocol.codec import text_of
from remit.protocol.envelope import USER, Call, Json, Request
from remit.protocol.errors import TABLE, Code, Fault, fault
from remit.protocol.records import Record
from remit.runtime.approvers import AllowList
from remit.runtime.delegation.guards import GUARDS, LAST, explain
from remit.runtime.ports import Question, StoreError
from remit.runtime.preview import PREVIEW_RUN
from remit.runtime.redactor import Redactor
from remit.runtime.schemas import unfit_input
from remit.runtime.track_record import NEWEST, tracks
from remit.text.classification import ScoredCapability
from remit.text.handling import WHY, Case, Route, place
from remit.text.intent import THRESHOLDS


def placed(
    team: Team, cards: Mapping[str, AgentCard], call: Call, request: Request, *, simple: bool, lacks_data: bool
) -> Placing | None:
    """Return whether the responsible agent should delegate a request; None if its capability is unknown.

    For a user's request that is the callee, which may delegate it to any agent that it may call. For an agent's request
    it is that agent, which could do the work itself.
    """
    asked = request.origin == USER
    agent = cards.get(request.target if asked else request.origin)
    if agent is None:
        return None
    names = (cards.keys() if asked else {request.target}) - {agent.name}
    offered = [card for name, card in cards.items() if name in names and agent.may_reach(name)]
    thresholds = THRESHOLDS if team.orchestrator is None else team.orchestrator.thresholds()
    intent = None if call.capability is not None else _best_capability(team, cards, call)
    if intent is not None and intent.confidence < thresholds.act:
        intent = None
    code = intent.code if intent is not None else call.capability
    if code is None or code not in _codes(cards.values()):
        return None
    past = _tracks(team, code)
    elsewhere = [track for card in offered if (track := past.get(card.name)) is not None]
    best = max(elsewhere, key=lambda track: track.quality, default=None)
    own = past.get(agent.name)
    decision = place(
        Case(
            own=_codes([agent]),
            elsewhere=_codes(offered),
            needs=call.capability,
            intent=intent,
            lacks_data=lacks_data,
            simple=simple,
            quality=None if own is None else own.quality,
            quality_elsewhere=None if best is None else best.quality,
            time_left_ms=request.remit.time_ms,
            time_elsewhere_ms=None if best is None else round(best.latency_s * 1_000),
        ),
        thresholds,
    )
    return Placing(
        agent=agent.name,
        decision="route" if isinstance(decision, Route) else "local",
        reason=decision.reason.value,
        why=WHY[decision.reason],
        capability=code,
        confidence=None if intent is None else round(intent.confidence, 2),
    )


def _codes(cards: Iterable[AgentCard]) -> frozenset[str]:
    return frozenset(capability.code for card in cards for capability in card.capabilities)


def _best_capability(team: Team, cards: Mapping[str, AgentCard], call: Call) -> ScoredCapability | None:
    """Return the capability that a text most likely asks for."""
    offered: dict[str, Capability] = {each.code: each for card in cards.values() for each in card.capabilities}
    said = call.objective or text_of(call.input or "")
    if not offered or not said:
        return None
    train = trainer("words" if team.orchestrator is None else team.orchestrator.classifier)
    return next(iter(train(tuple(offered.values())).scores(said)), None)


# ── track records ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _tracks(team: Team, capability: str) -> dict[str, TrackRecord]:
    """Return the track record of each agent at a capability, from the newest records; none for agents never called."""
    # Undecayed: the question here is how good the agents are, and not which one to call this minute.
    found = tracks(_newest(team), lambda _: 0.0)
    return {
        name: each for (code, name), each in found.items() if code == capability and (each.successes or each.failures)
    }


def _newest(team: Team) -> list[Record]:
    place = place_of(team)
    if isinstance(place, Path) and not place.exists():
        return []
    try:
        with reading(place) as view:
            return view.recent(NEWEST)
    except StoreError:  # the guards can be explained without it
        return []


Said = Verdict | Exception
"""The verdict of a guard, or its exception."""


def explained(
    team: Team, origin: str, target: str, call: Call, user: str, *, simple: bool = False, lacks_data: bool = False
) -> Explanation:
    """Return what would happen to a call; no agent is called, and nothing is recorded.

    *simple* and *lacks_data* are known only to the caller: it needs no specialist, or other agents have data for it.
    """
    with importing():
        hub = hub_of(team, environ=placeholder_secrets(team))  # it is not opened
    cards, detect = hub.cards, detector_of(team)
    sealing = None if isinstance(detect, bool) else Sealing(os.urandom(32), detect)
    request, facts = hub.preview(origin, call, user, sealing)
    said = [(guard, _judge(guard, request, facts)) for guard in all_guards(team)]
    outcome, by, objection = _outcome(team, said, request)
    clean, struck = _redacted(request, facts, said[-1][1])
    card = facts.target
    powers = Powers(None, None) if card is None else powers_of(card, request.remit)
    return Explanation(
        origin=origin,
        target=target,
        outcome=outcome,
        by=by,
        question=objection.question if isinstance(objection, Ask) else "",
        editable=tuple(sorted(objection.editable)) if isinstance(objection, Ask) else (),
        fault=objection if isinstance(objection, Fault) else None,
        guards=tuple(_guard_verdict(guard, verdict, facts) for guard, verdict in said),
        struck=tuple(_struck(clean, struck, facts.target)),
        authority=None if card is None else authority_of(card, facts.limits),
        tools=tuple(sorted(powers.tools or ())),
        targets=tuple(sorted(name for name in cards if card is not None and _may_ask(card, powers, name))),
        place=placed(team, cards, call, request, simple=simple, lacks_data=lacks_data),
        request=clean,
        exit_code=_exit_code(objection),
    )


def _may_ask(card: AgentCard, powers: Powers, name: str) -> bool:
    return name != card.name and card.may_reach(name) and (powers.targets is None or name in powers.targets)


def all_guards(team: Team | None) -> tuple[Guard, ...]:
    """Return the guards in their order: the hub's, the team's own, the schema, and redaction last."""
    return (*GUARDS, *(guards_of(team) if team is not None else ()), input_schema, LAST)


def input_schema(request: Request, facts: Facts) -> Verdict:
    """The input fits the schema of the capability that is asked for."""
    capability = facts.target.capability(request.capability) if facts.target and request.capability else None
    if capability is None or capability.input_schema is None:
        return ALLOW
    why = unfit_input(capability.code, capability.input_schema, request.input)
    return ALLOW if why is None else Refuse(why)


def name_of(guard: Guard) -> str:
    """Return a guard's name."""
    return getattr(guard, "__name__", repr(guard))


def sentence_of(guard: Guard) -> str:
    """Return the condition that a guard checks."""
    return (guard.__doc__ or "").strip().partition("\n")[0]


# ── the verdicts ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _judge(guard: Guard, request: Request, facts: Facts) -> Said:
    """Return the verdict of a guard, with its texts redacted."""
    try:
        ((_, verdict),) = explain(request, facts, (guard,))
    except Exception as error:  # noqa: BLE001 - a detector of the team's own may fail, and that is what is shown
        return error
    match verdict:
        case Refuse(fault=why):
            return Refuse(_clean(why, facts.sealing))
        case Ask(question=question, editable=editable):
            return Ask(_clean(question, facts.sealing), editable)
        case Allow() | Rewrite():
            return verdict


def _guard_verdict(guard: Guard, said: Said, facts: Facts) -> GuardVerdict:
    name = name_of(guard)
    match said:
        case Allow() if guard is LAST:
            found = "no personal data or secrets found" if facts.sealing else "off: `redaction.enabled` is false"
            return GuardVerdict(guard=name, verdict="allow", says=found)
        case Allow():
            return GuardVerdict(guard=name, verdict="allow", says=sentence_of(guard))
        case Rewrite(struck=struck):
            kinds = sorted(set(map(kind_of, struck)))
            return GuardVerdict(guard=name, verdict="rewrite", says=f"replaces with tokens: {', '.join(kinds)}")
        case Refuse(fault=why):
            return GuardVerdict(guard=name, verdict="refuse", says=why.message, code=why.code)
        case Ask(question=question):
            return GuardVerdict(guard=name, verdict="ask", says=question)
        case Exception():
            return GuardVerdict(guard=name, verdict="failed", says=_failed(said).message, code=Code.PERMISSION_DENIED)


def _failed(error: Exception) -> Fault:
    why = f"a guard failed ({type(error).__name__}), so the request is refused"
    return fault(Code.PERMISSION_DENIED, why, suggestion=GUARD_FAILED)


def _outcome(
    team: Team, said: Sequence[tuple[Guard, Said]], request: Request
) -> tuple[Literal["allowed", "asks", "refused"], str, Ask | Fault | None]:
    """Return the outcome, the deciding guard and the reason: the first objection decides."""
    for guard, verdict in said:
        match verdict:
            case Allow() | Rewrite():
                continue
            case Refuse(fault=why):
                return "refused", name_of(guard), why
            case Exception():
                return "refused", name_of(guard), _failed(verdict)
            case Ask() as ask:
                if _is_preapproved(team, request, ask):
                    continue
                if team.approvals.otherwise == "deny":
                    message = f"nobody is asked in this team: {ask.question}"
                    return "refused", name_of(guard), fault(Code.APPROVAL_DECLINED, message)
                return "asks", name_of(guard), ask
    return "allowed", "", None


def _is_preapproved(team: Team, request: Request, ask: Ask) -> bool:
    """Say whether the team's list agrees, so that no person is asked."""
    question = Question(id=PREVIEW_RUN, text=ask.question, request=request, asked_ms=0, expires_ms=0)
    decision = asyncio.run(AllowList(team.approvals.allow)(question))
    return decision is not None and decision.agreed


def _exit_code(objection: Ask | Fault | None) -> int:
    match objection:
        case None:
            return 0
        case Ask():
            return TABLE[Code.APPROVAL_DECLINED].exit_code
        case Fault(code=code):
            return TABLE[code].exit_code


# ── redaction ─────────────────────────────────────────────────────────────────────────────────────────────────────────


_clean = Redactor(None, None).clean


def _redacted(request: Request, facts: Facts, last: Said) -> tuple[Request, Held]:
    """Return the request as it would be recorded, and the redacted values."""
    match last:
        case Rewrite(request=clean, struck=struck):
            return clean, struck
        case Exception():
            return _clean(request, facts.sealing), {}
        case _:
            return request, {}


def _struck(clean: Request, struck: Held, card: AgentCard | None) -> Iterator[Struck]:
    """Return the findings with their places, and whether the callee may see each one."""
    seen = clean if card is None else reveal(clean, struck, card)
    hidden = set(tokens_in(_said_in(seen)))
    for where, token in tokens_in(_said_in(clean)):
        if token in struck:
            yield Struck(kind=kind_of(token), place=where, shown=(where, token) not in hidden)


def _said_in(request: Request) -> dict[str, Json]:
    return {"objective": request.objective, "input": request.input}
