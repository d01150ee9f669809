"""The main module of an isolated agent's process: runs the agent's code for one delegation after another."""

import asyncio
import logging
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from remit.agents.function import agent_from
from remit.agents.threads import Threads
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.runtime.brief import Brief
from remit.runtime.origin import origin_of
from remit.runtime.ports import Agent
from remit_cli.processes.channel import (
    NOT_SAYABLE,
    DoneFrame,
    FailedFrame,
    ReadyFrame,
    ReplyFrame,
    RunFrame,
    StartFrame,
    ToProcess,
    raw_of_agent,
)
from remit_cli.processes.process_brief import Channel, RemoteBriefBackend

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
    found: Any = import_module(module)
    for name in qualname.split("."):
        found = getattr(found, name)
    if not callable(found):
        raise TypeError(f"{entrance} is a {type(found).__name__}, not a function")
    return found


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
    told = not rules.network
    try:
        if rules.network:
            with enter_own_network() as listener:
                proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
                socket.send_fds(end, [b"+"], [listener.fileno()])
            told = True
            os.environ.update(dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), proxy))
        enforce(rules)
    except (OSError, RemitError) as error:
        if not told:
            end.sendall(b"-")
        why = f"the sandbox cannot be set up, and nothing runs without it: {_describe_error(error)}"
        Channel(end).send(FailedFrame(fault=fault(Code.TEAM_INVALID, why)))
        raise SystemExit(1) from error


async def _open(end: socket.socket, entrance: str) -> None:
    await Worker(Channel(end)).serve(entrance)


if __name__ == "__main__":
    main()
