"""Money: what tokens cost, and what delegations may spend; where nobody sets an amount, it is their caller's."""

from collections.abc import Callable

from msgspec.structs import replace

from remit.policy.budget import LEAST_OUTPUT, amounts
from remit.policy.limits import Limits
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Call, Usage
from remit.protocol.errors import Code, Fault, RemitError, fault
from remit.protocol.remit import MAX_INTEGER

Prices = Callable[[str, str, Usage], int | None]
"""Returns the cost of one request to a model in millionths of the team's currency; None: its price is not known.

Called with the name of the agent, that of the model (empty: the agent's own) and the tokens.
"""

_PRICE_IT = "Give its price in `[prices]` of the team file, or name a model that has one: `priced_as` of the agent."


class Purse:
    """An amount of money in millionths, and what is left of it."""

    __slots__ = ("granted", "overspent", "reserved", "spent", "unpriced")

    def __init__(self, granted: int) -> None:
        self.granted = granted
        self.spent = 0
        self.reserved = 0
        self.overspent: set[str] = set()
        """The paths of delegations that spent more than was left."""
        self.unpriced: set[str] = set()
        """The paths of those that spent tokens whose price is not known."""

    @property
    def left(self) -> int:
        """Money that is neither spent nor reserved."""
        return self.granted - self.spent - self.reserved

    def extend(self, cost: int) -> None:
        """Add money; if it covers what was spent beyond the amount, nobody has overspent any more."""
        self.granted += cost
        if self.left >= 0:
            self.overspent.clear()

    def charge(self, path: str, usage: Usage, *, may_be_unpriced: bool) -> None:
        """Charge what a delegation spent itself."""
        self.spent += usage.cost
        if usage.unpriced and not may_be_unpriced:
            self.unpriced.add(path)
        if usage.cost and self.left < 0:
            self.overspent.add(path)

    def fault(self, path: str, agent: str, currency: str) -> Fault | None:
        """Return what a delegation did wrong, if anything."""
        if path in self.unpriced:
            return unpriced(agent, "", self.granted, currency)
        if path not in self.overspent:
            return None
        spent, granted = amounts(self.granted - self.left, self.granted)
        return fault(Code.TOKEN_BUDGET_EXCEEDED, f"{agent} spent {spent} of {granted} {currency}")

    def affordable(self, agent: str, model: str, prompt: int, most: int, prices: Prices | None, currency: str) -> int:
        """Return how many of *most* tokens a model can answer with for what is left; raises if it is too little."""
        whole = prices and prices(agent, model, Usage(prompt=prompt, completion=most))
        read = prices and prices(agent, model, Usage(prompt=prompt))
        if whole is None or read is None:
            raise RemitError(unpriced(agent, model, self.granted, currency))
        left = max(0, self.left)
        if whole <= left:
            return most
        room = most * (left - read) // (whole - read) if left > read else 0
        if room < min(LEAST_OUTPUT, most):
            spent, cost, granted = amounts(self.granted - left, read, self.granted)
            why = f"{agent} has spent {spent} of {granted} {currency}, and the next call of its model costs over {cost}"
            raise RemitError(fault(Code.TOKEN_BUDGET_EXCEEDED, why))
        return room


def price_of(agent: str, model: str) -> str:
    """Return the words for the price of a model; without a name, of that which an agent uses."""
    return f"the price of `{model}`" if model else f"the price of what {agent} spent"


def unpriced(agent: str, model: str, granted: int, currency: str) -> Fault:
    """Return why a request to a model without a price is refused."""
    (most,) = amounts(granted)
    why = f"{price_of(agent, model)} is not known, and {agent} may spend {most} {currency} at most"
    return fault(Code.TOKEN_BUDGET_EXCEEDED, why, suggestion=_PRICE_IT)


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


def cost_wanted(call: Call, card: AgentCard | None, limits: Limits) -> int | None:
    """Return the money that somebody sets for a call; None: it shares its caller's."""
    if call.max_cost is not None:
        return call.max_cost
    if card is not None:
        capability = card.capability(call.capability) if call.capability is not None else None
        if capability is not None and capability.cost is not None:
            return capability.cost
        if card.cost is not None:
            return card.cost
    return limits.delegation_cost


def cost_granted(
    purse: Purse | None, call: Call, card: AgentCard | None, limits: Limits, slots: int, *, is_remote: bool
) -> int | None:
    """Return the money that a call would be granted now; None: there is no limit."""
    wanted = cost_wanted(call, card, limits)
    if purse is None:
        return wanted
    left = max(0, purse.left)
    if wanted is not None:
        return min(wanted, left)
    # Another hub cannot share a purse: it gets a fair share of what is left.
    return left // (slots + 1 if slots > 1 else 2) if is_remote else left


def funded(cost: int, above: Purse | None, *, shares: bool) -> Purse:
    """Return the money of a delegation with that in its remit: a part of what its caller has, or all that it has."""
    if above is None:
        return Purse(cost)
    if shares and cost >= above.left:  # a guard may have set less
        return above
    purse = Purse(min(cost, max(0, above.left)))
    above.reserved += purse.granted
    return purse
