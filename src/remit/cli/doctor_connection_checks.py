"""The checks of `remit doctor` that connect to others: hubs of peers, and the gateway of devices."""

import asyncio
from collections.abc import Iterable

from aiohttp import ClientConnectorError, ClientError, ClientSession, ClientTimeout, ConnectionTimeoutError

from remit.config.device_service import authority_of
from remit.config.shared_agents import gateway_name
from remit.config.team import Team
from remit.protocol.errors import Code, RemitError, fault
from remit.relay.client.connection import ENDED
from remit.relay.client.handshake import look, unreached
from remit.relay.e2e.account import Device
from remit.relay.wire import MAX_FRAME, PATH, Bye, DeviceStatus, Malformed
from remit.transports.http import HubPeer
from remit.transports.remote_calls import CONNECT_S, in_words

# The response of every hub to GET /healthz.
_ALIVE = b"alive\n"


async def check_hubs(urls: Iterable[str]) -> dict[str, str]:
    """Return for each address why no hub is reachable; an empty text if one is."""
    async with asyncio.TaskGroup() as group:
        found = {url: group.create_task(_check_hub(url)) for url in urls}
    return {url: task.result() for url, task in found.items()}


async def _check_hub(url: str) -> str:
    peer = HubPeer(url)
    try:
        async with (
            asyncio.timeout(2 * CONNECT_S),
            peer.session.get(f"{peer.url}/healthz", allow_redirects=False) as reply,
        ):
            said = await reply.content.read(len(_ALIVE) + 1)
    except (ClientConnectorError, ConnectionTimeoutError) as error:
        return f"cannot connect: {in_words(error)}"
    except (ClientError, OSError, TimeoutError) as error:
        return f"invalid HTTP response ({type(error).__name__})"
    finally:
        await peer.close()
    return "" if reply.status == 200 and said == _ALIVE else f"the server there is not a hub (status {reply.status})"


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
