"""Makes a hub from a team, and applies a changed team to a running hub."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from remit.agents.cards import AgentOptions, RemoteOptions, Sandbox, remote_card
from remit.agents.token_count import token_counter
from remit.hub.hub import Hub
from remit.installed import install_command, named
from remit.policy.verdict import Guard
from remit.ports import Approver, ControlCommand, Decision, Question, Store
from remit.ports.upkeep import RetainingStore
from remit.protocol.card import CONCURRENCY
from remit.runtime.approvers import AllowList, InboxApprover, deny, first_of
from remit.runtime.registry import team_invalid
from remit.stores.sqlite import SqliteStore
from remit_cli.config.checks import key_of, known_secret
from remit_cli.config.code import agent_at, code_at, docstring_of, find_code, tool_at
from remit_cli.config.load import load_team
from remit_cli.config.origins import Place, dotted
from remit_cli.config.resources import detector_in, detector_of, model_agent, store_of, summarizer_of
from remit_cli.config.rules import answer_guard_of, guard_of
from remit_cli.config.sections.agents import AgentSection
from remit_cli.config.team import Composition, Team, file_keys, is_hosted, remotes, sections
from remit_cli.config.values import Section, in_code
from remit_cli.processes.isolation import configure_isolation
from remit_server.model_prices import PriceBook

log = logging.getLogger("remit")

# ── a hub ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class PresentTeam:
    """The team that a hub has now: a reload replaces it."""

    def __init__(self, team: Team) -> None:
        self.team = team

    def replace(self, team: Team) -> None:
        """Note the team after a reload."""
        self.team = team


def hub_of(
    team: Team,
    *,
    approver: Approver | None = None,
    store: Store | Path | None = None,
    environ: Mapping[str, str] = os.environ,
    held: Any = None,
    shared: bool = False,
    takes: bool = False,
    reloaded: Callable[[Team], None] | None = None,
) -> Hub:
    """Return a hub, not open yet, with the agents, tools, limits and rules of a team.

    *approver* is the person at the terminal, for a team that asks there; *store* overrides the team's. *held* keeps the
    credentials of requests from other hubs while they are executed, so that they can be passed on. While the hub is
    open, it applies what it can of a changed file when another process asks for it (`remit reload`). *shared* says that
    other hubs have the same store, as all hubs on a bus do. If the team has a bus, the hub calls agents of other hubs
    over it; with *takes*, it also takes their requests. *reloaded* is called with the team after each reload.
    """
    count = token_counter(team.context.tokenizer)
    if store is None:
        store = team.store_path if team.store.url is None else store_of(team, environ, count=count)
    hub = Hub(
        name=team.name,
        store=store,
        durability=team.store.durability,
        limits=team.settled_limits(),
        guards=guards_of(team),
        breaker=team.breaker.settings(),
        approver=_approver(team, approver, lambda: hub.store),
        redaction=detector_of(team),
        vault_key=vault_key_of(team, environ),
        token_counter=count,
        workspace=team.workspace,
        summarizer=summarizer_of(team.context, environ),
        prices=(prices := price_book_of(team)).cost,
        shared=shared or team.store.url is not None or any(each.shares_store(team) for each in sections()),
    )
    if prices.models:
        hub.when_opening(prices.load_beside)
    if isinstance(hub.store, RetainingStore):
        hub.store.retention = team.store.retention()
    if isinstance(hub.store, SqliteStore):
        hub.store.encrypt = team.store.encrypt
    made = Composition(hub=hub, team=team, environ=environ, takes=takes)
    _add_tools(made)
    _add_agents(made, held)
    if (team.workflows or team.orchestrator) and not any(each.key == "orchestrator" for each in sections()):
        raise team_invalid(f"no installed plugin has workflows and the orchestrator: {install_command()}")
    # What can be asked is there before what other hubs and devices are told of it.
    for each in sorted(sections(), key=lambda each: each.kind is not None):
        each.compose(made)
    hub.on_reload(_Reloading(hub, team, environ, reloaded))
    return hub


def price_book_of(team: Team) -> PriceBook:
    """Return the prices of a team, and the models that its agents have."""
    named = {name: agent.model or agent.priced_as for name, agent in team.agents.items()}
    models = {name: model for name, model in named.items() if model is not None}
    if team.orchestrator is not None and team.orchestrator.model is not None:
        models[team.orchestrator.name] = team.orchestrator.model
    return PriceBook({model: each.price() for model, each in team.prices.items()}, team.currency, models)


def _add_tools(made: Composition) -> None:
    hub, team = made.hub, made.team
    for name, tool in team.tools.items():
        given = {key: getattr(tool, key) for key in ("description", "safe_to_repeat", "sees", "clear", "rate")}
        hub.tool(name, **given)(find_code(tool_at, tool.run, team.folder))
    for each in sections():
        each.add_tools(made)


def _add_agents(made: Composition, held: Any) -> None:
    hub, team, environ = made.hub, made.team, made.environ
    kept = (team.folder / ".remit", team.folder / team.identity.key)
    configure_isolation(hub, folder=team.folder, environ=environ, hidden=kept)
    for name, agent in team.agents.items():
        if agent.peer is not None:
            _connect(hub, team, name, agent, agent.peer, environ, held)
        elif agent.card is not None:
            _connect_a2a(hub, team, name, agent, agent.card, environ)
        elif agent.address is not None:
            reach = named(remotes()[agent.address.partition(":")[0]])
            hub.register(remote_card(name, remote_options(team, agent)), reach(agent.address))
        elif not any(each.connect(made, name, agent) for each in sections()) and is_hosted(team, name):
            _add_agent(hub, team, name, agent, environ)


def _add_agent(hub: Hub, team: Team, name: str, agent: AgentSection, environ: Mapping[str, str]) -> None:
    description, code = agent.description, agent.run
    if agent.run is None:
        code = model_agent(agent, environ)
    elif agent.isolation == "task":
        code = find_code(agent_at, agent.run, team.folder)
    elif description is None:  # code that only its own process may import is read as text here
        description = docstring_of(agent.run, team.folder)
    options = _options(team, agent, AgentOptions.__optional_keys__)
    options["description"] = description
    if agent.sandbox:
        options["sandbox"] = Sandbox(reads=agent.reads, writes=agent.writes, network=agent.network)
    hub.add(name, code, **options)


def _connect(
    hub: Hub, team: Team, name: str, agent: AgentSection, peer: str, environ: Mapping[str, str], held: Any
) -> None:
    from remit.runtime.clock import LoopClock
    from remit_cli.config.peers import addressee_of, credential_headers_of
    from remit_server.transports.credentials.incoming import RunCredentials

    wall_ms = LoopClock().wall_ms
    headers = credential_headers_of(team, held=held or RunCredentials(wall_ms), wall_ms=wall_ms)
    url = team.peers[peer].url
    assert url is not None, "a peer without an address is refused by the checks"
    from remit_server import connect  # most teams have no peers

    connect(
        hub,
        name,
        url,
        remote=agent.remote,
        credential=headers.credential(addressee_of(team, peer, environ)),
        **remote_options(team, agent),
    )


def _connect_a2a(hub: Hub, team: Team, name: str, agent: AgentSection, card: str, environ: Mapping[str, str]) -> None:
    from remit_server import connect_a2a  # most teams have no agents that speak A2A

    connect_a2a(
        hub,
        name,
        card,
        token=known_secret(agent.card_token, environ),
        keys=[key.lower() for key in agent.card_keys],
        hosts=agent.card_hosts,
        binding=agent.card_binding,
        streaming=agent.card_streaming,
        notify=agent.card_notify,
        notify_token=known_secret(agent.card_notify_token, environ),
        **remote_options(team, agent),
    )


def remote_options(team: Team, agent: AgentSection) -> Any:
    """Return the options of an agent that runs elsewhere."""
    options = _options(team, agent, RemoteOptions.__optional_keys__)
    options["description"] = agent.description or ""
    options["concurrency"] = agent.concurrency or CONCURRENCY
    return options


def _options(team: Team, agent: AgentSection, names: Iterable[str]) -> Any:
    """Return options as Python programs give them: a key of the team file has the name of its option.

    Only time and capabilities differ: the file has a duration, and codes.
    """
    options = in_code(agent, names)
    if "capabilities" in options:
        options["capabilities"] = [team.capabilities[code].capability(code) for code in agent.capabilities]
    return options


def option_of(key: str) -> str:
    """Return the name that a key of an agent or a capability has in the code."""
    return "time_ms" if key == "time" else key


def guards_of(team: Team) -> list[Guard]:
    """Return the guards of a team, in addition to those of every hub."""
    guards = [guard_of(team.rules)] if any(rule.on == "call" for rule in team.rules) else []
    if any(rule.on == "answer" for rule in team.rules):
        named = {rule.check for rule in team.rules if rule.check is not None}
        checks = {check: find_code(code_at, check, team.folder) for check in named}
        guards.append(answer_guard_of(team.rules, checks, detector_in(team)))
    return guards


def _approver(team: Team, terminal: Approver | None, store: Callable[[], Store]) -> Approver:
    async def inbox(question: Question) -> Decision:
        return await InboxApprover(store())(question)

    match team.approvals.otherwise:
        case "deny":
            last: Approver = deny
        case "terminal":
            last = terminal or inbox
        case "inbox":
            last = inbox
    return first_of([AllowList(team.approvals.allow), last])


def vault_key_of(team: Team, environ: Mapping[str, str] = os.environ) -> bytes | None:
    """Return the key that encrypts a team's redacted values; None: the one derived from its store's key."""
    if team.redaction.key is None:
        return None
    try:
        return key_of(team.redaction.key, environ)
    except ValueError as error:
        raise team_invalid(str(error)) from error


# ── a changed team ────────────────────────────────────────────────────────────────────────────────────────────────────

# What a running hub can apply: these sections, and these keys of agents.
RELOADED_SECTIONS = ("limits", "budgets", "breaker", "rules")
_LIMITS_OF_AGENTS = ("rate", "tool_rates", "time", "tokens", "cost", "draws")
RELOADED_OF_AGENTS = ("may_call", "allow_sub_agent_calls", "recursive", "authority", *_LIMITS_OF_AGENTS)


class Reloaded(Struct, frozen=True, kw_only=True):
    """The result of a reload, with keys as in the file."""

    applied: tuple[str, ...]
    needs_restart: tuple[str, ...]
    team: Team
    """The current team: the old one with the applied changes."""


class _Reloading:
    """Reloads a hub's team file on request."""

    def __init__(
        self, hub: Hub, team: Team, environ: Mapping[str, str], reloaded: Callable[[Team], None] | None
    ) -> None:
        self._hub = hub
        self._team = team
        self._environ = environ
        self._reloaded = reloaded

    async def __call__(self, control: ControlCommand) -> None:
        team = self._team
        new = await asyncio.to_thread(load_team, team.file, overrides=team.overrides, environ=self._environ, code=False)
        done = reload(self._hub, team, new)
        self._team = done.team
        if self._reloaded is not None:
            self._reloaded(done.team)
        applied = f"applied {', '.join(done.applied)}" if done.applied else "found nothing to apply"
        waiting = f"; after a restart: {', '.join(done.needs_restart)}" if done.needs_restart else ""
        text = f"the hub reloaded {team.file.name} for {control.by} and {applied}{waiting}"
        log.info("%s", text)
        self._hub.notify_runs(text)


def reload(hub: Hub, old: Team, new: Team) -> Reloaded:
    """Apply as much of *new* as possible to a hub made of *old*; calls in progress keep what they were granted."""
    now = _taken_over(old, new)
    cards = [
        replace(hub.cards[name], **_options(now, agent, map(option_of, RELOADED_OF_AGENTS)))
        for name, agent in now.agents.items()
        if agent != old.agents[name]
    ]
    hub.reconfigure(limits=now.settled_limits(), breaker=now.breaker.settings(), cards=cards, guards=guards_of(now))
    return Reloaded(applied=differences(old, now), needs_restart=differences(now, new), team=now)


def _taken_over(old: Team, new: Team) -> Team:
    now = with_changes(old, new, RELOADED_SECTIONS, RELOADED_OF_AGENTS)
    return replace(now, approvals=replace(old.approvals, timeout=new.approvals.timeout))


def with_changes(old: Team, new: Team, of_team: Iterable[str], of_agents: Iterable[str]) -> Team:
    """Return *old* with these sections, and these keys of the agents that both have, as in *new*."""
    agents = dict(old.agents)
    for name in old.agents.keys() & new.agents.keys():
        changes = {key: getattr(new.agents[name], key) for key in of_agents}
        # An agent that is added by the restart cannot be called before it.
        wanted = changes["may_call"]
        changes["may_call"] &= old.agents.keys() | old.workflows.keys() | {"*"}
        if wanted and not changes["may_call"] and changes["allow_sub_agent_calls"]:
            changes["allow_sub_agent_calls"] = None  # without a name it would mean all agents
        agents[name] = replace(old.agents[name], **changes)
    return replace(old, agents=agents, **{section: getattr(new, section) for section in of_team})


def differences(one: Team, other: Team) -> tuple[str, ...]:
    """Return the keys in which two teams differ, as in the file."""
    return tuple(
        dotted(place)
        for section in file_keys()
        for place in _different((section,), getattr(one, section), getattr(other, section))
    )


def _different(place: Place, one: object, other: object) -> Iterator[Place]:
    """Yield the keys that differ, as deep as both sides have tables."""
    if one == other:
        return
    if isinstance(one, Section) and isinstance(other, Section):
        for field in one.__struct_fields__:
            yield from _different((*place, field), getattr(one, field), getattr(other, field))
    elif isinstance(one, dict) and isinstance(other, dict) and len(place) == 1:
        left, right = cast("dict[str, object]", one), cast("dict[str, object]", other)
        for name in (*left, *(name for name in right if name not in left)):
            yield from _different((*place, name), left.get(name), right.get(name))
    else:
        yield place
