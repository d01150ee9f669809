"""Checks that the peer hubs of a team are reachable."""

import asyncio
from collections.abc import Iterable

from aiohttp import ClientConnectorError, ClientError, ConnectionTimeoutError

from remit.transports.http import HubPeer
from remit.transports.http_reading import CONNECT_S, in_words

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
