"""What every benchmark shares: figures with goals, fair timing, one table.

A benchmark is a module beside this one with `measure() -> list[Figure]`; it ends with `main(measure)`. If something it
needs is missing, it says so on stderr and returns no figures.
Speed is judged as a ratio to a floor measured in the same run, so that the machine cancels out.

`make test` runs every benchmark with sizes that `sized` makes small: its figures mean nothing then, but it runs.
"""

import argparse
import gc
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

Clock = Callable[[], float]
T = TypeVar("T")

SMALL = "REMIT_BENCH_SMALL"


def sized(full: T, small: T) -> T:
    """Return *full*, or *small* if the environment has `REMIT_BENCH_SMALL`."""
    return small if SMALL in os.environ else full


class Goal(msgspec.Struct, frozen=True):
    """A bound on a figure's ratio, or on its value where it has no floor."""

    sign: Literal["<=", ">="]
    bound: float

    def met_by(self, amount: float) -> bool:
        return amount <= self.bound if self.sign == "<=" else amount >= self.bound

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:g}"


def at_most(bound: float) -> Goal:
    return Goal("<=", bound)


def at_least(bound: float) -> Goal:
    return Goal(">=", bound)


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured number; without a goal it is only printed."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    bound: Goal | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.floor if self.floor else None

    @property
    def goal(self) -> str:
        return str(self.bound) if self.bound else "printed"

    @property
    def ok(self) -> bool | None:
        if self.bound is None:
            return None
        return self.bound.met_by(self.value if self.ratio is None else self.ratio)


def start(command: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """Start another process, as `subprocess.Popen` does; for a benchmark in its smallest form it may be forked."""
    if SMALL in os.environ:
        sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
        from commands import popen

        return popen(command, **options)
    return subprocess.Popen(command, **options)


def cpu_seconds() -> float:
    """CPU time of this process so far, all threads together."""
    return time.process_time()


def rss_mb() -> float:
    """Resident memory of this process now (on systems without /proc: at its highest)."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
    return pages * resource.getpagesize() / 2**20


def timed(run: Callable[[], object], clock: Clock) -> float:
    gc.collect()
    start = clock()
    run()
    return clock() - start


def best_of(rounds: int, run: Callable[[], object], *, clock: Clock = cpu_seconds) -> float:
    """The least time that *run* took: noise only ever adds."""
    return min(timed(run, clock) for _ in range(sized(rounds, 1)))


def best_of_each(
    rounds: int, runs: Mapping[str, Callable[[], object]], *, clock: Clock = cpu_seconds
) -> dict[str, float]:
    """The least time of each run, taken in turns and in alternating order, so that noise hits all alike."""
    best = dict.fromkeys(runs, float("inf"))
    for turn in range(sized(rounds, 1)):
        for name in sorted(runs, reverse=turn % 2 == 1):
            best[name] = min(best[name], timed(runs[name], clock))
    return best


def number(amount: float) -> str:
    """Three digits that matter, without exponents."""
    return f"{amount:,.0f}" if abs(amount) >= 100 else f"{amount:.3g}"


def table(figures: Sequence[Figure]) -> str:
    """The figures as aligned text."""
    rows = [("name", "figure", "floor", "ratio", "goal", "ok")]
    for figure in figures:
        floor = "" if figure.floor is None else f"{number(figure.floor)} {figure.unit}"
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        ok = {True: "yes", False: "missed", None: ""}[figure.ok]
        rows.append((figure.name, f"{number(figure.value)} {figure.unit}", floor, ratio, figure.goal, ok))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def main(measure: Callable[[], list[Figure]]) -> None:
    """Run one benchmark by itself: print its table, exit with 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--json", type=Path, help="write the figures to this file instead of printing them")
    target: Path | None = parser.parse_args().json
    figures = measure()
    if target:
        target.write_bytes(msgspec.json.encode(figures))
        return
    print(table(figures))
    sys.exit(any(figure.ok is False for figure in figures))
