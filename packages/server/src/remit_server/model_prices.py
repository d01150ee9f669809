"""What tokens cost: prices of a team's own list, else of the package `genai-prices` if it is installed."""

import logging
from collections.abc import Mapping
from importlib.util import find_spec

from msgspec import Struct

log = logging.getLogger("remit")

# Providers give their prices for this many tokens.
PER = 1_000_000

# The package has its prices in this currency.
PACKAGE_CURRENCY = "USD"

# The providers whose names in `model` differ from those in the package.
_PROVIDERS = {
    "azure-responses": "azure",
    "bedrock": "aws",
    "google-cloud": "google",
    "google-gla": "google",
    "google-vertex": "google",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "xai": "x-ai",
}
# Prices may depend on the size of a request: those of a small one are taken.
_SAMPLE = 1_000


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


class PriceBook:
    """The prices of a team's models.

    The package is not asked if the team's prices are in another currency, since sums would mix the two. It is not asked
    for a model without a provider's name either: such a model may run on a server of one's own.
    """

    def __init__(self, own: Mapping[str, Price] | None = None, currency: str = PACKAGE_CURRENCY) -> None:
        self.currency = currency
        self._own = dict(own or {})
        self._known: dict[str, Price | None] = {}

    def price(self, model: str) -> Price | None:
        """Return the price of a model; None if it is not known. The first call may take half a second."""
        if model not in self._known:
            price = price_in(self._own, model)
            if price is None and self.currency == PACKAGE_CURRENCY:
                price = _in_package(model)
            self._known[model] = price
        return self._known[model]


def _in_package(model: str) -> Price | None:
    """Return a price from the data that came with the package; nothing is fetched."""
    provider, colon, name = model.partition(":")
    if not colon or find_spec("genai_prices") is None:
        return None
    from genai_prices import Usage, calc_price

    def each(**tokens: int) -> float:
        usage = Usage(**tokens)
        priced = calc_price(usage, name, provider_id=_PROVIDERS.get(provider, provider))
        return round(float(priced.total_price) / _SAMPLE * PER, 6)

    try:
        read, wrote = each(input_tokens=_SAMPLE), each(output_tokens=_SAMPLE)
        return Price(input=read, output=wrote, cached=each(input_tokens=_SAMPLE, cache_read_tokens=_SAMPLE))
    except LookupError:
        return None
    except Exception as error:  # noqa: BLE001 - a package that changed must not take the figures down
        log.warning("genai-prices gives no price for %s: %s", model, type(error).__name__)
        return None
