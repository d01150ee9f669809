"""The store in a PostgreSQL database keeps the promises of every store, encrypted or not."""

from pathlib import Path
from typing import ClassVar

import pytest

from postgres_server import shared_server
from remit.ports import Store
from remit_cluster.postgres.store import PostgresStore
from remit_testing.conformance import StoreConformance


@pytest.mark.parametrize("encrypt", [False, True])
class TestPostgresStore(StoreConformance):
    url: ClassVar[str] = ""
    """One database for all of these tests, emptied for each: creating one costs more than a test."""
    key: ClassVar[Path]

    @pytest.fixture(autouse=True)
    def _set_path(self, tmp_path_factory: pytest.TempPathFactory, encrypt: bool) -> None:
        self.encrypt = encrypt
        self.server = shared_server()
        if not self.url:
            type(self).key = tmp_path_factory.mktemp("key") / "hub.key"

    async def make(self) -> Store:
        if self.url:
            await self.server.emptied(self.url)
        else:
            type(self).url = await self.server.database()
        return await self.reopen()

    async def reopen(self, store: Store | None = None) -> Store:
        return PostgresStore(self.url, key=self.key, encrypt=self.encrypt)
