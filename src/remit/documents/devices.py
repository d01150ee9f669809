"""Devices, and the gateway between them."""

from typing import Annotated

from msgspec import Meta, Struct

DeviceId = Annotated[str, Meta(description="The device id, derived from its key.")]


class GatewayUp(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.gateway/1"):
    """A running gateway. Printed by `remit relay --json` when it accepts connections."""

    name: Annotated[str, Meta(description="Its own name for itself.")]
    address: Annotated[str, Meta(description="The address to reach it at.")]
    folder: Annotated[str, Meta(description="Folder for messages to offline devices.")]


class DeviceShown(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.device/1"):
    """This device. Printed by `remit devices init --json` and `devices show --json`."""

    id: DeviceId
    name: Annotated[str, Meta(description="The name that others see.")]
    fingerprint: Annotated[str, Meta(description="Key fingerprint for two people to compare.")]
    gateway: Annotated[str, Meta(description="Gateway named in its card; empty: none.")]
    file: Annotated[str, Meta(description="The encrypted file with its identity.")]
    link: Annotated[str, Meta(description="Its card as a link, to pair with it. Contains no secret.")]


class OfferedAgent(Struct, frozen=True, kw_only=True):
    """An agent that another device shares with this one."""

    name: Annotated[str, Meta(description="The name it is shared under: `remit chat … --agent NAME`.")]
    description: Annotated[str, Meta(description="The owner's description.")] = ""


class KnownDevice(Struct, frozen=True, kw_only=True):
    """A paired device."""

    id: DeviceId
    name: Annotated[str, Meta(description="Its own name for itself.")]
    fingerprint: Annotated[str, Meta(description="Key fingerprint for two people to compare.")]
    verified: Annotated[bool, Meta(description="Whether the two owners compared codes.")]
    shared: Annotated[bool, Meta(description="Whether agents here may call agents that it shares.")]
    offers: Annotated[
        tuple[OfferedAgent, ...] | None,
        Meta(description="Agents that it shares with this device; null: not known yet."),
    ] = None
    allowed: Annotated[bool, Meta(description="Whether it may contact this device on its own.")]
    revoked: Annotated[bool, Meta(description="Whether it was revoked, permanently.")]


class Devices(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.devices/1"):
    """The paired devices. Printed by `remit devices list --json`."""

    device: DeviceId
    devices: Annotated[tuple[KnownDevice, ...], Meta(description="The known devices, by name.")]


class DevicePaired(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.pairing/1"):
    """A newly paired device. Printed by `remit devices pair --json`."""

    device: Annotated[KnownDevice, Meta(description="The device.")]
    code: Annotated[str, Meta(description="The code that both owners see if neither card was tampered with.")]


class DeviceChanged(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.known-device/1"):
    """The new permissions of a device. Printed by `remit devices allow --json` and `devices revoke --json`."""

    device: Annotated[KnownDevice, Meta(description="The device.")]
