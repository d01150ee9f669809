"""A real model for each run of these tests: `make test-model`."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def base_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the model, and return where."""
    log = tmp_path_factory.mktemp("server") / "log.txt"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, Path(__file__).with_name("serve.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        assert address, log.read_text(encoding="utf-8", errors="replace")
        yield address
        server.stdin.close()
        server.wait(timeout=30)
