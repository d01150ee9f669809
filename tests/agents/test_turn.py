"""One turn of a model: what its answer must fit, and what a summary may cost."""

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from remit import Code, Hub, ModelAgent
from remit.agents.turn import summary
from remit.testing import MemoryStore

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
    asked: list[object] = []

    def short(_: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(dict(info.model_settings or {}).get("max_tokens"))
        return ModelResponse(parts=[TextPart("short")])

    for settings in ({}, {"max_tokens": 8_192}, {"max_tokens": 100}):
        await summary(FunctionModel(short), "a long story", 600, settings)
    assert asked == [600, 600, 100]
