"""The servers that hubs share: NATS nodes, and PostgreSQL with a standby; each can crash, and some can do worse."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from nats_server import NatsServer
from postgres_server import PostgresServer, free_port
from waiting import wait_until

DATABASE = "chaos"
# The tables, the log of changes and what a run of an hour adds.
DISK_MB = 1_200
_SETTINGS = (
    "fsync=off",  # servers crash here, and machines do not
    "wal_keep_size=128MB",
    "max_wal_size=128MB",
    # A standby that is gone is noticed before the callers of the hubs give up.
    "wal_sender_timeout=5s",
    "wal_receiver_timeout=5s",
)
_STATE = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"
_NOT_NOW = (OSError, asyncpg.PostgresError, RuntimeError)


def bus_nodes(count: int) -> list[NatsServer]:
    """Start a cluster of NATS servers."""
    if count == 1:
        return [NatsServer(port=free_port()).start()]
    places = [f"nats://127.0.0.1:{free_port()}" for _ in range(count)]
    # Not advertised: a hub would go to the other nodes directly, and not through its proxies.
    cluster = ("--cluster_name", "chaos", "--no_advertise", "--routes", ",".join(places))
    nodes = [
        NatsServer("-n", f"n{number}", "--cluster", place, *cluster, port=free_port())
        for number, place in enumerate(places)
    ]
    return [node.start() for node in nodes]


class Databases:
    """A primary server and, if there are two, a standby; each in a slot of its own, whatever it is by now.

    All of it blocks, and the servers end with the thread that started them: one thread is to do everything.
    """

    def __init__(self, folder: Path, count: int, *, small_disks: bool, synchronous: bool) -> None:
        self._synchronous = synchronous
        self._disks = [folder / name for name in ("alpha", "beta")[:count]]
        for disk in self._disks:
            disk.mkdir(parents=True)
        self.has_small_disks = small_disks and all(map(_mounted, self._disks))
        self._slots = [PostgresServer(*_SETTINGS, within=self._disks[0])]
        self._first = 0
        _sql(self.primary, f"CREATE DATABASE {DATABASE}")
        if count > 1:
            self._slots.append(PostgresServer(*_SETTINGS, primary=self.primary, within=self._disks[1]))
            self._wait_for_standby()

    @property
    def primary(self) -> PostgresServer:
        return self._slots[self._first]

    @property
    def standby(self) -> PostgresServer | None:
        return self._slots[1 - self._first] if len(self._slots) > 1 else None

    def port(self, slot: int) -> int:
        return self._slots[slot].port

    def _wait_for_standby(self) -> None:
        if self._synchronous:
            _sql(self.primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
            _sql(self.primary, "SELECT pg_reload_conf()")
        self.in_step()

    def in_step(self) -> None:
        """Return once the standby has everything that the primary has acknowledged."""
        wanted = "sync" if self._synchronous else "async"

        def is_in_step() -> bool:
            try:
                return _sql(self.primary, _STATE) == wanted
            except _NOT_NOW:
                return False

        wait_until(is_in_step, "a standby in step")

    def crash(self) -> None:
        self.primary.stop(signal.SIGQUIT)

    def start(self) -> None:
        """Start the primary, and wait until it answers."""
        self.primary.start()

    def revive(self) -> None:
        """Start the primary again unless it answers."""
        try:
            _sql(self.primary, "SELECT 1")
        except _NOT_NOW:
            self.crash()
            self.primary.start()

    def fail_over(self) -> None:
        """Crash the primary for good, and let the standby take its place; `follow` makes a new standby."""
        standby = self.standby
        assert standby is not None
        self.crash()
        # Until it has a standby again, it waits for none.
        _sql(standby, "ALTER SYSTEM SET synchronous_standby_names = ''")
        _sql(standby, "SELECT pg_reload_conf()")
        asyncio.run(standby.promote())
        self._first = 1 - self._first

    def follow(self) -> None:
        """Replace the server that crashed for good by a standby."""
        slot = 1 - self._first
        # Its programs stay: they are those of the others, too.
        shutil.rmtree(self._slots[slot].data)
        self._slots[slot] = PostgresServer(*_SETTINGS, primary=self.primary, within=self._disks[slot])
        self._wait_for_standby()

    def detach_standby(self) -> None:
        """Let the standby receive nothing more."""
        assert self.standby is not None
        _sql(self.standby, "ALTER SYSTEM SET primary_conninfo = ''")
        _sql(self.standby, "SELECT pg_reload_conf()")

    def streams(self) -> dict[int, int]:
        """Return how many records of each hub process the primary has."""
        content = asyncio.run(self.primary.sql("SELECT json_object_agg(id, number) FROM remit.stream", DATABASE))
        return {int(stream): number for stream, number in json.loads(str(content)).items()}

    def fill(self) -> None:
        """Leave no space on the disk of the primary."""
        disk = self._disks[self._first]
        handle = os.open(disk / "filler", os.O_WRONLY | os.O_CREAT)
        try:
            for _ in range(5):
                left = shutil.disk_usage(disk).free
                with suppress(OSError):  # the server was faster
                    os.posix_fallocate(handle, os.fstat(handle).st_size, max(1, left - 65_536))
        finally:
            os.close(handle)

    def free(self) -> None:
        """Undo `fill`."""
        (self._disks[self._first] / "filler").unlink(missing_ok=True)

    def close(self) -> None:
        for server in self._slots:
            server.remove()
        if self.has_small_disks:
            for disk in self._disks:
                subprocess.run(["umount", "-l", str(disk)], check=False, capture_output=True)


def _sql(server: PostgresServer, statement: str) -> object:
    return asyncio.run(server.sql(statement))


def _mounted(folder: Path) -> bool:
    """Put a small disk of its own at a folder; return whether that is allowed here."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=755", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
