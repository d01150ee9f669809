"""What was asked of another device before a restart is asked about, and never said to have been unavailable."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from devices import gateway
from neighbours import BOUND_S, Neighbour, all_at_work
from remit import Brief, Code, Hub, Response, Status
from remit_relay import call_shared
from remit_server.transports import remote_calls

USER = "anna@example.org"
UNKNOWN = (Status.FAILED, Code.OUTCOME_UNKNOWN)
both = pytest.mark.parametrize("target", ["bobs-till", "boss"])


class Till:
    """An agent that counts how often it was called, and waits until it may end."""

    def __init__(self) -> None:
        self.calls = 0
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, _: Brief) -> str:
        self.calls += 1
        self.began.set()
        await self.go_on.wait()
        return "receipt"


def annas(path: Path, bob: Neighbour) -> Neighbour:
    anna = Neighbour(path, "anna", Hub(name="anna", store=path / "anna-hub.db"))
    anna.knows("bobs-till", bob)

    async def boss(brief: Brief) -> str:
        return (await brief.delegate("bobs-till", objective=brief.text)).unwrap()

    anna.hub.add("boss", boss, may_call=["bobs-till"], resumable=True)
    return anna


class Left(NamedTuple):
    """What was under way when Anna's hub closed."""

    url: str
    till: Till
    bob: Neighbour
    path: Path

    def anna(self) -> Neighbour:
        return annas(self.path, self.bob)


@asynccontextmanager
async def left_behind(path: Path, target: str) -> AsyncGenerator[Left]:
    """Have Anna ask Bob, and her hub close while he works on it."""
    bob, till = Neighbour(path, "bob"), Till()
    bob.hub.add("till", till)
    anna = annas(path, bob)
    bob.shares("till", anna)
    async with gateway(path) as serving, all_at_work(serving.url, [bob]), asyncio.timeout(2 * BOUND_S):
        async with anna.at_work(serving.url), anna.hub:
            asking = asyncio.create_task(anna.hub.ask(target, "charge", user=USER, request_id="1"))
            await till.began.wait()
        await asyncio.wait({asking})
        anna.sealer.device.state.close()
        yield Left(serving.url, till, bob, path)
        till.go_on.set()


async def again(anna: Neighbour, target: str) -> Response:
    return await anna.hub.ask(target, "charge", user=USER, request_id="1")


def ended(response: Response) -> tuple[Status, Code | None]:
    return response.status, response.fault and response.fault.code


@both
async def test_a_device_that_is_not_at_work_any_more_leaves_the_outcome_unknown(tmp_path: Path, target: str) -> None:
    async with left_behind(tmp_path, target) as left:
        anna = left.anna()
        async with anna.hub:  # and nobody has her device at work
            response = await again(anna, target)
            assert ended(await again(anna, target)) == ended(response)
        assert ended(response) == UNKNOWN
        assert left.till.calls == 1


@both
async def test_a_device_that_is_at_work_again_hears_what_came_of_it(tmp_path: Path, target: str) -> None:
    async with left_behind(tmp_path, target) as left:
        anna = left.anna()
        left.till.go_on.set()
        async with anna.at_work(left.url), anna.hub:
            assert (await again(anna, target)).unwrap() == "receipt"
        assert left.till.calls == 1


@both
async def test_a_device_that_was_revoked_meanwhile_leaves_the_outcome_unknown(tmp_path: Path, target: str) -> None:
    async with left_behind(tmp_path, target) as left:
        anna = left.anna()
        anna.sealer.peers.revoke(left.bob.id)
        async with anna.at_work(left.url), anna.hub:
            assert ended(await again(anna, target)) == UNKNOWN
        assert left.till.calls == 1


async def test_after_the_time_that_outcomes_are_kept_a_device_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with left_behind(tmp_path, "bobs-till") as left:
        anna = left.anna()
        monkeypatch.setattr(remote_calls, "WINDOW_MS", 0)
        async with anna.at_work(left.url), anna.hub:
            assert ended(await again(anna, "bobs-till")) == UNKNOWN
        assert left.till.calls == 1


async def test_a_device_that_is_asked_to_go_while_it_works_leaves_the_outcome_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the question is sealed it is on its way, whatever becomes of the device that asks."""
    monkeypatch.setattr(call_shared, "LEFT_S", 0.1)
    bob, till = Neighbour(tmp_path, "bob"), Till()
    bob.hub.add("till", till)
    anna = annas(tmp_path, bob)
    bob.shares("till", anna)
    async with (
        gateway(tmp_path) as serving,
        all_at_work(serving.url, [bob]),
        anna.hub,
        asyncio.timeout(2 * BOUND_S),
    ):
        async with anna.at_work(serving.url):
            asking = asyncio.create_task(anna.hub.ask("bobs-till", "charge", user=USER))
            await till.began.wait()
        assert ended(await asking) == UNKNOWN
        till.go_on.set()
