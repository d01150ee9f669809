"""Agents in separate processes, which can be killed at any time."""

import asyncio
import inspect
import logging
import sys
from contextlib import suppress
from typing import cast

import msgspec
from msgspec import Raw

from remit.policy.aggregate import Combined
from remit.ports import AgentFunction
from remit.ports.brief import Brief
from remit.protocol.envelope import Answer, Call, Json, Response
from remit.protocol.errors import Code, Fault, Problem, RemitError, fault
from remit.runtime.registry import team_invalid
from remit_cli.processes.channel import (
    NOT_SAYABLE,
    NULL,
    AgentRequest,
    AllowUnpricedFrame,
    ChainFrame,
    ChangeFrame,
    CombineFrame,
    ConfirmFrame,
    ConversationFrame,
    DelegateFrame,
    DoneFrame,
    FactsFrame,
    FailedFrame,
    FanOutFrame,
    FillFrame,
    ForModelFrame,
    HistoryFrame,
    KeepBackFrame,
    MoreTokensFrame,
    NoteFrame,
    OnceFrame,
    PermitToolFrame,
    ProgressFrame,
    ReadyFrame,
    RemainingBudget,
    ReplyFrame,
    RunFrame,
    SampleFrame,
    SayFrame,
    SpendFrame,
    StateFrame,
    ToolEndedFrame,
    ToolPermit,
    ToolUsedFrame,
    UseToolFrame,
    WithdrawFrame,
    raw,
    unraw,
)
from remit_cli.processes.spawn import InProcessError, Process, ProcessEnvironment
from remit_server.documents.common import shown_as

log = logging.getLogger("remit")

# A process takes over 100 ms to start, and some 20 MB to keep.
MAX_IDLE = 4
IDLE_S = 60.0
# Concurrent requests of one agent; while there are more, its messages are not read.
MAX_WISHES = 256


class ProcessAgent:
    """An agent whose code runs in separate processes, one delegation at a time; a few are kept for the next ones.

    A process in which anything was cancelled, or that broke the protocol, is killed and never used again.
    """

    def __init__(
        self,
        function: AgentFunction | str,
        *,
        around: ProcessEnvironment | None = None,
        max_idle: int = MAX_IDLE,
        idle_s: float = IDLE_S,
    ) -> None:
        """Run *function*, or the object that `module:name` names, in processes with the surroundings *around*."""
        self._entrance = function if isinstance(function, str) else import_name_of(function)
        self._around = around or ProcessEnvironment()
        self._max_idle = max_idle
        self._idle_s = idle_s
        self._processes: set[Process] = set()
        self._idle: dict[Process, asyncio.TimerHandle] = {}

    async def __call__(self, brief: Brief) -> Answer:
        process = self._take()
        try:
            await process.open()
            outcome = await RequestHandler(process, brief).serve()
        except BaseException:
            await process.end()
            raise
        if process.killed or len(self._idle) >= self._max_idle:
            await process.end()
        else:
            self._idle[process] = asyncio.get_running_loop().call_later(self._idle_s, self._dismiss, process)
        if isinstance(outcome, FailedFrame):
            raise RemitError(outcome.fault) from _cause(outcome)
        return outcome

    async def close(self) -> None:
        """Kill all processes and return once they have exited."""
        for process in tuple(self._processes):
            self._dismiss(process)
        for process in tuple(self._processes):
            await process.end()

    def _take(self) -> Process:
        while self._idle:
            process, timer = self._idle.popitem()
            timer.cancel()
            if not process.is_gone():
                return process
        try:
            process = Process(self._entrance, self._around)
        except OSError as error:
            why = fault(Code.DELEGATION_FAILED, f"no process can be started for {self._entrance}: {error}")
            raise RemitError(why) from error
        self._processes.add(process)
        process.exited.add_done_callback(lambda _: self._forget(process))
        return process

    def _dismiss(self, process: Process) -> None:
        if (timer := self._idle.pop(process, None)) is not None:
            timer.cancel()
        process.kill()

    def _forget(self, process: Process) -> None:
        self._dismiss(process)
        self._processes.discard(process)


def import_name_of(function: AgentFunction) -> str:
    """Return the name by which another process can import a function; raises if it has none."""
    if sys.platform == "win32":
        raise team_invalid('isolation = "process" needs a system with process groups, which Windows is not')
    name = getattr(function, "__qualname__", type(function).__qualname__)
    if not inspect.isfunction(function) or "<" in name:
        raise team_invalid(
            f"`{name}` cannot run in a process of its own, because it cannot be imported by name: "
            "make it a function at the top of a module"
        )
    if function.__module__ == "__main__":
        raise team_invalid(
            f"`{name}` cannot run in a process of its own, because it is defined in the program that was started: "
            "move it to a module and import it from there"
        )
    return f"{function.__module__}:{name}"


# ── one delegation ────────────────────────────────────────────────────────────────────────────────────────────────────


class RequestHandler:
    """Serves the requests of an agent in a process, within the brief of one delegation."""

    def __init__(self, process: Process, brief: Brief) -> None:
        self._process = process
        self._brief = brief
        self._reported = 0
        self._kept_back = 0
        self._open_requests: dict[int, asyncio.Task[None]] = {}
        self._own_uses: dict[int, OwnToolUse] = {}
        self._room = asyncio.Semaphore(MAX_WISHES)
        self._outward_faults: dict[tuple[Code, str], Fault] = {}
        """Faults that were sent to the agent without their origin, with that origin: the agent may pass one on."""

    async def serve(self) -> Answer | FailedFrame:
        """Send the delegation and return its outcome; nothing that the agent asked for keeps running."""
        try:
            self._hand_over()
            return await self._listen()
        except BaseException:
            self._process.kill()
            raise
        finally:
            if self._open_requests:
                self._process.kill()  # it answered without waiting for its own requests, which must not go on
                await self._cancel_requests()
            await self._cancel_uses()

    def _hand_over(self) -> None:
        brief = self._brief
        run = shown_as(RunFrame, brief, account=self._account())
        try:
            self._process.send(run)
        except NOT_SAYABLE as error:
            message = f"the request cannot be handed to the process of {brief.request.target}: {error}"
            raise RemitError(fault(Code.TOO_LARGE, message)) from error

    async def _listen(self) -> Answer | FailedFrame:
        while True:
            match await self._process.receive():
                case DoneFrame(answer=answer):
                    return self._answer(answer)
                case FailedFrame() as failed:
                    known = self._outward_faults.get((failed.fault.code, failed.fault.message), failed.fault)
                    return msgspec.structs.replace(failed, fault=known)
                case ProgressFrame(text=text, partial=given, plan=plan):
                    partial = None if given == NULL else self._answer(given)
                    with suppress(RemitError):  # cancelled: the delegation ends soon, and the agent need not know of it
                        self._brief.progress(text, partial=partial, plan=plan)
                case SayFrame(text=text):
                    with suppress(RemitError):
                        self._brief.say(text)
                case ToolUsedFrame(tool=tool, arguments=arguments, duration_ms=duration_ms, error=error):
                    with suppress(RemitError):
                        given = unraw(arguments, object)
                        self._brief.record_tool_use(tool, given, duration_ms=duration_ms, error=error)
                case KeepBackFrame(tokens=tokens):
                    self._brief.keep_back(0)
                    left = self._brief.tokens_left()
                    self._brief.keep_back(tokens)
                    self._kept_back = left - self._brief.tokens_left()
                case NoteFrame(note=note):
                    with suppress(RemitError):
                        self._brief.note(note.kind, note.text)  # pyright: ignore[reportArgumentType] - the hub refuses others
                case SpendFrame() as spent:
                    self._reported += spent.prompt - min(spent.uncounted, spent.prompt) + spent.completion
                    try:
                        self._brief.spend(**{name: getattr(spent, name) for name in spent.__struct_fields__})
                    except RemitError:  # cancelled, or nothing left: of tokens, the process counts that itself
                        if self._brief.remit.cost is not None:
                            raise
                case WithdrawFrame(number=number):
                    if number in self._open_requests:
                        self._open_requests[number].cancel()
                case ReadyFrame():
                    raise self._process.broken("it was ready already")
                case frame:
                    await self._begin(frame)

    async def _begin(self, frame: AgentRequest) -> None:
        if frame.number in self._open_requests:
            raise self._process.broken(f"it sent two requests with number {frame.number}")
        await self._room.acquire()
        task = asyncio.get_running_loop().create_task(self._fulfil(frame))
        self._open_requests[frame.number] = task
        task.add_done_callback(lambda task: self._fulfilled(frame.number, task))

    async def _fulfil(self, frame: AgentRequest) -> None:
        try:
            self._reply(frame.number, await self._carry_out(frame))
        except RemitError as error:
            self._reply(frame.number, why=error.fault)
        except Exception as error:  # noqa: BLE001 - logged without its words, which may hold what the agent said
            log.error("a request of %s failed: %s", self._brief.request.target, type(error).__name__)
            self._reply(frame.number, why=fault(Code.DELEGATION_FAILED, f"the hub failed: {type(error).__name__}"))
        await self._process.sent()

    def _fulfilled(self, number: int, task: asyncio.Task[None]) -> None:
        del self._open_requests[number]
        self._room.release()
        # Sent here, because a task that is cancelled before its first step cannot send anything.
        if task.cancelled():
            self._reply(number, why=fault(Code.CANCELLED, f"{self._brief.request.target} no longer wanted it"))

    def _reply(self, number: int, value: Json = None, *, why: Fault | None = None) -> None:
        try:
            why = None if why is None else self._outward(why)
            value = raw(self._without_places(value))
            self._process.send(ReplyFrame(number=number, account=self._account(), value=value, fault=why))
        except NOT_SAYABLE as error:
            why = fault(Code.TOO_LARGE, f"what came of it cannot be handed to a process: {error}")
            self._process.send(ReplyFrame(number=number, account=self._account(), fault=why))

    def _outward(self, why: Fault) -> Fault:
        outward = why.outward()
        if outward is not why:
            self._outward_faults[outward.code, outward.message] = why
        return outward

    def _without_places(self, value: Json) -> Json:
        """Return a reply without code locations of other agents: the process may run untrusted code."""
        match value:
            case Response(fault=Fault() as why):
                return msgspec.structs.replace(value, fault=self._outward(why))
            case Combined():
                parts = tuple(cast("Response", self._without_places(each)) for each in value.responses)
                return msgspec.structs.replace(value, responses=parts)
            case list():
                return [self._without_places(each) for each in cast("list[Json]", value)]
            case _:
                return value

    async def _carry_out(self, frame: AgentRequest) -> Json:
        brief = self._brief
        match frame:
            case DelegateFrame(call=call):
                return await brief.delegate(**msgspec.structs.asdict(_call(call)))
            case FanOutFrame(calls=calls):
                return await brief.fan_out([_call(call) for call in calls])
            case CombineFrame(calls=calls, strategy=strategy):
                return await brief.combine([_call(call) for call in calls], strategy=strategy)
            case ChainFrame(calls=calls, forward=forward):
                return await brief.chain([_call(call) for call in calls], forward=forward)
            case UseToolFrame(tool=tool, arguments=arguments):
                return await brief.use(tool, **arguments)
            case PermitToolFrame(number=number):
                use = OwnToolUse(brief, frame)
                if (permit := await use.permit()).arguments is not None:
                    self._own_uses[number] = use
                return permit
            case ToolEndedFrame(use=number):
                if (use := self._own_uses.pop(number, None)) is None:
                    raise self._process.broken(f"it ended a use {number} of a tool that did not begin")
                return await use.end(frame)
            case ConfirmFrame(question=question):
                return await brief.confirm(question)
            case FillFrame(question=question, form=form):
                fields = await brief.fill(question, form)
                return [] if fields is None else [fields]
            case MoreTokensFrame(wanted=wanted):
                return await brief.more_tokens(wanted)
            case AllowUnpricedFrame(model=model):
                return await brief.allow_unpriced(model)
            case SampleFrame(prompt=prompt, system=system, max_tokens=most):
                return await brief.sample(prompt, system=system, max_tokens=most)
            case StateFrame():
                return await brief.state()
            case ChangeFrame(changes=changes):
                return await brief.update_state(**changes)
            case OnceFrame(name=name, value=finding):
                return await _once(brief, name, finding)
            case ConversationFrame():
                return await brief.conversation()
            case HistoryFrame(wanted=wanted, tokens=tokens, of=of):
                return await brief.history(of, wanted, max_tokens=tokens)
            case FactsFrame():
                return await brief.facts()
            case ForModelFrame(value=value, tool=tool):
                return await brief.for_model(value, tool=tool)

    async def _cancel_uses(self) -> None:
        for use in self._own_uses.values():
            await use.cancel()

    async def _cancel_requests(self) -> None:
        for task in self._open_requests.values():
            task.cancel()
        await asyncio.wait(set(self._open_requests.values()))

    def _account(self) -> RemainingBudget:
        brief = self._brief
        return RemainingBudget(
            time_left_ms=brief.time_left_ms(),
            tokens_left=brief.tokens_left(),
            kept_back=self._kept_back,
            reported=self._reported,
            cost_left=brief.cost_left(),
        )

    def _answer(self, given: Raw) -> Answer:
        try:
            return unraw(given, Answer)
        except msgspec.ValidationError as error:
            text, _, place = str(error).partition(" - at `")
            message = f"{self._brief.request.target} gave an answer that is not valid"
            problem = Problem(place.rstrip("`") or "$", text)
            raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, message, problems=(problem,))) from error


class OwnToolUse:
    """The use of a tool of the agent's own: the hub judges and records it, and the process runs it."""

    def __init__(self, brief: Brief, frame: PermitToolFrame) -> None:
        loop = asyncio.get_running_loop()
        self._permitted: asyncio.Future[dict[str, Json]] = loop.create_future()
        self._ended: asyncio.Future[ToolEndedFrame] = loop.create_future()
        self._use = loop.create_task(
            brief.use_own_tool(
                frame.tool,
                frame.arguments,
                self._run,
                question=frame.question,
                safe_to_repeat=frame.repeatable,
                recorded_characters=frame.recorded,
            )
        )

    async def _run(self, arguments: dict[str, Json]) -> Json:
        self._permitted.set_result(arguments)
        ended = await self._ended
        if ended.fault is not None:
            raise RemitError(ended.fault)
        return ended.value

    async def permit(self) -> ToolPermit:
        try:
            await asyncio.wait({self._permitted, self._use}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.cancel()
            raise
        if self._permitted.done():
            return ToolPermit(arguments=self._permitted.result())
        return ToolPermit(value=await self._use)

    async def end(self, frame: ToolEndedFrame) -> Json:
        self._ended.set_result(frame)
        return await self._use

    async def cancel(self) -> None:
        """Stop waiting for a use that the process does not end any more."""
        self._use.cancel()
        await asyncio.wait({self._use})


class _NotKnownError(Exception):
    """No value is stored yet: the agent has to compute it."""


async def _once(brief: Brief, name: str, finding: tuple[Json, ...]) -> list[Json]:
    """Return the value that an agent stored, now or before a restart; nothing if it has to compute it now."""

    async def known() -> Json:
        if not finding:
            raise _NotKnownError
        return finding[0]

    try:
        return [await brief.once(name, known)]
    except _NotKnownError:
        return []


def _call(given: Raw) -> Call:
    """Return a call as the agent made it; the hub refuses invalid calls of any agent."""
    try:
        return unraw(given, Call)
    except msgspec.ValidationError:
        return Call(**unraw(given, dict[str, Json]))


def _cause(failed: FailedFrame) -> Exception | None:
    """Return the cause of a failure in an agent's code, as far as its process reported it."""
    behind = None if failed.cause is None else RemitError(failed.cause)
    if not failed.trace:
        return behind
    error = InProcessError(failed.trace)
    error.__cause__ = behind
    return error
