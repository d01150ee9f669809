"""Agents, guards, store and transport, wired and opened together."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable
from types import TracebackType
from typing import Self, Unpack
from weakref import WeakSet

from msgspec.structs import replace

from remit.policy.breaker import BreakerSettings
from remit.policy.budget import estimate
from remit.policy.limits import Limits
from remit.policy.routing import Ranked
from remit.policy.verdict import Detector, Guard
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Json, Request, Response
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.records import Delegation, Kind, Record, Refusal, delegations
from remit.runtime.admission import GUARDS
from remit.runtime.approvals import decide
from remit.runtime.asking import AskOptions, root_request
from remit.runtime.cache import Cache
from remit.runtime.clock import LoopClock
from remit.runtime.dispatch import Dispatch
from remit.runtime.events import Events
from remit.runtime.execute import Executor
from remit.runtime.ledger import Frame, Ledger
from remit.runtime.outflow import Outflow
from remit.runtime.parts import Parts
from remit.runtime.ports import (
    Agent,
    Approver,
    Clock,
    Control,
    Decision,
    Question,
    Store,
    Summarizer,
    TokenCounter,
    Tool,
    Transport,
    Workspace,
)
from remit.runtime.redactor import Redactor
from remit.runtime.registry import Registry, team_invalid
from remit.runtime.sessions import Sessions
from remit.runtime.upkeep import Upkeep
from remit.runtime.watchdog import Watchdog

log = logging.getLogger("remit")


class Hub:
    """Where agents live and call each other. Use it as an async context manager."""

    def __init__(
        self,
        *,
        name: str,
        store: Store,
        transport: Transport,
        limits: Limits,
        guards: Iterable[Guard] = (),
        breaker: BreakerSettings | None = None,
        approver: Approver | None = None,
        redaction: Detector | None = None,
        vault_key: bytes | None = None,
        count: TokenCounter = estimate,
        workspace: Workspace | None = None,
        summarizer: Summarizer | None = None,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or LoopClock()
        self._parts = Parts(
            registry=Registry(name),
            ledger=Ledger(breaker or BreakerSettings()),
            store=store,
            transport=transport,
            clock=clock,
            limits=limits,
            guards=(*GUARDS, *guards),
            approver=approver,
            redactor=Redactor(redaction, vault_key),
            sessions=Sessions(store, clock, count, workspace, summarizer),
            outflow=Outflow(clock),
            cache=Cache(),
        )
        self._dispatch = Dispatch(self._parts)
        self._executor = Executor(self._dispatch)
        self._runs = Upkeep(self._dispatch, f"{name}-{os.urandom(8).hex()}")
        self._watchdog = Watchdog(self._frames, self._report_blocking)
        self._stop_serving: list[Callable[[], None]] = []
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._listening: WeakSet[Events] = WeakSet()
        self._open = False

    # ── who is there ──────────────────────────────────────────────────────────────────────────────────────────────────

    def register(self, card: AgentCard, agent: Agent, close: Callable[[], Awaitable[None]] | None = None) -> None:
        """Add an agent under its card; *close* is awaited when the hub closes."""
        self._parts.registry.add(card, agent)
        if close is not None:
            self._closers.append(close)
        if self._open:
            self._serve(card)

    def register_tool(self, tool: Tool, close: Callable[[], Awaitable[None]] | None = None) -> None:
        """Add a tool that agents may use if their card and remit name it; *close* is awaited when the hub closes."""
        self._parts.registry.add_tool(tool)
        if close is not None:
            self._closers.append(close)

    @property
    def cards(self) -> dict[str, AgentCard]:
        """The agents that are registered, by name."""
        return {name: entry.card for name, entry in self._parts.registry.agents.items()}

    @property
    def store(self) -> Store:
        """Where everything is recorded."""
        return self._parts.store

    def reconfigure(
        self,
        *,
        limits: Limits | None = None,
        breaker: BreakerSettings | None = None,
        cards: Iterable[AgentCard] = (),
        guards: Iterable[Guard] | None = None,
    ) -> None:
        """Exchange what the hub judges by, without dropping a run: what is asked from now on is judged by the new.

        *cards* replace those of the same names, *guards* the team's own. What is in flight goes on with the time,
        tokens and tools that it was granted; what it asks for next is judged by the new.
        """
        parts = self._parts
        cards = list(cards)
        for card in cards if self._open else ():
            old = self.cards.get(card.name, card)
            if (card.concurrency, card.queue) != (old.concurrency, old.queue):
                raise team_invalid(
                    f"the concurrency and queue of `{card.name}` cannot be changed while the hub is open"
                )
        judges = parts.guards if guards is None else (*GUARDS, *guards)
        parts.registry.replace(cards)
        parts.limits = limits or parts.limits
        parts.ledger.settings = breaker or parts.ledger.settings
        parts.guards = judges
        parts.cache.clear()  # who judges or is asked anew may answer anew

    def on_reload(self, reload: Callable[[Control], Awaitable[None]]) -> None:
        """Call *reload* when another process asks every hub on this store to take over its changed configuration."""
        self._runs.on_reload = reload

    def take_up_only(self, runs: Collection[str]) -> None:
        """Of the runs that others left behind, go on with these and leave the rest to other hubs."""
        self._runs.only = frozenset(runs)

    def tell_runs(self, text: str) -> None:
        """Record something that operators should know in every run that is in flight here."""
        for frame in self._frames():
            if frame.parent is None:
                self._dispatch.notice(frame, text)

    # ── opening and closing ───────────────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        if self._open:
            raise RemitError(fault(Code.TEAM_INVALID, "the hub is open already"))
        self._parts.registry.check()
        await self._parts.store.open()
        try:
            self._parts.redactor.open(self._parts.store)
            for card in self.cards.values():
                self._serve(card)
            self._watchdog.start()
            await self._runs.open()
        except BaseException:
            await self._shut()
            raise
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        try:
            await self._runs.close()
        finally:
            await self._shut()

    async def _shut(self) -> None:
        """Let go of everything; what one of them does keeps none of the others open."""
        self._watchdog.stop()
        for leave in self._stop_serving:
            leave()
        self._stop_serving.clear()
        for close in self._closers:
            try:
                await close()
            except Exception as error:  # noqa: BLE001 - logged; the store has yet to be closed
                log.error("something could not be closed: %s", self._parts.redactor.worded(error))
        for task in self._dispatch.abandoned:
            task.cancel()
        self._dispatch.close()
        try:
            await self._parts.store.close()
        finally:
            for events in self._listening:
                events.close()

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, agent: str, text: str = "", *, user: str, **options: Unpack[AskOptions]) -> Response:
        """Ask an agent in a user's name and return how it ended; nothing leaves before it is recorded."""
        return await self._runs.ask(self._request(agent, text, user, options))

    async def stream(
        self, agent: str, text: str = "", *, user: str, **options: Unpack[AskOptions]
    ) -> AsyncGenerator[Record, None]:
        """Ask like `ask` and yield the run's records as they are committed; the last holds the response.

        Whoever stops reading before the end cancels the run.
        """
        request = self._request(agent, text, user, options)
        with Events(self._parts.store, request.run, self._parts.outflow) as events:
            task = asyncio.get_running_loop().create_task(self._runs.ask(request))
            task.add_done_callback(lambda _: events.close())
            ended = False
            try:
                async for record in events:
                    if _ends(request, record):
                        ended = True
                        # Only whoever asked gets what was redacted back; every other listener sees tokens.
                        record = await _with_outcome(record, task)
                    yield record
                response = await task
                if not ended:  # answered without a run of its own: by an earlier one, or by a store that cannot record
                    yield Record(
                        seq=0,
                        kind=Kind.RESULT,
                        at_ms=self._parts.clock.wall_ms(),
                        run=response.run,
                        session=request.run,
                        body=response,
                    )
            finally:
                if not task.done():
                    task.cancel()
                    await asyncio.wait({task})

    def events(self) -> Events:
        """Return everything that this hub records from now on, as it is committed."""
        events = Events(self._parts.store, None, self._parts.outflow)
        self._listening.add(events)
        return events

    def cancel(self, delegation: str, reason: str = "asked for") -> bool:
        """Stop a run, or one delegation of it, and everything below; False if nothing of that id is in flight here."""
        return self._runs.cancel(delegation, reason)

    async def pending(self) -> list[Question]:
        """Return the questions in the store's inbox that wait for a person, oldest first."""
        return await self._parts.store.pending()

    async def decide(
        self, question: str, *, agreed: bool, by: str, reason: str = "", edits: dict[str, Json] | None = None
    ) -> Question:
        """Answer a question of the inbox, named by its id or an unmistakable part of it, in a person's name."""
        decision = Decision(agreed=agreed, by=by, reason=reason, edits=edits or {})
        return await decide(self._parts.store, question, decision)

    async def ranking(self, capability: str) -> tuple[Ranked, ...]:
        """Return how the agents that offer a capability stand now, first choice first, each with the reasons."""
        parts = self._parts
        if self._open:
            await self._dispatch.recall()
        return parts.ledger.explained(capability, parts.registry.offering(capability), parts.clock.now())

    async def delegations(self, run: str) -> list[Delegation]:
        """Return who asked whom for what in a run, and how each ended."""
        await self._parts.store.flush()
        records: list[Record] = []
        while page := await self._parts.store.records(run=run, after=records[-1].seq if records else 0):
            records += page
        return delegations(records)

    def _request(self, agent: str, text: str, user: str, options: AskOptions) -> Request:
        if not self._open:
            raise RemitError(fault(Code.TEAM_INVALID, "the hub is not open: use `async with hub:`"))
        created_ms = self._parts.clock.wall_ms()
        # Ids in the order of time keep the store's indexes growing at one end, at half the cost of random ones.
        run = f"{created_ms:012x}{os.urandom(10).hex()}"
        return root_request(agent, text, user, options, run=run, created_ms=created_ms, limits=self._parts.limits)

    def _serve(self, card: AgentCard) -> None:
        leave = self._parts.transport.serve(card.name, card.concurrency, card.queue, self._executor.execute)
        self._stop_serving.append(leave)

    def _frames(self) -> list[Frame]:
        return list(self._parts.ledger.frames.values())

    def _report_blocking(self, frame: Frame) -> None:
        self._dispatch.notice(
            frame, f"{frame.card.name} blocked the event loop; make it async, or a plain function, or a process"
        )


async def _with_outcome(record: Record, task: asyncio.Task[Response]) -> Record:
    return replace(record, body=await asyncio.shield(task)) if isinstance(record.body, Response) else record


def _ends(request: Request, record: Record) -> bool:
    match record.body:
        case Response() as response:
            return response.id == request.id
        case Refusal(request=refused):
            return refused.parent is None
        case _:
            return False
