"""Devices, and the gateway between them."""

from typing import Annotated

from msgspec import Meta, Struct

DeviceId = Annotated[str, Meta(description="The device's id: it follows from its key.")]


class GatewayUp(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.gateway/1"):
    """A gateway that takes connections. Printed by `remit relay --json` once it does."""

    name: Annotated[str, Meta(description="What it calls itself.")]
    address: Annotated[str, Meta(description="Where it can be reached.")]
    folder: Annotated[str, Meta(description="Where it keeps what waits for devices that are not there.")]


class DeviceShown(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.device/1"):
    """This device. Printed by `remit devices init --json` and `devices show --json`."""

    id: DeviceId
    name: Annotated[str, Meta(description="What others see it called.")]
    fingerprint: Annotated[str, Meta(description="What two people read to each other to compare its key.")]
    gateway: Annotated[str, Meta(description="Where it can be reached, as its card says; empty if that is not said.")]
    file: Annotated[str, Meta(description="Where its identity is kept, locked.")]
    link: Annotated[str, Meta(description="Its card as a link, for those who are to know it. It holds no secret.")]


class OfferedAgent(Struct, frozen=True, kw_only=True):
    """An agent that another device says it shares with this one."""

    name: Annotated[str, Meta(description="What it is shared as: `remit chat … --agent NAME`.")]
    description: Annotated[str, Meta(description="What its owner says of it.")] = ""


class KnownDevice(Struct, frozen=True, kw_only=True):
    """A device that this one knows."""

    id: DeviceId
    name: Annotated[str, Meta(description="What it calls itself.")]
    fingerprint: Annotated[str, Meta(description="What two people read to each other to compare its key.")]
    verified: Annotated[bool, Meta(description="Whether the two owners compared their codes.")]
    shared: Annotated[bool, Meta(description="Whether it shares an agent with this one, which may be asked from here.")]
    offers: Annotated[
        tuple[OfferedAgent, ...] | None,
        Meta(description="What it says that it shares with this one; null: it has said nothing yet."),
    ] = None
    allowed: Annotated[bool, Meta(description="Whether it may reach this one of its own accord.")]
    revoked: Annotated[bool, Meta(description="Whether all of that is over, for good.")]


class Devices(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.devices/1"):
    """The devices that this one knows. Printed by `remit devices list --json`."""

    device: DeviceId
    devices: Annotated[tuple[KnownDevice, ...], Meta(description="Those that are known, by name.")]


class DevicePaired(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.pairing/1"):
    """A device that is known from now on. Printed by `remit devices pair --json`."""

    device: Annotated[KnownDevice, Meta(description="The device.")]
    code: Annotated[str, Meta(description="What both owners see if each has the other's true card.")]


class DeviceChanged(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.known-device/1"):
    """What a device may do from now on. Printed by `remit devices allow --json` and `devices revoke --json`."""

    device: Annotated[KnownDevice, Meta(description="The device.")]
