"""Which other devices are connected to the gateway, and when each was last heard from, as far as this device knows."""

import time
from collections.abc import Callable, Mapping

from msgspec import Struct


class DevicePresence(Struct, frozen=True, kw_only=True):
    """Whether another device can be reached."""

    present: bool | None = None
    """Whether it is connected to its gateway; None: unknown. The gateway says so, and can be wrong or lie."""
    last_heard_ms: int | None = None
    """When it sent its last message that was opened here, or was last present; None: never."""


UNKNOWN = DevicePresence()

HearPresence = Callable[[str, DevicePresence], None]


class PresenceBook:
    """What is known of other devices, and those who want to hear of each change."""

    def __init__(self, *, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._now_ms = now_ms
        self._known: dict[str, DevicePresence] = {}
        self._listeners: list[HearPresence] = []

    def of(self, device: str) -> DevicePresence:
        """Return what is known of a device."""
        return self._known.get(device, UNKNOWN)

    def listen(self, hear: HearPresence) -> Callable[[], None]:
        """Call *hear* with each device that comes, goes or becomes unknown; return how to stop that."""
        self._listeners.append(hear)
        return lambda: self._listeners.remove(hear)

    def reported(self, devices: Mapping[str, bool | None]) -> None:
        """Note what the gateway says of some devices."""
        for device, present in devices.items():
            was = self.of(device)
            if was.present is not present:
                heard_ms = self._now_ms() if was.present or present else was.last_heard_ms
                now = self._known[device] = DevicePresence(present=present, last_heard_ms=heard_ms)
                for hear in tuple(self._listeners):
                    hear(device, now)

    def lose(self) -> None:
        """Note that the gateway says nothing any more, so that the presence of all devices is unknown."""
        self.reported(dict.fromkeys(self._known))

    def heard(self, device: str, at_ms: int) -> None:
        """Note a message of a device that was written at a time, by its own clock."""
        was, at_ms = self.of(device), min(at_ms, self._now_ms())
        if was.last_heard_ms is None or at_ms > was.last_heard_ms:
            self._known[device] = DevicePresence(present=was.present, last_heard_ms=at_ms)

    def last_heard(self) -> dict[str, int]:
        """When each device was last heard from."""
        return {name: each.last_heard_ms for name, each in self._known.items() if each.last_heard_ms is not None}
