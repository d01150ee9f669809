"""Checks the status of a team's device at its gateway."""

import asyncio

from aiohttp import ClientError, ClientSession, ClientTimeout

from remit.config.device_service import authority_of
from remit.config.shared_agents import gateway_name
from remit.config.team import Team
from remit.protocol.errors import Code, RemitError, fault
from remit.relay.client.connection import ENDED, unreached
from remit.relay.client.handshake import look
from remit.relay.e2e.account import Device
from remit.relay.wire import MAX_FRAME, PATH, Bye, DeviceStatus, Malformed
from remit.transports.http_reading import CONNECT_S


async def device_status(team: Team, device: Device) -> DeviceStatus:
    """Ask the gateway without changing anything there; raise a `RemitError` if it does not answer."""
    section = team.relay
    assert section is not None, "asked only of a team that has a gateway"
    authority = authority_of(team, section)
    timeout = ClientTimeout(total=None, sock_connect=CONNECT_S)
    try:
        async with (
            asyncio.timeout(2 * CONNECT_S),
            ClientSession(timeout=timeout) as session,
            session.ws_connect(
                section.gateway.rstrip("/") + PATH, max_msg_size=MAX_FRAME, ssl=authority or True
            ) as socket,
        ):
            found = await look(socket, device, gateway=gateway_name(team))
    except (ClientError, OSError, TimeoutError) as error:
        found = unreached(error)
    except Malformed as error:
        found = Bye(code="trouble", reason=f"not a gateway: {error}")
    if isinstance(found, DeviceStatus):
        return found
    code, suggestion = ENDED.get(found.code) or (
        Code.DELEGATION_UNAVAILABLE,
        "Check that it is running, and `gateway` in `[relay]`. Other devices cannot be reached until then.",
    )
    raise RemitError(fault(code, found.reason, suggestion=suggestion))
