"""The hash chain of an open SQLite store."""

import asyncio
from collections.abc import Callable
from contextlib import closing

import apsw

from remit.runtime.audit import GENESIS, AuditVerdict
from remit.runtime.audit.chain import intact_rows
from remit.runtime.audit.stored_chain import ChainLink, Watch
from remit.runtime.signing import Checkpoint, CheckpointKey
from remit.stores.audit import BUSY_SECONDS, audit, chain_rows, digest_of
from remit.stores.checkpoints import newest_checkpoint
from remit.stores.connection import SqliteConnection, connect_reader, translate
from remit.stores.opening import Opening


class SqliteChain:
    """The chain in a SQLite file. Each use has a connection of its own: reading all of it takes long."""

    def __init__(self, opening: Opening, key: Callable[[], CheckpointKey]) -> None:
        """*key* returns the key that signs; the store must be open."""
        self._opening = opening
        self._path = opening.path
        self._key = key

    async def verify(self, *, start: Checkpoint | None = None, watch: Watch | None = None) -> AuditVerdict:
        """Verify the chain, or what comes after the checkpoint *start*."""
        every, seconds = self._opening.checkpoint_every, self._opening.checkpoint_seconds
        query = audit(self._path, self._key().public, every=every, seconds=seconds, start=start, watch=watch)

        def verified() -> AuditVerdict:
            try:
                with closing(connect_reader(self._path, BUSY_SECONDS)) as connection:
                    return query(connection)
            except (apsw.Error, OSError) as error:
                raise translate(error, self._path) from error

        return await asyncio.to_thread(verified)

    async def newest_checkpoint(self) -> Checkpoint | None:
        """Return the newest checkpoint."""
        return await asyncio.to_thread(newest_checkpoint, self._path)

    async def intact(self, first: int, last: int) -> dict[int, bool]:
        """Return which rows of a part of the record follow from the row before them."""

        def walked() -> dict[int, bool]:
            with closing(connect_reader(self._path, BUSY_SECONDS)) as connection:
                before = _digest_before(connection, first)
                return intact_rows(chain_rows(connection, first - 1, last), before)

        return await asyncio.to_thread(walked)

    async def link(self, seq: int) -> ChainLink | None:
        """Return the place of a row in the chain."""
        return await asyncio.to_thread(self._link, seq)

    def _link(self, seq: int) -> ChainLink | None:
        with closing(connect_reader(self._path, BUSY_SECONDS)) as connection:
            digest, previous = digest_of(connection, seq), _digest_before(connection, seq)
        return None if digest is None or seq < 1 else ChainLink(previous.hex(), digest.hex())


def _digest_before(connection: SqliteConnection, seq: int) -> bytes:
    return digest_of(connection, seq - 1) or GENESIS
