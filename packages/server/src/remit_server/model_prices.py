"""What tokens cost: prices of a team's own list, else of the package `genai-prices` if it is installed."""

import logging
import math
import threading
from collections.abc import Mapping
from datetime import UTC, date, datetime
from functools import cache
from importlib import metadata
from importlib.util import find_spec

from msgspec import Struct

from remit.protocol.envelope import Usage

log = logging.getLogger("remit")

# Providers give their prices for this many tokens.
PER = 1_000_000

PACKAGE = "genai-prices"
# What `PriceBook.source` returns for a price in the team's own list.
OWN_PRICE = "your team file"

# The package has its prices in this currency.
PACKAGE_CURRENCY = "USD"

# The providers whose names in `model` differ from those in the package.
_PROVIDERS = {
    "azure-responses": "azure",
    "bedrock": "aws",
    "google-cloud": "google",
    "google-gla": "google",
    "google-vertex": "google",
    "google_genai": "google",
    "google_vertexai": "google",
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
    cache_write: float | None = None
    """Of tokens that its provider reads and writes to a cache; None: the same as `input`."""


def price_in(prices: Mapping[str, Price], model: str) -> Price | None:
    """Return the price of a model in a list; None if it is not there.

    A list may name the model with its provider, as in `openai:gpt-5-mini`, or without.
    """
    if (exact := prices.get(model)) is not None:
        return exact
    provider, colon, name = model.partition(":")
    return prices.get(name) if provider and colon else None


def cost_of(price: Price, *, prompt: int, completion: int, cached: int = 0, cache_write: int = 0) -> float:
    """Return what tokens cost; *cached* of the *prompt* tokens came from the provider's cache, others went there."""
    again = min(cached, prompt)
    written = min(cache_write, prompt - again)
    reading = (prompt - again - written) * price.input
    reading += again * (price.input if price.cached is None else price.cached)
    reading += written * (price.input if price.cache_write is None else price.cache_write)
    return (reading + completion * price.output) / PER


class PriceBook:
    """The prices of a team's models.

    The package is not asked if the team's prices are in another currency, since sums would mix the two. It is not asked
    for a model without a provider's name either: such a model may run on a server of one's own.
    """

    def __init__(
        self,
        own: Mapping[str, Price] | None = None,
        currency: str = PACKAGE_CURRENCY,
        models: Mapping[str, str] | None = None,
    ) -> None:
        self.currency = currency
        self.models = dict(models or {})
        """The models of agents, by the agents' names."""
        self._own = dict(own or {})
        self._known: dict[str, Price | None] = {}

    def cost(self, agent: str, model: str, usage: Usage) -> int | None:
        """Return the cost of one request to a model in millionths of the currency; None: its price is not known.

        An agent's own model counts where *model* is empty or has no price. The package prices a request by its size,
        so requests must not be summed up before.
        """
        for name in (model, self.models.get(agent, "")):
            cost = self._cost(name, usage) if name else None
            if cost is not None:
                return math.ceil(round(cost * PER, 3))  # what no float can hold exactly is not rounded up
        return None

    def _cost(self, model: str, usage: Usage) -> float | None:
        own = price_in(self._own, model)
        if own is not None:
            of_cache = {"cached": usage.cache_read, "cache_write": usage.cache_write}
            return cost_of(own, prompt=usage.prompt, completion=usage.completion, **of_cache)
        if self.currency != PACKAGE_CURRENCY:
            return None
        return _package_cost(
            model,
            input_tokens=max(usage.prompt, usage.cache_write + usage.cache_read),
            output_tokens=usage.completion,
            cache_write_tokens=usage.cache_write,
            cache_read_tokens=usage.cache_read,
        )

    def load_beside(self) -> None:
        """Load the package's data in a thread: that takes half a second, and the first request need not wait for it."""
        if self.currency == PACKAGE_CURRENCY:
            threading.Thread(target=_package_cost, args=("openai:gpt-5-mini",), name="prices", daemon=True).start()

    def price(self, model: str) -> Price | None:
        """Return the price of a model; None if it is not known. The first call may take half a second."""
        if model not in self._known:
            price = price_in(self._own, model)
            if price is None and self.currency == PACKAGE_CURRENCY:
                price = _in_package(model)
            self._known[model] = price
        return self._known[model]

    def source(self, model: str) -> str:
        """Return where the price of a model comes from, and of which day it is; empty: its price is not known."""
        if self.price(model) is None:
            return ""
        return OWN_PRICE if price_in(self._own, model) is not None else _package_data()


@cache
def _package_data() -> str:
    """Return the version of the package and the day of its newest price that holds by now.

    Its data has no date of its own, and most prices in it have none.
    """
    version = metadata.version(PACKAGE)
    try:
        newest = _newest_day(datetime.now(UTC).date())
    except Exception as error:  # noqa: BLE001 - a package that changed must not take the figures down
        log.warning("%s tells no day of its prices: %s", PACKAGE, type(error).__name__)
        newest = None
    return f"{PACKAGE} {version}" if newest is None else f"{PACKAGE} {version}, whose newest price is of {newest}"


def _newest_day(today: date) -> date | None:
    from genai_prices.data_snapshot import get_snapshot
    from genai_prices.types import StartDateConstraint

    models = (model for provider in get_snapshot().providers for model in provider.models)
    prices = (price for model in models if isinstance(model.prices, list) for price in model.prices)
    limits = (price.constraint for price in prices)
    days = (limit.start_date for limit in limits if isinstance(limit, StartDateConstraint))
    return max((day for day in days if day <= today), default=None)


def _in_package(model: str) -> Price | None:
    """Return a price from the data that came with the package; nothing is fetched."""

    def each(**tokens: int) -> float | None:
        cost = _package_cost(model, **tokens)
        return None if cost is None else round(cost / _SAMPLE * PER, 6)

    read, wrote = each(input_tokens=_SAMPLE), each(output_tokens=_SAMPLE)
    if read is None or wrote is None:
        return None
    return Price(
        input=read,
        output=wrote,
        cached=each(input_tokens=_SAMPLE, cache_read_tokens=_SAMPLE),
        cache_write=each(input_tokens=_SAMPLE, cache_write_tokens=_SAMPLE),
    )


def _package_cost(model: str, **tokens: int) -> float | None:
    """Return what one request costs by the data that came with the package; None: it does not know the model."""
    provider, colon, name = model.partition(":")
    if not colon or find_spec("genai_prices") is None:
        return None
    from genai_prices import Usage as PackageUsage
    from genai_prices import calc_price

    try:
        priced = calc_price(PackageUsage(**tokens), name, provider_id=_PROVIDERS.get(provider, provider))
    except LookupError:
        return None
    except Exception as error:  # noqa: BLE001 - a package that changed must not take the figures down
        log.warning("genai-prices gives no price for %s: %s", model, type(error).__name__)
        return None
    return float(priced.total_price)
