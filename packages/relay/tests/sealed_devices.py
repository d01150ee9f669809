"""Devices that seal and open, for tests: made, paired, carried between, put back to an earlier state."""

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from remit_relay.device.identity import PreKey, choose_prekey
from remit_relay.device.state import DeviceFile, open_keys
from remit_relay.e2e.account import Device
from remit_relay.e2e.channel import MessageCipher, Opened, OutboundMessage, RejectedMessageError

NAMES = ("ada", "bob")


class Ticks:
    """A clock that goes on by a microsecond each time it is read."""

    def __init__(self) -> None:
        self._ticks = count(1_700_000_000_000_000)
        self._skipped = 0

    def __call__(self) -> int:
        return next(self._ticks) + self._skipped

    def skip(self, seconds: int) -> None:
        self._skipped += seconds * 1_000_000


def open_device(home: Path, now_us: Callable[[], int] | None = None) -> MessageCipher:
    """Return the device in a folder, named after the folder; it is made if it is not there."""
    state = DeviceFile.open(home / "device.db", open_keys(home / "device.key"), "process")
    device = Device.load(state) or Device.create(state, name=home.name, gateway="wss://relay.example")
    return MessageCipher(device) if now_us is None else MessageCipher(device, now_us=now_us)


def close(sealer: MessageCipher) -> None:
    sealer.device.state.close()


def pair(one: MessageCipher, other: MessageCipher) -> None:
    """Have two devices know each other: the other shares an agent with the one."""
    one.peers.pair(other.device.card)
    one.peers.share(other.device.id)
    other.peers.pair(one.device.card)
    other.peers.allow(one.device.id)


def prekey_of(sealer: MessageCipher) -> PreKey:
    """Return a one-time key as the gateway would hand it out."""
    published = sealer.device.publish(1)
    return choose_prekey(sealer.device.card, published.bundle, published.one_time[0])


def waiting(sealer: MessageCipher) -> list[OutboundMessage]:
    return sealer.outbox(limit=10_000)


def take(sealer: MessageCipher) -> list[bytes]:
    """Return what is in the inbox, and take it."""
    opened: list[Opened] = sealer.inbox(limit=10_000)
    sealer.taken(*(each.id for each in opened))
    return [each.body for each in opened]


def carry(sender: MessageCipher, receiver: MessageCipher) -> list[str]:
    """Bring everything over, do what each refusal asks for, and return the reasons."""
    refused: list[str] = []
    for each in waiting(sender):
        try:
            receiver.open(sender.device.id, each.sealed)
        except RejectedMessageError as error:
            refused.append(error.reason)
            if error.remedy == "later":
                continue
            if error.remedy == "renew":
                receiver.renew(sender.device.id, prekey_of(sender))
            if error.remedy == "acknowledge":
                receiver.acknowledge(sender.device.id, always=True)
        sender.sent(each.id)
    return refused


def settle(one: MessageCipher, other: MessageCipher) -> list[str]:
    """Bring everything over until nothing waits on either side, and return the reasons of what was refused."""
    refused: list[str] = []
    for _ in range(50):
        if not waiting(one) and not waiting(other):
            return refused
        refused += carry(one, other) + carry(other, one)
    raise AssertionError(f"the devices do not come to rest: {refused}")


def copy_of(home: Path, name: str) -> Path:
    """Keep a copy of a device's state, as a backup would; the device is closed."""
    kept = home.with_name(name)
    shutil.copytree(home, kept)
    return kept


def put_back(home: Path, kept: Path) -> None:
    """Put a device back to an earlier state; it is closed."""
    shutil.rmtree(home)
    shutil.copytree(kept, home)


class World:
    """Two devices, and a network that does with their messages what it likes."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.ticks = Ticks()
        self.devices = [open_device(home / name, self.ticks) for name in NAMES]
        self.ids = [each.device.id for each in self.devices]
        self.flight: list[tuple[int, OutboundMessage]] = []
        self.sealed: list[list[bytes]] = [[], []]
        self.taken: list[list[bytes]] = [[], []]

    def seal(self, side: int, size: int) -> None:
        body = b"%d/%d/" % (side, len(self.sealed[side])) + bytes(size)
        self.devices[side].seal(self.ids[1 - side], body)
        self.sealed[side].append(body)

    def connect(self, side: int) -> None:
        """What a client does: open sessions that are wanted, and give the network all that waits, perhaps again."""
        for _ in self.devices[side].wanting():
            self.devices[side].begin(self.ids[1 - side], prekey_of(self.devices[1 - side]))
        self.flight += [(side, each) for each in waiting(self.devices[side])]

    def deliver(self, index: int, *, confirmed: bool) -> None:
        """Bring over any of the messages on the way; unless *confirmed*, its sender sends it again."""
        if not self.flight:
            return
        side, each = self.flight.pop(index % len(self.flight))
        receiver, sender = self.devices[1 - side], self.devices[side]
        try:
            receiver.open(self.ids[side], each.sealed)
        except RejectedMessageError as error:
            if error.remedy == "renew":
                receiver.renew(self.ids[side], prekey_of(sender))
            if error.remedy == "acknowledge":
                receiver.acknowledge(self.ids[side], always=True)
            confirmed = confirmed and error.remedy != "later"
        if confirmed:
            sender.sent(each.id)

    def reopen(self, side: int) -> None:
        close(self.devices[side])
        self.devices[side] = open_device(self.home / NAMES[side], self.ticks)

    def take(self, side: int) -> None:
        self.taken[side] += take(self.devices[side])

    def put_back(self, side: int, kept: Path) -> None:
        """Put a device back to an earlier state."""
        close(self.devices[side])
        put_back(self.home / NAMES[side], kept)
        self.devices[side] = open_device(self.home / NAMES[side], self.ticks)

    def copy(self, side: int, name: str) -> Path:
        """Keep a copy of a device as it now is."""
        close(self.devices[side])
        kept = copy_of(self.home / NAMES[side], name)
        self.devices[side] = open_device(self.home / NAMES[side], self.ticks)
        return kept

    def act(self, deed: str, *about: Any) -> None:
        """Do one of the things that may happen to the two."""
        match deed, *about:
            case "seal", int(side), int(size):
                self.seal(side, size)
            case "connect", int(side):
                self.connect(side)
            case "deliver", int(index), bool(confirmed):
                self.deliver(index, confirmed=confirmed)
            case "lose", int(index):
                if self.flight:
                    self.flight.pop(index % len(self.flight))
            case "reopen", int(side):
                self.reopen(side)
            case "take", int(side):
                self.take(side)
            case "renew", int(side):
                self.devices[side].renew(self.ids[1 - side], prekey_of(self.devices[1 - side]))
            case "ask", int(side):
                self.devices[side].ask()
            case "acknowledge", int(side):
                self.devices[side].acknowledge(self.ids[1 - side])
            case _:
                raise ValueError(deed)

    def close(self) -> None:
        for each in self.devices:
            close(each)

    def finish(self) -> None:
        """Have the network behave until everything has arrived."""
        for turn in range(50):
            self.flight.clear()
            for side in (0, 1):
                self.connect(side)
                while self.flight:
                    self.deliver(0, confirmed=True)
                self.take(side)
                for _ in self.devices[side].stuck():
                    self.devices[side].renew(self.ids[1 - side], prekey_of(self.devices[1 - side]))
                self.devices[side].acknowledge(self.ids[1 - side])
                if self.devices[side].unsettled(self.ids[1 - side]) and turn % 5 == 4:
                    self.ticks.skip(600)
                    self.devices[1 - side].ask()
            self.ticks.skip(31)
            if not any(waiting(each) or each.unsettled(self.ids[1 - i]) for i, each in enumerate(self.devices)):
                return
        raise AssertionError("the devices do not come to rest")
