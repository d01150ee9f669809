"""Agents that other hubs of the team host, over a real NATS server: the store holds the truth, NATS carries."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import remit
from nats_server import shared_server, team_name
from remit.hub.joining import join_bus
from remit.protocol.card import AgentCard
from remit.testing.transports.conformance import TransportConformance
from remit.transports.nats.connection import BusSettings


class TestNats(TransportConformance):
    @pytest.fixture(autouse=True)
    def _in_folder(self, tmp_path: Path) -> None:
        self._team = team_name()
        self._store = tmp_path / "hub.db"

    def hubs(self, **options: Any) -> tuple[remit.Hub, remit.Hub]:
        """Two hubs of one team: the same name and the same store, as with the same team file."""
        near, far = (remit.Hub(name=self._team, store=self._store, durability="process", **options) for _ in range(2))
        return near, far

    @asynccontextmanager
    async def joined(self, near: remit.Hub, far: remit.Hub) -> AsyncGenerator[None]:
        settings = BusSettings(url=shared_server().url)
        join_bus(near, settings, name=self._team, calls=list(far.cards.values()))
        join_bus(far, settings, name=self._team, calls=[AgentCard(name="boss")])
        async with far, near:
            yield
