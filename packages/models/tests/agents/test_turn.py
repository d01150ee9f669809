"""One turn of a model: what its answer must fit, and what a summary may cost."""

from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from remit import Code, Hub
from remit.protocol.envelope import MODEL, Response, Usage
from remit_models import ModelAgent
from remit_models.turn import summary
from remit_server.model_prices import Price, PriceBook
from remit_testing import MemoryStore

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def test_an_answer_that_never_fits_the_agents_own_schema_is_no_success() -> None:
    calls: list[int] = []

    def stubborn(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        calls.append(1)
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {"n": "x"})])

    hub = Hub(store=MemoryStore())
    hub.add("a", ModelAgent(FunctionModel(stubborn), output_schema=SCHEMA))
    async with hub:
        response = await hub.ask("a", "go", user="u")
    assert response.fault is not None
    assert (response.fault.code, [problem.path for problem in response.fault.problems], len(calls)) == (
        Code.RESULT_VALIDATION_FAILED,
        ["$.n"],
        3,
    )


async def test_a_summary_may_be_no_longer_than_was_asked_for_whatever_the_settings_say() -> None:
    token_limits: list[object] = []

    def short(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        token_limits.append(dict(info.model_settings or {}).get("max_tokens"))
        return ModelResponse(parts=[TextPart("short")])

    for settings in ({}, {"max_tokens": 8_192}, {"max_tokens": 100}):
        await summary(FunctionModel(short), "a long story", 600, settings)
    assert token_limits == [600, 600, 100]


async def test_the_record_names_the_model_of_an_answer_and_what_its_provider_had_read_before() -> None:
    def briefly(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        usage = RequestUsage(input_tokens=900, output_tokens=10, cache_read_tokens=600)
        return ModelResponse(parts=[TextPart("yes")], usage=usage, finish_reason="stop")

    hub = Hub(store=MemoryStore(), prices=PriceBook({"tiny": Price(input=2, output=8, cached=0.5)}).cost)
    hub.add("a", ModelAgent(FunctionModel(briefly, model_name="tiny")))
    async with hub:
        response = await hub.ask("a", "go", user="u")
        (*_, last) = await hub.store.records(run=response.run)
    assert isinstance(last.body, Response)
    model: Any = last.body.metadata[MODEL]
    assert (model["name"], model["cached"]) == ("tiny", 600)
    calls = model["calls"]
    assert sum(each["input"] + each["output"] for each in calls) == last.body.usage.total
    assert last.body.usage == Usage(prompt=900, completion=10, cache_read=600, cost=600 + 300 + 80, priced=910)
    assert {"at_ms", "ms", "finish", "provider"} <= calls[0].keys()


async def test_a_call_of_a_model_is_capped_at_the_money_that_is_left_and_refused_if_it_has_no_price() -> None:
    token_limits: list[int] = []

    def at_length(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        most = dict(info.model_settings or {}).get("max_tokens")
        assert isinstance(most, int)
        token_limits.append(most)
        return ModelResponse(parts=[TextPart("yes")], usage=RequestUsage(input_tokens=10, output_tokens=most))

    hub = Hub(store=MemoryStore(), prices=PriceBook({"tiny": Price(input=1, output=10)}).cost)
    hub.add("a", ModelAgent(FunctionModel(at_length, model_name="tiny")))
    hub.add("b", ModelAgent(FunctionModel(at_length, model_name="unheard-of")))
    async with hub:
        response = await hub.ask("a", "go", user="u", max_cost=5_000)
        refused = await hub.ask("b", "go", user="u", max_cost=5_000)
    assert response.ok
    assert 4_000 <= response.usage.cost <= 5_000
    assert len(token_limits) == 1
    assert refused.fault is not None
    assert refused.fault.code is Code.TOKEN_BUDGET_EXCEEDED
    assert refused.fault.message.startswith("the price of `function:unheard-of` is not known")
