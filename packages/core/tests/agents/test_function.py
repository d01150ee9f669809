"""Plain Python functions as agents and as tools."""

import asyncio
import functools
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remit import Answer, Brief, Code, Hub, RemitError, Response, Status
from remit_testing.memory import MemoryStore
from waiting import PATIENCE_S


@pytest.fixture
def hub() -> Hub:
    """A hub that is not open yet."""
    return Hub(store=MemoryStore())


async def ask(hub: Hub, agent: str = "clerk", **options: Any) -> Response:
    async with asyncio.timeout(PATIENCE_S), hub:
        return await hub.ask(agent, "do it", user="u", **options)


# ── agents ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_answer_is_taken_as_it_is(hub: Hub) -> None:
    @hub.agent("clerk", version="2.1")
    async def clerk(brief: Brief) -> Answer:
        return Answer("done", summary="short", confidence=0.5, warnings=("careful",), unfinished=("the rest",))

    response = await ask(hub)
    assert (response.status, response.result, response.summary) == (Status.PARTIAL, "done", "short")
    assert (response.confidence, response.warnings, response.agent_version) == (0.5, ("careful",), "2.1")


async def test_the_decorated_function_stays_callable_as_it_was(hub: Hub) -> None:
    @hub.tool()
    def add(a: int, b: int) -> int:
        return a + b

    assert add(1, 2) == 3


class Greeter:
    def __init__(self, greeting: str) -> None:
        self.greeting = greeting

    async def __call__(self, brief: Brief) -> str:
        return f"{self.greeting}, {brief.user}"

    def greet(self, brief: Brief) -> str:
        return f"{self.greeting} from {threading.current_thread().name[:11]}"


async def test_objects_methods_and_partial_functions_are_agents_too(hub: Hub) -> None:
    async def say(greeting: str, brief: Brief) -> str:
        return f"{greeting}, {brief.user}"

    hub.agent("object")(Greeter("Hello"))
    hub.agent("method")(Greeter("Hello").greet)
    hub.agent("partial")(functools.partial(say, "Good day"))
    async with hub:
        names = ("object", "method", "partial")
        results = [(await hub.ask(name, user="u")).result for name in names]
    assert results == ["Hello, u", "Hello from remit-metho", "Good day, u"]


async def test_a_docstring_is_the_description_unless_another_is_given(hub: Hub) -> None:
    @hub.agent("clerk")
    async def clerk(brief: Brief) -> None:
        """Files things."""

    @hub.agent("other", description="")
    async def other(brief: Brief) -> None:
        """Not told."""

    assert {name: card.description for name, card in hub.cards.items()} == {"clerk": "Files things.", "other": ""}


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Point(msgspec.Struct):
    x: int
    y: int = 0


async def use(hub: Hub, tool: str, **arguments: object) -> object:
    @hub.agent("clerk", tools=[tool])
    async def clerk(brief: Brief) -> object:
        try:
            return await brief.use(tool, **arguments)
        except RemitError as error:
            return f"{error.fault.code}: {[problem.path for problem in error.fault.problems]}"

    return (await ask(hub)).unwrap()


async def test_structures_arrive_as_the_types_that_the_tool_names(hub: Hub) -> None:
    @hub.tool("Point")  # the same name as the type it takes
    def shift(point: Point, by: list[Point]) -> dict[str, int]:
        assert isinstance(point, Point)
        return {"x": point.x + sum(each.x for each in by), "y": point.y + sum(each.y for each in by)}

    assert await use(hub, "Point", point={"x": 1}, by=[{"x": 2, "y": 5}]) == {"x": 3, "y": 5}


@pytest.mark.parametrize("kind", ["args", "kwargs", "positional"])
def test_a_tool_whose_arguments_cannot_be_named_is_refused_when_it_is_registered(hub: Hub, kind: str) -> None:
    def takes_args(*values: int) -> None: ...
    def takes_kwargs(**values: int) -> None: ...
    def takes_positional(value: int, /) -> None: ...

    functions = {"args": takes_args, "kwargs": takes_kwargs, "positional": takes_positional}
    with pytest.raises(RemitError) as caught:
        hub.tool()(functions[kind])
    assert caught.value.fault.code is Code.TEAM_INVALID
    assert "value" in caught.value.fault.message


def test_a_tool_whose_parameters_have_no_schema_is_refused_when_it_is_registered(hub: Hub) -> None:
    def wait_for(lock: threading.Event) -> None: ...

    with pytest.raises(RemitError) as caught:
        hub.tool()(wait_for)
    assert caught.value.fault.code is Code.TEAM_INVALID
    assert "wait_for" in caught.value.fault.message


async def test_a_text_of_another_kind_is_a_text_like_any_other(tmp_path: Path) -> None:
    class Marked(str):
        __slots__ = ()

    hub = Hub(store=tmp_path / "hub.db", durability="process")

    @hub.agent("a")
    async def a(brief: Brief) -> str:
        return Marked("text")

    async with hub:
        response = await hub.ask("a", "x", user="u")
    assert (response.result, type(response.result)) == ("text", str)
