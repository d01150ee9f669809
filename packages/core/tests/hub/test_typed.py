"""Models, dataclasses and the like at every boundary of a hub, from the signatures of plain functions."""

import asyncio
import enum
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Annotated, Any, TypedDict, assert_type

import attrs
import msgspec
import pydantic
import pytest

import typed_agents
from remit import Answer, Brief, Call, Capability, Code, Delta, Handoff, Hub, Problem, RemitError, Status
from typed_agents import Order, Quote
from waiting import PATIENCE_S


class Speed(enum.Enum):
    SLOW = "slow"
    FAST = "fast"


class Parcel(msgspec.Struct):
    weight: float


@attrs.define
class Address:
    city: str


class Label(TypedDict):
    text: str


VALUES = [
    (Order(item="tea", count=2), {"item": "tea", "count": 2}),
    (Quote(1.5), {"total": 1.5, "note": ""}),
    (Parcel(2.0), {"weight": 2.0}),
    (Address("Ulm"), {"city": "Ulm"}),
    (Label(text="up"), {"text": "up"}),
    (Speed.FAST, "fast"),
    ([Order(item="tea")], [{"item": "tea", "count": 1}]),
    ({"of": Parcel(1.0), "to": Address("Ulm")}, {"of": {"weight": 1.0}, "to": {"city": "Ulm"}}),
]


@pytest.mark.parametrize(("value", "written"), VALUES, ids=[type(value).__name__ for value, _ in VALUES])
async def test_every_kind_of_class_passes_every_boundary(hub: Hub, value: Any, written: Any) -> None:
    """As input of `ask`, `delegate`, `fan_out`, `chain` and a hand-on, as a tool's argument and result, as a result."""
    seen: list[object] = []

    @hub.tool(safe_to_repeat=True)
    def mirror(thing: Any) -> object:
        seen.append(thing)
        return value

    @hub.agent("echo")
    async def echo(brief: Brief) -> object:
        seen.append(brief.input)
        return Answer(value) if brief.objective == "wrapped" else value

    @hub.agent("boss", may_call=["echo"], tools=["mirror"])
    async def boss(brief: Brief) -> object:
        seen.append(brief.input)
        first = await brief.delegate("echo", objective="one", input=value, handoff=Handoff(data={"given": value}))
        many = await brief.fan_out([Call(target="echo", objective="two", input=value)])
        more = await brief.chain([Call(target="echo", objective="wrapped", input=value)])
        used = await brief.use("mirror", thing=value)
        assert [first.result, many[0].result, more[0].result, used] == [written] * 4
        return Call(target="echo", objective="three", input=value)

    async with hub:
        response = await hub.ask("boss", "go", user="u-1", input=value)
    assert (response.status, response.result) == (Status.SUCCESS, written)
    assert seen == [written] * 6
    if isinstance(value, Order | Quote | Parcel | Address | Speed):
        assert response.result_as(type(value)) == value


async def test_the_signature_gives_schemas_validation_and_a_typed_result(hub: Hub) -> None:
    @hub.agent("pricing", capabilities=["QUOTE"])
    async def pricing(brief: Brief, order: Order) -> Quote:
        return Quote(2.5 * order.count, order.item)

    @hub.agent("boss", may_call=["pricing"])
    async def boss(brief: Brief) -> float:
        reply = await brief.delegate(capability="QUOTE", input=brief.input_as(Order))
        quote = reply.result_as(Quote)
        assert_type(quote, Quote)
        assert_type(reply.result_as(list[Quote]) if brief.objective else [], list[Quote])
        return quote.total

    (capability,) = hub.cards["pricing"].capabilities
    assert capability.input_schema is not None
    assert capability.result_schema is not None
    assert capability.input_schema["required"] == ["item"]
    assert capability.result_schema["required"] == ["total"]
    async with hub:
        done = await hub.ask("boss", user="u-1", input=Order(item="tea", count=4))
        wrong = await hub.ask("pricing", user="u-1", input={"count": 0, "item": 3})
        wrong_of = await hub.ask("pricing", user="u-1", capability="QUOTE", input={"count": 0, "item": 3})
        missing = await hub.ask("pricing", "please", user="u-1")
        lacking = await hub.ask("pricing", user="u-1", capability="QUOTE", input={})
    assert done.result == 10.0
    for refused in (wrong, wrong_of):
        assert refused.fault is not None
        assert refused.fault.code is Code.INPUT_VALIDATION_FAILED
        assert {problem.path for problem in refused.fault.problems} == {"$.count", "$.item"}
    for refused in (missing, lacking):
        assert refused.fault is not None
        assert refused.fault.code is Code.DATA_MISSING_REQUIRED_INPUT
    assert missing.fault is not None
    assert missing.fault.message == "the input of pricing is missing"


async def test_several_parameters_are_the_fields_of_the_input(hub: Hub) -> None:
    @hub.agent("carrier", capabilities=["SHIP"])
    async def carrier(
        brief: Brief, parcel: Parcel, *, to: Address, speed: Speed = Speed.SLOW, order: Order | None = None
    ) -> list[str]:
        return [str(parcel.weight), to.city, speed.value, str(order)]

    async with hub:
        done = await hub.ask(
            "carrier", user="u-1", input={"parcel": Parcel(1.5), "to": Address("Ulm"), "speed": Speed.FAST}
        )
        wrong = await hub.ask("carrier", user="u-1", input={"parcel": {"weight": "x"}, "speed": "warp", "too": 1})
        shape = await hub.ask("carrier", user="u-1", input=[1])
        lacking = await hub.ask("carrier", user="u-1")
    assert done.result == ["1.5", "Ulm", "fast", "None"]
    assert wrong.fault is not None
    assert wrong.fault.problems == (
        Problem("$.too", "unknown argument; did you mean `to`?"),
        Problem("$.parcel.weight", "Expected `float`, got `str`"),
        Problem("$.to", "is required but missing"),
        Problem("$.speed", "Invalid enum value 'warp'; expected one of 'slow', 'fast'"),
    )
    assert shape.fault is not None
    assert shape.fault.problems[0].message == ("expected an object with parcel, to, speed, order")
    assert lacking.fault is not None
    assert lacking.fault.message == "the input of carrier lacks parcel, to"
    schema = hub.cards["carrier"].capabilities[0].input_schema
    assert schema is not None
    assert schema["required"] == ["parcel", "to"]


@pytest.mark.parametrize(
    ("options", "result"),
    [
        ({"input": "deep"}, "deep"),
        ({"text": "wide"}, "wide"),
        ({"text": "wide", "capability": "HEAR"}, "wide"),
        ({}, None),
    ],
)
async def test_a_text_is_taken_from_the_request_where_no_input_is_sent(
    hub: Hub, options: dict[str, Any], result: str | None
) -> None:
    @hub.agent("ear", capabilities=["HEAR"])
    async def ear(brief: Brief, text: str) -> str:
        return text

    async with hub:
        response = await hub.ask("ear", user="u-1", **options)
    assert response.result == result
    assert response.ok or (response.fault is not None and response.fault.code is Code.DATA_MISSING_REQUIRED_INPUT)


async def test_input_that_may_be_left_out_may_be_left_out_of_the_capability_too(hub: Hub) -> None:
    @hub.agent("clerk", capabilities=["ONE"])
    async def clerk(brief: Brief, order: Order | None = None) -> str:
        return "none" if order is None else order.item

    @hub.agent("chief", capabilities=["TWO"])
    async def chief(brief: Brief, order: Order | None = None, n: Annotated[int, pydantic.Field(gt=2)] = 3) -> int:
        return n

    async with hub:
        assert (await hub.ask("clerk", user="u-1", capability="ONE")).result == "none"
        assert (await hub.ask("clerk", user="u-1", capability="ONE", input=Order(item="tea"))).result == "tea"
        assert (await hub.ask("chief", user="u-1", capability="TWO")).result == 3
        wrong = await hub.ask("chief", user="u-1", input={"n": 1})
    assert wrong.fault is not None
    assert wrong.fault.problems == (Problem("$.n", "Input should be greater than 2"),)


async def test_a_result_of_another_type_than_declared_is_the_agents_fault(hub: Hub) -> None:
    @hub.agent("liar")
    async def liar(brief: Brief) -> Quote:
        return {"total": "much"}  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    @hub.agent("odd")
    async def odd(brief: Brief) -> Quote | Answer:
        return Answer(Quote(float("nan"))) if brief.objective == "nan" else Answer({"total": 3}, confidence=0.5)

    async with hub:
        wrong = await hub.ask("liar", user="u-1")
        endless = await hub.ask("odd", "nan", user="u-1")
        filled = await hub.ask("odd", user="u-1")
    assert wrong.fault is not None
    assert wrong.fault.code is Code.RESULT_VALIDATION_FAILED
    assert wrong.fault.message == "the result of liar is not a Quote"
    assert [problem.path for problem in wrong.fault.problems] == ["$.total"]
    assert endless.fault is not None
    assert endless.fault.code is Code.RESULT_VALIDATION_FAILED
    assert [problem.path for problem in endless.fault.problems] == ["$.total"]
    assert (filled.result_as(Quote), filled.confidence) == (Quote(3.0), 0.5)


@pytest.mark.parametrize("bad", [float("nan"), 2**53, {(1, 2): 3}, 1j, b"".__class__], ids=str)
async def test_what_json_has_no_word_for_is_refused_where_it_stands(hub: Hub, bad: object) -> None:
    @hub.tool(safe_to_repeat=True)
    def give() -> object:
        return {"rows": [{"value": bad}]}

    @hub.agent("clerk", may_call=["clerk"], tools=["give"])
    async def clerk(brief: Brief) -> object:
        if brief.objective == "result":
            return {"rows": [{"value": bad}]}
        if brief.objective == "tool":
            return await brief.use("give")
        return (await brief.delegate("clerk", objective="again", input={"rows": [{"value": bad}]})).unwrap()

    async with hub:
        results = [await hub.ask("clerk", what, user="u-1") for what in ("result", "tool", "delegate")]
        with pytest.raises(RemitError) as raised:
            await hub.ask("clerk", user="u-1", input={"rows": [{"value": bad}]})
    paths = [response.fault.problems[0].path for response in results if response.fault is not None]
    assert paths == ["$.result.rows[0].value", "$.rows[0].value", "$.input.rows[0].value"]
    assert raised.value.fault.problems[0].path == "$.input.rows[0].value"


async def test_a_token_in_the_place_of_a_number_is_explained(hub: Hub) -> None:
    class Caller(msgspec.Struct):
        phone: int
        mail: str

    @hub.agent("clerk")
    async def clerk(brief: Brief, caller: Caller) -> str:
        return caller.mail

    @hub.agent("asker")
    async def asker(brief: Brief) -> str:
        return brief.input_as(Caller).mail

    async with hub:
        for agent in ("clerk", "asker"):
            response = await hub.ask(agent, user="u-1", input={"phone": 4915112345678, "mail": "ada@example.org"})
            assert response.fault is not None
            assert response.fault.code is Code.INPUT_VALIDATION_FAILED
            (problem,) = response.fault.problems
            assert problem.path == "$.phone"
            assert 'declare it as text, or give the agent sees=["PHONE"]' in problem.message


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_tool_takes_and_gives_models(hub: Hub) -> None:
    @hub.tool(safe_to_repeat=True)
    def price(order: Order, to: Address, speed: Speed = Speed.SLOW, extra: Order | Quote | None = None) -> Quote:
        assert isinstance(order, Order)
        assert isinstance(to, Address)
        assert isinstance(speed, Speed)
        return Quote(float(order.count), f"{to.city} {speed.value} {type(extra).__name__}")

    @hub.agent("clerk", tools=["price"])
    async def clerk(brief: Brief) -> object:
        try:
            return await brief.use("price", **brief.input)
        except RemitError as error:
            return [problem.path for problem in error.fault.problems]

    assert set(hub.tool_cards["price"].input_schema["properties"]) == {"order", "to", "speed", "extra"}
    async with hub:
        given = {"order": Order(item="tea"), "to": Address("Ulm"), "extra": Quote(1.0)}
        done = await hub.ask("clerk", user="u-1", input=given)
        wrong = await hub.ask("clerk", user="u-1", input={"order": {"count": 0}, "to": {"city": 3}})
    assert done.result == {"total": 1.0, "note": "Ulm slow Quote"}
    assert sorted(wrong.result) == ["$.order.count", "$.order.item", "$.to.city"]


# ── which functions are typed ─────────────────────────────────────────────────────────────────────────────────────────


async def test_parameters_without_a_type_keep_their_defaults(hub: Hub) -> None:
    """The usual way to bind a loop's variable is no input."""
    for number in (1, 2):

        @hub.agent(f"agent-{number}")
        async def _(brief: Brief, number=number, _spare: int = 7, **more: int) -> int:  # type: ignore[no-untyped-def]  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
            return number + _spare

        @hub.agent(f"typed-{number}")
        async def _(brief: Brief, number: int = number, spare: str | None = None) -> int:
            return number

    class Caller:
        async def __call__(self, brief: Brief, order: Order) -> str:
            return order.item

    async def bound(prefix: str, brief: Brief, order: Order) -> str:
        return prefix + order.item

    hub.add("object", Caller())
    hub.add("partial", partial(bound, "green "))
    async with hub:
        assert [(await hub.ask(f"agent-{n}", user="u-1", input={"x": 1})).result for n in (1, 2)] == [8, 9]
        assert [(await hub.ask(f"typed-{n}", user="u-1", input=7)).result for n in (1, 2)] == [1, 2]
        assert (await hub.ask("object", user="u-1", input=Order(item="tea"))).result == "tea"
        assert (await hub.ask("partial", user="u-1", input=Order(item="tea"))).result == "green tea"


def test_what_cannot_be_filled_is_refused_when_the_agent_is_added(hub: Hub) -> None:
    async def untyped(brief: Brief, order) -> None:  # type: ignore[no-untyped-def]  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]
        pass

    async def unknown(brief: Brief, order: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]
        pass

    async def unreadable(brief: Brief, work: Callable[[], None]) -> None:
        pass

    async def without_brief(order: Order) -> None:
        pass

    cases: list[tuple[Any, str]] = [
        (without_brief, "takes the brief: write `def without_brief(brief: Brief, order: Order)`"),
        (untyped, "`untyped`: parameter `order` cannot be filled: give it a type, which is then read from the input"),
        (unknown, "`unknown`: parameter `order: 'Nowhere'` cannot be filled: its annotations cannot be read"),
        (unreadable, "`unreadable`: its parameters cannot be described as JSON"),
    ]
    for function, why in cases:
        with pytest.raises(RemitError) as raised:
            hub.add("clerk", function)
        assert raised.value.fault.code is Code.TEAM_INVALID
        assert why in raised.value.fault.message


def test_schemas_that_a_capability_has_already_are_kept(hub: Hub) -> None:
    own = Capability(code="QUOTE", input_schema={"type": "object"}, result_schema=list[Quote])
    hub.add("pricing", typed_agents.quote, capabilities=[own, "PLAIN"])
    kept, made = hub.cards["pricing"].capabilities
    assert (kept.input_schema, kept.result_schema) == (own.input_schema, own.result_schema)
    assert made.input_schema is not None
    assert made.input_schema["title"] == "Order"


def test_a_function_that_declares_nothing_has_no_schemas(hub: Hub) -> None:
    async def plain(brief: Brief) -> dict[str, object]:
        return {}

    class Socket: ...

    async def odd(brief: Brief) -> list[Quote | Socket]:
        return []

    hub.add("plain", plain, capabilities=["ONE"])
    hub.add("odd", odd, capabilities=["TWO"])
    assert hub.cards["plain"].capabilities[0] == Capability(code="ONE")
    assert hub.cards["odd"].capabilities[0] == Capability(code="TWO")


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def streamed(hub: Hub, agent: str) -> tuple[list[str], object]:
    """Return the texts that are told as they come, and the result."""
    texts: list[str] = []
    result: object = None
    async with hub:
        async for record in hub.stream(agent, "go", user="u-1"):
            if isinstance(record.body, Delta):
                texts.append(record.body.text)
            result = getattr(record.body, "result", None)
    return texts, result


async def test_a_function_with_yield_streams_its_texts_which_together_are_the_result(
    make_hub: Callable[..., Hub],
) -> None:
    async def talker(brief: Brief) -> AsyncIterator[str]:
        for word in ("one ", "two ", "three"):
            yield word

    def thread(brief: Brief) -> Iterator[str]:
        yield from ("one ", "two ", "three")

    class Talker:
        async def __call__(self, brief: Brief) -> AsyncIterator[str]:
            yield "one "
            yield "two three"

    for agent in (talker, thread, Talker()):
        hub = make_hub(redaction=False)
        hub.add("talker", agent)
        texts, result = await streamed(hub, "talker")
        assert ("".join(texts), result) == ("one two three", "one two three")
        assert len(texts) > 1


async def test_a_value_that_is_not_a_text_may_come_last_and_is_the_result(hub: Hub) -> None:
    hub.add("quoter", typed_agents.stream, capabilities=["QUOTE"])

    @hub.agent("sure")
    async def sure(brief: Brief) -> AsyncIterator[str | Answer | None]:
        yield "cer"
        yield None
        yield "tain"
        yield Answer(confidence=0.9)

    @hub.agent("returns")
    def returns(brief: Brief) -> Iterator[str]:
        yield "counting"
        return {"n": 3}

    @hub.agent("late")
    async def late(brief: Brief) -> AsyncIterator[object]:
        yield {"n": 3}
        yield "more"

    async with hub:
        quoted = await hub.ask("quoter", user="u-1")
        response = await hub.ask("sure", user="u-1")
        returned = await hub.ask("returns", user="u-1")
        wrong = await hub.ask("late", user="u-1")
    assert quoted.result == {"total": 2.5, "note": ""}
    assert (response.result, response.confidence) == ("certain", 0.9)
    assert returned.result == {"n": 3}
    assert wrong.fault is not None
    assert wrong.fault.code is Code.RESULT_VALIDATION_FAILED
    assert "after its result" in wrong.fault.message


async def test_a_stream_is_closed_when_its_caller_has_no_more_time(hub: Hub) -> None:
    closed = asyncio.Event()

    @hub.agent("endless")
    async def endless(brief: Brief) -> AsyncIterator[str]:
        try:
            yield "and "
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with hub:
        response = await hub.ask("endless", user="u-1", deadline_ms=100)
        await asyncio.wait_for(closed.wait(), PATIENCE_S)
    assert response.status is Status.TIMEOUT
