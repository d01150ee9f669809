"""A team's device at work: its gateway, its runs and what it shares, wired together."""

import asyncio
import logging
import os
import ssl as tls
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct

from remit.config.detectors import detector_of
from remit.config.device import device_path, open_device
from remit.config.device_peers import PeerSnapshot
from remit.config.local_agents import local_agent
from remit.config.sections.relay import RelaySection, SharedSection
from remit.config.shared_agents import gateway_name
from remit.config.team import Team
from remit.detectors.pipeline import pipeline
from remit.policy.verdict import Detector
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import SharedStep
from remit.relay.bridge.permissions import AskUser, deny
from remit.relay.call_shared import RemoteCalls
from remit.relay.client import connection
from remit.relay.client.connection import GatewayConnection
from remit.relay.client.delivery import MessageDelivery, Trouble
from remit.relay.device.key_file import LOCK_FILE
from remit.relay.e2e.account import Device
from remit.relay.e2e.channel import Sealer
from remit.relay.messages.audit import Recording
from remit.relay.messages.catalog import CatalogSender
from remit.relay.remote_agents import lenders_of
from remit.relay.router import route_messages
from remit.relay.serve_shared import Sharing, SharingEvent
from remit.relay.session.remote_commands import RemoteCommand
from remit.relay.session.run import Overlay
from remit.relay.session_service import SessionService
from remit.relay.wire import MAX_ALLOWED
from remit.runtime.clock import LoopClock
from remit.runtime.engine import Engine
from remit.runtime.ports import Recorder
from remit.stores.sqlite import SqliteStore

# How soon a device that was allowed, or revoked, by another process is known here.
LOOK_S = 1.0
# So often it is looked whether the gateway has the device's keys, until it has.
SOON_S = 0.02

_log = logging.getLogger("remit.relay")


class Relaying(Struct, frozen=True, kw_only=True):
    """A device at work, while the block lasts."""

    device: Device
    sealer: Sealer
    link: GatewayConnection
    """Its connection: `state` and `why` say how that stands."""
    post: MessageDelivery
    host: SessionService | None
    ready: asyncio.Event
    """Set once others can reach it: its gateway has its keys, and knows who may send."""
    ended: "asyncio.Future[RemitError]"
    """Done, with the reason, once the device is at work no more and will not be by itself."""
    refresh: Callable[[], Awaitable[None]]
    """Take over at once what was changed of the known devices; what other processes change is seen within a second."""


@asynccontextmanager
async def relaying(
    team: Team,
    *,
    hub: Engine | None,
    host: bool,
    share: bool,
    shared: Mapping[str, SharedSection] | None = None,
    ask_user: AskUser = deny,
    changed: Callable[[Overlay], None] = lambda _: None,
    noted: Callable[[SharedStep], None] = lambda _: None,
    told: Callable[[SharingEvent], None] = lambda _: None,
    unable: Callable[[RemoteCommand, str], None] = lambda _wish, _why: None,
    trouble: Trouble | None = None,
    linked: Callable[[connection.State, str], None] = lambda _state, _why: None,
    environ: Mapping[str, str] = os.environ,
) -> AsyncGenerator[Relaying]:
    """Have the team's device at work: as a *host* of runs, or to *share* what the team (or *shared*) says, or both.

    It needs no gateway that answers: that is waited for, and *linked* hears how the connection stands. *hub* is
    open; without one no agent of the team can be shared or used by a profile. Its agents that live on other devices
    are asked by way of this one. *changed* and *noted* hear of runs, *unable* of what other processes want of them
    in vain, *told* of what others ask, *trouble* of devices with which something is wrong, and *ask_user* is asked
    what an ACP agent asks leave for. All steps are on record in the team's store. Only one process at a time can
    have a device at work; a `RemitError` says so.
    """
    if share and hub is None:
        raise ValueError("what is shared are agents of a hub, so there has to be one")
    section = _relay_of(team)
    async with AsyncExitStack() as stack:
        device = open_device(team, environ=environ)
        stack.callback(device.state.close)
        stack.enter_context(_alone(device_path(team).with_name(LOCK_FILE)))
        record = await stack.enter_async_context(_record(team)) if hub is None else hub.store
        recording = await stack.enter_async_context(Recording(device.state, record, device=device.id))

        def note(step: SharedStep) -> None:
            recording.wake()
            noted(step)

        def tell(what: SharingEvent) -> None:
            recording.wake()
            told(what)

        sealer = Sealer(device)
        gateway = GatewayConnection(
            section.gateway, gateway=gateway_name(team), key=device, ssl=authority_of(team, section), changed=linked
        )
        post = await stack.enter_async_context(MessageDelivery(sealer, gateway, trouble=trouble))
        sections = team.shared if shared is None else shared
        # What a team shares in another process is neither offered nor taken back by one that shares nothing.
        teller = CatalogSender(sealer) if share or not sections else None
        known = PeerSnapshot(team, sealer.peers, sections, {} if hub is None else hub.cards, teller)
        await post.do(known.look)
        now_ms = LoopClock().wall_ms
        sharer = None
        if share and hub is not None:
            sharer = Sharing(hub, sealer, post, known.shared, now_ms=now_ms, told=tell)
            stack.push_async_callback(sharer.close)
        errands = RemoteCalls(sealer, post, now_ms=now_ms, control_of=sharer and sharer.control)
        for outpost in lenders_of(hub) if hub is not None else ():
            stack.enter_context(outpost.lent(errands))
        runs = None
        if host:
            user = section.user or device.card.name
            runs = SessionService(
                sealer,
                post,
                profiles=known.profiles,
                agent_of=partial(local_agent, team, hub, user=user, ask_user=ask_user, environ=environ),
                detect=_detector(team),
                now_ms=now_ms,
                requester=section.user,
                changed=changed,
                recorded=note,
                unable=unable,
            )
            await stack.enter_async_context(runs)
        watch = _Watch(known, post, gateway)
        watch.ended.add_done_callback(lambda ended: errands.end(ended.result()) if not ended.cancelled() else None)
        reading = partial(
            route_messages,
            post,
            runs,
            sharer,
            sealer=sealer,
            now_ms=now_ms,
            shares_nothing=not sections,
            calls=errands,
        )
        works = (watch.look, watch.tell, reading)
        stack.push_async_callback(_stopped, [asyncio.create_task(watch.keep(work)) for work in works])
        yield Relaying(
            device=device,
            sealer=sealer,
            link=gateway,
            post=post,
            host=runs,
            ready=watch.ready,
            ended=watch.ended,
            refresh=partial(post.do, known.look),
        )


class _Watch:
    """Keeps a device up to date with what its owner decides elsewhere, and notices when its work has ended."""

    def __init__(self, known: PeerSnapshot, post: MessageDelivery, gateway: GatewayConnection) -> None:
        self._known = known
        self._post = post
        self._gateway = gateway
        self.ready = asyncio.Event()
        self.ended: asyncio.Future[RemitError] = asyncio.get_running_loop().create_future()

    async def look(self) -> None:
        """Look at the known devices now and then."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self._post.do(self._known.look)

    async def tell(self) -> None:
        """Tell the gateway who may send, so that others are turned away there; of a link that has ended, say why."""
        told: tuple[str, ...] | None = None
        while True:
            if self._known.senders != told or self._gateway.state == "ended":
                told = self._known.senders
                await self._gateway.allow(told if len(told) <= MAX_ALLOWED else None)
            if not self.ready.is_set() and self._gateway.one_time_left:
                self.ready.set()
            await asyncio.sleep(LOOK_S if self.ready.is_set() else SOON_S)

    async def keep(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something as long as the device is at work; whatever ends it ends that."""
        try:
            await work()
        except RemitError as error:
            self._end(error)
        except Exception as error:  # noqa: BLE001 - where a task ends, and it is logged
            _log.exception("the device is at work no more")
            why = f"the device has stopped ({type(error).__name__}); its log says why"
            self._end(RemitError(fault(Code.DELEGATION_FAILED, why)))

    def _end(self, error: RemitError) -> None:
        if not self.ended.done():
            self.ended.set_result(error)


async def _stopped(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


# ── what it needs ─────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def _record(team: Team) -> AsyncGenerator[Recorder]:
    """Open the team's store, beside whoever else has it open."""
    store = SqliteStore(team.store_path, durability=team.store.durability)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def _relay_of(team: Team) -> RelaySection:
    if team.relay is None:
        raise RemitError(
            fault(
                Code.TEAM_INVALID,
                f"{team.file} does not say over which gateway other devices are reached",
                suggestion='Add to it: [relay] and, below that, gateway = "wss://…" (`remit relay` runs one).',
            )
        )
    return team.relay


def _detector(team: Team) -> Detector:
    """Return what looks for personal data in drafts; also where agents may see it, it is not sent unseen."""
    found = detector_of(team)
    return pipeline() if isinstance(found, bool) else found


def authority_of(team: Team, section: RelaySection) -> tls.SSLContext | None:
    """Return what says whose certificates count, or None: those that this machine trusts."""
    if section.authority is None:
        return None
    path = team.folder / section.authority
    try:
        return tls.create_default_context(cafile=path)
    except OSError as error:  # what is no certificate is an SSLError, which is one of these
        why = f"{path}, which `[relay]` names as `authority`, cannot be used: {error.strerror or error}"
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion="Name the PEM file of a certificate.")) from error


@contextmanager
def _alone(path: Path) -> Generator[None]:
    """Make sure that no other process has the device at work: a gateway has one connection for each."""
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:  # the gateway itself sees to it elsewhere, less politely
        yield
        return
    with path.open("a+", encoding="ascii") as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except OSError as error:
            file.seek(0)
            who = file.read(20).strip()
            raise RemitError(
                fault(
                    Code.STATE_CONFLICT,
                    f"this device is at work already, in process {who or 'unknown'}",
                    suggestion="One process at a time speaks for a device: end that one first. "
                    "Drafts that wait in it are answered from here, too: remit pending list",
                )
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
