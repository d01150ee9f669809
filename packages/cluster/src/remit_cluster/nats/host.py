"""The serving side of the bus: a hub takes requests for the agents that it hosts, never more than its free slots."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine

import msgspec
from nats.aio.msg import Msg

from remit.ports import OrphanedRun
from remit.protocol.codec import encode as encode_value
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import RemitError
from remit.protocol.records import Approval, Delta, Progress, Record
from remit.runtime.events import Events
from remit.runtime.shared_requests import SharedRequests
from remit_cluster.nats.connection import LOST, Connection, in_words
from remit_cluster.nats.proofs import BusProofs
from remit_cluster.nats.queue import WorkQueue
from remit_cluster.nats.subjects import BUSY, EVERY_HUB, TAKEN, News, Offer, Subjects, encode, read_offer

log = logging.getLogger("remit")

# A message of NATS has at most 1 MB by default; a larger outcome is read from the store.
MOST_SEALED = 256 * 1_024

Follow = Callable[[str, bool], Events]
"""Follows a run, with live text or without."""


class BusHost:
    """Takes requests from the bus and from the store, and says how their runs go."""

    def __init__(
        self,
        connection: Connection,
        subjects: Subjects,
        queue: WorkQueue,
        proofs: BusProofs,
        shared: SharedRequests,
        follow: Follow,
        agents: Collection[str],
    ) -> None:
        self._connection = connection
        self._subjects = subjects
        self._queue = queue
        self._proofs = proofs
        self._shared = shared
        self._follow = follow
        self.agents = frozenset(agents)
        self.draining = False
        """Whether it takes nothing new."""
        self._starting: dict[str, str] = {}
        """Runs that were taken and have no slot yet, with their agents."""
        self._queued: set[str] = set()
        """Agents for which requests may be queued."""
        self._pulling: set[str] = set()
        self._runs: dict[str, Offer] = {}
        """Runs that were taken and have not ended."""
        self._followed: dict[str, tuple[Events, asyncio.Task[None]]] = {}
        """Runs whose records are told to their callers."""
        self._outcomes: dict[str, Response] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        shared.watch(
            unclaimed=self._take_expired,
            started=self._has_slot,
            freed=self._freed,
            asking=self._asking,
            ended=self._ended,
        )

    async def subscribe(self) -> None:
        """Hear of requests for the hosted agents; called after each connection."""
        for agent in sorted(self.agents):
            await self._connection.subscribe(self._subjects.offer(agent), self._offered(agent), "hosts")
            await self._connection.subscribe(self._subjects.queued(agent), self._queue_notices(agent))
        await self._connection.settle()

    def look(self) -> None:
        """Look for queued requests for every agent."""
        for agent in sorted(self.agents):
            self._queued.add(agent)
            self._pull(agent)

    @property
    def in_progress(self) -> int:
        """How many requests were taken and have not ended."""
        return len(self._runs)

    async def drain(self, within_s: float) -> None:
        """Take nothing new, and return once what was taken has ended, or *within_s* is over."""
        self.draining = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)

    async def close(self) -> None:
        """Return once the end of every run was said."""
        self.draining = True
        tasks = set(self._tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=1)
            for task in late:
                task.cancel()

    # ── what is offered ───────────────────────────────────────────────────────────────────────────────────────────────

    def _vacant(self, agent: str) -> int:
        if self.draining:
            return 0
        return self._shared.free_slots(agent) - sum(each == agent for each in self._starting.values())

    def free(self, agent: str) -> int:
        """Return how many more requests for an agent this hub takes now."""
        return max(0, self._vacant(agent))

    def _offered(self, agent: str) -> Callable[[Msg], Awaitable[None]]:
        async def answer(message: Msg) -> None:
            proven = self._proofs.read(message.subject, message.data, "an offer")
            if proven is None:
                return
            try:
                offer = read_offer(proven.body)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return
            # What is queued came earlier.
            if agent in self._queued or self._vacant(agent) <= 0:
                await self._publish(message.reply, BUSY)
                return
            self._take(agent, offer)
            await self._publish(message.reply, TAKEN)

        return answer

    def _queue_notices(self, agent: str) -> Callable[[Msg], Awaitable[None]]:
        async def pull_queued(message: Msg) -> None:
            if self._proofs.read(message.subject, message.data, "a notice of a queued request") is not None:
                self._queued.add(agent)
                self._pull(agent)

        return pull_queued

    def _freed(self, agent: str) -> None:
        """Pull the next request for an agent that has a free slot."""
        if agent in self._queued:
            self._pull(agent)

    def _pull(self, agent: str) -> None:
        if agent not in self._pulling and self._vacant(agent) > 0 and self._connection.connected:
            self._pulling.add(agent)
            self._start(self._pull_all(agent))

    async def _pull_all(self, agent: str) -> None:
        """Take what is queued for an agent, as long as it has free slots."""
        try:
            while self._vacant(agent) > 0:
                self._queued.discard(agent)
                offer = await self._queue.next(agent)
                if offer is None:
                    if agent not in self._queued:  # else something came while it was looked for
                        return
                    continue
                self._queued.add(agent)
                self._take(agent, offer, tell=True)
        except LOST as error:
            log.debug("the queue of %s cannot be read: %s", agent, in_words(error))
        finally:
            self._pulling.discard(agent)

    def _take_expired(self, expired: OrphanedRun) -> None:
        """Take a request that the sweep of the store found, if there is a free slot."""
        agent = expired.request.target
        if agent in self.agents and self._vacant(agent) > 0:
            self._take(agent, Offer(expired.run), tell=True)

    # ── a run ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _has_slot(self, request: Request) -> None:
        """Note that a request has its slot."""
        self._starting.pop(request.run, None)

    def _take(self, agent: str, offer: Offer, *, tell: bool = False) -> None:
        if offer.run not in self._runs:  # it may be offered, queued and found in the store
            self._runs[offer.run] = offer
            self._starting[offer.run] = agent
            self._start(self._carry(agent, offer, tell=tell))

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _carry(self, agent: str, offer: Offer, *, tell: bool) -> None:
        """Take a request, *tell* its caller so, and say what happens in its run until it ends."""
        if offer.live:
            self._tell(offer)
        try:
            if tell:
                await self._publish(self._subjects.news(offer.home, offer.run), TAKEN)
            going = await self._shared.take(offer.run, new=offer.home != EVERY_HUB)
            if going is not None:
                await asyncio.wait({going.task})
                await self._say_end(offer)
        except RemitError as error:  # the request is still in the store, for this host or another
            log.error("%s could not be taken: %s", offer.run, error.fault.message)
        finally:
            if (following := self._followed.pop(offer.run, None)) is not None:
                following[0].close()
            self._outcomes.pop(offer.run, None)
            self._starting.pop(offer.run, None)
            self._runs.pop(offer.run, None)
            self._freed(agent)

    async def _say_end(self, offer: Offer) -> None:
        """Tell the caller that a run has ended, after everything that happened in it."""
        if (following := self._followed.pop(offer.run, None)) is not None:
            events, telling = following
            events.close()
            await asyncio.wait({telling})
        response = self._outcomes.pop(offer.run, None)
        sealed = b"" if response is None else self._shared.sealed_outcome(offer.run, response)
        news = News(outcome=sealed if len(sealed) <= MOST_SEALED else b"")
        await self._publish(self._subjects.news(offer.home, offer.run), encode(news))

    def _ended(self, run: str, response: Response) -> None:
        if run in self._runs:
            self._outcomes[run] = response

    def _asking(self, run: str) -> None:
        """Tell the caller of questions to people, whose clock stands still meanwhile; few runs have any."""
        if (offer := self._runs.get(run)) is not None:
            self._tell(offer)

    def _tell(self, offer: Offer) -> None:
        if offer.run not in self._followed:
            events = self._follow(offer.run, offer.live)
            self._followed[offer.run] = events, self._start(self._tell_records(offer, events))

    async def _tell_records(self, offer: Offer, events: Events) -> None:
        subject = self._subjects.news(offer.home, offer.run)
        async for record in events:
            if isinstance(record.body, Approval):
                self._starting.pop(offer.run, None)  # it waits for a person, and needs no slot meanwhile
            if _is_news(record, offer):
                await self._publish(subject, encode(News(record.kind, msgspec.Raw(encode_value(record.body)))))

    async def _publish(self, subject: str, body: bytes) -> None:
        await self._connection.publish(subject, self._proofs.sign(subject, body))


def _is_news(record: Record, offer: Offer) -> bool:
    match record.body:
        case Approval():
            return True
        case Progress():
            return offer.live
        case Delta(delegation=delegation):
            return offer.live and delegation == offer.run
        case _:
            return False
