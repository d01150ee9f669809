"""What a request from elsewhere becomes here: nothing that a peer says widens what it may do."""

import re
from collections.abc import Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.context import reads_conversation
from remit.policy.limits import Limits
from remit.protocol.card import AgentCard, Authority
from remit.protocol.codec import malformed
from remit.protocol.envelope import USER, Assignment, Handover, Request, Response, View, fields_of
from remit.protocol.errors import Code, Fault, Problem, fault
from remit.protocol.problems import did_you_mean
from remit.protocol.remit import (
    CONTEXT_TOKENS,
    LONGEST_NAME,
    Grant,
    Name,
    Names,
    Priority,
    Remit,
    Tools,
    lesser,
    lower,
    meet,
    meet_tools,
)
from remit.protocol.submission import Submission
from remit.protocol.trace import place_of

_MARKED = re.compile(r"~[0-9a-f]{8}(?:@[^@]*)?\Z")


def here(session: str, peer: str) -> str:
    """Return this hub's name of a session that *peer* names; adding the ending twice changes nothing.

    A peer's session ids are its own: here they end with `@` and the peer's name, so that no peer can name a session of
    another peer or of a local user. A peer may send an id with or without that ending, and always gets its own form.
    """
    return f"{there(session, peer)}@{peer}"


def there(session: str, peer: str) -> str:
    """Return *peer*'s name of a session of this hub."""
    return session.removesuffix(f"@{peer}") or session  # no name is empty


def of_agent(session: str, agent: str) -> str:
    """Return the name of an agent's own part of a shared session; applying it twice changes nothing."""
    return f"{session.removesuffix(f'/{agent}')}/{agent}"


def of_callee(session: str, name: str) -> str:
    """Return the id of a conversation that an agent names, within its own *session*; applying it twice changes nothing.

    So no other conversation, and no other user, can name it.
    """
    base, at, peer = session.rpartition("@") if "@" in session else (session, "", "")
    short = blake2b(session.encode(), digest_size=16).hexdigest()
    if name.startswith((f"{base}/", f"{short}/")) and name.endswith(f"{at}{peer}"):
        return name
    # An id has to have room for the mark of a user.
    room = LONGEST_NAME - len(f"{at}{peer}") - 10
    if len(base) + 1 + len(name) > room:
        base = short
    if len(base) + 1 + len(name) > room:
        name = blake2b(name.encode(), digest_size=16).hexdigest()
    return f"{base}/{name}{at}{peer}"


def of_user(session: str, user: str) -> str:
    """Return the id of a user's session with a name that another user took first; applying it twice changes nothing."""
    name, at, peer = session.rpartition("@") if "@" in session else (session, "", "")
    mark = f"~{blake2b(user.encode(), digest_size=4).hexdigest()}"
    return f"{name.removesuffix(mark)}{mark}{at}{peer}"


def is_marked_for_another(session: str, user: str) -> bool:
    """Return whether a session id has the form that `of_user` gives it for somebody else."""
    return _MARKED.search(session) is not None and of_user(session, user) != session


def peer_of(request: Request) -> str | None:
    """Return the peer that sent a request; None for a user's, a client's, and a local one."""
    return request.via if request.via is not None and request.origin.endswith(f"@{request.via}") else None


def speaker_of(request: Request) -> str:
    """Return who speaks in a root request, as in notes: empty for a user, else the peer's agent."""
    return "" if peer_of(request) is None else request.origin


def is_new(request: Request) -> bool:
    """Return whether a peer names a session after the request itself: nothing was said in it before."""
    peer = peer_of(request)
    return peer is not None and request.session == here(request.id, peer)


def named_by_peer(request: Request) -> str | None:
    """Return the id, in the peer's form, of the earlier session that a request continues; None if there is none."""
    peer = peer_of(request)
    if peer is None or request.session in (None, request.run) or is_new(request):
        return None
    name = there(request.session, peer)
    return name if request.session != name else None


def with_session_of_peer(response: Response, peer: str | None) -> Response:
    """Return a response with its session in *peer*'s form; unchanged for anyone else."""
    if peer is None or response.session is None or not response.session.endswith(f"@{peer}"):
        return response
    return replace(response, session=there(response.session, peer))


class Permission(StrEnum):
    """What a client may do besides calling agents for its users; none of these includes another."""

    METRICS = "metrics"
    """Read the metrics, which contain no texts."""
    READ = "read"
    """Read everyone's runs, their answers, and the record, with tokens for personal values."""
    CONTROL = "control"
    """Cancel everyone's runs."""
    REVEAL = "reveal"
    """Read personal values in clear, in answers and questions that it may see; each time is recorded."""
    ERASE = "erase"
    """Erase users with everything that is kept about them."""
    PRIORITY = "priority"
    """Send requests with a priority above NORMAL."""


class Sender(Struct, frozen=True, kw_only=True):
    """The authenticated sender of a request."""

    name: Name
    """A client's name in the team file; a hub's name in chains."""
    is_hub: bool = False
    users: Names | None = None
    """The users that it may act for; None: any."""
    targets: Names | None = None
    """The agents that it may call; None: all exposed agents."""
    permissions: frozenset[Permission] = frozenset()
    """What it may do besides calling agents."""
    may_approve: bool = False
    """Whether its users' answers to questions about their own runs count as a person's answer."""


def peer_name(sender: Sender) -> str | None:
    """Return the name that separates a sender's sessions; None for a client, whose sessions are this hub's."""
    return sender.name if sender.is_hub else None


def receive(
    sent: Submission,
    sender: Sender,
    *,
    exposed: frozenset[str],
    run: str,
    created_ms: int,
    limits: Limits,
    grant: Grant | None = None,
    above: Remit | None = None,
) -> Request | Fault:
    """Return the request that starts a run here, or the fault.

    *above* is the remit of the delegation in flight here that the request came from, if it did: its chain and depth
    count, whatever the request claims. *grant* bounds everything, and so do this hub's *limits*.
    """
    user = _user(sent, sender)
    if isinstance(user, Fault):
        return user
    if (why := _refused(sent, sender, user, exposed, grant)) is not None:
        return why
    origin = f"{sent.origin}@{sender.name}" if sender.is_hub else USER
    remit = _remit_here(sent, sender, user, limits, grant, above)
    session, parent_session = (
        here(name, sender.name) if name is not None and sender.is_hub else name
        for name in (sent.session, sent.parent_session)
    )
    names = {"origin": origin, "session": session, "parent_session": parent_session}
    if (why := _too_long(names, sender)) is not None:
        return why
    assignment = fields_of(Assignment, sent)
    assignment["session"] = session or run
    assignment["correlation"] = sent.correlation or sent.run or run
    if sent.view is not None:
        assignment["context"] = None
    return Request(
        handover=handed_by_user(sent.handover, sent.target),
        version=sent.version,
        id=sent.id or run,
        origin=origin,
        target=sent.target,
        remit=remit,
        run=run,
        parent_session=parent_session,
        view=None if sent.view is None else _as_claimed(sent.view, sender),
        created_ms=created_ms,
        traceparent=sent.traceparent if trace_of(sent.traceparent) else None,
        via=sender.name,
        **assignment,
    )


def handed_by_user(to: str | None, target: str) -> tuple[Handover, ...] | None:
    """Return the handover of a request whose sender says who is to answer: the target itself, or an agent behind it."""
    return None if to is None else () if to == target else (Handover(to=to),)


def _refused(sent: Submission, sender: Sender, user: str, exposed: frozenset[str], grant: Grant | None) -> Fault | None:
    """Return why a sender may not ask for this, or None if it may."""
    if grant is not None and grant.user != user:
        return fault(
            Code.USER_MISMATCH,
            "User ID mismatch - security violation: the credential is another user's",
            suggestion="Ask for the user of the credential.",
        )
    known = exposed if sender.targets is None else exposed & sender.targets
    # Whom an agent hands a conversation over to is its own decision; a sender may decide it where it could ask itself.
    for name in (sent.target, sent.handover or sent.target):
        if name not in known:
            # The same answer for hidden and for unknown agents: a sender without permission learns nothing.
            near = did_you_mean(name, known)
            return fault(Code.AGENT_NOT_FOUND, f"there is no agent `{name}` here that {sender.name} may ask{near}")
    if not sender.is_hub and sent.origin != USER:
        problem = Problem("$.origin", f"only a hub speaks for agents; a client leaves it out, or says `{USER}`")
        return fault(Code.MALFORMED_ENVELOPE, "the request is not valid: $.origin", problems=(problem,))
    return None


def _remit_here(
    sent: Submission, sender: Sender, user: str, limits: Limits, grant: Grant | None, above: Remit | None
) -> Remit:
    """Return the remit of a request that comes from elsewhere: as claimed, within the limits, the grant and *above*."""
    remit = _bounded(_claimed(sent, user, limits), limits)
    if grant is not None:
        remit = _granted(remit, grant)
    speaks = f"{sent.origin}@{sender.name}" if sender.is_hub and sent.origin != USER else None
    chain = _chain(remit.chain, speaks, () if above is None else above.chain)
    least = len(chain) if above is None else max(len(chain), above.depth + 1)
    priority = remit.priority if Permission.PRIORITY in sender.permissions else lesser(remit.priority, Priority.NORMAL)
    return replace(remit, chain=chain, depth=max(remit.depth, least), priority=priority)


def remarks(sent: Submission, request: Request) -> tuple[str, ...]:
    """Return the remarks to the sender besides the outcome: what it asked for and cannot have here."""
    warnings: list[str] = []
    wanted, granted = sent.context_tokens, request.remit.context_tokens
    if wanted is not None and wanted > CONTEXT_TOKENS and wanted > granted:
        warnings.append(context_cut(wanted, granted))
    urgent = sent.priority if sent.remit is None else sent.remit.priority
    if urgent not in (None, request.remit.priority):
        warnings.append(
            f"The priority {urgent} was lowered to {request.remit.priority}: {request.via} lacks the permission "
            f"`{Permission.PRIORITY}` in the team file."
        )
    goes_on = sent.session is not None or sent.view is not None
    if sent.remit is None and not goes_on and sent.context is not None and reads_conversation(sent.context):
        warnings.append(
            "The filter chose nothing, because the request names no conversation. "
            "Name the session to choose from, or put what the callee needs into the task."
        )
    return tuple(warnings)


def context_cut(wanted: int, granted: int, name: str = "max_context_tokens") -> str:
    """Return the warning to a caller that asks for more context than allowed; *name* is its name for the field."""
    return (
        f"At most {granted:,} tokens of context are passed on here, not {wanted:,} as `{name}` asks for. "
        "The team file says how many (`context_tokens` in `[budgets]`)."
    )


def trace_of(traceparent: str | None) -> str | None:
    """Return the trace id of a request (W3C); None if it has none."""
    place = place_of(traceparent)
    return None if place is None else place.trace


def _too_long(names: Mapping[str, str | None], sender: Sender) -> Fault | None:
    """Return the fault for names that are too long once the sender's name is appended."""
    most = LONGEST_NAME - len(sender.name) - 1
    problems = tuple(
        Problem(f"$.{field}", f"use at most {most} characters: a name of a peer ends with `@{sender.name}` here")
        for field, name in names.items()
        if name is not None and len(name) > LONGEST_NAME
    )
    return malformed(problems) if problems else None


def _user(sent: Submission, sender: Sender) -> str | Fault:
    user = sent.user if sent.remit is None else sent.remit.user
    if user is None and sender.users is not None and len(sender.users) == 1:
        (user,) = sender.users
    if user is None:
        problem = Problem("$.user", "name the user of the request")
        return fault(Code.MALFORMED_ENVELOPE, "the request is not valid: $.user", problems=(problem,))
    if sent.user is not None and sent.user != user:
        return fault(
            Code.USER_MISMATCH,
            "User ID mismatch - security violation: the request names two users",
            suggestion="Name one user: `user` and the user of the remit have to be the same.",
        )
    if sender.users is not None and user not in sender.users:
        return not_for(sender, user)
    return user


def not_for(sender: Sender, user: str) -> Fault:
    """Return why a sender may not act for a user."""
    return fault(
        Code.USER_MISMATCH,
        f"User ID mismatch - security violation: {sender.name} may not ask for `{user}`",
        suggestion=f"Ask for a user of {sender.name}: its `users` in the team file name them.",
    )


def _claimed(sent: Submission, user: str, limits: Limits) -> Remit:
    """Return the remit that the sender claims; a client that claims nothing gets this hub's defaults."""
    held = sent.remit or Remit(
        user=user,
        depth=0,
        max_depth=limits.max_depth,
        time_ms=limits.root_time_ms,
        tokens=limits.root_tokens,
        cost=limits.root_cost,
        context_tokens=limits.context_tokens,
        priority=sent.priority or Priority.NORMAL,
    )
    return replace(
        held,
        depth=max(held.depth, sent.depth),
        chain=_chain(held.chain, None, sent.chain),
        max_depth=_least(held.max_depth, sent.max_depth),
        time_ms=_least(held.time_ms, sent.deadline_ms),
        tokens=_least(held.tokens, sent.max_tokens),
        cost=lower(held.cost, sent.max_cost),
        context_tokens=_least(held.context_tokens, sent.context_tokens),
        tools=held.tools if sent.tools is None else meet_tools(held.tools, sent.tools),
        targets=held.targets if sent.targets is None else meet(held.targets, sent.targets),
        may_delegate=held.may_delegate and sent.may_delegate,
    )


def _bounded(remit: Remit, limits: Limits) -> Remit:
    tokens = min(remit.tokens, limits.root_tokens)
    return replace(
        remit,
        max_depth=min(remit.max_depth, limits.max_depth),
        time_ms=min(remit.time_ms, limits.root_time_ms),
        tokens=tokens,
        cost=lower(remit.cost, limits.root_cost),
        context_tokens=min(remit.context_tokens, limits.context_tokens, tokens),
    )


def _chain(claimed: tuple[str, ...], origin: str | None, above: tuple[str, ...]) -> tuple[str, ...]:
    """Return the agents between the user and the callee: those known here first, then the claimed ones."""
    chain = claimed if above == claimed[: len(above)] else (*above, *(each for each in claimed if each not in above))
    return chain if origin is None or origin in chain[-1:] else (*chain, origin)


def _granted(remit: Remit, grant: Grant) -> Remit:
    return replace(
        remit,
        depth=max(remit.depth, grant.depth),
        chain=_chain(remit.chain, None, grant.chain),
        max_depth=min(remit.max_depth, grant.max_depth),
        time_ms=min(remit.time_ms, grant.time_ms),
        tokens=min(remit.tokens, grant.tokens),
        cost=lower(remit.cost, grant.cost),
        context_tokens=min(remit.context_tokens, grant.tokens),
        tools=remit.tools if grant.tools is None else meet_tools(remit.tools, grant.tools),
        targets=remit.targets if grant.targets is None else meet(remit.targets, grant.targets),
        may_delegate=remit.may_delegate and grant.may_delegate,
    )


def _as_claimed(view: View, sender: Sender) -> View:
    """Return a sender's view without the numbers of its own record: here they belong to other messages.

    Names in it mean nobody here either: a hub's notes are by its own agents and users, and a client's by the user it
    acts for.
    """
    messages = tuple(replace(each, seq=0, delegation="") for each in view.messages)
    known = tuple(replace(each, by=f"{each.by or USER}@{sender.name}" if sender.is_hub else "") for each in view.known)
    return replace(view, messages=messages, known=known, seen=())


def _least(held: int, wished: int | None) -> int:
    return held if wished is None or wished > held else wished


class Powers(NamedTuple):
    """The tools and the callees that an agent may use; None sets no bound."""

    tools: Tools | None
    targets: frozenset[str] | None


_NOTHING: frozenset[str] = frozenset()


def authority_of(card: AgentCard, limits: Limits) -> Authority:
    """Return whose tools and targets an agent has when another calls it."""
    return card.authority or limits.authority


def powers_of(card: AgentCard | None, remit: Remit) -> Powers:
    """Return an agent's own powers: what its card and its remit both name.

    Without a *card* it is the top of the run: a user, who is bound by the remit alone, or an agent on another hub, of
    which only the remit is known.
    """
    if card is None:
        unsaid = _NOTHING if remit.chain else None
        return Powers(
            unsaid if remit.tools is None else remit.tools, unsaid if remit.targets is None else remit.targets
        )
    callees = card.callees
    targets = remit.targets if "*" in callees else meet(callees, remit.targets)
    return Powers(meet_tools(card.tools, remit.tools), targets)


def within(remit: Remit, powers: Powers) -> Remit:
    """Return a remit that is cut to these powers."""
    tools, targets = meet_tools(remit.tools, powers.tools), meet(remit.targets, powers.targets)
    return remit if (tools, targets) == (remit.tools, remit.targets) else replace(remit, tools=tools, targets=targets)


def received(request: Request, card: AgentCard, limits: Limits) -> Request:
    """Return a root request, cut to its caller's powers if the caller is an agent on another hub."""
    if not request.remit.chain or authority_of(card, limits) == "own":
        return request
    remit = within(request.remit, powers_of(None, request.remit))
    return request if remit is request.remit else replace(request, remit=remit)
