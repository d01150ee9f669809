"""Prices of models, and what tokens cost."""

import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import Usage
from remit_server import model_prices
from remit_server.model_prices import Price, PriceBook, cost_of, price_in

MINI = Price(input=0.25, output=2.0, cached=0.025)
PLAIN = Price(input=1.0, output=4.0)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("openai:gpt-5-mini", MINI),
        ("azure:gpt-5-mini", None),
        ("openai:local", PLAIN),
        ("local", PLAIN),
        (":local", None),
        ("openai:unknown", None),
        ("unknown", None),
    ],
)
def test_a_price_is_found_by_the_name_of_the_model_with_or_without_its_provider(
    model: str, expected: Price | None
) -> None:
    assert price_in({"openai:gpt-5-mini": MINI, "local": PLAIN}, model) == expected


def test_tokens_cost_their_share_of_a_million() -> None:
    assert cost_of(PLAIN, prompt=500_000, completion=250_000) == pytest.approx(1.5)


def test_tokens_from_the_cache_have_a_price_of_their_own_if_there_is_one() -> None:
    assert cost_of(MINI, prompt=1_000_000, completion=0, cached=600_000) == pytest.approx(0.1 + 0.015)
    assert cost_of(PLAIN, prompt=1_000_000, completion=0, cached=600_000) == pytest.approx(1.0)


def test_no_more_tokens_come_from_the_cache_than_were_read() -> None:
    assert cost_of(MINI, prompt=1_000, completion=0, cached=5_000) == cost_of(
        MINI, prompt=1_000, completion=0, cached=1_000
    )


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_more_tokens_never_cost_less(prompt: int, completion: int, more: int) -> None:
    least = cost_of(MINI, prompt=prompt, completion=completion)
    assert cost_of(MINI, prompt=prompt + more, completion=completion) >= least >= 0


OWN = Price(input=3.0, output=9.0)


def test_the_price_of_the_team_comes_before_the_one_of_the_package() -> None:
    assert PriceBook({"openai:gpt-5-mini": OWN}).price("openai:gpt-5-mini") == OWN


def test_the_package_knows_the_prices_of_a_provider_under_the_names_that_agents_use() -> None:
    book = PriceBook()
    price = book.price("openai:gpt-5-mini")
    assert price is not None
    assert 0 < price.input < price.output
    assert price.cached is not None
    assert price.cached <= price.input
    assert book.price("openai-responses:gpt-5-mini") == price


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


def test_a_request_costs_what_its_four_kinds_of_tokens_cost_in_millionths() -> None:
    price = Price(input=3.0, output=15.0, cached=0.3, cache_write=3.75)
    book = PriceBook({"sonnet": price}, models={"writer": "anthropic:sonnet"})
    usage = Usage(prompt=1_000_600, completion=100, cache_write=600, cache_read=1_000_000)
    assert book.cost("writer", "", usage) == 1_500 + 2_250 + 300_000
    assert book.cost("writer", "acme:unknown", usage) == book.cost("", "sonnet", usage), "the agent's own model counts"
    assert book.cost("other", "", usage) is None
    assert book.cost("writer", "", Usage(prompt=1, cache_read=1)) == 1, "a part of a millionth counts as one"


def test_the_package_prices_a_request_by_its_size() -> None:
    book, large, small = PriceBook(), Usage(prompt=400_000), Usage(prompt=100_000)
    whole, parts = (book.cost("", "anthropic:claude-sonnet-4-5", each) for each in (large, small))
    assert whole is not None
    assert parts is not None
    assert whole > 4 * parts
    assert book.cost("", "anthropic:claude-sonnet-4-5", Usage(cache_read=10)) is not None, "also if they do not add up"


def test_a_free_model_costs_nothing_and_an_unknown_one_has_no_cost() -> None:
    book = PriceBook({"llama": Price(input=0, output=0)}, "EUR")
    assert book.cost("", "llama", Usage(prompt=9)) == 0
    assert book.cost("", "openai:gpt-5-mini", Usage(prompt=9)) is None, "the package has it in dollars"


def test_the_prices_of_the_package_are_loaded_beside_the_hub() -> None:
    PriceBook().load_beside()
    for thread in threading.enumerate():
        if thread.name == "prices":
            thread.join()
    assert "genai_prices" in sys.modules
    PriceBook(currency="EUR").load_beside()
    assert all(each.name != "prices" for each in threading.enumerate()), "it has none in euros"
