"""A hub without a plugin that reads texts works, and trusts no text that nobody can check."""

from collections.abc import Callable, Generator

import pytest

from remit import Brief, Call, ContextFilter, Hub
from remit.policy.aggregate import Blend
from remit.runtime import text_reader

MakeHub = Callable[..., Hub]


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setattr(text_reader, "brought", lambda _: ())  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    text_reader.text_reader.cache_clear()
    yield
    text_reader.text_reader.cache_clear()


async def test_a_hub_without_a_reader_of_texts_answers_in_conversations(hub: Hub) -> None:
    shown: list[Brief] = []

    @hub.agent("planner", may_call=["coder"])
    async def planner(brief: Brief) -> str:
        wanted = ContextFilter(known="all", include_summary=True)
        return (await brief.delegate("coder", objective="code", context=wanted)).unwrap()

    @hub.agent("coder")
    async def coder(brief: Brief) -> str:
        shown.append(brief)
        return "coded"

    async with hub:
        answers = [await hub.ask("planner", "Stay below 500 euros", user="u", session="s") for _ in range(2)]
        refused = await hub.ask("nobody", "Stay below 500 euros", user="u")
    assert [each.result for each in answers] == ["coded", "coded"]
    assert [each.known for each in shown] == [(), ()]
    assert all(each.request.view is None or not each.request.view.summary for each in shown)
    assert refused.fault is not None


async def test_without_a_reader_of_texts_the_text_of_a_model_is_not_used(hub: Hub) -> None:
    async def blend(_: Blend) -> str:
        return "One says 1, the other 2."

    @hub.agent("asker", may_call=["one", "two"])
    async def asker(brief: Brief) -> object:
        combined = await brief.combine(
            [Call(target="one"), Call(target="two")], strategy="ai-blend", about="n", blend=blend
        )
        assert combined.answer is not None
        return combined.answer

    @hub.agent("one")
    async def one(brief: Brief) -> int:
        return 1

    @hub.agent("two")
    async def two(brief: Brief) -> int:
        return 2

    async with hub:
        assert (await hub.ask("asker", "n", user="u")).result == "1\n\n2"
