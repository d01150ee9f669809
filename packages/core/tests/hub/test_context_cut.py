"""A delegation that asks for more context than there may be gets less, and is told so."""

from typing import Any

from remit import Brief, Call, Hub
from remit_testing import MemoryStore


async def test_a_delegation_that_asks_for_more_context_than_there_may_be_is_told_so() -> None:
    """O5: cut, and said."""
    hub = Hub(store=MemoryStore())
    said: list[tuple[str, ...]] = []

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> int:
        return brief.remit.context_tokens

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> list[Any]:
        for tokens in (9_000, 4_000, None):
            reply = await brief.delegate("clerk", objective=f"go {tokens}", context_tokens=tokens)
            said.append(reply.warnings)
        (one,) = await brief.fan_out([Call(target="clerk", objective="x", context_tokens=5_000)])
        said.append(one.warnings)
        return []

    assert clerk
    assert boss
    async with hub:
        response = await hub.ask("boss", user="u-1")
    assert response.ok
    cut = "At most 4,000 tokens of context are passed on here, not {} as `context_tokens` asks for."
    assert [len(each) for each in said] == [1, 0, 0, 1]
    assert said[0][0].startswith(cut.format("9,000"))
    assert said[3][0].startswith(cut.format("5,000"))
    assert response.warnings == ()
