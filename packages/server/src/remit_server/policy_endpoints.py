"""The endpoints about the policy of a team: what would happen to a call, the guards, and the limits in force."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Protocol

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from remit.hub.hub import Hub
from remit.policy.breaker import BreakerSettings
from remit.policy.limits import Limits
from remit.policy.reception import Permission, Sender
from remit.protocol.card import AgentCard, Authority, Rate
from remit.protocol.envelope import USER, Call, Json, Request, Text
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.protocol.remit import Count, Name
from remit_server.delegation_views import Advice
from remit_server.documents.api import ApiOperation
from remit_server.documents.api_values import DeciderRule
from remit_server.documents.common import shown_as
from remit_server.documents.verdicts import Explanation, GuardLine, Guards
from remit_server.operations import ApiRequest, answers, get


class DraftExplanation(Struct, frozen=True, kw_only=True):
    """What would happen to a call with the limits, rules and permissions of a draft team file."""

    explanation: Explanation
    considered: tuple[str, ...]
    """The keys in which the draft differs from the present team and which count here."""
    ignored: tuple[str, ...]
    """The keys in which it differs and which do not count: they need a restart, or code."""


class TeamText(Struct, frozen=True, kw_only=True):
    """A team file as it is on the disk now."""

    file: str
    text: str


class TeamPolicy(Protocol):
    """The team's rules and limits, for people who ask why. All of it only reads."""

    def guards(self) -> Sequence[GuardLine]:
        """Return the guards in order."""
        ...

    def explain(self, origin: str, call: Call, user: str) -> Explanation:
        """Return what would happen to a call now."""
        ...

    def explain_draft(self, draft: str, origin: str, call: Call, user: str) -> DraftExplanation:
        """Return what would happen with a draft; raise a `RemitError` that lists all errors of the draft."""
        ...

    def advise(self, why: Fault, request: Request) -> Sequence[Advice]:
        """Return the settings that decided about a refused request, the most likely to change first."""
        ...

    def rule_of(self, request: Request, question: str) -> DeciderRule | None:
        """Return the rule that asked a question; None: it was no rule of the file."""
        ...

    def text(self) -> TeamText | None:
        """Return the team file without anything that looks like a secret; None if there is none."""
        ...


class PlainPolicy:
    """The policy of a hub that a Python program made: it has guards and limits, and no team file."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def guards(self) -> Sequence[GuardLine]:
        from remit_server.documents.verdicts import guard_lines  # loaded when somebody asks

        return guard_lines(self._hub.settings.guards, self._hub.settings.answer_guards)

    def explain(self, origin: str, call: Call, user: str) -> Explanation:
        from remit_server.documents.verdicts import explanation

        return explanation(self._hub, origin, call, user)

    def explain_draft(self, draft: str, origin: str, call: Call, user: str) -> DraftExplanation:  # noqa: ARG002 - the shape of all
        why = "this hub has no team file, so a draft of one cannot be compared with it"
        raise RemitError(fault(Code.NOT_FOUND, why, suggestion="Leave out `draft`."))

    def advise(self, why: Fault, request: Request) -> Sequence[Advice]:  # noqa: ARG002 - the shape of all
        return ()

    def rule_of(self, request: Request, question: str) -> DeciderRule | None:  # noqa: ARG002 - the shape of all
        return None

    def text(self) -> TeamText | None:
        return None


# A team of a hundred agents takes some 50 kB.
MOST_DRAFT = 100_000


class PolicyQuestion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that is not made: what would happen to it?"""

    from_: Name = field(default=USER, name="from")
    """The caller: `user`, or an agent, as if a user had asked it first."""
    to: Name
    objective: Text = ""
    capability: Name | None = None
    input: Json = None
    user: Name = "someone"
    tools: Annotated[tuple[Name, ...], Meta(max_length=1_000)] | None = None
    max_tokens: Count | None = None
    max_cost: Count | None = None
    deadline_ms: Count | None = None
    draft: Annotated[str, Meta(max_length=MOST_DRAFT)] | None = None
    """The text of a draft team file; only its limits, budgets, breaker, rules and permissions count."""


class ChangedVerdict(Struct, frozen=True, kw_only=True):
    """A guard that decides otherwise with the draft."""

    guard: str
    now: str
    """Its verdict with the present team; empty: the guard does not exist there."""
    then: str
    """Its verdict with the draft; empty likewise."""


class PolicyAnswer(Struct, frozen=True, kw_only=True):
    """What would happen to a call now, and with a draft."""

    now: Explanation
    draft: DraftExplanation | None
    changed: tuple[ChangedVerdict, ...]


class AgentPolicy(Struct, frozen=True, kw_only=True):
    """What the team lets an agent do."""

    name: str
    description: str
    capabilities: tuple[str, ...]
    may_call: tuple[str, ...]
    """`*` is everyone."""
    tools: tuple[str, ...]
    sees: tuple[str, ...]
    authority: Authority
    rate: Rate | None
    time_ms: int | None
    tokens: int | None
    concurrency: int
    queue: int


class TeamView(Struct, frozen=True, kw_only=True):
    """The limits and permissions in force."""

    limits: Limits
    breaker: BreakerSettings
    agents: tuple[AgentPolicy, ...]
    tools: tuple[str, ...]
    file: TeamText | None
    """The team file as it is on the disk, for who may `control` all agents; None: there is none, or they may not."""


_EXPLAIN = ApiOperation(
    method="POST", path="/v1/policy/explain", name="", summary="", takes=PolicyQuestion, needs=Permission.READ
)


class PolicyEndpoints:
    """The endpoints of `/v1/policy` and `/v1/team`."""

    def __init__(self, hub: Hub, policy: TeamPolicy) -> None:
        self._hub = hub
        self._policy = policy

    @answers(_EXPLAIN)
    async def policy_explain(self, call: ApiRequest) -> PolicyAnswer:
        """What would happen to a call, optionally with a draft of the team file."""
        question = await call.body(PolicyQuestion)
        # In a thread: detectors, schemas and a large draft take a while.
        return await asyncio.to_thread(self._explained, question, call.sender)

    @answers(get("/v1/policy/guards", needs=Permission.READ))
    async def policy_guards(self, _: ApiRequest) -> Guards:
        """The guards in order."""
        return Guards(guards=tuple(self._policy.guards()))

    @answers(get("/v1/team", needs=Permission.READ))
    async def team(self, call: ApiRequest) -> TeamView:
        """The limits and permissions in force."""
        sender, settings = call.sender, self._hub.settings
        whole = Permission.CONTROL in sender.permissions and sender.targets is None
        return TeamView(
            limits=settings.limits,
            breaker=settings.breaker,
            agents=tuple(self._agents(sender)),
            tools=tuple(sorted(self._hub.tool_cards)),
            file=await asyncio.to_thread(self._policy.text) if whole else None,
        )

    def _cards(self, sender: Sender) -> dict[str, AgentCard]:
        """Return the agents that a sender may know of."""
        targets = sender.targets
        return {name: card for name, card in self._hub.cards.items() if targets is None or name in targets}

    def _agents(self, sender: Sender) -> list[AgentPolicy]:
        default = self._hub.settings.limits.authority
        return [
            shown_as(
                AgentPolicy,
                card,
                capabilities=tuple(each.code for each in card.capabilities),
                may_call=tuple(sorted(card.callees)),
                tools=tuple(sorted(card.tools)),
                sees=tuple(sorted(card.sees)),
                authority=card.authority or default,
            )
            for card in self._cards(sender).values()
        ]

    def _explained(self, question: PolicyQuestion, sender: Sender) -> PolicyAnswer:
        origin, cards = question.from_, self._cards(sender)
        for name in (origin, question.to):
            # What would happen to a call of an unknown agent is an answer too, unless it is only unknown to the sender.
            hidden = name in self._hub.cards or name is origin
            if name not in cards and name != USER and hidden:
                known = did_you_mean(name, cards) or f"; known agents: {', '.join(cards) or 'none'}"
                raise RemitError(fault(Code.AGENT_NOT_FOUND, f"no such agent `{name[:100]}`{known}"))
        call = Call(
            target=question.to,
            objective=question.objective,
            input=question.input,
            capability=question.capability,
            tools=None if question.tools is None else frozenset(question.tools),
            max_tokens=question.max_tokens,
            max_cost=question.max_cost,
            deadline_ms=question.deadline_ms,
        )
        now = _outward(self._policy.explain(origin, call, question.user))
        if question.draft is None:
            return PolicyAnswer(now=now, draft=None, changed=())
        draft = self._policy.explain_draft(question.draft, origin, call, question.user)
        draft = replace(draft, explanation=_outward(draft.explanation))
        return PolicyAnswer(now=now, draft=draft, changed=tuple(_changed(now, draft.explanation)))


def _outward(explained: Explanation) -> Explanation:
    return explained if explained.fault is None else replace(explained, fault=explained.fault.outward())


def _changed(now: Explanation, then: Explanation) -> list[ChangedVerdict]:
    """Return the guards whose verdict or reason differs, in the order in which they are asked."""
    before = {each.guard: each for each in now.guards}
    after = {each.guard: each for each in then.guards}
    names = dict.fromkeys((*after, *before))
    return [
        ChangedVerdict(
            guard=name,
            now=before[name].verdict if name in before else "",
            then=after[name].verdict if name in after else "",
        )
        for name in names
        if before.get(name) != after.get(name)
    ]
