"""Agents that other devices share, as agents of this hub: asked over the relay, used like those that live here."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager

from remit.protocol.envelope import Request, Response
from remit.protocol.errors import Code, RemitError, fault
from remit.relay.call_shared import RemoteCaller, RemoteCalls
from remit.runtime.engine import Engine
from remit.runtime.ports import Remote, RemoteHandle, StoreError
from remit.transports.remote_calls import is_known_there, lost


class DeviceLender:
    """The device of a hub, for its agents on other devices: lent by whoever has it at work in this process.

    If nobody has when the first of them is asked, *open* has it at work, and so lends it, until `close`.
    """

    def __init__(self, open: Callable[[], AbstractAsyncContextManager[object]] | None = None) -> None:
        self._open = open
        self._lent: RemoteCalls | None = None
        self._opened = AsyncExitStack()
        self._is_own = False
        """Whether it was opened here: what others lend, they end."""
        self._opening = asyncio.Lock()

    @contextmanager
    def lent(self, calls: RemoteCalls) -> Generator[None]:
        """Have what is asked go by *calls* while the block lasts."""
        before, self._lent = self._lent, calls
        try:
            yield
        finally:
            self._lent = before
            calls.close()

    async def calls(self) -> RemoteCalls:
        """Return what takes calls, or raise a `RemitError` that says why nobody does."""
        if self._is_wanting():
            async with self._opening:
                if self._is_wanting():
                    await self._reopen()
        assert self._lent is not None, "whoever has the device at work lends it"
        return self._lent

    def _is_wanting(self) -> bool:
        return self._lent is None or (self._is_own and self._lent.is_over)

    async def _reopen(self) -> None:
        await self.close()
        if self._open is None:
            raise RemitError(
                fault(
                    Code.DELEGATION_UNAVAILABLE,
                    "the device of this team is not at work in this process",
                    suggestion="Have it at work where the hub is open: `relaying` in a program of your own.",
                )
            )
        await self._opened.enter_async_context(self._open())
        self._is_own = True

    async def close(self) -> None:
        """Have the device at work no more, if it was opened here."""
        self._is_own = False
        await self._opened.aclose()


def lenders_of(hub: Engine) -> set[DeviceLender]:
    """Return where the agents of a hub that live on other devices look for its own."""
    return {each.lender for each in hub.remotes.values() if isinstance(each, DeviceAgent)}


class DeviceAgent(Remote):
    """One agent that another device shares."""

    def __init__(self, caller: RemoteCaller, lender: DeviceLender) -> None:
        self.caller = caller
        self.lender = lender

    async def send(self, request: Request, line: RemoteHandle) -> Response:
        """Ask by way of the hub's own device, and return how it ended there; cancelled, withdraw the question."""
        left = await line.depart(f"{self.caller.remote or 'what is shared'} on the device {self.caller.device}")
        if left is not None and not is_known_there(line, left):
            why = f"{self.caller.device} was asked too long ago to be asked again, and it is not known what came of it"
            return lost(request, fault(Code.OUTCOME_UNKNOWN, why), sent=True)
        try:
            calls = await self.lender.calls()
        except StoreError:
            raise
        except RemitError as error:
            why = f"{self.caller.agent}, which lives on another device, cannot be asked from here: "
            unavailable = fault(
                Code.DELEGATION_UNAVAILABLE, why + error.fault.message, suggestion=error.fault.suggestion
            )
            return lost(request, unavailable, sent=left is not None)
        return await calls.run(self.caller, request, line, sent=left is not None)
