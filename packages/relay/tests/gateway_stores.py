"""Stores of gateways for tests: a file, and a database that gateways share."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal, TypeVar

from gateways import NAME, id_of
from postgres_server import shared_server
from remit.ports import Clock
from remit_relay.gateway.limits import GatewayLimits
from remit_relay.gateway.listener import GatewayListener
from remit_relay.gateway.ports import (
    AdmittedDevice,
    Fetched,
    GatewayStore,
    Page,
    Placed,
    PresencePair,
    RateAllowance,
    SentMessage,
)
from remit_relay.gateway.postgres.store import PostgresGatewayStore
from remit_relay.gateway.server import FILE, Gateway
from remit_relay.gateway.sqlite_store import SqliteGatewayStore
from remit_relay.wire import AllowSenders, Expired, Fetch, Put, Refused
from remit_testing import ManualClock
from waiting import PATIENCE_S

Kind = Literal["sqlite", "postgres"]
T = TypeVar("T")

_databases: list[str] = []


async def empty_database() -> str:
    """Return the address of a database without rows of gateways; creating one for each test takes much longer."""
    if not _databases:
        _databases.append(await shared_server().database())
    connection = await shared_server().connect(_databases[0])
    try:
        await connection.execute("DROP SCHEMA IF EXISTS remit_gateway CASCADE")
    finally:
        await connection.close()
    return _databases[0]


async def rows(url: str, statement: str) -> list[tuple[object, ...]]:
    """What a database holds."""
    connection = await shared_server().connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


class Events:
    """What a store told its gateway."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []
        self.changed = asyncio.Event()

    def _tell(self, *event: object) -> None:
        self.events.append(event)
        self.changed.set()

    def settled(self) -> None:
        pass

    def placed(self, messages: Sequence[SentMessage], results: Sequence[Placed | Refused]) -> None:
        self._tell("placed", [message.put.number for message in messages], list(results))

    def failed(self) -> None:
        self._tell("failed")

    def recovered(self) -> None:
        self._tell("recovered")

    def arrived(self, device: str, place: int) -> None:
        if ("arrived", device, place) not in self.events:  # polls repeat it
            self._tell("arrived", device, place)

    def replaced(self, device: str, session: int) -> None:
        if ("replaced", device, session) not in self.events:
            self._tell("replaced", device, session)

    def keys_left(self, device: str, one_time_left: int) -> None:
        self._tell("keys_left", device, one_time_left)

    def expired(self, device: str, expired: Expired) -> None:
        self._tell("expired", device, expired.to, expired.number)

    async def until(self, *event: object) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while event not in self.events:
                self.changed.clear()
                await self.changed.wait()


class OpenStore:
    """An open store, whose calls can be awaited; devices are known by the names of `id_of`."""

    def __init__(self, store: GatewayStore, events: Events) -> None:
        self.store = store
        self.events = events
        self.keys: dict[str, int] = {}
        self._numbers = 0

    async def enter(self, name: str, connection: int = 0) -> AdmittedDevice:
        self._numbers += 1
        entered = await self.store.enter(connection or self._numbers, id_of(name), may_be_new=True)
        assert isinstance(entered, AdmittedDevice), entered
        self.keys[name] = entered.key
        return entered

    async def wait(self, call: Callable[[Callable[[T], None]], None]) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        call(future.set_result)
        async with asyncio.timeout(PATIENCE_S):
            return await future

    async def put(
        self, sender: str, to: str, number: int, body: bytes = b"sealed", *, anew: bool = False, connection: int = 100
    ) -> Placed | Refused:
        put = Put(id_of(to), number, body, anew)
        place = self.store.reserve_place()
        message = SentMessage(connection, self.keys[sender], id_of(sender), put, place)
        return await self.wait(lambda then: self.store.put(message, then))

    async def page(self, name: str, after: int = 0, messages: int = 100, size: int = 2**20) -> Page:
        return await self.wait(lambda then: self.store.page(self.keys[name], after, messages, size, then))

    async def bodies(self, name: str) -> list[bytes]:
        return [each.body for each in (await self.page(name)).deliveries]

    async def fetch(self, sender: str, device: str) -> Fetched:
        request = Fetch(request=1, device=id_of(device))
        return await self.wait(lambda then: self.store.fetch(id_of(sender), request, then))

    async def presence(self, pairs: Sequence[PresencePair]) -> dict[PresencePair, bool]:
        return await self.wait(lambda then: self.store.presence(pairs, then))

    async def allow(self, name: str, senders: tuple[str, ...] | None) -> None:
        await self.wait(lambda then: self.store.allow(self.keys[name], AllowSenders(request=1, senders=senders), then))

    async def leave(self, connection: int, allowance: RateAllowance | None = None) -> None:
        self.store.leave(connection, allowance)
        await self.acknowledge(next(iter(self.keys)), 0)  # that comes after it

    async def acknowledge(self, name: str, place: int) -> None:
        await self.wait(lambda then: self.store.acknowledge(self.keys[name], place, then))


@asynccontextmanager
async def open_store(
    store: GatewayStore, limits: GatewayLimits | None = None, clock: Clock | None = None
) -> AsyncGenerator[OpenStore]:
    events = Events()
    await store.open(limits or GatewayLimits(), clock or ManualClock(), events)
    try:
        yield OpenStore(store, events)
    finally:
        await store.close()


class StoreMaker:
    """Makes stores over the same file or database; `again` is one after a restart."""

    def __init__(self, kind: Kind, folder: Path, url: str) -> None:
        self.kind: Kind = kind
        self._folder = folder
        self.url = url

    def again(self) -> GatewayStore:
        if self.kind == "sqlite":
            return SqliteGatewayStore(self._folder / FILE, durability="process")
        return PostgresGatewayStore(self.url)


@asynccontextmanager
async def gateways_on(
    url: str, count: int, limits: GatewayLimits | None = None, *, pooler: bool = False
) -> AsyncGenerator[list[str]]:
    """Several gateways over one database; the addresses of all."""
    async with AsyncExitStack() as stack:
        made = [Gateway(PostgresGatewayStore(url, pooler=pooler), name=NAME, limits=limits) for _ in range(count)]
        yield [(await stack.enter_async_context(GatewayListener(each))).url for each in made]
