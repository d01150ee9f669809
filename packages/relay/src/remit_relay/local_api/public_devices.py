"""What the local API shows of profiles and devices.

As in `public_runs`, a field that is not named here is never shown; no field holds a key, token or card.
"""

from msgspec import Struct

from remit_relay.bridge.ports import Mode
from remit_relay.client.connection import State
from remit_relay.client.presence import DevicePresence
from remit_relay.device.peers import PeerDevice
from remit_relay.messages.catalog import shares
from remit_relay.messages.types import AgentOffer
from remit_relay.session.profile import Profile
from remit_relay.session.review import RULES


class ProfileView(Struct, frozen=True, kw_only=True):
    """A local agent, and what it may do with shared agents."""

    id: str
    allowed: bool
    """Whether it may work with shared agents at all."""
    devices: tuple[str, ...]
    """The ids of the devices that it may work with."""
    mode: Mode
    """The default mode of its runs."""
    max_turns: int
    max_duration_ms: int
    max_failures: int
    max_tokens: int | None
    max_concurrent: int
    rules: tuple[str, ...]
    """The rules that require approval of a draft in `semi_auto`."""


class OfferView(Struct, frozen=True, kw_only=True):
    """An agent that another device shares with this one."""

    name: str
    """The name under which it is shared: the `agent` of a run."""
    description: str


class DeviceView(Struct, frozen=True, kw_only=True):
    """A known device."""

    id: str
    name: str
    verified: bool
    """Whether both owners compared codes."""
    shared: bool
    """Whether it shares an agent with this device, as far as this device knows: "shared with me"."""
    offers: tuple[OfferView, ...] | None
    """The agents that it shares; None: it has not said yet."""
    allowed: bool
    """Whether it may contact this device on its own."""
    revoked: bool
    revoked_there: bool
    """Whether it says that its owner has revoked this device."""
    groups: tuple[str, ...]
    """The groups that it is in; a group can be the `device` of a new run."""
    own: bool
    """Whether it is marked as another device of this owner."""
    present: bool | None
    """Whether it is connected to its gateway; None: not known."""
    last_heard_ms: int | None
    """When something was heard of it last; None: not known."""


class Profiles(Struct, frozen=True, kw_only=True):
    """All local agents."""

    profiles: tuple[ProfileView, ...]


class DeviceList(Struct, frozen=True, kw_only=True):
    """The known devices, by name."""

    devices: tuple[DeviceView, ...]


class ConnectionView(Struct, frozen=True, kw_only=True):
    """The connection of this device to its gateway."""

    state: State
    since_ms: int
    """When it got into this state."""
    why: str
    """The reason, in a sentence for people; may be empty."""


class SharedAgentView(Struct, frozen=True, kw_only=True):
    """An agent that this device shares."""

    name: str
    """The name that other devices use."""
    description: str
    devices: tuple[str, ...]
    """The ids of the devices that may call it."""


class Counts(Struct, frozen=True, kw_only=True):
    """How many of each there are on this device."""

    runs: int
    open_runs: int
    drafts: int
    """Drafts that wait for approval."""
    questions: int
    """Permission requests of local agents that wait for an answer."""
    unread: int
    devices: int
    profiles: int


class SharedStatus(Struct, frozen=True, kw_only=True):
    """This device in short."""

    version: str
    device: str
    """Its id."""
    name: str
    started_ms: int
    """Since when this process serves it."""
    connection: ConnectionView | None
    """None: not known."""
    shared: tuple[SharedAgentView, ...]
    counts: Counts


def profile_view(profile: Profile) -> ProfileView:
    """Return the view of a profile."""
    limits = profile.limits
    return ProfileView(
        id=profile.id,
        allowed=profile.allow_shared_agent_calls,
        devices=tuple(sorted(profile.allowed_shared_device_ids)),
        mode=profile.mode,
        max_turns=limits.max_turns,
        max_duration_ms=limits.max_duration_ms,
        max_failures=limits.max_failures,
        max_tokens=limits.max_tokens_budget,
        max_concurrent=profile.max_concurrent_shared_calls,
        rules=tuple(rule for rule in RULES if rule not in profile.rules.off),
    )


def device_view(
    peer: PeerDevice, offer: tuple[AgentOffer, ...] | None, presence: DevicePresence | None = None
) -> DeviceView:
    """Return the view of a device; its card contributes only the name."""
    return DeviceView(
        id=peer.device,
        name=peer.card.name,
        verified=peer.verified,
        shared=shares(peer, offer),
        offers=None
        if offer is None
        else tuple(OfferView(name=each.name, description=each.description) for each in offer),
        allowed=peer.allowed,
        revoked=peer.revoked,
        revoked_there=peer.revoked_there,
        groups=tuple(sorted(peer.groups)),
        own=peer.own,
        present=None if presence is None else presence.present,
        last_heard_ms=None if presence is None else presence.last_heard_ms,
    )
