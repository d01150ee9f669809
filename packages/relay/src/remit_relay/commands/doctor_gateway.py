"""Asks the gateway about this device, for `remit doctor`."""

import asyncio

from aiohttp import ClientError, ClientSession, ClientTimeout

from remit.protocol.errors import Code, RemitError, fault
from remit_cli.config.team import Team
from remit_relay.client.connection import ENDED
from remit_relay.client.handshake import look, unreached
from remit_relay.e2e.account import Device
from remit_relay.team.device_service import authority_of
from remit_relay.team.section import RELAY, gateway_name
from remit_relay.wire import MAX_FRAME, PATH, Bye, DeviceStatus, Malformed
from remit_server.transports.remote_calls import CONNECT_S


async def device_status(team: Team, device: Device) -> DeviceStatus:
    """Ask the gateway without changing anything there; raise a `RemitError` if it does not answer."""
    section = RELAY.of(team)
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
            answer = await look(socket, device, gateway=gateway_name(team))
    except (ClientError, OSError, TimeoutError) as error:
        answer = unreached(error)
    except Malformed as error:
        answer = Bye(code="trouble", reason=f"not a gateway: {error}")
    if isinstance(answer, DeviceStatus):
        return answer
    code, suggestion = ENDED.get(answer.code) or (
        Code.DELEGATION_UNAVAILABLE,
        "Check that it is running, and `gateway` in `[relay]`. Other devices cannot be reached until then.",
    )
    raise RemitError(fault(code, answer.reason, suggestion=suggestion))
