"""The main module of an isolated agent's process: runs the agent's code, whose requests are sent to the hub."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import count
from typing import Any, NoReturn, TypeVar, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from remit.agents.function import agent_from
from remit.agents.threads import Threads
from remit.policy.aggregate import Blend, Combined
from remit.ports import Agent
from remit.ports.brief import AvailableAgent, Brief, OwnTool, Work, plain_arguments, plain_changes, plain_finding
from remit.ports.text_reader import text_reader
from remit.protocol.card import Schema, ToolCard
from remit.protocol.codec import plain
from remit.protocol.envelope import (
    VERSION,
    Answer,
    Call,
    ContextFilter,
    Forwarded,
    Json,
    Message,
    Note,
    Response,
    Strategy,
    Usage,
)
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Record, StepPlan, read_body
from remit.runtime.origin import failure_of_tool, origin_of, worded
from remit_cli.processes.channel import (
    LENGTH,
    NOT_SAYABLE,
    AgentRequest,
    AllowUnpricedFrame,
    ChainFrame,
    ChangeFrame,
    ChannelFrame,
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
    StartFrame,
    StateFrame,
    ToolEndedFrame,
    ToolPermit,
    ToolUsedFrame,
    ToProcess,
    UseToolFrame,
    WithdrawFrame,
    pack,
    raw_of_agent,
    read_by_process,
    unraw,
)

T = TypeVar("T")


class Channel:
    """The process's end of the channel: one thread reads, any thread may write."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, frame: ChannelFrame) -> None:
        """Send a frame, or raise one of `NOT_SAYABLE`; blocks while the socket is full."""
        self._end.sendall(pack(frame))

    def read(self, receive: Callable[[ToProcess], object]) -> NoReturn:
        """Pass on each frame as it arrives. When the hub is gone, kill this process at once."""
        try:
            with self._end.makefile("rb") as incoming:
                while len(header := incoming.read(LENGTH.size)) == LENGTH.size:
                    receive(read_by_process(incoming.read(*LENGTH.unpack(header))))
        finally:
            with suppress(ProcessLookupError):  # not the leader of its group: started manually
                os.killpg(os.getpid(), signal.SIGKILL)
            os._exit(1)


class RemoteBriefBackend:
    """Sends an agent's requests through the brief of one delegation to the hub.

    Values that the brief returns at once (tokens, time) are a copy of the hub's account, updated by each reply. While
    requests are pending it may be out of date; the hub's own count decides.
    """

    def __init__(self, channel: Channel, run: RunFrame) -> None:
        self._channel = channel
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Raw]] = {}
        self._speaking = threading.Lock()
        self._left = False
        self._spent = 0
        self._spent_below = 0
        self._kept_back = 0
        self._update(run.account)

    # ── requests of the brief ─────────────────────────────────────────────────────────────────────────────────────────

    async def delegate(self, call: Call) -> Response:
        try:
            frame = DelegateFrame(number=next(self._numbers), call=raw_of_agent(call))
            return self._count(await self._ask(frame, Response))
        except NOT_SAYABLE as error:
            return self._refused(call, error)

    async def fan_out(self, calls: Sequence[Call]) -> list[Response]:
        try:
            frame = FanOutFrame(number=next(self._numbers), calls=tuple(raw_of_agent(call) for call in calls))
            return [self._count(response) for response in await self._ask(frame, list[Response])]
        except NOT_SAYABLE as error:
            return [self._refused(call, error) for call in calls]

    def blended(self, merged: Answer, text: str, blend: Blend) -> Answer:
        return text_reader().blended(merged, text, blend)

    async def combine(self, calls: Sequence[Call], strategy: Strategy) -> Combined:
        try:
            frames = tuple(raw_of_agent(call) for call in calls)
            combined = await self._ask(
                CombineFrame(number=next(self._numbers), calls=frames, strategy=strategy), Combined
            )
        except NOT_SAYABLE as error:
            return Combined(responses=tuple(self._refused(call, error) for call in calls))
        for response in combined.responses:
            self._count(response)
        return combined

    async def chain(self, calls: Sequence[Call], forward: Forwarded) -> list[Response]:
        try:
            frame = ChainFrame(
                number=next(self._numbers), calls=tuple(raw_of_agent(call) for call in calls), forward=forward
            )
            return [self._count(response) for response in await self._ask(frame, list[Response])]
        except NOT_SAYABLE as error:
            return [self._refused(call, error) for call in calls[:1]]

    async def use(self, tool: str, arguments: dict[str, Json]) -> Json:
        try:
            given = plain_arguments(tool, arguments)
            return await self._ask(UseToolFrame(number=next(self._numbers), tool=tool, arguments=given), object)
        except NOT_SAYABLE as error:
            message = f"the arguments do not fit tool {tool}: {error}"
            raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, message)) from error

    async def use_own(
        self, tool: str, arguments: dict[str, Json], run: OwnTool, question: str, repeatable: bool, recorded: int | None
    ) -> Json:
        number, given = next(self._numbers), plain_arguments(tool, arguments)
        wanted = PermitToolFrame(
            number=number, tool=tool, arguments=given, question=question, repeatable=repeatable, recorded=recorded
        )
        permit = await self._ask(wanted, ToolPermit)
        if permit.arguments is None:
            return permit.value
        ended = ToolEndedFrame(number=next(self._numbers), use=number)
        try:
            value = plain(await run(permit.arguments))
        except asyncio.CancelledError:
            self._say(replace(ended, fault=fault(Code.CANCELLED, f"tool {tool} was cancelled")))
            raise
        except Exception as error:
            failed = failure_of_tool(self._run.request.target, tool, worded(error))
            with suppress(RemitError):  # the fault itself, back from the hub
                await self._ask(replace(ended, fault=error.fault if isinstance(error, RemitError) else failed), object)
            raise
        return await self._ask(replace(ended, value=value), object)

    async def for_model(self, value: Json, tool: str) -> Json:
        return await self._ask(ForModelFrame(number=next(self._numbers), value=value, tool=tool), object)

    async def confirm(self, question: str) -> bool:
        return await self._ask(ConfirmFrame(number=next(self._numbers), question=question), bool)

    async def fill(self, question: str, form: Schema) -> dict[str, Json] | None:
        frame = FillFrame(number=next(self._numbers), question=question, form=form)
        given = await self._ask(frame, list[dict[str, Json]])
        return given[0] if given else None

    async def sample(self, prompt: str, system: str, max_tokens: int) -> str:
        frame = SampleFrame(number=next(self._numbers), prompt=prompt, system=system, max_tokens=max_tokens)
        return await self._ask(frame, str)

    async def state(self) -> dict[str, Json]:
        return await self._ask(StateFrame(number=next(self._numbers)), dict[str, Json])

    async def change(self, changes: dict[str, Json]) -> dict[str, Json]:
        plain = plain_changes(self._run.request.target, changes)
        return await self._ask(ChangeFrame(number=next(self._numbers), changes=plain), dict[str, Json])

    async def once(self, name: str, work: Work) -> Json:
        known = await self._ask(OnceFrame(number=next(self._numbers), name=name), list[Json])
        if known:
            return known[0]
        finding = plain_finding(name, await work())
        try:
            return (await self._ask(OnceFrame(number=next(self._numbers), name=name, value=(finding,)), list[Json]))[0]
        except NOT_SAYABLE as error:
            why = fault(Code.RESULT_VALIDATION_FAILED, f"what was found out for {name} is not JSON: {error}")
            raise RemitError(why) from error

    async def conversation(self) -> list[Record]:
        entries = await self._ask(ConversationFrame(number=next(self._numbers)), list[RawRecord])
        return [entry.record() for entry in entries]

    async def history(self, wanted: ContextFilter, tokens: int, of: str | None) -> list[Message]:
        frame = HistoryFrame(number=next(self._numbers), wanted=wanted, tokens=tokens, of=of)
        return await self._ask(frame, list[Message])

    async def facts(self) -> tuple[str, ...]:
        return await self._ask(FactsFrame(number=next(self._numbers)), tuple[str, ...])

    def progress(self, text: str, partial: Answer | Callable[[], Answer] | None, plan: StepPlan | None = None) -> None:
        try:
            # Created at once: when the time has run out, this process may be gone.
            made = raw_of_agent(partial() if callable(partial) else partial)
            self._say(ProgressFrame(text=text, partial=made, plan=plan))
        except NOT_SAYABLE as error:
            why = fault(Code.RESULT_VALIDATION_FAILED, f"the progress report is not JSON: {error}")
            raise RemitError(why) from error

    def say(self, text: str) -> None:
        self._say(SayFrame(text=text))

    def used(self, tool: str, arguments: Json, duration_ms: int, error: str | None) -> None:
        try:
            self._say(ToolUsedFrame(tool=tool, arguments=raw_of_agent(arguments), duration_ms=duration_ms, error=error))
        except NOT_SAYABLE:
            self._say(ToolUsedFrame(tool=tool, duration_ms=duration_ms, error=error))

    def note(self, note: Note) -> None:
        self._say(NoteFrame(note=note))

    def spend(self, usage: Usage, model: str, uncounted: int) -> int:
        self._say(
            SpendFrame(
                prompt=usage.prompt,
                completion=usage.completion,
                estimated=usage.estimated,
                cache_write=usage.cache_write,
                cache_read=usage.cache_read,
                model=model,
                uncounted=uncounted,
            )
        )
        self._spent += usage.total - min(uncounted, usage.prompt)
        used, left = self._spent + self._spent_below, self._tokens_left()
        if left < 0:
            message = f"{self._run.request.target} spent {used} tokens of {used + left} granted"
            raise RemitError(fault(Code.TOKEN_BUDGET_EXCEEDED, message))
        return left

    def time_left_ms(self) -> int:
        return max(0, int((self._deadline - time.monotonic()) * 1_000))

    def tokens_left(self, wanted: int) -> int:  # noqa: ARG002 - its hub takes more for it with each report
        return max(0, self._tokens_left())

    def keep_back(self, tokens: int) -> None:
        self._kept_back = max(0, min(tokens, self._tokens_left() + self._kept_back))
        self._say(KeepBackFrame(tokens=self._kept_back))

    async def more_tokens(self, wanted: int) -> int:
        if self.tokens_left(wanted) < wanted:  # the reply brings the account up to date
            await self._ask(MoreTokensFrame(number=next(self._numbers), wanted=wanted), int)
        return self.tokens_left(wanted)

    async def allow_unpriced(self, model: str) -> None:
        if self._account.cost_left is not None:
            await self._ask(AllowUnpricedFrame(number=next(self._numbers), model=model), type(None))

    def cost_left(self) -> int | None:
        return self._account.cost_left

    def affordable(self, model: str, prompt: int, most: int) -> int:  # noqa: ARG002 - its hub knows the prices
        if self._account.cost_left == 0:
            why = f"no money is left for {self._run.request.target}"
            raise RemitError(fault(Code.TOKEN_BUDGET_EXCEEDED, why))
        return most

    def original_request(self) -> str:
        return self._run.original_request

    def traceparent(self) -> str:
        return self._run.traceparent

    def delegates(self) -> tuple[AvailableAgent, ...]:
        return self._run.delegates

    def tool_cards(self) -> tuple[ToolCard, ...]:
        return self._run.tool_cards

    def result_schema(self) -> Schema | None:
        return self._run.result_schema

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # ── the channel ───────────────────────────────────────────────────────────────────────────────────────────────────

    def leave(self, last: DoneFrame | FailedFrame) -> None:
        """Send the outcome; tasks that the agent left running can ask for nothing after that."""
        with self._speaking:
            self._channel.send(last)
            self._left = True

    def settle(self, reply: ReplyFrame) -> None:
        """Complete the request that a reply belongs to."""
        self._update(reply.account)
        future = self._waiting.pop(reply.number, None)
        if future is None or future.done():
            return
        if reply.fault is None:
            future.set_result(reply.value)
        else:
            future.set_exception(RemitError(reply.fault))

    async def _ask(self, frame: AgentRequest, kind: type[T]) -> T:
        future = self._waiting[frame.number] = self._loop.create_future()
        try:
            self._say(frame)
        except BaseException:
            del self._waiting[frame.number]
            raise
        try:
            return unraw(await asyncio.shield(future), kind)
        except asyncio.CancelledError:
            if not future.done():
                self._say(WithdrawFrame(number=frame.number))
                await asyncio.wait({future})  # the hub ends the request within its grace time
            if not future.cancelled():
                future.exception()
            raise

    def _say(self, frame: ChannelFrame) -> None:
        with self._speaking:
            if self._left:
                message = f"{self._run.request.target} has answered and can do nothing more in this delegation"
                raise RemitError(fault(Code.CANCELLED, message))
            self._channel.send(frame)

    # ── the account ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _update(self, account: RemainingBudget) -> None:
        self._account = account
        self._deadline = time.monotonic() + account.time_left_ms / 1_000

    def _tokens_left(self) -> int:
        account = self._account
        return account.tokens_left + account.kept_back - self._kept_back - (self._spent - account.reported)

    def _count(self, response: Response) -> Response:
        self._spent_below += response.usage.total
        return response

    def _refused(self, call: Call, error: Exception) -> Response:
        """Refuse a call that cannot be encoded for the hub."""
        request = self._run.request
        why = fault(Code.INPUT_VALIDATION_FAILED, f"the call is not valid: {error}")
        return Response(
            version=VERSION,
            id=f"{request.id}.{next(self._numbers)}-unsaid",
            target=str(call.target or call.capability or "?"),
            status=Status.REFUSED,
            run=request.run,
            fault=why,
        )


class RawRecord(Struct, frozen=True, kw_only=True):
    """A record in transit: the type of its body depends on its kind."""

    seq: int
    kind: Kind
    at_ms: int
    run: str
    session: str
    body: Raw

    def record(self) -> Record:
        return Record(
            seq=self.seq,
            kind=self.kind,
            at_ms=self.at_ms,
            run=self.run,
            session=self.session,
            body=read_body(self.kind, bytes(self.body)),
        )


log = logging.getLogger("remit")

# The message of an exception is for people; more than a page is a dump of data.
MAX_ERROR_TEXT = 50_000
# The end of a traceback says where it happened.
MAX_TRACE = 20_000
# Causes of an exception that are followed; longer chains are made by recursion.
MOST_CAUSES = 100


class Worker:
    """Runs the agent: delegations arrive one after another, with replies to its requests in between."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[StartFrame | RunFrame] = asyncio.Queue()
        self._backend: RemoteBriefBackend | None = None

    async def serve(self, entrance: str) -> None:
        """Import the agent's code and serve delegations until the process is killed."""
        # A thread, because an agent may block the loop, and must not outlive its hub even then.
        threading.Thread(
            target=self._channel.read, args=(self._receive_soon,), name="remit-channel", daemon=True
        ).start()
        agent: Agent | None = None
        while True:
            match await self._inbox.get():
                case StartFrame(path=path):
                    sys.path[:] = path
                    agent = self._load(entrance)
                case RunFrame() as run if agent is not None:
                    await self._carry_out(agent, run)
                case RunFrame():
                    pass  # the hub knows that the import failed, and kills this process

    def _load(self, entrance: str) -> Agent | None:
        try:
            agent = agent_from(resolve(entrance), Threads("agent", 1))
        except BaseException as error:  # noqa: BLE001 - told to the hub, which logs it
            why = fault(Code.DELEGATION_FAILED, f"{entrance} cannot be imported: {_describe_error(error)}")
            why = replace(why, origin=origin_of(error, entrance))
            self._channel.send(FailedFrame(fault=why, trace=_trace(error)))
            return None
        self._channel.send(ReadyFrame())
        return agent

    async def _carry_out(self, agent: Agent, run: RunFrame) -> None:
        backend = self._backend = RemoteBriefBackend(self._channel, run)
        target = run.request.target
        try:
            answer = await agent(Brief(run.request, run.tools, backend, run.prompt))
        except RemitError as error:
            origin = error.fault.origin or origin_of(error, target)
            backend.leave(FailedFrame(fault=replace(error.fault, origin=origin), cause=_cause(error)))
        except BaseException as error:  # noqa: BLE001 - told to the hub, which logs it
            why = fault(Code.DELEGATION_FAILED, f"{target} raised {_describe_error(error)}")
            why = replace(why, origin=origin_of(error, target))
            backend.leave(FailedFrame(fault=why, trace=_trace(error), cause=_cause(error)))
        else:
            try:
                backend.leave(DoneFrame(answer=raw_of_agent(answer)))
            except NOT_SAYABLE as error:
                message = f"{target} gave an answer that is not JSON: {error}"
                backend.leave(FailedFrame(fault=fault(Code.RESULT_VALIDATION_FAILED, message)))

    def _receive_soon(self, frame: ToProcess) -> None:
        self._loop.call_soon_threadsafe(self._receive, frame)

    def _receive(self, frame: ToProcess) -> None:
        match frame:
            case StartFrame() | RunFrame():
                self._inbox.put_nowait(frame)
            case ReplyFrame():
                if self._backend is not None:
                    self._backend.settle(frame)


def resolve(entrance: str) -> Callable[[Brief], object]:
    """Import the object that `module:qualname` names."""
    module, _, qualname = entrance.partition(":")
    value: Any = import_module(module)
    for name in qualname.split("."):
        value = getattr(value, name)
    if not callable(value):
        raise TypeError(f"{entrance} is a {type(value).__name__}, not a function")
    return value


def _describe_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:MAX_ERROR_TEXT]


def _cause(error: BaseException) -> Fault | None:
    """Return the fault behind an exception, so that the hub can tell whether it began in another agent."""
    current: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if isinstance(current, BaseExceptionGroup):
            current = cast("BaseExceptionGroup[BaseException]", current).exceptions[0]
        else:
            hidden = current.__suppress_context__
            current = current.__cause__ or (None if hidden else current.__context__)
        if current is None or isinstance(current, RemitError):
            return None if current is None else current.fault
    return None


def _trace(error: BaseException) -> str:
    trace = "".join(traceback.format_exception(error))
    # Whole lines: a detector does not recognise half of a number.
    return trace if len(trace) <= MAX_TRACE else trace[-MAX_TRACE:].partition("\n")[2]


def main() -> None:
    descriptor, entrance, *sandbox = sys.argv[1:]
    end = socket.socket(fileno=int(descriptor))
    end.set_inheritable(False)
    if sandbox:
        _confine(end)
    asyncio.run(_open(end, entrance))


def _confine(end: socket.socket) -> None:
    """Enter the sandbox, before this process has a second thread and before any code of the agent is loaded.

    If hosts are named, the hub first gets the only way out: a byte, with the socket to listen on.
    """
    from remit_cli.processes.sandbox import SandboxRights, enforce, enter_own_network  # most agents have no sandbox

    rules = msgspec.json.decode(sys.stdin.buffer.read(), type=SandboxRights)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    is_warned = not rules.network
    try:
        if rules.network:
            with enter_own_network() as listener:
                proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
                socket.send_fds(end, [b"+"], [listener.fileno()])
            is_warned = True
            os.environ.update(dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), proxy))
        enforce(rules)
    except (OSError, RemitError) as error:
        if not is_warned:
            end.sendall(b"-")
        why = f"the sandbox cannot be set up, and nothing runs without it: {_describe_error(error)}"
        Channel(end).send(FailedFrame(fault=fault(Code.TEAM_INVALID, why)))
        raise SystemExit(1) from error


async def _open(end: socket.socket, entrance: str) -> None:
    await Worker(Channel(end)).serve(entrance)


if __name__ == "__main__":
    main()
