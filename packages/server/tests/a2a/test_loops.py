"""Loops through an agent of another maker that drops everything a request carries, and are bounded all the same."""

import asyncio
from typing import Any

import aiohttp

from remit import Brief, Hub, Limits
from remit_server import Exposure, connect_a2a, serve
from remit_testing import MemoryStore
from waiting import PATIENCE_S

TOKEN = "a-token-that-nobody-guesses"
WISH = "Find out who has the receipts of March"


class Stranger:
    """Passes each task on to an agent of the first hub, as a client of its own, with nothing but the text."""

    def __init__(self, words: str = "") -> None:
        self.address = ""
        self.words = words
        self.passed = 0

    async def act(self, brief: Brief) -> str:
        self.passed += 1
        text = f"{self.words} {self.passed}" if self.words else brief.text
        message = {"messageId": f"m-{self.passed}", "role": "ROLE_USER", "parts": [{"text": text}]}
        headers = {"authorization": f"Bearer {TOKEN}", "a2a-version": "1.0"}
        url = f"{self.address}/a2a/boss/message:send"
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(url, json={"message": message}) as reply,
        ):
            given = await reply.json()
        return str(given)


async def entries(stranger: Stranger, exposure: Exposure) -> tuple[int, str]:
    """Return how often the first hub's agent was entered, and what came of it."""
    near, far = (Hub(name=name, store=MemoryStore(), limits=Limits(max_depth=6)) for name in ("near", "far"))
    entered = 0

    async def boss(brief: Brief) -> str:
        nonlocal entered
        entered += 1
        reply = await brief.delegate("stranger", objective=brief.text)
        return str(reply.result or reply.fault)

    near.add("boss", boss, may_call=["stranger"], concurrency=1_000)
    far.add("passer", stranger.act, concurrency=1_000)
    knows: Any = {"clients": {"near": TOKEN}, "users": {"near": ["ada"]}}
    async with asyncio.timeout(PATIENCE_S), far, serve(far, **knows, a2a=True) as there:
        connect_a2a(near, "stranger", f"{there}/a2a/passer", token=TOKEN)
        async with near, serve(near, clients={"far": TOKEN}, users={"far": ["ada"]}, a2a=exposure) as here:
            stranger.address = here
            done = await near.ask("boss", WISH, user="ada")
    return entered, str(done.result)


async def test_what_comes_back_with_the_same_text_counts_as_deep_as_it_is() -> None:
    entered, said = await entries(Stranger(), Exposure())
    assert entered <= 4
    assert "MAX_DEPTH" in said or "LOOP_DETECTED" in said, said


async def test_what_comes_back_in_other_words_is_bounded_by_what_one_client_may_have_open() -> None:
    entered, said = await entries(Stranger("Please look for receipts, attempt"), Exposure(open=5))
    assert entered == 6, "the first one was asked here"
    assert "5 tasks from far are at work" in said


async def test_the_same_wish_of_one_client_many_times_at_once_is_no_loop() -> None:
    """Nobody else asked for it meanwhile."""
    far, near = Hub(name="far", store=MemoryStore()), Hub(name="near", store=MemoryStore())
    go, there = asyncio.Event(), 0

    async def slow(_: Brief) -> str:
        nonlocal there
        there += 1
        if there == 12:
            go.set()
        await go.wait()
        return "found"

    async def boss(brief: Brief) -> str:
        return str((await brief.delegate("finder", objective=brief.text)).unwrap())

    far.add("finder", slow, concurrency=100)
    near.add("boss", boss, may_call=["finder"], concurrency=100)
    headers = {"authorization": f"Bearer {TOKEN}", "a2a-version": "1.0"}
    knows: Any = {"clients": {"near": TOKEN}, "users": {"near": ["ada"]}}
    async with asyncio.timeout(PATIENCE_S), far, serve(far, **knows, a2a=True) as address:
        connect_a2a(near, "finder", f"{address}/a2a/finder", token=TOKEN, concurrency=100)
        async with (
            near,
            serve(near, clients={"web": TOKEN}, users={"web": ["ada"]}, a2a=True) as here,
            aiohttp.ClientSession(here, headers=headers) as session,
            asyncio.TaskGroup() as group,
        ):
            tasks = [group.create_task(_asked(session, number)) for number in range(12)]
    assert {task.result() for task in tasks} == {"TASK_STATE_COMPLETED"}


async def _asked(session: aiohttp.ClientSession, number: int) -> str:
    message = {"messageId": f"m-{number}", "role": "ROLE_USER", "parts": [{"text": WISH}]}
    async with session.post("/a2a/boss/message:send", json={"message": message}) as reply:
        given = await reply.json()
    assert "task" in given, given
    return str(given["task"]["status"]["state"])
