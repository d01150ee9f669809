"""Whoever dies between two devices, whenever: each message arrives once, in order (S1)."""

import asyncio
import os
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from devices import gateway, introduce, linked, sealer
from remit_relay.client import delivery as post_module
from remit_relay.client.delivery import MessageDelivery
from remit_relay.e2e import channel as seal_module
from remit_relay.e2e.channel import MessageCipher
from waiting import PATIENCE_S, eventually

DEATHS = 60 if "REMIT_KILLS" in os.environ else 12


class Side:
    """A device that goes and comes back, says numbers, and writes down those that it hears."""

    def __init__(self, path: Path, name: str, other: str) -> None:
        self.path, self.name, self.other = path, name, other
        self.received: list[int] = []
        self.sent_count = 0
        self.sealer: MessageCipher = sealer(path, name)
        self._stack = AsyncExitStack()

    async def come(self, url: str, to: str) -> None:
        self.sealer = sealer(self.path, self.name)
        self.post: MessageDelivery = await self._stack.enter_async_context(linked(self.sealer, url))
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._tasks = [group.create_task(self._hear()), group.create_task(self._say(to))]

    async def die(self) -> None:
        """Stop in the middle of whatever is done; only what was kept is there afterwards."""
        for task in self._tasks:
            task.cancel()
        await self._stack.aclose()
        self.sealer.device.state.close()

    async def _hear(self) -> None:
        async for opened in self.post:
            self.received.append(int(opened.body))
            await self.post.taken(opened)

    async def _say(self, to: str) -> None:
        while True:
            number = self.sent_count
            # Counted once it is sealed, under an id of its own: killed in between, it is said again and is the same.
            await self.post.send(to, b"%d" % number, message=f"{number:032x}")
            self.sent_count = number + 1
            await asyncio.sleep(0.002)


async def test_nothing_is_lost_repeated_or_reordered_whoever_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post_module, "TELL_S", 0.02)
    monkeypatch.setattr(post_module, "AGAIN_S", 0.1)
    monkeypatch.setattr(seal_module, "ASKED_MS", 0)
    chance = random.Random(7)
    sides = [Side(tmp_path, "anna", "bob"), Side(tmp_path, "bob", "anna")]
    introduce(sides[0].sealer, sides[1].sealer)
    ids = [side.sealer.device.id for side in sides]
    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
        serving = await stack.enter_async_context(gateway(tmp_path))
        url, port = serving.url, int(serving.url.rpartition(":")[2])
        for side, to in zip(sides, reversed(ids), strict=True):
            await side.come(url, to)
        for _ in range(DEATHS):
            await asyncio.sleep(chance.uniform(0, 0.08))
            who = chance.randrange(3)
            if who == 2:
                await stack.aclose()
                await stack.enter_async_context(gateway(tmp_path, port))
            else:
                await sides[who].die()
                await sides[who].come(url, ids[1 - who])
        for side in sides:
            side._tasks[1].cancel()  # pyright: ignore[reportPrivateUsage]
        for side, other in (sides, reversed(sides)):
            await eventually(lambda side=side, other=other: len(side.received) >= other.sent_count)
        for side in sides:
            await side.die()
    for side, other in (sides, reversed(sides)):
        # What was heard and not yet taken when this side died comes once more, and is the same.
        once = [number for place, number in enumerate(side.received) if number not in side.received[:place]]
        assert once == list(range(len(once)))
        assert len(once) in (other.sent_count, other.sent_count + 1)
        assert len(side.received) - len(once) <= DEATHS
