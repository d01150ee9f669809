"""What one device seals, the other opens, through a gateway that is there or not."""

import asyncio
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from devices import gateway, introduce, linked, sealer
from remit.ports import StoreError
from remit.ports.keys import HubKeys
from remit.protocol.errors import Code, Fault, fault
from remit.runtime.clock import sleep_to_tick
from remit_relay.client import delivery as post_module
from remit_relay.client.connection import GatewayConnection
from remit_relay.client.delivery import MOST_KEYS, KeyPublisher, MessageDelivery
from remit_relay.device.state import DeviceFile, FileChanges
from remit_relay.e2e import channel as seal_module
from remit_relay.e2e import inbox as receiving_module
from remit_relay.e2e.account import Device, keep_account, load_account
from remit_relay.e2e.channel import Loss, MessageCipher, Opened
from waiting import PATIENCE_S, eventually, no_longer

# A device forgets its oldest keys at the 101st start.
STARTS = 300 if "REMIT_KILLS" in os.environ else 120


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post_module, "TELL_S", 0.05)
    monkeypatch.setattr(post_module, "AGAIN_S", 0.2)


async def taken(post: MessageDelivery, count: int) -> list[Opened]:
    messages: list[Opened] = []
    async with asyncio.timeout(PATIENCE_S):
        async for opened in post:
            await post.taken(opened)
            messages.append(opened)
            if len(messages) == count:
                break
    return messages


@pytest.fixture
def pair(tmp_path: Path) -> tuple[MessageCipher, MessageCipher]:
    anna, bob = sealer(tmp_path, "anna"), sealer(tmp_path, "bob")
    introduce(anna, bob)
    return anna, bob


async def test_a_device_with_nothing_to_tell_waits_until_a_message_comes(
    tmp_path: Path, pair: tuple[MessageCipher, MessageCipher], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[FileChanges] = []

    class CountedChanges(FileChanges):
        def look(self) -> bool:
            looks.append(self)
            return super().look()

    async def is_quiet() -> bool:
        before = len(looks)
        for _ in range(5):
            await sleep_to_tick(post_module.TELL_S)
        return len(looks) == before

    monkeypatch.setattr(post_module, "FileChanges", CountedChanges)
    anna, bob = pair
    async with gateway(tmp_path) as serving, linked(anna, serving.url) as one, linked(bob, serving.url) as two:
        for number in range(2):
            await eventually(is_quiet)
            looks.clear()
            await one.send(bob.device.id, f"{number}".encode())
            assert [each.body for each in await taken(two, 1)] == [f"{number}".encode()]
            await eventually(lambda: len(looks) >= 2)


async def test_who_is_away_gets_it_later_and_so_does_whose_gateway_is(
    tmp_path: Path, pair: tuple[MessageCipher, MessageCipher]
) -> None:
    anna, bob = pair
    async with gateway(tmp_path) as serving:
        port = int(serving.url.rpartition(":")[2])
        async with linked(bob, serving.url) as two:  # its keys have to be there once
            await eventually(lambda: two._link.one_time_left)  # pyright: ignore[reportPrivateUsage]
        async with linked(anna, serving.url) as one:
            await one.send(bob.device.id, b"while you are away")
            await no_longer(lambda: one.do(anna.outbox))
            await no_longer(lambda: one.do(anna.wanting))
    async with linked(anna, f"ws://127.0.0.1:{port}") as one, linked(bob, f"ws://127.0.0.1:{port}") as two:
        await one.send(bob.device.id, b"while nobody is there")
        async with gateway(tmp_path, port):
            came = await taken(two, 2)
    assert [each.body for each in came] == [b"while you are away", b"while nobody is there"]


async def test_what_was_not_taken_comes_again_after_a_restart(
    tmp_path: Path, pair: tuple[MessageCipher, MessageCipher]
) -> None:
    anna, bob = pair
    async with gateway(tmp_path) as serving, linked(anna, serving.url) as one:
        async with linked(bob, serving.url) as two:
            await one.send(bob.device.id, b"first")
            async with asyncio.timeout(PATIENCE_S):
                async for opened in two:
                    assert opened.body == b"first"
                    break
        async with linked(bob, serving.url) as two:
            await one.send(bob.device.id, b"second")
            assert [each.body for each in await taken(two, 2)] == [b"first", b"second"]


async def test_who_cannot_be_reached_is_told_about_and_tried_again(
    tmp_path: Path, pair: tuple[MessageCipher, MessageCipher]
) -> None:
    anna, bob = pair
    troubles: list[tuple[str, Fault | None]] = []
    async with (
        gateway(tmp_path) as serving,
        linked(anna, serving.url, trouble=lambda device, why: troubles.append((device, why))) as one,
    ):
        await one.send(bob.device.id, b"hello?")
        await eventually(lambda: troubles)
        device, why = troubles[0]
        assert device == bob.device.id
        assert why is not None
        assert why.code is Code.DELEGATION_UNAVAILABLE
        async with linked(bob, serving.url) as two:
            assert [each.body for each in await taken(two, 1)] == [b"hello?"]
    assert troubles[-1] == (bob.device.id, None)


async def test_a_device_that_was_put_back_goes_on(tmp_path: Path, pair: tuple[MessageCipher, MessageCipher]) -> None:
    """What was lost is lost and said; what comes after it arrives."""
    anna, bob = pair
    async with gateway(tmp_path) as serving:
        async with linked(anna, serving.url) as one, linked(bob, serving.url) as two:
            await one.send(bob.device.id, b"one")
            await taken(two, 1)
        old = DeviceFile.open(tmp_path / "copy.db", HubKeys(b"bob" * 8), "process")
        old.close()
        (tmp_path / "copy.db").write_bytes(_copied(bob, tmp_path / "snapshot.db"))
        async with linked(anna, serving.url) as one, linked(bob, serving.url) as two:
            for each in (b"two", b"three"):
                await one.send(bob.device.id, each)
            await taken(two, 2)
        restored = MessageCipher(_loaded(DeviceFile.open(tmp_path / "copy.db", HubKeys(b"bob" * 8), "process")))
        async with linked(anna, serving.url) as one, linked(restored, serving.url) as two:
            await one.send(bob.device.id, b"four")
            bodies = [each.body for each in await taken(two, 1)]
            while bodies[-1] != b"four":
                bodies += [each.body for each in await taken(two, 1)]
    assert restored.losses(anna.device.id) or bodies == [b"two", b"three", b"four"]


async def test_a_device_that_was_put_back_gets_what_it_misses_although_nobody_speaks(
    tmp_path: Path, pair: tuple[MessageCipher, MessageCipher], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its sender still holds comes again; of what that let go, both learn how much is lost."""
    monkeypatch.setattr(seal_module, "ASKED_MS", 0)
    anna, bob = pair
    async with gateway(tmp_path) as serving, linked(anna, serving.url) as one:
        async with linked(bob, serving.url) as two:
            await one.send(bob.device.id, b"one")
            await taken(two, 1)
            await two.send(anna.device.id, b"thanks")
            await taken(one, 1)
        (tmp_path / "copy.db").write_bytes(_copied(bob, tmp_path / "snapshot.db"))
        async with linked(bob, serving.url) as two:
            await one.send(bob.device.id, b"two")
            await taken(two, 1)
            await no_longer(lambda: one.do(anna.unsettled, bob.device.id))
            monkeypatch.setattr(bob, "acknowledge", _silent)
            await one.send(bob.device.id, b"three")
            await taken(two, 1)
            assert await one.do(anna.unsettled, bob.device.id) == 1
        restored = MessageCipher(_loaded(DeviceFile.open(tmp_path / "copy.db", HubKeys(b"bob" * 8), "process")))
        async with linked(restored, serving.url) as two:
            assert [each.body for each in await taken(two, 1)] == [b"three"]
            lost = await eventually(lambda: one.do(anna.losses, bob.device.id))
    assert lost == [Loss(peer=bob.device.id, forgot="there", direction="out", count=1)]
    assert restored.losses(anna.device.id) == [Loss(peer=anna.device.id, forgot="here", direction="in", count=1)]


def _silent(*_: object, **__: object) -> bool:
    return False


def _loaded(state: DeviceFile) -> Device:
    device = Device.load(state)
    assert device is not None
    return device


def _copied(sealer: MessageCipher, to: Path) -> bytes:
    """Return the device's file as it is now."""
    import sqlite3

    with closing(sqlite3.connect(sealer.device.state.path)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
    return to.read_bytes()


def once(monkeypatch: pytest.MonkeyPatch, sealer: MessageCipher, name: str) -> list[int]:
    """Have a method of the sealer fail the first time, as while a disk is full; return how often it was called."""
    calls: list[int] = []
    real = getattr(sealer, name)

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise StoreError(fault(Code.STORE_UNAVAILABLE, "the disk is full"))
        return real(*args, **kwargs)

    monkeypatch.setattr(sealer, name, failing)
    return calls


@pytest.mark.parametrize("name", ["sent", "outbox", "wanting", "open", "begin"])
async def test_a_store_that_cannot_write_for_a_while_stops_nothing_for_good(
    tmp_path: Path, pair: tuple[MessageCipher, MessageCipher], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    anna, bob = pair
    async with gateway(tmp_path) as serving, linked(bob, serving.url) as two:
        failed = once(monkeypatch, bob if name == "open" else anna, name)
        async with linked(anna, serving.url) as one:
            await one.send(bob.device.id, b"first")
            assert [each.body for each in await taken(two, 1)] == [b"first"]
            await one.send(bob.device.id, b"second")
            assert [each.body for each in await taken(two, 1)] == [b"second"]
    assert len(failed) > 1


async def test_one_to_whom_nothing_may_be_said_any_more_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    anna, bob, carl = (sealer(tmp_path, name) for name in ("anna", "bob", "carl"))
    introduce(anna, bob)
    introduce(anna, carl)
    async with gateway(tmp_path) as serving, linked(bob, serving.url), linked(carl, serving.url) as third:
        await asyncio.to_thread(anna.seal, bob.device.id, b"too late")
        anna.peers.allow(bob.device.id, allowed=False)
        async with linked(anna, serving.url) as one:
            await one.send(carl.device.id, b"hello")
            assert [each.body for each in await taken(third, 1)] == [b"hello"]


async def test_a_device_that_sends_what_cannot_be_taken_yet_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    """It says that much came before, and that never comes: what others send does not wait for it."""
    anna, bob, carol = (sealer(tmp_path, name) for name in ("anna", "bob", "carol"))
    introduce(anna, bob)
    introduce(carol, bob)
    async with (
        gateway(tmp_path) as serving,
        linked(anna, serving.url) as hostile,
        linked(carol, serving.url) as honest,
        linked(bob, serving.url) as post,
    ):
        await hostile.send(bob.device.id, b"first")
        await taken(post, 1)
        await hostile.do(_skip, anna, bob.device.id, 40)
        for number in range(3):
            await hostile.send(bob.device.id, b"too early %d" % number)
        await hostile.emptied()
        await honest.send(bob.device.id, b"from carol")
        came = [each.body for each in await taken(post, 4)]
        came.remove(b"from carol")
        assert came == [b"too early %d" % number for number in range(3)], "it is asked for what it still holds"


async def test_a_device_of_which_too_much_waits_keeps_nobody_else_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving_module, "MAX_INBOX", 4)
    anna, bob, carol = (sealer(tmp_path, name) for name in ("anna", "bob", "carol"))
    introduce(anna, bob)
    introduce(carol, bob)
    async with (
        gateway(tmp_path) as serving,
        linked(anna, serving.url) as flooding,
        linked(carol, serving.url) as honest,
        linked(bob, serving.url) as post,
    ):
        for number in range(20):
            await flooding.send(bob.device.id, b"%d" % number)
        await flooding.emptied()
        coming = aiter(post)
        async with asyncio.timeout(PATIENCE_S):
            left = [await anext(coming) for _ in range(4)]  # nobody takes them
            await honest.send(bob.device.id, b"from carol")
            assert (await anext(coming)).body == b"from carol"
        for each in left:
            await post.taken(each)
        rest = [each.body for each in await taken(post, 16)]
        assert rest == [b"%d" % number for number in range(4, 20)], "in order, and none is lost"


def _skip(sealer: MessageCipher, device: str, pieces: int) -> None:
    """Have a device go on as if it had sent so many pieces more."""
    sender = sealer._sender  # pyright: ignore[reportPrivateUsage]
    with sealer.device.state.writing():
        row, _ = sealer.peers.row(device)
        line = sender.streams(row)
        sender.keep(row, structs.replace(line, out=structs.replace(line.out, next=line.out.next + pieces)))


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_devices_that_were_started_often_before_they_met_can_talk(
    tmp_path: Path, pair: tuple[MessageCipher, MessageCipher]
) -> None:
    """Each start left 50 more keys, the gateway handed out the oldest, and devices forget the oldest of 5,000."""
    async with gateway(tmp_path) as serving:
        for each in pair:
            for _ in range(STARTS):
                link = GatewayConnection(serving.url, gateway="g", key=each.device)
                async with link, asyncio.timeout(PATIENCE_S):
                    await KeyPublisher(each.device, link, asyncio.to_thread).publish()
                    assert link.one_time_left == MOST_KEYS
        anna, bob = pair
        async with linked(anna, serving.url) as one, linked(bob, serving.url) as two:
            await one.send(bob.device.id, b"at last")
            assert [each.body for each in await taken(two, 1)] == [b"at last"]
            await two.send(anna.device.id, b"hello")
            assert [each.body for each in await taken(one, 1)] == [b"hello"]


async def test_a_session_that_cannot_be_opened_is_mended_though_both_sides_have_lost_their_keys(
    tmp_path: Path, pair: tuple[MessageCipher, MessageCipher], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both gave their keys to the gateway and were then restored from a backup that does not know them."""
    async with gateway(tmp_path) as serving:
        for each in pair:
            before = load_account(each.device.state)
            async with linked(each, serving.url) as post:
                await eventually(lambda post=post: post.one_time_left == MOST_KEYS)
            with each.device.state.writing():
                keep_account(each.device.state, before)
        # They know it only from what they are sent.
        monkeypatch.setattr(KeyPublisher, "are_few", False)
        monkeypatch.setattr("remit_relay.client.delivery.KeyPublisher.publish", silent_at_first(KeyPublisher.publish))
        anna, bob = pair
        async with linked(anna, serving.url) as one, linked(bob, serving.url) as two:
            await one.send(bob.device.id, b"for bob")
            await two.send(anna.device.id, b"for anna")
            assert [each.body for each in await taken(two, 1)] == [b"for bob"]
            assert [each.body for each in await taken(one, 1)] == [b"for anna"]


def silent_at_first(publish: Any) -> Any:
    """Return the method, without the publishing of a start, which would put a good fallback key in place."""

    async def wanted(keys: KeyPublisher, *, replace: bool = False) -> None:
        if replace:
            await publish(keys, replace=True)

    return wanted
