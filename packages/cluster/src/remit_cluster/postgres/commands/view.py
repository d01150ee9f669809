"""Reads a store in PostgreSQL for a command; the connection lives in a thread with an event loop of its own."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import msgspec

from remit.protocol.records import Record, SharedStep
from remit.runtime.audit import AuditVerdict, ChainRow, RemovedRow
from remit.runtime.ports import Question, RunSummary
from remit.runtime.registry import team_invalid
from remit.runtime.signing import Checkpoint, read_key
from remit.stores import reader, side_tables
from remit.stores.audit import Linked, remember_verified, verified_before
from remit.stores.checkpoints import key_path
from remit_cli.config.checks import secret_of
from remit_cli.config.team import Team
from remit_cluster.postgres import audit, checkpoints, records
from remit_cluster.postgres.chain_rows import rows_between
from remit_cluster.postgres.chainer import bring_up_to_date
from remit_cluster.postgres.connection import TROUBLE, DatabaseAddress, PgConnection, close_quietly
from remit_cluster.postgres.schema import check_complete, check_version
from remit_cluster.postgres.user_keys import PgUserKeys

T = TypeVar("T")

_PAGE = 1_000


class PostgresView:
    """A view of a PostgreSQL database."""

    def __init__(
        self, team: Team, address: DatabaseAddress, loop: asyncio.AbstractEventLoop, connection: PgConnection
    ) -> None:
        self._team = team
        self._address = address
        self._loop = loop
        self._connection = connection

    def _read(self, query: Callable[[PgConnection], Awaitable[T]], *, chained: bool = True) -> T:
        async def read() -> T:
            if chained:
                await bring_up_to_date(self._connection)
            return await query(self._connection)

        try:
            return asyncio.run_coroutine_threadsafe(read(), self._loop).result()
        except (*TROUBLE, asyncpg.PostgresError, asyncpg.InterfaceError, msgspec.DecodeError) as error:
            raise self._address.translate(error) from error

    def runs(
        self, *, user: str | None = None, run: str | None = None, correlation: str | None = None, limit: int = 50
    ) -> list[RunSummary]:
        return self._read(
            lambda connection: reader.runs(connection, user, run, limit, correlation=correlation), chained=False
        )

    def shared_runs(self, begins_with: str, limit: int) -> list[str]:
        return self._read(lambda connection: records.shared_runs(connection, begins_with, limit), chained=False)

    def records(self, run: str | None, after: int, limit: int, profile: str | None = None) -> list[Record]:
        found = self._read(lambda connection: records.records(connection, run, None, after, limit))
        if profile is None:
            return found
        return [each for each in found if isinstance(each.body, SharedStep) and each.body.profile == profile]

    def recent(self, limit: int) -> list[Record]:
        return self._read(lambda connection: records.recent(connection, limit))

    def running(self) -> frozenset[str]:
        return self._read(reader.running, chained=False)

    def pending(self) -> list[Question]:
        return self._read(
            lambda connection: side_tables.pending(connection, time.time_ns() // 1_000_000), chained=False
        )

    def before_newest(self, count: int, run: str | None = None, profile: str | None = None) -> int:
        if profile is not None:
            return 0
        return self._read(lambda connection: records.before_newest(connection, count, run))

    def linked_rows(self, *, run: str | None = None, profile: str | None = None) -> Iterator[Linked]:
        def page(after: int) -> list[Linked]:
            return self._read(lambda connection: audit.linked_rows(connection, run=run, after=after, limit=_PAGE))

        rows = page(0)
        while rows:
            yield from (each for each in rows if profile is None or _is_of(each, profile))
            rows = page(rows[-1].row.seq)

    def chain_rows(self, after: int, last: int) -> Iterator[ChainRow | RemovedRow]:
        first = after + 1
        while first <= last:
            end = min(last, first + _PAGE - 1)
            rows = self._read(lambda connection, first=first, end=end: rows_between(connection, first, end))
            yield from rows
            first = end + 1 if rows else last + 1

    def checkpoints(self) -> list[Checkpoint | None]:
        return self._read(checkpoints.read_checkpoints, chained=False)

    def newest_anchor(self) -> tuple[Checkpoint, int]:
        return self._read(lambda connection: audit.newest_anchor(connection, self._address.name))

    def handed_over(self, run: str, user: str) -> list[tuple[str, str]]:
        return self._read(lambda connection: reader.handed_over(connection, run, user), chained=False)

    def verify(
        self, pinned: Sequence[bytes], anchors: Sequence[Checkpoint], *, incremental: bool = False
    ) -> AuditVerdict:
        try:
            # Only the public half is used, so a key file that others can read is no reason not to verify.
            known = None if pinned or anchors else read_key(key_path(self._team.store_path), private=False).public
        except OSError:
            known = None
        path = self._team.store_path
        start = verified_before(path, known) if incremental and known else None
        newest = self._read(checkpoints.newest_checkpoint) if incremental else None
        verdict = self._read(
            lambda connection: audit.audit(connection, known, pinned=pinned, anchors=anchors, start=start)
        )
        if incremental and known and verdict.ok and newest is not None:
            remember_verified(path, newest)
        return verdict


def _is_of(linked: Linked, profile: str) -> bool:
    try:
        return linked.row.kind == "shared" and msgspec.json.decode(linked.row.body).get("profile") == profile
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def address_of(team: Team) -> DatabaseAddress:
    """Return the address of a team's database."""
    section = team.store
    assert section.url is not None
    try:
        password = None if section.password is None else secret_of(section.password)
    except ValueError as error:
        raise team_invalid(str(error)) from error
    return DatabaseAddress(section.url, password, section.pooler)


@contextmanager
def viewing(team: Team) -> Generator[PostgresView]:
    """Open the database of a team for reading."""
    keys = PgUserKeys(key_path(team.store_path))
    address = msgspec.structs.replace(address_of(team), reading=keys.reading)
    loop = asyncio.new_event_loop()
    # In a thread, because some commands run in a loop of their own.
    thread = threading.Thread(target=loop.run_forever, name="remit-postgres-view", daemon=True)
    thread.start()
    try:
        connection = asyncio.run_coroutine_threadsafe(_connected(address), loop).result()
        try:
            yield PostgresView(team, address, loop, connection)
        finally:
            asyncio.run_coroutine_threadsafe(close_quietly(connection), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _connected(address: DatabaseAddress) -> PgConnection:
    connection = await address.connect()
    try:
        await check_version(connection, address)
        await check_complete(connection, address)
    except (*TROUBLE, asyncpg.PostgresError) as error:
        connection.terminate()
        raise address.translate(error) from error
    except BaseException:
        connection.terminate()
        raise
    return connection
