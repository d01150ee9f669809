"""A cluster of real NATS servers with JetStream, whose nodes can be killed and lose their storage."""

import ctypes
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from nats_server import BINARY


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class BusNode:
    """One server of the cluster."""

    def __init__(self, name: str, folder: Path, host: str, port: int, routes: list[int], own_route: int) -> None:
        self.name = name
        self.port = port
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True)
        cluster = ""
        if len(routes) > 1:
            others = ", ".join(f'"nats://127.0.0.1:{each}"' for each in routes if each != own_route)
            cluster = f'cluster {{ name: chaos, listen: "127.0.0.1:{own_route}", routes: [{others}] }}\n'
        (folder / "nats.conf").write_text(
            f'server_name: {name}\nlisten: "{host}:{port}"\n'
            f'jetstream {{ store_dir: "{folder / "streams"}", max_memory_store: 64MB, max_file_store: 256MB }}\n'
            f"{cluster}"
        )

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            command = [str(BINARY), "-c", str(self._folder / "nats.conf")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=_die_with_parent)  # noqa: PLW1509 - it calls one function of libc

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def wipe(self) -> None:
        """Delete what the server stored; it is not running."""
        shutil.rmtree(self._folder / "streams", ignore_errors=True)


class BusNodes:
    """All servers of the cluster."""

    def __init__(self, folder: Path, *, ports: list[int], routes: list[int], host: str = "127.0.0.1") -> None:
        self.nodes = [
            BusNode(f"n{number}", folder / f"n{number}", host, port, routes, route)
            for number, (port, route) in enumerate(zip(ports, routes, strict=True), 1)
        ]

    def open(self) -> None:
        for node in self.nodes:
            node.start()
        # Hubs go on without the bus; this only keeps the first seconds from being different.
        time.sleep(0.5)

    def close(self) -> None:
        for node in self.nodes:
            node.kill()
