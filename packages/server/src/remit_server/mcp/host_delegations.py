"""Delegations for an MCP host: started, followed while the host waits, found again, answered, cancelled."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from remit.policy.reception import Sender
from remit.ports import Question, RunSummary
from remit.protocol.envelope import Json, Request, Response
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import Approval, Kind, Notice, Progress, Record, Refusal, ToolUse, outward
from remit.protocol.submission import Submission
from remit.runtime.active_runs import ActiveRun
from remit.runtime.events import Events
from remit.runtime.lent_models import Sampler
from remit_server.access import asked_for, visible
from remit_server.agent_endpoints import public
from remit_server.bodies import Headers
from remit_server.delegations import Delegations, order_of
from remit_server.documents.api_values import PublicCard
from remit_server.mcp.arguments import DelegateTask

Level = Literal["debug", "info", "notice", "warning"]


class LogLine(Struct, frozen=True, kw_only=True):
    """One message."""

    level: Level
    run: str
    text: str

    @property
    def data(self) -> dict[str, str]:
        return {"run": self.run, "message": self.text}


def log_line(record: Record) -> LogLine | None:
    """Return what a host hears of a record; None: nothing. Progress has notifications of its own."""
    level, text = _log_line(outward(record))
    return None if level is None else LogLine(level=level, run=record.run, text=text)


def _log_line(record: Record) -> tuple[Level | None, str]:
    match record.body:
        case Notice(agent=agent, text=text, code=code):
            return "notice" if code is None else "warning", f"{agent}: {text}"
        case Refusal(request=request, response=response):
            why = response.fault
            reason = "" if why is None else f": {why.code}: {why.message}"
            return "warning", f"{request.origin} could not call {request.target}{reason}"
        case Approval(agreed=None, question=question):
            return "notice", f"a person is asked: {question}"
        case Approval(agreed=agreed, by=by, question=question):
            return "notice", f"{'approved' if agreed else 'declined'} by {by}: {question}"
        case ToolUse(agent=agent, tool=tool, fault=None, begun=False):
            return "debug", f"{agent} used {tool}"
        case ToolUse(agent=agent, tool=tool, fault=why) if why is not None:
            return "warning", f"{agent} could not use {tool}: {why.code}: {why.message}"
        case Request(origin=origin, target=target) if record.kind is Kind.DELEGATION:
            return "info", f"{origin} called {target}"
        case Response(target=target, status=status):
            return "info", f"{target} ended: {status}"
        case _:
            return None, ""


log = logging.getLogger("remit")

# Hosts time out after a minute of silence, some after less; they need a message every 15 seconds.
BEAT_S = 10.0
# A question is recorded a moment before it is in the inbox; a person does not notice a tenth of a second.
LOOK_S = 0.1
# Runs in another process are polled.
FAR_S = 1.0
MOST_LISTED = 20
TOGETHER = 256


class Caller(Struct, frozen=True, kw_only=True):
    """The client of the tools, and its user."""

    sender: Sender
    """Bound to the one user, so that nothing of other users can be seen or asked for."""
    user: str
    headers: Headers = {}


class HostReply(Struct, frozen=True, kw_only=True):
    """What a person did with a question that a host asked."""

    action: Literal["accept", "decline", "cancel"]
    reason: str = ""
    edits: dict[str, Json] = {}


class McpHost(Protocol):
    """The MCP host, as far as it can be reached while a tool runs."""

    @property
    def asks(self) -> Literal["now", "later", "never"]:
        """Whether it can ask its user: during the call, only by returning from it, or not at all."""
        ...

    def can_show(self, question: Question) -> bool:
        """Return whether its user sees all of a question."""
        ...

    async def tell(self, text: str) -> None:
        """Report that work continues."""
        ...

    async def log(self, line: LogLine) -> None:
        """Send a log message, if the host wants to hear of its level."""
        ...

    @property
    def model(self) -> Sampler | None:
        """The model that it lends to the runs that it waits for; None: it lends none."""
        ...

    async def ask(self, question: Question) -> HostReply:
        """Ask the user of the host, and return what they did; raises any error."""
        ...


class EndedDelegation(Struct, frozen=True):
    """The delegation ended."""

    response: Response


class RunningDelegation(Struct, frozen=True):
    """The delegation is running, and the wait time is over."""

    run: str


class WaitingDelegation(Struct, frozen=True):
    """The delegation waits for a person, who cannot be asked here or did not answer."""

    question: Question


class OpenQuestions(Struct, frozen=True):
    """The delegation waits for answers, which the host gives by calling again."""

    questions: tuple[Question, ...]


Came = EndedDelegation | RunningDelegation | WaitingDelegation | OpenQuestions
"""The result of waiting for a delegation."""


Call = tuple[str, ...]
"""Identifies a running tool call: sender, user, session and request number."""


class Started(Struct, frozen=True):
    """A running delegation, with all its events from the start."""

    run: str
    end: asyncio.Future[Response]
    events: Events
    is_here: bool
    """Whether this process executes it, so that all its events arrive here."""
    going: ActiveRun | None = None
    """The run that was started here; None: it was started before."""

    @property
    def known_as(self) -> str:
        """The id to find it by: that of the first run of the same request, if there is one."""
        return self.run if self.going is None else self.going.on_record or self.run


class HostDelegations:
    """What the tools do, over every transport of MCP."""

    def __init__(self, delegations: Delegations) -> None:
        self._delegations = delegations
        self._hub = delegations.hub
        self._tasks: set[asyncio.Task[Response]] = set()
        self._calls: dict[str, list[Call]] = {}
        """The runs that were started here and have not ended, each with the calls that wait for it."""

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
        """Return a host's task as a request of this hub, or raise a `RemitError`."""
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
        """Start a request, or attach to the same one if it is running; it continues even if nobody waits for it.

        The host may cancel it by *call*.
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

    def lending(self, run: str, host: McpHost) -> AbstractContextManager[None]:
        """Let the agents of a run ask the model of a host, if it lends one, while the block lasts."""
        return self._hub.lent_models.lend(run, host.model)

    # ── one that is known ─────────────────────────────────────────────────────────────────────────────────────────────

    async def find(self, name: str, caller: Caller) -> RunSummary:
        """Return a run by its id or by the sender's request id; raise a `RemitError` unless the caller may see it."""
        try:
            return await self._delegations.find(name, caller.sender)
        except RemitError as error:
            if error.fault.code is not Code.NOT_FOUND:
                raise
            message = f"{caller.user} has no delegation `{name[:100]}`"
            how = "Call delegation_status without an id to see the newest."
            raise RemitError(fault(Code.NOT_FOUND, message, suggestion=how)) from error

    async def newest(self, caller: Caller) -> list[RunSummary]:
        """Return the caller's newest runs."""
        return await self._hub.store.runs(user=caller.user, of=visible(caller.sender), limit=MOST_LISTED)

    async def records(self, run: str, most: int) -> list[Record]:
        """Return the first records of a run."""
        return await self._hub.store.records(run=run, limit=most)

    async def outcome(self, summary: RunSummary, caller: Caller) -> Response | None:
        """Return the outcome of a run, with values in clear if the caller asked for it; None if it has not ended."""
        raw = asked_for(caller.sender, summary)
        return None if summary.response is None else await self._hub.outcome(summary.run, raw=raw)

    def follow(self, summary: RunSummary, caller: Caller | None = None) -> Started:
        """Follow a run that was started before, here or by another process; for nobody in particular, with tokens."""
        raw = caller is not None and asked_for(caller.sender, summary)
        task = asyncio.get_running_loop().create_task(self._end_of(summary.run, raw=raw))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return Started(summary.run, task, self._hub.follow(summary.run, raw=raw), self._hub.is_running(summary.run))

    async def _end_of(self, run: str, *, raw: bool) -> Response:
        await self._hub.store.wait(run)
        response = await self._hub.outcome(run, raw=raw)
        assert response is not None, "the delegation has ended"
        return response

    async def cancel(self, name: str, caller: Caller, reason: str) -> tuple[str, str, Response | None]:
        """Cancel a run, also while the store is away; return its id, its agent and its outcome, if they are known."""
        order = replace(order_of(name, caller.sender, None, reason), by=caller.user)
        run, summary, outcome = await self._delegations.cancel(order, partial(self.find, name, caller))
        if summary is None:
            return run, "", None
        if outcome is not None:
            outcome = await self._hub.outcome(run, raw=asked_for(caller.sender, summary))
        return run, summary.agent, outcome

    def adopt(self, run: str, call: Call) -> None:
        """Allow another call to cancel a run, too, if it was started here."""
        if run in self._calls:
            self._calls[run].append(call)

    def call_off(self, call: Call, by: str, reason: str) -> None:
        """Cancel the run of a call that its host has cancelled, unless it has ended."""
        for run in [run for run, calls in self._calls.items() if call in calls]:
            self._hub.cancel(run, f"by {by}" + (f": {reason[:200]}" if reason else ""))

    # ── waiting ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def attend(self, started: Started, host: McpHost, caller: Caller, wait_s: float | None) -> Came:
        """Wait for the outcome, reporting progress to the host and asking its user where needed."""
        watch = _DelegationEvents(started, host)
        loop = asyncio.get_running_loop()
        until = None if wait_s is None else loop.time() + wait_s
        try:
            while True:
                if started.end.done():
                    await watch.rest()
                    return EndedDelegation(started.end.result())
                if watch.looks:
                    questions = await self.questions(started.known_as)
                    watch.note_questions(questions)
                    if questions and watch.asking is None:
                        shown = [each for each in questions if host.can_show(each)]
                        if host.asks == "never" or not shown:
                            return WaitingDelegation(questions[0])
                        if host.asks == "later":
                            return OpenQuestions(tuple(shown))
                        watch.ask(shown[0])
                if until is not None and loop.time() >= until:
                    # An id is given out only once the run is durable.
                    if started.going is not None:
                        await started.going.decided.wait()
                    if started.end.done():
                        return EndedDelegation(started.end.result())
                    if questions := await self.questions(started.known_as):
                        return WaitingDelegation(questions[0])
                    return RunningDelegation(started.known_as)
                await watch.next(until)
                await watch.tell()
                if (answer := watch.answered()) is not None:
                    question, reply = answer
                    if reply is None or not await self.answer(question, reply, caller):
                        return WaitingDelegation(question)
        finally:
            watch.close()

    async def questions(self, run: str) -> list[Question]:
        """Return the open questions of a run, oldest first."""
        return (await self.questions_of((run,))).get(run, [])

    async def questions_of(self, runs: Collection[str]) -> dict[str, list[Question]]:
        """Return the open questions of several runs, by run, oldest first."""
        questions: dict[str, list[Question]] = {}
        for each in await self._hub.pending() if runs else ():
            if each.request.run in runs:
                questions.setdefault(each.request.run, []).append(each)
        return questions

    async def answer(self, question: Question, reply: HostReply, caller: Caller) -> bool:
        """Apply what a person did with a question; False: it is still open."""
        if reply.action == "cancel":
            return False
        reason = reply.reason or f"over MCP, by way of {caller.sender.name}"
        try:
            await self._hub.decide(
                question.id, agreed=reply.action == "accept", by=caller.user, reason=reason, edits=reply.edits
            )
        except RemitError as error:
            # If someone else was faster, or it was too late, the hub decides.
            log.info("question %s was not answered over MCP: %s", question.id, error.fault.message)
            return all(each.id != question.id for each in await self.questions(question.request.run))
        return True


class _DelegationEvents:
    """The events of one delegation while a host waits for it."""

    def __init__(self, started: Started, host: McpHost) -> None:
        self._started = started
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._begun = self._reported_at = self._loop.time()
        self._reports: list[str] = []
        self._lines: list[LogLine] = []
        self._open: set[str] = set()
        """Questions that were asked and are not resolved."""
        self._next_record: asyncio.Future[Record] | None = None
        self._deaf = False
        self._question: Question | None = None
        self.asking: asyncio.Task[HostReply] | None = None
        self.looks = True

    def note_questions(self, questions: Sequence[Question]) -> None:
        """Note the questions in the inbox; those that were asked and are not there yet are looked for again."""
        if self.asking is not None and self._question not in questions:
            self.asking.cancel()  # answered elsewhere, or too late
        self.looks = not self._started.is_here or bool(self._open - {each.id for each in questions})

    def ask(self, question: Question) -> None:
        """Ask the user of the host a question."""
        self._question = question
        self.asking = self._loop.create_task(self._host.ask(question))

    def answered(self) -> tuple[Question, HostReply | None] | None:
        """Return the question that was asked and its answer, once known; None if there is none."""
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
        """Return when something happened, or it is time to poll or to report."""
        now = self._loop.time()
        wait_s = max(0.0, self._reported_at + BEAT_S - now)
        if self.looks:
            wait_s = min(wait_s, LOOK_S if self._started.is_here or self._open else FAR_S)
        if until is not None:
            wait_s = min(wait_s, max(0.0, until - now))
        if self._next_record is None and not self._deaf:
            self._next_record = asyncio.ensure_future(anext(self._started.events))
        happenings: list[asyncio.Future[Any] | None] = [self._started.end, self._next_record, self.asking]
        waited = [each for each in happenings if each is not None]
        await asyncio.wait(waited, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        if self._next_record is not None and self._next_record.done():
            received, self._next_record = self._next_record, None
            self._deaf = received.exception() is not None  # the hub is closing, and no more events will arrive
            for record in () if self._deaf else (received.result(), *self._started.events.ready(TOGETHER)):
                self._note(record)

    async def rest(self) -> None:
        """Report what happened before the end and was not reported yet."""
        if self._next_record is not None and self._next_record.done() and self._next_record.exception() is None:
            received, self._next_record = self._next_record, None
            self._note(received.result())
        for record in self._started.events.ready(TOGETHER):
            self._note(record)
        await self.tell()

    def _note(self, record: Record) -> None:
        if (line := log_line(record)) is not None:
            self._lines.append(line)
        match record.body:
            case Progress(agent=agent, text=text) if record.kind is Kind.PROGRESS:
                self._reports.append(f"{agent}: {text}")
            case Approval(id=question, agreed=None):
                self._open.add(question)
                self.looks = True
            case Approval(id=question):
                self._open.discard(question)
                self.looks = True
            case _:
                pass

    async def tell(self) -> None:
        """Report progress and what is logged, or that work continues after a silent interval."""
        lines, self._lines = self._lines, []
        for line in lines:
            await self._host.log(line)
        reports, self._reports = self._reports, []
        now = self._loop.time()
        if not reports and now - self._reported_at >= BEAT_S:
            what = "waiting for approval" if self._open or self.asking else "still running"
            reports = [f"{what}, {now - self._begun:.0f} s"]
        for text in reports:
            await self._host.tell(text)
        if reports:
            self._reported_at = now

    def close(self) -> None:
        """Stop listening, and withdraw the open question."""
        for task in (self._next_record, self.asking):
            if task is not None:
                task.cancel()
        self._started.events.close()
        if not self._started.end.done():
            self._started.end.cancel()


EVERYONE = "*"


class McpOffer(Struct, frozen=True, kw_only=True):
    """The settings of a hub for MCP hosts."""

    tools: frozenset[str] = frozenset()
    """The agents that are tools of their own; `"*"` means all that a host may ask."""
    sampling: bool = True
    """Whether agents may ask the model of a host that offers it."""
