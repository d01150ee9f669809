"""The hash chain of an open PostgreSQL store."""

from collections.abc import Callable

from remit.runtime.audit import GENESIS, AuditVerdict
from remit.runtime.audit.chain import intact_rows
from remit.runtime.audit.stored_chain import ChainLink, Watch
from remit.runtime.signing import Checkpoint, CheckpointKey
from remit.stores.postgres.audit import audit
from remit.stores.postgres.chain_rows import rows_between
from remit.stores.postgres.checkpoints import digest_at, newest_checkpoint
from remit.stores.postgres.connection import PgConnection
from remit.stores.postgres.listings import ReadsDatabase


class PostgresChain:
    """The chain in a database."""

    def __init__(self, read: ReadsDatabase, key: Callable[[], CheckpointKey], *, every: int, seconds: float) -> None:
        """*key* returns the key that signs; the store must be open."""
        self._read, self._key = read, key
        self._every, self._seconds = every, seconds

    async def verify(self, *, start: Checkpoint | None = None, watch: Watch | None = None) -> AuditVerdict:
        public, every, seconds = self._key().public, self._every, self._seconds
        return await self._read(
            lambda connection: audit(connection, public, every=every, seconds=seconds, start=start, watch=watch)
        )

    async def newest_checkpoint(self) -> Checkpoint | None:
        return await self._read(newest_checkpoint)

    async def intact(self, first: int, last: int) -> dict[int, bool]:
        async def walked(connection: PgConnection) -> dict[int, bool]:
            before = await digest_at(connection, first - 1) or GENESIS
            return intact_rows(await rows_between(connection, first, last), before)

        return await self._read(walked)

    async def link(self, seq: int) -> ChainLink | None:
        async def digests(connection: PgConnection) -> tuple[bytes | None, bytes | None]:
            return await digest_at(connection, seq - 1), await digest_at(connection, seq)

        previous, digest = await self._read(digests)
        return None if digest is None else ChainLink((previous or GENESIS).hex(), digest.hex())
