"""What `remit up` costs while nothing happens: memory, and time of a core."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from harness import Figure, at_most, main, sized, start

REMIT = str(Path(sys.executable).with_name("remit"))
# Ticks of the system's clock are a hundredth of a second: 0.1 % of a core is one tick in ten seconds.
SETTLE_S, WATCH_S = sized((8.0, 40.0), (0.1, 0.1))
TEAM = """
[relay]
gateway = "{gateway}"

[agents.helper]
run = "agents:helper"

[shared.helper]
devices = []
"""
AGENTS = "async def helper(brief):\n    return brief.text\n"


def started(folder: Path, *arguments: str) -> "tuple[subprocess.Popen[str], dict[str, str]]":
    """Start a command, and return it with the document that it prints once it runs."""
    command = [REMIT, *arguments, "--json"]
    process = start(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    out: IO[str] | None = process.stdout
    assert out is not None
    return process, json.loads(out.readline())


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def worked_s(pid: int) -> float:
    """Return the time of a core that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure() -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        gateway, announced = started(folder, "relay", "--port", "0")
        try:
            (folder / "remit.toml").write_text(TEAM.format(gateway=announced["address"]))
            (folder / "agents.py").write_text(AGENTS)
            start([REMIT, "devices", "init", "--name", "bench"], cwd=folder, stdout=subprocess.PIPE).communicate()
            device, _ = started(folder, "up")
            try:
                time.sleep(SETTLE_S)
                before = worked_s(device.pid)
                time.sleep(WATCH_S)
                share = (worked_s(device.pid) - before) / WATCH_S
                memory = memory_mb(device.pid)
            finally:
                device.terminate()
                device.wait()
        finally:
            gateway.terminate()
            gateway.wait()
    return [
        Figure(name="remit up: idle memory", value=memory, unit="MB", bound=at_most(60)),
        Figure(name="remit up: idle share of a core", value=share * 100, unit="%", bound=at_most(0.1)),
    ]


if __name__ == "__main__":
    main(measure)
