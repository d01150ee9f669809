"""Whoever speaks to a gateway by hand, and badly: it is cut off, the gateway stays small, and others go on."""

import asyncio
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from gateways import NAME, client_at, code_of, gateway_at, id_of, pair_of
from remit_relay.gateway.limits import GatewayLimits
from remit_relay.gateway.listener import GatewayListener
from remit_relay.wire import (
    MAX_ALLOWED,
    MAX_FRAME,
    PATH,
    AllowSenders,
    Bye,
    Challenge,
    Delivery,
    Done,
    FromGateway,
    Hello,
    Publish,
    Welcome,
    encode_text,
    read_from_gateway,
    signed_text,
)
from remit_server.transports.credentials.keys import raw
from remit_testing import ManualClock
from waiting import PATIENCE_S, eventually, no_longer

CONTINUED, TEXT, BINARY, CLOSE, PING = 0, 1, 2, 8, 9
UPGRADE = (
    f"GET {PATH} HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
).encode()


def framed(
    opcode: int, payload: bytes = b"", *, last: bool = True, reserved: int = 0, says: int | None = None
) -> bytes:
    """A frame as a client sends it, masked with zeros; it may say that it is longer than it is."""
    size = len(payload) if says is None else says
    head = bytes((opcode | reserved | (0x80 if last else 0),))
    if size < 126:
        head += bytes((0x80 | size,))
    elif size < 65_536:
        head += bytes((0x80 | 126,)) + struct.pack("!H", size)
    else:
        head += bytes((0x80 | 127,)) + struct.pack("!Q", size)
    return head + bytes(4) + payload


class Rough:
    """A connection of which every byte is written by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def hear(self) -> FromGateway:
        async with asyncio.timeout(PATIENCE_S):
            _, size = await self.reader.readexactly(2)
            if size == 126:
                (size,) = struct.unpack("!H", await self.reader.readexactly(2))
            return read_from_gateway(await self.reader.readexactly(size))

    def hello(self, challenge: FromGateway, name: str) -> bytes:
        assert isinstance(challenge, Challenge)
        pair = pair_of(name)
        text = signed_text(gateway=NAME, nonce=challenge.nonce, device=id_of(name))
        return framed(TEXT, encode_text(Hello(public=raw(pair.public), signature=pair.sign(text))))

    async def pour(self, data: bytes, times: int) -> None:
        """Send something again and again, as long as it is taken."""
        with suppress(OSError):
            for _ in range(times):
                self.writer.write(data)
                await self.writer.drain()

    async def is_cut_off(self) -> bool:
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):
                while await self.reader.read(65_536):
                    pass
        return True


@asynccontextmanager
async def rough(at: GatewayListener) -> AsyncGenerator[Rough]:
    host, port = at.url.removeprefix("ws://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
        yield Rough(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def unaffected(at: GatewayListener) -> AsyncGenerator[None]:
    """Two devices that are there before and after."""
    async with client_at(at.url, "a") as a, client_at(at.url, "b") as b:
        yield
        await a.put(id_of("b"), 1, b"still here")
        delivery = await b.hear()
        assert isinstance(delivery, Delivery)
        assert delivery.body == b"still here"
    await no_longer(at.gateway.connected)


NONSENSE = {
    "a frame that says it is endless": framed(BINARY, says=2**62) + bytes(100_000),
    "a frame that is too large": framed(BINARY, says=MAX_FRAME + 1) + bytes(100_000),
    "half a character": framed(TEXT, b'{"type":"\xc3\x28"}'),
    "no character": framed(TEXT, b"\xff\xfe"),
    "very deep": framed(TEXT, b"[" * 100_000),
    "a very long number": framed(TEXT, b"1" * 100_000),
    "a number that is none": framed(TEXT, b'{"type":"ack","place":1e999}'),
    "a place below all": framed(TEXT, b'{"type":"ack","place":-1}'),
    "what is not agreed on": framed(TEXT, b"{}", reserved=0x40),
    "a kind that there is not": framed(3, b"x"),
    "a control frame in pieces": framed(PING, b"x", last=False),
    "the second piece first": framed(CONTINUED, b"x"),
    "a piece within another": framed(TEXT, b"{", last=False) + framed(TEXT, b"}"),
    "a ping that is too long": framed(PING, bytes(126)),
    "a reason that is none": framed(CLOSE, b"x"),
    "pieces without an end": framed(BINARY, bytes(60_000), last=False)
    + 10 * framed(CONTINUED, bytes(60_000), last=False),
}


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE.keys())
@pytest.mark.parametrize("known", [False, True], ids=["stranger", "device"])
async def test_who_talks_nonsense_is_cut_off_and_others_go_on(tmp_path: Path, nonsense: bytes, known: bool) -> None:
    async with gateway_at(tmp_path, GatewayLimits(closing_s=0.1)) as at, unaffected(at), rough(at) as one:
        challenge = await one.hear()
        if known:
            one.writer.write(one.hello(challenge, "rough"))
            assert isinstance(await one.hear(), Welcome)
        await one.pour(nonsense, 1)
        assert await one.is_cut_off()


async def test_a_greeting_that_was_overheard_is_of_no_use(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, unaffected(at), rough(at) as one, rough(at) as other:
        overheard = one.hello(await one.hear(), "a")
        await other.hear()
        other.writer.write(overheard)
        assert code_of(Bye, await other.hear()) == "unauthenticated"


async def test_a_greeting_is_not_good_for_looking_nor_the_other_way_round(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, rough(at) as one:
        challenge = await one.hear()
        assert isinstance(challenge, Challenge)
        text = signed_text(gateway=NAME, nonce=challenge.nonce, device=id_of("a"), looks=True)
        hello = Hello(public=raw(pair_of("a").public), signature=pair_of("a").sign(text))
        one.writer.write(framed(TEXT, encode_text(hello)))
        assert code_of(Bye, await one.hear()) == "unauthenticated"


async def test_what_is_sent_before_the_greeting_is_not_kept(tmp_path: Path) -> None:
    async with gateway_at(tmp_path) as at, unaffected(at), rough(at) as one, asyncio.TaskGroup() as group:
        group.create_task(one.pour(framed(BINARY, bytes(200_000)), 200))
        group.create_task(one.is_cut_off())


async def test_pings_count_like_anything_else(tmp_path: Path) -> None:
    """A device that floods its gateway with them is read more slowly, and gets its answers."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    limits = GatewayLimits(frames_per_s=10, frames_burst=5)
    async with gateway_at(tmp_path, limits, clock=ManualClock(), sleep=sleep) as at, rough(at) as one:
        one.writer.write(one.hello(await one.hear(), "rough"))
        await one.hear()
        one.writer.write(framed(PING, b"x") * 8)
        async with asyncio.timeout(PATIENCE_S):
            assert await one.reader.readexactly(3 * 8) == b"\x8a\x01x" * 8
        await eventually(lambda: len(waited) >= 3)
    assert waited == pytest.approx([0.1, 0.2, 0.3])


async def test_a_long_list_counts_for_as_much_as_it_takes_to_write_it(tmp_path: Path) -> None:
    """Else one device that sends its list again and again keeps all others waiting for the disk."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    limits = GatewayLimits(frames_per_s=100, frames_burst=1_000)
    async with (
        gateway_at(tmp_path, limits, clock=ManualClock(), sleep=sleep) as at,
        client_at(at.url, "a") as a,
    ):
        everyone = tuple(id_of(str(number)) for number in range(MAX_ALLOWED))
        await a.say(AllowSenders(request=1, senders=everyone))
        assert isinstance(await a.hear(), Done)
        await a.say(Publish(request=2, one_time=tuple(b"%d" % number for number in range(100))))
        assert isinstance(await a.hear(), Done)
        await a.say(Publish(request=3))
        assert isinstance(await a.hear(), Done)
    assert waited == pytest.approx([0.2, 1.4, 1.6])
