"""Let a workflow go on after its process was killed, without doing a finished step twice."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from remit import Brief, Hub, Response, Step, Workflow
from remit_orchestrator import add_workflow

ORDER = Workflow(
    name="order",
    steps=(
        Step(name="pay", agent="till", input="{input.euros}"),
        Step(name="ship", agent="warehouse", input="{pay}", after=("pay",)),
    ),
    result="ship",
)


def team(folder: Path, *, dies: bool) -> Hub:
    """Make a team that keeps its record in a folder; its warehouse may kill the process."""

    def till(brief: Brief) -> str:
        with (folder / "charges.txt").open("a", encoding="utf-8") as charges:
            charges.write(f"{brief.input} euros\n")
        return f"receipt for {brief.input} euros"

    def warehouse(brief: Brief) -> str:
        if dies:
            os.kill(os.getpid(), signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
        return f"shipped, with a {brief.input}"

    hub = Hub(store=folder / "hub.db")
    hub.add("till", till)
    hub.add("warehouse", warehouse, resumable=True)  # may be asked again after a crash; the till may not
    add_workflow(hub, ORDER)
    return hub


async def order(folder: Path, *, dies: bool) -> Response:
    async with team(folder, dies=dies) as hub:
        return await hub.ask("order", "Order tea", user="ada", input={"euros": 5}, request_id="order-17")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(order(Path(sys.argv[1]), dies=True))
    with tempfile.TemporaryDirectory() as folder:
        died = subprocess.run([sys.executable, __file__, folder], check=False).returncode != 0
        print("the process was killed:", died)
        print("the next one answers:", asyncio.run(order(Path(folder), dies=False)).unwrap())
        print("charged:", (Path(folder) / "charges.txt").read_text(encoding="utf-8").split("\n")[:-1])
