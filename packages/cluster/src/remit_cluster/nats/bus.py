"""The bus of a team: a hub says on it what it hosts, and brings requests for other agents to their hosts."""

import asyncio
import logging
import time
from collections.abc import Collection

import msgspec
from msgspec.structs import replace
from nats.aio.msg import Msg

from remit.hub.hub import Hub
from remit.policy.shares import ShareOwner
from remit.ports import HostingHub
from remit.protocol.card import QUEUE, AgentCard
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, Fault, RemitError
from remit.protocol.records import Approval, Delta, Kind, Notice, Progress, read_body
from remit.protocol.remit import Priority
from remit.runtime.aside import current_share
from remit.runtime.clock import end_tasks
from remit.runtime.registry import NAME
from remit.transports.local import FairSlots
from remit_cluster.nats.agent import LOOK_S, QUEUE_FULL, BusAgent, RunNews, overloaded
from remit_cluster.nats.cancels import BusCancels
from remit_cluster.nats.connection import LOST, BusSettings, Connection, in_words
from remit_cluster.nats.host import BusHost
from remit_cluster.nats.presence import Presence, shown_card
from remit_cluster.nats.proofs import BusProofs, RefusedMessages
from remit_cluster.nats.queue import WorkQueue
from remit_cluster.nats.subjects import (
    BUSY,
    EVERY_HUB,
    TAKEN,
    HostedAgent,
    Offer,
    PresentHub,
    Subjects,
    encode,
    read_news,
    token,
)
from remit_cluster.nats.takeover import HubWatch

log = logging.getLogger("remit")

# A host answers an offer at once; one that does not is gone, or its loop is blocked.
OFFER_S = 0.5
# For so long after a host said that it is busy, or that its queue is full, others are not asked again.
BUSY_S = 0.02
FULL_S = 0.1
# The run id in the records of refused messages, which have no run.
_BUS = "bus"
# One queued request for so many slots of the hosts keeps them busy: they pull the next one within a millisecond or two.
# The others wait for their turn at their hub, where users are known.
SLOTS_PER_QUEUED = 4


class _Turns:
    """Whose turn it is to be queued for an agent, with one priority."""

    def __init__(self, agent: str, most: int) -> None:
        self.most = most
        """How many requests of this hub may be queued at once."""
        self.slots = FairSlots(agent, most, QUEUE)
        self.users = 0
        """How many requests are queued or wait."""


class Bus:
    """A hub's side of the bus. It is opened with the hub, and works as far as NATS does."""

    def __init__(self, hub: Hub, settings: BusSettings, *, team: str, hosts: Collection[str] | None) -> None:
        """*hosts* are the agents that this hub takes requests for; None: all of its own."""
        self._hub = hub
        self._shared = hub.shared
        self._team = team
        self._hosts = hosts
        self._subjects = Subjects(team)
        self._connection = Connection(settings, f"{team} {hub.shared.worker}")
        self._refused = RefusedMessages(self._record_refusal)
        self._proofs = BusProofs(settings.proofs, self._refuse)
        self._queue = WorkQueue(self._connection, self._subjects, self._proofs)
        self._presence = Presence(
            self._connection, self._subjects, self._proofs, self._shared.worker, self._described, self._receive_card
        )
        self._cancels = BusCancels(self._connection, self._subjects, self._proofs, self._shared)
        self.cancel_call = self._cancels.cancel_call
        self._watch = HubWatch(self._connection, self._subjects, self._shared, self._presence.was_present)
        self._learned: set[str] = set()
        """The agents that this hub knows from the bus alone."""
        self._lookups: dict[str, asyncio.Task[None]] = {}
        """Agents that are being looked for."""
        self._since_ms = 0
        self._host: BusHost | None = None
        self._runs: dict[str, RunNews] = {}
        self._busy_until: dict[str, float] = {}
        self._full_until: dict[tuple[str, ShareOwner], float] = {}
        self._turns: dict[str, dict[Priority, _Turns]] = {}
        """By agent and priority, where requests of this hub are queued or wait until they are."""
        self._queueing: dict[str, asyncio.Task[None]] = {}
        """Those requests, by run."""

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Connect, say what this hub hosts and take requests; without NATS, go on trying in the background."""
        remotes = self._hub.remotes
        own = [name for name in self._hub.cards if name not in remotes]
        agents = own if self._hosts is None else [name for name in own if name in self._hosts]
        if (why := self._proofs.not_allowed(agents)) is not None:
            raise RemitError(why)
        self._host = BusHost(
            self._connection,
            self._subjects,
            self._queue,
            self._proofs,
            self._shared,
            lambda run, live: self._hub.follow(run, live=live),
            agents,
        )
        self._since_ms = time.time_ns() // 1_000_000
        self._connection.on_connected.append(self._connected)
        self._shared.announce = self._cancels.announce
        callees = frozenset[str]().union(*(self._hub.cards[name].callees for name in own))
        self._presence.expect(callees & remotes.keys(), everyone="*" in callees)
        await self._connection.open()
        await self._presence.open()
        await self._watch.open()

    async def drain(self, within_s: float) -> None:
        """Take nothing new, say so, and return once what was taken has ended, or *within_s* is over."""
        if self._host is None:
            return
        self._host.draining = True
        await self._say()
        await self._host.drain(within_s)

    async def leave(self) -> None:
        """Take nothing new: the hub is about to close."""
        if self._host is not None and not self._host.draining:
            self._host.draining = True
            await self._say()

    async def close(self) -> None:
        """Say how the last runs ended, and disconnect."""
        await end_tasks(self._queueing.values())
        await self._watch.close()
        await self._presence.close()
        await self._cancels.close()
        if self._host is not None:
            await self._host.close()
        await self._connection.close()
        self._refused.close()

    async def _connected(self) -> None:
        assert self._host is not None
        for home in (self._shared.worker, EVERY_HUB):
            await self._connection.subscribe(self._subjects.news(home, "*"), self._news)
        await self._cancels.subscribe(self._host.agents)
        await self._host.subscribe()
        await self._watch.connected()
        await self._presence.connected()
        await self._queue.open()
        self._host.look()

    def _refuse(self, what: str, why: Fault) -> None:
        self._hub.metrics.turned_away[why.code.value] += 1
        self._refused.note(what, why)

    def _record_refusal(self, code: Code, text: str) -> None:
        log.warning("%s: %s", code.value, text)
        body = Notice(delegation=_BUS, agent=_BUS, text=text, code=code)
        self._hub.store.append(Kind.NOTICE, time.time_ns() // 1_000_000, _BUS, _BUS, body)

    async def _say(self) -> None:
        try:
            await self._presence.say()
        except LOST as error:  # its silence says the same, a little later
            log.debug("the presence of this hub could not be said: %s", in_words(error))

    # ── who is there ──────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, card: AgentCard) -> None:
        """Let this hub call an agent that other hubs host.

        To a caller that is resumed, it is resumable whatever its host says: a request that is submitted again under
        its id is not executed twice.
        """
        self._hub.register(replace(card, resumable=True), self.agent(card.name))

    def agent(self, name: str) -> BusAgent:
        """Return an agent as other hubs host it."""
        return BusAgent(name, self, self._shared)

    @property
    def hosted(self) -> list[str]:
        """The agents that this hub takes requests for."""
        return [] if self._host is None else sorted(self._host.agents)

    @property
    def in_progress(self) -> int:
        """How many requests of other hubs are in progress here."""
        return 0 if self._host is None else self._host.in_progress

    async def queued(self, agent: str) -> int:
        """Return how many requests for an agent wait for a host."""
        return await self._queue.depth(agent) + self.queued_here(agent)

    @property
    def hubs(self) -> list[PresentHub]:
        """The other hubs that are present and host agents that were called from here."""
        return self._presence.hubs()

    def _described(self) -> PresentHub:
        host, cards = self._host, self._hub.cards
        names = () if host is None or host.draining else sorted(host.agents)
        agents = tuple(HostedAgent(shown_card(cards[name]), host.free(name) if host else 0) for name in names)
        return PresentHub(self._team, agents, draining=host is not None and host.draining, since_ms=self._since_ms)

    async def find(self, agent: str) -> None:
        """Look for an agent that this hub does not know, and add it if a hub hosts it."""
        if not self._connection.connected or not NAME.fullmatch(agent):
            return
        if (lookup := self._lookups.get(agent)) is None:
            lookup = self._lookups[agent] = asyncio.get_running_loop().create_task(self._look_up(agent))
            lookup.add_done_callback(lambda _: self._lookups.pop(agent, None))
        await asyncio.shield(lookup)  # others may wait for the same

    async def _look_up(self, agent: str) -> None:
        await self._presence.watch(agent)
        if agent not in self._hub.cards:  # anybody may ask for any name
            await self._presence.unwatch(agent)

    def _receive_card(self, card: AgentCard) -> None:
        """Add an agent of another hub that this hub's team file does not name, and follow its card."""
        known = self._hub.cards.get(card.name)
        try:
            if known is None:
                self.add(card)
                self._learned.add(card.name)
            elif card.name in self._learned and _followed(card, known) != known:
                self._refresh(known, card)
        except RemitError as error:
            log.warning("invalid agent on the bus: %s", error.fault.message)

    def _refresh(self, known: AgentCard, received: AgentCard) -> None:
        """Take the card of an agent's newest host: in a rolling update, versions stand side by side."""
        hubs = self._presence.hosts(known.name)
        newest = max(hubs, key=lambda hub: hub.since_ms, default=None)
        card = received if newest is None else newest.agents[0].card
        if (followed := _followed(card, known)) != known:
            self._hub.reconfigure(cards=[followed])

    # ── bringing requests ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def connected(self) -> bool:
        """Whether NATS is reached at the moment."""
        return self._connection.connected

    @property
    def patience_s(self) -> float:
        """How long a call waits for a host."""
        return self._connection.settings.patience_s

    def is_hosted(self, agent: str) -> bool:
        """Return whether a hub that is present hosts an agent."""
        return bool(self._presence.hosts(agent))

    def hosts_of(self, agent: str) -> tuple[HostingHub, ...]:
        """Return the other hubs that are present and host an agent."""
        return tuple(HostingHub(each.hub, each.agents[0].free) for each in self._presence.hosts(agent))

    async def wait_for_host(self, agent: str, within_s: float) -> bool:
        """Return whether a hub hosts an agent, once one does or *within_s* is over."""
        return await self._presence.wait_for_host(agent, within_s)

    def is_resumable(self, agent: str) -> bool | None:
        """Return whether an agent may be executed again after a restart, as its hosts say; None: none is known."""
        return self._presence.is_resumable(agent)

    def is_full(self, request: Request) -> bool:
        """Return whether a request of the same user was refused a moment ago, since the queue of its agent was full."""
        until = self._full_until.get((request.target, _share_of(request)), 0)
        return until > asyncio.get_running_loop().time()

    def queued_here(self, agent: str) -> int:
        """Return how many requests of this hub for an agent wait for their turn in its queue."""
        return sum(each.slots.queued for each in self._turns.get(agent, {}).values())

    async def offer(self, request: Request, run: str, *, live: bool) -> None:
        """Bring a submitted request to a host, or queue it when its turn comes; its caller hears if the queue is full.

        If NATS does not answer, the hosts find the request in the store.
        """
        offer, agent = Offer(run, self._shared.worker, live), request.target
        now = asyncio.get_running_loop().time
        await self._presence.watch(agent)
        try:
            # What waits here came earlier.
            if agent not in self._turns and self._busy_until.get(agent, 0) < now():
                if await self._ask_host(agent, offer) == TAKEN:
                    return
                self._busy_until[agent] = now() + BUSY_S
        except LOST as error:
            log.debug("%s was not offered: %s", run, in_words(error))
            return
        self._leave_queue(token(run))
        self._queueing[token(run)] = asyncio.create_task(self._queue_in_turn(request, offer))

    async def _queue_in_turn(self, request: Request, offer: Offer) -> None:
        """Queue a request for any host once it is its turn, and keep the next ones back until a host has taken it.

        The queue itself knows no users: what is in it is served in the order in which it came.
        """
        agent, share, priority = request.target, _share_of(request), request.remit.priority
        by_priority = self._turns.setdefault(agent, {})
        if (turns := by_priority.get(priority)) is None:
            slots = sum(each.concurrency for each in self._hosted_cards(agent))
            turns = by_priority[priority] = _Turns(agent, max(1, slots // SLOTS_PER_QUEUED))
        turns.users += 1
        try:
            # What this hub is about to queue counts as well: a burst of callers would all find the same room.
            ahead = max(await self._queue.depth(agent), turns.most - turns.slots.free)
            turns.slots.queue = max(0, self._room(agent) - ahead)
            if not turns.slots.queue:
                raise RemitError(overloaded(agent))
            await turns.slots.enter(share)
            try:
                await self._queue.put(agent, priority, offer)
                # A host says when it takes it, and then this task is cancelled; what it says may be lost, as the queue.
                while token(offer.run) in self._queueing:
                    await asyncio.sleep(LOOK_S)
                    if not await self._queue.depth(agent):
                        break
            finally:
                turns.slots.release()
        except LOST as error:
            log.debug("%s was not queued: %s", offer.run, in_words(error))
        except RemitError:
            now = asyncio.get_running_loop().time()
            self._full_until = {key: until for key, until in self._full_until.items() if until > now}
            self._full_until[agent, share] = now + FULL_S
            if (news := self._runs.get(token(offer.run))) is not None:
                news.hear(QUEUE_FULL)
        finally:
            turns.users -= 1
            if not turns.users:
                del by_priority[priority]
                if not by_priority:
                    del self._turns[agent]

    async def _ask_host(self, agent: str, offer: Offer) -> bytes:
        subject = self._subjects.offer(agent)
        try:
            reply = await self._connection.request(subject, self._proofs.sign(subject, encode(offer)), OFFER_S)
        except LOST:
            return BUSY
        proven = self._proofs.read(reply.subject, reply.data, "a reply to an offer", host_of=agent)
        return BUSY if proven is None else proven.body

    def _room(self, agent: str) -> int:
        cards = self._hosted_cards(agent)
        return sum(each.queue for each in cards) if cards else QUEUE

    def _hosted_cards(self, agent: str) -> list[AgentCard]:
        return [each.card for hub in self._presence.hosts(agent) for each in hub.agents if each.card.name == agent]

    # ── how far it is ─────────────────────────────────────────────────────────────────────────────────────────────────

    def listen(self, news: RunNews) -> None:
        """Pass news of a run to its caller."""
        self._runs[token(news.run)] = news

    def leave_run(self, news: RunNews) -> None:
        """Pass on nothing more."""
        self._runs.pop(token(news.run), None)
        self._leave_queue(token(news.run))

    def _leave_queue(self, run: str) -> None:
        """Let the next request have the place of one that a host has taken, or that nobody waits for any more."""
        if (queueing := self._queueing.pop(run, None)) is not None:
            queueing.cancel()

    async def _news(self, message: Msg) -> None:
        listener = self._runs.get(message.subject.rpartition(".")[2])
        if listener is None:
            return
        proven = self._proofs.read(message.subject, message.data, "news of a run", host_of=listener.agent)
        if proven is None:
            return
        if proven.body == TAKEN:
            self._leave_queue(token(listener.run))
            return
        try:
            news = read_news(proven.body)
            if news.kind is None:
                listener.hear(news.outcome or None)
                return
            body = read_body(news.kind, bytes(news.body))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            log.warning("invalid message about run %s", listener.run)
            return
        if isinstance(body, Approval | Progress | Delta):
            listener.hear(body)


def _share_of(request: Request) -> ShareOwner:
    return ShareOwner(current_share.get().client, request.remit.user)


def _followed(card: AgentCard, known: AgentCard) -> AgentCard:
    """Return a card of another hub as this hub keeps it; its slots and its queue are at the hosts."""
    return replace(card, resumable=True, concurrency=known.concurrency, queue=known.queue)


def join_bus(
    hub: Hub,
    settings: BusSettings,
    *,
    name: str,
    hosts: Collection[str] | None = None,
    calls: Collection[AgentCard] = (),
) -> Bus:
    """Join a hub, which is not open yet, to the bus of the hubs that share its store and its *name*.

    It takes requests for *hosts*, which are agents of its own (default: all of them), and calls the agents in *calls*,
    which other hubs host, like its own. Other agents are looked for when they are asked; if one of its own may call
    everyone, all that are hosted anywhere are added as it hears of them.
    """
    bus = Bus(hub, settings, team=name, hosts=hosts)
    for card in calls:
        bus.add(card)
    hub.accompany(bus, bus)
    hub.keep(bus)
    return bus
