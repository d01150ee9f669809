"""Several gateways over one database are one gateway."""

import asyncio
import base64
import json
import logging
from pathlib import Path

import pytest
from aiohttp import ClientSession
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from command_line import remit
from gateway_stores import OpenStore, empty_database, gateways_on, open_store, rows
from gateways import NAME, Client, Proxy, client_at, code_of, id_of, link_to, pair_of
from postgres_server import PASSWORD, USER, PostgresServer, shared_server
from remit.protocol.errors import RemitError
from remit_relay.client.connection import GatewayConnection
from remit_relay.client.handshake import look
from remit_relay.gateway.limits import DAY_S, GatewayLimits
from remit_relay.gateway.listener import GatewayListener
from remit_relay.gateway.ports import Placed, RateAllowance
from remit_relay.gateway.postgres import batch, neighbours, store
from remit_relay.gateway.postgres.store import PostgresGatewayStore
from remit_relay.gateway.server import Gateway
from remit_relay.wire import (
    PATH,
    Ack,
    AllowSenders,
    BundleReply,
    Bye,
    Challenge,
    Delivery,
    DeviceStatus,
    Done,
    FromGateway,
    Hello,
    KeysLeft,
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
from shared_teams import relay
from waiting import PATIENCE_S, eventually

A, B = id_of("a"), id_of("b")


async def next_frame(client: Client, kind: type[FromGateway | Delivery]) -> object:
    """The next frame of a kind, whatever else comes before."""
    while not isinstance(frame := await client.hear(), kind):
        assert frame is not None
    return frame


async def test_a_message_reaches_a_device_at_another_gateway_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "POLL_S", 600.0)  # only notifications
    url = await empty_database()
    async with gateways_on(url, 2) as (one, two), client_at(one, "a") as a, client_at(two, "b") as b:
        await a.say(Publish(request=1, bundle=b"keys"))
        await next_frame(a, Done)
        for number in range(1, 6):
            await a.put(B, number, b"%d" % number)
            delivery = await next_frame(b, Delivery)
            assert delivery == Delivery(number, A, number, b"%d" % number)
        await b.put(A, 1, b"back")
        assert await next_frame(a, Delivery) == Delivery(1, B, 1, b"back")
        await b.say(Ack(5))
        async with asyncio.timeout(PATIENCE_S):
            while await rows(url, "SELECT 1 FROM remit_gateway.message WHERE number > 1"):
                await asyncio.sleep(0.01)


async def test_what_no_notification_told_of_is_found_by_the_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "POLL_S", 0.05)

    def tell_nobody(_self: object, _notices: object) -> None:
        pass

    monkeypatch.setattr(neighbours.Neighbours, "tell", tell_nobody)
    url = await empty_database()
    async with gateways_on(url, 2) as (one, two), client_at(one, "a") as a, client_at(two, "b") as b:
        await a.put(B, 1, b"sealed")
        assert await next_frame(b, Delivery) == Delivery(1, A, 1, b"sealed")
        async with client_at(one, "b") as again:
            assert isinstance(again.answer, Welcome)
            assert code_of(Bye, await next_frame(b, Bye)) == "replaced"


async def test_through_a_pooler_a_poll_is_enough() -> None:
    """No session of the server is used for more than a transaction, so nothing is listened for."""
    url = await empty_database()
    async with gateways_on(url, 2, pooler=True) as (one, two), client_at(one, "a") as a, client_at(two, "b") as b:
        for number in (1, 2):
            await a.put(B, number, b"sealed")
            assert await next_frame(b, Delivery) == Delivery(number, A, number, b"sealed")
        listening = "SELECT query FROM pg_stat_activity WHERE query ILIKE 'listen%' AND datname = current_database()"
        assert await rows(url, listening) == []


async def test_the_newer_connection_wins_at_whichever_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "POLL_S", 600.0)
    url = await empty_database()
    async with gateways_on(url, 2) as (one, two), client_at(one, "a") as first, client_at(two, "a") as second:
        assert isinstance(second.answer, Welcome)
        assert code_of(Bye, await next_frame(first, Bye)) == "replaced"
        await second.put(A, 1, b"to itself")
        assert await next_frame(second, Delivery) == Delivery(1, A, 1, b"to itself")


async def test_a_device_is_connected_wherever_one_looks() -> None:
    url = await empty_database()
    async with gateways_on(url, 2) as (one, two), link_to(one, "a") as a:
        await a.publish(one_time=(b"k",))

        async with ClientSession() as session, session.ws_connect(two + PATH) as socket:
            status = await look(socket, pair_of("a"), gateway=NAME)
        assert status == DeviceStatus(known=True, connected=True, waiting=0, one_time_left=1)
    # Its gateways have ended, and its leases with them.
    async with open_store(PostgresGatewayStore(url)) as at:
        status = await at.store.look(A)
        assert status is not None
        assert not status.connected


async def test_keys_and_lists_hold_at_every_gateway() -> None:
    url = await empty_database()
    keys = tuple(b"%d" % number for number in range(20))
    async with gateways_on(url, 2) as (one, two), client_at(one, "b") as b:
        await b.say(Publish(request=1, bundle=b"bundle", one_time=keys))
        await next_frame(b, Done)
        async with link_to(one, "a") as a, link_to(two, "c") as c:
            replies = await asyncio.gather(*(link.fetch(B) for _ in range(10) for link in (a, c)))
            handed = [each.one_time for each in replies if isinstance(each, BundleReply)]
            assert sorted(each for each in handed if each) == sorted(keys), "each once"
            left = 20
            while left:
                notice = await next_frame(b, KeysLeft)
                assert isinstance(notice, KeysLeft)
                left = min(left, notice.one_time_left)
            await b.say(AllowSenders(request=2, senders=(A,)))
            await next_frame(b, Done)
            assert isinstance(await a.put(B, 1, b"x"), Receipt)
            assert not isinstance(await c.put(B, 1, b"x"), Receipt)


async def test_a_challenge_of_one_gateway_is_refused_by_another() -> None:
    """Nothing has to be sticky: a connection is greeted by the gateway that it reached."""
    url = await empty_database()
    async with (
        gateways_on(url, 2) as (one, two),
        ClientSession() as session,
        session.ws_connect(one + PATH) as first,
        session.ws_connect(two + PATH) as second,
    ):
        challenge = read_from_gateway(await first.receive_str())
        assert isinstance(challenge, Challenge)
        await second.receive_str()
        text = signed_text(gateway=NAME, nonce=challenge.nonce, device=A)
        hello = Hello(public=raw(pair_of("a").public), signature=pair_of("a").sign(text))
        await second.send_str(encode_text(hello).decode())
        assert code_of(Bye, read_from_gateway(await second.receive_str())) == "unauthenticated"


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_queue_has_one_limit_over_all_gateways() -> None:
    limits = GatewayLimits(sender_messages=10, receiver_messages=15)
    url = await empty_database()
    async with (
        open_store(PostgresGatewayStore(url), limits) as one,
        open_store(PostgresGatewayStore(url), limits) as two,
    ):
        for name in "abc":
            await one.enter(name)
        two.keys = one.keys

        async def put(at: OpenStore, sender: str, number: int) -> bool:
            return isinstance(await at.put(sender, "b", number, anew=True), Placed)

        numbers = range(1, 13)
        taken = await asyncio.gather(*(put(at, "a", number) for number in numbers for at in (one, two)))
        held = await rows(url, "SELECT count(*), count(DISTINCT number) FROM remit_gateway.message")
        assert (held, sum(taken) <= 20) == ([(10, 10)], True)
        await asyncio.gather(*(put(at, "c", number) for number in numbers for at in (one, two)))
        assert await rows(url, "SELECT count(*), max(place) FROM remit_gateway.message") == [(15, 15)]
        assert code_of(Refused, await two.put("c", "b", 99, connection=7)) == "full"


async def test_what_a_device_spent_of_its_rate_at_one_gateway_is_spent_at_another() -> None:
    limits = GatewayLimits(frames_burst=1_000, frames_per_s=0.001, bytes_burst=1_000, bytes_per_s=0.001)
    url = await empty_database()
    async with (
        open_store(PostgresGatewayStore(url), limits) as one,
        open_store(PostgresGatewayStore(url), limits) as two,
    ):
        assert (await one.enter("a", connection=1)).allowance == RateAllowance(1_000, 1_000)
        await one.leave(1, RateAllowance(7, 70))
        left = (await two.enter("a", connection=1)).allowance
        assert left is not None
        assert [round(each) for each in left] == [7, 70]
        assert (await two.enter("a", connection=2)).allowance is None, "this gateway knows"
        # Its connection there has not ended properly, so nobody knows what it spent.
        assert (await one.enter("a", connection=2)).allowance == RateAllowance(0, 0)


async def test_one_gateway_at_a_time_cleans_up_and_the_senders_at_others_are_told() -> None:
    url, clock = await empty_database(), ManualClock()
    async with (
        open_store(PostgresGatewayStore(url), clock=clock) as one,
        open_store(PostgresGatewayStore(url), clock=clock) as two,
    ):
        await one.enter("b", connection=1)
        await two.enter("a")
        await two.put("a", "b", 1)
        await one.leave(1)
        clock.advance(31 * DAY_S)

        async def clean(at: OpenStore) -> int:
            return sum([step.expired async for step in at.store.cleanup()])

        assert sorted(await asyncio.gather(clean(one), clean(one))) == [0, 1]
        assert await clean(two) == 0
        await two.events.until("expired", A, B, 1)
        assert await rows(url, "SELECT sum(messages), sum(size) FROM remit_gateway.gateway") == [(0, 0)]


# ── trouble with the database ─────────────────────────────────────────────────────────────────────────────────────────


async def health(url: str) -> tuple[int, str]:
    async with ClientSession() as session, session.get(url.replace("ws:", "http:") + "/healthz") as answer:
        return answer.status, json.loads(await answer.text())["status"]


async def test_without_its_database_a_gateway_is_not_ready_and_devices_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "BEAT_S", 0.05)
    address = await empty_database()
    host = f"127.0.0.1:{shared_server().port}"
    async with Proxy(f"ws://{host}") as network:
        near = address.replace(host, network.url.removeprefix("ws://"))
        gateway = Gateway(PostgresGatewayStore(near), name=NAME, limits=GatewayLimits(back_ms=1))
        async with GatewayListener(gateway) as at, link_to(at.url, "a") as a, client_at(at.url, "b") as b:
            assert isinstance(await a.put(B, 1, b"before"), Receipt)
            assert await next_frame(b, Delivery) == Delivery(1, A, 1, b"before")
            target, network.target = network.target, "ws://127.0.0.1:1"
            network.cut()
            bye = await next_frame(b, Bye)
            assert bye == Bye(code="trouble", reason="the gateway cannot write", retry_after_ms=1)
            assert await health(at.url) == (503, "unavailable")
            sending = a.put(B, 2, b"meanwhile")
            await eventually(lambda: "status 503" in a.why)
            assert not sending.done()
            network.target = target
            assert isinstance(await sending, Receipt)
            assert await health(at.url) == (200, "ok")
            async with client_at(at.url, "b") as again:
                deliveries = [await next_frame(again, Delivery) for _ in range(2)]
                assert [each.body for each in deliveries if isinstance(each, Delivery)] == [b"before", b"meanwhile"]


async def test_a_gateway_that_stops_in_a_transaction_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = batch.BOUNDED
    monkeypatch.setattr(batch, "BOUNDED", "SET LOCAL idle_in_transaction_session_timeout = '200ms'")
    url, stopped, goes_on = await empty_database(), asyncio.Event(), asyncio.Event()
    async with open_store(PostgresGatewayStore(url)) as one, open_store(PostgresGatewayStore(url)) as two:
        for name in "ab":
            await one.enter(name)
        two.keys = one.keys
        write = batch.GatewayBatch._write  # pyright: ignore[reportPrivateUsage]

        async def stop_first(self: batch.GatewayBatch) -> None:
            if not stopped.is_set():
                monkeypatch.setattr(batch, "BOUNDED", usual)  # the others may be slow, on a busy machine
                stopped.set()
                await goes_on.wait()
            await write(self)

        monkeypatch.setattr(batch.GatewayBatch, "_write", stop_first)
        lost = asyncio.create_task(one.put("a", "b", 1, b"first"))
        await stopped.wait()
        assert await two.put("a", "b", 1, b"first") == Placed(1, is_new=True)
        goes_on.set()
        await one.events.until("recovered")
        again = await one.put("a", "b", 1, b"first")
        assert (isinstance(again, Placed) and again.is_new, await one.bodies("b")) == (False, [b"first"])
        lost.cancel()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("password", "the server refused the password"),
        ("port", "the server cannot be reached"),
        ("database", "the database does not exist"),
        ("version", "the gateway's tables have version 99, which a newer program wrote; this one knows 1"),
    ],
)
async def test_a_database_that_cannot_be_used_is_named(change: str, message: str) -> None:
    url = await empty_database()
    server: PostgresServer = shared_server()
    if change == "version":
        async with open_store(PostgresGatewayStore(url)):
            pass
        await rows(url, "UPDATE remit_gateway.store SET version = 99")
    name = "nowhere" if change == "database" else url.rpartition("/")[2]
    password = "wrong" if change == "password" else PASSWORD
    broken = server.url(name, password=password)
    if change == "port":
        broken = broken.replace(f":{server.port}/", ":1/")
    with pytest.raises(RemitError) as raised:
        await Gateway(PostgresGatewayStore(broken), name=NAME).open()
    assert message in str(raised.value)
    assert PASSWORD not in str(raised.value)
    assert "wrong" not in str(raised.value)


async def test_the_database_holds_nothing_that_can_be_read(caplog: pytest.LogCaptureFixture) -> None:
    """A dump of all tables has no word of what was sealed, and neither has a log."""
    words = b"the password of the vault is marzipan"
    cipher = ChaCha20Poly1305(bytes(32))
    caplog.set_level(logging.DEBUG)
    url = await empty_database()
    async with gateways_on(url, 2) as (one, two):
        async with link_to(one, "b") as b:
            await b.publish(bundle=b"signed", one_time=(b"key",))
        async with link_to(two, "a") as a:
            sealed = [cipher.encrypt(number.to_bytes(12), words * 50, None) for number in range(1, 11)]
            await asyncio.gather(*(a.put(B, number, body) for number, body in enumerate(sealed, start=1)))
        dump = b""
        for (table,) in await rows(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'remit_gateway'"):
            for row in await rows(url, f"SELECT * FROM remit_gateway.{table}"):
                dump += b" ".join(each if isinstance(each, bytes) else str(each).encode() for each in row)
    assert all(body in dump for body in sealed), "this does look where messages are kept"
    everything = dump + caplog.text.encode()
    for hidden in (b"password", b"marzipan", base64.b64encode(words)[:20], words.hex().encode()[:20]):
        assert hidden not in everything


async def test_a_receipt_comes_only_after_the_commit() -> None:
    url = await empty_database()
    async with gateways_on(url, 1) as (one,), client_at(one, "a") as a, client_at(one, "b") as b:
        held = await shared_server().connect(url)
        try:
            async with held.transaction():
                # The gateway cannot commit while another transaction has the receiver's row.
                await held.execute("SELECT 1 FROM remit_gateway.device WHERE id = $1 FOR UPDATE", B)
                await a.put(B, 1, b"sealed")
                receipt = asyncio.create_task(next_frame(a, Stored))
                done, _ = await asyncio.wait([receipt], timeout=0.2)
                assert not done
        finally:
            await held.close()
        assert await next_frame(b, Delivery) == Delivery(1, A, 1, b"sealed")
        assert await receipt == Stored((Receipt(B, 1),))


async def test_the_command_takes_a_database_and_its_password_from_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = (await empty_database()).rpartition("/")[2]
    address = f"postgresql://{USER}@127.0.0.1:{shared_server().port}/{name}"
    options = ("--store", address, "--store-password", "$GATEWAY_PASSWORD")
    monkeypatch.setenv("GATEWAY_PASSWORD", PASSWORD)
    with relay(tmp_path, *options) as one, relay(tmp_path, *options) as two:
        assert (one.said["store"], one.said["folder"]) == (address, "")
        links = [
            GatewayConnection(each.said["address"], gateway="127.0.0.1", key=pair_of(device))
            for each, device in ((one, "a"), (two, "b"))
        ]
        async with links[0] as a, links[1] as b:
            await b.publish()
            assert isinstance(await a.put(B, 1, b"sealed"), Receipt)
            assert (await b.receive()).body == b"sealed"
    assert list(tmp_path.iterdir()) == [], "no folder is needed"
    refused = await asyncio.to_thread(remit, "relay", *options, folder=tmp_path, GATEWAY_PASSWORD="wrong")
    assert (refused.returncode, "the server refused the password" in refused.stderr) == (7, True)
    assert "--store" in refused.stderr
