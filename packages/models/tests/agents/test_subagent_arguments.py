"""How the arguments of `sub_agent` are read: generously, and corrected only where that lets the callee do less."""

import asyncio
from typing import Any

import pytest

from remit import Brief, Hub, Limits
from remit.protocol.envelope import ContextFilter
from remit_models.subagent import SubAgentToolArgs, SubAgentToolResult, read_arguments, sub_agent
from remit_testing import MemoryStore
from waiting import PATIENCE_S

CALL: dict[str, Any] = {"agent_name": "expert", "task": "Judge the tea."}
PLAIN = SubAgentToolArgs(agent_name="expert", task="Judge the tea.")
TOOLS = {"expert": ("smell", "taste")}


def read(**more: Any) -> tuple[SubAgentToolArgs, tuple[str, ...]]:
    return read_arguments(CALL | more, tools_of=TOOLS.get)


OPTIONAL = [name for name in SubAgentToolArgs.__struct_fields__ if name not in CALL]


def test_null_is_the_same_as_left_out() -> None:
    """O1: for each optional argument, and for each part of a filter."""
    assert read(**dict.fromkeys(OPTIONAL)) == (PLAIN, ())
    nulls = dict.fromkeys(ContextFilter.__struct_fields__)
    assert read(context=nulls) == (SubAgentToolArgs(**CALL, context=ContextFilter()), ())


@pytest.mark.parametrize(
    ("given", "read_as"),
    [
        ({"max_context_tokens": "500"}, {"max_context_tokens": 500}),
        ({"max_context_tokens": 500.0}, {"max_context_tokens": 500}),
        ({"allowed_tools": "taste"}, {"allowed_tools": ("taste",)}),
        ({"allow_nested_calls": "True"}, {"allow_nested_calls": True}),
        ({"allow_nested_calls": "false"}, {}),
        ({"context": '{"last_messages": 2}'}, {"context": ContextFilter(last_messages=2)}),
        ({"context": {"roles": "user"}}, {"context": ContextFilter(roles=frozenset({"user"}))}),
        ({"context": {"keywords": "tea"}}, {"context": ContextFilter(keywords=("tea",))}),
        ({"context": {"last_messages": "3"}}, {"context": ContextFilter(last_messages=3)}),
    ],
)
def test_what_can_mean_only_one_thing_is_read_as_that(given: dict[str, Any], read_as: dict[str, Any]) -> None:
    assert read(**given) == (SubAgentToolArgs(**CALL, **read_as), ())


@pytest.mark.parametrize(
    ("given", "read_as", "note"),
    [
        ({"max_context_tokens": "many"}, {}, "`max_context_tokens` is not a count: 4000 was taken."),
        ({"max_context_tokens": -1}, {}, "`max_context_tokens` is not a count"),
        ({"max_context_tokens": True}, {}, "`max_context_tokens` is not a count"),
        ({"max_context_tokens": "nan"}, {}, "`max_context_tokens` is not a count"),
        ({"contxt": {}}, {}, "`contxt` is not an argument of this tool, and was ignored."),
        ({"allowed_tools": ["shell"]}, {"allowed_tools": ()}, "it has no shell, left out; its tools: smell, taste."),
        ({"allowed_tools": ["shell", "taste"]}, {"allowed_tools": ("taste",)}, "it has no shell"),
        ({"allowed_tools": [1, "taste"]}, {"allowed_tools": ("taste",)}, "`allowed_tools` is a list of texts"),
        ({"allow_nested_calls": "maybe"}, {}, "`allow_nested_calls` is neither true nor false: false was taken."),
        ({"context": "everything"}, {"context": ContextFilter(last_messages=0)}, "it is shown no messages"),
        ({"context": ["user"]}, {"context": ContextFilter(last_messages=0)}, "it is shown no messages"),
        ({"context": {"last_messages": -1}}, {"context": ContextFilter(last_messages=0)}, "`context.last_messages`"),
        ({"context": {"max_age_seconds": "1h"}}, {"context": ContextFilter(max_age_seconds=0)}, "is not a count"),
        (
            {"context": {"roles": ["tool", "user"]}},
            {"context": ContextFilter(roles=frozenset({"user"}))},
            "no messages of tool are passed on",
        ),
        ({"context": {"include_summary": "yes"}}, {"context": ContextFilter()}, "`context.include_summary`"),
        ({"context": {"known": "some"}}, {"context": ContextFilter(known="none")}, "`context.known`"),
        ({"context": {"topic": "tea"}}, {"context": ContextFilter()}, "`context.topic` is not a part of a filter"),
    ],
)
def test_a_made_up_value_narrows_and_is_told(given: dict[str, Any], read_as: dict[str, Any], note: str) -> None:
    args, notes = read(**given)
    assert args == SubAgentToolArgs(**CALL, **read_as)
    assert len(notes) == 1
    assert note in notes[0]


def test_tools_of_an_agent_that_is_not_there_are_left_to_the_guards() -> None:
    args, notes = read_arguments(CALL | {"agent_name": "nobody", "allowed_tools": ["x"]}, tools_of=TOOLS.get)
    assert (args.allowed_tools, notes) == (("x",), ())


async def call_tool(arguments: dict[str, Any], *, context_tokens: int = 4_000) -> tuple[SubAgentToolResult, Brief]:
    """Return what the tool gives back, and what the callee was given."""
    hub, results, briefs = (
        Hub(store=MemoryStore(), limits=Limits(context_tokens=context_tokens)),
        list[SubAgentToolResult](),
        list[Brief](),
    )

    @hub.agent("caller", may_call=["expert"])
    async def caller(brief: Brief) -> None:
        results.append(await sub_agent(brief, arguments))

    @hub.agent("expert")
    async def expert(brief: Brief) -> str:
        briefs.append(brief)
        return "Good."

    async with hub, asyncio.timeout(PATIENCE_S):
        (await hub.ask("caller", "Is this tea good?", user="u-1")).unwrap()
    return results[0], briefs[0]


async def test_the_model_is_told_what_was_corrected_beside_the_result() -> None:
    result, brief = await call_tool(CALL | {"allowed_tools": ["shell"]})
    assert (result.success, result.output, brief.tools) == (True, "Good.", frozenset())
    assert result.errors == ("`allowed_tools`: it has no shell, left out; its tools: none.",)


async def test_more_context_than_the_team_allows_is_cut_and_told() -> None:
    """O1: the document's own example asks for 6,000."""
    result, brief = await call_tool(CALL | {"max_context_tokens": 6_000})
    assert brief.remit.context_tokens == 4_000
    [warning] = result.errors
    assert warning == (
        "At most 4,000 tokens of context are passed on here, not 6,000 as `max_context_tokens` asks for. "
        "The team file says how many (`context_tokens` in `[budgets]`)."
    )


async def test_a_team_can_allow_more_context_than_the_default() -> None:
    result, brief = await call_tool(CALL | {"max_context_tokens": 6_000}, context_tokens=8_000)
    assert (brief.remit.context_tokens, result.errors) == (6_000, ())
    result, brief = await call_tool(CALL, context_tokens=8_000)
    assert (brief.remit.context_tokens, result.errors) == (4_000, ())
