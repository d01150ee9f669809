"""Two hubs that know each other by their keys, and somebody between them who changes what they send."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import ClientError, ClientSession, DummyCookieJar, web
from yarl import URL

from remit import Answer, Brief, Hub, Limits
from remit.ports import OutgoingRequest
from remit.protocol.envelope import Request
from remit.runtime.clock import LoopClock
from remit_server import connect
from remit_server.a2a.routes import Exposure
from remit_server.app import Api
from remit_server.server import Server
from remit_server.transports.credentials.incoming import Authenticator, KnownSender, RunCredentials, Spending
from remit_server.transports.credentials.keys import HubKey
from remit_server.transports.credentials.outgoing import Addressee, CredentialHeaders
from remit_server.transports.credentials.proof import REPLY_PROOF

WALL_MS = LoopClock().wall_ms
LIMITS = Limits(root_tokens=10**6)


class Message(NamedTuple):
    """One HTTP request on its way."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def changed(self, old: str, new: str) -> "Message":
        """Return it with another text in its body."""
        assert old.encode() in self.body, (old, self.body)
        return self._replace(body=self.body.replace(old.encode(), new.encode()))

    def without(self, *names: str) -> "Message":
        """Return it without some headers."""
        return self._replace(headers={name: value for name, value in self.headers.items() if name.lower() not in names})


Meddle = Callable[[Message], Sequence[Message]]


class Meddler:
    """Stands between two hubs: passes on whatever it makes of each request, and the reply to the last of those."""

    def __init__(self, target: str, meddle: Meddle = lambda message: [message]) -> None:
        self.target = target
        self.meddle: Meddle = meddle
        self.meddle_reply: Callable[[web.Response], web.Response] = lambda reply: reply
        self.seen: list[Message] = []
        self.statuses: list[int] = []
        self.deaf = 0
        """How many replies it keeps to itself, so that the sender loses the connection."""
        self.address = ""

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator["Meddler"]:
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with ClientSession(cookie_jar=DummyCookieJar()) as self._session:
            try:
                yield self
            finally:
                await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        message = Message(request.method, request.raw_path, headers, await request.read())
        self.seen.append(message)
        reply = web.Response(status=502)
        for each in self.meddle(message):
            reply = await self.send(each)
        if self.deaf:
            self.deaf -= 1
            assert request.transport is not None
            request.transport.close()
        return reply

    async def send(self, message: Message, target: str = "") -> web.Response:
        """Send something on, whatever it is, and return the reply."""
        try:
            async with self._session.request(
                message.method,
                URL(f"{target or self.target}{message.path}", encoded=True),
                headers=message.headers,
                data=message.body or None,
                allow_redirects=False,
            ) as reply:
                self.statuses.append(reply.status)
                kind = {"content-type": reply.headers.get("content-type", "text/plain")}
                kind |= {name: reply.headers[name] for name in ("location", REPLY_PROOF) if name in reply.headers}
                return self.meddle_reply(web.Response(status=reply.status, body=await reply.read(), headers=kind))
        except ClientError as error:
            raise web.HTTPBadGateway from error


_HOP = ("host", "content-length", "transfer-encoding", "connection", "accept-encoding")


class Keys(NamedTuple):
    """The keys of the hub that asks and of the one that is asked."""

    front: HubKey
    back: HubKey

    @classmethod
    def made(cls) -> "Keys":
        return cls(HubKey.create(WALL_MS()), HubKey.create(WALL_MS()))

    def papers(self, held: RunCredentials | None = None) -> Callable[[Request, OutgoingRequest], Any]:
        """Return what makes the headers with which the front hub asks the back hub."""
        to = Addressee(name="back", keys=(public(self.back),))
        return CredentialHeaders(key=lambda: self.front, held=held, wall_ms=WALL_MS).credential(to)

    def door(self, hub: Hub, **bounds: Any) -> Authenticator:
        """Return the door of the back hub, with its store, as a team makes it."""
        known = [KnownSender(name="front", is_hub=True, keys=(public(self.front),), **bounds)]
        held, count = RunCredentials(WALL_MS), hub.store.incr
        spending = Spending(count, wall_ms=WALL_MS)
        return Authenticator(known, key=lambda: self.back, held=held, spending=spending, count=count, wall_ms=WALL_MS)

    def save(self, folder: Path) -> None:
        for name, key in zip(self._fields, self, strict=True):
            key.save(folder / f"{name}.key")

    @classmethod
    def load(cls, folder: Path) -> "Keys":
        return cls(*(HubKey.load(folder / f"{name}.key") for name in cls._fields))


def public(key: HubKey) -> str:
    return key.signing(WALL_MS()).public


class Bank:
    """A world that is not idempotent: each payment is one more line in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.endless_run: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """The run in which it was asked for what does not end by itself."""

    def pay(self, who: str, order: Any) -> str:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([who, order]) + "\n")
        return f"{who} paid {order['amount']} to {order['account']}"

    @property
    def payments(self) -> list[Any]:
        return list(map(json.loads, self._path.read_text("utf-8").splitlines())) if self._path.exists() else []


def back_hub(folder: Path, bank: Bank) -> Hub:
    """Return a hub with two agents that pay, and one that does not end by itself."""
    hub = Hub(name="back", store=folder / "back.db", durability="process", limits=LIMITS)

    @hub.agent("bank")
    async def pays(brief: Brief) -> str:
        return bank.pay("bank", brief.input)

    @hub.agent("vault")
    async def pays_more(brief: Brief) -> str:
        return bank.pay("vault", brief.input)

    @hub.agent("slow")
    async def waits(brief: Brief) -> Answer:
        bank.endless_run.set_result(brief.request.run)
        await asyncio.Event().wait()
        raise AssertionError

    assert pays
    assert pays_more
    assert waits
    return hub


def front_hub(folder: Path, address: str, keys: Keys) -> Hub:
    """Return a hub whose teller has payments made by the bank at the other hub."""
    hub = Hub(name="front", store=folder / "front.db", durability="process", limits=LIMITS)
    for name in ("bank", "slow"):
        connect(hub, name, address, credential=keys.papers())

    @hub.agent("teller", may_call=["bank", "slow"])
    async def teller(brief: Brief) -> Any:
        target = "slow" if brief.objective == "Wait" else "bank"
        reply = await brief.delegate(
            target, objective="Pay", input=brief.input, deadline_ms=30_000, max_tokens=brief.remit.tokens // 2
        )
        return reply.result if reply.fault is None else [reply.fault.code, reply.fault.message]

    assert teller
    return hub


@asynccontextmanager
async def served(hub: Hub, keys: Keys, **bounds: Any) -> AsyncGenerator[Server]:
    """Open a hub and serve it to the one that is known by its key."""
    async with hub, Server(Api(hub, keys.door(hub, **bounds), a2a=Exposure()), port=0, drain_s=2) as server:
        yield server


async def _serve(folder: Path) -> None:
    async with served(back_hub(folder, Bank(folder / "payments")), Keys.load(folder)) as server:
        print(server.address, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
