"""Which hubs of the team are present, and which agents they host."""

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace
from nats.aio.msg import Msg
from nats.js import api
from nats.js.errors import BucketNotFoundError, NoStreamResponseError, NotFoundError

from remit.protocol.card import AgentCard
from remit.protocol.errors import Code, fault
from remit.runtime.clock import end_tasks
from remit_cluster.nats.connection import LOST, BusSettings, Connection, in_words
from remit_cluster.nats.proofs import BusProofs, ReadMessage, may_not_host
from remit_cluster.nats.subjects import (
    Heartbeat,
    HostedAgent,
    PresentHub,
    PublishedCard,
    Subjects,
    encode,
    read_card,
    read_heartbeat,
    token,
)

log = logging.getLogger("remit")

_GONE = (NoStreamResponseError, NotFoundError, BucketNotFoundError)
# A card is published when it changes. It is renewed after ten heartbeats, and the bucket forgets it after thirty. Cards
# of a hub that was killed are read until then, and count for nothing without a heartbeat.
RENEW = 10
FORGET = 30
# A hub counts as gone after three heartbeats that were not heard.
BEATS = 3
# How long a part of a bucket may take to arrive, and how long the server keeps the place of a reader that is gone.
READ_S = 2.0
# So many values are asked for at once: at 1 KB for a card, less than a client buffers.
BATCH = 1_000
_NEVER = (float("-inf"), Heartbeat(""))

_CARD, _HEARTBEAT = "the card of an agent", "the heartbeat of a hub"


class Presence:
    """Says which agents this hub hosts, and knows the hosts of the agents that this hub calls.

    Cards are published when they change, and a hub sends one small heartbeat for all its agents. A hub hears only the
    cards of the agents that it watches, and only the heartbeats of their hosts: so the messages grow with the number
    of calls between hubs and not with the square of the number of hubs. A bucket reports no expiry, so each hub counts
    the time since it last heard of another.
    """

    def __init__(
        self,
        connection: Connection,
        subjects: Subjects,
        proofs: BusProofs,
        own: str,
        describe: Callable[[], PresentHub],
        received: Callable[[AgentCard], None],
    ) -> None:
        self._connection = connection
        self._subjects = subjects
        self._proofs = proofs
        self._own = token(own)
        self._describe = describe
        self._on_card = received
        self._watched: dict[str, dict[str, PublishedCard]] = {}
        """The agents that are watched, with the cards of their hosts."""
        self._unread: set[str] = set()
        """Those of them whose cards could not be read yet."""
        self._watches_all = False
        self._beats: dict[str, tuple[float, Heartbeat]] = {}
        """The last heartbeats of the hosts of watched agents, and when they were heard."""
        self._signers: dict[str, str] = {}
        """The hub of the team file that signs for each of these hosts."""
        self._published: dict[str, bytes] = {}
        """The cards that the bucket has of this hub."""
        self._changed = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._troubled = False
        self._lives_s = connection.settings.presence_s
        self._card_lives_s = self._lives_s / BEATS * FORGET

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Send heartbeats from now on; `connected` says what this hub hosts."""
        self._beating = asyncio.get_running_loop().create_task(self._beat())

    async def connected(self) -> None:
        """Say what this hub hosts, and read what others said meanwhile; the server may have lost everything."""
        await self._make_buckets()
        self._published.clear()
        await self.say()
        await self._listen(["*"] if self._watches_all else list(self._watched))

    async def close(self) -> None:
        """Say nothing more."""
        if self._beating is not None:
            await end_tasks([self._beating])

    # ── what this hub says ────────────────────────────────────────────────────────────────────────────────────────────

    async def say(self) -> None:
        """Send a heartbeat, and the cards that changed since the last one; a hub that hosts nothing is silent."""
        described = self._describe()
        if not self._connection.connected or not (described.agents or self._published):
            return
        try:
            await self._publish(described)
        except _GONE:  # the storage was wiped
            await self._make_buckets()
            self._published.clear()
            await self._publish(described)

    async def _publish(self, described: PresentHub) -> None:
        free = {each.card.name: each.free for each in described.agents}
        beat = Heartbeat(described.hub, free, described.draining)
        await self._put(self._subjects.heartbeat(self._own), encode(beat))
        for each in described.agents:
            card = encode(PublishedCard(each.card, described.since_ms))
            if self._published.get(each.card.name) != card:
                await self._put(self._subjects.hosted(each.card.name, self._own), card)
                self._published[each.card.name] = card

    async def _put(self, subject: str, body: bytes) -> None:
        await self._connection.jetstream.publish(subject, self._proofs.sign(subject, body))

    async def _make_buckets(self) -> None:
        for bucket, keep_s in (
            (self._subjects.hosts, self._lives_s),
            (self._subjects.agents, self._card_lives_s),
        ):
            config = api.KeyValueConfig(
                bucket=bucket,
                ttl=keep_s,
                history=1,
                storage=api.StorageType.MEMORY,
                replicas=self._connection.settings.replicas,
            )
            made = self._connection.jetstream.create_key_value(config)  # pyright: ignore[reportUnknownMemberType]
            await self._connection.make(made)

    async def _beat(self) -> None:
        beats = 0
        while True:
            await asyncio.sleep(self._lives_s / BEATS)
            beats += 1
            if beats % RENEW == 0:
                self._published.clear()
            try:
                await self._forget()
                await self.say()
            except LOST as error:
                if self._connection.connected and not self._troubled:
                    log.warning("other hubs cannot be told what this one hosts: %s", in_words(error))
                    self._troubled = True
            else:
                self._troubled = False

    # ── what it hears of others ───────────────────────────────────────────────────────────────────────────────────────

    def hosts(self, agent: str) -> list[PresentHub]:
        """Return the other hubs that take requests for an agent that is watched."""
        hosts = self._watched.get(agent, {})
        beats = [(self._present(name), hosted) for name, hosted in hosts.items()]
        return [
            PresentHub(beat.hub, (HostedAgent(hosted.card, beat.free.get(agent, 0)),), since_ms=hosted.since_ms)
            for beat, hosted in beats
            if beat is not None and not beat.draining
        ]

    def is_resumable(self, agent: str) -> bool | None:
        """Return whether all known cards of a watched agent, those of silent hubs included, say that it is resumable.

        None: no card is known.
        """
        hosts = self._watched.get(agent)
        return all(hosted.card.resumable for hosted in hosts.values()) if hosts else None

    def hubs(self) -> list[PresentHub]:
        """Return the other hubs that are present and host agents that are watched."""
        beats = [(name, self._present(name)) for name in self._beats]
        return [self._hub(name, beat) for name, beat in beats if beat is not None]

    def _hub(self, name: str, beat: Heartbeat) -> PresentHub:
        hosted = [] if beat.draining else [hosts[name] for hosts in self._watched.values() if name in hosts]
        agents = tuple(HostedAgent(each.card, beat.free.get(each.card.name, 0)) for each in hosted)
        return PresentHub(beat.hub, agents, beat.draining, max((each.since_ms for each in hosted), default=0))

    def _present(self, hub: str) -> Heartbeat | None:
        """Return the last heartbeat of a hub that is present."""
        received, beat = self._beats.get(hub) or _NEVER
        return beat if received > asyncio.get_running_loop().time() - self._lives_s else None

    async def _forget(self) -> None:
        """Forget hubs that are silent for longer than their cards are kept: they are gone, and not stopped."""
        oldest = asyncio.get_running_loop().time() - self._card_lives_s
        for hub in [hub for hub, (received, _) in self._beats.items() if received < oldest]:
            del self._beats[hub]
            self._signers.pop(hub, None)
            for hosts in self._watched.values():
                hosts.pop(hub, None)
            await self._connection.unsubscribe(self._subjects.heartbeat(hub))

    async def was_present(self, hub: str) -> bool:
        """Return whether a hub is on the bus, or was a moment ago: NATS keeps its cards for a while."""
        try:
            return bool(await self._entries(self._subjects.agents, [self._subjects.hosted("*", hub)]))
        except LOST as error:
            log.debug("the heartbeat of %s cannot be read: %s", hub, in_words(error))
            return False

    def expect(self, agents: Iterable[str], *, everyone: bool) -> None:
        """Know the hosts of some agents once connected; *everyone*: also hear of all that are hosted anywhere."""
        self._watched |= {agent: {} for agent in sorted(agents)}
        self._watches_all = everyone

    async def watch(self, agent: str) -> None:
        """Know the hosts of an agent from now on; without NATS, once it is there."""
        if agent in self._watched and agent not in self._unread:
            return
        self._watched.setdefault(agent, {})
        self._unread.discard(agent)
        try:
            await self._listen([agent])
        except LOST as error:  # it is read when it is needed again, or after the next connection
            self._unread.add(agent)
            log.debug("the hosts of %s cannot be read: %s", agent, in_words(error))

    async def unwatch(self, agent: str) -> None:
        """Hear nothing more of an agent."""
        self._watched.pop(agent, None)
        await self._connection.unsubscribe(self._subjects.hosted(agent, "*"))

    async def wait_for_host(self, agent: str, within_s: float) -> bool:
        """Return whether a hub hosts an agent, once one does or *within_s* is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        await self.watch(agent)
        while not self.hosts(agent):
            if loop.time() >= end:
                return False
            self._changed.clear()
            try:
                async with asyncio.timeout(end - loop.time()):
                    await self._changed.wait()
            except TimeoutError:
                pass
        return True

    async def read_all(self) -> list[PresentHub]:
        """Return every hub that hosts agents, from the buckets.

        The heartbeats are read last: the cards of a large team take longer to read than a heartbeat counts.
        """
        for message in await self._entries(self._subjects.agents, [self._subjects.hosted("*", "*")]):
            if (hosted := self._card(message, stored=True)) is not None:
                self._watched.setdefault(hosted.card.name, {})[_hub(message)] = hosted
        for message in await self._entries(self._subjects.hosts, [self._subjects.heartbeat("*")]):
            self._note_beat(message, stored=True)
        return self.hubs()

    async def _listen(self, agents: list[str]) -> None:
        """Hear the cards of some agents as they are published, and read those that were; `*` is every agent."""
        if not agents:
            return
        subjects = [self._subjects.hosted(agent, "*") for agent in agents]
        for subject in subjects:
            await self._connection.subscribe(subject, self._receive_card)
        await self._connection.settle()
        entries = await self._entries(self._subjects.agents, subjects)
        noted = [_hub(each) for each in entries if self._note_card(each, stored=True)]
        new = list(dict.fromkeys(hub for hub in noted if hub not in self._beats))
        silent_since = asyncio.get_running_loop().time() - self._lives_s
        for hub in new:
            # A hub that was killed leaves its cards behind, and no heartbeat. They count until they are forgotten.
            self._beats[hub] = (silent_since, Heartbeat(hub))
            await self._connection.subscribe(self._subjects.heartbeat(hub), self._receive_beat)
        if new:
            beats = await self._entries(self._subjects.hosts, [self._subjects.heartbeat(hub) for hub in new])
            for message in beats:
                self._note_beat(message, stored=True)

    async def _receive_card(self, message: Msg) -> None:
        hub = _hub(message)
        if self._note_card(message) and hub not in self._beats:
            # It says so itself, so it is there.
            self._beats[hub] = (asyncio.get_running_loop().time(), Heartbeat(hub))
            try:
                await self._connection.subscribe(self._subjects.heartbeat(hub), self._receive_beat)
            except LOST as error:
                log.debug("the hub %s cannot be listened to: %s", hub, in_words(error))
                del self._beats[hub]
        self._changed.set()

    def _note_card(self, message: Msg, *, stored: bool = False) -> bool:
        """Note who hosts an agent; return whether that is watched."""
        hosted = None if _hub(message) == self._own else self._card(message, stored=stored)
        if hosted is None:
            return False
        hosts = self._watched.get(hosted.card.name)
        if hosts is not None:
            hosts[_hub(message)] = hosted
        self._on_card(hosted.card)
        return hosts is not None

    def _card(self, message: Msg, *, stored: bool) -> PublishedCard | None:
        proven = self._proven(message, _CARD, self._card_lives_s, stored=stored)
        if proven is None:
            return None
        try:
            hosted = read_card(proven.body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            log.warning("invalid card of an agent on hub %s", _hub(message)[:100])
            return None
        name = hosted.card.name
        if message.subject != self._subjects.hosted(name, _hub(message)):
            log.warning("the card of %s is in the place of another agent", name[:100])
            return None
        if not self._proofs.may_host(proven.hub, name):
            self._proofs.refuse(_CARD, may_not_host(proven.hub, name))
            return None
        return hosted

    async def _receive_beat(self, message: Msg) -> None:
        self._note_beat(message)

    def _note_beat(self, message: Msg, *, stored: bool = False) -> None:
        proven = self._proven(message, _HEARTBEAT, self._lives_s, stored=stored)
        if proven is None:
            return
        try:
            beat = read_heartbeat(proven.body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            log.warning("invalid heartbeat of hub %s", _hub(message)[:100])
            return
        self._beats[_hub(message)] = (asyncio.get_running_loop().time(), beat)
        if beat.draining:
            self._without(_hub(message))
        self._changed.set()

    def _without(self, hub: str) -> None:
        """Take notice of the other hosts of each agent of a hub that takes nothing new."""
        for hosts in [hosts for hosts in self._watched.values() if hub in hosts]:
            other = next((hosted for name, hosted in hosts.items() if name != hub), None)
            if other is not None:
                self._on_card(other.card)

    def _proven(self, message: Msg, what: str, lives_s: float, *, stored: bool) -> ReadMessage | None:
        """Return what a host says of itself; None if that is nothing, or not proven, or said by another hub."""
        if not message.data and not self._proofs.required:
            return None  # it was deleted
        lives_ms = round(lives_s * 1_000)
        proven = self._proofs.read(message.subject, message.data, what, keep_ms=lives_ms, stored=stored)
        if proven is None or not self._proofs.required:
            return proven  # without proofs anybody may speak for any hub, and could name any number of them
        signer = self._signers.setdefault(_hub(message), proven.hub)
        if signer != proven.hub:
            why = f"the hub {proven.hub} may not speak for a hub of {signer}"
            self._proofs.refuse(what, fault(Code.PERMISSION_DENIED, why))
            return None
        return proven

    async def _entries(self, bucket: str, subjects: list[str]) -> list[Msg]:
        """Return the newest values of a bucket on some subjects; nothing if there is no bucket.

        A consumer for all of them takes three messages. The watchers of nats-py take one subject each.
        """
        jetstream, stream = self._connection.jetstream, f"KV_{bucket}"
        config = api.ConsumerConfig(
            filter_subjects=subjects,
            deliver_policy=api.DeliverPolicy.LAST_PER_SUBJECT,
            ack_policy=api.AckPolicy.NONE,
            inactive_threshold=READ_S,
            mem_storage=True,
        )
        try:
            made = await jetstream.add_consumer(stream, config)  # pyright: ignore[reportUnknownMemberType]
        except NotFoundError:
            return []
        messages: list[Msg] = []
        if made.num_pending:
            reader = await jetstream.pull_subscribe_bind(  # pyright: ignore[reportUnknownMemberType]
                consumer=made.name, stream=stream
            )
            pending = made.num_pending
            try:
                while pending:
                    messages += await reader.fetch(min(pending, BATCH), timeout=READ_S)
                    # Counted anew by the server: a value that is replaced meanwhile is not delivered.
                    pending = messages[-1].metadata.num_pending
            except TimeoutError:
                if not messages:
                    raise
                log.debug("%s changed while it was read", bucket)  # the last ones were replaced
            await reader.unsubscribe()
        return messages


def _hub(message: Msg) -> str:
    """Return the token of the hub that a message in a bucket is from."""
    return message.subject.rpartition(".")[2]


async def present_hubs(settings: BusSettings, team: str) -> list[PresentHub] | None:
    """Return the hubs of a team that are present, without becoming one; None if the bus cannot be reached."""
    connection, subjects = Connection(settings, f"{team} list"), Subjects(team)
    proofs = BusProofs(settings.proofs, lambda what, why: log.warning("refused %s: %s", what, why.message))
    presence = Presence(connection, subjects, proofs, "", lambda: PresentHub(team), lambda _: None)
    await connection.open()
    try:
        return await presence.read_all() if connection.connected else None
    except LOST:
        return None
    finally:
        await connection.close()


def shown_card(card: AgentCard) -> AgentCard:
    """Return a card as other hubs see it: they do not need the instructions of its team."""
    return replace(card, prompt="") if card.prompt else card
