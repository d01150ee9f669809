"""`remit serve` as a process that tests ask over HTTP."""

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from commands import REMIT, popen
from waiting import PATIENCE_S

# For teams whose clients are named, which then have no token of the machine.
CLIENT_TOKEN = "a-token-that-is-long-enough"


class ServedTeam:
    """A server that has said where it is."""

    def __init__(self, process: subprocess.Popen[str], announced: dict[str, Any]) -> None:
        self.process = process
        self.said = announced
        self.port: int = urlsplit(str(announced["address"])).port or 0
        self.token = Path(announced["token_file"]).read_text().strip() if announced["token_file"] else CLIENT_TOKEN

    def send(self, path: str, body: Any = None, *, token: str | None = None, **more: str) -> tuple[int, str]:
        """Send a request, with *more* headers; return the status and the text of the reply."""
        headers = {"authorization": f"Bearer {token or self.token}", "content-type": "application/json", **more}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.said["address"] + path, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def get(self, path: str, body: Any = None, *, token: str | None = None) -> tuple[int, Any]:
        """Send a request; return the status and what the reply says as JSON."""
        status, text = self.send(path, body, token=token)
        return status, json.loads(text)


def started(*options: str, **environ: str) -> subprocess.Popen[str]:
    """Start a server at a free port; it says on stdout where it is."""
    return popen(
        [REMIT, "serve", "--json", "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )


@contextmanager
def serving(*options: str, **environ: str) -> Generator[ServedTeam]:
    """Serve the team of this folder until the block ends."""
    process = started(*options, **environ)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield ServedTeam(process, json.loads(line))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
