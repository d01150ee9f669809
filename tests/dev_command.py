"""`remit dev` as a process that tests ask over HTTP."""

import json
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from command_line import environment
from commands import REMIT, popen
from waiting import PATIENCE_S


class Dev:
    """A running `remit dev`."""

    def __init__(self, announced: dict[str, Any], kind: str) -> None:
        self.said = announced
        token = Path(announced["folder"], kind, "you", "shared.token").read_text().strip()
        self._headers = {"authorization": f"Bearer {token}"}

    def get(self, path: str) -> Any:
        with urlopen(Request(self.said["address"] + path, headers=self._headers), timeout=PATIENCE_S) as reply:
            return json.loads(reply.read())

    def until(self, path: str, holds: Callable[[Any], bool]) -> Any:
        end = time.monotonic() + PATIENCE_S
        while not holds(page := self.get(path)):
            assert time.monotonic() < end, page
            time.sleep(0.05)
        return page


@contextmanager
def dev(folder: Path, kind: str, *options: str) -> Generator[Dev]:
    """Run the command until the block ends; it ends well."""
    process = popen(
        [REMIT, "dev", "--json", "--no-browser", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()
        yield Dev(json.loads(line), kind)
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, "Stopped." in output) == (0, True), output
    finally:
        process.kill()
        process.communicate()
