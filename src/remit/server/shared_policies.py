"""Endpoints of the local API that read and change what this device and others may do with each other.

`policy_routes` is mounted by the local API, which checks token, host and origin of each request first.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.relay.device.peers import Grants, PeerDevice, Peers
from remit.server.bodies import Receive, Scope, Send
from remit.server.shared_routes import SharedRoute, read_body, send_view

OnPeers = Callable[[Callable[[Peers], list[PeerDevice]]], Awaitable[list[PeerDevice]]]
"""Runs a function on the known devices, in the thread of the device's file."""


class GrantsWanted(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All grants of a device: the shared agents that it may ask, and the profiles that may ask it."""

    agents: frozenset[str]
    profiles: frozenset[str]


class DevicePolicy(Struct, frozen=True, kw_only=True):
    """What one device may do here by grants, and whether the devices may connect."""

    device: str
    name: str
    verified: bool
    allowed: bool
    shared: bool
    revoked: bool
    agents: tuple[str, ...]
    profiles: tuple[str, ...]
    own: bool
    """Whether it has the same owner: then it may ask all agents, and all profiles may ask it."""


class DevicePolicies(Struct, frozen=True, kw_only=True):
    """The policies of all known devices."""

    policies: tuple[DevicePolicy, ...]


class GrantNames(Struct, frozen=True, kw_only=True):
    """The names that a grant may hold: the shared agents and the profiles of the team."""

    agents: frozenset[str]
    profiles: frozenset[str]

    def check(self, grants: Grants) -> Grants:
        """Return grants whose names are all known, or raise a `RemitError` that names the others."""
        problems = [
            Problem(f"{field}.{name[:100]}", f"there is no such {what}{did_you_mean(name, known)}")
            for field, what, names, known in (
                ("agents", "shared agent", grants.agents, self.agents),
                ("profiles", "profile", grants.profiles, self.profiles),
            )
            for name in sorted(names - known)
        ]
        if problems:
            message = "unknown names: " + ", ".join(each.path for each in problems)
            advice = "Name agents of [shared.NAME] and profiles of [profiles.NAME] in the team file."
            raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, message, problems=tuple(problems), suggestion=advice))
        return grants


def policy_routes(on_peers: OnPeers, names: GrantNames) -> list[SharedRoute]:
    """Return the operations that show and change grants."""

    async def show(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - the shape of all
        peers = await on_peers(lambda known: known.list())
        await send_view(send, DevicePolicies(policies=tuple(map(policy_view, peers))))

    async def change(scope: Scope, receive: Receive, send: Send) -> None:
        wanted: GrantsWanted = await read_body(scope, receive, GrantsWanted)
        device = scope["path_params"]["device"]
        grants = names.check(Grants(agents=wanted.agents, profiles=wanted.profiles))
        (peer,) = await on_peers(lambda known: [known.replace_grants(device, grants)])
        await send_view(send, policy_view(peer))

    return [
        SharedRoute(
            method="GET",
            path="/v1/shared/policies",
            endpoint=show,
            name="policies",
            summary="What each known device may do here, and which profiles may ask it.",
            answer=DevicePolicies,
        ),
        SharedRoute(
            method="PUT",
            path="/v1/shared/policies/{device}",
            endpoint=change,
            name="change_policy",
            summary="Replace the grants of a device.",
            takes=GrantsWanted,
            answer=DevicePolicy,
        ),
    ]


def policy_view(peer: PeerDevice) -> DevicePolicy:
    """Return the policy of a device."""
    return DevicePolicy(
        device=peer.device,
        name=peer.card.name,
        verified=peer.verified,
        allowed=peer.allowed,
        shared=peer.shared,
        revoked=peer.revoked,
        agents=tuple(sorted(peer.agents)),
        profiles=tuple(sorted(peer.profiles)),
        own=peer.own,
    )
