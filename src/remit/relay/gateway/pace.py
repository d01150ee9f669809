"""How fast one device may be, as two buckets that fill with time: one of frames, one of bytes."""

from remit.relay.gateway.limits import GatewayLimits


class Pace:
    """What a device may still send at once. Spending is always possible; it may have to be waited for afterwards."""

    __slots__ = ("_at", "_bytes", "_frames", "_limits")

    def __init__(self, limits: GatewayLimits, now: float) -> None:
        self._limits = limits
        self._at = now
        self._frames = limits.frames_burst
        self._bytes = limits.bytes_burst

    def spend(self, size: int, now: float, frames: int = 1) -> float:
        """Take a frame of *size* bytes, and return for how many seconds no other is to be read."""
        self._fill(now)
        self._frames -= frames
        self._bytes -= size
        return max(0.0, -self._frames / self._limits.frames_per_s, -self._bytes / self._limits.bytes_per_s)

    def full(self, now: float) -> bool:
        """Whether it need not be remembered."""
        self._fill(now)
        return self._frames >= self._limits.frames_burst and self._bytes >= self._limits.bytes_burst

    def _fill(self, now: float) -> None:
        passed, self._at = now - self._at, now
        limits = self._limits
        self._frames = min(limits.frames_burst, self._frames + passed * limits.frames_per_s)
        self._bytes = min(limits.bytes_burst, self._bytes + passed * limits.bytes_per_s)
