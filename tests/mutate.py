"""Changes single guards and rules at random, and shows which changes no test notices: `make mutate`.

A comparison is turned, a condition negated, `and` exchanged for `or`, a refusal dropped, or a constant moved by one. A
process that is forked for each imports the changed module and runs the tests that concern it, until one fails. No file
is changed. Some changes mean the same as before, such as a limit that is only an optimisation: what is shown is for a
person to judge, and a seed draws the same from the same source, so that before and after can be compared.
"""

import argparse
import ast
import os
import random
import resource
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple, NoReturn, Protocol

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "packages" / "core"
SOURCE = CORE / "src"
RUNTIME = SOURCE / "remit" / "runtime"
# What is changed.
MODULES = (
    *sorted((SOURCE / "remit" / "policy").glob("*.py")),
    RUNTIME / "delegation" / "admission.py",
    RUNTIME / "ledger.py",
)
# The tests of a hub's rules that need no other process, those first that find most.
HUB_TESTS = ("guards", "lineage", "budgets", "delegation", "breaker", "slots", "users", "tools", "approvals", "routing")
# More than the slowest of these tests takes on a busy machine; a change may make a loop endless.
BOUND_S = 60
MOST_BYTES = 4 * 2**30

_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
# Turned, these are negated.
_EXACT = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_OBJECTIONS = {"refuse", "Refuse", "Ask", "asked_too_often"}


class Mutation(NamedTuple):
    """One change of a module: the place, what stood there, what stands there now, and the whole changed source."""

    path: Path
    line: int
    before: str
    after: str
    source: bytes

    def __str__(self) -> str:
        name = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path.name
        before, after = (textwrap.shorten(each, 80, placeholder=" …") for each in (self.before, self.after))
        return f"{name}:{self.line}: {before} -> {after}"


class _Placed(Protocol):
    lineno: int
    end_lineno: int | None
    col_offset: int
    end_col_offset: int | None


def mutations(path: Path) -> list[Mutation]:
    """Return every change of a module, in the order of its lines."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def changed(node: _Placed, after: str) -> Mutation:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        before = " ".join(source[start:end].decode().split())
        return Mutation(path, node.lineno, before, after, source[:start] + after.encode() + source[end:])

    mutated = [changed(node, after) for node, after in _changes(ast.parse(source))]
    return sorted(mutated, key=lambda each: (each.line, each.before, each.after))


def _changes(node: ast.AST) -> Iterator[tuple[_Placed, str]]:
    """Yield each part of a tree that can be changed, and what takes its place."""
    match node:
        case ast.JoinedStr() | ast.Assert():
            return  # words; and what nobody may rely on
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield node, f"({ast.unparse(ast.Compare(left, [_TURNED[type(op)]()], [right]))})"
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield node, f"({ast.unparse(ast.BoolOp(other, values))})"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield from _negated(test)
        case ast.comprehension(ifs=tests):
            for test in tests:
                yield from _negated(test)
        case ast.Return(value=ast.Call(func=ast.Name(id=name))) if name in _OBJECTIONS:
            yield node, "pass"
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            yield node, str(value + 1)
        case _:
            pass
    skipped = [getattr(node, name, None) for name in ("annotation", "returns")]
    for child in ast.iter_child_nodes(node):
        if child not in skipped:
            yield from _changes(child)


def _negated(test: ast.expr) -> Iterator[tuple[_Placed, str]]:
    match test:
        case ast.Name("TYPE_CHECKING"):
            return
        case ast.Compare(ops=[op]) if isinstance(op, _EXACT):
            return
        case _:
            yield test, f"(not ({ast.unparse(test)}))"


def drawn(seed: str, number: int) -> list[Mutation]:
    """Return so many changes of all modules, as the seed draws them."""
    every = [mutation for path in MODULES for mutation in mutations(path)]
    return random.Random(seed).sample(every, min(number, len(every)))


def tests_of(path: Path) -> list[Path]:
    """Return the test modules that concern a module of the core, those that are named like it first."""
    hub = [CORE / "tests" / "hub" / f"test_{name}.py" for name in HUB_TESTS]
    beside = sorted((CORE / "tests" / path.parent.name).glob("test_*.py")) if path.parent.name == "policy" else []
    own = [*sorted((CORE / "tests" / "runtime").glob(f"test_{path.stem}*.py"))]
    return [*sorted(beside, key=lambda each: not each.stem.startswith(f"test_{path.stem}")), *own, *hub]


# ── one change ────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Changed(SourceFileLoader):
    """Loads a module from a source that is in no file."""

    def __init__(self, name: str, mutation: Mutation) -> None:
        super().__init__(name, str(mutation.path))
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._mutation.source, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, mutation: Mutation) -> None:
        self._mutation = mutation
        self._name = ".".join(mutation.path.relative_to(SOURCE).with_suffix("").parts)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        return spec_from_file_location(fullname, self._mutation.path, loader=_Changed(fullname, self._mutation))


def _be_tested(mutation: Mutation, tests: Sequence[Path]) -> NoReturn:
    """Run the tests with a changed module in this process, until one fails, and end with what pytest ends with."""
    code = 1
    try:
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        sys.meta_path.insert(0, _Finder(mutation))
        with tempfile.TemporaryDirectory(prefix="remit-mutate-") as folder:
            options = ["-x", "-q", "-p", "no:cacheprovider", f"--timeout={BOUND_S}", f"--basetemp={folder}/tests"]
            code = int(pytest.main([*options, f"--rootdir={ROOT}", *map(str, tests)]))
    finally:
        os._exit(code)


def survivors(
    chosen: Sequence[Mutation], jobs: int, tests: Callable[[Path], Sequence[Path]] = tests_of
) -> list[Mutation]:
    """Return the changes with which all tests pass."""
    waiting, running, survived = list(reversed(chosen)), dict[int, Mutation](), list[Mutation]()
    while waiting or running:
        while waiting and len(running) < jobs:
            mutation = waiting.pop()
            pid = os.fork()
            if pid == 0:
                _be_tested(mutation, tests(mutation.path))
            running[pid] = mutation
        pid, status = os.wait()
        mutation = running.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if code == pytest.ExitCode.NO_TESTS_COLLECTED:
            sys.exit(f"no test concerns {mutation.path}")
        if code == pytest.ExitCode.OK:
            survived.append(mutation)
        print(f"{'SURVIVES' if code == 0 else 'caught'}  {mutation}", flush=True)
    return survived


def main() -> None:
    parser = argparse.ArgumentParser(description="Change guards and rules at random; show what no test notices.")
    parser.add_argument("--seed", default="", help="which changes are drawn (default: others each time)")
    parser.add_argument("--number", type=int, default=50, help="how many (default: 50)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="how many at once (default: one per core)"
    )
    given = parser.parse_args()
    os.chdir(ROOT)
    seed: str = given.seed or str(random.randrange(10_000))
    print(f"SEED={seed}")
    chosen = drawn(seed, given.number)
    alive = survivors(chosen, given.jobs)
    print(f"{len(chosen) - len(alive)} of {len(chosen)} changes are caught; SEED={seed} draws them again")


if __name__ == "__main__":
    main()
