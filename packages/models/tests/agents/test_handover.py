"""Models hand conversations over with a tool."""

from collections.abc import Callable

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from remit import Code, Hub
from remit_models import ModelAgent
from remit_testing import MemoryStore

Reply = Callable[[str, list[str]], ModelResponse]


def model(asked: list[tuple[str, list[str]]], reply: Reply) -> ModelAgent:
    """A model that replies by its task, and notes what it was asked and which tools it was offered."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tasks = [str(part.content) for each in messages for part in each.parts if isinstance(part, UserPromptPart)]
        tools = [tool.name for tool in info.function_tools]
        asked.append((tasks[-1], tools))
        return reply(tasks[-1], tools)

    return ModelAgent(FunctionModel(answer))


def say(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


def use(tool: str, **arguments: object) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(tool, arguments)])


async def test_a_model_hands_over_and_the_next_turn_is_one_call_of_the_specialists_model() -> None:
    desk: list[tuple[str, list[str]]] = []
    billing: list[tuple[str, list[str]]] = []

    def at_desk(task: str, _: list[str]) -> ModelResponse:
        return use("transfer_to_billing", reason="a bill") if "bill" in task else say(f"desk on {task}")

    def at_billing(task: str, _: list[str]) -> ModelResponse:
        return use("transfer_to_desk") if "weather" in task else say(f"billing on {task}")

    hub = Hub(store=MemoryStore())
    hub.add("desk", model(desk, at_desk), may_call=["billing", "clerk"], hands_over_to=["billing"])
    hub.add("billing", model(billing, at_billing), description="Bills and payments.")
    hub.add("clerk", model([], at_billing))
    async with hub:
        answers = [
            await hub.ask("desk", text, user="u", session="s") for text in ("my bill", "the next one", "the weather")
        ]
    assert [each.result for each in answers] == ["billing on my bill", "billing on the next one", "desk on the weather"]
    assert [task for task, _ in desk] == ["my bill", "the weather"]
    assert [task for task, _ in billing] == ["my bill", "the next one", "the weather"]
    assert desk[0][1] == ["transfer_to_billing", "sub_agent"]
    assert billing[0][1] == ["transfer_to_desk"]
    assert answers[0].handover[0].reason == "a bill"


async def test_only_an_agent_whose_answer_the_user_reads_can_hand_the_conversation_over() -> None:
    below: list[tuple[str, list[str]]] = []
    hub = Hub(store=MemoryStore())
    ask = iter([use("sub_agent", agent_name="desk", task="look"), say("done")])
    hub.add("boss", model([], lambda *_: next(ask)), may_call=["desk"])
    hub.add("desk", model(below, lambda *_: say("looked")), may_call=["billing"], hands_over_to=["billing"])
    hub.add("billing", model([], lambda *_: say("paid")))
    async with hub:
        assert (await hub.ask("boss", "look", user="u")).unwrap() == "done"
    assert "transfer_to_billing" not in below[0][1]


async def test_a_handover_that_is_refused_is_the_outcome_of_the_request() -> None:
    hub = Hub(store=MemoryStore())
    desk = model([], lambda *_: use("transfer_to_billing"))
    hub.add("desk", desk, may_call=["billing"], hands_over_to=["billing"])
    hub.add("billing", model([], lambda *_: use("transfer_to_desk")))
    async with hub:
        response = await hub.ask("desk", "my bill", user="u", session="s")
    assert response.fault is not None
    assert response.fault.code is Code.LOOP_DETECTED


async def test_what_was_looked_up_in_a_turn_is_not_looked_up_in_the_next_one() -> None:
    """A model reads its own calls and their results again, redacted; nobody else gets them."""
    read: list[list[str]] = []
    paid: list[str] = []

    def look_up(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        parts = [part for each in messages for part in each.parts]
        read.append([part.model_response_str() for part in parts if isinstance(part, ToolReturnPart)])
        known = " ".join(read[-1])
        if "AB12" not in known:
            return use("seat_of", booking="AB12", mail="ada@example.org")
        return say(known)

    hub = Hub(store=MemoryStore())

    @hub.tool(safe_to_repeat=True)
    def seat_of(booking: str, mail: str) -> str:
        paid.append(booking)
        return f"{booking} of {mail}: 7C"

    hub.add("desk", ModelAgent(FunctionModel(look_up)), tools=["seat_of"])
    async with hub:
        first = await hub.ask("desk", "my seat?", user="u", session="s")
        second = await hub.ask("desk", "and again?", user="u", session="s")
        records = repr(await hub.store.records())
    assert paid == ["AB12"]
    assert first.result == second.result == "AB12 of ada@example.org: 7C"
    assert (first.findings, second.findings) == ((), ())
    assert "ada@example.org" not in records
    assert "example.org" not in str(read)


async def test_a_value_that_was_hidden_from_the_model_reaches_its_tools_in_a_later_turn_too() -> None:
    sent: list[str] = []

    def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        parts = [part for each in messages for part in each.parts]
        read = " ".join(part.model_response_str() for part in parts if isinstance(part, ToolReturnPart))
        task = [str(part.content) for part in parts if isinstance(part, UserPromptPart)][-1]
        if task == "find":
            return say("found") if "[EMAIL:" in read else use("look_up")
        return say("sent") if "ok" in read else use("send", to=read)

    hub = Hub(store=MemoryStore())

    @hub.tool(safe_to_repeat=True)
    def look_up() -> str:
        return "ada@example.org"

    @hub.tool(safe_to_repeat=True)
    def send(to: str) -> str:
        sent.append(to)
        return "ok"

    hub.add("desk", ModelAgent(FunctionModel(answer)), tools=["look_up", "send"])
    async with hub:
        await hub.ask("desk", "find", user="u", session="s")
        assert (await hub.ask("desk", "send", user="u", session="s")).unwrap() == "sent"
    assert sent == ["ada@example.org"]
