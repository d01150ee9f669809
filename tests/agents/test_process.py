"""Agents in processes of their own (K12, decision 11)."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import isolated_agents as agents
import pytest
from samples import a_remit, a_request, a_response

from remit import Answer, Brief, Call, Code, Hub, Kind, Progress, Record, RemitError, Request, Response, Status, Usage
from remit.agents.function import AgentFunction
from remit.agents.process import ProcessAgent
from remit.protocol.envelope import Handoff, Json

T = TypeVar("T")

# Generous, because a machine that runs every test at once is slow; nothing here takes a tenth of it.
SOON = 20.0
# A callee that is told to stop has three seconds to be gone.
GRACE = 3.0


class Desk:
    """A hub's side of one delegation: notes what it is asked for and answers as the test says."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.cancelled: list[Call] = []
        self.spent: list[Usage] = []
        self.partials: list[Answer | None] = []
        self.said: asyncio.Queue[str] = asyncio.Queue()
        self.delegated = asyncio.Event()
        self.left = 1_000
        self.together = asyncio.Barrier(1)

    async def delegate(self, call: Call) -> Response:
        self.calls.append(call)
        self.delegated.set()
        if call.target == "nobody-answers":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(call)
                raise
        await self.together.wait()
        self.left -= 10
        return a_response(target=call.target, result=f"{call.target} did", usage=Usage(prompt=10))

    async def fan_out(self, calls: Sequence[Call]) -> list[Response]:
        return [await self.delegate(call) for call in calls]

    async def chain(self, calls: Sequence[Call]) -> list[Response]:
        return [await self.delegate(call) for call in calls]

    async def use(self, tool: str, arguments: dict[str, Json]) -> Json:
        if tool == "add":
            return arguments["one"] + arguments["two"]
        if tool == "wait-for-delegation":
            await self.delegated.wait()
            return None
        raise RemitError(refusal)

    def progress(self, text: str, partial: Answer | None) -> None:
        self.said.put_nowait(text)
        self.partials.append(partial)

    def spend(self, usage: Usage) -> int:
        self.spent.append(usage)
        self.left -= usage.total
        return self.left

    def time_left_ms(self) -> int:
        return 5_000

    def tokens_left(self) -> int:
        return self.left

    def original_request(self) -> str:
        return "Sort my receipts"

    def available_delegates(self) -> tuple[str, ...]:
        return ("tag", "tax")

    async def conversation(self) -> list[Record]:
        bodies = {
            Kind.STARTED: a_request(),
            Kind.RESULT: a_response(),
            Kind.PROGRESS: Progress(delegation="r-1", agent="tag", text="half"),
        }
        return [
            Record(seq=seq, kind=kind, at_ms=1, run="run-0", session="s", body=body)
            for seq, (kind, body) in enumerate(bodies.items())
        ]

    async def facts(self) -> tuple[str, ...]:
        return ("likes tea",)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        raise AssertionError("only threads of the agent's own process wait")


refusal = RemitError.__new__  # replaced below, once a fault can be made
