"""What left for a peer is on record: killed on both sides and restarted in either order, nothing is charged twice.

Decision 15: a delegation that was sent ends as what came of it, or as OUTCOME_UNKNOWN, never as "nothing was started".
"""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError

from charging import LONG_MS, Two, two
from serving import posted

BOUND_S = 120
pytestmark = pytest.mark.timeout(2 * BOUND_S)

ASKED = ["patient", "boss-patient"]
"""Whom a client asks: what lives at the back hub itself, or an agent here that asks it and can be resumed."""


@pytest.fixture
async def hubs(tmp_path: Path) -> AsyncGenerator[Two]:
    async with asyncio.timeout(BOUND_S), two(tmp_path) as hubs:
        yield hubs


def order(target: str, **more: Any) -> dict[str, Any]:
    return {"target": target, "user": "anna", "objective": "order-17", "id": "o-17", "deadline_ms": LONG_MS} | more


async def asked_until_charged(hubs: Two, body: dict[str, Any]) -> None:
    """Ask for a charge, and return once it was made, while the back hub still works on it."""
    charged = asyncio.Event()
    hubs.back.charged = lambda _: charged.set()

    async def ask() -> None:
        async with hubs.front.client() as session:
            with pytest.raises(ClientError):
                await posted(session, body)

    asking = asyncio.create_task(ask())
    await charged.wait()
    await hubs.front.kill()
    await asking


async def taken_up(hubs: Two) -> None:
    """Return once the front hub has resumed what it was asked before it was killed."""
    async with (
        hubs.front.client() as session,
        session.get("/v1/delegations/o-17/events", headers={"accept": "text/event-stream"}) as reply,
    ):
        said = b""
        while b"resumed after a restart" not in said:
            said += await reply.content.readany()


async def answer(hubs: Two, body: dict[str, Any]) -> tuple[int, Any]:
    async with hubs.front.client() as session:
        status, said = await posted(session, body)
        assert (await posted(session, body)) == (status, said), "asked again, it answers the same"
    return status, said


@pytest.mark.parametrize("target", ASKED)
async def test_killed_on_both_sides_with_the_front_up_first_it_never_says_that_nothing_was_started(
    hubs: Two, target: str
) -> None:
    """The front hub meets nobody at first, and asks for the same id until the back hub is there again."""
    await asked_until_charged(hubs, order(target))
    await hubs.back.kill()
    await hubs.front.start()
    asking = asyncio.create_task(answer(hubs, order(target)))
    await taken_up(hubs)  # while the back hub is not there
    await hubs.back.start()
    status, said = await asking
    assert (status, said["fault"]["code"]) == (500, "OUTCOME_UNKNOWN"), "the back hub does not know how far it came"
    assert len(hubs.world.charges()["order-17"]) == 1


@pytest.mark.parametrize("target", ASKED)
async def test_killed_on_both_sides_with_the_back_up_first_it_ends_as_what_came_of_it(hubs: Two, target: str) -> None:
    await asked_until_charged(hubs, order(target))
    await hubs.back.kill()
    await hubs.back.start()
    await hubs.front.start()
    status, said = await answer(hubs, order(target))
    assert (status, said["fault"]["code"]) == (500, "OUTCOME_UNKNOWN")
    assert len(hubs.world.charges()["order-17"]) == 1


@pytest.mark.parametrize("target", ASKED)
async def test_a_front_hub_that_is_killed_gets_what_its_peer_has_done_meanwhile(hubs: Two, target: str) -> None:
    await asked_until_charged(hubs, order(target))
    hubs.world.let_go()
    await hubs.front.start()
    status, said = await answer(hubs, order(target))
    assert (status, [said["result"]]) == (200, hubs.world.charges()["order-17"])


@pytest.mark.parametrize("target", ASKED)
async def test_a_peer_that_stays_away_until_the_deadline_leaves_the_outcome_unknown(hubs: Two, target: str) -> None:
    body = order(target, deadline_ms=6_000)
    await asked_until_charged(hubs, body)
    await hubs.back.kill()
    await hubs.front.start()
    status, said = await answer(hubs, body)
    assert (status, said["fault"]["code"]) == (500, "OUTCOME_UNKNOWN")
    assert len(hubs.world.charges()["order-17"]) == 1
    await hubs.back.start()
    assert (await answer(hubs, body))[1]["fault"]["code"] == "OUTCOME_UNKNOWN", "also when both are up again"


async def test_what_never_left_may_be_asked_for_again_under_the_same_id(hubs: Two) -> None:
    """Decision 6: only outcomes after execution began are kept."""
    await hubs.back.kill()
    async with hubs.front.client() as session:
        status, said = await posted(session, order("till"))
        assert (status, said["fault"]["code"]) == (503, "DELEGATION_UNAVAILABLE")
        await hubs.back.start()
        status, said = await posted(session, order("till"))
    assert (status, [said["result"]]) == (200, hubs.world.charges()["order-17"])
