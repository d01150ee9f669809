"""Devices that pair over a code, and what stands between them, for tests."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, web
from msgspec import Struct

from remit_relay.device.identity import Card
from remit_relay.device.peers import Grants, PeerDevice
from remit_relay.e2e.channel import MessageCipher
from remit_relay.pairing.client import Paired, PairingGateway, PairingOwner, host_pairing, join_pairing
from remit_relay.pairing.code import PairingCode
from remit_relay.pairing.exchange import PATH, FromRendezvous, read_from_rendezvous
from remit_relay.wire import encode_text
from waiting import PATIENCE_S


def meeting_at(url: str, name: str = "g") -> PairingGateway:
    return PairingGateway(url=url, name=name)


def owner_of(device: MessageCipher, grants: Grants | None = None) -> PairingOwner:
    async def check(card: Card) -> None:
        device.peers.check(card)

    async def record(card: Card) -> PeerDevice:
        return device.peers.pair_verified(card, grants or Grants())

    return PairingOwner(card=device.device.card, check=check, record=record)


class Hosting:
    """A device that shows a code and waits."""

    def __init__(self, gateway: PairingGateway, device: MessageCipher, grants: Grants | None = None) -> None:
        self._shown: asyncio.Future[PairingCode] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(
            host_pairing(gateway, owner_of(device, grants), shown=lambda code, _: self._shown.set_result(code))
        )

    async def code(self) -> PairingCode:
        await asyncio.wait({self._shown, self.task}, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if self.task.done():
            await self.task
        return self._shown.result()

    async def result(self) -> Paired:
        async with asyncio.timeout(PATIENCE_S):
            return await self.task

    async def error(self) -> Exception:
        """Return what it ended with, which is an error."""
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait({self.task})
        error = self.task.exception()
        assert isinstance(error, Exception), "it paired"
        return error


class Both(NamedTuple):
    host: Paired
    guest: Paired


async def pair(gateway: PairingGateway, host: MessageCipher, guest: MessageCipher) -> Both:
    """Have two devices pair as they should."""
    hosting = Hosting(gateway, host)
    joined = await join_pairing(gateway, owner_of(guest), await hosting.code())
    return Both(await hosting.result(), joined)


class Visitor:
    """A client of the rendezvous that keeps to no rule."""

    def __init__(self, session: ClientSession, socket: ClientWebSocketResponse) -> None:
        self._session = session
        self._socket = socket

    @classmethod
    async def at(cls, url: str) -> "Visitor":
        session = ClientSession()
        return cls(session, await session.ws_connect(url + PATH))

    async def say(self, frame: Struct | bytes | str) -> None:
        if isinstance(frame, bytes):
            await self._socket.send_bytes(frame)
        else:
            await self._socket.send_str(frame if isinstance(frame, str) else encode_text(frame).decode())

    async def hear(self) -> FromRendezvous | None:
        """Return the next frame; None if the connection has ended."""
        message = await self._socket.receive(timeout=PATIENCE_S)
        return read_from_rendezvous(message.data) if message.type is WSMsgType.TEXT else None

    async def leave(self) -> None:
        await self._socket.close()
        await self._session.close()


class Between:
    """Stands before a gateway and may drop or change each note; it keeps all that passes.

    *change* gets the number of the connection, the direction and the text, and returns the texts to pass on.
    """

    def __init__(self, change: Callable[[int, str, str], list[str]] = lambda _number, _way, text: [text]) -> None:
        self._change = change
        self.seen: list[str] = []
        self._count = 0
        app = web.Application()
        app.router.add_get("/{path:.*}", self._carry)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1)

    async def __aenter__(self) -> "Between":
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def before(self, url: str) -> str:
        self._target = url
        host, port = self._runner.addresses[0][:2]
        return f"ws://{host}:{port}"

    async def _carry(self, request: web.Request) -> web.WebSocketResponse:
        self._count += 1
        number = self._count
        near = web.WebSocketResponse()
        await near.prepare(request)
        async with ClientSession() as session, session.ws_connect(self._target + request.path) as far:

            async def up() -> None:
                async for message in near:
                    for text in self._passed(number, "up", message.data):
                        await far.send_str(text)

            async def down() -> None:
                async for message in far:
                    for text in self._passed(number, "down", message.data):
                        await near.send_str(text)

            both = [asyncio.create_task(up()), asyncio.create_task(down())]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in both:
                task.cancel()
        await near.close()
        return near

    def _passed(self, number: int, way: str, text: str) -> list[str]:
        self.seen.append(text)
        return self._change(number, way, text)
