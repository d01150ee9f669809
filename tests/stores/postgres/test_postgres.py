"""The store in a PostgreSQL database keeps the promises of every store."""

from pathlib import Path

import pytest

from postgres_server import shared_server
from remit.runtime.ports import Store
from remit.stores.postgres.store import PostgresStore
from remit.testing.conformance import StoreConformance


class TestPostgresStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.key = tmp_path / "hub.key"
        self.server = shared_server()

    async def make(self) -> Store:
        self.url = await self.server.database()
        return PostgresStore(self.url, key=self.key)

    async def reopen(self, store: Store) -> Store:
        return PostgresStore(self.url, key=self.key)
