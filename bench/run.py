"""Run all benchmarks, or the named ones, and keep their figures in results.json."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from harness import Figure, table

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
# Those that train, or take half an hour, are run by themselves; `judgement` has the figures of its parts.
NOT_BENCHMARKS = {
    *("conversations", "harness", "run", "team", "fit_readers", "years"),
    *("judgement_conflicts", "judgement_constraints", "judgement_fields", "judgement_rewrites"),
    *("judgement_models", "judgement_play", "judgement_replies", "judgement_sets"),
}


class Result(msgspec.Struct, frozen=True):
    """A figure as it is kept."""

    value: float
    floor: float | None
    ratio: float | None
    goal: str
    ok: bool | None


def benchmarks() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NOT_BENCHMARKS)


def measure_apart(name: str) -> list[Figure] | None:
    """The figures of one benchmark, or None if it failed.

    Each runs in a process of its own, so that the imports and memory of one do not disturb the next.
    """
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        done = subprocess.run([sys.executable, HERE / f"{name}.py", "--json", figures], check=False)
        if done.returncode != 0:
            return None
        return msgspec.json.decode(figures.read_bytes(), type=list[Figure])


def keep(figures: list[Figure]) -> None:
    """Merge *figures* into the results file; those of benchmarks that did not run stay."""
    results = msgspec.json.decode(RESULTS.read_bytes(), type=dict[str, Result]) if RESULTS.exists() else {}
    for figure in figures:
        results[figure.name] = Result(figure.value, figure.floor, figure.ratio, figure.goal, figure.ok)
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(results, order="sorted"), indent=2) + b"\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of: {', '.join(benchmarks())}")
    names: list[str] = parser.parse_args().names
    if unknown := set(names) - set(benchmarks()):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")

    figures: list[Figure] = []
    failed: list[str] = []
    for name in names or benchmarks():
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        measured = measure_apart(name)
        if measured is None:
            failed.append(name)
        else:
            figures += measured

    keep(figures)
    print(table(figures))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed or any(figure.ok is False for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
