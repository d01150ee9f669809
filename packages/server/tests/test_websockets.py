"""WebSockets, as a server reads and writes them: RFC 6455 against bytes that are written by hand."""

import asyncio
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from properties import share
from remit_server.websockets import (
    BINARY,
    CLOSE,
    CONTINUATION,
    MOST_UNREAD,
    NORMAL,
    PING,
    PONG,
    PROTOCOL_ERROR,
    TEXT,
    TOO_BIG,
    SocketMessage,
    WebSocket,
)
from written_transport import WrittenTransport

MOST = 2_000


def opened(closing_s: float = 60) -> tuple[WebSocket, WrittenTransport]:
    wire = WrittenTransport()
    return WebSocket(wire, max_message=MOST, closing_s=closing_s), wire


def framed(kind: int, payload: bytes = b"", *, last: bool = True, mask: bytes = b"\1\2\3\4") -> bytes:
    """A frame of a client."""
    size = len(payload)
    head = bytes((kind | (0x80 if last else 0),))
    if size < 126:
        head += bytes((0x80 | size,))
    elif size < 65_536:
        head += struct.pack("!BH", 0x80 | 126, size)
    else:
        head += struct.pack("!BQ", 0x80 | 127, size)
    return head + mask + bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))


async def received(socket: WebSocket, count: int) -> list[SocketMessage | None]:
    return [await socket.receive() for _ in range(count)]


KINDS = st.sampled_from((TEXT, BINARY))
MASKS = st.binary(min_size=4, max_size=4)


@share(1)
@given(
    messages=st.lists(st.tuples(KINDS, st.binary(max_size=MOST), MASKS, st.integers(1, MOST)), max_size=4),
    piece=st.integers(1, 5_000),
)
def test_whatever_pieces_a_message_comes_in_it_is_the_same(
    messages: list[tuple[int, bytes, bytes, int]], piece: int
) -> None:
    sent = b""
    for kind, payload, mask, size in messages:
        parts = [payload[at : at + size] for at in range(0, len(payload), size)] or [b""]
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            sent += framed(kind if not number else CONTINUATION, part, last=is_last, mask=mask)
            sent += framed(PONG, b"between")

    async def read() -> list[SocketMessage | None]:
        socket, wire = opened()
        for at in range(0, len(sent), piece):
            socket.data_received(sent[at : at + piece])
        socket.connection_lost(None)
        assert wire.written == b""
        return await received(socket, len(messages) + 1)

    assert asyncio.run(read()) == [*(SocketMessage(kind, payload) for kind, payload, *_ in messages), None]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (framed(BINARY, bytes(MOST + 1))[:4], TOO_BIG),
        (framed(BINARY, bytes(MOST), last=False) + framed(CONTINUATION, b"x"), TOO_BIG),
        (framed(TEXT, b"x", last=False) + framed(TEXT, b"x"), PROTOCOL_ERROR),
        (framed(CONTINUATION, b"x"), PROTOCOL_ERROR),
        (framed(PING, bytes(126)), PROTOCOL_ERROR),
        (framed(PING, b"x", last=False), PROTOCOL_ERROR),
        (framed(CLOSE, b"x"), PROTOCOL_ERROR),
        (framed(0x3, b"x"), PROTOCOL_ERROR),
        (framed(0x40 | TEXT, b"x"), PROTOCOL_ERROR),
        (b"\x81\x01x" + bytes(8), PROTOCOL_ERROR),
    ],
    ids=[
        "too large",
        "too large in two parts",
        "a message within another",
        "a part of nothing",
        "a long ping",
        "a ping in parts",
        "half a status",
        "an unknown kind",
        "an extension",
        "not masked",
    ],
)
async def test_a_client_that_violates_the_protocol_is_told_and_not_read_any_more(sent: bytes, status: int) -> None:
    socket, wire = opened(closing_s=0)
    socket.data_received(sent)
    socket.data_received(framed(TEXT, b"more"))
    assert await socket.receive() is None
    assert wire.written == b"\x88\x02" + struct.pack("!H", status)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert wire.is_aborted


async def test_a_client_that_closes_gets_its_status_back_and_what_it_sent_before_is_read() -> None:
    socket, wire = opened()
    socket.data_received(framed(TEXT, b"last") + framed(CLOSE, struct.pack("!H", 1001)) + framed(TEXT, b"late"))
    assert await received(socket, 2) == [SocketMessage(TEXT, b"last"), None]
    assert wire.written == b"\x88\x02" + struct.pack("!H", 1001)
    assert wire.is_closed


async def test_closing_lasts_until_the_client_agrees() -> None:
    socket, wire = opened()
    closing = asyncio.ensure_future(socket.close())
    await asyncio.sleep(0)
    socket.data_received(framed(TEXT, b"late"))
    assert not closing.done()
    socket.data_received(framed(CLOSE, struct.pack("!H", NORMAL)))
    await closing
    assert wire.written == b"\x88\x02" + struct.pack("!H", NORMAL)
    assert wire.is_closed
    with pytest.raises(ConnectionResetError):
        await socket.send(TEXT, b"too late")


async def test_a_client_is_read_only_as_fast_as_its_messages_are_taken() -> None:
    socket, wire = opened()
    count = 0
    while not wire.is_paused:
        socket.data_received(framed(BINARY, bytes(1_000)))
        count += 1
    assert count * 1_000 <= MOST_UNREAD < (count + 1) * 1_100
    await received(socket, count // 2 + 1)
    assert not wire.is_paused


async def test_empty_messages_count_as_well() -> None:
    socket, wire = opened()
    count = 0
    while not wire.is_paused:
        socket.data_received(framed(PING))
        count += 1
    assert count < 2_000


async def test_a_sender_waits_for_a_client_that_does_not_read() -> None:
    socket, _ = opened()
    socket.pause_writing()
    sending = asyncio.ensure_future(socket.send(TEXT, b"x"))
    await asyncio.sleep(0)
    assert not sending.done()
    socket.connection_lost(None)
    await sending


async def test_a_client_that_is_silent_between_two_pings_is_disconnected() -> None:
    socket, wire = opened()
    socket.watch(60)
    assert wire.written == b"\x89\x00"
    socket.data_received(framed(PONG))
    socket.watch(60)
    assert wire.written == b"\x89\x00" * 2
    assert not wire.is_aborted
    socket.watch(60)
    assert wire.is_aborted


async def test_long_messages_are_written_as_the_rfc_says() -> None:
    socket, wire = opened()
    for size in (125, 126, 65_535, 65_536):
        wire.written = b""
        await socket.send(BINARY, bytes(size))
        head = {125: b"\x82\x7d", 126: b"\x82\x7e\x00\x7e", 65_535: b"\x82\x7e\xff\xff"}
        assert wire.written == head.get(size, b"\x82\x7f" + (65_536).to_bytes(8)) + bytes(size)
