"""What one network address may ask of a gateway, and that others are not kept out by it."""

import asyncio
import logging
import socket as sockets
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSServerHandshakeError
from hypothesis import given
from hypothesis import strategies as st

from gateways import NAME, Client, client_at, gateway_at, id_of, link_to, pair_of
from remit_relay.client.handshake import greet, look
from remit_relay.gateway import limits as limits_module
from remit_relay.gateway.limits import Addresses, GatewayLimits, HourlyRate, client_of, counted, is_in, networks
from remit_relay.gateway.listener import GatewayListener
from remit_relay.gateway.server import Gateway
from remit_relay.wire import PATH, Bye, Delivery, DeviceStatus, Done, Publish, Welcome, read_from_gateway
from remit_testing import ManualClock
from waiting import PATIENCE_S, no_longer

PROXIES = networks(["127.0.0.1", "10.0.0.0/8"])
ONE, OTHER = "203.0.113.7", "203.0.113.8"


# ── which address counts ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        (ONE, (), ONE),
        (ONE, (OTHER,), ONE),
        ("127.0.0.1", (), "127.0.0.1"),
        ("127.0.0.1", (ONE,), ONE),
        ("127.0.0.1", (f"{OTHER}, {ONE}",), ONE),
        ("127.0.0.1", (OTHER, ONE), ONE),
        ("127.0.0.1", (f"{ONE}, 10.1.2.3",), ONE),
        ("127.0.0.1", ("10.1.2.3",), "127.0.0.1"),
        ("127.0.0.1", (f"{ONE}:4711",), ONE),
        ("127.0.0.1", ("[2001:db8::7]:4711",), "2001:db8::7"),
        ("127.0.0.1", ("2001:db8::7",), "2001:db8::7"),
        ("::ffff:127.0.0.1", (ONE,), ONE),
        ("127.0.0.1", ("nonsense",), "nonsense"),
        ("", (ONE,), ""),
    ],
)
def test_what_a_proxy_says_counts_and_what_others_say_does_not(
    peer: str, forwarded: tuple[str, ...], client: str
) -> None:
    assert client_of(peer, forwarded, PROXIES) == client


def test_a_customer_counts_once_however_many_addresses_it_has() -> None:
    assert counted("2001:db8::7") == counted("2001:db8::ffff:1") == "2001:db8::/64"
    assert counted("2001:db8:0:1::7") == "2001:db8:0:1::/64"
    assert counted("fe80::1%eth0") == "fe80::/64"
    assert counted("::ffff:203.0.113.7") == counted(ONE) == ONE
    assert counted("nonsense") == counted("") == "?"
    assert not is_in(ONE, ())


# ── how much ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_attempts_and_failures_come_back_with_time() -> None:
    limits = GatewayLimits(
        address_attempts=HourlyRate(burst=3, per_hour=3_600), address_failures=HourlyRate(burst=1, per_hour=60)
    )
    known = Addresses(limits)
    assert [known.objection(ONE, 0.0) for _ in range(4)] == ["", "", "", "address_attempts"]
    assert known.objection(OTHER, 0.0) == ""
    assert known.objection(ONE, 1.0) == "address_attempts", "those in vain count as well"
    assert known.objection(ONE, 5.0) == ""
    known.fail(ONE, 10.0)
    known.fail(ONE, 10.0)
    assert known.objection(ONE, 11.0) == "address_failures"
    assert known.objection(ONE, 71.0) == ""


def test_who_goes_on_after_it_was_told_to_wait_is_not_listened_to() -> None:
    known = Addresses(GatewayLimits(address_attempts=HourlyRate(burst=3, per_hour=3_600)))
    assert not known.is_hammering(ONE, 0.0)
    for _ in range(10):
        known.objection(ONE, 0.0)
    assert known.is_hammering(ONE, 0.0)
    assert not known.is_hammering(OTHER, 0.0)
    assert not known.is_hammering(ONE, 2.0)
    assert known.objection(ONE, 7.0) == "", "and it is not held against it for long"


def test_addresses_that_have_gone_quiet_are_forgotten_and_those_with_connections_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits_module, "MOST_ADDRESSES", 20)
    known = Addresses(GatewayLimits())
    known.objection(ONE, 0.0)
    known.enter(ONE, 0.0)
    for number in range(100):
        known.objection(f"198.51.100.{number}", 0.0)
    assert len(known) <= 20
    known.sweep(3_600.0)
    assert len(known) == 1
    known.leave(ONE, 3_600.0, greeted=False)
    known.sweep(7_200.0)
    assert len(known) == 0


@given(st.lists(st.sampled_from(["come", "greet", "leave", "wait"]), max_size=80))
def test_no_address_ever_has_more_open_than_it_may(steps: list[str]) -> None:
    limits = GatewayLimits(address_connections=4, address_unauthenticated=2)
    known, now = Addresses(limits), 0.0
    undecided, greeted = 0, 0
    for step in steps:
        if step == "come" and not known.objection(ONE, now):
            known.enter(ONE, now)
            undecided += 1
        elif step == "greet" and undecided:
            known.greet(ONE, now)
            undecided, greeted = undecided - 1, greeted + 1
        elif step == "leave" and undecided + greeted:
            known.leave(ONE, now, greeted=not undecided)
            undecided, greeted = (undecided - 1, greeted) if undecided else (undecided, greeted - 1)
        now += step == "wait"
        assert undecided <= limits.address_unauthenticated
        assert undecided + greeted <= limits.address_connections


# ── at a gateway ──────────────────────────────────────────────────────────────────────────────────────────────────────


def proxied(folder: Path, limits: GatewayLimits, clock: ManualClock | None = None) -> GatewayListener:
    return GatewayListener(Gateway(folder, name=NAME, limits=limits, proxies=PROXIES, clock=clock))


async def connect(stack: AsyncExitStack, at: GatewayListener, address: str) -> ClientWebSocketResponse:
    """Come through a proxy from an address, and do not greet yet."""
    session = await stack.enter_async_context(ClientSession(headers={"X-Forwarded-For": address}))
    return await stack.enter_async_context(session.ws_connect(at.url + PATH, max_msg_size=2**20))


async def greeted(stack: AsyncExitStack, at: GatewayListener, address: str, name: str) -> Client:
    socket = await connect(stack, at, address)
    return Client(socket, await greet(socket, pair_of(name), gateway=NAME))


async def refused(stack: AsyncExitStack, at: GatewayListener, address: str) -> str:
    with pytest.raises(WSServerHandshakeError, match="429"):
        await connect(stack, at, address)
    async with ClientSession(headers={"X-Forwarded-For": address}) as session:
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        upgrade["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
        async with session.get(at.url.replace("ws:", "http:") + PATH, headers=upgrade) as reply:
            assert (reply.status, reply.headers["Retry-After"]) == (429, "30")
            return await reply.text()


async def test_one_address_has_only_so_many_connections_and_others_do_not_notice(tmp_path: Path) -> None:
    async with proxied(tmp_path, GatewayLimits(address_connections=2)) as at, AsyncExitStack() as stack:
        for name in ("a", "b"):
            assert isinstance((await greeted(stack, at, ONE, name)).answer, Welcome)
        assert await refused(stack, at, ONE) == "too many open connections from this network address; try again later\n"
        assert isinstance((await greeted(stack, at, OTHER, "c")).answer, Welcome)


async def test_a_connection_that_ended_makes_room_for_the_next(tmp_path: Path) -> None:
    async with proxied(tmp_path, GatewayLimits(address_connections=1)) as at:
        for name in ("a", "b", "a"):
            async with AsyncExitStack() as stack:
                client = await greeted(stack, at, ONE, name)
                assert isinstance(client.answer, Welcome)
                await client.say(Publish(request=1))
                assert isinstance(await client.hear(), Done)
            await no_longer(at.gateway.connected)


async def test_those_who_do_not_greet_are_few_from_one_address(tmp_path: Path) -> None:
    async with proxied(tmp_path, GatewayLimits(address_unauthenticated=2)) as at, AsyncExitStack() as stack:
        for _ in range(2):
            await connect(stack, at, ONE)
        assert "too many unauthenticated connections" in await refused(stack, at, ONE)
        assert isinstance((await greeted(stack, at, OTHER, "a")).answer, Welcome)


async def test_who_fails_to_show_who_it_is_too_often_has_to_wait(tmp_path: Path) -> None:
    clock = ManualClock()
    limits = GatewayLimits(address_failures=HourlyRate(burst=2, per_hour=60))
    async with proxied(tmp_path, limits, clock) as at, AsyncExitStack() as stack:
        for _ in range(2):
            socket = await connect(stack, at, ONE)
            await socket.receive_str()
            await socket.send_str("{}")
            assert isinstance(read_from_gateway(await socket.receive_str()), Bye)
        assert "too many failed authentications" in await refused(stack, at, ONE)
        assert isinstance((await greeted(stack, at, OTHER, "a")).answer, Welcome)
        clock.advance(61)
        assert isinstance((await greeted(stack, at, ONE, "b")).answer, Welcome)


async def test_only_so_many_new_devices_come_from_one_address_and_known_ones_always(tmp_path: Path) -> None:
    """So that nobody fills the gateway with devices."""
    clock = ManualClock()
    limits = GatewayLimits(address_devices=HourlyRate(burst=2, per_hour=2))
    async with proxied(tmp_path, limits, clock) as at, AsyncExitStack() as stack:
        for name in ("a", "b", "a", "b"):
            assert isinstance((await greeted(stack, at, ONE, name)).answer, Welcome)
        answer = (await greeted(stack, at, ONE, "c")).answer
        assert isinstance(answer, Bye)
        assert (answer.code, answer.retry_after_ms) == ("full", 60_000)
        assert answer.reason == "too many new devices from this network address; try again later"
        assert isinstance((await greeted(stack, at, ONE, "a")).answer, Welcome)
        assert isinstance((await greeted(stack, at, OTHER, "c")).answer, Welcome)
        clock.advance(1_801)
        assert isinstance((await greeted(stack, at, ONE, "d")).answer, Welcome)


async def test_silent_connections_from_one_address_are_few_and_the_devices_that_are_there_go_on(tmp_path: Path) -> None:
    """They have not even asked for anything, so nothing but their address is known of them."""
    limits = GatewayLimits(address_unauthenticated=3, address_connections=10, hello_s=600)
    async with gateway_at(tmp_path, limits) as at, client_at(at.url, "a") as a, client_at(at.url, "b") as b:
        host, port = at.url.removeprefix("ws://").split(":")
        async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE_S):
            waiting: set[asyncio.Task[bytes]] = set()
            for _ in range(10):
                reader, writer = await asyncio.open_connection(host, int(port))
                stack.callback(writer.close)
                writer.write(b"GET / HTTP/1.1\r\n")
                waiting.add(asyncio.create_task(ended(reader)))
            while len(waiting) > 3:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            await a.put(id_of("b"), 1, b"still")
            assert isinstance(await b.hear(), Delivery)
            assert not any(each.done() for each in waiting)
        await asyncio.wait(waiting)


async def ended(reader: asyncio.StreamReader) -> bytes:
    with suppress(ConnectionError):
        return await reader.read()
    return b""


async def test_of_all_who_are_silent_the_oldest_makes_room(tmp_path: Path) -> None:
    limits = GatewayLimits(max_unauthenticated=2)
    # Through a proxy, whose connections count for nobody as long as nothing is asked on them.
    async with proxied(tmp_path, limits) as at, AsyncExitStack() as stack:
        host, port = at.url.removeprefix("ws://").split(":")
        silent = [sockets.create_connection((host, int(port))) for _ in range(2)]
        for each in silent:
            stack.callback(each.close)
            each.setblocking(False)
        assert isinstance((await greeted(stack, at, ONE, "a")).answer, Welcome)
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.get_running_loop().sock_recv(silent[0], 1) == b""
        with pytest.raises(BlockingIOError):
            silent[1].recv(1)


async def test_a_proxy_that_was_not_named_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with gateway_at(tmp_path) as at, AsyncExitStack() as stack:
        for name in ("a", "b"):
            await greeted(stack, at, ONE, name)
    warnings = [each.getMessage() for each in caplog.records if "sends X-Forwarded-For" in each.getMessage()]
    assert len(warnings) == 1
    assert "--behind-proxy 127.0.0.1" in warnings[0]


async def test_a_link_says_that_there_is_no_room_and_comes_back(tmp_path: Path) -> None:
    changes = asyncio.Queue[tuple[str, str]]()

    def changed(state: str, why: str) -> None:
        changes.put_nowait((state, why))

    async with gateway_at(tmp_path, GatewayLimits(address_connections=1)) as at, client_at(at.url, "a"):
        link = link_to(at.url, "b", changed=changed)
        async with link, asyncio.timeout(PATIENCE_S):
            while (change := await changes.get())[0] != "waiting":
                pass
    assert "accepts no more connections from this network address for now (status 429)" in change[1]
    assert "next attempt in 30." in change[1]


# ── those who only look ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_device_can_look_how_it_stands_and_nothing_changes(tmp_path: Path) -> None:
    async def looked(at: GatewayListener, name: str) -> DeviceStatus | Bye:
        async with ClientSession() as session, session.ws_connect(at.url + PATH) as socket:
            status = await look(socket, pair_of(name), gateway=NAME)
            assert (await socket.receive()).data == 1000
            return status

    async with gateway_at(tmp_path) as at:
        unknown = DeviceStatus(known=False, connected=False, waiting=0, one_time_left=0)
        assert await looked(at, "a") == await looked(at, "a") == unknown
        async with client_at(at.url, "a") as a:
            await a.say(Publish(request=1, one_time=(b"k",)))
            assert isinstance(await a.hear(), Done)
            assert await looked(at, "a") == DeviceStatus(known=True, connected=True, waiting=0, one_time_left=1)
            await a.say(Publish(request=2))
            assert await a.hear() == Done(request=2, one_time_left=1), "its connection goes on"
        async with link_to(at.url, "b") as b:
            await b.put(id_of("a"), 1, b"x")
        assert await looked(at, "a") == DeviceStatus(known=True, connected=False, waiting=1, one_time_left=1)


# ── figures ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def metrics(at: GatewayListener, **headers: str) -> tuple[int, str]:
    address = at.url.replace("ws:", "http:") + "/metrics"
    async with ClientSession() as session, session.get(address, headers=headers) as page:
        return page.status, await page.text()


async def test_figures_are_there_for_prometheus_and_name_nobody(tmp_path: Path) -> None:
    async with gateway_at(tmp_path, GatewayLimits(address_connections=2)) as at:
        async with client_at(at.url, "b"):
            pass
        async with client_at(at.url, "a") as a, client_at(at.url, "c"), AsyncExitStack() as stack:
            await a.put(id_of("b"), 1, b"four")
            await a.hear()
            await a.put(id_of("nobody"), 1, b"x")
            await a.hear()
            with pytest.raises(WSServerHandshakeError):
                await connect(stack, at, ONE)
            status, page = await metrics(at)
    assert status == 200
    lines = page.splitlines()
    for line in (
        "remit_gateway_up 1",
        "remit_gateway_connections 2",
        "remit_gateway_devices 3",
        "remit_gateway_queued_messages 1",
        "remit_gateway_queued_bytes 4",
        "remit_gateway_messages_total 1",
        'remit_gateway_refusals_total{what="connection",why="address_connections"} 1',
        'remit_gateway_refusals_total{what="message",why="unreachable"} 1',
        "# TYPE remit_gateway_refusals_total counter",
    ):
        assert line in lines
    for name in ("a", "b", "c"):
        assert id_of(name) not in page


async def test_figures_are_for_this_machine_and_for_who_is_named(tmp_path: Path) -> None:
    async with gateway_at(tmp_path / "one") as at:
        assert (await metrics(at))[0] == 200
        assert (await metrics(at, **{"X-Forwarded-For": ONE}))[0] == 404, "a proxy that nobody named brings anyone"
    async with proxied(tmp_path / "two", GatewayLimits()) as at:
        assert (await metrics(at))[0] == 200
        assert (await metrics(at, **{"X-Forwarded-For": ONE}))[0] == 404
    gateway = Gateway(tmp_path / "three", name=NAME, proxies=PROXIES, watchers=networks([ONE]))
    async with GatewayListener(gateway) as at:
        assert (await metrics(at))[0] == 404
        assert (await metrics(at, **{"X-Forwarded-For": ONE}))[0] == 200
