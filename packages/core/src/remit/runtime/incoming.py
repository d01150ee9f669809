"""Requests from elsewhere: received as requests of this hub, counted for their senders, and begun."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from remit.policy.peer_calls import (
    PeerCall,
    call_of,
    calls_after_end,
    cell_of,
    content_of,
    current,
    group_of,
    in_doubt,
    objection,
    with_call,
)
from remit.policy.reception import Sender, receive, remarks, trace_of
from remit.ports import SingleUseProof
from remit.protocol.codec import encode, text_of
from remit.protocol.envelope import Json, Request, Response
from remit.protocol.errors import Fault, RemitError
from remit.protocol.lifecycle import Status
from remit.protocol.remit import Grant, Remit
from remit.protocol.submission import Submission
from remit.runtime.active_runs import ActiveRun
from remit.runtime.context import RuntimeContext
from remit.runtime.root_request import new_run_id
from remit.runtime.sessions import resumed

log = logging.getLogger("remit")

_decode_calls = msgspec.json.Decoder(tuple[PeerCall, ...]).decode


class PeerCalls:
    """Fan-out and cycle limits for remote agents that use a dialect whose document has these limits."""

    def __init__(self, parts: RuntimeContext) -> None:
        self._parts = parts
        self._counted: set[str] = set()
        """The runs that this process has counted and not settled yet."""
        self._settling: dict[str, asyncio.Task[None]] = {}

    async def admit(self, request: Request) -> Fault | None:
        """Count a request among its agent's calls; return the fault if it is refused.

        A request that is sent again under its id is the same call: it is neither refused nor counted twice.
        """
        why, doubtful = await self._admit(request)
        # A killed process could not report how its calls ended: the store knows, once others have ended them.
        if why is not None and (ends := await self._ends_of(doubtful)):
            await self._end(request, ends)
            why, _ = await self._admit(request)
        return why

    async def _admit(self, request: Request) -> tuple[Fault | None, list[str]]:
        """Return why a request is not counted, and the runs that may have ended without being settled."""
        parts = self._parts
        key = parts.redactor.keys.digest(content_of(request)).hex()
        call = call_of(request, self._group(request), key, parts.clock.wall_ms(), parts.limits)
        why: Fault | None = None
        doubtful: list[str] = []
        counted = False

        def add(calls: Sequence[PeerCall]) -> tuple[PeerCall, ...] | None:
            nonlocal why, doubtful, counted
            why, counted = None, False
            if any((each.group, each.id) == (call.group, call.id) for each in calls):
                return None
            why = objection(calls, call, request, parts.limits)
            doubtful, counted = in_doubt(calls, call, self._counted), why is None
            return with_call(calls, call) if counted else None

        await self._change(request, add)
        if counted:
            self._counted.add(request.run)
        return why, doubtful

    async def _ends_of(self, runs: Sequence[str]) -> dict[str, bool]:
        """Return the runs that have ended, as far as the store knows, and whether they succeeded."""
        ended = [each for run in runs for each in await self._parts.store.runs(run=run, limit=1) if each.run == run]
        return {each.run: each.response.status is Status.SUCCESS for each in ended if each.response is not None}

    def follow(self, request: Request, task: asyncio.Task[Response]) -> None:
        """Settle an admitted call once it ends."""
        task.add_done_callback(lambda done: self._settle(request, None if _failed(done) else done.result()))

    def withdraw(self, request: Request, response: Response | None = None) -> None:
        """Settle an admitted call that ended without having begun."""
        self._settle(request, response)

    async def settled(self, request: Request) -> None:
        """Return once a call's end is recorded: whoever sees it may ask the same again at once."""
        if (task := self._settling.get(request.run)) is not None:
            await asyncio.shield(task)

    async def close(self) -> None:
        """Return once the end of every call is recorded."""
        if self._settling:
            await asyncio.wait(self._settling.values())

    def _settle(self, request: Request, response: Response | None) -> None:
        if request.run not in self._counted:
            return  # the same request was counted before, under another run
        task = asyncio.get_running_loop().create_task(self._ended(request, response))
        self._settling[request.run] = task
        task.add_done_callback(lambda _: self._settled(request.run))

    def _settled(self, run: str) -> None:
        self._settling.pop(run, None)
        self._counted.discard(run)

    async def _ended(self, request: Request, response: Response | None) -> None:
        succeeded = response is not None and response.status is Status.SUCCESS
        try:
            await self._end(request, {request.run: succeeded})
        except RemitError as error:  # it is dropped when its time is over
            log.warning("failed to settle %s for its caller's limits: %s", request.run, error.fault.code)

    async def _end(self, request: Request, ends: Mapping[str, bool]) -> None:
        # A finished call is not repeated in the same run; runs elsewhere are assumed to last as long as here.
        until_ms = self._parts.clock.wall_ms() + self._parts.limits.root_time_ms
        await self._change(request, lambda calls: calls_after_end(calls, ends, until_ms=until_ms))

    def _group(self, request: Request) -> str:
        return self._parts.redactor.keys.digest(group_of(request)).hex()

    async def _change(
        self, request: Request, change: Callable[[Sequence[PeerCall]], tuple[PeerCall, ...] | None]
    ) -> None:
        parts = self._parts
        name = cell_of(self._group(request))
        while True:
            revision, raw = await parts.store.get(name) or (0, b"[]")
            changed = change(current(_decode_calls(raw), parts.clock.wall_ms()))
            if changed is None or await parts.store.cas(name, revision, encode(changed)) is not None:
                return


def _failed(task: asyncio.Task[Response]) -> bool:
    return task.cancelled() or task.exception() is not None


# A shorter text says too little to be known again.
LEAST_TEXT = 12
# So many requests of one client for the same user with the same text may be out elsewhere before it counts as a loop.
MOST_ALIKE = 32


class RunStarter(Protocol):
    """Starts root requests or refuses them: see `root_runs.py`."""

    async def begin(self, request: Request, once: SingleUseProof | None = None) -> ActiveRun | Response: ...

    async def refuse(self, request: Request, why: Fault) -> Response: ...


class IncomingRequests:
    """Takes in the requests of other programs and hubs."""

    def __init__(self, parts: RuntimeContext, runs: RunStarter) -> None:
        self._parts = parts
        self._runs = runs
        self._peer_calls = PeerCalls(parts)

    def receive(
        self,
        sent: Submission,
        sender: Sender,
        exposed: Collection[str] | None,
        grant: Grant | None,
        *,
        unmarked: bool = False,
    ) -> Request:
        """Return the request that *sent* becomes here, or raise a `RemitError`; see `Hub.receive`."""
        parts, created_ms = self._parts, self._parts.clock.wall_ms()
        request = receive(
            sent,
            sender,
            exposed=frozenset(parts.registry.agents if exposed is None else exposed),
            run=new_run_id(created_ms),
            created_ms=created_ms,
            limits=parts.limits,
            grant=grant,
            above=self._above(sent) or (self._returning(sent, sender) if unmarked else None),
        )
        if isinstance(request, Fault):
            raise RemitError(request)
        if texts := remarks(sent, request):
            parts.remarks[request.run] = texts
        return request

    def _above(self, sent: Submission) -> Remit | None:
        """Return the remit of the outbound delegation that a returning request belongs to."""
        outbound = self._parts.ledger.outbound
        if not outbound or (trace := trace_of(sent.traceparent)) is None:
            return None
        out = outbound.get(trace, ())
        claimed = sent.remit.chain if sent.remit is not None else sent.chain
        remits = [frame.request.remit for frame in out]
        # Several may be in flight: choose the one that the request claims to come from, else the deepest.
        named = [remit for remit in remits if claimed[: len(remit.chain)] == remit.chain]
        return max(named or remits, key=lambda remit: (len(remit.chain), remit.depth), default=None)

    def _returning(self, sent: Submission, sender: Sender) -> Remit | None:
        """Return the depth that a request comes back from which says nothing of where it was before.

        Agents of others drop what a request carries. What comes back by way of them is known by its user and its text:
        an agent elsewhere was asked for the same, in a run that somebody else began. A client that repeats itself is
        not taken for that until very many such runs are out.
        """
        user = sent.user or (next(iter(sender.users)) if sender.users is not None and len(sender.users) == 1 else None)
        text = _text(sent.objective, sent.input)
        if user is None or len(text) < LEAST_TEXT:
            return None
        out = [
            frame
            for frames in self._parts.ledger.outbound.values()
            for frame in frames
            if frame.request.remit.user == user and _asks_for(frame.request, text)
        ]
        if len(out) < MOST_ALIKE and all(frame.run.request.via == sender.name for frame in out):
            return None
        deepest = max((frame.request.remit for frame in out), key=lambda remit: remit.depth)
        return replace(deepest, chain=())  # another agent of this hub may be asked back

    def forget(self, run: str) -> None:
        """Drop what is stored for a run that was received but will not begin."""
        self._parts.passed_on.pop(run, None)
        self._parts.remarks.pop(run, None)

    async def begin(self, request: Request, once: SingleUseProof | None = None) -> ActiveRun | Response:
        """Start a received request, or attach to an equal one in flight."""
        begun = ""
        try:
            request = await resumed(request, self._parts.store)
            going = await self._runs.begin(request, once)
            begun = going.run
        finally:
            if begun != request.run:
                self.forget(request.run)
        return going

    async def begin_peer_call(self, request: Request) -> ActiveRun | Response:
        """Start a peer agent's request like `begin`, within the limits of that agent."""
        request = await resumed(request, self._parts.store)
        if (why := await self._peer_calls.admit(request)) is not None:
            self.forget(request.run)
            return await self._runs.refuse(request, why)
        try:
            going = await self.begin(request)
        except BaseException:
            self._peer_calls.withdraw(request)
            raise
        if isinstance(going, Response):
            self._peer_calls.withdraw(request, going)
        else:
            self._peer_calls.follow(request, going.task)
        return going

    async def peer_call_ended(self, request: Request) -> None:
        """Return once the end of a request that `begin_peer_call` started is counted."""
        await self._peer_calls.settled(request)

    async def close(self) -> None:
        """Return once the end of every counted request is recorded."""
        await self._peer_calls.close()


def _text(objective: str, given: Json) -> str:
    return objective or (given if isinstance(given, str) else text_of(given))


def _asks_for(request: Request, text: str) -> bool:
    """Return whether a text is what a request asks for; an agent elsewhere may have been told more before it."""
    wanted = _text(request.objective, request.input)
    return len(wanted) >= LEAST_TEXT and wanted in text
