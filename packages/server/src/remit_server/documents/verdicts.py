"""The verdicts of the guards: on a recorded request, from figures of the record, and on a call that is not made."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from remit.hub.hub import Hub
from remit.policy.budget import FLOOR_MS, estimate_request
from remit.policy.guards import GUARDS, LAST, TOOL_GUARDS, explain
from remit.policy.limits import Limits
from remit.policy.reception import Powers, authority_of, powers_of
from remit.policy.redaction import Held, kind_of
from remit.policy.restoring import reveal, tokens_in
from remit.policy.verdict import ALLOW, GUARD_FAILED, Allow, Ask, Facts, Guard, Refuse, Rewrite, Verdict
from remit.protocol.card import AgentCard, Authority
from remit.protocol.codec import encode
from remit.protocol.envelope import AnswerContent, Call, Json, Request
from remit.protocol.errors import TABLE, Code, Fault, fault
from remit.protocol.records import Approval
from remit.protocol.remit import Tools, terms_of
from remit.runtime.approvers import AllowList
from remit.runtime.preview import CallPreview, TeamChange
from remit.runtime.redactor import Redactor
from remit.runtime.run_tree import Node, Tree
from remit.runtime.schemas import misfits, unfit_input

SCHEMA = "input_schema"
"""The name of the check of an input against the schema of its capability, between the guards and redaction."""

Recorded = Literal["allow", "rewrite", "ask", "refuse", "not_asked", "unknown"]


class RecordedVerdict(Struct, frozen=True, kw_only=True):
    """What a guard decided about a recorded request, as far as the record shows it."""

    guard: str
    verdict: Recorded
    """`not_asked`: an earlier guard had refused; `unknown`: the record does not show it."""
    says: str = ""
    """The reason, with figures."""
    code: Code | None = None
    """The error code if it refused."""
    from_record: bool = True
    """Whether the figures are in the record; if not, they are those of the present team file."""


class RecordedCase(NamedTuple):
    """A recorded request with what its record and the present team say about it."""

    request: Request
    node: Node
    seq: int
    """The number of its record; for a call that waits for a person, that of the next record."""
    tree: Tree
    limits: Limits
    guards: Sequence[Guard]
    """The hub's guards, in order, those of the team included."""
    card: AgentCard | None
    caller: AgentCard | None
    parent: Request | None
    fault: Fault | None = None
    """Why it was refused, if it was."""
    approvals: Sequence[Approval] = ()
    tokens: Sequence[str] = ()
    """The kinds of data that redaction replaced in it."""


def guard_name(guard: Guard) -> str:
    """Return a guard's name."""
    return getattr(guard, "__name__", repr(guard))


def guard_sentence(guard: Guard) -> str:
    """Return the condition that a guard checks."""
    return (guard.__doc__ or "").strip().partition("\n")[0]


def recorded_verdicts(case: RecordedCase) -> tuple[RecordedVerdict, ...]:
    """Return the verdict of each guard, in the order in which they are asked."""
    own = [guard_name(each) for each in case.guards[len(GUARDS) :]]
    names = [*map(guard_name, GUARDS), *own, SCHEMA, guard_name(LAST)]
    refusing = None if case.fault is None else refusing_guard(case.fault, own)
    verdicts: list[RecordedVerdict] = []
    refused = False
    for name in names:
        if refused:
            verdicts.append(RecordedVerdict(guard=name, verdict="not_asked"))
        elif case.fault is not None and name == refusing:
            verdicts.append(
                RecordedVerdict(guard=name, verdict="refuse", says=case.fault.message, code=case.fault.code)
            )
            refused = True
        elif case.fault is not None and refusing is None:
            verdicts.append(RecordedVerdict(guard=name, verdict="unknown", says=_NOT_BY_A_GUARD))
        elif name in _REASONS:
            verdicts.append(_REASONS[name](name, case))
        else:
            verdicts.append(_own(name, case))
    return tuple(verdicts)


_NOT_BY_A_GUARD = "refused before the guards or after them: the record does not show that this guard was asked"

# The guard that refuses with a code. What is not here is refused elsewhere: by the codec, a queue or the store.
GUARD_BY_CODE: dict[Code, str] = {
    Code.VERSION_UNSUPPORTED: "version",
    Code.AGENT_NOT_FOUND: "known_target",
    Code.CAPABILITY_NOT_FOUND: "known_target",
    Code.PERMISSION_DENIED: "permission",
    Code.USER_MISMATCH: "user",
    Code.MAX_DEPTH_EXCEEDED: "depth",
    Code.CHAIN_TOO_LONG: "chain",
    Code.LOOP_DETECTED: "loop",
    Code.CYCLE_DETECTED: "cycle",
    Code.NESTED_CALLS_FORBIDDEN: "nesting",
    Code.FAN_OUT_EXCEEDED: "fan_out",
    Code.MAX_DELEGATIONS_EXCEEDED: "delegations",
    Code.RECORD_LIMIT_EXCEEDED: "record",
    Code.TIMEOUT: "deadline",
    Code.TOOL_NOT_ALLOWED: "tools",
    Code.TOKEN_BUDGET_EXCEEDED: "tokens",
    Code.RATE_LIMITED: "rate",
    Code.DELEGATION_UNAVAILABLE: "breaker",
    Code.INPUT_VALIDATION_FAILED: SCHEMA,
    Code.DATA_MISSING_REQUIRED_INPUT: SCHEMA,
    Code.TOO_LARGE: "redaction",
}
_OF_PERMISSION = ("is not allowed to call other agents", "its `may_call` does not name it", "does not let it call")
_OF_SESSION = "is a conversation with another agent"


def refusing_guard(why: Fault, own: Sequence[str]) -> str | None:
    """Return the guard that refused with a fault; None if none did. *own* are the names of the team's own guards."""
    if why.code is Code.APPROVAL_DECLINED:
        return own[0] if own else None
    if why.code is Code.PERMISSION_DENIED:
        if _OF_SESSION in why.message:
            return "user"
        if not any(each in why.message for each in _OF_PERMISSION):
            return own[0] if own else "permission"
    return GUARD_BY_CODE.get(why.code)


# ── the reasons of those that allowed it ──────────────────────────────────────────────────────────────────────────────


def _allow(name: str, says: str, *, from_record: bool = True) -> RecordedVerdict:
    return RecordedVerdict(guard=name, verdict="allow", says=says, from_record=from_record)


def _version(name: str, case: RecordedCase) -> RecordedVerdict:
    return _allow(name, f"version {case.request.version} is supported")


def _known_target(name: str, case: RecordedCase) -> RecordedVerdict:
    request = case.request
    offers = f" and offers {request.capability}" if request.capability else ""
    return _allow(name, f"{request.target} is registered{offers}")


def _permission(name: str, case: RecordedCase) -> RecordedVerdict:
    request, parent = case.request, case.parent
    if request.parent is None:
        return _allow(name, f"{request.origin} asked {request.target} directly; `may_call` is for agents")
    named = "" if case.caller is None else f"; its `may_call` is now: {_listed(case.caller.callees)}"
    bound = parent.remit.targets if parent is not None else None
    remit = "sets no bound on targets" if bound is None else f"names {_listed(bound)}"
    return _allow(name, f"{request.origin} may call {request.target}{named}; its remit {remit}", from_record=False)


def _user(name: str, case: RecordedCase) -> RecordedVerdict:
    request = case.request
    count = len(request.handoff.references) if request.handoff is not None else 0
    references = f", and so do its {count} references" if count else ""
    return _allow(name, f"the session belongs to {request.remit.user}{references}")


def _depth(name: str, case: RecordedCase) -> RecordedVerdict:
    remit = case.request.remit
    return _allow(name, f"depth {remit.depth} of {min(remit.max_depth, case.limits.max_depth)}")


def _chain(name: str, case: RecordedCase) -> RecordedVerdict:
    return _allow(name, f"{_count(len(case.request.remit.chain), 'agent')} of {case.limits.max_chain} above it")


def _loop(name: str, case: RecordedCase) -> RecordedVerdict:
    chain = case.request.remit.chain
    where = f"not in the chain {' → '.join(chain)}" if chain else "the chain is empty"
    return _allow(name, f"{case.request.target} is {where}" if chain else where)


def _cycle(name: str, case: RecordedCase) -> RecordedVerdict:
    request = case.request
    before = sum(each.agent == request.target for each in case.node.asked_before(case.seq))
    if not before:
        return _allow(name, f"the first call of {request.origin} to {request.target} in this delegation")
    return _allow(name, f"{_count(before, 'earlier call')} to {request.target}, none of them the same")


def _nesting(name: str, case: RecordedCase) -> RecordedVerdict:
    if case.parent is None:
        return _allow(name, "asked from outside: no agent delegates here")
    return _allow(name, f"the remit of {case.request.origin} allows delegation (`may_delegate`)")


def _fan_out(name: str, case: RecordedCase) -> RecordedVerdict:
    if case.parent is None:
        return _allow(name, "asked from outside: no agent delegates here")
    at_once = 1 + sum(each.is_open_at(case.seq) for each in case.node.asked_before(case.seq))
    return _allow(name, f"{at_once} of {case.limits.max_fan_out} at once")


def _delegations(name: str, case: RecordedCase) -> RecordedVerdict:
    request, limits = case.request, case.limits
    if case.parent is None:
        return _allow(name, "the root is not counted")
    requests = (each.request for each in case.tree.nodes_in_order() if 0 < each.first_seq < case.seq)
    earlier = [each.origin for each in requests if each and each.run == request.run and each.parent is not None]
    return _allow(
        name,
        f"call {len(earlier) + 1:,} of {limits.max_delegations:,} of the run, "
        f"{earlier.count(request.origin) + 1:,} of {limits.max_agent_delegations:,} of {request.origin}",
    )


def _record(name: str, case: RecordedCase) -> RecordedVerdict:
    limit = case.limits.max_record_bytes
    says = f"below the limit of {limit:,} bytes; how many there were is not recorded"
    return _allow(name, says, from_record=False)


def _deadline(name: str, case: RecordedCase) -> RecordedVerdict:
    return _allow(name, f"{case.request.remit.time_ms:,} ms granted, at least {FLOOR_MS} ms are needed")


def _tools(name: str, case: RecordedCase) -> RecordedVerdict:
    tools = case.request.remit.tools
    says = "the call names no tools" if tools is None else f"the remit names: {', '.join(with_terms(tools)) or 'none'}"
    return _allow(name, says)


def _tokens(name: str, case: RecordedCase) -> RecordedVerdict:
    request = case.request
    needed = estimate_request(request)
    return _allow(name, f"the request takes about {needed:,} of {request.remit.tokens:,} tokens granted")


def _rate(name: str, case: RecordedCase) -> RecordedVerdict:
    rate = case.card.rate if case.card is not None else None
    if rate is None:
        return _allow(name, f"{case.request.target} has no rate limit", from_record=False)
    says = f"within {_count(rate.calls, 'call')} in {rate.seconds:g} s; how many there were is not recorded"
    return _allow(name, says, from_record=False)


def _breaker(name: str, case: RecordedCase) -> RecordedVerdict:
    target = case.request.target
    if case.node.is_probe:
        return _allow(name, f"half-open: this call was the probe of {target}")
    return _allow(name, f"closed: {target} was called as usual")


def _own(name: str, case: RecordedCase) -> RecordedVerdict:
    answered = [each for each in case.approvals if each.agreed is not None]
    if answered:
        last = answered[-1]
        return RecordedVerdict(guard=name, verdict="ask", says=f"{last.question} Approved by {last.by or 'a person'}.")
    if case.approvals:
        return RecordedVerdict(guard=name, verdict="ask", says=case.approvals[-1].question)
    return _allow(name, "no rule of the team objected")


def _schema(name: str, case: RecordedCase) -> RecordedVerdict:
    code = case.request.capability
    if code is None:
        return _allow(name, "no capability is named, so there is no schema")
    capability = case.card.capability(code) if case.card is not None else None
    if capability is None or capability.input_schema is None:
        return _allow(name, f"{code} has no input schema", from_record=False)
    return _allow(name, f"the input fits the schema of {code}")


def _redaction(name: str, case: RecordedCase) -> RecordedVerdict:
    unread = sum(file.text is None for file in case.request.files)
    besides = f"; {_count(unread, 'file')} not searched: no text" if unread else ""
    if not case.tokens:
        return _allow(name, f"no personal data or secrets were replaced{besides}")
    kinds = sorted(set(case.tokens))
    counted = ", ".join(f"{case.tokens.count(kind)} {kind}" for kind in kinds)
    return RecordedVerdict(guard=name, verdict="rewrite", says=f"replaced with tokens: {counted}{besides}")


_REASONS: dict[str, Callable[[str, RecordedCase], RecordedVerdict]] = {
    "version": _version,
    "known_target": _known_target,
    "permission": _permission,
    "user": _user,
    "depth": _depth,
    "chain": _chain,
    "loop": _loop,
    "cycle": _cycle,
    "nesting": _nesting,
    "fan_out": _fan_out,
    "delegations": _delegations,
    "record": _record,
    "deadline": _deadline,
    "tools": _tools,
    "tokens": _tokens,
    "rate": _rate,
    "breaker": _breaker,
    SCHEMA: _schema,
    "redaction": _redaction,
}


def with_terms(tools: Tools) -> tuple[str, ...]:
    """Return the names of tools, each with the conditions on its arguments."""
    return tuple(" ".join([name, *(encode(each).decode() for each in terms_of(tools, name))]) for name in sorted(tools))


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


class GuardLine(Struct, frozen=True, kw_only=True):
    """A guard."""

    name: Annotated[str, Meta(description="Its name.")]
    says: Annotated[str, Meta(description="The condition it checks.")]


class Guards(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.guards/1"):
    """The guards that judge a request. Printed by `remit policy guards --json`."""

    guards: Annotated[tuple[GuardLine, ...], Meta(description="The guards, in evaluation order.")]


class GuardVerdict(Struct, frozen=True, kw_only=True):
    """The verdict of one guard."""

    guard: Annotated[str, Meta(description="Its name.")]
    verdict: Annotated[
        Literal["allow", "rewrite", "refuse", "ask", "failed"],
        Meta(description="Its verdict; `failed`: it raised an error, so the request is refused."),
    ]
    says: Annotated[str, Meta(description="Reason, unless it allows the request.")] = ""
    code: Annotated[Code | None, Meta(description="The error code if it refuses.")] = None


class Struck(Struct, frozen=True, kw_only=True):
    """A personal or secret value in a request; the value itself is not included."""

    kind: Annotated[str, Meta(description="Kind of value: `EMAIL`, `IBAN`.")]
    place: Annotated[str, Meta(description="Location in the request: `objective`, `input.customer.iban`.")]
    shown: Annotated[bool, Meta(description="Whether the callee sees the original value.")]


class Placing(Struct, frozen=True, kw_only=True):
    """Whether an agent should delegate a request or handle it itself."""

    agent: Annotated[str, Meta(description="The deciding agent: the caller, or the agent the user asks.")]
    decision: Annotated[
        Literal["route", "local"], Meta(description="`route`: delegate it; `local`: handle it without delegating.")
    ]
    reason: Annotated[
        Literal["capability", "intent", "expertise", "data", "scope", "latency", "simplicity", "equivalence"],
        Meta(description="The deciding reason: the first four favor delegating, the others oppose it."),
    ]
    why: Annotated[str, Meta(description="The reason as a sentence.")]
    capability: Annotated[str, Meta(description="The capability, as named or as recognized in the text.")]
    confidence: Annotated[
        float | None, Meta(description="Probability that the text asks for it; null: it was named explicitly.")
    ] = None


class Explanation(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.explanation/1"):
    """What would happen to a request, with the verdict of each guard. Printed by `remit policy explain --json`."""

    origin: Annotated[str, Meta(description="The caller.")]
    target: Annotated[str, Meta(description="The callee.")]
    outcome: Annotated[
        Literal["allowed", "asks", "refused"],
        Meta(description="The outcome; `asks`: a person must approve first."),
    ]
    by: Annotated[str, Meta(description="The deciding guard; empty if none objects.")] = ""
    question: Annotated[str, Meta(description="The question to the person.")] = ""
    editable: Annotated[tuple[str, ...], Meta(description="Fields that the person may edit before approving.")] = ()
    fault: Annotated[Fault | None, Meta(description="Why it would be refused.")] = None
    guards: Annotated[tuple[GuardVerdict, ...], Meta(description="The verdict of each guard, in evaluation order.")]
    struck: Annotated[tuple[Struck, ...], Meta(description="Values that redaction found.")] = ()
    authority: Annotated[
        Authority | None,
        Meta(description="Source of its tools and targets: its own, or limited to its caller's."),
    ] = None
    tools: Annotated[tuple[str, ...], Meta(description="The tools it could use.")] = ()
    targets: Annotated[tuple[str, ...], Meta(description="The agents it could call.")] = ()
    place: Annotated[
        Placing | None,
        Meta(description="Whether delegating makes sense; null: no capability is named or recognized."),
    ] = None
    request: Annotated[
        Request, Meta(description="The request as it would be recorded, with tokens in place of redacted values.")
    ]
    exit_code: Annotated[int, Meta(description="Exit code of the command.")]


VerdictOrError = Verdict | Exception
"""The verdict of a guard, or its exception."""

AskedAt = Literal["deny", "terminal", "inbox"]


class Approving(NamedTuple):
    """Who answers when a guard asks: the list of a team, and what happens to the rest."""

    allow: Sequence[str] = ()
    otherwise: AskedAt = "inbox"


Place = Callable[[Request], Placing | None]
"""Says whether a request should be delegated at all."""


def explanation(
    hub: Hub,
    origin: str,
    call: Call,
    user: str,
    *,
    approving: Approving | None = None,
    change: TeamChange | None = None,
    place: Place | None = None,
) -> Explanation:
    """Return what would happen to a call; no agent is called, and nothing is recorded."""
    return _explained(hub, hub.preview(origin, call, user, change), approving or Approving(), place)


def explanation_of_use(
    hub: Hub,
    agent: str,
    tool: str,
    arguments: dict[str, Json],
    user: str,
    *,
    own: bool = False,
    approving: Approving | None = None,
) -> Explanation:
    """Return what would happen to the use of a tool, the agent's *own* or not; it is not used or recorded."""
    return _explained(hub, hub.preview_use(agent, tool, arguments, user, own=own), approving or Approving(), None)


def explanation_of_answer(
    hub: Hub, agent: str, origin: str, result: Json, user: str, approving: Approving | None = None
) -> Explanation:
    """Return what would happen to an agent's answer to *origin*, an agent or the user; nothing is recorded."""
    preview = hub.preview_answer(agent, origin, AnswerContent(result=result), user)
    return _explained(hub, preview, approving or Approving(), None)


def _explained(hub: Hub, preview: CallPreview, approving: Approving, place: Place | None) -> Explanation:
    request, facts, guards = preview
    # The arguments of a tool have to fit before the team's own guards read them.
    first = len(TOOL_GUARDS) if request.act == "tool" else len(guards)
    checked = (input_schema,) if request.act != "answer" else ()
    order = (*guards[:first], *checked, *guards[first:], LAST)
    verdicts = [(guard, _judge(guard, request, facts)) for guard in order]
    outcome, by, objection = _outcome(approving, verdicts, request)
    clean, struck = _redacted(request, facts, verdicts[-1][1])
    card = facts.target if request.act != "answer" else None
    powers = Powers(None, None) if card is None else powers_of(card, request.remit)
    return Explanation(
        origin=request.origin,
        target=request.target,
        outcome=outcome,
        by=by,
        question=objection.question if isinstance(objection, Ask) else "",
        editable=tuple(sorted(objection.editable)) if isinstance(objection, Ask) else (),
        fault=objection if isinstance(objection, Fault) else None,
        guards=tuple(_guard_verdict(guard, verdict, facts) for guard, verdict in verdicts),
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


def guard_lines(guards: Iterable[Guard], answers: Iterable[Guard] = ()) -> tuple[GuardLine, ...]:
    """Return the names of the guards of a hub, the schema and redaction, each with the condition that it checks.

    Those that judge *answers* come last.
    """
    return tuple(GuardLine(name=guard_name(each), says=guard_sentence(each)) for each in (*in_order(guards), *answers))


def input_schema(request: Request, facts: Facts) -> Verdict:
    """The input fits the schema of the capability or the tool."""
    if facts.tool is not None and (problems := misfits(facts.tool.input_schema, request.input)):
        why = fault(Code.INPUT_VALIDATION_FAILED, f"the arguments do not fit tool {request.target}", problems=problems)
        return Refuse(why)
    capability = facts.target.capability(request.capability) if facts.target and request.capability else None
    if capability is None or capability.input_schema is None:
        return ALLOW
    why = unfit_input(capability.code, capability.input_schema, request.input)
    return ALLOW if why is None else Refuse(why)


# ── the verdicts ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _judge(guard: Guard, request: Request, facts: Facts) -> VerdictOrError:
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


def _guard_verdict(guard: Guard, verdict: VerdictOrError, facts: Facts) -> GuardVerdict:
    name = guard_name(guard)
    match verdict:
        case Allow() if guard is LAST:
            finding = "no personal data or secrets found" if facts.sealing else "off: `redaction.enabled` is false"
            return GuardVerdict(guard=name, verdict="allow", says=finding)
        case Allow():
            return GuardVerdict(guard=name, verdict="allow", says=guard_sentence(guard))
        case Rewrite(struck=struck) if not struck:
            return GuardVerdict(guard=name, verdict="rewrite", says="changes what is judged")
        case Rewrite(struck=struck):
            kinds = sorted(set(map(kind_of, struck)))
            return GuardVerdict(guard=name, verdict="rewrite", says=f"replaces with tokens: {', '.join(kinds)}")
        case Refuse(fault=why):
            return GuardVerdict(guard=name, verdict="refuse", says=why.message, code=why.code)
        case Ask(question=question):
            return GuardVerdict(guard=name, verdict="ask", says=question)
        case Exception():
            return GuardVerdict(
                guard=name, verdict="failed", says=_failed(verdict).message, code=Code.PERMISSION_DENIED
            )


def _failed(error: Exception) -> Fault:
    why = f"a guard failed ({type(error).__name__}), so the request is refused"
    return fault(Code.PERMISSION_DENIED, why, suggestion=GUARD_FAILED)


def _outcome(
    approving: Approving, verdicts: Sequence[tuple[Guard, VerdictOrError]], request: Request
) -> tuple[Literal["allowed", "asks", "refused"], str, Ask | Fault | None]:
    """Return the outcome, the deciding guard and the reason: the first objection decides."""
    for guard, verdict in verdicts:
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


def _redacted(request: Request, facts: Facts, last: VerdictOrError) -> tuple[Request, Held]:
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
    hidden = set(tokens_in(_request_texts(seen)))
    for where, token in tokens_in(_request_texts(clean)):
        if token in struck:
            yield Struck(kind=kind_of(token), place=where, shown=(where, token) not in hidden)


def _request_texts(request: Request) -> dict[str, Json]:
    return {"objective": request.objective, "input": request.input}
