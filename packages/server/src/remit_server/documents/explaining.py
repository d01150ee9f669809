"""What would happen to a call that is not made: the verdict of every guard of a hub, and what redaction replaces."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from remit.policy.guards import LAST, explain
from remit.policy.reception import Powers, authority_of, powers_of
from remit.policy.redaction import Held, kind_of
from remit.policy.restoring import reveal, tokens_in
from remit.policy.verdict import ALLOW, GUARD_FAILED, Allow, Ask, Facts, Guard, Refuse, Rewrite, Verdict
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Call, Json, Request
from remit.protocol.errors import TABLE, Code, Fault, fault
from remit.runtime.approvers import AllowList
from remit.runtime.engine import Engine
from remit.runtime.preview import TeamChange
from remit.runtime.redactor import Redactor
from remit.runtime.schemas import unfit_input
from remit_server.documents.policy import Explanation, GuardLine, GuardVerdict, Placing, Struck
from remit_server.documents.recorded_verdicts import guard_name, guard_sentence

Said = Verdict | Exception
"""The verdict of a guard, or its exception."""

AskedAt = Literal["deny", "terminal", "inbox"]


class Approving(NamedTuple):
    """Who answers when a guard asks: the list of a team, and what happens to the rest."""

    allow: Sequence[str] = ()
    otherwise: AskedAt = "inbox"


Place = Callable[[Request], Placing | None]
"""Says whether a request should be delegated at all."""


def explanation(
    hub: Engine,
    origin: str,
    call: Call,
    user: str,
    *,
    approving: Approving | None = None,
    change: TeamChange | None = None,
    place: Place | None = None,
) -> Explanation:
    """Return what would happen to a call; no agent is called, and nothing is recorded."""
    request, facts, guards = hub.preview(origin, call, user, change)
    said = [(guard, _judge(guard, request, facts)) for guard in in_order(guards)]
    outcome, by, objection = _outcome(approving or Approving(), said, request)
    clean, struck = _redacted(request, facts, said[-1][1])
    card = facts.target
    powers = Powers(None, None) if card is None else powers_of(card, request.remit)
    return Explanation(
        origin=origin,
        target=call.target or "",
        outcome=outcome,
        by=by,
        question=objection.question if isinstance(objection, Ask) else "",
        editable=tuple(sorted(objection.editable)) if isinstance(objection, Ask) else (),
        fault=objection if isinstance(objection, Fault) else None,
        guards=tuple(_guard_verdict(guard, verdict, facts) for guard, verdict in said),
        struck=tuple(_struck(clean, struck, facts.target)),
        authority=None if card is None else authority_of(card, facts.limits),
        tools=tuple(sorted(powers.tools or ())),
        targets=tuple(sorted(name for name in hub.cards if card is not None and _may_ask(card, powers, name))),
        place=None if place is None else place(request),
        request=clean,
        exit_code=_exit_code(objection),
    )


def _may_ask(card: AgentCard, powers: Powers, name: str) -> bool:
    return name != card.name and card.may_reach(name) and (powers.targets is None or name in powers.targets)


def in_order(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """Return all guards in their order: those of a hub, the schema, and redaction last."""
    return (*guards, input_schema, LAST)


def guard_lines(guards: Iterable[Guard]) -> tuple[GuardLine, ...]:
    """Return the names of the guards of a hub, the schema and redaction, each with the condition that it checks."""
    return tuple(GuardLine(name=guard_name(each), says=guard_sentence(each)) for each in in_order(guards))


def input_schema(request: Request, facts: Facts) -> Verdict:
    """The input fits the schema of the capability that is asked for."""
    capability = facts.target.capability(request.capability) if facts.target and request.capability else None
    if capability is None or capability.input_schema is None:
        return ALLOW
    why = unfit_input(capability.code, capability.input_schema, request.input)
    return ALLOW if why is None else Refuse(why)


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
    name = guard_name(guard)
    match said:
        case Allow() if guard is LAST:
            found = "no personal data or secrets found" if facts.sealing else "off: `redaction.enabled` is false"
            return GuardVerdict(guard=name, verdict="allow", says=found)
        case Allow():
            return GuardVerdict(guard=name, verdict="allow", says=guard_sentence(guard))
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
    approving: Approving, said: Sequence[tuple[Guard, Said]], request: Request
) -> tuple[Literal["allowed", "asks", "refused"], str, Ask | Fault | None]:
    """Return the outcome, the deciding guard and the reason: the first objection decides."""
    for guard, verdict in said:
        match verdict:
            case Allow() | Rewrite():
                continue
            case Refuse(fault=why):
                return "refused", guard_name(guard), why
            case Exception():
                return "refused", guard_name(guard), _failed(verdict)
            case Ask() as ask:
                if AllowList(approving.allow).entry_for(request) is not None:
                    continue  # no person is asked
                if approving.otherwise == "deny":
                    message = f"nobody is asked in this team: {ask.question}"
                    return "refused", guard_name(guard), fault(Code.APPROVAL_DECLINED, message)
                return "asks", guard_name(guard), ask
    return "allowed", "", None


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
