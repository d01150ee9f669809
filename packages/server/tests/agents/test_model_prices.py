"""Where the price of a model is found."""

import sys

import pytest

from remit_server import model_prices
from remit_server.model_prices import Price, PriceBook

OWN = Price(input=3.0, output=9.0)


def test_the_price_of_the_team_comes_before_the_one_of_the_package() -> None:
    assert PriceBook({"openai:gpt-5-mini": OWN}).price("openai:gpt-5-mini") == OWN


def test_the_package_knows_the_prices_of_a_provider_under_the_names_that_agents_use() -> None:
    book = PriceBook()
    found = book.price("openai:gpt-5-mini")
    assert found is not None
    assert 0 < found.input < found.output
    assert found.cached is not None
    assert found.cached <= found.input
    assert book.price("openai-responses:gpt-5-mini") == found


@pytest.mark.parametrize("model", ["gpt-5-mini", "llama3:8b", "openai:no-such-model", "nobody:gpt-5-mini", ""])
def test_an_unknown_model_and_one_without_a_provider_have_no_price(model: str) -> None:
    assert PriceBook().price(model) is None


def test_dollars_of_the_package_are_not_mixed_with_another_currency() -> None:
    book = PriceBook({"openai:gpt-5": OWN}, "EUR")
    assert (book.price("openai:gpt-5-mini"), book.price("openai:gpt-5")) == (None, OWN)


def test_without_the_package_only_the_prices_of_the_team_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_: str) -> None:
        return None

    monkeypatch.setattr(model_prices, "find_spec", nothing)
    book = PriceBook({"openai:gpt-5": OWN})
    assert (book.price("openai:gpt-5-mini"), book.price("openai:gpt-5")) == (None, OWN)


def test_a_package_that_fails_gives_no_price(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    import genai_prices

    def broken(*_: object, **__: object) -> None:
        raise TypeError("changed")

    monkeypatch.setattr(genai_prices, "calc_price", broken)
    assert "genai_prices" in sys.modules
    assert PriceBook().price("openai:gpt-5-mini") is None
    assert "no price for openai:gpt-5-mini" in caplog.text
