"""Delegations for an MCP host: started, attended while the host waits, found again, answered, cancelled."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from remit.policy.reception import Sender
from remit.protocol.envelope import Json, Request, Response
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import Approval, Kind, Progress, Record
from remit.protocol.submission import Submission
from remit.runtime.events import Events
from remit.runtime.ports import Question, RunSummary
from remit.runtime.root_runs import ActiveRun
from remit.server.access import visible
from remit.server.bodies import Headers
from remit.server.delegations import Delegations
from remit.server.lookup_endpoints import PublicCard, public
from remit.server.mcp.arguments import DelegateTask

log = logging.getLogger("remit")

# Hosts give up after a minute of silence, some after less; they have to hear something every 15 seconds.
BEAT_S = 10.0
# A question is on record a moment before it is in the inbox; a person does not notice a tenth of a second.
LOOK_S = 0.1
# What another process carries out is heard of by looking.
FAR_S = 1.0
MOST_LISTED = 20
TOGETHER = 256


class Caller(Struct, frozen=True, kw_only=True):
    """Who uses the tools, and for whom."""

    sender: Sender
    """Bound to the one user, so that nothing of anybody else can be seen or asked for."""
    user: str
    headers: Headers = {}


class HostReply(Struct, frozen=True, kw_only=True):
    """What a person did with a question that a host put to them."""

    action: Literal["accept", "decline", "cancel"]
    reason: str = ""
    edits: dict[str, Json] = {}


class McpHost(Protocol):
    """The program at the other end, as far as it can be reached while a tool is at work."""

    @property
    def asks(self) -> Literal["now", "later", "never"]:
        """Whether it can put a question to a person: while it waits, only when it is answered, or not at all."""
        ...

    async def tell(self, text: str) -> None:
        """Let it know that work goes on."""
        ...

    async def ask(self, question: Question) -> HostReply:
        """Put a question to the person there, and return what they did; raise whatever goes wrong."""
        ...


class EndedDelegation(Struct, frozen=True):
    """It is over."""

    response: Response


class RunningDelegation(Struct, frozen=True):
    """It goes on, and whoever waited has waited long enough."""

    run: str


class WaitingDelegation(Struct, frozen=True):
    """It goes on once a person agrees, who cannot be asked here, or would not say."""

    question: Question


class Open(Struct, frozen=True):
    """It goes on once these are answered, which the host does by calling again."""

    questions: tuple[Question, ...]


Came = EndedDelegation | RunningDelegation | WaitingDelegation | Open
"""What came of attending a delegation."""


Call = tuple[str, ...]
"""What tells a call of a tool from all others that are under way: who made it, on which connection, and its number."""


class Started(Struct, frozen=True):
    """A delegation under way, with all that is heard of it from its beginning on."""

    run: str
    end: asyncio.Future[Response]
    events: Events
    is_here: bool
    """Whether this process carries it out, so that everything about it is heard."""
    going: ActiveRun | None = None
    """What was begun here; None: it had been begun before."""

    @property
    def known_as(self) -> str:
        """The id by which it can be found: that of the run that the same request began before, if there is one."""
        return self.run if self.going is None else self.going.on_record or self.run


class HostDelegations:
    """What the tools do, whichever way a host came."""

    def __init__(self, delegations: Delegations) -> None:
        self._delegations = delegations
        self._hub = delegations.hub
        self._tasks: set[asyncio.Task[Response]] = set()
        self._calls: dict[str, list[Call]] = {}
        """The runs that were started here and have not ended, each with the calls that want its end."""

    def agents(self, caller: Caller) -> list[PublicCard]:
        """Return the agents that a caller may ask."""
        exposed, targets = self._delegations.exposed(), caller.sender.targets
        return [
            public(card)
            for name, card in self._hub.cards.items()
            if name in exposed and (targets is None or name in targets)
        ]

    # ── one that is new ───────────────────────────────────────────────────────────────────────────────────────────────

    async def receive(self, given: DelegateTask, caller: Caller, traceparent: str | None) -> Request:
        """Return what a host asks for as a request of this hub, or raise a `RemitError`."""
        sent = Submission(
            target=given.agent,
            id=given.request_id,
            user=caller.user,
            objective=given.task,
            input=given.input,
            capability=given.capability,
            session=given.session,
            max_tokens=given.max_tokens,
            deadline_ms=None if given.deadline_seconds is None else round(given.deadline_seconds * 1_000),
            may_delegate=given.may_delegate,
            traceparent=traceparent,
        )
        return await self._delegations.received(sent, caller.sender, caller.headers)

    async def start(self, request: Request, call: Call) -> Started | Response:
        """Start a request, or find the same under way; it goes on, whoever waits for it.

        *call* is by what the host may call it off.
        """
        events = self._hub.follow(request.run)
        going = await self._delegations.begin(request)
        if isinstance(going, Response):
            events.close()
            return going
        if going.run != request.run:
            events.close()
            events = self._hub.follow(going.run)
        if going.run not in self._calls:
            self._calls[going.run] = []
            going.task.add_done_callback(lambda _: self._calls.pop(going.run, None))
        self._calls[going.run].append(call)
        return Started(going.run, asyncio.shield(going.task), events, True, going)

    # ── one that is known ─────────────────────────────────────────────────────────────────────────────────────────────

    async def find(self, name: str, caller: Caller) -> RunSummary:
        """Return a run by its id, or by its sender's own; raise a `RemitError` unless it is the caller's to see."""
        try:
            return await self._delegations.find(name, caller.sender)
        except RemitError as error:
            message = f"{caller.user} has no delegation `{name[:100]}`"
            how = "Call delegation_status without an id to see the newest."
            raise RemitError(fault(Code.NOT_FOUND, message, suggestion=how)) from error

    async def newest(self, caller: Caller) -> list[RunSummary]:
        """Return the caller's newest runs."""
        return await self._hub.store.runs(user=caller.user, of=visible(caller.sender), limit=MOST_LISTED)

    async def outcome(self, summary: RunSummary) -> Response | None:
        """Return how a run ended, as its user gets it; None if it has not."""
        return None if summary.response is None else await self._hub.outcome(summary.run)

    def follow(self, summary: RunSummary) -> Started:
        """Return a run that was started before, here or by another process."""
        task = asyncio.get_running_loop().create_task(self._end_of(summary.run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return Started(summary.run, task, self._hub.follow(summary.run), self._hub.is_here(summary.run))

    async def _end_of(self, run: str) -> Response:
        await self._hub.store.wait(run)
        response = await self._hub.outcome(run)
        assert response is not None, "the delegation has ended"
        return response

    async def cancel(self, summary: RunSummary, caller: Caller, reason: str) -> Response | None:
        """Cancel a run and return how it ended; None if it takes its time."""
        return await self._delegations.stop(summary, caller.user, reason)

    def adopt(self, run: str, call: Call) -> None:
        """Let a run be called off by another call as well, if it was started here."""
        if run in self._calls:
            self._calls[run].append(call)

    def call_off(self, call: Call, by: str, reason: str) -> None:
        """Cancel what a call has started, because its host does not want it any more, unless it is over."""
        for run in [run for run, calls in self._calls.items() if call in calls]:
            self._hub.cancel(run, f"by {by}" + (f": {reason[:200]}" if reason else ""))

    # ── waiting ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def attend(self, started: Started, host: McpHost, caller: Caller, wait_s: float | None) -> Came:
        """Wait for the end, telling the host how it goes and putting to a person what has to be asked."""
        watch = _Watch(started, host)
        loop = asyncio.get_running_loop()
        until = None if wait_s is None else loop.time() + wait_s
        try:
            while True:
                if started.end.done():
                    return EndedDelegation(started.end.result())
                if watch.looks:
                    found = await self.questions(started.known_as)
                    watch.saw(found)
                    if found and watch.asking is None:
                        if host.asks == "later":
                            return Open(tuple(found))
                        if host.asks == "never":
                            return WaitingDelegation(found[0])
                        watch.ask(found[0])
                if until is not None and loop.time() >= until:
                    # Nobody is given an id that a crash could make worthless.
                    if started.going is not None:
                        await started.going.decided.wait()
                    return (
                        EndedDelegation(started.end.result())
                        if started.end.done()
                        else RunningDelegation(started.known_as)
                    )
                await watch.next(until)
                await watch.tell()
                if (answer := watch.answered()) is not None:
                    question, reply = answer
                    if reply is None or not await self.answer(question, reply, caller):
                        return WaitingDelegation(question)
        finally:
            watch.close()

    async def questions(self, run: str) -> list[Question]:
        """Return what a person is asked about a run at this moment, oldest first."""
        return [each for each in await self._hub.pending() if each.request.run == run]

    async def answer(self, question: Question, reply: HostReply, caller: Caller) -> bool:
        """Take what a person did with a question; False: it is still open."""
        if reply.action == "cancel":
            return False
        reason = reply.reason or f"over MCP, by way of {caller.sender.name}"
        try:
            await self._hub.decide(
                question.id, agreed=reply.action == "accept", by=caller.user, reason=reason, edits=reply.edits
            )
        except RemitError as error:
            # If someone else was faster, or it was too late, what counts is what the hub makes of it.
            log.info("question %s was not answered over MCP: %s", question.id, error.fault.message)
            return all(each.id != question.id for each in await self.questions(question.request.run))
        return True


class _Watch:
    """What is heard of one delegation while it is attended."""

    def __init__(self, started: Started, host: McpHost) -> None:
        self._started = started
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._begun = self._told = self._loop.time()
        self._said: list[str] = []
        self._open: set[str] = set()
        """Questions that were put and of which nothing more was heard."""
        self._heard: asyncio.Future[Record] | None = None
        self._deaf = False
        self._question: Question | None = None
        self.asking: asyncio.Task[HostReply] | None = None
        self.looks = True

    def saw(self, found: Sequence[Question]) -> None:
        """Note what was in the inbox; what was put and is not there yet is looked for again."""
        if self.asking is not None and self._question not in found:
            self.asking.cancel()  # answered elsewhere, or too late
        self.looks = not self._started.is_here or bool(self._open - {each.id for each in found})

    def ask(self, question: Question) -> None:
        """Put a question to the person at the host."""
        self._question = question
        self.asking = self._loop.create_task(self._host.ask(question))

    def answered(self) -> tuple[Question, HostReply | None] | None:
        """Return the question that was put and what became of it, once that is known: None, if nothing did."""
        asking, question = self.asking, self._question
        if asking is None or question is None or not asking.done():
            return None
        self.asking, self.looks = None, True
        if asking.cancelled():
            return None
        if (error := asking.exception()) is not None:
            log.info("the MCP host could not ask its user: %s", type(error).__name__)
            return question, None
        return question, asking.result()

    async def next(self, until: float | None) -> None:
        """Return when something has happened, or it is time to look or to say something."""
        now = self._loop.time()
        wait_s = max(0.0, self._told + BEAT_S - now)
        if self.looks:
            wait_s = min(wait_s, LOOK_S if self._started.is_here or self._open else FAR_S)
        if until is not None:
            wait_s = min(wait_s, max(0.0, until - now))
        if self._heard is None and not self._deaf:
            self._heard = asyncio.ensure_future(anext(self._started.events))
        happenings: list[asyncio.Future[Any] | None] = [self._started.end, self._heard, self.asking]
        waited = [each for each in happenings if each is not None]
        await asyncio.wait(waited, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        if self._heard is not None and self._heard.done():
            heard, self._heard = self._heard, None
            self._deaf = heard.exception() is not None  # the hub closes, and nothing more will be heard
            for record in () if self._deaf else (heard.result(), *self._started.events.ready(TOGETHER)):
                self._note(record)

    def _note(self, record: Record) -> None:
        match record.body:
            case Progress(agent=agent, text=text) if record.kind is Kind.PROGRESS:
                self._said.append(f"{agent}: {text}")
            case Approval(id=question, agreed=None):
                self._open.add(question)
                self.looks = True
            case Approval(id=question):
                self._open.discard(question)
                self.looks = True
            case _:
                pass

    async def tell(self) -> None:
        """Say what was heard, and that work goes on if nothing was for too long."""
        said, self._said = self._said, []
        now = self._loop.time()
        if not said and now - self._told >= BEAT_S:
            what = "waiting for approval" if self._open or self.asking else "still running"
            said = [f"{what}, {now - self._begun:.0f} s"]
        for text in said:
            await self._host.tell(text)
        if said:
            self._told = now

    def close(self) -> None:
        """Hear no more, and take back what the person was asked."""
        for task in (self._heard, self.asking):
            if task is not None:
                task.cancel()
        self._started.events.close()
        if not self._started.end.done():
            self._started.end.cancel()
