"""Makes a hub from a team, and applies a changed team to a running hub."""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from msgspec.structs import replace

from remit.agents.token_count import token_counter
from remit.config.checks import key_of, secret_of
from remit.config.code import agent_at, docstring_of, found, tool_at
from remit.config.line_numbers import Place, dotted
from remit.config.load import load_team
from remit.config.mcp_servers import settings_of
from remit.config.models import conflicts_model, detector_of, model_agent, orchestrator_model, summarizer_of
from remit.config.sections.agents import AgentSection
from remit.config.stores import store_of
from remit.config.team import Team, TeamFile
from remit.config.telemetry import headers_of
from remit.config.values import Section, duration_ms, in_code, optional_ms
from remit.hub.cards import AgentOptions, RemoteOptions, remote_card
from remit.hub.hub import Hub
from remit.policy.rules import guard_of
from remit.policy.verdict import Guard
from remit.protocol.card import CONCURRENCY, AgentCard
from remit.runtime.approvers import AllowList, InboxApprover, deny, first_of
from remit.runtime.ports import Approver, ControlCommand, Decision, Question, Store
from remit.runtime.registry import team_invalid
from remit.stores.retention import RetainingStore
from remit.stores.sqlite import SqliteStore

if TYPE_CHECKING:  # most hubs call no agents on other devices
    from remit.relay.remote_agents import DeviceAccess


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
        shared=shared or team.bus is not None or team.store.url is not None,
    )
    if isinstance(hub.store, RetainingStore):
        hub.store.retention = team.store.retention()
        hub.store.vault_key = vault_key_of(team, environ)
    if isinstance(hub.store, SqliteStore):
        hub.store.encrypt = team.store.encrypt
    _add_tools(hub, team, environ)
    _add_agents(hub, team, environ, held)
    _add_orchestration(hub, team, environ)
    if team.bus is not None:
        from remit.config.bus import join  # most teams have none

        calls = [_called(team, name, agent) for name, agent in team.agents.items() if not _is_here(team, name, agent)]
        join(hub, team, calls, environ, takes=takes)
    if (section := team.telemetry) is not None:
        hub.telemetry(
            section.endpoint,
            headers=headers_of(section, environ),
            service=section.service,
            content=section.content,
            sample=section.sample,
            metrics=section.metrics,
            every_s=duration_ms(section.interval) / 1_000,
            environ=environ,
        )
    hub.on_reload(_Reloading(hub, team, environ, reloaded))
    return hub


def _add_tools(hub: Hub, team: Team, environ: Mapping[str, str]) -> None:
    for name, tool in team.tools.items():
        add = hub.tool(name, description=tool.description, safe_to_repeat=tool.safe_to_repeat, sees=tool.sees)
        add(found(tool_at, tool.run, team.folder))
    for name in team.mcp:
        hub.add_mcp(settings_of(team, name, environ))


def _add_agents(hub: Hub, team: Team, environ: Mapping[str, str], held: Any) -> None:
    kept = (team.folder / ".remit", team.folder / team.identity.key)
    hub.configure_isolation(folder=team.folder, environ=environ, hidden=kept)
    access: DeviceAccess | None = None
    for name, agent in team.agents.items():
        if agent.peer is not None:
            _connect(hub, team, name, agent, agent.peer, environ, held)
        elif agent.card is not None:
            _connect_a2a(hub, team, name, agent, agent.card, environ)
        elif agent.device is not None:
            access = access or _device_access(hub, team, environ)
            _connect_device(hub, team, name, agent, agent.device, access)
        elif _is_here(team, name, agent):
            _add_agent(hub, team, name, agent, environ)


def _is_here(team: Team, name: str, agent: AgentSection) -> bool:
    """Return whether the hub has an agent's code, or reaches it otherwise than over the bus."""
    return team.is_hosted(name) or (agent.run is None and agent.model is None)


def _called(team: Team, name: str, agent: AgentSection) -> AgentCard:
    """Return the card of an agent that other hubs of the team host."""
    return remote_card(name, _elsewhere(team, agent))


def _add_orchestration(hub: Hub, team: Team, environ: Mapping[str, str]) -> None:
    model = orchestrator_model(team, environ)
    phrases = {code: each.phrase for code, each in team.capabilities.items() if each.phrase}
    for name, workflow in team.workflows.items():
        hub.workflow(
            workflow.workflow(name),
            model=model if workflow.narrate == "model" else None,
            phrases=phrases,
            glossary=team.glossary,
            time_ms=optional_ms(workflow.time),
            tokens=workflow.tokens,
        )
    if (section := team.orchestrator) is not None:
        hub.orchestrator(
            section.name,
            classifier=section.classifier,
            model=model if "model" in (section.classifier, section.narrate, section.plans) else None,
            narrate=section.narrate,
            plans=section.plans,
            conflicts=conflicts_model(team, environ),
            cache_ms=duration_ms(section.cache),
            confirm=section.confirm,
            thresholds=section.thresholds(),
            phrases=phrases,
            glossary=team.glossary,
            time_ms=optional_ms(section.time),
            tokens=section.tokens,
        )


def _add_agent(hub: Hub, team: Team, name: str, agent: AgentSection, environ: Mapping[str, str]) -> None:
    description, code = agent.description, agent.run
    if agent.run is None:
        code = model_agent(agent, environ)
    elif agent.isolation == "task":
        code = found(agent_at, agent.run, team.folder)
    elif description is None:  # code that only its own process may import is read as text here
        description = docstring_of(agent.run, team.folder)
    options = _options(team, agent, AgentOptions.__optional_keys__)
    options["description"] = description
    if agent.sandbox:
        from remit.agents.sandbox import Sandbox  # few agents are confined

        options["sandbox"] = Sandbox(reads=agent.reads, writes=agent.writes, network=agent.network)
    hub.add(name, code, **options)


def _connect(
    hub: Hub, team: Team, name: str, agent: AgentSection, peer: str, environ: Mapping[str, str], held: Any
) -> None:
    from remit.config.peers import addressee_of, credential_headers_of
    from remit.runtime.clock import LoopClock
    from remit.transports.credentials.incoming import RunCredentials

    wall_ms = LoopClock().wall_ms
    headers = credential_headers_of(team, held=held or RunCredentials(wall_ms), wall_ms=wall_ms)
    url = team.peers[peer].url
    assert url is not None, "a peer without an address is refused by the checks"
    hub.connect(
        name,
        url,
        remote=agent.remote,
        credential=headers.credential(addressee_of(team, peer, environ)),
        **_elsewhere(team, agent),
    )


def _connect_a2a(hub: Hub, team: Team, name: str, agent: AgentSection, card: str, environ: Mapping[str, str]) -> None:
    try:
        token = None if agent.card_token is None else secret_of(agent.card_token, environ)
        told = None if agent.card_notify_token is None else secret_of(agent.card_notify_token, environ)
    except ValueError as error:
        raise team_invalid(str(error)) from error
    hub.connect_a2a(
        name,
        card,
        token=token,
        keys=[key.lower() for key in agent.card_keys],
        hosts=agent.card_hosts,
        binding=agent.card_binding,
        streaming=agent.card_streaming,
        notify=agent.card_notify,
        notify_token=told,
        **_elsewhere(team, agent),
    )


def _device_access(hub: Hub, team: Team, environ: Mapping[str, str]) -> "DeviceAccess":
    """Return the connection of the hub to the team's device: one that runs in this process, or one that it starts."""
    from remit.relay.remote_agents import DeviceAccess  # most hubs call no agents on other devices

    def at_work() -> AbstractAsyncContextManager[object]:
        from remit.config.device_service import relaying

        return relaying(team, hub=hub, host=False, share=False, environ=environ)

    return DeviceAccess(at_work)


def _connect_device(hub: Hub, team: Team, name: str, agent: AgentSection, device: str, access: "DeviceAccess") -> None:
    from remit.relay.call_shared import RemoteCaller
    from remit.relay.remote_agents import DeviceAgent

    said: dict[str, Any] = {} if agent.rate is None else {"rate": agent.rate}
    if agent.concurrency is not None:
        said["max_concurrent_shared_calls"] = agent.concurrency
    caller = RemoteCaller(
        agent=name, device=device, remote=agent.remote or "", max_hop_count=agent.max_hop_count, **said
    )
    about = _elsewhere(team, agent)
    about["capabilities"] = tuple(about["capabilities"])
    about["concurrency"] = caller.max_concurrent_shared_calls
    # If it is called again after a restart, the other side returns what it has already done.
    hub.register(AgentCard(name=name, resumable=True, **about), DeviceAgent(caller, access), access.close)


def _elsewhere(team: Team, agent: AgentSection) -> Any:
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
    return [guard_of(team.rules)] if team.rules else []


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
_SECTIONS = ("limits", "budgets", "breaker", "rules")
_OF_AGENTS = ("may_call", "allow_sub_agent_calls", "recursive", "authority", "rate", "time", "tokens", "draws")


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
        replace(hub.cards[name], **_options(now, agent, map(option_of, _OF_AGENTS)))
        for name, agent in now.agents.items()
        if agent != old.agents[name]
    ]
    hub.reconfigure(limits=now.settled_limits(), breaker=now.breaker.settings(), cards=cards, guards=guards_of(now))
    return Reloaded(applied=differences(old, now), needs_restart=differences(now, new), team=now)


def _taken_over(old: Team, new: Team) -> Team:
    agents = dict(old.agents)
    for name in old.agents.keys() & new.agents.keys():
        changes = {key: getattr(new.agents[name], key) for key in _OF_AGENTS}
        # An agent that is added by the restart cannot be called before it.
        wanted = changes["may_call"]
        changes["may_call"] &= old.agents.keys() | old.workflows.keys() | {"*"}
        if wanted and not changes["may_call"] and changes["allow_sub_agent_calls"]:
            changes["allow_sub_agent_calls"] = None  # without a name it would mean all agents
        agents[name] = replace(old.agents[name], **changes)
    approvals = replace(old.approvals, timeout=new.approvals.timeout)
    sections = {section: getattr(new, section) for section in _SECTIONS}
    return replace(old, agents=agents, approvals=approvals, **sections)


def differences(one: Team, other: Team) -> tuple[str, ...]:
    """Return the keys in which two teams differ, as in the file."""
    return tuple(
        dotted(place)
        for section in TeamFile.__struct_fields__
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
