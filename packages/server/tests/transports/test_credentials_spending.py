"""What is spent under a credential is counted over all requests that come with it or with what follows from it."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chains import NOW_MS, Way, a_hop, said
from properties import share
from remit.protocol.errors import Code, Fault
from remit_server.transports.credentials import incoming as module
from remit_server.transports.credentials.incoming import Share, Spending
from remit_server.transports.credentials.proof import WINDOW_MS, Verified
from remit_testing.memory import MemoryStore


class Wall:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


class Asked:
    """A hub that is asked many times under one credential, in which the hubs before grant each other *tokens*."""

    def __init__(self, *tokens: int, way: Way | None = None) -> None:
        self.way = way or Way()
        hops = [a_hop(number, self.way.pairs[number + 1], tokens=each) for number, each in enumerate(tokens)]
        self.held = self.way.chain(said(self.way, *hops))

    def request(self, request_id: str) -> Verified:
        """Return the credential of one more request."""
        token = self.way.onward(self.held, request_id)
        found = self.way.verify(token, len(self.held.hops) + 1, request_id=request_id)
        assert isinstance(found, Verified), found
        return found


def given_to(share: Share | Fault) -> int:
    assert isinstance(share, Share), share
    return share.tokens


def code_of(share: Share | Fault) -> Code:
    assert isinstance(share, Fault), share
    return share.code


def counted() -> Spending:
    return Spending(wall_ms=Wall())


async def in_store() -> Spending:
    store = MemoryStore(wall_ms=Wall())
    await store.open()
    return Spending(store.incr, wall_ms=Wall())


@pytest.fixture(params=["memory", "store"])
async def spending(request: pytest.FixtureRequest) -> Spending:
    return counted() if request.param == "memory" else await in_store()


async def test_requests_under_one_credential_share_its_tokens(spending: Spending) -> None:
    asked = Asked(1_000)
    assert given_to(await spending.reserve(asked.request("a"), 600)) == 600
    assert given_to(await spending.reserve(asked.request("b"), 600)) == 400
    assert code_of(await spending.reserve(asked.request("c"), 600)) is Code.TOKEN_BUDGET_EXCEEDED


async def test_what_was_not_used_is_there_for_the_next(spending: Spending) -> None:
    asked = Asked(1_000)
    first = await spending.reserve(asked.request("a"), 1_000)
    assert isinstance(first, Share)
    await spending.settle(first, 300)
    assert given_to(await spending.reserve(asked.request("b"), 1_000)) == 700


async def test_who_used_more_than_given_gets_nothing_back(spending: Spending) -> None:
    asked = Asked(1_000)
    first = await spending.reserve(asked.request("a"), 600)
    assert isinstance(first, Share)
    await spending.settle(first, 5_000)
    assert given_to(await spending.reserve(asked.request("b"), 1_000)) == 400


async def test_every_block_counts_for_itself(spending: Spending) -> None:
    """What the narrowest of them keeps back is not lost to the others."""
    way = Way()
    wide = Asked(1_000, way=way)
    narrow = Asked(1_000, way=way)
    narrow.held = way.chain(way.onward(wide.held, "middle", 300))
    assert given_to(await spending.reserve(narrow.request("a"), 900)) == 300
    assert code_of(await spending.reserve(narrow.request("b"), 900)) is Code.TOKEN_BUDGET_EXCEEDED
    assert given_to(await spending.reserve(wide.request("c"), 900)) == 700


async def test_a_hub_cannot_multiply_what_it_was_granted_by_passing_it_on_twice(spending: Spending) -> None:
    way = Way()
    root, forks = Asked(1_000, way=way), [Asked(1_000, way=way), Asked(1_000, way=way)]
    for fork in forks:
        fork.held = way.chain(way.onward(root.held, "middle"))
    assert [given_to(await spending.reserve(fork.request("a"), 700)) for fork in forks] == [700, 300]


async def test_the_same_request_sent_again_is_counted_once(spending: Spending) -> None:
    asked = Asked(1_000)
    first = await spending.reserve(asked.request("a"), 600)
    again = await spending.reserve(asked.request("a"), 600)
    assert (given_to(first), given_to(again)) == (600, 600)
    assert isinstance(again, Share)
    await spending.settle(again, 600)
    assert given_to(await spending.reserve(asked.request("b"), 600)) == 400


async def test_a_request_that_never_started_is_counted_when_it_comes_again(spending: Spending) -> None:
    asked = Asked(1_000)
    for _ in range(3):
        share = await spending.reserve(asked.request("a"), 600)
        assert given_to(share) == 600
        assert isinstance(share, Share)
        await spending.settle(share, 0)
    assert given_to(await spending.reserve(asked.request("a"), 600)) == 600
    assert given_to(await spending.reserve(asked.request("b"), 600)) == 400


async def test_a_request_that_was_refused_for_lack_of_tokens_can_come_again(spending: Spending) -> None:
    asked = Asked(1_000)
    first = await spending.reserve(asked.request("a"), 1_000)
    assert isinstance(first, Share)
    assert code_of(await spending.reserve(asked.request("b"), 10)) is Code.TOKEN_BUDGET_EXCEEDED
    await spending.settle(first, 400)
    assert given_to(await spending.reserve(asked.request("b"), 10**6)) == 600


async def test_a_credential_that_was_not_passed_on_bounds_its_one_request(spending: Spending) -> None:
    way = Way()
    direct = way.verify(said(way, a_hop(0, way.pairs[1], tokens=1_000)), 1)
    assert isinstance(direct, Verified)
    for _ in range(2):
        share = await spending.reserve(direct, 5_000)
        assert given_to(share) == 1_000
        assert isinstance(share, Share)
        await spending.settle(share, 1_000)


async def test_who_asks_for_nothing_gets_nothing_and_is_not_refused(spending: Spending) -> None:
    assert given_to(await spending.reserve(Asked(1_000).request("a"), 0)) == 0


async def test_what_is_counted_is_forgotten_when_the_credential_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COUNTERS", 2)
    wall = Wall()
    spending, asked = Spending(wall_ms=wall), Asked(1_000)
    share = await spending.reserve(asked.request("a"), 1_000)
    assert isinstance(share, Share)
    wall.now_ms += 60_000 + WINDOW_MS
    assert code_of(await spending.reserve(Asked(1_000).request("b"), 1_000)) is Code.OVERLOADED
    wall.now_ms += 1
    await spending.settle(share, 1)  # too late to be of use, and no harm
    wall.now_ms -= 1
    later = Asked(1_000)
    later.held = asked.way.chain(said(asked.way, a_hop(0, asked.way.pairs[1], until_ms=wall.now_ms + 10)))
    later.way = asked.way
    wall.now_ms += 1
    assert given_to(await spending.reserve(later.request("c"), 1_000)) == 1_000


async def test_no_counter_is_given_up_before_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_COUNTERS", 4)
    spending = counted()
    assert given_to(await spending.reserve(Asked(1_000).request("a"), 1)) == 1
    assert given_to(await spending.reserve(Asked(1_000).request("a"), 1)) == 1
    full = await spending.reserve(Asked(1_000).request("a"), 1)
    assert isinstance(full, Fault)
    assert (full.code, full.retry_after_ms) == (Code.OVERLOADED, WINDOW_MS)


WAY = Way()


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 1_500) | st.none()), max_size=6), st.booleans())
@share(1 / 2)
def test_together_they_never_get_more_than_was_granted(asks: list[tuple[int, int | None]], stored: bool) -> None:
    async def spend() -> None:
        spending = await in_store() if stored else counted()
        asked = Asked(1_000, way=WAY)
        held = 0
        for number, (tokens, used) in enumerate(asks):
            share = await spending.reserve(asked.request(f"r-{number}"), tokens)
            if isinstance(share, Share):
                if used is not None:
                    await spending.settle(share, used)
                held += share.tokens if used is None else min(used, share.tokens)
            assert held <= 1_000

    asyncio.run(spend())
