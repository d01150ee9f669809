"""A team's device at work: its gateway, its runs and what it shares, wired together."""

import asyncio
import logging
import os
import ssl as tls
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct

from remit.detectors.pipeline import pipeline
from remit.faces.device import create_device, device_path, find_device, open_device, program_of, using_device
from remit.faces.team.detecting import detector_of
from remit.faces.team.sections.relay import ProfileSection, RelaySection, SharedSection
from remit.faces.team.sharing import gateway_name
from remit.faces.team.team import Team
from remit.faces.team.values import duration_ms
from remit.policy.verdict import Detector
from remit.protocol.card import AgentCard
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import SharedStep
from remit.relay import link, review
from remit.relay.bridge.permissions import AskUser, deny
from remit.relay.bridge.ports import Failed, LocalAgent
from remit.relay.device import Device
from remit.relay.elsewhere import outposts_of
from remit.relay.errands import Errands
from remit.relay.frames import Constraints, PromptRequest
from remit.relay.host import Host
from remit.relay.keyfile import LOCK_FILE
from remit.relay.link import Link
from remit.relay.notes import Recording
from remit.relay.offers import Teller
from remit.relay.peers import Peer, Peers
from remit.relay.post import Post, Trouble
from remit.relay.profile import Limits, Profile
from remit.relay.reading import read
from remit.relay.run import Overlay
from remit.relay.seal import Sealer
from remit.relay.sharing import Shared, Sharing, Told, offered
from remit.relay.wire import MAX_ALLOWED
from remit.relay.wishes import Wish
from remit.runtime.clock import LoopClock
from remit.runtime.hub import Hub
from remit.runtime.ports import Recorder
from remit.stores.sqlite import SqliteStore

__all__ = [
    "Relaying",
    "authority_of",
    "create_device",
    "device_path",
    "find_device",
    "open_device",
    "profile_of",
    "relaying",
    "shared_of",
    "using_device",
]

# How soon a device that was allowed, or revoked, by another process is known here.
LOOK_S = 1.0
# So often it is looked whether the gateway has the device's keys, until it has.
SOON_S = 0.02

_log = logging.getLogger("remit.relay")

# ── at work ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Relaying(Struct, frozen=True, kw_only=True):
    """A device at work, while the block lasts."""

    device: Device
    sealer: Sealer
    link: Link
    """Its connection: `state` and `why` say how that stands."""
    post: Post
    host: Host | None
    sharing: Sharing | None
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
    hub: Hub | None,
    host: bool,
    share: bool,
    shared: Mapping[str, SharedSection] | None = None,
    ask_user: AskUser = deny,
    changed: Callable[[Overlay], None] = lambda _: None,
    noted: Callable[[SharedStep], None] = lambda _: None,
    told: Callable[[Told], None] = lambda _: None,
    unable: Callable[[Wish, str], None] = lambda _wish, _why: None,
    trouble: Trouble | None = None,
    linked: Callable[[link.State, str], None] = lambda _state, _why: None,
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

        def tell(what: Told) -> None:
            recording.wake()
            told(what)

        sealer = Sealer(device)
        gateway = Link(
            section.gateway, gateway=gateway_name(team), key=device, ssl=authority_of(team, section), changed=linked
        )
        post = await stack.enter_async_context(Post(sealer, gateway, trouble=trouble))
        sections = team.shared if shared is None else shared
        # What a team shares in another process is neither offered nor taken back by one that shares nothing.
        teller = Teller(sealer) if share or not sections else None
        known = _Known(team, sealer.peers, sections, {} if hub is None else hub.cards, teller)
        await post.do(known.look)
        now_ms = LoopClock().wall_ms
        sharer = None
        if share and hub is not None:
            sharer = Sharing(hub, sealer, post, known.shared, now_ms=now_ms, told=tell)
            stack.push_async_callback(sharer.close)
        errands = Errands(sealer, post, now_ms=now_ms, control_of=sharer and sharer.control)
        for outpost in outposts_of(hub) if hub is not None else ():
            stack.enter_context(outpost.lent(errands))
        runs = None
        if host:
            detect = _detector(team)
            agents = _Agents(team, hub, user=section.user or device.card.name, ask_user=ask_user, environ=environ)
            runs = Host(
                sealer,
                post,
                profiles=known.profiles,
                agent_of=agents,
                detect=detect,
                now_ms=now_ms,
                requester=section.user,
                changed=changed,
                noted=note,
                unable=unable,
            )
            await stack.enter_async_context(runs)
        watch = _Watch(known, post, gateway)
        watch.ended.add_done_callback(lambda ended: errands.end(ended.result()) if not ended.cancelled() else None)
        reading = partial(read, post, runs, sharer, sealer=sealer, shares_nothing=not sections, errands=errands)
        works = (watch.look, watch.tell, reading)
        stack.push_async_callback(_stopped, [asyncio.create_task(watch.keep(work)) for work in works])

        async def refresh() -> None:
            await post.do(known.look)

        yield Relaying(
            device=device,
            sealer=sealer,
            link=gateway,
            post=post,
            host=runs,
            sharing=sharer,
            ready=watch.ready,
            ended=watch.ended,
            refresh=refresh,
        )


def profile_of(team: Team, name: str, peers: Iterable[Peer]) -> Profile:
    """Return a profile of the team, with the devices that it names as far as they are known."""
    said = team.profiles[name]
    return Profile(
        id=name,
        allow_shared_agent_calls=said.allow_shared_agent_calls,
        allowed_shared_device_ids=_ids(said.devices, peers),
        max_concurrent_shared_calls=said.max_concurrent_shared_calls,
        max_hop_count=said.max_hop_count,
        rate=said.rate,
        mode=said.mode,
        limits=Limits(
            max_turns=said.limits.max_turns,
            max_duration_ms=duration_ms(said.limits.max_duration),
            max_failures=said.limits.max_failures,
            max_tokens_budget=said.limits.max_tokens,
        ),
        rules=review.Rules(
            off=said.rules.off,
            min_confidence=said.rules.min_confidence,
            max_chars=said.rules.max_chars,
            min_shared_words=said.rules.min_shared_words,
        ),
        constraints=Constraints(
            max_output_chars=said.constraints.max_output_chars,
            allow_tool_use=said.constraints.allow_tool_use,
            max_history_turns=said.constraints.max_history_turns,
            max_history_chars=said.constraints.max_history_chars,
            max_tool_rounds=said.constraints.max_tool_rounds,
            local_turn_timeout_ms=duration_ms(said.constraints.turn_timeout),
        ),
    )


def shared_of(name: str, said: SharedSection, peers: Iterable[Peer], cards: Mapping[str, AgentCard] = {}) -> Shared:
    """Return what a section shares, with the devices that it names as far as they are known."""
    agent = said.agent or name
    profile = Profile(
        id=name,
        # To share an agent is to switch it on; with whom, its devices say, as far as those may come here at all.
        allow_shared_agent_calls=True,
        allowed_shared_device_ids=_ids(said.devices, (each for each in peers if each.allowed)),
        max_concurrent_shared_calls=said.max_concurrent_shared_calls,
        max_hop_count=said.max_hop_count,
        rate=said.rate,
    )
    described = cards[agent].description if said.description is None and agent in cards else said.description
    return Shared(agent=agent, profile=profile, description=described or "")


def _ids(named: Iterable[str], peers: Iterable[Peer]) -> frozenset[str]:
    """Return the ids of those that are named, by id or by a name that only one has; of an id, no part counts."""
    wanted = set(named)
    return frozenset(each.device for each in peers if not each.revoked and wanted & {each.device, each.card.name})


class _Known:
    """What follows from the devices that are known now: profiles, what is shared and offered, who may send."""

    def __init__(
        self,
        team: Team,
        peers: Peers,
        sections: Mapping[str, SharedSection],
        cards: Mapping[str, AgentCard],
        teller: Teller | None,
    ) -> None:
        self._team = team
        self._peers = peers
        self._sections = sections
        self._cards = cards
        self._teller = teller
        self.profiles: dict[str, Profile] = {}
        self.shared: dict[str, Shared] = {}
        self.senders: tuple[str, ...] = ()

    def look(self) -> None:
        peers = self._peers.list()
        self.profiles.update({name: profile_of(self._team, name, peers) for name in self._team.profiles})
        self.shared.update({name: shared_of(name, said, peers, self._cards) for name, said in self._sections.items()})
        self.senders = tuple(sorted(each.device for each in peers if each.may_talk))
        if self._teller is not None:
            self._teller.tell(peers, partial(offered, self.shared))


class _Watch:
    """Keeps a device up to date with what its owner decides elsewhere, and notices when its work has ended."""

    def __init__(self, known: _Known, post: Post, gateway: Link) -> None:
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
            why = f"the device is at work no more ({type(error).__name__}); its log says more"
            self._end(RemitError(fault(Code.DELEGATION_FAILED, why)))

    def _end(self, error: RemitError) -> None:
        if not self.ended.done():
            self.ended.set_result(error)


async def _stopped(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


# ── local agents ──────────────────────────────────────────────────────────────────────────────────────────────────────


class _Agents:
    """The local agent of each profile, made when it is first needed."""

    def __init__(
        self, team: Team, hub: Hub | None, *, user: str, ask_user: AskUser, environ: Mapping[str, str]
    ) -> None:
        self._team = team
        self._hub = hub
        self._user = user
        self._ask_user = ask_user
        self._environ = environ

    def __call__(self, profile: str) -> LocalAgent:
        try:
            return self._made(profile, self._team.profiles[profile])
        except RemitError as error:
            return _Unavailable(f"{error.fault.message}. {error.fault.suggestion}")

    def _made(self, name: str, said: ProfileSection) -> LocalAgent:
        if said.agent is not None:
            if self._hub is None:
                return _Unavailable(f"the agent {said.agent} of this team is not running here")
            from remit.relay.bridge.hub import HubAgent

            return HubAgent(self._hub, said.agent, user=self._user)
        program = program_of(self._team, name, self._environ)
        if said.run is not None:
            from remit.relay.bridge.ndjson import NdjsonAgent

            return NdjsonAgent(name, program)
        from remit.relay.bridge.acp import AcpAgent

        return AcpAgent(name, program, ask_user=self._ask_user, reads_files=said.files == "read")


class _Unavailable:
    """Stands for an agent that cannot be there, so that its runs say why."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def prompt(self, request: PromptRequest) -> Failed:  # noqa: ARG002 - of the port
        return Failed(reason=self._why, hard=True)

    async def close(self) -> None: ...


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
