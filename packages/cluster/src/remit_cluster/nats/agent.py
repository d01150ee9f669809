"""An agent that another hub of the team hosts: its requests are in the store, and NATS brings them to a host."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, TypeVar

from remit.ports import HostingHub, Remote, RemoteHandle, StoreError
from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, Fault, fault
from remit.protocol.records import Approval, Delta, Progress
from remit.runtime.shared_requests import HandedOver, SharedRequests
from remit.transports.local import COME_BACK_MS
from remit_server.transports.remote_calls import CANCEL_S, is_known_there, lost, outgoing, refused, shielded

T = TypeVar("T")

# How often a caller that hears nothing looks at the store.
LOOK_S = 1.0
# A look at an outcome that may be there: a read takes milliseconds.
GLANCE_S = 0.05
# Calls only wait here, at some 10 KB each: more than this at once exceed the memory before.
MOST_WAITING = 100_000

QueueFull = Literal["full"]
QUEUE_FULL: QueueFull = "full"


class RunNews:
    """What a caller hears of its run over the bus."""

    def __init__(self, run: str, agent: str, line: RemoteHandle) -> None:
        self.run = run
        self.agent = agent
        self._line = line
        self._waiting: asyncio.Queue[Approval | bytes | QueueFull | None] = asyncio.Queue()

    def hear(self, body: Approval | Progress | Delta | bytes | QueueFull | None) -> None:
        """Pass on what happened; bytes: its sealed outcome; None: the run may have ended."""
        match body:
            case Progress(text=text):
                self._line.progress(text, None)
            case Delta(text=text):
                self._line.say(text)
            case _:
                self._waiting.put_nowait(body)

    async def next(self, within_s: float) -> Approval | bytes | QueueFull | None:
        """Return the next question or answer, the sealed outcome, or a full queue; None: look at the store."""
        try:
            async with asyncio.timeout(within_s):
                return await self._waiting.get()
        except TimeoutError:
            return None


class Carrier(Protocol):
    """Brings requests to hosts: see `bus.py`."""

    @property
    def connected(self) -> bool: ...

    @property
    def patience_s(self) -> float: ...

    def is_hosted(self, agent: str) -> bool: ...

    def hosts_of(self, agent: str) -> tuple[HostingHub, ...]: ...

    async def wait_for_host(self, agent: str, within_s: float) -> bool: ...

    def is_resumable(self, agent: str) -> bool | None: ...

    def is_full(self, request: Request) -> bool: ...

    def queued_here(self, agent: str) -> int: ...

    async def offer(self, request: Request, run: str, *, live: bool) -> None:
        """Bring a request to a host, or queue it when its turn comes; who listens hears if the queue is full."""
        ...

    async def cancel_call(self, agent: str, run: str, user: str) -> bool:
        """Stop a request that nobody waits for any more; True: no host had taken it."""
        ...

    def listen(self, news: RunNews) -> None: ...

    def leave_run(self, news: RunNews) -> None: ...


class BusAgent(Remote):
    """One agent that other hubs on the same store host."""

    shares_store = True
    judges_tools = True

    def slots(self, concurrency: int) -> int:  # noqa: ARG002 - each host has that many, and the queue is there
        """Return how many calls to it may wait here."""
        return MOST_WAITING

    def __init__(self, name: str, carrier: Carrier, shared: SharedRequests) -> None:
        self._name = name
        self._carrier = carrier
        self._shared = shared

    def hosts(self) -> tuple[HostingHub, ...]:
        """Return the hubs on the bus that host it."""
        return self._carrier.hosts_of(self._name)

    def queued(self) -> int:
        """Return how many requests to it wait here until it is their turn in the queue."""
        return self._carrier.queued_here(self._name)

    async def is_resumable(self, within_s: float) -> bool | None:
        """Return whether its hosts may execute it again after a restart: the cards that they publish decide."""
        await self._carrier.wait_for_host(self._name, min(within_s, self._carrier.patience_s))
        return self._carrier.is_resumable(self._name)

    async def send(self, request: Request, line: RemoteHandle) -> Response:
        """Submit a request for any host, and return its outcome; if cancelled, cancel it there, too."""
        carrier, name = self._carrier, self._name
        left = await _outlasting(lambda: line.depart(f"{name} on the bus", in_store=True))
        if left is not None and not is_known_there(line, left):
            why = fault(Code.OUTCOME_UNKNOWN, f"the request to {name} is too old to be sent again")
            return lost(request, why, sent=True)
        if left is None:
            if carrier.is_full(request):
                return refused(request, overloaded(name))
            within_s = min(carrier.patience_s, line.time_left_ms() / 2_000)
            # Without NATS, hosts find the request in the store.
            if carrier.connected and not await carrier.wait_for_host(name, within_s):
                return refused(request, _nobody(name))
        line.doubt(f"the outcome at {name} is unknown")
        # If the store fails in a commit, nobody knows whether the request is there for a host to take. Under the same
        # id it is submitted once, however often it is tried.
        submitted = _outlasting(lambda: self._shared.submit(outgoing(request, line), request.approved))
        submitting = asyncio.ensure_future(submitted)
        try:
            handed = await asyncio.shield(submitting)
            return handed.response or await self._end_of(handed.run, request, line)
        except asyncio.CancelledError:
            # A resumed run submits the same request under the same id, and gets its outcome.
            if not line.handed_back:
                await shielded(self._cancel_submitted(submitting, request, line), CANCEL_S)
            raise
        finally:
            submitting.cancel()

    async def _end_of(self, run: str, request: Request, line: RemoteHandle) -> Response:
        news = RunNews(run, self._name, line)
        self._carrier.listen(news)
        try:
            await self._carrier.offer(request, run, live=line.has_listeners)
            return await self._follow(run, request, line, news)
        finally:
            self._carrier.leave_run(news)

    async def _follow(self, run: str, request: Request, line: RemoteHandle, news: RunNews) -> Response:
        """Return the outcome; questions to people stop the clock here meanwhile."""
        carrier, loop = self._carrier, asyncio.get_running_loop()
        reported: set[tuple[str, bool | None]] = set()
        last, alone_since = 0, loop.time()
        while True:
            event = await news.next(LOOK_S if carrier.connected else 0)
            questions: list[Approval] = []
            if isinstance(event, Approval):
                questions = [event]
            try:
                if event == QUEUE_FULL:
                    why = overloaded(self._name)
                    if await self._shared.withdraw(run, why):
                        line.doubt("")
                        return refused(request, why)
                    event = None
                if isinstance(event, bytes):
                    if (ended := await self._shared.opened(run, event)) is not None:
                        return ended
                    event = None
                if event is None:
                    ended = await self._shared.outcome(run, GLANCE_S if carrier.connected else LOOK_S)
                    if ended is not None:
                        return ended
                    last, questions = await self._shared.approvals(run, last)
                    if carrier.is_hosted(self._name):
                        alone_since = loop.time()
                    elif loop.time() - alone_since > carrier.patience_s:
                        alone_since = loop.time()
                        if await self._shared.withdraw(run, _nobody(self._name)):
                            line.doubt("")
                            return refused(request, _nobody(self._name))
            except StoreError:
                await asyncio.sleep(LOOK_S)  # it has the outcome once it is back; the deadline ends the wait
            for question in questions:
                if (question.id, question.agreed) not in reported:
                    reported.add((question.id, question.agreed))
                    await line.record_approval(question)

    async def _cancel_submitted(
        self, submitting: asyncio.Future[HandedOver], request: Request, line: RemoteHandle
    ) -> None:
        """Stop a request that nobody waits for any more, and keep what it had finished.

        It may still be on its way to the store: a commit ends, whoever waits for it.
        """
        run = (await submitting).run
        if await self._carrier.cancel_call(self._name, run, request.remit.user):
            line.doubt("")
        elif (ended := await self._shared.outcome(run, CANCEL_S)) is not None:
            line.settle(ended)


async def _outlasting(act: Callable[[], Awaitable[T]]) -> T:
    """Return the result of *act*, tried again for as long as the store is away; the deadline ends the wait."""
    while True:
        try:
            return await act()
        except StoreError as error:
            if error.fault.code is not Code.STORE_UNAVAILABLE:
                raise
        await asyncio.sleep(LOOK_S)


def _nobody(agent: str) -> Fault:
    how = f"Start a host: remit worker {agent}"
    return fault(Code.DELEGATION_UNAVAILABLE, f"no hub hosts {agent} at the moment", suggestion=how)


def overloaded(agent: str) -> Fault:
    """Return the fault of a request for which there is no place in the queue of its agent."""
    why = f"the queue of {agent} is full on all hubs that host it"
    return fault(Code.OVERLOADED, why, retry_after_ms=COME_BACK_MS)
