"""What an agent finds out by itself is found out once (K13): after a restart it is what it was before."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from openai_server import OpenAIServer, call
from remit import Brief, Capability, Code, Hub, RemitError, Response
from remit_models import ModelAgent
from remit_orchestrator import add_orchestrator
from waiting import PATIENCE_S

MakeHub = Callable[..., Hub]


async def interrupted(hub: Hub, agent: str, reached: asyncio.Event, text: str = "go") -> None:
    """Ask an agent, and close the hub once it has come so far: a resumable run is handed back."""
    async with hub:
        going = asyncio.create_task(hub.ask(agent, text, user="u", request_id="r"))
        async with asyncio.timeout(PATIENCE_S):
            await reached.wait()
    with suppress(asyncio.CancelledError):
        await going


async def resumed(hub: Hub, agent: str, text: str = "go") -> Response:
    async with hub, asyncio.timeout(PATIENCE_S):
        return await hub.ask(agent, text, user="u", request_id="r")


def team(hub: Hub, lookups: list[int], *, reached: asyncio.Event | None = None, resumable: bool = True) -> Hub:
    @hub.agent("a", resumable=resumable)
    async def a(brief: Brief) -> Any:
        async def look() -> dict[str, int]:
            lookups.append(len(lookups))
            return {"looked": len(lookups)}

        value = await brief.once("look", look)
        if reached is not None:
            reached.set()
            await asyncio.Event().wait()
        return value

    return hub


async def test_what_was_found_out_before_a_restart_is_not_found_out_again(make_hub: MakeHub) -> None:
    """K13: what was kept survives."""
    lookups: list[int] = []
    reached = asyncio.Event()
    await interrupted(team(make_hub(), lookups, reached=reached), "a", reached)
    response = await resumed(team(make_hub(), lookups), "a")
    assert (response.result, lookups) == ({"looked": 1}, [0])


async def test_a_run_that_is_not_resumable_finds_out_whatever_it_asks_for(make_hub: MakeHub) -> None:
    lookups: list[int] = []
    async with team(make_hub(), lookups, resumable=False) as hub:
        for _ in range(2):
            await hub.ask("a", "go", user="u")
    assert lookups == [0, 1]


async def test_each_name_is_for_one_thing(hub: Hub) -> None:
    codes: list[Code] = []

    @hub.agent("a", resumable=True)
    async def a(brief: Brief) -> list[int]:
        async def one() -> int:
            return 1

        async def fails() -> int:
            raise LookupError

        with pytest.raises(LookupError):
            await brief.once("x", fails)
        numbers = [await brief.once("x", one), await brief.once("y", one)]
        with pytest.raises(RemitError) as refused:
            await brief.once("x", one)
        codes.append(refused.value.fault.code)
        return numbers

    async with hub:
        response = await hub.ask("a", "go", user="u")
    assert response.result == [1, 1], "what failed was not found out"
    assert codes == [Code.DUPLICATE_REQUEST]


# ── the orchestrator ──────────────────────────────────────────────────────────────────────────────────────────────────

LOOK = Capability(code="LOOK", description="Look it up", read_only=True)
BOOK = Capability(code="BOOK", description="Book it", read_only=True)


def orchestrated(hub: Hub, server: OpenAIServer, done: list[str], reached: asyncio.Event | None = None) -> Hub:
    for capability in (LOOK, BOOK):

        @hub.agent(capability.code.lower(), capabilities=[capability])
        async def work(brief: Brief, name: str = capability.code) -> str:
            done.append(name)
            if reached is not None:
                reached.set()
                await asyncio.Event().wait()
            return name

    add_orchestrator(hub, reader="model", model=ModelAgent("scripted", base_url=server.base_url))
    return hub


async def test_after_a_restart_what_the_model_decided_is_done_and_it_is_not_asked_again(make_hub: MakeHub) -> None:
    """K7, K13: a model might say something else the second time; then both would be done."""
    done: list[str] = []
    reached = asyncio.Event()

    def wanted(code: str) -> Any:
        start = {"command": "start", "piece": 1, "words": "see", "capability": code, "confidence": 0.9}
        return call("final_result", commands=[start])

    with OpenAIServer([wanted("LOOK"), wanted("BOOK")]) as server:
        await interrupted(orchestrated(make_hub(), server, done, reached), "orchestrator", reached, "see to it")
        response = await resumed(orchestrated(make_hub(), server, done), "orchestrator", "see to it")
    assert response.ok
    assert done == ["LOOK", "LOOK"]
    assert len(server.requests) == 1
