"""Plain Python functions as agents and as tools."""

import asyncio
import functools
import threading
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from remit import Answer, Brief, Call, Code, Hub, RemitError, Response, Status
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


@pytest.mark.parametrize("result", [None, "text", 3, 0.5, True, [], ["a"], {"a": [1, {"b": None}]}])
async def test_what_a_function_returns_is_the_result(hub: Hub, result: object) -> None:
    """C1: in process, a direct function call."""

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> object:
        return result

    response = await ask(hub)
    assert (response.status, response.result) == (Status.SUCCESS, result)


async def test_an_answer_is_taken_as_it_is(hub: Hub) -> None:
    @hub.agent("clerk", version="2.1")
    async def clerk(brief: Brief) -> Answer:
        return Answer("done", summary="short", confidence=0.5, warnings=("careful",), unfinished=("the rest",))

    response = await ask(hub)
    assert (response.status, response.result, response.summary) == (Status.PARTIAL, "done", "short")
    assert (response.confidence, response.warnings, response.agent_version) == (0.5, ("careful",), "2.1")


async def test_a_function_that_is_not_async_runs_in_a_thread_of_its_own(hub: Hub) -> None:
    @hub.agent("clerk")
    def clerk(brief: Brief) -> str:
        return threading.current_thread().name

    assert (await ask(hub)).result.startswith("remit-clerk-")


async def test_a_function_in_a_thread_can_delegate_and_use_tools(hub: Hub) -> None:
    @hub.tool(safe_to_repeat=True)
    def add(a: int, b: int) -> int:
        return a + b

    @hub.agent("helper")
    def helper(brief: Brief) -> str:
        return f"helped with {brief.input}"

    @hub.agent("clerk", may_call=["helper"], tools=["add"])
    def clerk(brief: Brief) -> str:
        response = brief.wait(brief.delegate("helper", objective="sum"))
        return f"{response.result}: {brief.wait(brief.use('add', a=2, b=3))}"

    response = await ask(hub)
    assert (response.result, response.tool_calls) == ("helped with sum: 5", ("add",))


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


async def test_a_function_may_answer_with_who_should_do_it_instead(hub: Hub) -> None:
    """C4: an agent's answer can itself be a delegation, one or several, and the path is in the response."""

    @hub.agent("one")
    async def one(brief: Brief) -> str:
        return "1"

    @hub.agent("other")
    async def other(brief: Brief) -> str:
        return "2"

    @hub.agent("router", may_call=["*"])
    async def router(brief: Brief) -> Call:
        return Call(target="one", objective=brief.objective)

    @hub.agent("spread", may_call=["*"])
    async def spread(brief: Brief) -> list[Call]:
        return [Call(target=name, objective=brief.objective) for name in ("one", "other")]

    async with hub:
        routed = await hub.ask("router", "go", user="u")
        spread_out = await hub.ask("spread", "go", user="u")
    assert (routed.result, routed.path, routed.target) == ("1", ("router", "one"), "router")
    assert (spread_out.result, spread_out.finished) == ("1\n\n2", ("one", "other"))


async def test_a_docstring_is_the_description_unless_another_is_given(hub: Hub) -> None:
    @hub.agent("clerk")
    async def clerk(brief: Brief) -> None:
        """Files things."""

    @hub.agent("other", description="")
    async def other(brief: Brief) -> None:
        """Not told."""

    assert {name: card.description for name, card in hub.cards.items()} == {"clerk": "Files things.", "other": ""}


@pytest.mark.parametrize("nonsense", [object(), {1, object()}, {"a": object()}, "\ud800", {"a": "\ud800"}, 2**70])
async def test_a_result_that_is_not_json_is_the_callees_fault(hub: Hub, nonsense: object) -> None:
    """K12: a callee that returns nonsense takes nobody down, and has its code."""

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> object:
        return nonsense

    response = await ask(hub)
    assert response.fault is not None
    assert (response.status, response.fault.code) == (Status.FAILED, Code.RESULT_VALIDATION_FAILED)


@pytest.mark.parametrize(
    "answer",
    [
        Answer("x", confidence=7),
        Answer("x", summary=3),  # pyright: ignore[reportArgumentType]
        Answer("x", usage="much"),  # pyright: ignore[reportArgumentType]
        Answer("x", finished="all"),  # pyright: ignore[reportArgumentType]
    ],
    ids=lambda answer: repr(answer)[:40],
)
async def test_an_answer_with_wrong_fields_is_the_callees_fault(hub: Hub, answer: Answer) -> None:
    @hub.agent("clerk")
    async def clerk(brief: Brief) -> Answer:
        return answer

    response = await ask(hub)
    assert response.fault is not None
    assert (response.status, response.fault.code) == (Status.FAILED, Code.RESULT_VALIDATION_FAILED)


async def test_what_a_sync_function_exits_with_stays_in_its_delegation(hub: Hub) -> None:
    @hub.agent("clerk")
    def clerk(brief: Brief) -> None:
        raise SystemExit("enough")

    response = await ask(hub)
    assert response.fault is not None
    assert response.fault.code is Code.DELEGATION_FAILED


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


async def test_the_parameters_of_a_tool_are_its_schema(hub: Hub) -> None:
    @hub.tool()
    def add(a: int, b: Annotated[int, msgspec.Meta(ge=1)] = 1) -> int:
        return a + b

    assert await use(hub, "add", a=2) == 3


@pytest.mark.parametrize("arguments", [{}, {"a": "2"}, {"a": 1, "b": 0}, {"a": 1, "c": 1}, {"a": 1.5}])
async def test_arguments_that_do_not_fit_are_refused_and_the_tool_is_not_run(
    hub: Hub, arguments: dict[str, object]
) -> None:
    ran: list[int] = []

    @hub.tool()
    def add(a: int, b: Annotated[int, msgspec.Meta(ge=1)] = 1) -> None:
        ran.append(a)

    answer = await use(hub, "add", **arguments)
    assert str(answer).startswith("INPUT_VALIDATION_FAILED")
    assert ran == []


async def test_structures_arrive_as_the_types_that_the_tool_names(hub: Hub) -> None:
    @hub.tool("Point")  # the same name as the type it takes
    def shift(point: Point, by: list[Point]) -> dict[str, int]:
        assert isinstance(point, Point)
        return {"x": point.x + sum(each.x for each in by), "y": point.y + sum(each.y for each in by)}

    assert await use(hub, "Point", point={"x": 1}, by=[{"x": 2, "y": 5}]) == {"x": 3, "y": 5}


async def test_a_tool_that_asks_for_the_user_gets_the_one_of_the_remit(hub: Hub) -> None:
    """X10: tools are checked against the remit's user."""

    @hub.tool()
    async def whoami(user: str) -> str:
        return user

    assert await use(hub, "whoami") == "u"


async def test_an_agent_cannot_say_for_which_user_it_uses_a_tool(hub: Hub) -> None:
    """X10: the user is never what an agent says."""

    @hub.tool()
    async def whoami(user: str) -> str:
        return user

    assert str(await use(hub, "whoami", user="root")).startswith("INPUT_VALIDATION_FAILED")


async def test_a_tool_gets_a_copy_of_what_it_is_given_and_gives_a_copy_back(hub: Hub) -> None:
    kept: list[list[int]] = []

    @hub.tool(safe_to_repeat=True)
    async def keep(items: list[int]) -> list[int]:
        kept.append(items)
        return items

    @hub.agent("clerk", tools=["keep"])
    async def clerk(brief: Brief) -> list[int]:
        mine = [1]
        back = await brief.use("keep", items=mine)
        kept[0].append(2)
        back.append(3)
        return mine

    assert (await ask(hub)).result == [1]
    assert kept == [[1, 2]]


async def test_what_a_tool_raises_has_its_name(hub: Hub) -> None:
    @hub.tool()
    def divide(a: int) -> float:
        return a / 0

    @hub.agent("clerk", tools=["divide"])
    async def clerk(brief: Brief) -> object:
        return await brief.use("divide", a=1)

    response = await ask(hub)
    assert response.fault is not None
    assert "tool divide raised ZeroDivisionError" in response.fault.message


async def test_a_tool_whose_result_is_not_json_fails_and_its_user_is_told(hub: Hub) -> None:
    @hub.tool()
    def odd() -> object:
        return object()

    assert str(await use(hub, "odd")).startswith("RESULT_VALIDATION_FAILED")


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


async def test_the_threads_of_agents_and_tools_end_with_their_hub(hub: Hub) -> None:
    @hub.tool()
    def slow() -> str:
        return threading.current_thread().name

    @hub.agent("worker", tools=["slow"])
    def worker(brief: Brief) -> object:
        return brief.wait(brief.use("slow"))

    name = (await ask(hub, "worker")).unwrap()
    left = [thread for thread in threading.enumerate() if thread.name in (name, "remit-worker-1")]
    for thread in left:
        await asyncio.to_thread(thread.join, 2)
    assert [thread.name for thread in left if thread.is_alive()] == []


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
