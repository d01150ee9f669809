"""The rendezvous of a gateway: two devices that do not know each other yet exchange a few notes in a mailbox.

A mailbox has one visitor ever. What the two tell each other is sealed, or proves nothing without the rest of their
code; the gateway counts, bounds and forwards it. See `relay.pairing`.
"""

import asyncio
import logging
import secrets
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from remit.stores.database import NOW_MS, Query, SqlConnection
from remit_relay.gateway.limits import Addresses, GatewayLimits
from remit_relay.gateway.ports import ENDED_S, MailboxContent, Mailboxes, MailboxSide
from remit_relay.pairing.code import FIRST_MAILBOX, LAST_MAILBOX
from remit_relay.pairing.exchange import (
    MAX_NOTES,
    VERSION,
    EndCode,
    JoinMailbox,
    MailboxEnded,
    MailboxJoined,
    MailboxNote,
    MailboxOpened,
    OpenMailbox,
    RendezvousGreeting,
    read_from_pairing,
)
from remit_relay.wire import Malformed, encode_text
from remit_server.websockets import NORMAL, PING, PONG, TEXT, WebSocket

# ── mailboxes ─────────────────────────────────────────────────────────────────────────────────────────────────────────

# With a thousand mailboxes, a number is taken with a probability of one in nine.
NUMBER_TRIES = 20

_DROP = f"DELETE FROM remit_gateway.mailbox WHERE until_ms <= {NOW_MS}"
_DROP_NOTES = """
    DELETE FROM remit_gateway.note WHERE NOT EXISTS (SELECT 1 FROM remit_gateway.mailbox WHERE number = note.mailbox)
"""
_OPEN = f"""
    INSERT INTO remit_gateway.mailbox (number, is_joined, is_ended, until_ms)
    SELECT $1::integer, false, false, {NOW_MS} + $2::bigint
    WHERE (SELECT count(*) FROM remit_gateway.mailbox) < $3::bigint ON CONFLICT (number) DO NOTHING RETURNING number
"""
_JOIN = f"""
    UPDATE remit_gateway.mailbox SET is_joined = true, until_ms = {NOW_MS} + $2::bigint
    WHERE number = $1 AND NOT is_joined AND NOT is_ended AND until_ms > {NOW_MS} RETURNING number
"""
_PUT = """
    INSERT INTO remit_gateway.note (mailbox, side, place, body)
    SELECT number, $2, $3, $4 FROM remit_gateway.mailbox WHERE number = $1 AND NOT is_ended
    ON CONFLICT DO NOTHING
"""
_END = f"""
    UPDATE remit_gateway.mailbox SET is_ended = true, until_ms = least(until_ms, {NOW_MS} + $2::bigint)
    WHERE number = $1
"""
_BOXES = f"SELECT number, is_ended FROM remit_gateway.mailbox WHERE number = ANY ($1) AND until_ms > {NOW_MS}"
_NOTES = "SELECT mailbox, side, body FROM remit_gateway.note WHERE mailbox = ANY ($1) ORDER BY mailbox, side, place"


class SqlMailboxes:
    """`Mailboxes` in the store of a gateway. *run* runs a query there, once the store is open; it raises `OSError`."""

    def __init__(self, run: Callable[[Query[Any]], Awaitable[Any]], *, is_shared: bool) -> None:
        self._run = run
        self.is_shared = is_shared

    async def open_mailbox(self, most: int, seconds: float) -> int | None:
        async def insert(database: SqlConnection) -> int | None:
            await database.execute(_DROP)
            await database.execute(_DROP_NOTES)
            for _ in range(NUMBER_TRIES):
                number = FIRST_MAILBOX + secrets.randbelow(LAST_MAILBOX - FIRST_MAILBOX + 1)
                if (opened := await database.fetchval(_OPEN, number, _ms(seconds), most)) is not None:
                    return opened
            return None

        return await self._run(insert)

    async def join_mailbox(self, number: int, seconds: float) -> bool:
        return await self._run(lambda database: database.fetchval(_JOIN, number, _ms(seconds))) is not None

    async def put_note(self, number: int, side: MailboxSide, place: int, body: bytes) -> None:
        await self._run(lambda database: database.execute(_PUT, number, side, place, body))

    async def end_mailbox(self, number: int) -> None:
        await self._run(lambda database: database.execute(_END, number, _ms(ENDED_S)))

    async def read_mailboxes(self, numbers: Iterable[int]) -> Mapping[int, MailboxContent]:
        ids = list(numbers)

        async def read(database: SqlConnection) -> Mapping[int, MailboxContent]:
            # First whether it has ended: then all its notes are there.
            ended = {number: bool(is_ended) for number, is_ended in await database.fetch(_BOXES, ids)}
            notes: defaultdict[tuple[int, str], list[bytes]] = defaultdict(list)
            for mailbox, side, body in await database.fetch(_NOTES, list(ended)):
                notes[mailbox, side].append(bytes(body))
            return {
                number: MailboxContent(tuple(notes[number, "host"]), tuple(notes[number, "guest"]), is_ended)
                for number, is_ended in ended.items()
            }

        return await self._run(read)


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)


# ── the rendezvous ────────────────────────────────────────────────────────────────────────────────────────────────────

# How soon a note that came through another gateway is found, and how soon an expired mailbox is noticed elsewhere.
SHARED_POLL_S = 0.2
POLL_S = 1.0
# A device whose network is gone is noticed after twice this time at most.
HEARTBEAT_S = 20.0

ENDS: dict[EndCode, str] = {
    "unknown": "no device waits under this code: it is wrong, used, or expired",
    "left": "the other device has gone",
    "expired": "the time of this code is over",
    "full": "too many devices are pairing at this gateway; try again later",
    "busy": "too many pairings from this network address; try again later",
    "malformed": "invalid frame",
    "closing": "the gateway is shutting down; try again",
    "version": f"unsupported protocol version (the gateway supports {VERSION})",
}

_log = logging.getLogger("remit.relay")


class _Visit:
    """The connection of one device with its mailbox."""

    def __init__(self, number: int, side: MailboxSide) -> None:
        self.number = number
        self.side: MailboxSide = side
        self.put = 0
        self._delivered = 0
        self.due: asyncio.Queue[MailboxNote | MailboxEnded] = asyncio.Queue()

    def look(self, content: MailboxContent | None) -> None:
        """Queue what is new in the mailbox, None if it has expired."""
        if content is None:
            self.due.put_nowait(_end("expired"))
            return
        notes = content.guest if self.side == "host" else content.host
        for body in notes[self._delivered :]:
            self.due.put_nowait(MailboxNote(body=body))
        self._delivered = len(notes)
        if content.is_ended:
            self.due.put_nowait(_end("left"))


class Rendezvous:
    """The devices that are pairing through this gateway."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        addresses: Addresses,
        *,
        name: str,
        limits: GatewayLimits,
        now: Callable[[], float],
    ) -> None:
        self._mailboxes = mailboxes
        self._addresses = addresses
        self._name = name
        self._limits = limits
        self._now = now
        self._visits: set[_Visit] = set()
        self._news = asyncio.Event()

    def close(self) -> None:
        """End all pairings."""
        for visit in self._visits:
            visit.due.put_nowait(_end("closing"))

    async def serve(self, socket: WebSocket, address: str) -> None:
        """Serve one device until it leaves, or its mailbox ends."""
        is_new = self._addresses.begin_pairing(address, self._now())
        try:
            if not is_new:
                await _send_and_close(socket, _end("busy"))
                return
            socket.watch(HEARTBEAT_S)
            visit = await self._enter(socket)
            if visit is not None:
                await self._stay(socket, visit)
        except (OSError, TimeoutError) as error:
            _log.debug("a pairing ended: %s", error)
        finally:
            if is_new:
                self._addresses.end_pairing(address, self._now())
            socket.say_closing(NORMAL)

    async def watch(self) -> None:
        """Look for notes and ended mailboxes for ever: at once after a note here, now and then for others."""
        while True:
            if not self._visits:
                await self._news.wait()
            self._news.clear()
            try:
                visits = list(self._visits)  # others may come while the mailboxes are read
                contents = await self._mailboxes.read_mailboxes({visit.number for visit in visits})
                for visit in visits:
                    visit.look(contents.get(visit.number))
            except OSError as error:
                _log.debug("the mailboxes cannot be read and are tried again: %s", error)
            try:
                async with asyncio.timeout(SHARED_POLL_S if self._mailboxes.is_shared else POLL_S):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _enter(self, socket: WebSocket) -> _Visit | None:
        """Return the visit of a device that opened or joined a mailbox; None if it could not."""
        limits = self._limits
        await _send(socket, RendezvousGreeting(gateway=self._name))
        async with asyncio.timeout(limits.hello_s):
            request = await _receive(socket)
        if not isinstance(request, OpenMailbox | JoinMailbox):
            await _send_and_close(socket, _end("malformed"))
            return None
        if request.version != VERSION:
            await _send_and_close(socket, _end("version"))
            return None
        if isinstance(request, OpenMailbox):
            number = await self._mailboxes.open_mailbox(limits.max_mailboxes, limits.mailbox_s)
            if number is None:
                await _send_and_close(socket, _end("full"))
                return None
            visit = self._begin(number, "host")
            await _send(socket, MailboxOpened(mailbox=number, seconds=round(limits.mailbox_s)))
            return visit
        if not await self._mailboxes.join_mailbox(request.mailbox, limits.meeting_s):
            await _send_and_close(socket, _end("unknown"))
            return None
        visit = self._begin(request.mailbox, "guest")
        await _send(socket, MailboxJoined())
        return visit

    def _begin(self, number: int, side: MailboxSide) -> _Visit:
        visit = _Visit(number, side)
        self._visits.add(visit)
        self._news.set()
        return visit

    async def _stay(self, socket: WebSocket, visit: _Visit) -> None:
        """Take notes of a device and hand it those of the other one, until either has gone."""
        telling = asyncio.create_task(self._tell(socket, visit))
        try:
            while True:
                note = await _receive(socket)
                if note is None:
                    return
                if not isinstance(note, MailboxNote) or visit.put >= MAX_NOTES:
                    visit.due.put_nowait(_end("malformed"))
                    return
                await self._mailboxes.put_note(visit.number, visit.side, visit.put, note.body)
                visit.put += 1
                self._news.set()
        finally:
            self._visits.discard(visit)
            await self._mailboxes.end_mailbox(visit.number)
            self._news.set()
            # What is due at the end (an invalid frame) is still sent; who has gone does not read it.
            if visit.due.empty():
                telling.cancel()
            await asyncio.wait([telling], timeout=self._limits.closing_s)
            telling.cancel()

    async def _tell(self, socket: WebSocket, visit: _Visit) -> None:
        while True:
            frame = await visit.due.get()
            try:
                await _send(socket, frame)
                if isinstance(frame, MailboxEnded):
                    await socket.close()
                    return
            except OSError as error:
                _log.debug("a pairing device has gone: %s", error)
                return


async def _receive(socket: WebSocket) -> OpenMailbox | JoinMailbox | MailboxNote | MailboxEnded | None:
    """Return the next frame, None if the connection has ended; an invalid frame is an end as well."""
    while (message := await socket.receive()) is not None:
        if message.kind == PING:
            await socket.send(PONG, message.data)
            continue
        try:
            return read_from_pairing(message.data) if message.kind == TEXT else _end("malformed")
        except Malformed:
            return _end("malformed")
    return None


def _end(code: EndCode) -> MailboxEnded:
    return MailboxEnded(code=code, reason=ENDS[code])


async def _send(socket: WebSocket, frame: Struct) -> None:
    await socket.send(TEXT, encode_text(frame))


async def _send_and_close(socket: WebSocket, frame: MailboxEnded) -> None:
    await _send(socket, frame)
    await socket.close()
