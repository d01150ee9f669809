"""A gateway: who is let in, what is kept for whom, and what is refused."""

import asyncio
import threading
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import apsw
import pytest
from aiohttp import ClientSession, WSServerHandshakeError

from gateways import NAME, Client, client_at, code_of, gateway_at, id_of, link_to, pair_of, rows
from remit.protocol.errors import Code, RemitError
from remit.stores.connection import connect_writer
from remit_relay.client.handshake import greet
from remit_relay.gateway.limits import GatewayLimits
from remit_relay.gateway.listener import GatewayListener, serve_gateway
from remit_relay.gateway.server import FILE, DeviceRateLimit, Gateway
from remit_relay.wire import (
    MAX_FRAME,
    PATH,
    Ack,
    AllowSenders,
    BundleReply,
    Bye,
    Challenge,
    Delivery,
    Denied,
    Done,
    Fetch,
    FromDevice,
    FromGateway,
    Hello,
    Publish,
    Receipt,
    Refused,
    Stored,
    Welcome,
    encode_text,
    read_from_gateway,
    signed_text,
)
from remit_server.transports.credentials.keys import raw
from remit_testing import ManualClock
from waiting import PATIENCE_S, eventually

A, B = id_of("a"), id_of("b")


async def answer(client: Client, frame: FromDevice) -> FromGateway | Delivery | None:
    await client.say(frame)
    return await client.hear()


async def stored(client: Client) -> list[Receipt]:
    """The next receipts, whatever else comes before."""
    while not isinstance(frame := await client.hear(), Stored):
        assert frame is not None
    return list(frame.receipts)


async def refused(client: Client, code: str) -> Refused:
    while not (isinstance(frame := await client.hear(), Refused) and frame.code == code):
        assert frame is not None
    return frame


# ── who is let in ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_device_shows_who_it_is_by_signing_a_fresh_challenge(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, client_at(at.url, "a") as client:
        assert client.answer == Welcome(device=A, one_time_left=0, is_new=True)
        async with ClientSession() as session, session.ws_connect(at.url + PATH) as other:
            first = read_from_gateway(await other.receive_str())
            assert isinstance(first, Challenge)
        async with ClientSession() as session, session.ws_connect(at.url + PATH) as other:
            second = read_from_gateway(await other.receive_str())
            assert isinstance(second, Challenge)
        assert first.nonce != second.nonce


@pytest.mark.parametrize("change", ["nonce", "gateway", "device", "key"])
async def test_a_signature_for_anything_else_is_refused(tmp_path: Path, change: str) -> None:
    """Another connection's challenge, another gateway's, another device's id, another device's key."""
    async with gateway_at(tmp_path) as at, ClientSession() as session, session.ws_connect(at.url + PATH) as socket:
        challenge = read_from_gateway(await socket.receive_str())
        assert isinstance(challenge, Challenge)
        parts = {"nonce": challenge.nonce, "gateway": NAME, "device": A}
        other = {"nonce": bytes(32), "gateway": "evil.example", "device": B}
        if change != "key":
            parts[change] = other[change]
        text = signed_text(**parts)  # pyright: ignore[reportArgumentType]
        signature = pair_of("b" if change == "key" else "a").sign(text)
        await socket.send_str(encode_text(Hello(public=raw(pair_of("a").public), signature=signature)).decode())
        assert code_of(Bye, read_from_gateway(await socket.receive_str())) == "unauthenticated"


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ("{}", "malformed"),
        ('{"type":"ack","place":1}', "malformed"),
        (b"\x00", "malformed"),
        (encode_text(Hello(public=bytes(32), signature=bytes(64), version=9)).decode(), "version"),
        (encode_text(Hello(public=bytes(32), signature=bytes(64))).decode(), "unauthenticated"),
    ],
)
async def test_who_does_not_greet_is_turned_away(tmp_path: Path, first: str | bytes, code: str) -> None:
    async with gateway_at(tmp_path) as at, ClientSession() as session, session.ws_connect(at.url + PATH) as socket:
        await socket.receive_str()
        await (socket.send_str(first) if isinstance(first, str) else socket.send_bytes(first))
        assert code_of(Bye, read_from_gateway(await socket.receive_str())) == code


async def test_who_says_nothing_is_turned_away_after_a_while(tmp_path: Path) -> None:
    async with gateway_at(tmp_path, GatewayLimits(hello_s=0.05)) as at:
        async with ClientSession() as session, session.ws_connect(at.url + PATH) as socket:
            await socket.receive_str()
            assert code_of(Bye, read_from_gateway(await socket.receive_str())) == "idle"
        host, port = at.url.removeprefix("ws://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()


async def test_only_so_many_connections_are_taken(tmp_path: Path) -> None:
    limits = GatewayLimits(max_unauthenticated=1)
    async with (
        gateway_at(tmp_path, limits) as at,
        ClientSession() as session,
        session.ws_connect(at.url + PATH) as socket,
    ):
        await socket.receive_str()
        with pytest.raises(WSServerHandshakeError, match="503"):
            await session.ws_connect(at.url + PATH)
    limits = GatewayLimits(max_connections=1)
    async with gateway_at(tmp_path, limits) as at, ClientSession() as session, client_at(at.url, "a"):
        with pytest.raises(WSServerHandshakeError, match="503"):
            await session.ws_connect(at.url + PATH)


async def test_the_newer_connection_of_a_device_wins_and_the_older_is_told(tmp_path: Path) -> None:
    async with (
        gateway_at(tmp_path) as at,
        client_at(at.url, "b") as b,
        client_at(at.url, "a") as older,
        client_at(at.url, "a") as newer,
    ):
        assert code_of(Bye, await older.hear()) == "replaced"
        # What the older one says now counts for nothing.
        with suppress(ConnectionError):
            await older.put(B, 1, b"old")
        await newer.put(B, 2, b"new")
        delivery = await b.hear()
        assert isinstance(delivery, Delivery)
        assert delivery.body == b"new"
        assert await older.hear() is None


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_receipt_comes_only_after_the_commit(tmp_path: Path) -> None:
    commits = 0

    def commit() -> None:
        nonlocal commits
        commits += 1

    async with gateway_at(tmp_path, commit_hook=commit) as at, client_at(at.url, "b"), client_at(at.url, "a") as a:
        before = commits
        await a.put(B, 1, b"sealed")
        assert await stored(a) == [Receipt(B, 1)]
        assert commits > before
    assert rows(tmp_path, "SELECT number, body FROM message") == [(1, b"sealed")]


async def test_an_acknowledgement_of_what_was_not_sent_deletes_nothing(tmp_path: Path) -> None:
    limits = GatewayLimits(window_messages=1)
    async with gateway_at(tmp_path, limits) as at, client_at(at.url, "b") as b, client_at(at.url, "a") as a:
        for number in (1, 2, 3):
            await a.put(B, number, b"%d" % number)
        first = await b.hear()
        assert isinstance(first, Delivery)
        await b.say(Ack(2**53))
        second = await b.hear()
        assert isinstance(second, Delivery)
        assert second.number == 2


async def test_a_repeat_is_forgotten_after_the_stated_time_but_not_while_it_is_queued(tmp_path: Path) -> None:
    clock = ManualClock()
    async with gateway_at(tmp_path, GatewayLimits(repeat_days=1), clock=clock) as at, client_at(at.url, "b") as b:
        async with client_at(at.url, "a") as a:
            await a.put(B, 7, b"sealed")
            assert await stored(a) == [Receipt(B, 7)]
        delivery = await b.hear()
        assert isinstance(delivery, Delivery)
        await b.say(Ack(delivery.place))
        await answer(b, Publish(request=1))
    clock.advance(2 * 86_400)
    gateway = Gateway(tmp_path, name=NAME, limits=GatewayLimits(repeat_days=1), clock=clock)
    async with GatewayListener(gateway) as at, client_at(at.url, "a") as a:
        await gateway.tidy()
        await a.put(B, 7, b"another")
        assert await stored(a) == [Receipt(B, 7)]
        clock.advance(2 * 86_400)
        await gateway.tidy()
        await a.put(B, 7, b"another")
        assert await stored(a) == [Receipt(B, 7, True)]


async def test_a_receiver_that_does_not_acknowledge_gets_no_more_than_its_window(tmp_path: Path) -> None:
    limits = GatewayLimits(window_messages=4, window_bytes=10_000)
    async with gateway_at(tmp_path, limits) as at, client_at(at.url, "b") as b, client_at(at.url, "a") as a:
        for number in range(1, 21):
            await a.put(B, number, bytes(100))
        deliveries = [one for one in await b.hear_many(4) if isinstance(one, Delivery)]
        # A question that is answered shows that nothing else was under way.
        assert isinstance(await answer(b, Publish(request=1)), Done)
        numbers = [one.number for one in deliveries]
        while len(numbers) < 20:
            await b.say(Ack(deliveries[-1].place))
            deliveries = [one for one in [await b.hear()] if isinstance(one, Delivery)]
            numbers += [one.number for one in deliveries]
        assert numbers == list(range(1, 21))


async def test_a_device_that_takes_nothing_is_cut_off_and_can_resume(tmp_path: Path) -> None:
    clock = ManualClock()
    limits = GatewayLimits(slow_s=10, idle_s=10**6, closing_s=0.05, window_bytes=10**8, window_messages=10**4)
    gateway = Gateway(tmp_path, name=NAME, limits=limits, clock=clock)
    async with GatewayListener(gateway) as at, link_to(at.url, "a") as a, ClientSession() as session:
        socket = await session.ws_connect(at.url + PATH)
        await greet(socket, pair_of("b"), gateway=NAME)
        for number in range(1, 61):
            await a.put(B, number, bytes(250_000))
        gateway.sweep()
        clock.advance(11)
        gateway.sweep()
        await eventually(lambda: len(gateway.connected()) <= 1)
        await socket.close()
        async with link_to(at.url, "b") as b, asyncio.timeout(PATIENCE_S):
            assert [(await b.receive()).number for _ in range(60)] == list(range(1, 61))


async def test_a_silent_device_is_cut_off(tmp_path: Path) -> None:
    clock = ManualClock()
    gateway = Gateway(tmp_path, name=NAME, limits=GatewayLimits(idle_s=90), clock=clock)
    async with GatewayListener(gateway) as at, client_at(at.url, "a") as a:
        clock.advance(60)
        await a.socket.ping()
        assert isinstance(await answer(a, Publish(request=1)), Done)
        clock.advance(60)
        gateway.sweep()
        assert gateway.connected() == [A]
        clock.advance(60)
        gateway.sweep()
        assert code_of(Bye, await a.hear()) == "idle"


async def test_a_device_that_is_too_fast_is_read_more_slowly(tmp_path: Path) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    limits = GatewayLimits(frames_per_s=10, frames_burst=5)
    clock = ManualClock()
    async with gateway_at(tmp_path, limits, clock=clock, sleep=sleep) as at, client_at(at.url, "b"):
        async with client_at(at.url, "a") as a:
            for number in range(1, 9):
                await a.put(B, number, b"x")
            while (await stored(a))[-1].number != 8:
                pass
        assert waited == pytest.approx([0.1, 0.2, 0.3])
        # A new connection does not begin with a full measure.
        async with client_at(at.url, "a") as a:
            await a.put(B, 9, b"x")
            await stored(a)
        assert waited[3:] == pytest.approx([0.4])


async def test_a_device_is_read_no_faster_than_it_can_be_written(tmp_path: Path) -> None:
    commits = 0

    def commit() -> None:
        nonlocal commits
        commits += 1

    limits = GatewayLimits(unstored_bytes=100)
    gateway = gateway_at(tmp_path, limits, commit_hook=commit)
    async with gateway as at, client_at(at.url, "b"), client_at(at.url, "a") as a:
        for number in range(1, 41):
            await a.put(B, number, bytes(60))
        receipts: list[Receipt] = []
        while len(receipts) < 40:
            receipts += await stored(a)
    assert receipts == [Receipt(B, number) for number in range(1, 41)]
    # Two are more than may wait, so no commit had more than two.
    assert commits >= 20


async def test_who_waits_to_be_read_can_be_cut_off(tmp_path: Path) -> None:
    writing = threading.Event()

    def commit() -> None:
        if not writing.wait(PATIENCE_S):
            raise TimeoutError

    writing.set()
    limits = GatewayLimits(unstored_bytes=100, closing_s=0.05)
    async with gateway_at(tmp_path, limits, commit_hook=commit) as at, link_to(at.url, "b") as b:
        await b.publish()
        async with AsyncExitStack() as stack:
            older = await stack.enter_async_context(client_at(at.url, "a"))
            writing.clear()
            for number in range(1, 6):
                await older.put(B, number, bytes(60))
            newer = asyncio.create_task(stack.enter_async_context(client_at(at.url, "a")))
            assert isinstance(bye := await older.hear(), Bye)
            assert bye.code == "replaced"
            writing.set()
            assert isinstance((await newer).answer, Welcome)
        async with asyncio.timeout(PATIENCE_S):
            assert (await b.receive()).number == 1


def test_a_pace_counts_bytes_too_and_recovers() -> None:
    pace = DeviceRateLimit(GatewayLimits(bytes_per_s=100, bytes_burst=200), now=0.0)
    assert pace.spend(200, 0.0) == 0
    assert pace.spend(50, 0.0) == pytest.approx(0.5)
    assert not pace.full(1.0)
    assert pace.full(10.0)


HELLO = encode_text(Hello(public=bytes(32), signature=bytes(64))).decode()


@pytest.mark.parametrize("frame", [b"\x00", b"{}", '{"type":"fetch"}', HELLO], ids=["put", "json", "fetch", "hello"])
async def test_a_malformed_frame_ends_the_connection_and_says_why(tmp_path: Path, frame: bytes | str) -> None:
    async with gateway_at(tmp_path) as at, client_at(at.url, "a") as a:
        await (a.socket.send_str(frame) if isinstance(frame, str) else a.socket.send_bytes(frame))
        assert code_of(Bye, await a.hear()) == "malformed"


async def test_a_frame_that_is_too_large_ends_the_connection(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, client_at(at.url, "a") as a:
        await a.socket.send_bytes(bytes(MAX_FRAME + 1))
        assert await a.hear() is None
        assert a.socket.close_code == 1009


async def test_who_is_refused_by_very_many_devices_has_to_begin_anew(tmp_path: Path) -> None:
    limits = GatewayLimits(frames_per_s=1e9, frames_burst=1e9)
    async with gateway_at(tmp_path, limits) as at, client_at(at.url, "a") as a:
        for number in range(1_001):
            await a.put(id_of(f"nobody {number}"), 1, b"x")
        while not isinstance(frame := await a.hear(), Bye):
            assert isinstance(frame, Refused)
        assert frame.code == "full"


# ── access and keys ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_list_counts_from_the_moment_it_is_written(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, client_at(at.url, "b") as b, client_at(at.url, "a") as a:
        for number in (1, 2, 3):
            await a.put(B, number, b"x")
            await stored(a)
        await b.hear_many(3)
        assert isinstance(await answer(b, AllowSenders(request=1, senders=())), Done)
        await a.put(B, 4, b"x")
        assert (await refused(a, "unreachable")).number == 4
        assert isinstance(await answer(b, AllowSenders(request=2, senders=None)), Done)
        await a.put(B, 4, b"x", anew=True)
        assert await stored(a) == [Receipt(B, 4)]


async def test_a_list_and_keys_survive_a_restart(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, client_at(at.url, "b") as b:
        await answer(b, Publish(request=1, bundle=b"signed", one_time=(b"k1", b"k2")))
        await answer(b, AllowSenders(request=2, senders=(A,)))
    async with gateway_at(tmp_path) as at, client_at(at.url, "a") as a, client_at(at.url, "c") as c:
        assert isinstance(await answer(c, Fetch(request=1, device=B)), Denied)
        reply = await answer(a, Fetch(request=1, device=B))
        assert reply == BundleReply(request=1, device=B, bundle=b"signed", one_time=b"k1")


# ── the whole ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_gateway_that_ends_tells_its_devices_after_their_receipts(tmp_path: Path) -> None:
    frames: list[object] = []
    async with ClientSession() as session:
        async with gateway_at(tmp_path) as at:
            socket = await session.ws_connect(at.url + PATH)
            client = Client(socket, await greet(socket, pair_of("a"), gateway=NAME))
            for number in range(1, 51):
                await client.put(A, number, b"x")
            # All of them were read before this question was.
            await client.say(Publish(request=1))
            while not isinstance(frame := await client.hear(), Done):
                frames.append(frame)

            async def listen() -> None:
                while (frame := await client.hear()) is not None:
                    frames.append(frame)

            listening = asyncio.create_task(listen())
        await listening
    assert isinstance(frames[-1], Bye)
    assert frames[-1].code == "closing"
    receipts = [receipt for frame in frames if isinstance(frame, Stored) for receipt in frame.receipts]
    assert receipts == [Receipt(A, number) for number in range(1, 51)]
    assert len(rows(tmp_path, "SELECT 1 FROM message")) == 50


async def test_trouble_with_the_disk_lets_everyone_go_and_loses_nothing(tmp_path: Path) -> None:
    troubles = 0

    def trouble() -> None:
        nonlocal troubles
        if troubles:
            troubles -= 1
            raise apsw.FullError("the disk is full")

    gateway = gateway_at(tmp_path, GatewayLimits(back_ms=1), commit_hook=trouble)
    async with gateway as at, link_to(at.url, "a") as a, link_to(at.url, "b") as b:
        await b.publish()
        for turn in range(20):
            outcomes = [a.put(B, turn * 10 + number, b"x") for number in range(1, 11)]
            troubles = 1 + turn % 3
            async with asyncio.timeout(PATIENCE_S):
                assert [await outcome for outcome in outcomes] == [
                    Receipt(B, turn * 10 + number) for number in range(1, 11)
                ]
        numbers: list[int] = []
        for _ in range(200):
            async with asyncio.timeout(PATIENCE_S):
                delivery = await b.receive()
            b.acknowledge(delivery)
            numbers.append(delivery.number)
        assert numbers == list(range(1, 201))


async def test_the_health_page_says_how_it_is(tmp_path: Path) -> None:
    async with (
        gateway_at(tmp_path) as at,
        client_at(at.url, "a"),
        ClientSession() as session,
        session.get(at.url.replace("ws:", "http:") + "/healthz") as page,
    ):
        assert page.status == 200
        assert await page.json() == {"status": "ok", "connections": 1}


async def test_two_gateways_cannot_share_a_folder(tmp_path: Path) -> None:
    async with gateway_at(tmp_path):
        with pytest.raises(RemitError, match="in use by another gateway process") as raised:
            await Gateway(tmp_path, name=NAME).open()
        assert raised.value.fault.code is Code.STORE_UNAVAILABLE


async def test_a_file_of_another_version_is_not_touched(tmp_path: Path) -> None:
    connection = connect_writer(tmp_path / FILE, "process", busy_seconds=1)
    connection.pragma("user_version", 99)
    connection.close()
    with pytest.raises(RemitError, match=r"unsupported schema version 99"):
        await Gateway(tmp_path, name=NAME).open()


async def test_a_gateway_is_served_until_it_is_told_to_stop(tmp_path: Path) -> None:
    stop, urls = asyncio.Event(), asyncio.Queue[str]()
    serving = asyncio.create_task(serve_gateway(tmp_path, name=NAME, started=urls.put_nowait, stop=stop))
    async with client_at(await urls.get(), "a") as a:
        stop.set()
        assert code_of(Bye, await a.hear()) == "closing"
    async with asyncio.timeout(PATIENCE_S):
        await serving


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async with gateway_at(tmp_path / "one") as at:
        port = int(at.url.rsplit(":", 1)[1])
        with pytest.raises(RemitError, match=f"port {port} is in use") as raised:
            await serve_gateway(tmp_path / "two", name=NAME, port=port)
        assert raised.value.fault.code is Code.TEAM_INVALID
