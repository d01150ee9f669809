"""Delegations with a real language model, over HTTP. What it says is its own affair; what becomes of it is not."""

import asyncio
import json
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest

from model.by_schema import ToolsBySchema, served
from remit import Brief, Code, ContextFilter, Delta, Hub, Kind, Response, Status
from remit_models import ModelAgent

# A model on a processor that others use too is slow; only one that hangs takes as long.
pytestmark = pytest.mark.timeout(300)

MakeAgent = Callable[..., ModelAgent]


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(store=tmp_path / "hub.db", durability="process")


@pytest.fixture
def open_hub(tmp_path: Path) -> Hub:
    """Return a hub that redacts nothing: what is said is passed on at once, and not when it is known to be harmless."""
    return Hub(store=tmp_path / "hub.db", durability="process", redaction=False)


@pytest.fixture
def named(base_url: str) -> MakeAgent:
    """Return `ModelAgent` for the model by its name, as a program gives it."""
    return partial(ModelAgent, "smollm2", base_url=base_url, api_key="none is needed", settings={"temperature": 0.0})


def code_of(response: Response) -> Code | None:
    return None if response.fault is None else response.fault.code


def said_to(messages: list[ModelMessage]) -> str:
    """Return everything that a model was sent, as text."""
    parts = [str(getattr(part, "content", "")) for message in messages for part in message.parts]
    instructions = [message.instructions or "" for message in messages if isinstance(message, ModelRequest)]
    return "\n".join((*instructions, *parts))


def completion(base_url: str, **body: Any) -> dict[str, Any]:
    """Ask the server directly."""
    data = json.dumps({"model": "smollm2", "temperature": 0, **body}).encode()
    request = urllib.request.Request(f"{base_url}/chat/completions", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


# ── one agent ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_it_answers_and_what_it_used_is_metered(hub: Hub, named: MakeAgent, base_url: str) -> None:
    """X7: real use is metered, as the server counts it."""
    hub.add("guide", named(prompt="You are a helpful guide.", max_output_tokens=24))
    async with hub:
        response = await hub.ask("guide", "What is the capital of France?", user="u-1")
    assert response.status in (Status.SUCCESS, Status.PARTIAL), response.fault
    assert isinstance(response.result, str)
    assert response.result.strip()
    messages = [
        {"role": "system", "content": "You are a helpful guide."},
        {"role": "user", "content": "What is the capital of France?"},
    ]
    counted = await asyncio.to_thread(completion, base_url, messages=messages, max_tokens=1)
    assert response.usage.prompt == counted["usage"]["prompt_tokens"]
    assert 0 < response.usage.completion <= 24
    assert not response.usage.estimated


async def test_its_answer_is_heard_as_it_comes(open_hub: Hub, named: MakeAgent) -> None:
    """X15: streamed responses."""
    open_hub.add("guide", named(max_output_tokens=30))
    async with open_hub:
        records = [record async for record in open_hub.stream("guide", "Say hello to the visitors.", user="u-1")]
    texts = [record.body.text for record in records if isinstance(record.body, Delta)]
    ended = records[-1].body
    assert records[-1].kind is Kind.RESULT
    assert isinstance(ended, Response)
    assert len(texts) > 3
    assert "".join(texts).strip() == ended.result.strip()
    assert ended.usage.completion > 3
    assert not ended.usage.estimated


async def test_an_answer_that_was_cut_off_says_so(hub: Hub, named: MakeAgent) -> None:
    """K10: what was finished and what was not."""
    hub.add("guide", named(max_output_tokens=16))
    async with hub:
        response = await hub.ask("guide", "Tell me the long story of the Roman Empire.", user="u-1")
    assert (response.status, response.usage.completion) == (Status.PARTIAL, 16)
    assert response.unfinished


async def test_it_knows_what_was_said_before(hub: Hub, base_url: str) -> None:
    model = ToolsBySchema(served(base_url, temperature=0.0), "none")
    hub.add("guide", ModelAgent(model, max_output_tokens=16))
    async with hub:
        first = await hub.ask("guide", "My dog is called Rex.", user="u-1")
        await hub.ask("guide", "What is my dog called?", user="u-1", session=first.session)
    assert "called Rex" in said_to(model.sent[1])


# ── a planner and a specialist ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_planner_asks_a_specialist_who_sees_only_what_it_should(hub: Hub, base_url: str) -> None:
    """O1, O4, O7: through the tool `sub_agent`, both with the model."""
    # A filter is read although the model is told of none: without it, the librarian would be shown no messages.
    asks = {"agent_name": "librarian", "context": {"roles": ["user"]}}
    planner = ToolsBySchema(served(base_url, temperature=0.0), "sub_agent", times=1, fixed=asks)
    librarian = ToolsBySchema(served(base_url, temperature=0.0), "look_up", times=1)
    looked: list[str] = []

    @hub.tool()
    async def look_up(words: str) -> str:
        """Find a book in the catalogue."""
        looked.append(words)
        return "Shelf 42"

    hub.add(
        "planner",
        ModelAgent(planner, prompt="Secret of the planner: gooseberry.", max_output_tokens=40),
        may_call=["librarian"],
        tokens=8_000,
    )
    hub.add(
        "librarian",
        ModelAgent(librarian, prompt="You keep the books.", max_output_tokens=40),
        description="Finds books.",
        tools=["look_up"],
    )
    async with hub:
        first = await hub.ask("planner", "I like books about whales.", user="u-1")
        response = await hub.ask("planner", "Find me one of those books.", user="u-1", session=first.session)
        calls = [(each.origin, each.target) for each in await hub.delegations(response.run)]

    assert response.status in (Status.SUCCESS, Status.PARTIAL), response.fault
    assert calls == [("user", "planner"), ("planner", "librarian")]
    assert looked
    seen = said_to(librarian.sent[-1])
    assert "You keep the books." in seen
    assert "[Called by: planner]" in seen
    assert "books about whales" in seen, "the conversation, as the filter lets it pass"
    assert "Shelf 42" in seen, "its own tool"
    assert "gooseberry" not in seen
    assert "sub_agent" not in seen
    prompt = said_to(planner.sent[-1])
    assert '"agent_name":"librarian"' in prompt.replace(" ", "")
    assert '"success":true' in prompt.replace(" ", "")
    assert "Shelf 42" not in prompt or "Shelf 42" in _output(prompt), "what the tool said is the specialist's alone"
    assert not response.usage.estimated
    assert 0 < response.usage.total < 8_000


def _output(prompt: str) -> str:
    start = prompt.index('{"agent_name"')
    return json.JSONDecoder().raw_decode(prompt[start:])[0]["output"]


async def test_whom_it_asks_is_one_of_those_who_may_be_asked_and_a_written_call_is_carried_out(
    hub: Hub, base_url: str
) -> None:
    """O1: the model chooses among the names in the schema, and writes the call as a text."""
    planner = ToolsBySchema(served(base_url, temperature=0.0), "sub_agent", times=1, writes=True)
    targets: list[str] = []

    async def answer(brief: Brief) -> str:
        targets.append(brief.request.target)
        return "Done."

    hub.add("planner", ModelAgent(planner, prompt="You plan.", max_output_tokens=60), may_call=["coder", "librarian"])
    hub.add("coder", answer, description="Writes code.")
    hub.add("librarian", answer, description="Finds books.")
    async with hub:
        response = await hub.ask("planner", "Find me a book about tea.", user="u-1")
    assert response.status in (Status.SUCCESS, Status.PARTIAL), response.fault
    assert len(targets) == 1
    assert targets[0] in ("coder", "librarian")


async def test_a_specialist_is_shown_nothing_when_nothing_is_asked_for(hub: Hub, base_url: str) -> None:
    """O4: without a filter there are no messages, with one only those that it names."""
    model = ToolsBySchema(served(base_url, temperature=0.0), "none")
    hub.add("specialist", ModelAgent(model, max_output_tokens=16))

    @hub.agent("planner", may_call=["specialist"])
    async def planner(brief: Brief) -> str:
        await brief.delegate("specialist", objective="Say yes")
        users = ContextFilter(keywords=("harbour",))
        await brief.delegate("specialist", objective="Say no", context=users)
        return "done"

    async with hub:
        await hub.ask("planner", "We meet at the harbour.", user="u-1", session="s")
        await hub.ask("planner", "Bring the boat.", user="u-1", session="s")
    nothing, filtered = (said_to(sent) for sent in model.sent[2:])
    assert "harbour" not in nothing
    assert "We meet at the harbour." in filtered
    assert "Bring the boat." not in filtered


# ── a model that goes round in circles ────────────────────────────────────────────────────────────────────────────────


class Looping:
    """An agent whose model searches, and searches again, and never has enough."""

    def __init__(self, hub: Hub, base_url: str, **options: Any) -> None:
        self.searched: list[str] = []
        self.model = ToolsBySchema(served(base_url, temperature=0.0), "search")

        @hub.tool(safe_to_repeat=True)
        async def search(query: str) -> str:  # pyright: ignore[reportUnusedFunction]
            """Search the documents."""
            self.searched.append(query)
            return f"{len(self.searched)} documents found, keep searching."

        hub.add("seeker", ModelAgent(self.model, prompt="Search.", **options), tools=["search"])


async def test_its_budget_ends_a_loop(hub: Hub, base_url: str) -> None:
    """X7: nothing is spent that was not granted."""
    looping = Looping(hub, base_url, max_tool_rounds=1_000)
    async with hub:
        response = await hub.ask("seeker", "Find the document about apples.", user="u-1", max_tokens=700)
    assert (response.status, code_of(response)) == (Status.FAILED, Code.TOKEN_BUDGET_EXCEEDED)
    assert len(looping.searched) >= 2
    assert response.tool_calls == ("search",) * len(looping.searched)
    assert 0 < response.usage.total <= 700
    assert not response.usage.estimated


async def test_the_limit_of_its_tool_rounds_ends_a_loop_with_an_answer(hub: Hub, base_url: str) -> None:
    looping = Looping(hub, base_url, max_tool_rounds=2, max_output_tokens=48)
    async with hub:
        response = await hub.ask("seeker", "Find the document about apples.", user="u-1")
    assert response.status in (Status.SUCCESS, Status.PARTIAL), response.fault
    assert response.result.strip()
    assert len(looping.searched) == 2
    assert any("tools" in warning for warning in response.warnings)
    assert len(looping.model.sent) == 3


async def test_its_deadline_ends_a_loop(hub: Hub, base_url: str) -> None:
    """X6: it is really cancelled, and the model with it."""
    looping = Looping(hub, base_url, max_tool_rounds=1_000)
    async with hub:
        response = await hub.ask(
            "seeker", "Find the document about apples.", user="u-1", max_tokens=1_000_000, deadline_ms=5_000
        )
        calls = len(looping.model.sent)
        free = await asyncio.to_thread(completion, base_url, messages=[{"role": "user", "content": "Hi"}], max_tokens=1)
    assert (response.status, code_of(response)) == (Status.TIMEOUT, Code.TIMEOUT)
    assert response.duration_ms < 10_000
    assert response.usage.total > 0
    assert free["usage"]["completion_tokens"] == 1
    assert len(looping.model.sent) == calls, "nothing was asked of the model after that"


async def test_cancelling_ends_a_generation_in_the_middle(open_hub: Hub, base_url: str) -> None:
    """X15: cancellation; the model does not go on for nobody."""
    # It may not end by itself: at some 30 tokens a second it would go on for a minute, and answer nobody else.
    endless = served(base_url, temperature=0.0, extra_body={"ignore_eos": True})
    open_hub.add("guide", ModelAgent(endless, max_output_tokens=2_000))
    ended: Response | None = None
    delta_count = 0
    async with open_hub:
        async for record in open_hub.stream("guide", "Count from 1 to 1000.", user="u-1"):
            if isinstance(record.body, Response):
                ended = record.body
            elif isinstance(record.body, Delta):
                delta_count += 1
                assert delta_count != 5 or open_hub.cancel(record.run)
        start = asyncio.get_running_loop().time()
        await asyncio.to_thread(completion, base_url, messages=[{"role": "user", "content": "Hi"}], max_tokens=1)
        waited = asyncio.get_running_loop().time() - start
    assert ended is not None
    assert (ended.status, code_of(ended)) == (Status.CANCELLED, Code.CANCELLED)
    assert ended.usage.estimated, "nobody said how much it was"
    assert 0 < ended.usage.completion < 1_000
    assert waited < 20


async def test_what_the_model_cannot_read_at_once_is_said_so(hub: Hub, named: MakeAgent) -> None:
    hub.add("guide", named(max_output_tokens=16))
    async with hub:
        response = await hub.ask("guide", "Read this", input="word " * 9_000, user="u-1", max_tokens=100_000)
    assert (response.status, code_of(response)) == (Status.FAILED, Code.TOO_LARGE), response.fault
