"""An answer that hands on cannot blend: it names no model, and is refused instead of merged."""

from remit import Answer, Brief, Call, Code, Hub
from remit.protocol.envelope import Strategy
from remit_testing.memory import MemoryStore


async def test_handing_on_with_ai_blend_is_refused_before_anybody_is_asked() -> None:
    """C5: never silently merged; one call alone needs no blending."""
    hub, asked = Hub(store=MemoryStore()), list[str]()

    @hub.agent("one")
    async def one(brief: Brief) -> str:
        asked.append(brief.objective)
        return "one"

    @hub.agent("boss", may_call=["one"])
    async def boss(brief: Brief) -> Answer:
        calls = tuple(Call(target="one", objective=f"Do {number}") for number in range(int(brief.text)))
        return Answer(calls=calls, strategy=Strategy.AI_BLEND)

    assert one
    assert boss
    async with hub:
        several = await hub.ask("boss", "2", user="u-1")
        assert asked == []
        single = await hub.ask("boss", "1", user="u-1")
    assert several.fault is not None
    assert several.fault.code is Code.RESULT_VALIDATION_FAILED
    assert "brief.combine" in (several.fault.suggestion or "")
    assert single.unwrap() == "one"
