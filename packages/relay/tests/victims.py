"""Programs that tests kill and start again."""

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path

from command_line import environment
from commands import popen
from waiting import PATIENCE_S


class Victim:
    """A program that is killed and started again."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command = command
        self._folder = folder
        self.first_line = ""
        self._process: subprocess.Popen[str] | None = None

    async def start(self) -> None:
        self._process = popen(
            self._command,
            cwd=self._folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout
        async with asyncio.timeout(PATIENCE_S):
            self.first_line = await asyncio.to_thread(self._process.stdout.readline)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._process = None
