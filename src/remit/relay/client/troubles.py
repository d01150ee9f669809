"""The devices to which messages cannot be sent at the moment, and why."""

import asyncio
from collections.abc import Callable

from remit.protocol.errors import Code, Fault, fault
from remit.relay import wire

Trouble = Callable[[str, Fault | None], None]


class Troubles:
    """The problem of each device; *tell* is called with each problem, and with None once it is solved."""

    def __init__(self, tell: Trouble | None) -> None:
        self._tell: Trouble = tell or _ignore
        self._known: dict[str, Fault] = {}
        self.resting: set[str] = set()
        """Devices that wait for the next retry."""
        self.came = asyncio.Event()
        """Set when a device rests; whoever retries clears it."""

    def wrong(self, device: str, why: Fault) -> None:
        """Report a problem; the device rests until the next retry."""
        self.resting.add(device)
        self.came.set()
        self._known[device] = why
        self._tell(device, why)

    def right(self, device: str) -> None:
        """Report that there is no problem, or no longer."""
        if self._known.pop(device, None) is not None:
            self._tell(device, None)

    def why(self, device: str) -> str:
        """Return the problem of a device; empty: none is known."""
        found = self._known.get(device)
        return "" if found is None else found.message


def _ignore(_device: str, _why: Fault | None) -> None: ...


def fault_of(answer: wire.Refused | wire.Denied | wire.Done) -> Fault:
    """Return why a gateway refuses a message, or the keys of a device."""
    if isinstance(answer, wire.Done):
        return fault(Code.RESULT_VALIDATION_FAILED, "unexpected answer from the gateway")
    if answer.code == "full":
        return fault(Code.OVERLOADED, answer.reason or "the gateway accepts no more messages for this device for now")
    return fault(
        Code.DELEGATION_UNAVAILABLE,
        answer.reason or "the gateway cannot reach this device",
        suggestion="The other device must have connected once, and must allow this device.",
    )
