"""Requests from elsewhere: received as requests of this hub, counted for their senders, and begun."""

from collections.abc import Collection
from typing import Protocol

from msgspec.structs import replace

from remit.policy.reception import Sender, receive, remarks, trace_of
from remit.protocol.codec import text_of
from remit.protocol.envelope import Json, Request, Response
from remit.protocol.errors import Fault, RemitError
from remit.protocol.remit import Grant, Remit
from remit.protocol.submission import Submission
from remit.runtime.active_runs import ActiveRun
from remit.runtime.context import RuntimeContext
from remit.runtime.peer_calls import PeerCalls
from remit.runtime.ports import SingleUseProof
from remit.runtime.root_request import new_run_id
from remit.runtime.sessions import resumed

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
        """Return the request that *sent* becomes here, or raise a `RemitError`; see `Engine.receive`."""
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
        if said := remarks(sent, request):
            parts.remarks[request.run] = said
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
