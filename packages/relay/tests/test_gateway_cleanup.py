"""A gateway that runs for years: what it forgets, whom it tells, and what it never holds more of."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from devices import introduce, linked, sealer
from gateways import NAME, Client, client_at, code_of, gateway_at, id_of, rows
from remit.protocol.errors import Code, Fault
from remit_relay.client import delivery as post_module
from remit_relay.gateway import sqlite_store
from remit_relay.gateway.limits import DAY_S, GatewayLimits
from remit_relay.gateway.listener import GatewayListener
from remit_relay.gateway.ports import ROW_BYTES
from remit_relay.gateway.server import Gateway
from remit_relay.wire import (
    Ack,
    AllowSenders,
    BundleReply,
    Delivery,
    Denied,
    Done,
    Expired,
    Fetch,
    Publish,
    Refused,
    Stored,
    Welcome,
)
from remit_testing import ManualClock
from waiting import PATIENCE_S

A, B, C = id_of("a"), id_of("b"), id_of("c")
MONTH_S = 31 * DAY_S
YEAR_S = 366 * DAY_S
WHY = "not fetched for 30 days"


@asynccontextmanager
async def gateway_of(
    folder: Path, clock: ManualClock, limits: GatewayLimits | None = None
) -> AsyncGenerator[tuple[Gateway, str]]:
    gateway = Gateway(folder, name=NAME, limits=limits, clock=clock)
    async with GatewayListener(gateway) as at:
        yield gateway, at.url


async def come_and_go(url: str, *names: str) -> None:
    for name in names:
        async with client_at(url, name) as client:
            assert isinstance(client.answer, Welcome), client.answer


async def stored(client: Client, count: int) -> None:
    receipt_count = 0
    while receipt_count < count:
        frame = await client.hear()
        assert isinstance(frame, Stored), frame
        receipt_count += len(frame.receipts)


# ── messages that nobody fetches ──────────────────────────────────────────────────────────────────────────────────────


async def test_what_a_device_has_on_its_screen_is_not_deleted_under_its_hands(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        gateway_of(tmp_path, clock, GatewayLimits(idle_s=10 * YEAR_S)) as (gateway, url),
        client_at(url, "b") as b,
        client_at(url, "a") as a,
    ):
        await a.put(B, 1, b"x")
        await stored(a, 1)
        delivery = await b.hear()
        assert isinstance(delivery, Delivery)
        clock.advance(MONTH_S)
        await gateway.tidy()
        await b.say(Ack(delivery.place))
        await b.say(Publish(request=1))
        assert isinstance(await b.hear(), Done)
        await a.say(Publish(request=1))
        assert isinstance(await a.hear(), Done), "and not an expiry"


async def test_much_that_is_old_is_deleted_in_many_small_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "ROWS", 3)
    clock = ManualClock()
    async with gateway_of(tmp_path, clock) as (gateway, url):
        names = [f"d{number}" for number in range(8)]
        await come_and_go(url, *names)
        async with client_at(url, "a") as a:
            for number, name in enumerate(names * 2, start=1):
                await a.put(id_of(name), number, b"x")
            await stored(a, 16)
        clock.advance(MONTH_S)
        await gateway.tidy()
        async with client_at(url, "a") as a:
            frames = [await a.hear() for _ in names]
            assert {each.to: each.number for each in frames if isinstance(each, Expired)} == {
                id_of(name): 9 + place for place, name in enumerate(names)
            }
        clock.advance(MONTH_S)
        await gateway.tidy()
    assert rows(tmp_path, "SELECT 1 FROM message UNION ALL SELECT 2 FROM pair") == []


async def test_a_host_hears_that_the_other_device_did_not_fetch_what_it_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And once that device is back, nothing is lost: the next message brings what was deleted along."""
    monkeypatch.setattr(post_module, "TELL_S", 0.05)
    anna, bob = sealer(tmp_path, "anna"), sealer(tmp_path, "bob")
    introduce(anna, bob)
    clock, troubles = ManualClock(), asyncio.Queue[Fault | None]()
    gateway = Gateway(tmp_path / "gateway", name="g", clock=clock)
    async with GatewayListener(gateway) as at, asyncio.timeout(PATIENCE_S):
        async with linked(bob, at.url) as two, linked(anna, at.url) as one:
            await one.send(bob.device.id, b"first")
            async for opened in two:
                assert opened.body == b"first"
                await two.taken(opened)
                break
        async with linked(anna, at.url, lambda _, why: troubles.put_nowait(why)) as one:
            await one.send(bob.device.id, b"second")
            await one.emptied()
            clock.advance(MONTH_S)
            await gateway.tidy()
            why = await troubles.get()
            assert why is not None
            assert why.code is Code.DELEGATION_UNAVAILABLE
            assert WHY in why.message
            async with linked(bob, at.url) as two:
                await one.send(bob.device.id, b"third")
                bodies: list[bytes] = []
                async for opened in two:
                    bodies.append(opened.body)
                    await two.taken(opened)
                    if len(bodies) == 2:
                        break
    assert bodies == [b"second", b"third"]


# ── devices that are gone ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_device_that_was_not_there_for_a_year_is_forgotten_with_all_that_it_left(tmp_path: Path) -> None:
    clock = ManualClock()
    limits = GatewayLimits(idle_s=10 * YEAR_S)
    async with gateway_of(tmp_path, clock, limits) as (gateway, url):
        async with client_at(url, "b") as b:
            await b.say(Publish(request=1, bundle=b"signed", one_time=(b"k1", b"k2")))
            await b.hear()
            await b.say(AllowSenders(request=2, senders=(A,)))
            await b.hear()
        async with client_at(url, "a") as a:
            await come_and_go(url, "c")
            clock.advance(YEAR_S)
            await a.put(B, 1, b"x")
            await stored(a, 1)
            await gateway.tidy()
            assert isinstance(await a.hear(), Expired)
            await a.put(B, 2, b"y")
            assert code_of(Refused, await a.hear()) == "unreachable"
            await a.say(Fetch(request=1, device=B))
            assert isinstance(await a.hear(), Denied)
            assert gateway.held.devices == 2
        # It may come back, and begins as a new one.
        async with client_at(url, "b") as b:
            assert b.answer == Welcome(device=B, one_time_left=0, is_new=True)
    assert rows(tmp_path, "SELECT count(*) FROM one_time UNION ALL SELECT count(*) FROM allowed") == [(0,), (0,)]
    # The newest of all keeps its row, so that nobody is ever given its number.
    assert rows(tmp_path, "SELECT id, key FROM device ORDER BY key") == [(A, 2), (C, 3), (B, 4)]


async def test_a_device_that_stays_connected_for_years_is_known_after_a_crash(tmp_path: Path) -> None:
    clock = ManualClock()
    async with (
        gateway_of(tmp_path, clock, GatewayLimits(idle_s=10 * YEAR_S)) as (gateway, url),
        client_at(url, "a") as a,
    ):
        await come_and_go(url, "b")
        await a.say(Publish(request=1, bundle=b"signed"))
        await a.hear()
        for _ in range(3):
            clock.advance(YEAR_S)
            await gateway.tidy()
    clock.advance(DAY_S)
    async with gateway_of(tmp_path, clock) as (gateway, url):
        await gateway.tidy()
        async with client_at(url, "b") as b:
            await b.say(Fetch(request=1, device=A))
            assert isinstance(await b.hear(), BundleReply)


async def test_trouble_with_the_disk_only_puts_off_what_is_to_be_forgotten(tmp_path: Path) -> None:
    clock, troubles = ManualClock(), 0

    def trouble() -> None:
        nonlocal troubles
        if troubles:
            troubles -= 1
            raise OSError("the disk is full")

    gateway = Gateway(tmp_path, name=NAME, clock=clock, commit_hook=trouble)
    async with GatewayListener(gateway) as at:
        await come_and_go(at.url, "b")
        async with client_at(at.url, "a") as a:
            await a.put(B, 1, b"x")
            await stored(a, 1)
        clock.advance(MONTH_S)
        troubles = 1
        await gateway.tidy()
        assert (gateway.metrics.expired, gateway.is_well) == (0, False)
        await gateway.tidy()
        assert (gateway.metrics.expired, gateway.is_well) == (1, True)
    assert rows(tmp_path, "SELECT 1 FROM message") == []


# ── what it holds ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_full_gateway_takes_no_keys_and_no_new_device_but_a_shorter_list(tmp_path: Path) -> None:
    limits = GatewayLimits(total_bytes=4 * ROW_BYTES)
    async with gateway_at(tmp_path, limits) as at, client_at(at.url, "b") as b:
        await b.say(AllowSenders(request=1, senders=(A, C, id_of("d"))))
        assert isinstance(await b.hear(), Done)
        async with client_at(at.url, "a") as a:
            assert not isinstance(a.answer, Welcome)
        await b.say(Publish(request=2, bundle=b"signed"))
        denied = await b.hear()
        assert isinstance(denied, Denied)
        assert (denied.code, denied.reason) == ("full", "the gateway is full")
        await b.say(AllowSenders(request=3, senders=()))
        assert isinstance(await b.hear(), Done)
        async with client_at(at.url, "a") as a:
            assert isinstance(a.answer, Welcome)
