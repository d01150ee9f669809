"""Agents that other devices share, as agents of this hub: called over the relay, used like local ones."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager

from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.engine import Engine
from remit.runtime.ports import Remote, RemoteHandle, StoreError
from remit_relay.call_shared import RemoteCaller, RemoteCalls
from remit_server.transports.remote_calls import is_known_there, lost


class DeviceAccess:
    """Gives the agents of a hub access to the device that runs in this process.

    If no device runs when the first agent is called, *open* starts one, which runs until `close`.
    """

    def __init__(self, open: Callable[[], AbstractAsyncContextManager[object]] | None = None) -> None:
        self._open = open
        self._calls: RemoteCalls | None = None
        self._opened = AsyncExitStack()
        self._is_own = False
        """Whether it was opened here, so that it is closed here."""
        self._opening = asyncio.Lock()

    @contextmanager
    def provide(self, calls: RemoteCalls) -> Generator[None]:
        """Use *calls* while the block lasts."""
        before, self._calls = self._calls, calls
        try:
            yield
        finally:
            self._calls = before
            calls.close()

    async def calls(self) -> RemoteCalls:
        """Return the open calls of the device, or raise a `RemitError` that says why there is none."""
        if self._is_wanting():
            async with self._opening:
                if self._is_wanting():
                    await self._reopen()
        assert self._calls is not None, "opening the device sets this"
        return self._calls

    def _is_wanting(self) -> bool:
        return self._calls is None or (self._is_own and self._calls.is_over)

    async def _reopen(self) -> None:
        await self.close()
        if self._open is None:
            raise RemitError(
                fault(
                    Code.DELEGATION_UNAVAILABLE,
                    "the device of this team is not running in this process",
                    suggestion="Start it where the hub is open: use `relaying` in your program.",
                )
            )
        await self._opened.enter_async_context(self._open())
        self._is_own = True

    async def close(self) -> None:
        """Stop the device, if it was opened here."""
        self._is_own = False
        await self._opened.aclose()


def device_access_of(hub: Engine) -> set[DeviceAccess]:
    """Return the device access of all agents of a hub that are on other devices."""
    return {each.access for each in hub.remotes.values() if isinstance(each, DeviceAgent)}


class DeviceAgent(Remote):
    """An agent that another device shares."""

    def __init__(self, caller: RemoteCaller, access: DeviceAccess) -> None:
        self.caller = caller
        self.access = access

    async def send(self, request: Request, line: RemoteHandle) -> Response:
        """Ask over the hub's own device and return the response; when cancelled, withdraw the question."""
        left = await line.depart(f"{self.caller.remote or 'the shared agent'} on the device {self.caller.device}")
        if left is not None and not is_known_there(line, left):
            why = f"{self.caller.device} was asked too long ago to ask again, and the outcome is unknown"
            return lost(request, fault(Code.OUTCOME_UNKNOWN, why), sent=True)
        try:
            calls = await self.access.calls()
        except StoreError:
            raise
        except RemitError as error:
            why = f"cannot call {self.caller.agent} on another device: "
            unavailable = fault(
                Code.DELEGATION_UNAVAILABLE, why + error.fault.message, suggestion=error.fault.suggestion
            )
            return lost(request, unavailable, sent=left is not None)
        return await calls.run(self.caller, request, line, sent=left is not None)
