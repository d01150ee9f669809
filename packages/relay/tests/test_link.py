"""A device's connection to its gateway: what its user sees, whatever the network does."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from ssl import SSLCertVerificationError
from typing import Any

import pytest
from aiohttp import ClientConnectorCertificateError, ServerDisconnectedError, WSServerHandshakeError, web
from aiohttp.client_reqrep import ConnectionKey
from multidict import CIMultiDict

from devices import linked, sealer
from gateways import NAME, QUICK, GatewayProcess, Proxy, client_at, code_of, gateway_at, id_of, link_to, pair_of
from remit.protocol.errors import Code, RemitError, fault
from remit_relay.client.connection import ConnectionStatus, GatewayConnection, ReconnectDelays
from remit_relay.client.handshake import unreached
from remit_relay.client.queues import Outcome, ReceiveQueue, SendQueues
from remit_relay.gateway.limits import GatewayLimits
from remit_relay.gateway.listener import GatewayListener
from remit_relay.gateway.server import Gateway
from remit_relay.wire import (
    MAX_BODY,
    PATH,
    Ack,
    BundleReply,
    Challenge,
    Delivery,
    Denied,
    Done,
    Expired,
    Put,
    Receipt,
    Refused,
    encode_text,
)
from remit_testing import ManualClock
from waiting import PATIENCE_S, eventually

A, B = id_of("a"), id_of("b")


def handshake(status: int, retry_after: str | None) -> WSServerHandshakeError:
    info: Any = None
    headers = CIMultiDict({} if retry_after is None else {"Retry-After": retry_after})
    return WSServerHandshakeError(info, (), status=status, headers=headers)


def untrusted(why: str) -> ClientConnectorCertificateError:
    error, key = SSLCertVerificationError(), ConnectionKey("b", 443, True, True, None, None, None)
    error.verify_message = why
    return ClientConnectorCertificateError(key, error)


async def is_there(link: GatewayConnection) -> GatewayConnection:
    """Return once a link is connected, and so its device known: an answer shows it."""
    async with asyncio.timeout(PATIENCE_S):
        await link.publish()
    return link


@asynccontextmanager
async def both(url: str, **options: Any) -> AsyncGenerator[tuple[GatewayConnection, GatewayConnection]]:
    async with link_to(url, "a", **options) as a, link_to(url, "b", **options) as b:
        yield await is_there(a), await is_there(b)


async def take(link: GatewayConnection, count: int) -> list[tuple[int, bytes]]:
    received: list[tuple[int, bytes]] = []
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(count):
            delivery = await link.receive()
            link.acknowledge(delivery)
            received.append((delivery.number, delivery.body))
    return received


async def test_a_message_arrives_and_its_sender_has_a_receipt(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, both(at.url) as (a, b):
        assert await a.put(b.device, 1, b"sealed") == Receipt(b.device, 1)
        delivery = await b.receive()
        assert (delivery.sender, delivery.number, delivery.body) == (a.device, 1, b"sealed")
        b.acknowledge(delivery)


async def test_many_messages_both_ways_keep_their_order(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, both(at.url) as (a, b):
        for number in range(1, 301):
            a.put(b.device, number, b"to b %d" % number)
            b.put(a.device, number, b"to a %d" % number)
        assert await take(b, 300) == [(number, b"to b %d" % number) for number in range(1, 301)]
        assert await take(a, 300) == [(number, b"to a %d" % number) for number in range(1, 301)]


async def test_a_device_that_was_away_gets_everything_in_order(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, link_to(at.url, "a") as a:
        async with link_to(at.url, "b") as b:
            await is_there(b)
        outcomes = [a.put(B, number, bytes(20_000) + b"%d" % number) for number in range(1, 601)]
        assert [await outcome for outcome in outcomes] == [Receipt(B, number) for number in range(1, 601)]
        async with link_to(at.url, "b") as b:
            assert [number for number, _ in await take(b, 600)] == list(range(1, 601))


async def test_after_a_broken_connection_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, Proxy(at.url) as network, both(network.url) as (a, b):
        outcomes: list[asyncio.Future[Outcome]] = []
        received: list[tuple[int, bytes]] = []
        for number in range(1, 201):
            outcomes.append(a.put(b.device, number, b"%d" % number))
            if number % 20 == 0:
                network.cut()
            if number % 7 == 0:
                received += await take(b, 3)
        received += await take(b, 200 - len(received))
        assert received == [(number, b"%d" % number) for number in range(1, 201)]
        # Those that were under way when it broke were put twice; that is no surprise, so no receipt says so.
        assert [await outcome for outcome in outcomes] == [Receipt(b.device, number) for number in range(1, 201)]


async def test_what_was_kept_is_not_handed_out_again_by_the_next_link(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, link_to(at.url, "a") as a:
        async with link_to(at.url, "b") as b:
            await is_there(b)
            for number in range(1, 6):
                await a.put(B, number, b"%d" % number)
            kept = [await b.receive() for _ in range(3)]
        # Killed before it could acknowledge: the gateway has all five, the device knows of three.
        async with link_to(at.url, "b", kept={a.device: kept[-1].number}) as b:
            assert await take(b, 2) == [(4, b"4"), (5, b"5")]
            await is_there(b)
        async with client_at(at.url, "b") as client:
            await a.put(B, 6, b"6")
            first = await client.hear()
            assert isinstance(first, Delivery)
            assert first.number >= 4, "what the first link had kept was acknowledged by the second"


async def test_a_repeat_that_is_a_surprise_is_told(tmp_path: Path) -> None:
    """The state of the device was set back: it uses numbers again."""
    async with gateway_at(tmp_path) as at, both(at.url) as (a, b):
        await a.put(b.device, 5, b"five")
        async with link_to(at.url, "a") as again:
            assert await again.put(b.device, 5, b"another five") == Receipt(b.device, 5, True)
            assert await again.put(b.device, 6, b"six") == Receipt(b.device, 6)
        assert await take(b, 2) == [(5, b"five"), (6, b"six")]


async def test_a_message_that_is_too_large_is_refused_at_once(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, both(at.url) as (a, b):
        with pytest.raises(RemitError, match=r"body: a message must have 1 to 262144 bytes, not 262145"):
            a.put(b.device, 1, bytes(MAX_BODY + 1))
        with pytest.raises(RemitError, match="body"):
            a.put(b.device, 1, b"")
        assert await a.put(b.device, 1, bytes(MAX_BODY)) == Receipt(b.device, 1)
        with pytest.raises(ValueError, match=r"number 1 for .* is not above the previous one, 1"):
            a.put(b.device, 1, b"again")


async def test_what_is_refused_for_good_comes_back_with_all_behind_it(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, both(at.url) as (a, b):
        await b.allow(())
        outcomes = [a.put(b.device, number, b"%d" % number) for number in (1, 2, 3)]
        settled = [await outcome for outcome in outcomes]
        assert [(one.number, one.code) for one in settled if isinstance(one, Refused)] == [
            (number, "unreachable") for number in (1, 2, 3)
        ]
        await b.allow((a.device,))
        # The first is given up; the others follow in order.
        assert await a.put(b.device, 2, b"2") == Receipt(b.device, 2)
        assert await a.put(b.device, 3, b"3") == Receipt(b.device, 3)
        assert await take(b, 2) == [(2, b"2"), (3, b"3")]


async def test_a_full_queue_is_waited_for_and_keeps_the_order(tmp_path: Path) -> None:
    limits = GatewayLimits(sender_messages=3, full_retry_ms=5)
    async with gateway_at(tmp_path, limits) as at, link_to(at.url, "a") as a:
        async with link_to(at.url, "b") as b:
            await is_there(b)
        outcomes = [a.put(B, number, b"%d" % number) for number in range(1, 31)]
        for outcome in outcomes[:3]:
            await outcome
        async with asyncio.timeout(PATIENCE_S):
            while B not in a.pauses():
                await asyncio.sleep(0)
        assert "wait for the receiver" in a.pauses()[B].reason
        async with link_to(at.url, "b") as b:
            assert await take(b, 30) == [(number, b"%d" % number) for number in range(1, 31)]
        assert [await outcome for outcome in outcomes] == [Receipt(B, number) for number in range(1, 31)]
        assert a.pauses() == {}


async def test_a_full_queue_for_one_device_does_not_hold_up_another(tmp_path: Path) -> None:
    limits = GatewayLimits(sender_messages=2, full_retry_ms=60_000)
    async with gateway_at(tmp_path, limits) as at, link_to(at.url, "a") as a, link_to(at.url, "c") as c:
        async with link_to(at.url, "b") as b:
            await is_there(b)
        await is_there(c)
        for number in range(1, 6):
            a.put(B, number, b"%d" % number)
        assert await a.put(c.device, 1, b"hello") == Receipt(c.device, 1)


async def test_the_newer_link_wins_and_the_older_is_told(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, link_to(at.url, "a") as older:
        await is_there(older)
        async with link_to(at.url, "a") as newer:
            await is_there(newer)
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(RemitError, match="connected again") as raised:
                    await older.receive()
            assert raised.value.fault.code is Code.STATE_CONFLICT
            assert older.state == "ended"
            with pytest.raises(RemitError):
                older.put(B, 1, b"x")
            assert newer.state == "connected"


async def test_whoever_waits_hears_that_the_link_has_ended(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at:
        # Nothing listens at the port of a network that is closed.
        async with Proxy(at.url) as network:
            url = network.url
        async with link_to(url, "a") as a:
            outcome = a.put(B, 1, b"x")
            publishing = asyncio.ensure_future(a.publish())
            await asyncio.sleep(0)
        for waiting in (outcome, publishing, a.receive()):
            with pytest.raises(RemitError, match="the connection is closed"):
                await waiting


async def test_a_server_of_another_name_gets_no_signature(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at:
        link = GatewayConnection(at.url, gateway="other.example", key=pair_of("a"), pauses=QUICK)
        async with link, asyncio.timeout(PATIENCE_S):
            with pytest.raises(
                RemitError, match=r"the name of the server is 'relay.example', not 'other.example'"
            ) as raised:
                await link.receive()
        assert raised.value.fault.code is Code.UNAUTHENTICATED


@asynccontextmanager
async def odd_server(*frames: str | bytes, version: int = 1) -> AsyncGenerator[str]:
    """Something that takes connections and says what no gateway would."""

    async def serve(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(encode_text(Challenge(gateway=NAME, nonce=bytes(32), version=version)).decode())
        await socket.receive()
        for frame in frames:
            await (socket.send_str(frame) if isinstance(frame, str) else socket.send_bytes(frame))
        await socket.receive()
        return socket

    app = web.Application()
    app.router.add_get(PATH, serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"ws://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        (("hello",), "invalid answer, perhaps not a gateway: control frame"),
        ((b"\x00",), "a control frame must be text"),
        (('{"type":"done","request":1}',), "expected a welcome after the hello"),
        (
            (f'{{"type":"welcome","device":"{A}","one_time_left":0}}', b"\x00"),
            "invalid answer, perhaps not a gateway: delivery",
        ),
        (
            (f'{{"type":"welcome","device":"{A}","one_time_left":0}}',) * 2,
            "invalid answer, perhaps not a gateway: unexpected frame welcome",
        ),
        (('{"type":"bye","code":"full","reason":"too many"}',), "too many"),
    ],
)
async def test_a_server_that_talks_nonsense_is_tried_again_later(frames: tuple[str | bytes, ...], why: str) -> None:
    changes: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def tell(state: str, why: str) -> None:
        changes.put_nowait((state, why))

    async with odd_server(*frames) as url:
        link = link_to(url, "a", changed=tell)
        async with link, asyncio.timeout(PATIENCE_S):
            while (news := await changes.get())[0] != "waiting":
                pass
            assert why in news[1]
            while (await changes.get())[0] != "waiting":
                pass


async def test_another_version_ends_the_link() -> None:
    async with odd_server(version=2) as url, link_to(url, "a") as link, asyncio.timeout(PATIENCE_S):
        with pytest.raises(RemitError, match="uses protocol version 2") as raised:
            await link.receive()
        assert raised.value.fault.code is Code.VERSION_UNSUPPORTED


async def test_a_silent_network_is_noticed_and_left(tmp_path: Path) -> None:
    quick = {"ping_s": 0.02, "silence_s": 0.1}
    async with gateway_at(tmp_path) as at, Proxy(at.url) as network, both(network.url, **quick) as (a, b):
        network.stall()
        outcome = a.put(b.device, 1, b"one")
        await eventually(lambda: a.state != "connected")
        network.cut()
        network.flow()
        assert await outcome == Receipt(b.device, 1)
        assert await take(b, 1) == [(1, b"one")]


async def test_a_gateway_that_stands_still_is_said_not_to_answer(tmp_path: Path) -> None:
    states: list[tuple[str, str]] = []

    def note(state: str, why: str) -> None:
        states.append((state, why))

    slow = {"ping_s": 0.05, "silence_s": 60.0, "changed": note}
    async with gateway_at(tmp_path) as at, Proxy(at.url) as network, link_to(network.url, "a", **slow) as a:
        await eventually(lambda: a.state == "connected")
        network.stall()
        await eventually(lambda: a.state == "silent")
        assert re.fullmatch(r"the gateway was not heard from since \d\d:\d\d:\d\d", a.why)
        network.flow()
        await eventually(lambda: a.state == "connected")
    assert [state for state, _ in states][:4] == ["connecting", "connected", "silent", "connected"]


async def test_a_connection_says_since_when_it_is_what_it_is_and_why(tmp_path: Path) -> None:
    statuses: list[ConnectionStatus] = []
    async with GatewayProcess(tmp_path) as gateway, Proxy(await gateway.start()) as network:
        gateway.networks.append(network)
        async with link_to(network.url, "a", ping_s=0.05, silence_s=1.0) as a:
            stop = a.listen(statuses.append)
            await eventually(lambda: a.state == "connected")
            connected = a.status
            await gateway.pause()
            silent = await eventually(lambda: a.status, when=lambda status: status.state == "silent")
            assert silent.since_ms >= connected.since_ms
            assert silent.why.startswith("the gateway was not heard from since ")
            lost = await eventually(lambda: a.status, when=lambda status: status.state in ("waiting", "connecting"))
            assert lost.since_ms > silent.since_ms
            # Every further attempt fails, and it is without a connection since the same time.
            await eventually(lambda: sum(each.state == "waiting" for each in statuses) > 1)
            assert a.status.since_ms == lost.since_ms
            await gateway.resume()
            again = await eventually(lambda: a.status, when=lambda status: status.state == "connected")
            assert again.since_ms > lost.since_ms
            stop()
            count = len(statuses)
        assert len(statuses) == count
        assert (a.status.state, a.status.why) == ("ended", "closed by its user")


async def test_keys_are_left_and_fetched_and_each_one_time_key_once(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, both(at.url) as (a, b):
        assert await b.publish(bundle=b"signed", one_time=(b"k1", b"k2")) == Done(request=2, one_time_left=2)
        replies = [await a.fetch(b.device) for _ in range(3)]
        assert [one.one_time for one in replies if isinstance(one, BundleReply)] == [b"k1", b"k2", None]
        await is_there(b)
        assert b.one_time_left == 0
        assert isinstance(await a.fetch(id_of("nobody")), Denied)


async def test_questions_survive_a_broken_connection(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, Proxy(at.url) as network, both(network.url) as (a, b):
        network.stall()
        publishing = asyncio.ensure_future(b.publish(bundle=b"signed", one_time=(b"k1",)))
        await asyncio.sleep(0)
        network.cut()
        network.flow()
        async with asyncio.timeout(PATIENCE_S):
            assert await publishing == Done(request=2, one_time_left=1)
            assert isinstance(await a.fetch(b.device), BundleReply)


async def test_room_waits_until_enough_has_its_receipts(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, both(at.url) as (a, b):
        outcomes = [a.put(b.device, number, bytes(100_000)) for number in range(1, 21)]
        await a.room(500_000)
        assert sum(outcome.done() for outcome in outcomes) >= 15
        await take(b, 20)


def test_pauses_double_up_to_a_bound() -> None:
    pauses = ReconnectDelays(first_s=0.5, most_s=60)
    assert [pauses.bound_s(attempt) for attempt in (0, 1, 2, 7, 1_000_000)] == [0.5, 1, 2, 60, 60]


async def test_a_gateway_that_lost_its_file_is_told_anew_who_may_reach_the_device(tmp_path: Path) -> None:
    """Else whoever knows its id could send to it from then on."""
    async with (
        asyncio.timeout(PATIENCE_S),
        gateway_at(tmp_path / "one") as one,
        gateway_at(tmp_path / "two") as two,
        Proxy(one.url) as network,
        link_to(network.url, "b") as b,
        link_to(two.url, "a") as a,
    ):
        await b.allow(())
        network.target = two.url
        network.cut()
        await b.publish()
        assert code_of(Refused, await a.put(B, 1, b"x")) == "unreachable"


async def test_a_link_hears_what_nobody_fetched(tmp_path: Path) -> None:
    clock, notices = ManualClock(), asyncio.Queue[Expired]()
    gateway = Gateway(tmp_path, name=NAME, clock=clock)
    async with GatewayListener(gateway) as at, asyncio.timeout(PATIENCE_S):
        async with link_to(at.url, "b") as b:
            await b.publish()
        async with link_to(at.url, "a") as a:
            a.expired = notices.put_nowait
            await a.put(B, 1, b"x")
            clock.advance(31 * 86_400)
            await gateway.tidy()
            assert await notices.get() == Expired(to=B, number=1, reason="not fetched for 30 days")
            await a.put(B, 2, b"y")
            assert a.state == "connected"


@pytest.mark.parametrize(
    ("error", "says", "after_ms"),
    [
        (handshake(429, "7"), "the gateway accepts no more connections from this network address for now", 7_000),
        (handshake(503, "5"), "the gateway accepts no more connections for now", 5_000),
        (handshake(503, "99999999999999999999"), "the gateway accepts no more connections", 600_000),
        (handshake(503, "Tue, 1 Jan"), "the gateway accepts no more connections", 0),
        (handshake(404, None), "cannot reach the gateway: the server at this address is not a gateway (status 404)", 0),
        (TimeoutError(), "cannot reach the gateway: no answer", 0),
        (ServerDisconnectedError(), "it closed the connection; use wss:// for a gateway with a certificate", 0),
        (
            untrusted("self-signed certificate"),
            "is not trusted (self-signed certificate); set `authority` in `[relay]`",
            0,
        ),
        (untrusted("Hostname mismatch, certificate is not valid for 'b'."), "for another host (Hostname mismatch,", 0),
    ],
)
def test_why_there_is_no_connection_is_said_in_words(error: Exception, says: str, after_ms: int) -> None:
    bye = unreached(error)
    assert says in bye.reason
    assert bye.retry_after_ms == after_ms
    assert bye.code in ("full", "trouble")


# ── the queues, without a connection ──────────────────────────────────────────────────────────────────────────────────


async def queues_with(
    *items: tuple[str, int], messages: int = 100
) -> tuple[SendQueues, deque[asyncio.Future[Outcome]]]:
    queues = SendQueues(messages=messages, size=10**6)
    futures: deque[asyncio.Future[Outcome]] = deque()
    for to, number in items:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        queues.add(to, number, b"%d" % number, future)
        futures.append(future)
    return queues, futures


def sent(queues: SendQueues) -> list[tuple[str, int, bool]]:
    messages: list[tuple[str, int, bool]] = []
    while put := queues.next():
        assert isinstance(put, Put)
        messages.append((put.to, put.number, put.anew))
    return messages


async def test_send_queues_take_turns() -> None:
    queues, _ = await queues_with((A, 1), (A, 2), (A, 3), (B, 1))
    assert sent(queues) == [(A, 1, False), (B, 1, False), (A, 2, False), (A, 3, False)]


async def test_only_so_much_is_under_way() -> None:
    queues, _ = await queues_with((A, 1), (A, 2), (A, 3), messages=2)
    assert sent(queues) == [(A, 1, False), (A, 2, False)]
    queues.stored(Receipt(A, 1))
    assert sent(queues) == [(A, 3, False)]


async def test_after_a_refusal_a_queue_begins_where_it_was_refused() -> None:
    queues, futures = await queues_with((A, 1), (A, 2), (A, 3))
    sent(queues)
    queues.stored(Receipt(A, 1))
    queue = queues.refused(Refused(to=A, number=2, code="full"))
    assert queue
    assert queues.refused(Refused(to=A, number=3, code="behind")) is None
    assert sent(queues) == []
    queues.resume(queue)
    assert sent(queues) == [(A, 2, True), (A, 3, False)]
    assert [future.done() for future in futures] == [True, False, False]


async def test_answers_that_fit_nothing_change_nothing() -> None:
    queues, futures = await queues_with((A, 1))
    queues.stored(Receipt(B, 9))
    queues.stored(Receipt(A, 1))
    assert queues.refused(Refused(to=A, number=1, code="full")) is None
    assert not futures[0].done()
    sent(queues)
    queues.stored(Receipt(A, 7))
    assert not futures[0].done()


async def test_a_place_is_acknowledged_once_all_before_it_are_kept() -> None:
    due = asyncio.Event()
    arrivals = ReceiveQueue({B: 2}, due.set)
    deliveries = [Delivery(10, A, 1, bytes(MAX_BODY)), Delivery(11, B, 2, b"had"), Delivery(12, B, 3, bytes(MAX_BODY))]
    for delivery in deliveries:
        arrivals.take(delivery)
    assert [await arrivals.next() for _ in range(2)] == [deliveries[0], deliveries[2]]
    arrivals.keep(deliveries[2])
    assert arrivals.ack() is None
    arrivals.keep(deliveries[0])
    await asyncio.wait_for(due.wait(), PATIENCE_S)
    assert arrivals.ack() == Ack(12)
    assert arrivals.ack() is None
    arrivals.end(RemitError(fault(Code.CANCELLED, "over")))


async def test_what_is_at_hand_is_taken_in_order_up_to_a_number_and_a_size() -> None:
    arrivals = ReceiveQueue({}, lambda: None)
    deliveries = [Delivery(place, A, place, bytes(100)) for place in range(1, 8)]
    for delivery in deliveries:
        arrivals.take(delivery)
    assert arrivals.at_hand(2, 1_000) == deliveries[:2]
    assert arrivals.at_hand(9, 350) == deliveries[2:5]
    assert arrivals.at_hand(9, 99) == []
    assert await arrivals.next() == deliveries[5]
    assert (arrivals.at_hand(9, 100), arrivals.at_hand(9, 100)) == (deliveries[6:], [])
    arrivals.end(RemitError(fault(Code.CANCELLED, "over")))


async def test_a_device_does_not_tell_the_gateway_what_software_it_runs_on(tmp_path: Path) -> None:
    head: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not head.done():
            head.set_result(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    listening = await asyncio.start_server(listen, "127.0.0.1")
    port: int = listening.sockets[0].getsockname()[1]
    async with listening, linked(sealer(tmp_path, "anna"), f"ws://127.0.0.1:{port}"), asyncio.timeout(PATIENCE_S):
        lines = (await head).decode().lower().splitlines()
    assert [line for line in lines if line.startswith("user-agent")] == ["user-agent: remit"]
    assert not any("python" in line or "aiohttp" in line for line in lines)
