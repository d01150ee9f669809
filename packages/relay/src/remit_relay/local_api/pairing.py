"""The endpoints of the local API that pair this device with another one, and those for what others may do here."""

from collections.abc import Awaitable, Callable
from io import BytesIO

from msgspec import Struct

from remit.protocol.errors import Code, Problem, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit_relay.device.peers import Grants, PeerDevice, Peers
from remit_relay.local_api.access import LocalRequest
from remit_relay.local_api.views import shown_as
from remit_relay.pairing.client import PairingService, PairingState, PairingTask
from remit_relay.pairing.code import read_code
from remit_server.documents.api import ApiOperation
from remit_server.operations import answers, get

# ── policies ──────────────────────────────────────────────────────────────────────────────────────────────────────────

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


class GrantEndpoints:
    """Shows and changes grants."""

    def __init__(self, on_peers: OnPeers, names: GrantNames) -> None:
        self._on_peers = on_peers
        self._names = names

    @answers(get("/v1/shared/policies"))
    async def policies(self, _: LocalRequest) -> DevicePolicies:
        """What each known device may do here, and which profiles may ask it."""
        peers = await self._on_peers(lambda known: known.list())
        return DevicePolicies(policies=tuple(map(policy_view, peers)))

    @answers(ApiOperation(method="PUT", path="/v1/shared/policies/{device}", name="", summary="", takes=GrantsWanted))
    async def change_policy(self, request: LocalRequest) -> DevicePolicy:
        """Replace the grants of a device."""
        body, device = request.body, request.named("device")
        grants = self._names.check(Grants(agents=body.agents, profiles=body.profiles))
        (peer,) = await self._on_peers(lambda known: [known.replace_grants(device, grants)])
        return policy_view(peer)


def policy_view(peer: PeerDevice) -> DevicePolicy:
    """Return the policy of a device."""
    return shown_as(
        DevicePolicy,
        peer,
        name=peer.card.name,
        agents=sorted(peer.agents),
        profiles=sorted(peer.profiles),
    )


# ── pairing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class PairingStart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the other device may ask here, and which profiles may ask it; without a *code* a new one is made."""

    code: str | None = None
    agents: frozenset[str] = frozenset()
    profiles: frozenset[str] = frozenset()
    own: bool = False
    """Whether the other device has the same owner: then it may ask all agents, and all profiles may ask it."""


class PairingView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a pairing. The code, its link and its QR code (SVG) are there only while it waits."""

    id: str
    state: PairingState
    code: str = ""
    link: str = ""
    qr_svg: str = ""
    device: str = ""
    device_name: str = ""
    words: str = ""
    is_confirmed: bool = False
    error: str = ""
    message: str = ""
    suggestion: str = ""


_PAIRINGS = "/v1/shared/pairings"


class PairingEndpoints:
    """Starts, joins, shows and cancels pairings."""

    def __init__(self, service: PairingService, names: GrantNames) -> None:
        self._service = service
        self._names = names

    @answers(ApiOperation(method="POST", path=_PAIRINGS, name="", summary="", takes=PairingStart, status=201))
    async def start_pairing(self, request: LocalRequest) -> PairingView:
        """Make a pairing code, or join the one of another device."""
        body: PairingStart = request.body
        grants = self._names.check(Grants(agents=body.agents, profiles=body.profiles, own=body.own))
        if body.code is None:
            return pairing_view(await self._service.start(grants))
        return pairing_view(self._service.join(read_code(body.code), grants))

    @answers(get(f"{_PAIRINGS}/{{pairing}}"))
    async def pairing(self, request: LocalRequest) -> PairingView:
        """How far a pairing has come."""
        return pairing_view(self._service.find(request.named("pairing")))

    @answers(ApiOperation(method="DELETE", path=f"{_PAIRINGS}/{{pairing}}", name="", summary=""))
    async def cancel_pairing(self, request: LocalRequest) -> PairingView:
        """End a pairing; its code does not work any more."""
        return pairing_view(await self._service.cancel(request.named("pairing")))


def pairing_view(pairing: PairingTask) -> PairingView:
    """Return what a client may see of a pairing."""
    link, paired, why = pairing.link, pairing.paired, pairing.fault
    return PairingView(
        id=pairing.id,
        state=pairing.state,
        code="" if link is None else str(link.code),
        link="" if link is None else str(link),
        qr_svg="" if link is None else _svg(str(link)),
        device="" if paired is None else paired.peer.device,
        device_name="" if paired is None else paired.peer.card.name,
        words="" if paired is None else paired.words,
        is_confirmed=paired is not None and paired.is_confirmed,
        error="" if why is None else why.code.value,
        message="" if why is None else why.message,
        suggestion="" if why is None else why.suggestion,
    )


def _svg(text: str) -> str:
    import segno

    out = BytesIO()
    segno.make(text).save(out, kind="svg", xmldecl=False, scale=4)
    return out.getvalue().decode()
