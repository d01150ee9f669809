"""Whether other devices are connected: who may know it, who is told, and what nobody can know."""

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from device_processes import DeviceProcesses, prepare
from gateway_stores import Kind, StoreMaker, empty_database, gateways_on, open_store
from gateways import GatewayProcess, gateway_at, id_of, link_to
from remit_relay.client.connection import DevicePresence, GatewayConnection, PresenceBook
from remit_relay.gateway.limits import GatewayLimits
from remit_relay.gateway.ports import PresencePair
from remit_relay.wire import Watch, encode_text, read_from_device, read_from_gateway
from waiting import eventually

A, B, C = id_of("a"), id_of("b"), id_of("c")


async def known(link: GatewayConnection, device: str, present: bool | None) -> None:
    await eventually(lambda: link.presence.of(device).present is present, f"{present}")


@asynccontextmanager
async def watching(url: str, *devices: str, **options: Any) -> AsyncGenerator[GatewayConnection]:
    async with link_to(url, "a", **options) as link:
        link.watch(devices)
        await link.publish()
        yield link


async def test_a_device_hears_when_another_comes_and_goes(tmp_path: Path) -> None:
    reports: list[tuple[str, bool | None]] = []
    async with gateway_at(tmp_path) as at, watching(at.url, B) as a:
        a.presence.listen(lambda device, now: reports.append((device, now.present)))
        for _ in range(2):
            async with link_to(at.url, "b"):
                await known(a, B, True)
            await known(a, B, False)
        assert a.presence.of(B).last_heard_ms is not None
    assert reports[:4] == [(B, True), (B, False)] * 2
    assert a.presence.of(B).present is None, "a device without a connection knows nothing"


async def test_only_those_hear_of_a_device_that_it_accepts_messages_from(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, watching(at.url, B, C) as a, link_to(at.url, "b") as b:
        await known(a, B, True)
        await b.allow((C,))
        await known(a, B, None)
        async with link_to(at.url, "c") as c:
            c.watch([B])
            await known(c, B, True)
            await known(a, C, True)
        await b.allow((A,))
        await known(a, B, True)
        a.watch([])
        await b.allow(())
        a.watch([C, B])
        await known(a, C, False)
        assert a.presence.of(B).present is not False


def test_the_frames_of_presence_are_read_as_they_are_written() -> None:
    assert read_from_device(encode_text(Watch(devices=(B,)))) == Watch(devices=(B,))
    text = b'{"type":"presence","devices":{"%s":true,"%s":null}}' % (A.encode(), B.encode())
    assert msgspec.to_builtins(read_from_gateway(text))["devices"] == {A: True, B: None}


def test_a_device_was_last_heard_from_when_it_wrote_or_was_last_there() -> None:
    now = 100
    book = PresenceBook(now_ms=lambda: now)
    book.note_message(B, 40)
    book.note_message(B, 30)
    assert book.of(B) == DevicePresence(last_heard_ms=40)
    book.reported({B: False})
    assert book.of(B) == DevicePresence(present=False, last_heard_ms=40)
    book.reported({B: True})
    now = 200
    book.note_message(C, 500)  # its clock is ahead
    book.lose()
    assert (book.of(B), book.of(C)) == (DevicePresence(last_heard_ms=200), DevicePresence(last_heard_ms=200))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_stores_tell_presence_to_those_who_may_know(kind: Kind, tmp_path: Path) -> None:
    maker = StoreMaker(kind, tmp_path, await empty_database() if kind == "postgres" else "")
    pairs = [PresencePair(A, B), PresencePair(C, B), PresencePair(A, C), PresencePair(A, id_of("nobody"))]
    async with open_store(maker.again()) as at:
        for name in "abc":
            await at.enter(name)
        await at.allow("b", (A,))
        reported = await at.presence(pairs)
        # None of them is connected to another gateway.
        assert reported == {PresencePair(A, B): False, PresencePair(A, C): False}
        if kind == "postgres":
            async with open_store(maker.again()) as other:
                assert await other.presence(pairs) == dict.fromkeys(reported, True)


async def test_a_device_at_another_gateway_is_present_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit_relay.gateway.server.SWEEP_S", 0.05)
    async with gateways_on(await empty_database(), 2) as (one, other), watching(one, B) as a:
        async with link_to(other, "b"):
            await known(a, B, True)
        await known(a, B, False)


async def test_a_device_that_stands_still_is_not_present(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit_relay.gateway.server.SWEEP_S", 0.05)
    anna, _ = prepare(tmp_path)
    limits = GatewayLimits(idle_s=7.0)  # a device sends a ping every 5 s
    async with (
        gateway_at(tmp_path / "gateway", limits) as at,
        DeviceProcesses(tmp_path) as devices,
        watching(at.url, anna, ping_s=1.0) as a,
    ):
        await devices.start("anna", at.url)
        await known(a, anna, True)
        await devices.signal("anna", signal.SIGSTOP)
        await known(a, anna, False)
        await devices.signal("anna", signal.SIGCONT)
        await known(a, anna, True)


async def test_while_a_gateway_stands_still_the_presence_of_others_is_unknown(tmp_path: Path) -> None:
    async with GatewayProcess(tmp_path) as gateway:
        url = await gateway.start()
        async with watching(url, B, ping_s=0.05, silence_s=60.0) as a, link_to(url, "b", silence_s=60.0):
            await known(a, B, True)
            await gateway.pause()
            await known(a, B, None)
            assert a.status.state == "silent"
            await gateway.resume()
            await known(a, B, True)
