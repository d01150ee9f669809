"""What delegation adds to what models are sent (O11): a planner with specialists against one agent that does it all.

The same conversation is held twice, with real agents in real hubs; only the models follow a script. One agent has all
instructions and tools, and is shown the whole conversation. The other way, a planner asks specialists with the tool
`sub_agent`, saying whom and what for and nothing else: so they are shown no messages, as is the rule, and the planner
as much of its past as agents of a model are. Both use the same tools in the same rounds, and give the
same answers.

Counted is everything that each call of a model is sent, with the counter that the hub has: instructions, messages,
calls of tools, their results, and each tool's name, description and schema, again and again for every call, as
providers count. Not counted are the few tokens around each message, and what models say, until it is sent to one again.
Both ways, an agent reads again in later turns what its own tools returned. In the longest conversation, every tenth
turn is worked on; the others are only said. Where one specialist is asked for one look-up, its answer may go to the
user as it is: without the planner's relaying call, which was most of the excess in short conversations.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from conversations import LOOKUPS, RECEIPTS, Round, Work, relayed, synthetic
from harness import Figure, at_most, main, sized
from remit import Answer, Brief, Hub, Limits
from remit.agents.cards import Arguments
from remit.agents.token_count import token_counter
from remit_models import ModelAgent

# No limit of these is what is measured; they only must not stop a run.
PLENTY = 1_000_000_000
LIMITS = Limits(root_tokens=PLENTY, delegation_tokens=PLENTY)
ROUNDS = 1_000


# ── the two ways ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Scripted:
    """A model that says what it is told to, and counts what it is sent."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self.replies: deque[ModelResponse] = deque()
        self.sent = 0
        self._count = count

    def say(self, text: str) -> None:
        self.replies.append(ModelResponse(parts=[TextPart(text)]))

    def use(self, tools: Round) -> None:
        calls = [ToolCallPart(tool, arguments) for tool, each in tools.items() for arguments in each]
        self.replies.append(ModelResponse(parts=calls))

    async def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        sent = sum(map(self._count, _texts(messages, info)))
        self.sent += sent
        return replace(self.replies.popleft(), usage=RequestUsage(input_tokens=sent))


def _texts(messages: Sequence[ModelMessage], info: AgentInfo) -> Iterator[str]:
    """Return all that a call of a model sends it."""
    yield info.instructions or ""
    for tool in (*info.function_tools, *info.output_tools):
        yield tool.name
        yield tool.description or ""
        yield json.dumps(tool.parameters_json_schema, separators=(",", ":"))
    for message in messages:
        for part in message.parts:
            match part:
                case ToolCallPart():
                    yield part.tool_name
                    yield part.args_as_json_str()
                case ToolReturnPart():
                    yield part.model_response_str()
                case UserPromptPart(content=str(text)) | TextPart(content=text):
                    yield text
                case _:
                    raise TypeError(f"nothing counts a {type(part).__name__}")


async def alone(work: Work, hub: Hub, count: Callable[[str], int]) -> int:
    """Return the tokens sent to one agent that does everything itself."""
    model = Scripted(count)
    prompt = "\n\n".join((work.prompt, *(each.prompt for each in work.specialists)))
    agent = ModelAgent(FunctionModel(model), prompt=prompt, max_tool_rounds=ROUNDS, history_tokens=PLENTY)
    tools = {name for each in work.specialists for name in each.tools}
    for turn in work.worked_on:
        for errand in turn.errands:
            for used in errand.rounds:
                model.use(used)
        model.say(turn.answer)
    await converse(hub, work, agent, tools=tools)
    return model.sent


async def together(work: Work, hub: Hub, count: Callable[[str], int]) -> int:
    """Return the tokens sent to a planner and its specialists."""
    planner = Scripted(count)
    models = {each.name: Scripted(count) for each in work.specialists}
    relays = any(errand.relayed for turn in work.turns for errand in turn.errands)
    told: Arguments = "relay" if relays else "short"
    agent = ModelAgent(FunctionModel(planner), prompt=work.prompt, max_tool_rounds=ROUNDS, sub_agent_arguments=told)
    for each in work.specialists:
        specialist = ModelAgent(FunctionModel(models[each.name]), prompt=each.prompt, max_tool_rounds=ROUNDS)
        hub.add(each.name, specialist, description=each.description, tools=each.tools)
    for turn in work.worked_on:
        for errand in turn.errands:
            shown = {} if errand.context is None else {"context": errand.context}
            shown |= {"relay": "as is"} if errand.relayed else {}
            planner.use({"sub_agent": [{"agent_name": errand.specialist, "task": errand.task, **shown}]})
            for tools in errand.rounds:
                models[errand.specialist].use(tools)
            models[errand.specialist].say(errand.answer)
        if not (turn.errands and turn.errands[-1].relayed):
            planner.say(turn.answer)
    done = await converse(hub, work, agent, may_call=list(models))
    assert done == sum(len(turn.errands) for turn in work.worked_on), "some of the work was not done"
    return planner.sent + sum(model.sent for model in models.values())


async def converse(hub: Hub, work: Work, agent: ModelAgent, **allowed: Collection[str]) -> int:
    """Hold the conversation, and return how many were asked by the agent that the user talks to; all must succeed."""
    for tool in work.tools:
        hub.tool(safe_to_repeat=True)(tool)
    calls = 0
    turns = deque(work.turns)

    async def answer(brief: Brief) -> Answer:
        if (len(work.turns) - len(turns)) % work.every:
            return Answer(turns[0].answer)
        return await agent(brief)

    hub.add("planner", answer, **allowed)  # pyright: ignore[reportArgumentType]
    async with hub:
        while turns:
            response = await hub.ask("planner", turns[0].text, user="u-1", session="s-1")
            assert response.unwrap() == turns.popleft().answer
            for each in await hub.delegations(response.run):
                assert each.status == "success", f"{each.target}: {each.status}"
                calls += each.origin == "planner"
    return calls


# ── the figures ───────────────────────────────────────────────────────────────────────────────────────────────────────

SHOWN = {"last_messages": 4}


async def compare(name: str, work: Work, bound: float | None, unit: str = "tokens") -> Figure:
    """Hold a conversation both ways."""
    count = cache(token_counter() if unit == "tokens" else len)
    with TemporaryDirectory() as folder:
        both = [
            await way(work, Hub(store=Path(folder) / f"{way.__name__}.db", durability="process", limits=LIMITS), count)
            for way in (together, alone)
        ]
    return Figure(
        name=f"overhead: {name}",
        value=both[0],
        floor=both[1],
        unit=unit,
        bound=None if bound is None else at_most(bound),
    )


async def all_of_them() -> list[Figure]:
    kinds: list[tuple[str, Work, float | None]] = [
        ("receipts", RECEIPTS, 1.2),
        ("10 messages", synthetic(10), 1.2),
        ("100 messages", synthetic(100), 1.2),
        ("1,000 messages", synthetic(1_000, every=10), 0.5),
        # What suits delegation least: a specialist for every use of a tool.
        ("20 turns, one specialist", LOOKUPS, 1.2),
        ("100, one lookup a turn", synthetic(100, errands=(1,), rounds=(1,)), 1.2),
        ("100, one lookup, shown 4", synthetic(100, errands=(1,), rounds=(1,), context=SHOWN), None),
    ]
    # O11, by both counts: a specialist's answer that needs no other words goes out as it is.
    as_is = [
        (f"{messages} messages, one lookup, as is, {unit}", messages, unit)
        for messages in (2, 12, 40)
        for unit in ("tokens", "characters")
    ]
    figures = [await compare(*each) for each in kinds[: sized(None, 2)]]
    return figures + [await compare(name, relayed(n), 1.2, unit) for name, n, unit in as_is[: sized(None, 2)]]


def measure() -> list[Figure]:
    return asyncio.run(all_of_them())


if __name__ == "__main__":
    main(measure)
