"""The delegations that a server receives, whatever protocol they arrive by, up to their end or a question."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from remit.hub.hub import Hub
from remit.policy.reception import Permission, Sender
from remit.policy.shares import SharedTotal, ShareOwner
from remit.ports import RunScope, RunSummary, SingleUseProof, StoreError
from remit.protocol.envelope import Request, Response, Usage
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import Approval, Kind, Notice, Record
from remit.protocol.submission import Submission
from remit.runtime.active_runs import ActiveRun
from remit.runtime.clock import LoopClock
from remit.runtime.events import Events
from remit.runtime.sessions import session_of
from remit.runtime.shared_requests import CancelOrder
from remit.transports.local import FairSlots
from remit_server.access import BROWSER, OPERATION, SenderGate, asked_for, may_see, visible
from remit_server.bodies import ClientGone, Headers, Receive, Scope
from remit_server.connections import MOST_CONNECTIONS
from remit_server.documents.api import ApiOperation
from remit_server.documents.api_values import Handle
from remit_server.refusals import REFUSALS, SENDER, Refusals, enter
from remit_server.run_trees import RunTrees

# How long to wait for the outcome after a cancel: the grace time of a callee, and a little for the network.
CANCEL_WAIT_S = 3.5
GONE = "the client disconnected"
# Requests that are admitted at once; the others wait, each client and user in turn. They share commits: at 20 ms for
# each, 16 at once still allow 800 requests in a second, more than one process has time for.
ADMITTED_AT_ONCE = 16

_wall_ms = LoopClock().wall_ms


class Delegations:
    """The delegations that a server received: who sent them, how they begin, and how they end."""

    def __init__(
        self,
        hub: Hub,
        gate: SenderGate,
        exposed: Callable[[], Collection[str]],
        connections: int = MOST_CONNECTIONS,
    ) -> None:
        self.hub = hub
        self.gate = gate
        self.exposed = exposed
        self.draining = False
        self.streams: set[Events] = set()
        self.waiting = RunWaiters(hub)
        self.trees = RunTrees(hub.store)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._in_progress = SharedTotal(connections)
        self._admission = FairSlots("this server", ADMITTED_AT_ONCE, connections)
        self._granted: set[str] = set()
        """The runs that came with a credential, whose tokens must be settled."""

    @property
    def under_way(self) -> int:
        """The number of received delegations that have not ended."""
        return len(self._tasks)

    async def idle(self) -> None:
        """Return once nothing is running."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def close(self) -> None:
        """Stop listening to the hub; requests that still wait get a handle."""
        self.waiting.close()

    async def sender(self, scope: Scope, headers: Headers, *, submits: bool = False) -> Sender:
        """Return the sender of a request; raise a `RemitError` unless it is authenticated and permitted."""
        query: bytes = scope["query_string"]
        path = scope["raw_path"].decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")
        refusals: Refusals = scope[REFUSALS]
        address = refusals.address_of(scope, headers)
        sender: Sender | None = scope.get(BROWSER)
        if sender is None:
            refusals.failures.admit(address, headers)
            try:
                sender = await self.gate.sender(headers, scope["method"], path, submits=submits)
            except RemitError as error:
                if error.fault.code is Code.UNAUTHENTICATED:
                    refusals.failures.failed(address, headers)
                raise
            refusals.failures.proven(address, headers)
        scope[SENDER] = sender.name
        enter(self._in_progress, ShareOwner(sender.name))
        operation: ApiOperation = scope[OPERATION]
        needs = operation.needs
        if needs is not None and needs not in sender.permissions:
            raise RemitError(
                fault(
                    Code.PERMISSION_DENIED,
                    f"{sender.name} lacks the permission `{needs}`",
                    suggestion=f'Add `permissions = ["{needs}"]` to `[clients.{sender.name}]` of the team file.',
                )
            )
        return sender

    async def received(self, sent: Submission, sender: Sender, headers: Headers, *, unmarked: bool = False) -> Request:
        """Return a submission as a request of this hub, limited to what its sender's credential allows.

        An *unmarked* one may come from this hub by way of agents that drop what a request carries.
        """
        if self.draining:
            raise going_down()
        grant = await self.gate.grant(headers, sender, sent)
        request = self.hub.receive(sent, sender, exposed=self.exposed(), grant=grant, unmarked=unmarked)
        try:
            await self._check_reference(request, sender)
            if grant is not None:
                request = await self.gate.received(request)
                self._granted.add(request.run)
        except BaseException:
            self.hub.forget(request.run)
            raise
        self.hub.forward_headers(request.run, headers)
        try:
            enter(self._in_progress, ShareOwner(sender.name, request.remit.user))
        except RemitError:
            self.drop(request)
            raise
        return request

    async def _check_reference(self, request: Request, sender: Sender) -> None:
        """Refuse a client's reference to a conversation with an agent that it may not ask: it may not share that."""
        history = request.handoff.history if request.handoff is not None else None
        if history is None or sender.targets is None or sender.is_hub:
            return
        _, owner = await session_of(self.hub.store, history, request.remit.user)
        if owner is not None and owner.agent not in sender.targets:
            why = f"no conversation `{history[:100]}` that {sender.name} may see"
            raise RemitError(fault(Code.NOT_FOUND, why))

    async def end_of(
        self, going: ActiveRun, name: str, receive: Receive | None = None, *, anew: bool = False, questions: bool = True
    ) -> Response | Handle:
        """Return the outcome of a running request, or a handle with the id *name* if it does not end for now.

        A handle is returned if the request waits for approval, unless *questions* is false, and if this server shuts
        down. With *receive*, raise `ClientGone` when the client disconnects; a request without an id of its own
        (*anew*) is cancelled then, since nobody could ask for its answer.
        """
        waiter = self.waiting.wait(going, questions=questions)
        first = waiter.first

        def gone() -> None:
            if anew:
                self.hub.cancel(going.run, GONE)
            if not first.done():
                first.set_exception(ClientGone)

        leaving = None if receive is None else DisconnectWatcher(receive, gone, self.waiting.soon)
        try:
            outcome = await first
        finally:
            waiter.leave()
            if leaving is not None:
                leaving.cancel()
        if isinstance(outcome, Response):
            return outcome
        if outcome is None and not going.on_record:
            raise going_down()
        return handle_of(name, going.on_record or going.run, "running" if outcome is None else "waiting", outcome or "")

    async def begin(
        self, request: Request, once: SingleUseProof | None = None, *, counted: bool = False
    ) -> ActiveRun | Response:
        """Start a request, or attach to the same request if it is running; it continues even if nobody waits for it.

        A *counted* request is held to the fan-out and cycle limits of the agent that asks.
        """
        try:
            await self._admission.enter(ShareOwner(request.via or "", request.remit.user), request.remit.priority)
        except BaseException:
            self.drop(request)
            raise
        try:
            going = await (self.hub.begin_peer_call(request) if counted else self.hub.begin(request, once))
        except BaseException:
            self._admission.release()
            self._settle(request.run, 0)
            raise
        if isinstance(going, ActiveRun):
            going.when_decided(self._admission.release)
        else:
            self._admission.release()
        if isinstance(going, Response) or going.run != request.run:
            self._settle(request.run, 0)  # it never began, or the first request of this id is counted
        if isinstance(going, ActiveRun):
            self._tasks.add(going.task)
            await self.waiting.watch(going, partial(self._ended, going.run))
        return going

    def drop(self, request: Request) -> None:
        """Release a received request that will not be started."""
        self.hub.forget(request.run)
        self._settle(request.run, 0)

    def _ended(self, run: str, task: asyncio.Task[Response]) -> None:
        self._tasks.discard(task)
        failed = task.cancelled() or task.exception() is not None
        usage = Usage() if failed else task.result().usage
        self._settle(run, usage.total, usage.cost)

    def _settle(self, run: str, used: int, cost: int = 0) -> None:
        if run in self._granted:
            self._granted.remove(run)
            task = asyncio.ensure_future(self.gate.ended(run, used, cost))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def cancel(
        self, order: CancelOrder, find: Callable[[], Awaitable[RunSummary]]
    ) -> tuple[str, RunSummary | None, Response | None]:
        """Cancel a run in any process, also while the store or the bus is away.

        Return its id, the run as *find* finds it in the store, and its outcome; None where that is not known.
        """
        shared = self.hub.shared
        # Before the store is asked, which may be away; the order says which runs its sender may cancel.
        if (own := shared.running(order)) is not None:
            self.hub.cancel(own.run, words_for(order.by, order.reason))
        elsewhere = None if own is not None else asyncio.ensure_future(shared.cancel_elsewhere(order))
        try:
            summary = await find()
        except RemitError as error:
            if own is not None:  # the store is away, or the run ended before it was recorded
                await asyncio.wait({own.task}, timeout=CANCEL_WAIT_S)
                return own.run, None, own.task.result() if own.task.done() else None
            run = await elsewhere if elsewhere is not None and isinstance(error, StoreError) else None
            if run is None:
                raise
            return run, None, None
        finally:
            if elsewhere is not None:
                elsewhere.cancel()
        if own is not None:  # it ran when it was told, however soon it has ended since
            summary = summary._replace(response=None)
        return summary.run, summary, await self.stop(summary, order.by, order.reason, notified=own is not None)

    async def stop(self, summary: RunSummary, by: str, reason: str, *, notified: bool = False) -> Response | None:
        """Cancel a run in any process, and return its outcome; None if it has none after `CANCEL_WAIT_S`.

        With *notified*, its hub has been notified before.
        """
        try:
            if summary.response is None and not notified and not self.hub.cancel(summary.run, words_for(by, reason)):
                await self.hub.store.control(summary.run, "cancel", by, reason[:200])
            async with asyncio.timeout(CANCEL_WAIT_S):
                await self.hub.store.wait(summary.run)
            return await self.hub.outcome(summary.run, raw=False)
        except TimeoutError:
            return None
        except StoreError:
            if not notified:
                raise
            return None

    async def outcome(self, summary: RunSummary, sender: Sender) -> Response | None:
        """Return the outcome of a run; None if it has not ended.

        Who asked for it gets personal values in clear. So does a sender with the permission `reveal`, once that is on
        record; others get tokens.
        """
        if asked_for(sender, summary):
            return await self.hub.outcome(summary.run)
        response = await self.hub.outcome(summary.run, raw=False)
        if response is None or Permission.REVEAL not in sender.permissions:
            return response
        clear = await self.hub.outcome(summary.run)
        if clear != response:
            text = f"{sender.name} revealed personal values of {summary.user} in the answer"
            notice = Notice(delegation=summary.run, agent=summary.agent, text=text)
            self.hub.store.append(Kind.NOTICE, _wall_ms(), summary.run, summary.session, notice)
            await self.hub.store.flush()
        return clear

    async def find(self, name: str, sender: Sender, others: Permission | None = None) -> RunSummary:
        """Return a run by its id or by the sender's request id; raise a `RemitError` unless the sender may see it.

        With the permission *others* it may be anyone's.
        """
        store = self.hub.store
        for summary in await store.runs(run=name, limit=1):
            if summary.run == name and may_see(sender, summary, others):
                return summary
        runs = await store.named(name, RunScope(users=sender.users, agents=sender.targets, via=sender.name))
        if len(runs) == 1:  # two users of a client may have chosen the same id: then it is ambiguous
            (summary,) = await store.runs(run=runs[0], limit=1)
            return summary
        raise RemitError(fault(Code.NOT_FOUND, f"no delegation `{name[:100]}` that {sender.name} may see"))

    async def visible_runs(self, sender: Sender, runs: Iterable[str], others: Permission | None = None) -> set[str]:
        """Return those of *runs* that a sender may see; with the permission *others*, of every user."""
        of = visible(sender, others)
        summaries = [
            each for run in runs for each in await self.hub.store.runs(run=run, of=of, limit=1) if each.run == run
        ]
        return {each.run for each in summaries}


def order_of(name: str, sender: Sender, others: Permission | None, reason: str, delegation: str = "") -> CancelOrder:
    """Return the order of a sender to cancel a run that it may see, or one delegation of it."""
    return CancelOrder(name, sender.name, reason[:200], delegation, sender.name, visible(sender, others))


def words_for(by: str, reason: str) -> str:
    """Return why a run is cancelled."""
    return f"by {by}" + (f": {reason[:200]}" if reason else "")


def going_down() -> RemitError:
    """Return the error of a server that is shutting down."""
    how = "Ask another server, or try again in 1 s."
    return RemitError(fault(Code.OVERLOADED, "this server is shutting down", retry_after_ms=1_000, suggestion=how))


def handle_of(name: str, run: str, state: Literal["running", "waiting"], question: str = "") -> Handle:
    link = f"/v1/delegations/{run}"
    return Handle(id=name, run=run, state=state, question=question, link=link, events=f"{link}/events")


# ── waiting ───────────────────────────────────────────────────────────────────────────────────────────────────────────

# Most requests are answered before it pays to start a task that watches for a disconnect.
LOOK_AFTER_S = 0.2
# A person does not notice this delay, and a store notices more frequent reads.
OUTCOME_LOOK_S = 0.5

First = asyncio.Future[Response | str | None]
"""The outcome of a run; a question to a person in it; or None: nothing more will be known of it here."""


class _Watched:
    """A running run: its open questions to a person, and who waits for it."""

    __slots__ = ("questions", "waiting")

    def __init__(self) -> None:
        self.questions: dict[str, str] = {}
        self.waiting: dict[First, bool] = {}
        """Each waiter, with whether it wants questions, too."""


class Waiter:
    """A waiter for a run: *first* gets its outcome, a question to a person, or None."""

    __slots__ = ("_call_off", "_watched", "first")

    def __init__(self, first: First, watched: _Watched | None, call_off: Callable[[], None] | None) -> None:
        self.first = first
        self._watched = watched
        self._call_off = call_off

    def leave(self) -> None:
        """Stop waiting."""
        self.first.cancel()
        if self._watched is not None:
            self._watched.waiting.pop(self.first, None)
        if self._call_off is not None:
            self._call_off()


class DelayedCalls:
    """Calls functions after a delay, in order: the delay is the same for all, so one timer is enough."""

    def __init__(self) -> None:
        self._calls: deque[tuple[float, list[Callable[[], None]]]] = deque()

    def call(self, act: Callable[[], None]) -> Callable[[], None]:
        """Call *act* after `LOOK_AFTER_S`, unless the returned function is called before: that releases *act*."""
        loop = asyncio.get_running_loop()
        due, acts = loop.time() + LOOK_AFTER_S, [act]
        self._calls.append((due, acts))
        if len(self._calls) == 1:
            loop.call_at(due, self._turn, loop)
        return acts.clear

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        now, due = loop.time(), list[Callable[[], None]]()
        while self._calls and self._calls[0][0] <= now:
            due += self._calls.popleft()[1]
        if self._calls:
            loop.call_at(self._calls[0][0], self._turn, loop)
        for act in due:
            act()


class RunWaiters:
    """The running runs that this server received, and who waits for them."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.soon = DelayedCalls()
        self._watched: dict[str, _Watched] = {}
        self._leave = hub.store.listen(self._committed, patient=True)

    def close(self) -> None:
        """Stop listening, and release all waiters: this server shuts down before their runs have ended."""
        self._leave()
        for watched in self._watched.values():
            for first in tuple(watched.waiting):
                if not first.done():
                    first.set_result(None)

    async def watch(self, going: ActiveRun, ended: Callable[[asyncio.Task[Response]], None]) -> None:
        """Follow the questions to a person in a run, and call *ended* once when it is over."""
        if going.run in self._watched:
            return
        watched = self._watched[going.run] = _Watched()

        def over(task: asyncio.Task[Response]) -> None:
            del self._watched[going.run]
            for first in tuple(watched.waiting):
                _settle(first, task)
            ended(task)

        going.when_ended(over)
        if going.on_record:
            # It was started before this server listened, by a server that is gone.
            watched.questions |= {
                each.id: each.text for each in await self._hub.pending() if each.request.run == going.run
            }

    def question(self, run: str) -> str:
        """Return the open question to a person in a run, here or at another hub; empty if there is none."""
        watched = self._watched.get(run)
        return "" if watched is None else next(iter(watched.questions.values()), "")

    def wait(self, going: ActiveRun, *, questions: bool = True) -> Waiter:
        """Wait for what is known of a run next: its outcome, a question if *questions* are wanted, or None."""
        first: First = asyncio.get_running_loop().create_future()
        watched = self._watched.get(going.run)
        call_off = None
        if watched is None:
            _settle(first, going.task)
        elif questions and (question := self.question(going.run)):
            first.set_result(question)
        else:
            watched.waiting[first] = questions
            if questions:
                call_off = self.soon.call(partial(self._look_elsewhere, going, first))
        return Waiter(first, watched, call_off)

    def _look_elsewhere(self, going: ActiveRun, first: First) -> None:
        if going.on_record not in ("", going.run):
            looking = asyncio.create_task(self._asked_elsewhere(going.on_record, first))
            first.add_done_callback(lambda _: looking.cancel())

    async def _asked_elsewhere(self, run: str, first: First) -> None:
        """Look up the question in the run that executes the same request, in this process or another."""
        while not first.done():
            with suppress(StoreError):
                for question in await self._hub.pending():
                    if question.request.run == run and not first.done():
                        first.set_result(question.text)
            await asyncio.sleep(OUTCOME_LOOK_S)

    def _committed(self, records: list[Record]) -> None:
        for record in records:
            if isinstance(record.body, Approval) and (watched := self._watched.get(record.run)) is not None:
                self._note_approval(watched, record.body)

    def _note_approval(self, watched: _Watched, approval: Approval) -> None:
        if approval.agreed is not None:
            watched.questions.pop(approval.id, None)
            return
        watched.questions[approval.id] = approval.question
        for first, questions in watched.waiting.items():
            if questions and not first.done():
                first.set_result(approval.question)


class DisconnectWatcher:
    """Calls a function when the client disconnects, unless it is cancelled before."""

    def __init__(self, receive: Receive, act: Callable[[], object], soon: DelayedCalls) -> None:
        self._receive = receive
        self._act = act
        self._task: asyncio.Task[None] | None = None
        self._call_off = soon.call(self._look)

    def cancel(self) -> None:
        """Stop watching for a disconnect."""
        self._call_off()
        if self._task is not None:
            self._task.cancel()

    def _look(self) -> None:
        self._task = asyncio.create_task(self._until_gone())

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._act()


def _settle(first: First, task: asyncio.Task[Response]) -> None:
    if first.done():
        return
    if task.cancelled():
        first.cancel()
    elif (error := task.exception()) is not None:
        first.set_exception(error)
    else:
        first.set_result(task.result())
