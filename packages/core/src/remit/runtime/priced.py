"""The cost of an agent's tokens, by the prices of its hub."""

from msgspec.structs import replace

from remit.protocol.envelope import Usage
from remit.protocol.remit import MAX_INTEGER
from remit.runtime.ports.agents import Prices


def priced(prices: Prices | None, agent: str, usage: Usage, model: str = "", uncounted: int = 0) -> Usage:
    """Return the usage of an agent with its cost, if the price is known and whoever reports it brings no cost.

    *uncounted* of its prompt tokens have their price, and are then left out: they count against no budget of tokens.
    """
    if prices is not None and usage.total and not usage.priced:
        cost = prices(agent, model, usage)
        if cost is not None:
            usage = replace(usage, cost=min(cost, MAX_INTEGER), priced=usage.total)
    if not uncounted:
        return usage
    prompt = max(0, usage.prompt - uncounted)
    return replace(usage, prompt=prompt, priced=min(usage.priced, prompt + usage.completion))
