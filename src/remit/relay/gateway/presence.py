"""Tells devices which others are connected: those that ask for it, and may know it."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from remit.relay.gateway.connection import DeviceConnection
from remit.relay.gateway.ports import GatewayStore, PresencePair
from remit.relay.wire import PresenceReport

# Pairs in one question to the store: it takes milliseconds.
MOST_ASKED = 2_000


class PresenceWatchers:
    """The connections that watch, and the last report to each about each device. Pure: it decides what is news."""

    def __init__(self) -> None:
        self._told: dict[DeviceConnection, dict[str, bool | None]] = {}
        self._by_device: dict[str, set[DeviceConnection]] = {}

    def watch(self, connection: DeviceConnection, devices: Iterable[str]) -> list[PresencePair]:
        """Replace what a connection watches; return all of its pairs."""
        self.forget(connection)
        told: dict[str, bool | None] = dict.fromkeys(devices)
        if told:
            self._told[connection] = told
        for device in told:
            self._by_device.setdefault(device, set()).add(connection)
        return [PresencePair(connection.device, device) for device in told]

    def forget(self, connection: DeviceConnection) -> None:
        """Forget a connection that has ended."""
        for device in self._told.pop(connection, {}):
            watching = self._by_device[device]
            watching.discard(connection)
            if not watching:
                del self._by_device[device]

    def pairs(self, device: str | None = None) -> list[PresencePair]:
        """Return the pairs of those who watch a device, or of all."""
        watched = self._by_device if device is None else {device: self._by_device.get(device, set())}
        return [PresencePair(each.device, name) for name, watching in watched.items() for each in watching]

    def changed(self, device: str, *, present: bool) -> list[tuple[DeviceConnection, PresenceReport]]:
        """Return whom to tell that a device came or went: those who may know it."""
        news: list[tuple[DeviceConnection, PresenceReport]] = []
        for connection in self._by_device.get(device, ()):
            if self._told[connection][device] is (not present):
                self._told[connection][device] = present
                news.append((connection, PresenceReport(devices={device: present})))
        return news

    def answered(
        self, pairs: Iterable[PresencePair], found: Mapping[PresencePair, bool]
    ) -> list[tuple[DeviceConnection, PresenceReport]]:
        """Return whom to tell what after the store was asked; a pair that it does not know may not know it."""
        news: dict[DeviceConnection, dict[str, bool | None]] = {}
        for pair in pairs:
            for connection in self._by_device.get(pair.device, ()):
                told, present = self._told[connection], found.get(pair)
                if connection.device == pair.asker and told[pair.device] is not present:
                    told[pair.device] = present
                    news.setdefault(connection, {})[pair.device] = present
        return [(connection, PresenceReport(devices=devices)) for connection, devices in news.items()]


class PresenceTeller:
    """Tells connections which of the devices that they watch are connected; *say* sends a report.

    Only those hear of a device that it accepts messages from, so that strangers learn nothing.
    """

    def __init__(
        self,
        store: GatewayStore,
        devices: Mapping[str, DeviceConnection],
        say: Callable[[DeviceConnection, PresenceReport], None],
    ) -> None:
        self._store = store
        self._devices = devices
        self._say = say
        self._watchers = PresenceWatchers()

    def watch(self, connection: DeviceConnection, devices: Iterable[str]) -> None:
        """Tell a connection of these devices from now on."""
        self._ask(self._watchers.watch(connection, devices))

    def came(self, device: str, *, is_new: bool) -> None:
        """Tell others that a device is connected."""
        if is_new:
            self.permitted(device)
        else:
            self._send(self._watchers.changed(device, present=True))

    def went(self, device: str) -> None:
        """Tell others that a device is no longer connected."""
        self._send(self._watchers.changed(device, present=False))

    def forget(self, connection: DeviceConnection) -> None:
        """Tell a connection nothing more."""
        self._watchers.forget(connection)

    def permitted(self, device: str) -> None:
        """Ask again who may know of a device, after it changed its list."""
        self._ask(self._watchers.pairs(device))

    def look_elsewhere(self) -> None:
        """Ask for devices that came to or left other gateways."""
        if self._store.is_shared:
            self._ask(self._watchers.pairs())

    def _ask(self, pairs: Sequence[PresencePair]) -> None:
        for start in range(0, len(pairs), MOST_ASKED):
            self._ask_page(pairs[start : start + MOST_ASKED])

    def _ask_page(self, pairs: Sequence[PresencePair]) -> None:
        def then(elsewhere: dict[PresencePair, bool]) -> None:
            found = {pair: there or pair.device in self._devices for pair, there in elsewhere.items()}
            self._send(self._watchers.answered(pairs, found))

        self._store.presence(pairs, then)

    def _send(self, news: Iterable[tuple[DeviceConnection, PresenceReport]]) -> None:
        for connection, report in news:
            self._say(connection, report)
