"""What tokens cost: prices by model, and estimates made from them."""

from collections.abc import Mapping

from msgspec import Struct

# Providers give their prices for this many tokens.
PER = 1_000_000


class Price(Struct, frozen=True, kw_only=True):
    """The price of a model, in units of a currency for each million tokens."""

    input: float
    """Of tokens that the model reads."""
    output: float
    """Of tokens that it writes."""
    cached: float | None = None
    """Of tokens that its provider has read before and reads from a cache; None: the same as `input`."""


def price_in(prices: Mapping[str, Price], model: str) -> Price | None:
    """Return the price of a model in a list; None if it is not there.

    A list may name the model with its provider, as in `openai:gpt-5-mini`, or without.
    """
    if (exact := prices.get(model)) is not None:
        return exact
    provider, colon, name = model.partition(":")
    return prices.get(name) if provider and colon else None


def cost_of(price: Price, *, prompt: int, completion: int, cached: int = 0) -> float:
    """Return what tokens cost; *cached* of the *prompt* tokens came from the provider's cache."""
    again = min(cached, prompt)
    reading = (prompt - again) * price.input + again * (price.input if price.cached is None else price.cached)
    return (reading + completion * price.output) / PER
