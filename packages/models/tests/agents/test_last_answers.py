"""At a limit a model answers once more, with what was found; the server counts the tokens itself."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from openai_server import Answer, OpenAIServer, Reply, Request, call, say
from remit import Brief, Code, Hub, Status
from remit_models import ModelAgent
from remit_server.model_prices import Price, PriceBook
from remit_testing import ManualClock, MemoryStore

SHELVES = 5
RUNS = 200
FILLER = "The shelf is long, and most of what stands on it is of no use to anybody who looks for tea. " * 4


class Librarian:
    """A model that looks at every shelf before it answers, and a server that counts what each run takes."""

    def __init__(self) -> None:
        self.tokens: Counter[str] = Counter()
        self.clock: tuple[asyncio.AbstractEventLoop, ManualClock, float] | None = None
        """The clock that each call moves on, and by how many seconds."""

    def reply(self, request: Request) -> Answer:
        (run,) = set(re.findall(r"errand \d+", request.message_texts)) or {"errand"}
        if self.clock is not None:
            loop, clock, seconds = self.clock
            loop.call_soon_threadsafe(clock.advance, seconds)
        made = self._made(request)
        most = request.body.get("max_completion_tokens") or request.body.get("max_tokens")
        prompt = _tokens(request.message_texts + str(request.body.get("tools", "")))
        words = made.text.split()
        # A word of this text is no more than two tokens.
        cut = made.text if most is None or 2 * len(words) <= most else " ".join(words[: most // 2])
        usage = prompt, 20 if made.calls else _tokens(cut)
        self.tokens[run] += sum(usage)
        finish = "" if cut == made.text else "length"
        return Reply(cut, calls=made.calls, pieces=(cut,) if cut else (), usage=usage, finish=finish)

    def _made(self, request: Request) -> Reply:
        found = sorted(set(re.findall(r"tea-\d+", request.message_texts)))
        if request.body.get("tools") and request.body.get("tool_choice") != "none" and len(found) < SHELVES:
            return call("look_at", shelf=len(found))
        return say(f"The shelves have {', '.join(found)}. " + "That is what can be told of them. " * 5)


def _tokens(text: str) -> int:
    return round(len(text) / 4.5)


@pytest.fixture
def librarian() -> Librarian:
    return Librarian()


@pytest.fixture
def server(librarian: Librarian) -> Iterator[OpenAIServer]:
    with OpenAIServer(librarian.reply) as running:
        yield running


def a_hub(server: OpenAIServer, clock: ManualClock | None = None, **options: Any) -> Hub:
    """Return a hub whose clerks share a model; the name of each says how often it may use tools."""
    options |= {} if clock is None else {"clock": clock}
    hub = Hub(store=MemoryStore(), redaction=False, **options)

    @hub.tool(safe_to_repeat=True)
    async def look_at(shelf: int) -> str:
        """Say what is on a shelf."""
        return f"On shelf {shelf}: tea-{shelf}. {FILLER}"

    provider = OpenAIProvider(base_url=server.base_url, api_key="none")
    for rounds in range(1, SHELVES + 2):
        model = ModelAgent(OpenAIChatModel("scripted", provider=provider), max_tool_rounds=rounds)
        hub.add(f"clerk-{rounds}", model, tools=["look_at"])
    return hub


CLERK = f"clerk-{SHELVES + 1}"


async def test_of_two_hundred_runs_that_a_limit_cuts_nearly_all_have_an_answer(
    server: OpenAIServer, librarian: Librarian
) -> None:
    """Limits are drawn from a third to nearly all of what the whole run takes; none is exceeded."""
    draws, clock, ended, places = random.Random(7), ManualClock(), Counter[str](), asyncio.Semaphore(8)
    kinds = Counter(draws.choice(("tokens", "money", "rounds", "time")) for _ in range(RUNS))
    prices = PriceBook({"openai:scripted": Price(input=1, output=4)}).cost

    async def run(hub: Hub, name: str, agent: str, **options: Any) -> None:
        async with places:
            response = await hub.ask(agent, name, user="u", **options)
        assert response.status is not Status.SUCCESS, (name, options)
        assert response.usage.overrun == 0
        assert librarian.tokens[name] <= options.get("max_tokens", whole.usage.total)
        assert response.usage.cost <= options.get("max_cost", whole.usage.cost)
        ended["usable"] += "tea-" in str(response.result)
        ended["answered"] += response.status is Status.PARTIAL

    async with a_hub(server, prices=prices) as hub:
        whole = await hub.ask(CLERK, "errand 0", user="u")
        assert (whole.status, len(whole.tool_calls)) == (Status.SUCCESS, SHELVES)
        async with asyncio.TaskGroup() as group:
            for number in range(kinds["tokens"]):
                tokens = round(whole.usage.total * draws.uniform(0.3, 0.9))
                group.create_task(run(hub, f"errand 1{number}", CLERK, max_tokens=tokens))
            for number in range(kinds["money"]):
                cost = round(whole.usage.cost * draws.uniform(0.3, 0.9))
                group.create_task(run(hub, f"errand 4{number}", CLERK, max_cost=cost))
            for number in range(kinds["rounds"]):
                group.create_task(run(hub, f"errand 2{number}", f"clerk-{draws.randint(1, SHELVES - 1)}"))
    async with a_hub(server, clock, prices=prices) as hub:
        for number in range(kinds["time"]):
            seconds = draws.uniform(0.5, 3)
            librarian.clock = asyncio.get_running_loop(), clock, seconds
            time_ms = round(seconds * draws.uniform(2.2, SHELVES) * 1_000)  # for two calls at least
            await run(hub, f"errand 3{number}", CLERK, deadline_ms=time_ms)
    assert ended["usable"] >= 0.95 * RUNS, ended
    assert ended["answered"] >= 0.95 * RUNS, ended


async def test_the_last_answer_says_why_it_is_one(server: OpenAIServer) -> None:
    async with a_hub(server) as hub:
        response = await hub.ask(CLERK, "errand 1", user="u", max_tokens=1_800)
    assert (response.status, response.usage.overrun) == (Status.PARTIAL, 0)
    assert response.unfinished == ("its tokens were nearly spent, and it answered with what it had",)
    assert "can use no more tools" in server.requests[-1].message_texts
    assert not server.requests[-1].tools


async def test_money_for_a_last_answer_is_kept_too(server: OpenAIServer) -> None:
    async with a_hub(server, prices=PriceBook({"openai:scripted": Price(input=1, output=4)}).cost) as hub:
        response = await hub.ask(CLERK, "errand 1", user="u", max_cost=3_500)
    assert response.status is Status.PARTIAL
    assert response.unfinished == ("its money was nearly spent, and it answered with what it had",)
    assert "tea-0" in str(response.result)
    assert 0 < response.usage.cost <= 3_500
    assert not server.requests[-1].tools


async def test_a_tool_that_takes_all_the_time_leaves_enough_for_an_answer(server: OpenAIServer) -> None:
    clock = ManualClock()
    hub = a_hub(server, clock)

    @hub.tool(safe_to_repeat=True)
    async def hang() -> str:
        """Never come back."""
        clock.advance(0.9)
        await asyncio.Event().wait()
        return "never"

    def reply(request: Request) -> Answer:
        if not request.tools:
            return say("There is tea-0.")
        return call("hang") if request.results else call("look_at", shelf=0)

    with OpenAIServer(reply) as other:
        model = ModelAgent("scripted", base_url=other.base_url, settings={"max_retries": 0})
        hub.add("patient", model, tools=["look_at", "hang"])
        async with hub:
            response = await hub.ask("patient", "Look", user="u", deadline_ms=1_000)
    assert (response.status, response.result) == (Status.PARTIAL, "There is tea-0.")
    assert response.unfinished == ("its time was nearly over, and it answered with what it had",)


async def test_what_agents_below_take_leaves_the_tokens_of_a_last_answer() -> None:
    def reply(request: Request) -> Answer:
        if not request.tools:
            return say("The glutton was asked.", usage=(100, 10))
        return call("sub_agent", agent_name="glutton", task=f"Eat part {len(request.results)}")

    hub = Hub(store=MemoryStore(), redaction=False)

    @hub.agent("glutton")
    async def glutton(brief: Brief) -> str:
        brief.spend(prompt=brief.tokens_left(1_000_000))
        return "eaten"

    with OpenAIServer(reply) as server:
        hub.add("boss", ModelAgent("scripted", base_url=server.base_url), may_call=["glutton"])
        async with hub:
            response = await hub.ask("boss", "Feed it", user="u", max_tokens=4_000)
    assert (response.status, response.result) == (Status.PARTIAL, "The glutton was asked.")
    assert response.usage.overrun == 0


async def test_if_the_last_call_fails_what_was_found_is_the_answer_so_far() -> None:
    def reply(request: Request) -> Answer:
        return call("look_at", shelf=len(request.results))

    with OpenAIServer(reply) as server:
        async with a_hub(server) as hub:
            response = await hub.ask(CLERK, "Look", user="u", max_tokens=1_800)
    assert response.fault is not None
    assert response.fault.code is Code.TOKEN_BUDGET_EXCEEDED
    assert str(response.result).startswith("- look_at: On shelf 0: tea-0.")
    assert response.unfinished == ("the answer to what was found",)
