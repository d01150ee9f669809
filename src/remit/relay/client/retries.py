"""When a device connects to its gateway again, and after which answers it does not."""

from msgspec import Struct

from remit.protocol.errors import Code
from remit.relay.wire import ByeCode

ENDED: dict[ByeCode, tuple[Code, str]] = {
    "replaced": (Code.STATE_CONFLICT, "Stop the other process that uses this device's identity, or this one."),
    "unauthenticated": (
        Code.UNAUTHENTICATED,
        "Check `name` and `gateway` in `[relay]`: the name must be that of the gateway at this address.",
    ),
    "version": (Code.VERSION_UNSUPPORTED, "Use the same version of Remit on this device and its gateway."),
    "malformed": (Code.MALFORMED_ENVELOPE, "Use the same version of Remit on this device and its gateway."),
}


class ReconnectDelays(Struct, frozen=True, kw_only=True):
    """How long a connection waits before it reconnects: a random part of a bound that doubles each time."""

    first_s: float = 0.5
    most_s: float = 60.0

    def bound_s(self, attempt: int) -> float:
        """The longest wait before an attempt, counted from 0."""
        return min(self.most_s, self.first_s * 2 ** min(attempt, 30))
