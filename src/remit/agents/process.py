"""Agents in processes of their own, which can be killed whatever they are doing."""

import asyncio
import inspect
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import msgspec
from msgspec import Raw

from remit.agents.channel import (
    LENGTH,
    MAX_FRAME_BYTES,
    NOT_SAYABLE,
    NULL,
    Account,
    Chain,
    Conversation,
    Delegate,
    Done,
    Facts,
    Failed,
    FanOut,
    Frame,
    Progress,
    Ready,
    Reply,
    Run,
    Spend,
    Start,
    ToHub,
    Use,
    Wish,
    Withdraw,
    pack,
    raw,
    read_by_hub,
    unraw,
)
from remit.agents.function import AgentFunction
from remit.protocol.codec import decode
from remit.protocol.envelope import Answer, Call, Json
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.runtime.brief import Brief
from remit.runtime.registry import team_invalid

log = logging.getLogger("remit")

# A process takes over 100 ms to start, and some 20 MB to keep.
MAX_IDLE = 4
IDLE_S = 60.0
# Wishes of one agent that are carried out at once; while there are more, what the agent says is left unread.
MAX_WISHES = 256
# A killed process is gone within milliseconds, unless the kernel itself is stuck in it.
REAP_S = 1.0


class ProcessAgent:
    """An agent whose code runs in a process of its own, one delegation at a time; a few are kept for the next ones.

    A process in which anything was cancelled, or that said what it should not, is killed and never used again.
    """

    def __init__(self, function: AgentFunction, *, max_idle: int = MAX_IDLE, idle_s: float = IDLE_S) -> None:
        self._entrance = entrance_of(function)
        self._max_idle = max_idle
        self._idle_s = idle_s
        self._children: set[Child] = set()
        self._idle: dict[Child, asyncio.TimerHandle] = {}

    async def __call__(self, brief: Brief) -> Answer:
        child = self._take()
        try:
            outcome = await child.carry_out(brief)
        except BaseException:
            await child.end()
            raise
        if child.killed or len(self._idle) >= self._max_idle:
            await child.end()
        else:
            self._idle[child] = asyncio.get_running_loop().call_later(self._idle_s, self._dismiss, child)
        if isinstance(outcome, Fault):
            raise RemitError(outcome)
        return outcome

    async def close(self) -> None:
        """Kill every process and return once all are gone."""
        for child in tuple(self._children):
            self._dismiss(child)
        for child in tuple(self._children):
            await child.end()

    def _take(self) -> "Child":
        if self._idle:
            child, timer = self._idle.popitem()
            timer.cancel()
            return child
        try:
            child = Child(self._entrance)
        except OSError as error:
            why = fault(Code.DELEGATION_FAILED, f"no process can be started for {self._entrance}: {error}")
            raise RemitError(why) from error
        self._children.add(child)
        child.exited.add_done_callback(lambda _: self._forget(child))
        return child

    def _dismiss(self, child: "Child") -> None:
        if (timer := self._idle.pop(child, None)) is not None:
            timer.cancel()
        child.kill()

    def _forget(self, child: "Child") -> None:
        self._dismiss(child)
        self._children.discard(child)


def entrance_of(function: AgentFunction) -> str:
    """Return the name by which another process can import a function, or refuse one that has none."""
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


# ── one process ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Child:
    """One process and the channel to it; it leads a group of its own, so that what it starts ends with it."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    def __init__(self, entrance: str) -> None:
        self._entrance = entrance
        self._connected = False
        self._socket, theirs = socket.socketpair()
        # -P: what lies in the working directory shadows no module. -u: a kill flushes nothing that was printed.
        command = [sys.executable, "-P", "-u", "-m", "remit.agents.process_main", str(theirs.fileno()), entrance]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,  # until it has joined it to its stderr
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        except OSError:
            self._socket.close()
            raise
        self.killed = False
        self._reaped = False
        self._reaping = threading.Lock()
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = loop.create_future()
        # The end of the channel alone would not tell: what the process has started may hold it open.
        name = f"remit-process-{self._process.pid}"
        threading.Thread(target=self._watch, args=(loop,), name=name, daemon=True).start()

    async def carry_out(self, brief: Brief) -> Answer | Fault:
        """Return what the agent made of it; if this raises, or `killed` is set, the process is of no more use."""
        if not self._connected:
            await self._connect()
        return await Clerk(self, brief).serve()

    async def _connect(self) -> None:
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._socket)
        self._connected = True
        self.send(Start(path=tuple(sys.path)))
        match await self.receive():
            case Ready():
                pass
            case Failed(fault=why):
                raise RemitError(why)
            case frame:
                raise self.broken(f"it began with {type(frame).__name__}")

    def send(self, frame: Frame) -> None:
        """Say something to the process, or raise one of `NOT_SAYABLE`."""
        payload = pack(frame)
        if not self.killed:
            self._writer.write(payload)

    async def sent(self) -> None:
        """Return once there is room for more."""
        with suppress(ConnectionError):  # whoever reads will see that it is gone
            await self._writer.drain()

    async def receive(self) -> ToHub:
        """Return what the process says next, or raise a `RemitError` if it dies or talks nonsense."""
        try:
            (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            if length > MAX_FRAME_BYTES:
                message = f"{self._entrance} gave {length} bytes at once; at most {MAX_FRAME_BYTES} are taken"
                raise RemitError(fault(Code.RESULT_VALIDATION_FAILED, message))
            return read_by_hub(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            await self.end()
            message = f"{self._entrance}: its process died ({self._how()})"
            raise RemitError(fault(Code.DELEGATION_FAILED, message)) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self.broken(str(error)) from error

    def broken(self, message: str) -> RemitError:
        """Return the error for a process that does not keep to the protocol."""
        return RemitError(fault(Code.DELEGATION_FAILED, f"{self._entrance}: its process spoke out of turn: {message}"))

    def kill(self) -> None:
        """Kill the process and all that it started, at once."""
        self.killed = True
        with self._reaping:
            if not self._reaped:
                self._kill_group()
        if self._connected:
            self._writer.transport.abort()

    async def end(self) -> None:
        """Kill the process and return once it is gone."""
        self.kill()
        if not self._connected:
            self._socket.close()
        done, _ = await asyncio.wait({self.exited}, timeout=REAP_S)
        if not done:
            log.warning("process %s of %s was killed and is not gone yet", self._process.pid, self._entrance)
        if self._connected:
            with suppress(ConnectionError):
                await self._writer.wait_closed()

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        # Only once it is reaped can its number be given to another, so what is left of its group is killed before that.
        if sys.platform == "darwin":  # has no way to wait without reaping before Python 3.13
            self._process.wait()
        else:
            with suppress(ChildProcessError):  # someone else reaped it
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        with self._reaping:
            self._kill_group()
            code = self._process.wait()
            self._reaped = True
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(self._note_exit, code)

    def _note_exit(self, code: int) -> None:
        self.kill()
        if not self.exited.done():
            self.exited.set_result(code)

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS forbids it where only the dead are left
            os.killpg(self._process.pid, signal.SIGKILL)

    def _how(self) -> str:
        if not self.exited.done():
            return "it cannot be reaped"
        code = self.exited.result()
        return f"signal {-code}" if code < 0 else f"exit code {code}"


# ── one delegation ────────────────────────────────────────────────────────────────────────────────────────────────────


class Clerk:
    """Carries out, within one delegation's brief, what the agent in the process wishes for."""

    def __init__(self, child: Child, brief: Brief) -> None:
        self._child = child
        self._brief = brief
        self._heard = 0
        self._wishes: dict[int, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(MAX_WISHES)

    async def serve(self) -> Answer | Fault:
        """Hand the delegation over and return how it ended; nothing that the agent asked for is left running."""
        try:
            self._hand_over()
            return await self._listen()
        except BaseException:
            self._child.kill()
            raise
        finally:
            if self._wishes:
                self._child.kill()  # it answered without waiting, and what it left running would speak out of turn
                await self._end_wishes()

    def _hand_over(self) -> None:
        brief = self._brief
        run = Run(
            request=brief.request,
            tools=brief.tools,
            original_request=brief.original_request,
            available_delegates=brief.available_delegates,
            account=self._account(),
        )
        try:
            self._child.send(run)
        except NOT_SAYABLE as error:
            message = f"the request cannot be handed to the process of {brief.request.target}: {error}"
            raise RemitError(fault(Code.TOO_LARGE, message)) from error

    async def _listen(self) -> Answer | Fault:
        while True:
            match await self._child.receive():
                case Done(answer=answer):
                    return self._answer(answer)
                case Failed(fault=why):
                    return why
                case Progress(text=text, partial=given):
                    partial = None if given == NULL else self._answer(given)
                    with suppress(RemitError):  # told to stop: the end is near, and the agent need not hear of it
                        self._brief.progress(text, partial=partial)
                case Spend(prompt=prompt, completion=completion, estimated=estimated):
                    self._heard += prompt + completion
                    with suppress(RemitError):  # told to stop, or nothing left: the process counts that itself
                        self._brief.spend(prompt=prompt, completion=completion, estimated=estimated)
                case Withdraw(number=number):
                    if number in self._wishes:
                        self._wishes[number].cancel()
                case Ready():
                    raise self._child.broken("it was ready already")
                case wish:
                    await self._begin(wish)

    async def _begin(self, wish: Wish) -> None:
        if wish.number in self._wishes:
            raise self._child.broken(f"it wished twice for number {wish.number}")
        await self._room.acquire()
        task = asyncio.get_running_loop().create_task(self._fulfil(wish))
        self._wishes[wish.number] = task
        task.add_done_callback(lambda task: self._fulfilled(wish.number, task))

    async def _fulfil(self, wish: Wish) -> None:
        try:
            self._reply(wish.number, await self._carry_out(wish))
        except RemitError as error:
            self._reply(wish.number, why=error.fault)
        except Exception as error:
            log.exception("a wish of %s failed", self._brief.request.target)
            self._reply(wish.number, why=fault(Code.DELEGATION_FAILED, f"the hub failed: {type(error).__name__}"))
        await self._child.sent()

    def _fulfilled(self, number: int, task: asyncio.Task[None]) -> None:
        del self._wishes[number]
        self._room.release()
        # Said here, because a task that is cancelled before its first step can say nothing.
        if task.cancelled():
            self._reply(number, why=fault(Code.CANCELLED, f"{self._brief.request.target} no longer wanted it"))

    def _reply(self, number: int, value: Json = None, *, why: Fault | None = None) -> None:
        try:
            self._child.send(Reply(number=number, account=self._account(), value=raw(value), fault=why))
        except NOT_SAYABLE as error:
            why = fault(Code.TOO_LARGE, f"what came of it cannot be handed to a process: {error}")
            self._child.send(Reply(number=number, account=self._account(), fault=why))

    async def _carry_out(self, wish: Wish) -> Json:
        brief = self._brief
        match wish:
            case Delegate(call=call):
                return await brief.delegate(**msgspec.structs.asdict(_call(call)))
            case FanOut(calls=calls):
                return await brief.fan_out([_call(call) for call in calls])
            case Chain(calls=calls):
                return await brief.chain([_call(call) for call in calls])
            case Use(tool=tool, arguments=arguments):
                return await brief.use(tool, **arguments)
            case Conversation():
                return await brief.conversation()
            case Facts():
                return await brief.facts()
            case _:
                raise AssertionError(wish)

    async def _end_wishes(self) -> None:
        for task in self._wishes.values():
            task.cancel()
        await asyncio.wait(set(self._wishes.values()))

    def _account(self) -> Account:
        brief = self._brief
        return Account(time_left_ms=brief.time_left_ms(), tokens_left=brief.tokens_left(), heard=self._heard)

    def _answer(self, given: Raw) -> Answer:
        try:
            return unraw(given, Answer)
        except msgspec.ValidationError as error:
            raise RemitError(self._wrong(given)) from error

    def _wrong(self, given: Raw) -> Fault:
        message = f"{self._brief.request.target} gave an answer that is not valid"
        try:
            decode(bytes(given), Answer, max_bytes=MAX_FRAME_BYTES)
        except RemitError as error:
            return fault(Code.RESULT_VALIDATION_FAILED, message, problems=error.fault.problems)
        return fault(Code.RESULT_VALIDATION_FAILED, message)


def _call(given: Raw) -> Call:
    """Return a call as the agent made it, right or wrong: like any agent's, a wrong one is refused by the hub."""
    try:
        return unraw(given, Call)
    except msgspec.ValidationError:
        return Call(**unraw(given, dict[str, Json]))
