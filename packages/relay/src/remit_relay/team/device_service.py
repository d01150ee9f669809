"""Runs a team's device: connects its gateway, its sessions and its shared agents."""

import asyncio
import logging
import os
import ssl as tls
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TypeVar

from msgspec import Struct

from remit.hub.hub import Hub
from remit.policy.verdict import Detector
from remit.ports import Recorder
from remit.protocol.card import AgentCard
from remit.protocol.errors import Code, RemitError, fault, in_sentences
from remit.protocol.records import SharedStep
from remit.runtime.clock import LoopClock, sleep_to_tick
from remit.runtime.registry import team_invalid
from remit_cli.config.checks import secret_of
from remit_cli.config.resources import detector_of, store_of
from remit_cli.config.team import Team
from remit_cli.config.values import duration_ms
from remit_redaction.pipeline import detector_pipeline
from remit_relay.bridge.ports import AskUser, DraftFailure, LocalAgent, PromptConstraints, PromptRequest
from remit_relay.call_shared import RemoteCalls, device_access_of
from remit_relay.client import connection
from remit_relay.client.connection import DevicePresence, GatewayConnection
from remit_relay.client.delivery import MessageDelivery, Trouble
from remit_relay.device.peers import PeerDevice, Peers
from remit_relay.device.state import LOCK_FILE, DeviceFile, FileChanges
from remit_relay.e2e.account import Device
from remit_relay.e2e.channel import MessageCipher
from remit_relay.messages.audit import Recording
from remit_relay.messages.types import CatalogSender
from remit_relay.notifier import Deliver, Notifier, to_desktop, to_program, to_webhook
from remit_relay.router import route_messages
from remit_relay.serve_shared import Shared, Sharing, SharingEvent, offered
from remit_relay.session import review
from remit_relay.session.profile import FileRules, Profile, ProfileLimits
from remit_relay.session.repository import RemoteCommand
from remit_relay.session.run import CredentialFilter, Overlay
from remit_relay.session_service import SessionService
from remit_relay.team.device import device_path, open_device, program_of, with_gateway
from remit_relay.team.device_process import device_lock
from remit_relay.team.section import (
    PROFILES,
    RELAY,
    SHARED,
    AttachmentsSection,
    RelaySection,
    SharedSection,
    gateway_name,
    relay_of,
)
from remit_relay.wire import MAX_ALLOWED

# ── known devices ─────────────────────────────────────────────────────────────────────────────────────────────────────


class PeerSnapshot:
    """The derived values, as of the last look."""

    def __init__(
        self,
        team: Team,
        peers: Peers,
        sections: Mapping[str, SharedSection],
        cards: Mapping[str, AgentCard],
        teller: CatalogSender | None,
    ) -> None:
        self._team = team
        self._peers = peers
        self._sections = sections
        self._cards = cards
        self._teller = teller
        self.profiles: dict[str, Profile] = {}
        self.shared: dict[str, Shared] = {}
        self.senders: tuple[str, ...] = ()
        self.revoked: dict[str, str] = {}
        """The devices with which nothing can be exchanged any more, and why."""

    def look(self) -> None:
        """Read changes of the known devices, and notify devices whose offers have changed."""
        peers = self._peers.list()
        self.profiles.update({name: profile_of(self._team, name, peers) for name in PROFILES.of(self._team)})
        self.shared.update(
            {
                # Devices that a command named take the place of those of the team file, and of what was granted.
                name: shared_of(name, section, peers, self._cards, grants=section is SHARED.of(self._team).get(name))
                for name, section in self._sections.items()
            }
        )
        self.senders = tuple(sorted(each.device for each in peers if each.may_talk))
        self.revoked = {each.device: each.revocation for each in peers if each.revocation}
        if self._teller is not None:
            self._teller.tell(peers, partial(offered, self.shared))


def profile_of(team: Team, name: str, peers: Iterable[PeerDevice]) -> Profile:
    """Return a profile of the team, with those of its devices that are known.

    A device may be named by the team file, which needs `allow_shared_agent_calls = true`, or granted by this device's
    owner (`PeerDevice.may_be_asked_by`), which is enough unless the team file says `false`.
    """
    section, known = PROFILES.of(team)[name], list(peers)
    devices = _ids(section.devices, known) if section.allow_shared_agent_calls else frozenset[str]()
    if section.allow_shared_agent_calls is not False:
        devices |= {each.device for each in known if each.may_be_asked_by(name)}
    return Profile(
        id=name,
        allow_shared_agent_calls=bool(section.allow_shared_agent_calls or devices),
        allowed_shared_device_ids=devices,
        max_concurrent_shared_calls=section.max_concurrent_shared_calls,
        max_hop_count=section.max_hop_count,
        rate=section.rate,
        mode=section.mode,
        limits=ProfileLimits(
            max_turns=section.limits.max_turns,
            max_duration_ms=duration_ms(section.limits.max_duration),
            max_failures=section.limits.max_failures,
            max_tokens_budget=section.limits.max_tokens,
        ),
        rules=review.ReviewRules(
            off=section.rules.disabled,
            min_confidence=section.rules.min_confidence,
            max_chars=section.rules.max_chars,
            min_shared_words=section.rules.min_shared_words,
        ),
        constraints=PromptConstraints(
            max_output_chars=section.constraints.max_output_chars,
            allow_tool_use=section.constraints.allow_tool_use,
            max_history_turns=section.constraints.max_history_turns,
            max_history_chars=section.constraints.max_history_chars,
            max_tool_rounds=section.constraints.max_tool_rounds,
            local_turn_timeout_ms=duration_ms(section.constraints.turn_timeout),
        ),
        files=_file_rules(section.attachments),
        keep_files_ms=duration_ms(section.attachments.keep),
    )


def shared_of(
    name: str,
    section: SharedSection,
    peers: Iterable[PeerDevice],
    cards: Mapping[str, AgentCard] = {},
    *,
    grants: bool = True,
) -> Shared:
    """Return the shared agent of a section, with those devices that the section names, or that were granted it."""
    agent = section.agent or name
    known = [each for each in peers if each.allowed and not each.revoked]
    granted = {each.device for each in known if grants and each.may_ask(name)}
    profile = Profile(
        id=name,
        # A shared agent is enabled; `devices` and grants say for whom, if those devices may connect at all.
        allow_shared_agent_calls=True,
        allowed_shared_device_ids=_ids(section.devices, known) | granted,
        max_concurrent_shared_calls=section.max_concurrent_shared_calls,
        max_hop_count=section.max_hop_count,
        rate=section.rate,
        files=_file_rules(section.attachments),
    )
    described = cards[agent].description if section.description is None and agent in cards else section.description
    return Shared(agent=agent, profile=profile, description=described or "")


def _file_rules(section: AttachmentsSection) -> FileRules:
    return FileRules(types=section.types, max_size=section.max_size, max_count=section.max_count)


def _ids(named: Iterable[str], peers: Iterable[PeerDevice]) -> frozenset[str]:
    """Return the ids of devices that are given by full id, by a unique name, or by a group."""
    names = set(named)
    return frozenset(each.device for each in peers if not each.revoked and names & each.names)


# ── the service ───────────────────────────────────────────────────────────────────────────────────────────────────────


# How often changes of known devices by other processes are read.
LOOK_S = 1.0

_log = logging.getLogger("remit.relay")
_now_ms = LoopClock().wall_ms

T = TypeVar("T")


class Relaying(Struct, frozen=True, kw_only=True):
    """A running device."""

    device: Device
    sealer: MessageCipher
    link: GatewayConnection
    """The connection; see its `state` and `why`."""
    post: MessageDelivery
    host: SessionService | None
    shared: Mapping[str, Shared]
    """The agents that it shares, with the devices that may call each; kept up to date."""
    ready: asyncio.Event
    """Set once others can reach it: its gateway has its keys and the allowed senders."""
    ended: "asyncio.Future[RemitError]"
    """Done, with the reason, once the device has stopped for good."""
    refresh: Callable[[], Awaitable[None]]
    """Reads changes of the known devices now; changes by other processes are read within a second."""

    def presence_of(self, device: str) -> DevicePresence:
        """Return whether a device is connected to its gateway, and when it was last heard from."""
        return self.link.presence.of(device)


@asynccontextmanager
async def relaying(
    team: Team,
    *,
    hub: Hub | None,
    host: bool,
    share: bool,
    shared: Mapping[str, SharedSection] | None = None,
    changed: Callable[[Overlay], None] = lambda _: None,
    noted: Callable[[SharedStep], None] = lambda _: None,
    reported: Callable[[SharingEvent], None] = lambda _: None,
    unable: Callable[[RemoteCommand, str], None] = lambda _command, _why: None,
    trouble: Trouble | None = None,
    linked: Callable[[connection.State, str], None] = lambda _state, _why: None,
    environ: Mapping[str, str] = os.environ,
) -> AsyncGenerator[Relaying]:
    """Run the team's device: as a *host* of sessions, or to *share* agents of the team (or *shared*), or both.

    The gateway need not answer yet: the device waits for it, and *linked* hears the state of the connection. *hub* is
    open; without one no agent of the team can be shared or used by a profile. Its agents on other devices are called
    through this one. *changed* and *noted* hear of sessions, *unable* of commands of other processes that failed,
    *reported* of calls to shared agents, *trouble* of problems with other devices. Every step is recorded in the team's
    store. Only one process at a time can run a device; a second one raises a `RemitError`.
    """
    if share and hub is None:
        raise ValueError("sharing agents needs a hub")
    team = with_gateway(team, environ=environ)
    section = relay_of(team)
    sections = SHARED.of(team) if shared is None else shared
    async with AsyncExitStack() as stack:
        connected = await _connect(stack, team, section, hub, linked, trouble, environ)
        sealer, post, wake = connected.sealer, connected.post, connected.recording.wake
        # What a team shares in another process is neither offered nor withdrawn by one that shares nothing.
        teller = CatalogSender(sealer) if share or not sections else None
        known = PeerSnapshot(team, sealer.peers, sections, {} if hub is None else hub.cards, teller)
        await post.do(known.look)
        sharer = None
        if share and hub is not None:
            sharer = Sharing(hub, sealer, post, known.shared, now_ms=_now_ms, reported=_after(wake, reported))
            stack.push_async_callback(sharer.close)
        runs = None
        if host:
            changed = await _notifying(stack, team, changed, environ)
            agent_of = partial(_local_agent, team, hub, connected.device, environ=environ)
            runs = SessionService(
                sealer,
                post,
                profiles=known.profiles,
                agent_of=agent_of,
                detect=_detector(team),
                now_ms=_now_ms,
                requester=section.user,
                changed=changed,
                recorded=_after(wake, noted),
                unable=unable,
            )
        yield await _start(stack, connected, known, hub, sharer, runs, shares_nothing=not sections)


async def _notifying(
    stack: AsyncExitStack, team: Team, changed: Callable[[Overlay], None], environ: Mapping[str, str]
) -> Callable[[Overlay], None]:
    """Return a listener that also tells a person, as the team file says."""
    if not relay_of(team).notify:
        return changed
    notifier = notifier_of(team, environ)
    if notifier is None:
        return changed
    opened = await stack.enter_async_context(notifier)

    def hear(run: Overlay) -> None:
        opened.changed(run)
        changed(run)

    return hear


class _Connected(Struct, frozen=True, kw_only=True):
    """A device that is open, recorded, and connected to its gateway."""

    device: Device
    sealer: MessageCipher
    recording: Recording
    gateway: GatewayConnection
    post: MessageDelivery


async def _connect(
    stack: AsyncExitStack,
    team: Team,
    section: RelaySection,
    hub: Hub | None,
    linked: Callable[[connection.State, str], None],
    trouble: Trouble | None,
    environ: Mapping[str, str],
) -> _Connected:
    device = open_device(team, environ=environ)
    stack.callback(device.state.close)
    stack.enter_context(device_lock(device_path(team).with_name(LOCK_FILE)))
    record = await stack.enter_async_context(_record(team)) if hub is None else hub.store
    recording = await stack.enter_async_context(Recording(device.state, record, device=device.id))
    sealer = MessageCipher(device)
    gateway = GatewayConnection(
        section.gateway, gateway=gateway_name(team), key=device, ssl=authority_of(team, section), changed=linked
    )
    post = await stack.enter_async_context(MessageDelivery(sealer, gateway, trouble=trouble))
    return _Connected(device=device, sealer=sealer, recording=recording, gateway=gateway, post=post)


async def _start(
    stack: AsyncExitStack,
    device: _Connected,
    known: PeerSnapshot,
    hub: Hub | None,
    sharer: Sharing | None,
    runs: SessionService | None,
    *,
    shares_nothing: bool,
) -> Relaying:
    """Connect the device to the hub's remote agents, and start the tasks that read and watch until the stack closes."""
    sealer, post = device.sealer, device.post
    calls = RemoteCalls(sealer, post, now_ms=_now_ms, control_of=sharer and sharer.control)
    for access in device_access_of(hub) if hub is not None else ():
        stack.enter_context(access.provide(calls))
    if runs is not None:
        await stack.enter_async_context(runs)

    async def end_revoked() -> None:
        calls.end_revoked(known.revoked)
        for each in (runs, sharer):
            if each is not None:
                await each.end_revoked(known.revoked)

    await end_revoked()
    watch = _ChangeWatcher(device.device.state, known, post, device.gateway, end_revoked)
    watch.ended.add_done_callback(lambda ended: calls.end(ended.result()) if not ended.cancelled() else None)
    reading = partial(
        route_messages,
        post,
        runs,
        sharer,
        sealer=sealer,
        now_ms=_now_ms,
        shares_nothing=shares_nothing,
        calls=calls,
    )
    works = (watch.look, watch.tell, reading)
    stack.push_async_callback(_stopped, [asyncio.create_task(watch.keep(work)) for work in works])
    return Relaying(
        device=device.device,
        sealer=sealer,
        link=device.gateway,
        post=post,
        host=runs,
        shared=known.shared,
        ready=watch.ready,
        ended=watch.ended,
        refresh=watch.refresh,
    )


def _after(wake: Callable[[], None], listener: Callable[[T], None]) -> Callable[[T], None]:
    """Return a listener that first records the device's steps."""

    def hear(step: T) -> None:
        wake()
        listener(step)

    return hear


class _ChangeWatcher:
    """Keeps a device up to date with changes by other processes, and notices when it stops."""

    def __init__(
        self,
        state: DeviceFile,
        known: PeerSnapshot,
        post: MessageDelivery,
        gateway: GatewayConnection,
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._changes = FileChanges(state)
        self._known = known
        self._post = post
        self._gateway = gateway
        self._changed = changed
        self._news = asyncio.Event()
        """Set when `tell` may have something to do."""
        gateway.listen(lambda _: self._news.set())
        gateway.counted.append(self._news.set)
        self.ready = asyncio.Event()
        self.ended: asyncio.Future[RemitError] = asyncio.get_running_loop().create_future()

    async def look(self) -> None:
        """Read changes of the known devices periodically."""
        while True:
            await sleep_to_tick(LOOK_S)
            if self._changes.look():
                await self._post.persist(self._known.look)
                self._news.set()
                await self._changed()

    async def refresh(self) -> None:
        """Read changes of the known devices now."""
        await self._post.do(self._known.look)
        self._news.set()

    async def tell(self) -> None:
        """Send the allowed senders to the gateway, which refuses others; raise the reason if the link has ended."""
        allowed: tuple[str, ...] | None = None
        while True:
            self._news.clear()
            if self._known.senders != allowed or self._gateway.state == "ended":
                allowed = self._known.senders
                self._gateway.watch(allowed)
                await self._gateway.allow(allowed if len(allowed) <= MAX_ALLOWED else None)
            if self._gateway.one_time_left:
                self.ready.set()
            await self._news.wait()

    async def keep(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a task of the device; if it ends, the device stops."""
        try:
            await work()
        except RemitError as error:
            self._end(error)
        except Exception as error:  # noqa: BLE001 - where a task ends, and it is logged
            _log.exception("the device has stopped")
            why = f"the device has stopped ({type(error).__name__}); its log says why"
            self._end(RemitError(fault(Code.DELEGATION_FAILED, why)))

    def _end(self, error: RemitError) -> None:
        if not self.ended.done():
            self.ended.set_result(error)


async def _stopped(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


# ── the local agent of a profile ──────────────────────────────────────────────────────────────────────────────────────


def _local_agent(
    team: Team, hub: Hub | None, device: Device, profile: str, ask_user: AskUser, *, environ: Mapping[str, str]
) -> LocalAgent:
    """Return the local agent of a profile; if it is unavailable, one that fails each session with the reason."""
    section = PROFILES.of(team)[profile]
    try:
        if section.agent is not None:
            return _of_hub(hub, section.agent, relay_of(team).user or device.card.name)
        program = program_of(team, profile, environ)
        if section.run is not None:
            from remit_relay.bridge.ndjson import NdjsonAgent

            return NdjsonAgent(profile, program)
        from remit_relay.bridge.acp import AcpAgent

        return AcpAgent(profile, program, ask_user=ask_user, reads_files=section.files == "read")
    except RemitError as error:
        return _Unavailable(in_sentences(error.fault.message, error.fault.suggestion))


def _of_hub(hub: Hub | None, agent: str, user: str) -> LocalAgent:
    if hub is None:
        return _Unavailable(f"the agent {agent} of this team is not running here")
    from remit_relay.bridge.hub import HubAgent

    return HubAgent(hub, agent, user=user)


class _Unavailable:
    """Stands for an agent that is unavailable, so that its sessions fail with the reason."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def prompt(self, request: PromptRequest) -> DraftFailure:  # noqa: ARG002 - of the port
        return DraftFailure(reason=self._why, hard=True)

    async def close(self) -> None: ...


# ── requirements ──────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def _record(team: Team) -> AsyncGenerator[Recorder]:
    """Open the team's store; other processes may have it open as well."""
    store = store_of(team)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def _detector(team: Team) -> Detector:
    """Return the detector of personal data for drafts; they are checked even if redaction is off for agents."""
    detector = detector_of(team)
    return detector_pipeline() if isinstance(detector, bool) else detector


def authority_of(team: Team, section: RelaySection) -> tls.SSLContext | None:
    """Return the TLS context with the configured certificate authority; None: the ones that this machine trusts."""
    if section.certificate_authority is None:
        return None
    path = team.folder / section.certificate_authority
    try:
        return tls.create_default_context(cafile=path)
    except OSError as error:  # an invalid certificate raises an SSLError, which is an OSError
        why = f"{path}, which `[relay]` names as `certificate_authority`, cannot be used: {error.strerror or error}"
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion="Name the PEM file of a certificate.")) from error


# ── notifications ─────────────────────────────────────────────────────────────────────────────────────────────────────


# Beside the store.
NOTIFIED_FILE = "notified"


def notifier_of(team: Team, environ: Mapping[str, str] = os.environ) -> Notifier | None:
    """Return the notifications of `[relay.notify]`; None: there are none.

    Raises a `RemitError` if the variable of a secret is not set.
    """
    relay = RELAY.of(team)
    section = relay and relay.notify
    if not section:
        return None
    deliverers: list[Deliver] = [to_desktop()] if section.desktop else []
    if section.command is not None:
        deliverers.append(to_program(section.command, team.folder))
    if section.webhook is not None:
        try:
            secret = secret_of(section.secret, environ) if section.secret else ""
        except ValueError as error:
            raise team_invalid(str(error)) from error
        deliverers.append(to_webhook(section.webhook, secret))
    if not deliverers:
        return None
    notified_file = team.store_path.parent / NOTIFIED_FILE
    return Notifier(deliverers, notified_file, CredentialFilter(detector_pipeline()).run, texts=section.texts)
