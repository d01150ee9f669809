"""Chains of agents as A2A's integration test kit makes them: agents of hubs and of a2a-sdk call one another."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import ClientSession, web

from a2a_serving import Caller, state
from itk_agent import BINDINGS, itk_agent
from itk_instructions import FILE, FINISHED, MEDIA_TYPE, calling, returning
from itk_sdk_agent import itk_sdk_agent
from remit_testing import MemoryStore
from waiting import PATIENCE_S, eventually

every = pytest.mark.parametrize("transport", BINDINGS)


@pytest.fixture
async def agents() -> AsyncGenerator[dict[str, str]]:
    """The addresses of two agents of hubs, and of one of the SDK."""
    async with (
        asyncio.timeout(PATIENCE_S),
        itk_agent(MemoryStore(), name="remit") as remit,
        itk_agent(MemoryStore(), name="other") as other,
        itk_sdk_agent() as sdk,
    ):
        yield {"remit": remit, "other": other, "sdk": sdk}


# Each agent calls each of the others once.
CIRCUIT = ("remit", "sdk", "remit", "other", "sdk", "other", "remit")


def chain(agents: dict[str, str], transport: str, **how: Any) -> tuple[Any, list[str]]:
    """Return the instruction for the first agent of the circuit, and the lines of its answer."""
    done = f"done over {transport}"
    instruction, lines = returning(done, hold=how.get("hold", False)), [done]
    for caller, callee in reversed(list(pairwise(CIRCUIT))):
        says = f"{caller} -> {callee}"
        instruction = calling(agents[callee], instruction, transport=transport, says=says, **how)
        lines.insert(0, says)
    return instruction, lines


def message(instruction: Any) -> dict[str, Any]:
    raw = b64encode(instruction.SerializeToString()).decode()
    part = {"raw": raw, "mediaType": MEDIA_TYPE, "filename": FILE}
    return {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [part]}


class FromKit(Caller):
    """Asks an agent as the kit does, which shows no token."""

    def __init__(self, session: ClientSession) -> None:
        super().__init__(session, "itk")
        self.base = "/jsonrpc/"


def first_of(agents: dict[str, str]) -> ClientSession:
    return ClientSession(agents["remit"], headers={"a2a-version": "1.0"})


@every
@pytest.mark.parametrize("streaming", [False, True], ids=["at once", "streamed"])
async def test_a_message_goes_through_every_agent_and_back(
    agents: dict[str, str], transport: str, streaming: bool
) -> None:
    instruction, lines = chain(agents, transport, streaming=streaming)
    async with first_of(agents) as session:
        task = (await FromKit(session)("SendMessage", message=message(instruction)))["task"]
    assert state(task) == "COMPLETED"
    assert task["status"]["message"]["parts"][0]["text"].splitlines() == lines


@every
async def test_tasks_that_are_held_are_left_subscribed_to_again_and_cancelled(
    agents: dict[str, str], transport: str
) -> None:
    instruction, lines = chain(agents, transport, streaming=True, hold=True)
    async with first_of(agents) as session:
        ask = FromKit(session)
        update: Any = {}
        async for event in ask.stream("SendStreamingMessage", message=message(instruction)):
            update = event.get("statusUpdate", {})
            if update.get("status", {}).get("message"):
                break
        cancelled = await ask("CancelTask", id=update["taskId"])
    assert update["status"]["message"]["parts"][0]["text"].splitlines() == [*lines, FINISHED]
    assert state(cancelled) == "CANCELED"


@every
async def test_every_agent_of_a_hub_notifies_where_its_caller_says(agents: dict[str, str], transport: str) -> None:
    texts: list[str] = []

    async def hear(request: web.Request) -> web.Response:
        update = (await request.json()).get("statusUpdate", {})
        texts.append(update.get("status", {}).get("message", {}).get("parts", [{}])[0].get("text", ""))
        return web.Response()

    app = web.Application()
    app.router.add_post("/notifications", hear)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    here = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        inner = calling(agents["remit"], returning("done"), transport=transport, says="back", notify=here)
        outer = calling(agents["other"], inner, transport=transport, says="there", notify=here)
        async with first_of(agents) as session:
            task = (await FromKit(session)("SendMessage", message=message(outer)))["task"]
        await eventually(lambda: {"done", "back\ndone"} <= set(texts))
    finally:
        await runner.cleanup()
    assert task["status"]["message"]["parts"][0]["text"] == "there\nback\ndone"
