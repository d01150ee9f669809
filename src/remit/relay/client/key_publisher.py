"""Keeps keys of a device at its gateway, with which others open sessions."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from remit.protocol.errors import RemitError
from remit.relay.client.connection import GatewayConnection
from remit.relay.device.identity import Published
from remit.relay.e2e.account import Device

# Below so many one-time keys at the gateway, the device adds new ones up to the other number. It adds no more: a device
# keeps the secret halves of some thousand keys and forgets the oldest, and the gateway hands out the oldest first.
FEW_KEYS = 20
MOST_KEYS = 50
# Keys that cannot be used are replaced at most this often.
REPLACED_S = 30.0


class KeyPublisher:
    """Publishes the keys of a device; *do* makes new ones durable."""

    def __init__(
        self,
        device: Device,
        link: GatewayConnection,
        do: Callable[[Callable[[], Published]], Awaitable[Published]],
    ) -> None:
        self._device = device
        self._link = link
        self._do = do
        self._replaces_from = 0.0

    @property
    def are_few(self) -> bool:
        """Whether the gateway has too few one-time keys left."""
        return self._link.one_time_left is not None and self._link.one_time_left < FEW_KEYS

    async def publish(self, *, replace: bool = False) -> None:
        """Publish a new fallback key, and as many one-time keys as are missing; with *replace*, all of them anew."""
        await self._link.welcomed.wait()
        left = 0 if replace else self._link.one_time_left or 0
        published = await self._do(partial(self._device.publish, max(0, MOST_KEYS - left)))
        with suppress(RemitError):  # the connection has ended, and says why
            await self._link.publish(bundle=published.bundle, one_time=published.one_time, replace=replace)

    async def replace(self) -> None:
        """Replace all keys, after a message that was sealed with one that this device does not know.

        Otherwise the next session might be opened with another key that it has forgotten, as after a restore.
        """
        now = asyncio.get_running_loop().time()
        if now >= self._replaces_from:
            self._replaces_from = now + REPLACED_S
            await self.publish(replace=True)
