"""The conformance of the stores of gateways: a file and a database keep the same promises."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway_stores import Kind, OpenStore, StoreMaker, empty_database, open_store
from gateways import code_of, id_of
from remit.stores.connection import write_lock
from remit_relay.gateway.limits import DAY_S, GatewayLimits
from remit_relay.gateway.ports import ROW_BYTES, CleanupResult, NoRoom, Placed, SentMessage, StoredDevice, StoreSize
from remit_relay.gateway.queue import open_queue
from remit_relay.gateway.server import FILE
from remit_relay.gateway.sqlite_store import SqliteGatewayStore
from remit_relay.wire import AllowSenders, BundleReply, Delivery, Denied, Done, Expired, Publish, Put, Refused
from remit_testing import ManualClock

A, B = id_of("a"), id_of("b")


@pytest.fixture(params=["sqlite", "postgres"])
async def maker(request: pytest.FixtureRequest, tmp_path: Path) -> StoreMaker:
    kind: Kind = request.param
    return StoreMaker(kind, tmp_path, await empty_database() if kind == "postgres" else "")


@pytest.fixture
async def at(maker: StoreMaker) -> AsyncGenerator[OpenStore]:
    async with open_store(maker.again()) as opened:
        await opened.enter("a")
        await opened.enter("b")
        yield opened


async def cleaned(at: OpenStore) -> list[CleanupResult]:
    return [step async for step in at.store.cleanup() if step.notices or step.expired or step.devices]


async def test_messages_are_read_in_their_order_until_they_are_acknowledged(at: OpenStore) -> None:
    placed = [await at.put("a", "b", number, b"%d" % number) for number in (3, 5, 8)]
    assert all(isinstance(each, Placed) and each.is_new for each in placed)
    page = await at.page("b")
    assert page.deliveries == [
        Delivery(each.place, A, number, b"%d" % number)
        for each, number in zip(placed, (3, 5, 8), strict=True)
        if isinstance(each, Placed)
    ]
    await at.acknowledge("b", page.deliveries[1].place)
    assert await at.bodies("b") == [b"8"]
    assert (await at.page("b", after=page.deliveries[2].place)).deliveries == []


async def test_a_number_is_stored_once_also_after_it_was_delivered_and_after_a_restart(maker: StoreMaker) -> None:
    async with open_store(maker.again()) as at:
        await at.enter("a")
        await at.enter("b")
        first = await at.put("a", "b", 7)
        assert isinstance(first, Placed)
        await at.acknowledge("b", first.place)
        for number in (7, 6):
            repeated = await at.put("a", "b", number, b"another")
            assert isinstance(repeated, Placed)
            assert not repeated.is_new
    async with open_store(maker.again()) as at:
        assert not (await at.enter("a")).is_new
        await at.enter("b")
        again = await at.put("a", "b", 7)
        assert (isinstance(again, Placed) and again.is_new, await at.bodies("b")) == (False, [])


async def test_what_is_acknowledged_before_it_is_written_leaves_only_its_number(tmp_path: Path) -> None:
    path = tmp_path / FILE
    async with open_store(SqliteGatewayStore(path, durability="process")) as at:
        await at.enter("a")
        await at.enter("b")
    queue = open_queue(path, "process", GatewayLimits(), lambda: 0)
    with write_lock(queue.connection):
        for number in (1, 2, 3):
            placed = queue.put(SentMessage(1, 1, A, Put(B, number, b"sealed"), number))
            assert placed == Placed(number, is_new=True)
        queue.acknowledge(2, 2)
        assert (queue.all.messages, queue.all.size) == (1, 6)
        before = queue.connection.total_changes()
        queue.write()
        assert queue.connection.total_changes() - before == 2  # the third message, and the last number of the pair
    queue.connection.close()
    async with open_store(SqliteGatewayStore(path, durability="process")) as at:
        await at.enter("a")
        await at.enter("b")
        assert await at.bodies("b") == [b"sealed"]
        again = [await at.put("a", "b", number) for number in (1, 2, 3, 4)]
        assert [isinstance(each, Placed) and each.is_new for each in again] == [False, False, False, True]


async def test_a_page_has_as_much_as_was_asked_for_and_at_least_one(at: OpenStore) -> None:
    for number, size in enumerate((10, 20, 30, 40), start=1):
        await at.put("a", "b", number, bytes(size))
    sizes = [
        ([len(each.body) for each in page.deliveries], page.more)
        for page in (
            await at.page("b", messages=2),
            await at.page("b", size=35),
            await at.page("b", size=30),
            await at.page("b", size=1),
            await at.page("b", messages=4, size=100),
        )
    ]
    assert sizes == [([10, 20], True), ([10, 20], True), ([10, 20], True), ([10], True), ([10, 20, 30, 40], False)]


@pytest.mark.parametrize("most", [{"sender_messages": 1}, {"sender_bytes": 11}], ids=["messages", "bytes"])
async def test_nothing_overtakes_what_was_refused(maker: StoreMaker, most: dict[str, int]) -> None:
    async with open_store(maker.again(), replace(GatewayLimits(full_retry_ms=9), **most)) as at:
        await at.enter("a")
        await at.enter("b")
        first = await at.put("a", "b", 1)
        assert isinstance(first, Placed)
        refused = [await at.put("a", "b", 2), await at.put("a", "b", 3), await at.put("a", "b", 3, connection=101)]
        assert [each.code for each in refused if isinstance(each, Refused)] == ["full", "behind", "full"]
        assert isinstance(refused[0], Refused)
        assert (refused[0].reason, refused[0].retry_after_ms) == (
            "1 messages (6 bytes) from this device wait for the receiver",
            9,
        )
        await at.acknowledge("b", first.place)
        assert code_of(Refused, await at.put("a", "b", 3)) == "behind"
        assert isinstance(await at.put("a", "b", 2, anew=True), Placed)


@pytest.mark.parametrize(
    "limits",
    [
        GatewayLimits(receiver_messages=1),
        GatewayLimits(receiver_bytes=11),
        GatewayLimits(total_bytes=5 * ROW_BYTES + 11),
    ],
)
async def test_a_queue_and_the_whole_have_limits(maker: StoreMaker, limits: GatewayLimits) -> None:
    async with open_store(maker.again(), limits) as at:
        for name in "abc":
            await at.enter(name)
        assert isinstance(await at.put("a", "b", 1), Placed)
        assert code_of(Refused, await at.put("c", "b", 1)) == "full"


async def test_new_devices_are_refused_when_there_are_enough(maker: StoreMaker) -> None:
    async with open_store(maker.again(), GatewayLimits(max_devices=1)) as at:
        assert (await at.enter("a")).is_new
        assert isinstance(await at.store.enter(7, B, may_be_new=True), NoRoom)
        refused = await at.store.enter(8, B, may_be_new=False)
        assert isinstance(refused, NoRoom)
        assert refused.word == "address_devices"
        assert not (await at.enter("a")).is_new


async def test_only_listed_senders_reach_a_device_and_get_its_keys(at: OpenStore) -> None:
    await at.enter("c")
    listed = AllowSenders(request=1, senders=(A, A))
    assert await at.wait(lambda then: at.store.allow(at.keys["b"], listed, then)) == Done(request=1)
    await at.wait(lambda then: at.store.publish(at.keys["b"], Publish(request=2, bundle=b"keys"), then))
    assert isinstance(await at.put("a", "b", 1), Placed)
    unknown, unlisted = await at.put("c", "nobody", 1), await at.put("c", "b", 1)
    assert isinstance(unlisted, Refused)
    assert isinstance(unknown, Refused)
    assert (unknown.code, unknown.reason) == (unlisted.code, unlisted.reason) == ("unreachable", unlisted.reason)
    for name, expected in (("a", BundleReply), ("c", Denied)):
        assert isinstance((await at.fetch(name, "b")).answer, expected)
    assert (await at.fetch("c", "nobody")).answer == (await at.fetch("c", "b")).answer, "nobody can tell them apart"
    everyone = AllowSenders(request=3, senders=None)
    await at.wait(lambda then: at.store.allow(at.keys["b"], everyone, then))
    assert isinstance(await at.put("c", "b", 1, connection=102), Placed)


async def test_a_one_time_key_is_handed_out_once_even_if_it_is_published_again(at: OpenStore) -> None:
    async def publish(*keys: bytes) -> Done | Denied:
        request = Publish(request=1, bundle=b"bundle", one_time=keys)
        return await at.wait(lambda then: at.store.publish(at.keys["b"], request, then))

    async def fetch() -> tuple[bytes | None, int]:
        fetched = await at.fetch("a", "b")
        assert isinstance(fetched.answer, BundleReply)
        return fetched.answer.one_time, fetched.one_time_left

    assert await publish(b"k1", b"k2") == Done(request=1, one_time_left=2)
    assert [await fetch(), await fetch(), await fetch()] == [(b"k1", 1), (b"k2", 0), (None, 0)]
    assert await publish(b"k1", b"k3", b"k3") == Done(request=1, one_time_left=1)
    assert await asyncio.gather(fetch(), fetch()) == [(b"k3", 0), (None, 0)]


async def test_keys_have_limits(maker: StoreMaker) -> None:
    async with open_store(maker.again(), GatewayLimits(one_time_keys=2, key_bytes=20)) as at:
        await at.enter("b")
        for keys, bundle in (((b"1", b"2", b"3"), None), ((), bytes(21))):
            request = Publish(request=1, bundle=bundle, one_time=keys)
            denied = await at.wait(lambda then, request=request: at.store.publish(at.keys["b"], request, then))
            assert isinstance(denied, Denied)
            assert denied.code == "full"


async def test_the_newest_keys_take_the_place_of_the_oldest(maker: StoreMaker) -> None:
    """A device that was started often has forgotten the secret halves of its first keys."""
    async with open_store(maker.again(), GatewayLimits(one_time_keys=3)) as at:
        for name in ("a", "b"):
            await at.enter(name)

        async def publish(*keys: bytes, replace: bool = False) -> Done | Denied:
            request = Publish(request=1, bundle=b"bundle", one_time=keys, replace=replace)
            return await at.wait(lambda then: at.store.publish(at.keys["b"], request, then))

        async def fetch() -> bytes | None:
            fetched = await at.fetch("a", "b")
            assert isinstance(fetched.answer, BundleReply)
            return fetched.answer.one_time

        assert await publish(b"k1", b"k2") == Done(request=1, one_time_left=2)
        assert await publish(b"k3", b"k4") == Done(request=1, one_time_left=3)
        assert await fetch() == b"k2"
        assert await publish(b"k5", replace=True) == Done(request=1, one_time_left=1)
        assert [await fetch(), await fetch()] == [b"k5", None]


async def test_a_look_says_how_a_device_stands(at: OpenStore) -> None:
    await at.put("a", "b", 1)
    await at.leave(1)
    await at.put("a", "b", 2)
    assert [await at.store.look(id_of(name)) for name in ("a", "b", "nobody")] == [
        StoredDevice(connected=False, waiting=0, one_time_left=0),
        StoredDevice(connected=True, waiting=2, one_time_left=0),
        None,
    ]


async def test_what_nobody_fetches_is_deleted_and_its_sender_is_told_until_it_sends_again(maker: StoreMaker) -> None:
    clock = ManualClock()
    async with open_store(maker.again(), clock=clock) as at:
        await at.enter("a", connection=1)
        await at.enter("b", connection=2)
        for number in (1, 2):
            await at.put("a", "b", number)
        assert await cleaned(at) == []
        await at.leave(1)
        clock.advance(31 * DAY_S)
        assert await cleaned(at) == [], "its receiver is connected"
        await at.leave(2)
        clock.advance(DAY_S)
        notice = Expired(to=B, number=2, reason="not fetched for 30 days")
        assert await cleaned(at) == [CleanupResult(full=False, notices=((A, notice),), expired=2)]
        assert (await at.bodies("b"), at.store.size().messages) == ([], 0)
        assert (await at.enter("a")).expired == (notice,)
        assert (await at.enter("a")).expired == (notice,)
        await at.put("a", "b", 3)
        assert (await at.enter("a")).expired == ()


async def test_everything_old_is_forgotten_and_the_size_is_counted_right(maker: StoreMaker) -> None:
    clock = ManualClock()
    async with open_store(maker.again(), clock=clock) as at:
        await at.enter("a", connection=1)
        await at.enter("b", connection=2)
        keys = Publish(request=1, bundle=bytes(100), one_time=(b"k1", b"k2", b"k3"))
        await at.wait(lambda then: at.store.publish(at.keys["b"], keys, then))
        await at.fetch("a", "b")
        listed = AllowSenders(request=1, senders=(A,))
        await at.wait(lambda then: at.store.allow(at.keys["b"], listed, then))
        await at.put("a", "b", 1, b"message")
        # Two devices, three keys of which one is used, one on the list, one who sent, one message.
        held = 8 * ROW_BYTES + 100 + 2 * len(b"k1") + len(b"message")
        assert at.store.size() == StoreSize(2, 1, len(b"message"), held)
        for connection in (1, 2):
            await at.leave(connection)
    async with open_store(maker.again(), clock=clock) as at:
        await at.enter("c", connection=3)
        assert at.store.size() == StoreSize(3, 1, len(b"message"), held + ROW_BYTES)
        clock.advance(31 * DAY_S)
        await cleaned(at)
        clock.advance(31 * DAY_S)
        await cleaned(at)
        await at.enter("c", connection=4)
        assert at.store.size() == StoreSize(3, 0, 0, 6 * ROW_BYTES + 100 + 2 * len(b"k1"))
        clock.advance(366 * DAY_S)
        assert [step.devices for step in await cleaned(at)] == [1, 1]
        await at.enter("c", connection=5)
        assert at.store.size() == StoreSize(1, 0, 0, ROW_BYTES)
        assert [await at.store.look(id_of(name)) is None for name in "abc"] == [True, True, False]
