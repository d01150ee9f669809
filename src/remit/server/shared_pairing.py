"""Endpoints of the local API that pair this device with another one.

`pairing_routes` is mounted by the local API, which checks token, host and origin of each request first.
"""

from io import BytesIO

from msgspec import Struct

from remit.relay.device.peers import Grants
from remit.relay.pairing.code import read_code
from remit.relay.pairing.service import PairingService, PairingState, PairingTask
from remit.server.bodies import Receive, Scope, Send
from remit.server.shared_policies import GrantNames
from remit.server.shared_routes import SharedRoute, read_body, send_view


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


def pairing_routes(service: PairingService, names: GrantNames) -> list[SharedRoute]:
    """Return the operations that start, join, show and cancel a pairing."""

    async def start(scope: Scope, receive: Receive, send: Send) -> None:
        asked: PairingStart = await read_body(scope, receive, PairingStart)
        grants = names.check(Grants(agents=asked.agents, profiles=asked.profiles, own=asked.own))
        pairing = await service.start(grants) if asked.code is None else service.join(read_code(asked.code), grants)
        await send_view(send, pairing_view(pairing), 201)

    async def show(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - the shape of all
        await send_view(send, pairing_view(service.find(scope["path_params"]["pairing"])))

    async def cancel(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - the shape of all
        await send_view(send, pairing_view(await service.cancel(scope["path_params"]["pairing"])))

    one = "/v1/shared/pairings/{pairing}"
    return [
        SharedRoute(
            method="POST",
            path="/v1/shared/pairings",
            endpoint=start,
            name="start_pairing",
            summary="Make a pairing code, or join the one of another device.",
            takes=PairingStart,
            answer=PairingView,
            status=201,
        ),
        SharedRoute(
            method="GET",
            path=one,
            endpoint=show,
            name="pairing",
            summary="How far a pairing has come.",
            answer=PairingView,
        ),
        SharedRoute(
            method="DELETE",
            path=one,
            endpoint=cancel,
            name="cancel_pairing",
            summary="End a pairing; its code does not work any more.",
            answer=PairingView,
        ),
    ]


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
