"""What happens in a simulated world, drawn from a seed: hubs, orders of clients, and faults."""

import random
from typing import Literal, NamedTuple

FaultKind = Literal["kill", "last", "error", "doubt", "full", "away", "bus", "pause", "close", "cancel", "stranded"]
KINDS: tuple[FaultKind, ...] = (
    "kill",
    "last",
    "error",
    "doubt",
    "full",
    "away",
    "bus",
    "pause",
    "close",
    "cancel",
    "stranded",
)

# Agents that delegate, and those that do the work; `shelf` only reads, `safe` needs a person's approval.
PLANNERS = ("boss", "clerk")
WORKERS = ("till", "till", "shelf", "safe")
REPEATABLE = frozenset({"boss", "clerk", "shelf"})


class PlannedFault(NamedTuple):
    """What goes wrong, and for how long; a process that has ended starts again after that."""

    kind: FaultKind
    seconds: float


class PlannedWork(NamedTuple):
    """A piece of work in a tree: by whom, how long it takes, what it costs, and what is delegated in its course."""

    id: str
    agent: str
    seconds: float
    tokens: int
    agrees: bool
    """What the person says, if one is asked."""
    waves: "tuple[tuple[PlannedWork, ...], ...]"
    """Delegations, one wave after another; those of a wave at once."""

    @property
    def grant(self) -> int:
        """The tokens that the whole tree needs; a guard wants some for each request."""
        return sum(each.tokens + 10 for each in self.tree())

    def tree(self) -> "list[PlannedWork]":
        """Return it and everything below."""
        return [self, *(below for wave in self.waves for each in wave for below in each.tree())]


class ClientOrder(NamedTuple):
    """The request of a client."""

    id: str
    root: PlannedWork
    tokens: int
    at_s: float
    hub: int
    """Which hub is asked first."""


class Scenario(NamedTuple):
    """The hubs with the agents that each hosts, and the orders."""

    hosts: tuple[frozenset[str], ...]
    orders: tuple[ClientOrder, ...]


def draw_scenario(rng: random.Random) -> Scenario:
    """Draw one to three hubs, and one or two trees of delegations."""
    everyone = frozenset({*PLANNERS, *WORKERS})
    hosts = [everyone]
    for _ in range(rng.choice((0, 1, 2, 2))):
        hosts.append(
            rng.choice((everyone, frozenset({"boss"}), frozenset({"till"}), everyone - {"boss"}, everyone - {"till"}))
        )
    rng.shuffle(hosts)
    orders = [_draw_order(rng, number, len(hosts)) for number in range(rng.choice((1, 1, 2)))]
    return Scenario(tuple(hosts), tuple(orders))


def _draw_order(rng: random.Random, number: int, hubs: int) -> ClientOrder:
    names = iter(range(1_000))

    def node(depth: int) -> PlannedWork:
        planner = depth < 2 and rng.random() < (1.0 if depth == 0 and rng.random() < 0.9 else 0.25)
        agent = PLANNERS[depth] if planner else rng.choice(WORKERS)
        id = f"o{number}n{next(names)}"
        waves: list[tuple[PlannedWork, ...]] = []
        for _ in range(rng.choice((1, 1, 2, 3)) if planner else 0):
            waves.append(tuple(node(depth + 1) for _ in range(rng.choice((1, 1, 2, 3)))))
        tokens = rng.randrange(20, 60) if agent in ("till", "safe") else 0
        return PlannedWork(id, agent, rng.choice((0.0, 0.02, 0.3, 2.0)), tokens, rng.random() < 0.7, tuple(waves))

    root = node(0)
    tokens = rng.choice((root.grant, root.grant, max(60, root.grant * 2 // 3), 1_000))
    return ClientOrder(f"order-{number}", root, tokens, rng.choice((0.0, 0.0, 0.4)), rng.randrange(hubs))


def draw_faults(rng: random.Random, places: int, place: int) -> dict[int, PlannedFault]:
    """Draw the fault at one place; beyond the last place, two to four faults at random ones."""
    if place <= places:
        return {place: _draw_fault(rng)} if place else {}
    return {rng.randrange(1, places + 1): _draw_fault(rng) for _ in range(rng.choice((2, 2, 3, 4)))}


def _draw_fault(rng: random.Random) -> PlannedFault:
    kind = rng.choices(KINDS, (4, 3, 2, 2, 1, 2, 1, 2, 1, 2, 1))[0]
    return PlannedFault(kind, rng.choice((0.3, 1.5, 4.0, 8.0, 12.0)))
