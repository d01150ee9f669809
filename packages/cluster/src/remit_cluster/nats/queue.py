"""The requests that found every host busy, in a stream in the memory of NATS.

Hosts pull from it when they have a free slot. It holds no truth: the requests are in the store, and what the stream
loses, the sweep of the hosts finds there.
"""

import logging

import msgspec
import nats.errors
from msgspec import Struct
from nats.js import api
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError, ServiceUnavailableError

from remit.policy.shares import order_of_turn
from remit.protocol.remit import Priority
from remit_cluster.nats.connection import CONNECT_S, Connection, in_words
from remit_cluster.nats.proofs import BusProofs
from remit_cluster.nats.subjects import Offer, Subjects, encode, read_offer

log = logging.getLogger("remit")

# A request that waits longer than a root run may take has lost its caller; the store still has it.
KEEP_S = 600.0
# Far more than all bounded queues of a team together: the bound of each agent is checked before.
MOST = 1_000_000
# A host that is given a message acknowledges it at once: after this, another host gets it.
ACK_S = 5.0
_GONE = (NoStreamResponseError, ServiceUnavailableError, NotFoundError, nats.errors.NoRespondersError)
_NEXT = b'{"batch":1,"no_wait":true}'


class _Info(Struct):
    """The part of a stream's state that counts its messages by subject."""

    subjects: dict[str, int] | None = None


class WorkQueue:
    """Requests that wait for a host, by agent and priority."""

    def __init__(self, connection: Connection, subjects: Subjects, proofs: BusProofs) -> None:
        self._connection = connection
        self._subjects = subjects
        self._proofs = proofs
        self._consumers: set[str] = set()
        self._pulls: dict[str, int] = {}

    async def open(self) -> None:
        """Make the stream if it is not there: the server may have lost it."""
        self._consumers.clear()
        stream = api.StreamConfig(
            name=self._subjects.stream,
            subjects=[self._subjects.queues],
            retention=api.RetentionPolicy.WORK_QUEUE,
            storage=api.StorageType.MEMORY,
            discard=api.DiscardPolicy.NEW,
            max_msgs=MOST,
            max_age=KEEP_S,
            num_replicas=self._connection.settings.replicas,
        )
        made = self._connection.jetstream.add_stream(stream)  # pyright: ignore[reportUnknownMemberType]
        await self._connection.make(made)

    async def put(self, agent: str, priority: Priority, offer: Offer) -> None:
        """Queue a request; raise one of `LOST` if that cannot be done."""
        subject = self._subjects.queue(agent, priority)
        payload = self._proofs.sign(subject, encode(offer))
        try:
            await self._connection.jetstream.publish(subject, payload)
        except _GONE:  # its storage was wiped
            await self.open()
            await self._connection.jetstream.publish(subject, payload)
        queued = self._subjects.queued(agent)
        await self._connection.publish(queued, self._proofs.sign(queued, b""))

    async def depth(self, agent: str) -> int:
        """Return how many requests for an agent are queued."""
        wanted = self._subjects.queue(agent, "*")
        reply = await self._connection.request(
            f"$JS.API.STREAM.INFO.{self._subjects.stream}",
            msgspec.json.encode({"subjects_filter": wanted}),
            CONNECT_S,
        )
        state = msgspec.json.decode(reply.data, type=dict[str, msgspec.Raw]).get("state")
        depths = None if state is None else msgspec.json.decode(state, type=_Info).subjects
        return sum((depths or {}).values())

    async def next(self, agent: str) -> Offer | None:
        """Return the next request for an agent, in the order of priority; None if there is none."""
        for priority in self._order(agent):
            try:
                if (offer := await self._pull(agent, priority)) is not None:
                    return offer
            except _GONE:
                await self.open()
        return None

    def _order(self, agent: str) -> tuple[Priority, ...]:
        """Return the order of the queues: as in one process, nothing is overtaken for ever."""
        pulls = self._pulls[agent] = self._pulls.get(agent, 0) + 1
        return order_of_turn(pulls)

    async def _pull(self, agent: str, priority: Priority) -> Offer | None:
        stream, consumer = self._subjects.stream, self._subjects.consumer(agent, priority)
        if consumer not in self._consumers:
            await self._add_consumer(agent, priority)
        place = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        while True:
            message = await self._connection.request(place, _NEXT, CONNECT_S, alone=True)
            status = (message.headers or {}).get("Status")
            if status == "503":
                raise nats.errors.NoRespondersError
            if not message.reply or status:
                return None  # nothing is queued
            await self._connection.publish(message.reply, b"+ACK")
            # What cannot be read must not hide what is queued behind it.
            if (offer := self._read_offer(agent, priority, message.data)) is not None:
                return offer

    def _read_offer(self, agent: str, priority: Priority, message: bytes) -> Offer | None:
        subject = self._subjects.queue(agent, priority)
        proven = self._proofs.read(subject, message, "a queued request", keep_ms=round(KEEP_S * 1_000))
        if proven is None:
            return None
        try:
            return read_offer(proven.body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            log.warning("invalid message in the queue of %s", agent)
            return None

    async def _add_consumer(self, agent: str, priority: Priority) -> None:
        name = self._subjects.consumer(agent, priority)
        config = api.ConsumerConfig(
            durable_name=name,
            filter_subject=self._subjects.queue(agent, priority),
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=ACK_S,
            max_ack_pending=MOST,
            mem_storage=True,
        )
        try:
            stream = self._connection.jetstream
            await stream.add_consumer(self._subjects.stream, config)  # pyright: ignore[reportUnknownMemberType]
        except APIError as error:
            if isinstance(error, _GONE):
                raise
            log.warning("the queue of %s cannot be read: %s", agent, in_words(error))
            raise nats.errors.Error(in_words(error)) from error
        self._consumers.add(name)
