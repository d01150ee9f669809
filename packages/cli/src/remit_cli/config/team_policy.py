"""A team's policy for its server: calls explained, refusals with the key that decides, drafts compared."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from remit.hub.hub import Hub
from remit.protocol.card import AgentCard, Capability
from remit.protocol.codec import text_of
from remit.protocol.envelope import Call, Request
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.runtime.preview import TeamChange
from remit_cli.config.checks import without_secrets
from remit_cli.config.composition import (
    RELOADED_OF_AGENTS,
    RELOADED_SECTIONS,
    PresentTeam,
    differences,
    guards_of,
    option_of,
    with_changes,
)
from remit_cli.config.load import load_team, parse_text, read_text
from remit_cli.config.origins import Place, dotted, value_at
from remit_cli.config.rules import matching_rule, question_of
from remit_cli.config.sections.agents import CapabilitySection
from remit_cli.config.team import Team
from remit_cli.config.values import in_code
from remit_server.delegation_views import Advice
from remit_server.documents.api_values import DeciderRule
from remit_server.documents.verdicts import Approving, Explanation, GuardLine, explanation, guard_lines
from remit_server.policy_endpoints import DraftExplanation, TeamText


class GoverningKey(NamedTuple):
    """A key of the team file that decided, and what to do with it."""

    place: Place
    says: str


class RefusedCase(NamedTuple):
    """A refused request, and the team that refused it."""

    why: Fault
    request: Request
    team: Team

    @property
    def target(self) -> Place:
        """The section of the callee: an agent, a workflow or the orchestrator."""
        return section_of(self.team, self.request.target)

    @property
    def caller(self) -> Place:
        return section_of(self.team, self.request.origin)


def section_of(team: Team, name: str) -> Place:
    """Return the section of a team file that is about an agent, a workflow or the orchestrator."""
    if name in team.workflows:
        return ("workflows", name)
    if team.orchestrator is not None and team.orchestrator.name == name:
        return ("orchestrator",)
    return ("agents", name)


Governs = Callable[[RefusedCase], Iterator[GoverningKey]]


def governing_keys(case: RefusedCase) -> list[GoverningKey]:
    """Return the keys that govern a refusal, the one that most likely decided first; none if no setting does."""
    governs = GOVERNED[case.why.code]
    return [] if governs is None else [*governs(case)]


def _always(*keys: tuple[str, str]) -> Governs:
    """Return what names the same keys, dotted, for every refusal."""

    def governs(_: RefusedCase) -> Iterator[GoverningKey]:
        yield from (GoverningKey(tuple(key.split(".")), says) for key, says in keys)

    return governs


def _depth(case: RefusedCase) -> Iterator[GoverningKey]:
    agent = case.team.agents.get(case.request.origin)
    if agent is not None and agent.max_sub_agent_depth is not None:
        says = f"Raise it, or leave it out, so that calls below {case.request.origin} may go deeper."
        yield GoverningKey((*case.caller, "max_sub_agent_depth"), says)
    yield GoverningKey(("limits", "max_depth"), "Raise it so that calls may go deeper.")


def _delegations(case: RefusedCase) -> Iterator[GoverningKey]:
    one, all_of = "max_agent_delegations", "max_delegations"
    keys = (one, all_of) if one in case.why.message else (all_of, one)
    says = {one: "Raise it so that one agent may ask for more.", all_of: "Raise it so that a run may ask for more."}
    yield from (GoverningKey(("limits", key), says[key]) for key in keys)


def _cycle(case: RefusedCase) -> Iterator[GoverningKey]:
    if case.request.capability is not None:
        says = "If it changes nothing, set it to true: the earlier answer is then given again."
        yield GoverningKey(("capabilities", case.request.capability, "read_only"), says)


def _time(case: RefusedCase) -> Iterator[GoverningKey]:
    team, request = case.team, case.request
    if request.capability in team.capabilities and team.capabilities[request.capability].time is not None:
        yield GoverningKey(("capabilities", request.capability, "time"), "Raise it to give the capability more time.")
    says = f"Set or raise it to give {request.target} more time."
    yield GoverningKey((*case.target, "time"), says)
    if request.parent is not None:
        yield GoverningKey(("budgets", "delegation_time"), "Raise the time of every delegation.")
    yield GoverningKey(("budgets", "run_time"), "Raise the time of the whole run, from which each call gets its own.")


def _tokens(case: RefusedCase) -> Iterator[GoverningKey]:
    team, request = case.team, case.request
    if "day" in case.why.message and request.parent is None:
        is_money = "tokens" not in case.why.message
        key, what = ("cost_per_user_per_day", "money") if is_money else ("per_user_per_day", "tokens")
        yield GoverningKey(("budgets", key), f"Raise the {what} that one user may spend in a day.")
        return
    key, what = ("cost", "money") if request.remit.cost == 0 else ("tokens", "tokens")
    code = request.capability or ""
    capability = team.capabilities.get(code)
    if capability is not None and getattr(capability, key) is not None:
        yield GoverningKey(("capabilities", code, key), f"Raise the {what} of the capability.")
    yield GoverningKey((*case.target, key), f"Set or raise it to give {request.target} more {what}.")
    if request.parent is not None:
        yield GoverningKey(("budgets", f"delegation_{key}"), f"Raise the {what} of every delegation.")
    yield GoverningKey(("budgets", f"run_{key}"), f"Raise the {what} of the whole run.")


def _rate(case: RefusedCase) -> Iterator[GoverningKey]:
    says = f"Raise it so that {case.request.target} may be called more often."
    yield GoverningKey((*case.target, "rate"), says)


def _queue(case: RefusedCase) -> Iterator[GoverningKey]:
    target = case.request.target
    yield GoverningKey((*case.target, "concurrency"), f"Raise it so that {target} does more at once.")
    yield GoverningKey((*case.target, "queue"), f"Raise it so that more calls may wait for {target}.")


def _permission(case: RefusedCase) -> Iterator[GoverningKey]:
    team, request, message = case.team, case.request, case.why.message
    agent = team.agents.get(request.origin)
    place = matching_rule(team.rules, request)
    if agent is not None and agent.allow_sub_agent_calls is False:
        yield GoverningKey((*case.caller, "allow_sub_agent_calls"), f"Take it out so that {request.origin} may call.")
    elif "may_call" in message:
        yield GoverningKey((*case.caller, "may_call"), f'Add "{request.target}" to it.')
    elif place is not None and team.rules[place].then == "refuse":
        yield GoverningKey(("rules", place), "Change this rule, or put one that allows the call before it.")


def _tools(case: RefusedCase) -> Iterator[GoverningKey]:
    target, origin = case.request.target, case.request.origin
    if "cannot pass on" in case.why.message:
        yield GoverningKey((*case.caller, "tools"), f"Add the tool, so that {origin} can pass it on.")
        return
    if "authority of its caller" in case.why.message:
        says = f'Set it to "own" so that {target} has its own tools, whoever calls it.'
        yield GoverningKey((*case.target, "authority"), says)
        yield GoverningKey((*case.caller, "tools"), f"Or add the tool to {origin}.")
        return
    yield GoverningKey((*case.target, "tools"), "Add the tool that is named.")


def _approval(case: RefusedCase) -> Iterator[GoverningKey]:
    team, request = case.team, case.request
    place = matching_rule(team.rules, request)
    if place is not None:
        yield GoverningKey(
            ("rules", place), "This rule asks a person; change it, or put one that allows the call first."
        )
    if "within" in case.why.message:
        yield GoverningKey(("approvals", "timeout"), "Raise it to give people more time to answer.")
    if team.approvals.otherwise == "deny":
        yield GoverningKey(("approvals", "otherwise"), 'Set it to "inbox" so that a person is asked.')
    pair = f'"{request.origin} -> {request.target}"'
    yield GoverningKey(("approvals", "allow"), f"Add {pair} so that nobody has to be asked.")


def _unknown_agent(case: RefusedCase) -> Iterator[GoverningKey]:
    yield GoverningKey(("agents",), f"Add `[agents.{case.request.target}]`, or correct the name in the call.")


def _offered(case: RefusedCase) -> Iterator[GoverningKey]:
    code = case.request.capability or ""
    if case.request.target in case.team.everyone:
        yield GoverningKey((*case.target, "capabilities"), f'Add "{code}" to it, or ask an agent that offers it.')
    else:
        yield GoverningKey(("capabilities",), f"Add `[capabilities.{code}]` and name it in an agent that offers it.")


def _input(case: RefusedCase) -> Iterator[GoverningKey]:
    if case.request.capability is not None:
        says = "The input has to fit this schema; change the input, or the schema if it is wrong."
        yield GoverningKey(("capabilities", case.request.capability, "input_schema"), says)


def _result(case: RefusedCase) -> Iterator[GoverningKey]:
    if "bytes" in case.why.message:
        yield GoverningKey(("limits", "max_result_bytes"), "Raise it if answers have to be this large.")
    elif case.request.capability is not None:
        says = "The answer has to fit this schema; correct the agent, or the schema if it is wrong."
        yield GoverningKey(("capabilities", case.request.capability, "result_schema"), says)


_peers = _always(("peers", "Check the keys and URLs of the other hub here."))

GOVERNED: dict[Code, Governs | None] = {
    Code.MAX_DEPTH_EXCEEDED: _depth,
    Code.CHAIN_TOO_LONG: _always(
        ("limits.max_chain", "Raise it so that more agents may stand between the user and a call.")
    ),
    Code.LOOP_DETECTED: None,
    Code.CYCLE_DETECTED: _cycle,
    Code.FAN_OUT_EXCEEDED: _always(("limits.max_fan_out", "Raise it so that one agent may have more calls at once.")),
    Code.MAX_DELEGATIONS_EXCEEDED: _delegations,
    Code.RECORD_LIMIT_EXCEEDED: _always(
        ("limits.max_record_bytes", "Raise it so that the records of a run may be larger.")
    ),
    Code.NESTED_CALLS_FORBIDDEN: None,  # its caller's call forbids it
    Code.TIMEOUT: _time,
    Code.TOKEN_BUDGET_EXCEEDED: _tokens,
    Code.RATE_LIMITED: _rate,
    Code.OVERLOADED: _queue,
    Code.PERMISSION_DENIED: _permission,
    Code.TOOL_NOT_ALLOWED: _tools,
    Code.PATH_NOT_ALLOWED: _always(("context.workspace", "Only files below this folder are shown to agents.")),
    Code.USER_MISMATCH: _always(
        ("limits.shared_scopes", "Add the owner, if every user may refer to what belongs to it.")
    ),
    Code.APPROVAL_DECLINED: _approval,
    Code.CREDENTIAL_INVALID: _peers,
    Code.CREDENTIAL_EXPIRED: _peers,
    Code.UNAUTHENTICATED: _always(("clients", "Name the client here, with its token.")),
    Code.AGENT_NOT_FOUND: _unknown_agent,
    Code.CAPABILITY_NOT_FOUND: _offered,
    Code.NOT_FOUND: None,
    Code.VERSION_UNSUPPORTED: None,
    Code.MALFORMED_ENVELOPE: None,
    Code.TOO_LARGE: None,
    Code.UNSUPPORTED_MEDIA_TYPE: None,
    Code.INPUT_VALIDATION_FAILED: _input,
    Code.DATA_MISSING_REQUIRED_INPUT: _input,
    Code.RESULT_VALIDATION_FAILED: _result,
    Code.DUPLICATE_REQUEST: None,
    Code.STATE_CONFLICT: None,
    Code.USER_HAS_OPEN_RUN: None,
    Code.DELEGATION_UNAVAILABLE: _always(
        ("breaker.failures_in_a_row", "Raise it so that more failures are tolerated."),
        ("breaker.open", "Shorten it so that the agent is tried again sooner."),
    ),
    Code.NOT_RECORDED: None,
    Code.DELEGATION_FAILED: None,
    Code.CANCELLED: None,
    Code.OUTCOME_UNKNOWN: None,
    Code.STORE_UNAVAILABLE: _always(("store", "Check that this place can be written to.")),
    Code.TEAM_INVALID: None,
}
"""What governs each code; None: no setting does."""


# A longer value is looked up in the file.
_LONGEST_VALUE = 200


class FileTeamPolicy:
    """The policy of a hub that was made from a team file; see `TeamPolicy`."""

    def __init__(self, hub: Hub, present: PresentTeam, environ: Mapping[str, str] = os.environ) -> None:
        self._hub = hub
        self._environ = environ
        self._present = present

    @property
    def team(self) -> Team:
        return self._present.team

    def guards(self) -> Sequence[GuardLine]:
        """Return the guards in order."""
        return guard_lines(self._hub.settings.guards, self._hub.settings.answer_guards)

    def explain(self, origin: str, call: Call, user: str) -> Explanation:
        """Return what would happen to a call now; rates and breakers are those of this moment."""
        return explanation(self._hub, origin, call, user, approving=_approving(self.team))

    def explain_draft(self, draft: str, origin: str, call: Call, user: str) -> DraftExplanation:
        """Return what would happen with a draft; raise a `RemitError` that lists all errors of the draft."""
        read = read_draft(self._hub, self.team, draft, self._environ)
        then = explanation(self._hub, origin, call, user, approving=_approving(read.team), change=read.change)
        return DraftExplanation(explanation=then, considered=read.considered, ignored=read.ignored)

    def advise(self, why: Fault, request: Request) -> Sequence[Advice]:
        """Return the settings that decided about a refused request, the most likely to change first."""
        keys = governing_keys(RefusedCase(why, request, self.team))
        if not keys:
            return ()
        lines = self._lines()
        return [self._advice(each, lines) for each in keys]

    def rule_of(self, request: Request, question: str) -> DeciderRule | None:
        """Return the rule that asked a question; None: it was no rule of the file."""
        place = matching_rule(self.team.rules, request)
        if place is None:
            return None
        rule = self.team.rules[place]
        if rule.then != "ask" or question_of(rule, request) != question:
            return None
        line = self._lines().get(("rules", place))
        return DeciderRule(number=place + 1, then=rule.then, file=self.team.file.name, line=line)

    def text(self) -> TeamText | None:
        """Return the team file without anything that looks like a secret."""
        try:
            return TeamText(file=self.team.file.name, text=without_secrets(read_text(self.team.file)))
        except RemitError:
            return None

    def _lines(self) -> dict[Place, int]:
        """Return the lines of the keys in the file as it is now; none if it cannot be read."""
        try:
            _, lines = parse_text(read_text(self.team.file), self.team.file)
        except RemitError:
            return {}
        return lines.of

    def _advice(self, key: GoverningKey, lines: Mapping[Place, int]) -> Advice:
        place, file = key.place, self.team.file.name
        nearest = next((place[:end] for end in range(len(place), 0, -1) if place[:end] in lines), None)
        value = value_at(msgspec.to_builtins(self.team, enc_hook=str), place)
        shown = "" if value is None or isinstance(value, dict) else text_of(value)
        return Advice(
            key=dotted(place),
            says=key.says,
            file=file,
            line=None if nearest is None else lines[nearest],
            is_set=nearest == place,
            value=shown if len(shown) <= _LONGEST_VALUE else f"{shown[:_LONGEST_VALUE]}…",
        )


def _approving(team: Team) -> Approving:
    return Approving(team.approvals.allow, team.approvals.otherwise)


# What of a draft counts: these sections, and these keys of agents and capabilities that the hub has.
_SECTIONS = (*RELOADED_SECTIONS, "approvals")
_OF_AGENTS = (*RELOADED_OF_AGENTS, "max_sub_agent_depth", "tools", "sees")
_OF_CAPABILITIES = ("time", "tokens", "cost", "read_only", "sees", "sees_fields")


class TeamDraft(NamedTuple):
    """A draft that was read, and how it differs from the present team."""

    team: Team
    """The present team with everything of the draft that counts."""
    change: TeamChange
    considered: tuple[str, ...]
    ignored: tuple[str, ...]


def read_draft(hub: Hub, team: Team, text: str, environ: Mapping[str, str] = os.environ) -> TeamDraft:
    """Return a draft, or raise a `RemitError` that lists its errors as `remit validate` does.

    No code that it names is imported, and no file is opened.
    """
    try:
        new = load_team(
            team.file,
            overrides=team.overrides,
            environ=environ,
            secrets=False,
            serving=False,
            code=False,
            draft=text,
        )
    except RemitError as error:
        why = error.fault
        message = f"the draft of {team.file.name} is invalid"
        how = "Correct the lines that are named; the present team was not changed."
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, problems=why.problems, suggestion=how)) from error
    now = _considered(team, new)
    change = TeamChange(now.settled_limits(), [*_cards(hub, team, now)], guards_of(now))
    return TeamDraft(now, change, differences(team, now), differences(now, new))


def _considered(old: Team, new: Team) -> Team:
    capabilities: dict[str, CapabilitySection] = dict(old.capabilities)
    for code in old.capabilities.keys() & new.capabilities.keys():
        changes = {key: getattr(new.capabilities[code], key) for key in _OF_CAPABILITIES}
        capabilities[code] = replace(old.capabilities[code], **changes)
    return replace(with_changes(old, new, _SECTIONS, _OF_AGENTS), capabilities=capabilities)


def _cards(hub: Hub, old: Team, now: Team) -> Iterator[AgentCard]:
    """Yield the cards that differ from those of the hub."""
    tools = frozenset(hub.tool_cards)
    for name, card in hub.cards.items():
        capabilities = tuple(_capability(each, old, now) for each in card.capabilities)
        changed = replace(card, capabilities=capabilities)
        agent = now.agents.get(name)
        if agent is not None and agent != old.agents[name]:
            fields = in_code(agent, map(option_of, _OF_AGENTS))
            fields["tools"] &= tools
            changed = replace(changed, **fields)
        if changed != card:
            yield changed


def _capability(offered: Capability, old: Team, now: Team) -> Capability:
    section = now.capabilities.get(offered.code)
    if section is None or section == old.capabilities[offered.code]:
        return offered
    return replace(offered, **in_code(section, map(option_of, _OF_CAPABILITIES)))
