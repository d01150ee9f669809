"""A real PgBouncer for tests: Debian's package, unpacked into a folder of the virtual environment, not installed."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from postgres_server import PASSWORD, USER, PostgresServer, become, free_port

_FOLDER = Path(sys.prefix) / "share" / "remit-pgbouncer"
# The packages of libraries that few machines have.
_LIBRARIES = {"libcares.so.2": "libc-ares2", "libevent-2.1.so.7": "libevent-2.1-7"}
# A mirror that does not answer must not hold up the tests.
_DOWNLOAD_S = 60


class Unavailable(Exception):
    """PgBouncer is not on this machine, and cannot be had."""


@cache
def program() -> tuple[Path, dict[str, str]]:
    """Return PgBouncer and the environment that it needs; raise `Unavailable` with the reason."""
    installed = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if installed:
        return Path(installed), {}
    if not (_FOLDER / "usr/sbin/pgbouncer").exists():
        _unpack()
    return _FOLDER / "usr/sbin/pgbouncer", _environment(_FOLDER)


def _environment(folder: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": ":".join(str(each) for each in sorted((folder / "usr/lib").glob("*-linux-gnu*")))}


def _unpack() -> None:
    """Fetch the package and the libraries that it lacks here, and unpack them."""
    for needed in ("apt-get", "dpkg-deb"):
        if not shutil.which(needed):
            raise Unavailable(f"there is no {needed} to fetch Debian's package with")
    _FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_FOLDER.parent) as name:
        draft = Path(name) / "root"
        draft.mkdir()
        package = "pgbouncer"
        for _ in range(len(_LIBRARIES) + 1):
            _fetch(package, Path(name), draft)
            ready = subprocess.run(
                [draft / "usr/sbin/pgbouncer", "--version"],
                env=_environment(draft),
                capture_output=True,
                text=True,
                check=False,
            )
            if ready.returncode == 0:
                break
            missing = re.search(r"libraries: (\S+):", ready.stderr)
            if missing is None or missing[1] not in _LIBRARIES:
                raise Unavailable(f"PgBouncer does not start: {ready.stderr.strip()}")
            package = _LIBRARIES[missing[1]]
        try:
            draft.rename(_FOLDER)
        except OSError:  # another test process was quicker
            assert _FOLDER.exists()


def _fetch(package: str, folder: Path, into: Path) -> None:
    try:
        subprocess.run(
            ["apt-get", "download", package],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
            timeout=_DOWNLOAD_S,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"Debian's package {package} could not be fetched in {_DOWNLOAD_S} s") from None
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"Debian's package {package} cannot be fetched: {error.stderr.strip()[-200:]}") from None
    (archive,) = folder.glob(f"{package}_*.deb")
    subprocess.run(["dpkg-deb", "-x", archive, into], check=True, capture_output=True)


class PgBouncer:
    """A pooler in transaction mode before a server; it has fewer connections to it than its clients have to it."""

    def __init__(self, server: PostgresServer, connections: int = 3) -> None:
        binary, environment = program()
        self._folder = Path(tempfile.mkdtemp(prefix="remit-pgbouncer-"))
        self._server = server
        self.port = free_port()
        if server.uid is not None:
            # The environment of the tests may be in a folder that this user cannot read.
            shutil.copy2(binary, self._folder / "pgbouncer")
            binary = self._folder / "pgbouncer"
            libraries = [each for part in environment.values() for each in Path(part).glob("*.so*")]
            for each in libraries:
                shutil.copy2(each, self._folder / each.name)
            environment = {"LD_LIBRARY_PATH": str(self._folder)} if libraries else environment
            os.chown(self._folder, server.uid, server.uid)
        (self._folder / "users").write_text(f'"{USER}" "{PASSWORD}"\n')
        config = self._folder / "pgbouncer.ini"
        config.write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\nunix_socket_dir =\nauth_type = plain\nauth_file = {self._folder}/users\n"
            f"pool_mode = transaction\ndefault_pool_size = {connections}\nmax_client_conn = 200\n"
        )
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [binary, config],
                env=environment,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                preexec_fn=become(server.uid),  # noqa: PLW1509 - it changes the user, as that of the server does
            )
        end = time.monotonic() + 20
        while not self._answers():
            output = (self._folder / "log").read_text()
            assert self._process.poll() is None, output
            assert time.monotonic() < end, output
            time.sleep(0.02)

    def _answers(self) -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0

    def url(self, url: str) -> str:
        """Return the address of a database behind this pooler."""
        return url.replace(f":{self._server.port}/", f":{self.port}/")

    def remove(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
