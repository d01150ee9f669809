"""The mailboxes of gateways that share a database: the two devices that pair may be connected to different ones."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from remit.relay.gateway.mailboxes import TRIES, random_number
from remit.relay.gateway.ports import ENDED_S, MailboxContent, MailboxSide
from remit.stores.postgres.connection import FAULTS, Connections, PgConnection, Query
from remit.stores.postgres.schema import NOW_MS

T = TypeVar("T")

# Everything here takes milliseconds.
ANSWER_S = 5.0

_DROP = f"DELETE FROM remit_gateway.mailbox WHERE until_ms <= {NOW_MS}"
_OPEN = f"""
    INSERT INTO remit_gateway.mailbox (number, until_ms)
    SELECT $1::integer, {NOW_MS} + $2::bigint WHERE (SELECT count(*) FROM remit_gateway.mailbox) < $3::bigint
    ON CONFLICT (number) DO NOTHING RETURNING number
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
_BOXES = f"SELECT number, is_ended FROM remit_gateway.mailbox WHERE number = ANY($1) AND until_ms > {NOW_MS}"
_NOTES = "SELECT mailbox, side, body FROM remit_gateway.note WHERE mailbox = ANY($1) ORDER BY mailbox, side, place"


class PostgresMailboxes:
    """`Mailboxes` in a database. *connections* returns those that the store has open."""

    is_shared = True

    def __init__(self, connections: Callable[[], Connections]) -> None:
        self._connections = connections

    async def open_mailbox(self, most: int, seconds: float) -> int | None:
        async def insert(connection: PgConnection) -> int | None:
            await connection.execute(_DROP, timeout=ANSWER_S)
            for _ in range(TRIES):
                found = await connection.fetchval(_OPEN, random_number(), _ms(seconds), most, timeout=ANSWER_S)
                if found is not None:
                    return found
            return None

        return await self._do(insert)

    async def join_mailbox(self, number: int, seconds: float) -> bool:
        async def update(connection: PgConnection) -> bool:
            return await connection.fetchval(_JOIN, number, _ms(seconds), timeout=ANSWER_S) is not None

        return await self._do(update)

    async def put_note(self, number: int, side: MailboxSide, place: int, body: bytes) -> None:
        async def insert(connection: PgConnection) -> None:
            await connection.execute(_PUT, number, side, place, body, timeout=ANSWER_S)

        await self._do(insert)

    async def end_mailbox(self, number: int) -> None:
        async def update(connection: PgConnection) -> None:
            await connection.execute(_END, number, _ms(ENDED_S), timeout=ANSWER_S)

        await self._do(update)

    async def read_mailboxes(self, numbers: Iterable[int]) -> Mapping[int, MailboxContent]:
        wanted = list(numbers)

        async def read(connection: PgConnection) -> Mapping[int, MailboxContent]:
            # First whether it has ended: then all its notes are there.
            ended = dict(await connection.fetch(_BOXES, wanted, timeout=ANSWER_S))
            notes: defaultdict[tuple[int, str], list[bytes]] = defaultdict(list)
            for mailbox, side, body in await connection.fetch(_NOTES, list(ended), timeout=ANSWER_S):
                notes[mailbox, side].append(bytes(body))
            return {
                number: MailboxContent(tuple(notes[number, "host"]), tuple(notes[number, "guest"]), is_ended)
                for number, is_ended in ended.items()
            }

        return await self._do(read)

    async def _do(self, query: Query[T]) -> T:
        try:
            return await self._connections().read(query)
        except FAULTS as error:
            raise OSError(str(error)) from error


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)
