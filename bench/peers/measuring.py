"""What every peer is measured by: one delegation, memory, and five faults. It needs the standard library alone.

A peer is a module beside this one with the names of `Peer`; it ends with `main(...)` and prints one JSON object. It
runs in an environment of its own, made by `run.py`.
"""

import asyncio
import contextlib
import importlib.metadata
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

Ask = Callable[[], Awaitable[object]]
Figures = dict[str, Any]

# After so many an endless loop counts as not ended.
MAX_TURNS = 100
BUDGET, COST, CALLS = 1_000, 300, 10
"""Ten calls of 300 tokens each, with 1,000 tokens to spend."""
DEADLINE_S, WORK_S = 1.0, 3.0
"""CrewAI counts whole seconds."""
EMAIL, IBAN = "ada@example.org", "DE89370400440532013000"
TEXT = f"Write to {EMAIL} about {IBAN}."


class Peer(Protocol):
    """What a module must have. A scenario that a peer has no means for runs without any."""

    PACKAGES: tuple[str, ...]
    MEANS: dict[str, str]
    """By scenario: the closest means that the peer has."""
    REPEATS: int

    async def hop(self, measured: Callable[[Ask], Awaitable[None]]) -> None:
        """Give one delegation, ready to be repeated, to what measures it."""
        ...

    async def loop(self, turn: Callable[[], None]) -> None: ...
    async def budget(self, spend: Callable[[], None]) -> None: ...
    async def deadline(self, work: Ask) -> bool: ...
    async def steps(self, folder: Path, pay: Callable[[], None], ship: Callable[[], None]) -> None: ...
    async def personal_data(self, seen: list[str]) -> str: ...


class NotEndedError(Exception):
    """Raised where a loop would go on."""


async def bare() -> object:
    """Run a task under a time-out, which is the least that a delegation does."""

    async def constant() -> str:
        return "constant"

    return await asyncio.wait_for(asyncio.create_task(constant()), 30)


async def medians_us(runs: dict[str, Ask], repeats: int) -> dict[str, float]:
    """Return the median time of each, taken in turns."""
    for run in runs.values():
        await run()  # loads what it needs
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            await run()
            taken[name].append((time.perf_counter() - start) * 1e6)
    return {name: round(statistics.median(times), 1) for name, times in taken.items()}


def memory_mb() -> float:
    """Return the resident memory of this process at its highest."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


async def ended_by(run: Awaitable[object]) -> str | None:
    """Return what ended a run: the name of an error; None if nothing did."""
    try:
        await run
    except NotEndedError:
        return None
    except BaseException as error:  # noqa: BLE001 - whatever a framework ends with is what is measured
        return _error_name(error)
    return None


def _error_name(error: BaseException) -> str | None:
    """Return the code or the name of an error; a group is known by its first, and a loop that was cut off by none."""
    if isinstance(error, BaseExceptionGroup):
        return _error_name(error.exceptions[0])  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, NotEndedError):
            return None
        below = below.__cause__ or below.__context__
    fault = getattr(error, "fault", None)  # of Remit's errors
    return str(fault.code if fault else type(error).__name__)


async def loop_figures(peer: Peer) -> Figures:
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if turns >= MAX_TURNS:
            raise NotEndedError

    ended = await ended_by(peer.loop(turn))
    return {"agents_run": turns, "ended_by": ended}


async def budget_figures(peer: Peer) -> Figures:
    spent = 0

    def spend() -> None:
        nonlocal spent
        spent += COST

    ended = await ended_by(peer.budget(spend))
    return {"tokens_spent": spent, "of": BUDGET, "ended_by": ended}


async def deadline_figures(peer: Peer) -> Figures:
    finished = False

    async def work() -> str:
        nonlocal finished
        await asyncio.sleep(WORK_S)
        finished = True
        return "done"

    start, partial = time.perf_counter(), False

    async def run() -> None:
        nonlocal partial
        partial = await peer.deadline(work)

    ended = await ended_by(run())
    after = time.perf_counter() - start
    await asyncio.sleep(max(0.0, WORK_S + 0.5 - after))  # does the work below go on?
    return {
        "ended_after_s": round(after, 1),
        "ended_by": ended or ("partial answer" if partial else None),
        "work_stopped": not finished,
        "partial_answer": partial,
    }


def crash_figures(module: str) -> Figures:
    """Kill a process between two steps, start another, and count how often the first step was done."""
    with tempfile.TemporaryDirectory() as folder:
        for turn in ("dies", "lives"):
            subprocess.run(
                [sys.executable, module, "--steps", folder, turn], check=False, timeout=120, capture_output=True
            )
        done = Path(folder, "steps.txt")
        steps = done.read_text(encoding="utf-8").split() if done.exists() else []
    return {"first_step_done": steps.count("pay"), "finished": "ship" in steps}


async def run_steps(peer: Peer, folder: Path, *, dies: bool) -> None:
    def note(step: str) -> None:
        with (folder / "steps.txt").open("a", encoding="utf-8") as file:
            file.write(f"{step}\n")

    def ship() -> None:
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        note("ship")

    await peer.steps(folder, lambda: note("pay"), ship)


async def personal_data_figures(peer: Peer) -> Figures:
    seen: list[str] = []
    answer = ""

    async def run() -> None:
        nonlocal answer
        answer = await peer.personal_data(seen)

    ended = await ended_by(run())
    text = " ".join(seen)
    return {
        "email_seen": EMAIL in text,
        "iban_seen": IBAN in text,
        "given_back": EMAIL in answer and EMAIL not in text,
        "ended_by": ended,
    }


async def measure(peer: Peer, module: str) -> Figures:
    hop: Figures = {}

    async def measured(ask: Ask) -> None:
        hop.update(await medians_us({"hop_us": ask, "floor_us": bare}, peer.REPEATS))

    await peer.hop(measured)
    return {
        "versions": {package: importlib.metadata.version(package) for package in peer.PACKAGES},
        "memory_mb": getattr(peer, "memory_mb", memory_mb)(),
        **hop,
        **(await peer.more() if hasattr(peer, "more") else {}),  # pyright: ignore
        "faults": {
            name: {"means": peer.MEANS[name], **figures}
            for name, figures in {
                "loop": await loop_figures(peer),
                "budget": await budget_figures(peer),
                "deadline": await deadline_figures(peer),
                "crash": crash_figures(module),
                "personal_data": await personal_data_figures(peer),
            }.items()
        },
    }


def main(peer: Any, module: str) -> None:
    """Measure a peer and print its figures; with `--steps` run the two steps of the crash alone."""
    if "--steps" in sys.argv:
        _, _, folder, turn = sys.argv
        asyncio.run(run_steps(peer, Path(folder), dies=turn == "dies"))
        return
    with contextlib.redirect_stdout(sys.stderr):  # frameworks print
        figures = asyncio.run(measure(peer, module))
    print(json.dumps(figures))
