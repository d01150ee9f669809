"""What tokens cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit_server.model_prices import Price, cost_of, price_in

MINI = Price(input=0.25, output=2.0, cached=0.025)
PLAIN = Price(input=1.0, output=4.0)


@pytest.mark.parametrize(
    ("model", "found"),
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
    model: str, found: Price | None
) -> None:
    assert price_in({"openai:gpt-5-mini": MINI, "local": PLAIN}, model) == found


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
