"""Several delegations of one caller for one answer: at once, one after another, or as a hedge."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from remit.policy.aggregate import Aggregation, Combined, comparable, components_of, start, with_findings
from remit.ports.text_reader import text_reader
from remit.protocol.codec import encode
from remit.protocol.envelope import Answer, Call, Forwarded, Handoff, Json, Response, Strategy
from remit.protocol.errors import Code, Fault, Problem, RemitError, fault
from remit.runtime import journal
from remit.runtime.context import Delegator
from remit.runtime.frames import Frame, SlotGivenUp
from remit.words.components import Component, Findings


async def fan_out(dispatch: Delegator, parent: Frame, calls: Sequence[Call]) -> list[Response]:
    """Ask all at once, each within its own limits; too many calls are refused together before any starts."""
    if (refusals := await refused_whole(dispatch, parent, calls)) is not None:
        return refusals
    begin = _begin_beside if dispatch.approval.may_ask else _begin_in_turn
    begun = await begin(dispatch, parent, calls)
    frames = [each for each in begun if isinstance(each, Frame)]
    responses = iter(await _join(dispatch, parent, frames))
    return [each if isinstance(each, Response) else next(responses) for each in begun]


async def refused_whole(dispatch: Delegator, parent: Frame, calls: Sequence[Call]) -> list[Response] | None:
    """Refuse all calls if they would exceed the limit of delegations in flight; None if they may be asked."""
    at_once = parent.in_flight() + len(calls)
    if at_once <= dispatch.parts.limits.max_fan_out:
        return None
    refusals = [await dispatch.begin(parent, call, at_once=at_once) for call in calls]
    return [each for each in refusals if isinstance(each, Response)]


async def _join(dispatch: Delegator, parent: Frame, frames: Sequence[Frame]) -> list[Response]:
    """Wait for all; a call that fails over to another agent does so at once."""
    if all(frame.route is None for frame in frames):
        return await dispatch.tasks.join(parent, frames)
    loop = asyncio.get_running_loop()
    routed = {frame: loop.create_task(dispatch.routed(parent, frame)) for frame in frames if frame.route}
    try:
        return await dispatch.tasks.join(parent, frames, [routed.get(frame, frame.outcome) for frame in frames])
    except BaseException:
        for task in routed.values():
            task.cancel()
        await asyncio.wait(routed.values())
        raise


async def _begin_in_turn(dispatch: Delegator, parent: Frame, calls: Sequence[Call]) -> list[Frame | Response]:
    """Begin one after another: where no person can be asked, no call keeps the others waiting."""
    begun: list[Frame | Response] = []
    try:
        for call in calls:
            begun.append(await dispatch.begin(parent, call, hedge=True))
    except asyncio.CancelledError:
        await dispatch.tasks.end([each for each in begun if isinstance(each, Frame)], "its caller was cancelled")
        raise
    return begun


async def _begin_beside(dispatch: Delegator, parent: Frame, calls: Sequence[Call]) -> list[Frame | Response]:
    """Begin all, in order; none waits for a person who is asked about another."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(dispatch.begin(parent, call, hedge=True)) for call in calls]
    try:
        if tasks:
            await asyncio.wait(tasks)
        return [task.result() for task in tasks]
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        begun = [task.result() for task in tasks if not task.cancelled() and task.exception() is None]
        await dispatch.tasks.end([each for each in begun if isinstance(each, Frame)], "its caller was cancelled")
        raise


async def chain(dispatch: Delegator, parent: Frame, calls: Sequence[Call], forward: Forwarded) -> list[Response]:
    """Ask one after another, each with the result of the one before; stop after the first without a result."""
    if forward not in get_args(Forwarded):
        problem = Problem("forward", f"expected one of: {', '.join(get_args(Forwarded))}")
        raise RemitError(fault(Code.MALFORMED_ENVELOPE, "the chain is not valid: forward", problems=(problem,)))
    responses: list[Response] = []
    for call in calls:
        if responses:
            call = _following(call, responses, forward)
        responses.append(await dispatch.delegate(parent, call))
        if not responses[-1].ok:
            break
    return responses


def _following(call: Call, before: Sequence[Response], forward: Forwarded) -> Call:
    handoff = call.handoff or Handoff()
    forwarded = before[-1].result
    outputs: dict[str, Json] = {response.target: response.result for response in before}
    if forward == "artifacts":
        forwarded = _artifacts(before[-1]) or forwarded
        for response in before:
            if response.artifacts:
                outputs[response.target] = {"result": response.result, "artifacts": _artifacts(response)}
    return replace(
        call,
        input=forwarded if call.input is None else call.input,
        handoff=replace(
            handoff,
            prior_agents=(*handoff.prior_agents, *(response.target for response in before)),
            prior_outputs={**handoff.prior_outputs, **outputs},
        ),
    )


def _artifacts(response: Response) -> list[Json]:
    return [msgspec.to_builtins(each) for each in response.artifacts]


async def race(dispatch: Delegator, parent: Frame, first: Frame, hedge_ms: int) -> Frame:
    """Return the one of the two delegations whose outcome counts; it has ended.

    Both together get no more than the first was granted: the tokens of the second were set aside from the beginning.
    """
    if not await _takes_long(dispatch, first, hedge_ms):
        return first
    second = await _asked_beside(dispatch, parent, first)
    if second is None:
        await asyncio.wait({first.outcome})
        return first
    dispatch.recording.notice(second, f"asked too, because {first.card.name} had not answered after {hedge_ms} ms")
    try:
        return await _decided(dispatch, first, second)
    except asyncio.CancelledError:
        await dispatch.tasks.end((second,), "its caller was cancelled")
        raise


async def _takes_long(dispatch: Delegator, frame: Frame, hedge_ms: int) -> bool:
    """Return once a delegation has ended or a hedge is due; return whether a hedge is due.

    Time in which a person is asked does not count.
    """
    clock, hedge_s = dispatch.parts.clock, hedge_ms / 1_000
    while not frame.outcome.done():
        now = clock.now()
        due = now + hedge_s if frame.pauses else frame.started + frame.waited_s + hedge_s
        if now >= due:
            return True
        rung: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        take_back = clock.call_at(due, partial(_ring, rung))
        try:
            await asyncio.wait({frame.outcome, rung}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            take_back()
    return False


def _ring(rung: "asyncio.Future[None]") -> None:
    if not rung.done():
        rung.set_result(None)


async def _asked_beside(dispatch: Delegator, parent: Frame, first: Frame) -> Frame | None:
    """Return the hedge; None if no other agent may be asked, or the first ended meanwhile."""
    route = dispatch.routing.beside(first)
    if route is None:
        return None
    # Admission may take long if a person has to agree: nobody waits for that once there is an answer.
    # Both count as one of the caller's delegations in flight.
    begin = dispatch.begin(parent, route.call, at_once=max(1, parent.in_flight()), route=route)
    admission = asyncio.get_running_loop().create_task(begin)
    try:
        await asyncio.wait({admission, first.outcome}, return_when=asyncio.FIRST_COMPLETED)
        if first.outcome.done() and not first.outcome.result().ok:
            await asyncio.wait({admission})  # it takes the place of the first
        begun = await _begun(admission)
    except asyncio.CancelledError:
        if (begun := await _begun(admission)) is not None:
            await dispatch.tasks.end((begun,), "its caller was cancelled")
        raise
    if begun is None:
        dispatch.parts.ledger.take_back(first, route.call.max_tokens or 0)
    return begun


async def _begun(admission: "asyncio.Task[Frame | Response]") -> Frame | None:
    """Return what was admitted so far; the rest is not needed any more."""
    admission.cancel()
    await asyncio.wait({admission})
    begun = None if admission.cancelled() else admission.result()
    return begun if isinstance(begun, Frame) else None


async def _decided(dispatch: Delegator, first: Frame, second: Frame) -> Frame:
    both = (first, second)
    while True:
        for frame, other in (both, both[::-1]):
            if frame.outcome.done() and frame.outcome.result().ok:
                if not other.outcome.done():
                    other.overtaken = True
                    why = f"{other.request.target} was cancelled: {frame.request.target} was faster"
                    dispatch.tasks.stop(other, fault(Code.CANCELLED, why))
                return frame
        going = [frame.outcome for frame in both if not frame.outcome.done()]
        if not going:
            # The next agent gets what both have left.
            second.aside = max(0, first.granted - first.used)
            return second
        await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)


# Comparing this many bytes takes about two milliseconds; handing them to a thread takes a tenth of one.
LARGE = 10_000

ANSWERED = "another answered first"
GAVE_UP = "its caller was cancelled"


async def combine(dispatch: Delegator, parent: Frame, calls: Sequence[Call], strategy: Strategy) -> Combined:
    """Ask all at once, as `fan_out` does, and combine the responses without waiting for those that are not needed."""
    past = None
    if parent.run.steps is not None:
        calls, past = _remembered(dispatch, parent, calls, strategy)
        if past.lost is not None:
            return Combined(responses=tuple(_unknown(dispatch, parent, calls, past.lost)))
    responses = await refused_whole(dispatch, parent, calls)
    if responses is None:
        aggregation, responses = await _gather_responses(dispatch, parent, calls, strategy, past)
    else:
        aggregation = start(strategy, len(responses))
        for place, refusal in enumerate(responses):
            aggregation = aggregation.add(refusal, place)
    answer = aggregation.finish()
    if not isinstance(answer, Answer):
        return Combined(responses=tuple(responses))
    useful = sorted(place for place, response in aggregation.came if response.ok)
    useful_calls = [calls[place] for place in useful]
    components = comparable(components_of([responses[place] for place in useful]), useful_calls)
    findings = await _findings(dispatch, components, useful_calls)
    return Combined(
        answer=answer if findings is None else with_findings(answer, findings),
        responses=tuple(responses),
        conflicts=() if findings is None else findings.conflicts,
        places=aggregation.places,
    )


async def _findings(dispatch: Delegator, components: Sequence[Component], calls: Sequence[Call]) -> Findings | None:
    """Return the conflicts between the responses; None if there is nothing to compare."""
    if len(components) < 2:
        return None
    codes = [call.capability for call in calls]
    capabilities = [each for entry in dispatch.parts.registry.agents.values() for each in entry.card.capabilities]
    compare = partial(text_reader().conflicts, components, codes, capabilities)
    small = sum(len(encode(each.result)) for each in components) < LARGE
    return compare() if small else await asyncio.to_thread(compare)


async def _gather_responses(
    dispatch: Delegator, parent: Frame, calls: Sequence[Call], strategy: Strategy, past: "JournaledCalls | None"
) -> tuple[Aggregation, list[Response]]:
    """Return the responses that were enough, and the outcome of each call; none is in flight any more."""
    several = ParallelCalls(dispatch, parent, calls)
    aggregation = start(strategy, len(calls))
    async with SlotGivenUp(parent):
        try:
            if past is not None:
                aggregation = await _replay_outcomes(several, aggregation, past)
            if past is None or past.came is None:
                if not aggregation.enough:
                    several.ask(place for place in range(len(calls)) if place not in several.responses)
                while not aggregation.enough:
                    place = await several.next()
                    aggregation = aggregation.add(several.responses[place], place)
                if past is not None:
                    came = [(place, several.refused.get(place)) for place, _ in aggregation.came]
                    _note(dispatch, parent, past, came)
            await several.end(ANSWERED)
            return aggregation, several.all_responses()
        except BaseException:
            await several.end(GAVE_UP)
            raise


# ── the calls ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class ParallelCalls:
    """Calls of one caller that run at once: each is heard when it ends, and the rest can be cancelled."""

    def __init__(self, dispatch: Delegator, parent: Frame, calls: Sequence[Call]) -> None:
        self.responses: dict[int, Response] = {}
        """The outcomes heard so far, by position."""
        self.refused: dict[int, Response] = {}
        """Those of them that never began."""
        self._dispatch = dispatch
        self._parent = parent
        self._calls = calls
        self._tasks: dict[int, asyncio.Task[Response]] = {}
        self._frames: dict[int, Frame] = {}
        """The frame that was started last for each call; a call without one is still being judged."""
        self._came: asyncio.Queue[int] = asyncio.Queue()
        self._over = ""
        """Why no more outcomes are needed."""

    def ask(self, places: Iterable[int]) -> None:
        """Start calls, in this order."""
        loop = asyncio.get_running_loop()
        for place in places:
            task = self._tasks[place] = loop.create_task(self._carry_out(place))
            task.add_done_callback(lambda _, place=place: self._came.put_nowait(place))

    async def next(self) -> int:
        """Return the position of the next call that has ended, in order of completion."""
        place = await self._came.get()
        self.responses[place] = self._tasks[place].result()
        return place

    async def end(self, reason: str) -> None:
        """Cancel what is in flight and return once none is left."""
        if not self._over:
            self._over = reason
            for place, task in self._tasks.items():
                for frame in self._in_flight(place):
                    why = fault(Code.CANCELLED, f"{frame.request.target} was cancelled: {reason}")
                    self._dispatch.tasks.stop(frame, why)
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks.values())

    def all_responses(self) -> list[Response]:
        """Return the outcome of each call, in the order asked; those that never began are refused."""
        for place, call in enumerate(self._calls):
            if place in self._tasks:
                self.responses[place] = self._tasks[place].result()
            elif place not in self.responses:
                self.responses[place] = self._turned_down(call, self._next_path(call))
                self._parent.calls += 1  # counted as if it had begun: later calls are identified by their number
        return [self.responses[place] for place in range(len(self._calls))]

    async def _carry_out(self, place: int) -> Response:
        """Ask one agent, then its fallbacks, until there is a response or none is needed any more."""
        call, parent, path = self._calls[place], self._parent, self._next_path(self._calls[place])
        response: Response | None = None
        try:
            begun = await self._dispatch.begin(parent, call, hedge=True)
            if isinstance(begun, Response):
                self.refused[place] = begun
                return begun
            while isinstance(begun, Frame):
                self._frames[place] = begun
                frame = await self._ended(begun)
                response = frame.outcome.result()
                if (route := self._dispatch.routing.next_leg(frame, response)) is None:
                    return response
                begun = await self._dispatch.begin(parent, route.call, route=route)
            return response or begun  # refused: nothing happened, so the earlier outcome stands
        except asyncio.CancelledError:
            if not self._over:
                raise
            await self._dispatch.tasks.end(self._in_flight(place), self._over)
            last = self._frames.get(place)
            return self._turned_down(call, path) if last is None else last.outcome.result()

    async def _ended(self, frame: Frame) -> Frame:
        """Wait for a delegation or its hedge and return the one that counts."""
        if frame.hedge_ms is None:
            await asyncio.wait({frame.outcome})
            return frame
        return await race(self._dispatch, self._parent, frame, frame.hedge_ms)

    def _in_flight(self, place: int) -> list[Frame]:
        """Return the frames in flight for a call: the delegation and its hedge."""
        first = self._frames.get(place)
        return [
            frame
            for frame in self._parent.children or ()
            if frame is first or (first and first.route and frame.route and frame.route.path == first.route.path)
        ]

    def _turned_down(self, call: Call, path: str) -> Response:
        target = call.target or call.capability
        why = fault(Code.CANCELLED, f"{target} was not asked any more: {self._over}")
        return self._dispatch.turn_down(self._parent, call, path, why)

    def _next_path(self, call: Call) -> str:
        """Return the path that a call gets if it is begun now, before anything else."""
        return f"{self._parent.path}.{self._parent.calls + 1 if call.step is None else call.step}"


# ── after a restart ───────────────────────────────────────────────────────────────────────────────────────────────────


class JournaledCalls(NamedTuple):
    """The journal entries of several calls that were asked at once."""

    path: str
    digest: bytes
    known: frozenset[int]
    """The calls whose outcome it knows."""
    came: list[tuple[int, Response | None]] | None
    """The calls that made up the answer, in order of completion, including refusals, which have no step."""
    lost: Fault | None


def _remembered(
    dispatch: Delegator, parent: Frame, calls: Sequence[Call], strategy: Strategy
) -> tuple[list[Call], JournaledCalls]:
    """Return the calls with names, which identify each in whichever order they are made, and the journal entries."""
    run, keys = parent.run, dispatch.parts.redactor.keys
    parent.calls += 1
    number = parent.calls
    named = [
        replace(call, step=f"_{number}-{place}") if call.step is None else call for place, call in enumerate(calls, 1)
    ]
    paths = [f"{parent.path}.{call.step}" for call in named]
    path, digest = f"{parent.path}.{number}", journal.combination_digest(strategy, len(calls), keys)
    step = journal.recall(run, path, digest, keys, repeatable=True)
    came, lost = (None, step) if isinstance(step, Fault) else (step and step.value, None)
    return named, JournaledCalls(
        path,
        digest,
        known=frozenset(place for place, at in enumerate(paths) if journal.is_done(run, at, keys)),
        came=None if came is None else msgspec.convert(came, list[tuple[int, Response | None]]),
        lost=lost,
    )


def _unknown(dispatch: Delegator, parent: Frame, calls: Sequence[Call], lost: Fault) -> Iterator[Response]:
    """Refuse all calls of an agent that asked for something else here before the restart."""
    for call in calls:
        parent.calls += 1
        yield dispatch.turn_down(parent, call, f"{parent.path}.{call.step}", lost)


async def _replay_outcomes(several: ParallelCalls, aggregation: Aggregation, past: JournaledCalls) -> Aggregation:
    """Take the recorded outcomes: in the recorded order if they made the answer before, else only as far as needed."""
    came = past.came or ()
    wanted = past.known.union(place for place, refusal in came if refusal is None)
    several.ask(sorted(wanted))
    for _ in wanted:
        await several.next()
    several.responses.update((place, refusal) for place, refusal in came if refusal is not None)
    for place in sorted(wanted) if past.came is None else (place for place, _ in came):
        if past.came is not None or not aggregation.enough:
            aggregation = aggregation.add(several.responses[place], place)
    return aggregation


def _note(dispatch: Delegator, parent: Frame, past: JournaledCalls, came: list[tuple[int, Response | None]]) -> None:
    """Write the answer to the journal before the rest is cancelled, so that the rest is never asked again."""
    if not parent.run.handed_back:
        step = journal.JournalStep(past.digest, True, value=came)
        journal.note(dispatch.parts.store, parent.run, past.path, step, dispatch.parts.redactor.keys)
