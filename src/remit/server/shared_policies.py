"""Endpoints of the local API that read and change what this device and others may do with each other.

`policy_routes` is mounted by the local API, which checks token, host and origin of each request first.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct
from starlette.routing import Route

from remit.protocol.codec import decode
from remit.relay.device.peers import Grants, PeerDevice, Peers
from remit.server.bodies import Receive, Scope, Send, headers_of, read_json, send_value
from remit.server.refusals import Endpoint, guarded

MOST_BODY = 64_000
_NO_STORE = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))

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


class DevicePolicies(Struct, frozen=True, kw_only=True):
    """The policies of all known devices."""

    policies: tuple[DevicePolicy, ...]


def policy_routes(on_peers: OnPeers) -> list[Route]:
    """Return `GET /v1/shared/policies` and `PUT /v1/shared/policies/{device}`."""

    async def show(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - the shape of all
        peers = await on_peers(lambda known: known.list())
        await send_value(send, DevicePolicies(policies=tuple(map(policy_view, peers))), headers=_NO_STORE)

    async def change(scope: Scope, receive: Receive, send: Send) -> None:
        wanted = decode(await read_json(headers_of(scope), receive, MOST_BODY), GrantsWanted)
        device, grants = scope["path_params"]["device"], Grants(agents=wanted.agents, profiles=wanted.profiles)
        (peer,) = await on_peers(lambda known: [known.replace_grants(device, grants)])
        await send_value(send, policy_view(peer), headers=_NO_STORE)

    return [
        _route("/v1/shared/policies", show, "GET"),
        _route("/v1/shared/policies/{device}", change, "PUT"),
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
    )


def _route(path: str, endpoint: Endpoint, method: str) -> Route:
    return Route(path, guarded(endpoint), methods=[method])
