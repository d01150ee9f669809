"""A team of real hubs, started by the commands, whose database and whose bus can each be taken away."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nats_server
import postgres_server
from chaos.proxy import TcpProxy
from command_line import environment, remit
from commands import REMIT, popen
from postgres_server import PASSWORD, USER
from serve_command import ServedTeam
from waiting import PATIENCE_S, eventually

TEAM = """
name = "{name}"

[store]
url = "postgresql://{user}@127.0.0.1:{store_port}/{database}"
password = "$DATABASE_PASSWORD"

[bus]
url = "nats://127.0.0.1:{bus_port}"
hosts = ["boss", "payer"]

[a2a]

[serve]
drain = "1s"

[agents.boss]
run = "{name}_agents:boss"
may_call = ["payer", "middle", "vault"]

[agents.payer]
run = "{name}_agents:payer"

[agents.middle]
run = "{name}_agents:middle"
may_call = ["worker"]

[agents.worker]
run = "{name}_agents:worker"

[agents.vault]
run = "{name}_agents:payer"

[[rules]]
to = "payer"
then = "ask"
say = "May this be paid?"

[[rules]]
from = "user"
to = "vault"
mentions = ["freely"]
then = "allow"

[[rules]]
to = "vault"
then = "ask"
"""
# A hub waits for its database for five seconds before it says so: shorter outages show the same here.
AGENTS = """
import asyncio
import os
from pathlib import Path

from remit_cluster.postgres import connection, writer

connection.READ_PATIENCE_SECONDS = writer.PATIENCE_SECONDS = 0.3
connection.CONNECT_SECONDS = connection.STATEMENT_SECONDS = 600.0  # a silent server must not end a wait here


def note(line):
    with Path("ledger").open("a") as ledger:
        ledger.write(line + "\\n")
        ledger.flush()
        os.fsync(ledger.fileno())


async def boss(brief):
    whom = {"pay": "payer", "open": "vault"}.get(brief.objective.partition("-")[0], "middle")
    return (await brief.delegate(whom, objective=brief.objective)).unwrap()


async def payer(brief):
    note(f"{brief.objective} paid")
    return "paid"


async def middle(brief):
    return (await brief.delegate("worker", objective=brief.objective)).unwrap()


async def worker(brief):
    note(f"{brief.objective} begun")
    try:
        while not Path("go").exists():
            await asyncio.sleep(0.02)
        note(f"{brief.objective} ended")
        return "worked"
    except asyncio.CancelledError:
        note(f"{brief.objective} stopped")
        raise
"""


class Outages:
    """The folder of the team, what can be cut, and its processes."""

    def __init__(self, folder: Path, database: str, store: TcpProxy, bus: TcpProxy) -> None:
        self.folder = folder
        self._database = database
        self.store = store
        self.bus = bus
        self._started: list[subprocess.Popen[Any]] = []

    def _start(self, name: str, *command: str) -> "subprocess.Popen[str]":
        with (self.folder / f"{name}.log").open("w") as log:
            process = popen(
                [REMIT, *command],
                cwd=self.folder,
                env=environment(DATABASE_PASSWORD=PASSWORD),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._started.append(process)
        return process

    async def serve(self, name: str) -> ServedTeam:
        """Start `remit serve`, and return it once it answers."""
        process = self._start(name, "serve", "--json", "--port", "0")
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        assert line, self.log(name)
        return ServedTeam(process, json.loads(line) | {"token_file": self.folder / json.loads(line)["token_file"]})

    async def work(self, *agents: str) -> "subprocess.Popen[str]":
        """Start `remit worker`, and return it once it hosts the agents."""
        name = agents[0]
        process = self._start(name, "worker", *agents)
        await eventually(lambda: "Hosting" in self.log(name) or process.poll() is not None)
        assert process.poll() is None, self.log(name)
        return process

    async def remit(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run another command of the team to its end."""
        return await asyncio.to_thread(lambda: remit(*words, folder=self.folder, DATABASE_PASSWORD=PASSWORD))

    def log(self, name: str) -> str:
        """What a process has logged."""
        return (self.folder / f"{name}.log").read_text()

    def ledger(self) -> list[str]:
        """What the agents say that they did."""
        file = self.folder / "ledger"
        return file.read_text().splitlines() if file.exists() else []

    async def leases_ended(self) -> None:
        """Return once no hub has a lease any more, by the clock of the database."""
        until = "SELECT max(lease_until_ms) < extract(epoch FROM clock_timestamp()) * 1000 FROM remit.worker"
        await eventually(lambda: postgres_server.shared_server().sql(until, self._database), "the end of the leases")

    def kill(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=PATIENCE_S)


@asynccontextmanager
async def team_in_outages(folder: Path) -> AsyncGenerator[Outages]:
    """Make a team on the shared servers, and end its processes with the block."""
    database, bus_url = await postgres_server.shared_server().database(), nats_server.shared_server().url
    store, bus = (TcpProxy(lambda url=url: ("127.0.0.1", urlsplit(url).port or 0)) for url in (database, bus_url))
    await store.open()
    await bus.open()
    name = f"outage{os.getpid()}_{nats_server.team_name()}"
    made = Outages(folder, database, store, bus)
    (folder / f"{name}_agents.py").write_text(AGENTS)
    (folder / "remit.toml").write_text(
        TEAM.format(
            name=name,
            user=USER,
            store_port=store.port,
            database=database.rpartition("/")[2],
            bus_port=bus.port,
        )
    )
    try:
        yield made
    finally:
        store.heal()
        bus.heal()
        await asyncio.to_thread(made.kill)
        await store.close()
        await bus.close()
