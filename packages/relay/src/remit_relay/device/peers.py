"""The known devices and their permissions. Trust is bound to the key: a changed key is refused."""

import builtins
from collections.abc import Iterable
from shlex import quote
from typing import Any

from msgspec import Struct, structs

from remit.protocol.errors import Code, RemitError, fault
from remit_relay.device.identity import Card, check_name
from remit_relay.device.state import DecryptedCache, DeviceFile


class PeerDevice(Struct, frozen=True, kw_only=True):
    """A known device. Knowing it does not allow anything yet."""

    card: Card
    verified: bool = False
    """Whether the two owners compared their codes."""
    shared: bool = False
    """Whether it shares an agent with this device: this device may ask it, and it may answer."""
    allowed: bool = False
    """Whether it may contact this device on its own, and gets answers."""
    revoked: bool = False
    """Whether it was revoked. It stays known, so that it cannot come back as a new device."""
    revoked_there: bool = False
    """Whether it says that its owner has revoked this device."""
    agents: frozenset[str] = frozenset()
    """The shared agents that it may ask, besides those whose section in the team file names it."""
    profiles: frozenset[str] = frozenset()
    """The profiles that may ask it, besides those whose section in the team file names it."""
    groups: frozenset[str] = frozenset()
    """The groups that it is in. A group's name stands for all its devices, and for one of them where one is asked."""
    own: bool = False
    """Whether the owner of this device says that it is theirs, too: then nothing more need be granted to it here."""

    @property
    def device(self) -> str:
        return self.card.device

    @property
    def may_talk(self) -> bool:
        """Whether messages may be exchanged with it."""
        return (self.shared or self.allowed) and not self.revocation

    @property
    def revocation(self) -> str:
        """Which of the two devices has revoked the other, for a sentence; empty: neither."""
        if self.revoked:
            return f"this device has revoked {self.card.name}"
        return f"{self.card.name} has revoked this device" if self.revoked_there else ""

    def may_ask(self, agent: str) -> bool:
        """Return whether it was granted a shared agent of this device."""
        return self.allowed and not self.revoked and (self.own or agent in self.agents)

    def may_be_asked_by(self, profile: str) -> bool:
        """Return whether a profile of this device was granted it."""
        return not self.revoked and (self.own or profile in self.profiles)

    @property
    def names(self) -> frozenset[str]:
        """The names by which a team file or a command can mean it: its id, its name and its groups."""
        return self.groups | {self.device, self.card.name}


class Grants(Struct, frozen=True, kw_only=True):
    """What an owner lets two devices do with each other."""

    agents: frozenset[str] = frozenset()
    """Shared agents of this device that the other one may ask."""
    profiles: frozenset[str] = frozenset()
    """Profiles of this device that may ask the other one."""
    own: bool = False
    """Whether both have one owner: then all of these, now and later."""


class KeyChanged(RemitError):
    """A known device, or someone using its name, presents other keys."""

    def __init__(self, known: Card, shown: Card) -> None:
        super().__init__(
            fault(
                Code.CREDENTIAL_INVALID,
                f"THE KEYS OF A KNOWN DEVICE CHANGED: {known.name!r} was {known.device} with Olm key {known.olm[:16]}… "
                f"and now is {shown.device} with Olm key {shown.olm[:16]}…. Someone may be pretending to be it",
                suggestion="Nothing was changed. Ask its owner over another channel. If it was set up again, revoke "
                f"{known.device}, pair with the new card under another name, and compare codes.",
            )
        )
        self.known = known
        self.shown = shown


# A revoked device stays revoked: anyone could have its key.
_ANEW = (
    "Pair with a new identity of it: its owner moves device.db and device.key away, runs `remit devices init`, "
    "and sends the new link."
)


class Peers:
    """The known devices, kept in the device's state."""

    def __init__(self, state: DeviceFile) -> None:
        self._state = state
        self._known = DecryptedCache(state, PeerDevice)

    def pair(self, card: Card) -> PeerDevice:
        """Add or update the device of *card*; return it with its existing permissions.

        A known device may have a new name or gateway. Raises `KeyChanged` if it has another Olm key, or if another
        device uses the name of a known one; and a `RemitError` if it was revoked.
        """
        card = card.checked()
        with self._state.writing():
            everyone = self._everyone()
            _check(everyone.values(), card)
            existing = next((row for row, known in everyone.items() if known.device == card.device), None)
            if existing is not None:
                return self._keep(existing, structs.replace(everyone[existing], card=card, revoked_there=False))
            row = max(everyone, default=0) + 1
            return self._keep(row, PeerDevice(card=card))

    def check(self, card: Card) -> None:
        """Raise the error with which `pair` would refuse this card; change nothing."""
        _check(self._everyone().values(), card.checked())

    def pair_verified(self, card: Card, grants: Grants) -> PeerDevice:
        """Pair with a device whose keys are proven, and grant this, all in one transaction; raises like `pair`."""
        with self._state.writing():
            device = self.verify(self.pair(card).device).device
            return self.grant(device, grants)

    def verify(self, device: str) -> PeerDevice:
        """Record that the owners compared their codes."""
        return self._change(device, verified=True)

    def share(self, device: str, *, shared: bool = True) -> PeerDevice:
        """Record whether the device shares an agent with this one; if not, no profile is granted it any more."""
        ended = {} if shared else {"profiles": frozenset[str](), "own": False}
        return self._change(device, shared=shared, **ended)

    def allow(self, device: str, *, allowed: bool = True) -> PeerDevice:
        """Set whether the device may contact this one on its own; if not, all its grants end."""
        ended = {"agents": frozenset[str](), "profiles": frozenset[str](), "own": False}
        return self._change(device, allowed=allowed, **({"revoked_there": False} if allowed else ended))

    def grant(self, device: str, grants: Grants) -> PeerDevice:
        """Add to what the device and the profiles here may do with each other, and let them connect for it."""
        with self._state.writing():
            _, peer = self.row(device)
            return self._granted(
                peer,
                Grants(
                    agents=peer.agents | grants.agents,
                    profiles=peer.profiles | grants.profiles,
                    own=peer.own or grants.own,
                ),
            )

    def withdraw(self, device: str, grants: Grants) -> PeerDevice:
        """Take back some grants; the devices may still connect."""
        with self._state.writing():
            _, peer = self.row(device)
            return self._change(
                device,
                agents=peer.agents - grants.agents,
                profiles=peer.profiles - grants.profiles,
                own=peer.own and not grants.own,
            )

    def replace_grants(self, device: str, grants: Grants) -> PeerDevice:
        """Replace the agents and profiles that were granted, and let the devices connect for them."""
        with self._state.writing():
            _, peer = self.row(device)
            return self._granted(peer, structs.replace(grants, own=peer.own))

    def _granted(self, peer: PeerDevice, grants: Grants) -> PeerDevice:
        if grants.own and not peer.verified:
            why = f"the device {peer.card.name!r} is not verified, so it cannot be one of your own"
            raise _refused(why, "Pair with it again, and type the code there yourself: remit pair --own")
        allowed = peer.allowed or bool(grants.agents) or grants.own
        shared = peer.shared or (bool(grants.profiles) and not allowed)
        given: dict[str, Any] = {"agents": grants.agents, "profiles": grants.profiles, "own": grants.own}
        return self._change(peer.device, **given, allowed=allowed, shared=shared)

    def group(self, name: str, devices: Iterable[str]) -> tuple[PeerDevice, ...]:
        """Add devices to a group, and return all devices of it; raise a `RemitError` if a device has that name."""
        check_name(name, "group")
        with self._state.writing():
            for each in self._everyone().values():
                if name == each.device or (name == each.card.name and not each.revoked):
                    why = f"a device is called {name!r}, so a group cannot be"
                    raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion="Choose another name for the group."))
            for device in devices:
                _, peer = self.row(device)
                self._change(device, groups=peer.groups | {name})
            return self.members(name)

    def ungroup(self, name: str, devices: Iterable[str] | None = None) -> tuple[PeerDevice, ...]:
        """Remove devices from a group, all of them without *devices*; return the devices that are left in it."""
        with self._state.writing():
            chosen = None if devices is None else frozenset(devices)
            for peer in self.members(name):
                if chosen is None or peer.device in chosen:
                    self._change(peer.device, groups=peer.groups - {name})
            return self.members(name)

    def members(self, group: str) -> tuple[PeerDevice, ...]:
        """Return the devices of a group, by name; none if there is no such group."""
        return tuple(each for each in self.list() if group in each.groups)

    def groups(self) -> builtins.list[str]:
        """Return the names of all groups."""
        return sorted({name for each in self.list() for name in each.groups})

    def revoke(self, device: str) -> PeerDevice:
        """Revoke the device for good, and delete its sessions and all messages waiting for it."""
        with self._state.writing():
            none = frozenset[str]()
            peer = self._change(
                device, shared=False, allowed=False, revoked=True, agents=none, profiles=none, groups=none, own=False
            )
            self._forget(device)
            return peer

    def revoked_by(self, device: str) -> PeerDevice:
        """Record that a device has revoked this one, and delete its sessions and all messages waiting for it."""
        with self._state.writing():
            peer = self._change(device, revoked_there=True)
            self._forget(device)
            return peer

    def _forget(self, device: str) -> None:
        row, _ = self.row(device)
        for table in ("sessions", "held", "outbox", "pieces", "lines"):
            self._state.execute(f"DELETE FROM {table} WHERE peer = ?", row)
        for fact in ("heard", "told", "rates"):
            self._state.execute("DELETE FROM facts WHERE name = ?", f"{fact}/{row}")

    def get(self, device: str) -> PeerDevice | None:
        """Return a known device."""
        known = self.find(device)
        return None if known is None else known[1]

    def find(self, device: str) -> tuple[int, PeerDevice] | None:
        """Return the row number of a device and the device, if it is known."""
        row = self._state.one("SELECT id, content FROM peers WHERE tag = ?", self._state.tag(device))
        return None if row is None else (row[0], self._known.unlock(row[1], f"peers/{row[0]}"))

    def list(self) -> list[PeerDevice]:
        """Return the known devices, by name."""
        return sorted(self._everyone().values(), key=lambda peer: (peer.card.name, peer.device))

    def row(self, device: str) -> tuple[int, PeerDevice]:
        """Return what `find` does; raise a `RemitError` if the device is unknown."""
        known = self.find(device)
        if known is None:
            why = f"unknown device {device[:64]!r}"
            todo = "Pair with it first; `remit devices list` shows the known devices."
            raise RemitError(fault(Code.NOT_FOUND, why, suggestion=todo))
        return known

    def named(self, row: int) -> str:
        """Return the id of the device with this row number."""
        return self.at(row).device

    def at(self, row: int) -> PeerDevice:
        """Return the device with this row number."""
        (content,) = self._state.rows("SELECT content FROM peers WHERE id = ?", row)[0]
        return self._known.unlock(content, f"peers/{row}")

    def _everyone(self) -> dict[int, PeerDevice]:
        rows = self._state.rows("SELECT id, content FROM peers")
        return {row: self._known.unlock(content, f"peers/{row}") for row, content in rows}

    def _change(self, device: str, **changes: Any) -> PeerDevice:
        with self._state.writing():
            row, peer = self.row(device)
            if peer.revoked:
                raise _refused(f"the device {peer.card.name!r} ({device}) was revoked permanently", _ANEW)
            return self._keep(row, structs.replace(peer, **changes))

    def _keep(self, row: int, peer: PeerDevice) -> PeerDevice:
        content = self._known.lock(peer, f"peers/{row}")
        self._state.execute("INSERT OR REPLACE INTO peers VALUES (?, ?, ?)", row, self._state.tag(peer.device), content)
        return peer


def _check(everyone: Iterable[PeerDevice], card: Card) -> None:
    for known in everyone:
        same = known.device == card.device
        if same and known.revoked:
            raise _refused(f"the device {known.card.name!r} ({card.device}) was revoked", _ANEW)
        if (same and known.card.olm != card.olm) or (not same and not known.revoked and known.card.name == card.name):
            raise KeyChanged(known.card, card)
        if card.name in known.groups:
            why = f"the device is called {card.name!r}, which is the name of a group here"
            todo = f"Remove the group (remit devices group {quote(card.name)} --remove), or ask its owner to rename it."
            raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion=todo))


def _refused(message: str, suggestion: str) -> RemitError:
    return RemitError(fault(Code.PERMISSION_DENIED, message, suggestion=suggestion))
