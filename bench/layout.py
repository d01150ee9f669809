"""The size and the shape of the source tree, and how much of it one request runs through.

A newcomer reads a module, follows its imports, and steps through a request. These figures say how far that goes. The
same counts are limits in `tests/test_layout.py` and `tests/test_names.py`.
"""

import ast
import asyncio
import re
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from importlib.metadata import distribution
from itertools import combinations
from pathlib import Path
from statistics import median
from types import FrameType
from typing import NamedTuple
from unittest.mock import patch

from aiohttp import ClientSession
from packaging.requirements import Requirement

from harness import Figure, Goal, at_least, at_most, main
from remit import Brief, Hub
from remit.runtime.clock import LoopClock
from remit_server import serve

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
# How many lines a package may have: what one can read in a day, and what its feature is worth.
BUDGETS = {
    "cli": 15_000,
    "cluster": 8_000,
    "core": 22_000,
    "guard": 4_000,
    "models": 7_000,
    "orchestrator": 13_000,
    "otel": 1_500,
    "redaction": 3_000,
    "relay": 20_000,
    "server": 24_000,
    "testing": 3_000,
}
# A package imports what it asks for. Its commands and its section of the team file are loaded by `remit` alone, and may
# import what that has.
LOADED_BY_CLI = frozenset({"commands", "section", "team"})


@cache
def paths() -> dict[str, Path]:
    """Return the paths of all modules by name, such as `remit.runtime.frames`; templates are files for users."""
    paths_by_module: dict[str, Path] = {}
    for folder in ROOT.glob("packages/*/src"):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if "templates" not in parts:
                paths_by_module[".".join(parts).removesuffix(".__init__")] = path
    return paths_by_module


@cache
def tree_of(module: str) -> ast.Module:
    """Return the syntax tree of a module; those of all take some seconds."""
    return ast.parse(paths()[module].read_text(encoding="utf-8"))


@cache
def modules() -> dict[str, ast.Module]:
    """Return the syntax trees of all modules by name."""
    return {module: tree_of(module) for module in paths()}


def lines_of(module: str) -> int:
    """Return how many lines a module has, up to the end of its last statement."""
    return max((node.end_lineno or 0 for node in tree_of(module).body), default=0)


def functions() -> dict[str, int]:
    """Return the lines of each function and method."""
    return {
        f"{module}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for module, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def public_classes() -> dict[str, list[str]]:
    """Return the modules that define each public class name."""
    classes: dict[str, list[str]] = defaultdict(list)
    for module, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(module)
    return classes


@cache
def imports_of(module: str) -> frozenset[str]:
    """Return the modules of Remit that a module imports, also within functions."""
    modules: set[str] = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            named = (f"{node.module}.{name.name}" for name in node.names)
            modules.update(name if name in paths() else node.module for name in named)
    return frozenset(modules.intersection(paths()))


def twins() -> list[tuple[str, str]]:
    """Return the pairs of classes that declare the same at least four fields, 70 % of those of the smaller one.

    A field is the same if its name and its type are written alike. What a class inherits is declared elsewhere.
    """
    fields = {
        f"{module}.{node.name}": {
            (each.target.id, ast.unparse(each.annotation))
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        }
        for module, tree in modules().items()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    return [
        (one, other)
        for one, other in combinations((name for name, own in fields.items() if len(own) >= 4), 2)
        if len(fields[one] & fields[other]) >= max(4, 0.7 * min(len(fields[one]), len(fields[other])))
    ]


def test_files() -> list[Path]:
    """Return all modules of tests, and what they share."""
    return [path for pattern in ("tests/**/*.py", "packages/*/tests/**/*.py") for path in ROOT.glob(pattern)]


def imports_within(package: str) -> dict[str, set[str]]:
    """Return which modules of a package each of its modules imports, also within functions."""
    members = {module for module in paths() if module.startswith(f"{package}.")}
    return {module: members.intersection(imports_of(module)) for module in members}


def package_of(module: str) -> str:
    """Return the package that a module belongs to."""
    return paths()[module].relative_to(ROOT / "packages").parts[0]


@cache
def needs(package: str) -> frozenset[str]:
    """Return the packages of this repository that a package asks for, also for an extra, and itself."""
    project = tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional: dict[str, list[str]] = project.get("optional-dependencies", {})
    requirements = [*project["dependencies"], *(each for names in optional.values() for each in names)]
    return frozenset({package, *(match[1] for each in requirements if (match := re.match(r"remit-(\w+)==", each)))})


def against_arrows(package: str) -> set[tuple[str, str]]:
    """Return the modules of a package with what they import of another package that it does not ask for."""
    members = (module for module in paths() if package_of(module) == package)
    imports = ((module, each) for module in members for each in imports_of(module))
    loaded_by_cli = needs(package) | needs("cli")
    return {
        (module, each)
        for module, each in imports
        if package_of(each) not in (loaded_by_cli if LOADED_BY_CLI & {*module.split(".")} else needs(package))
    }


def closure_of(module: str) -> set[str]:
    """Return a module and everything that it imports, directly or not, also within functions."""
    reached, new = set[str](), {module}
    while new:
        reached |= new
        new = {each for known in new for each in imports_of(known)} - reached
    return reached


def import_levels(package: str) -> int:
    """Return the length of the longest chain of imports within a package."""
    imports = imports_within(package)

    @cache
    def level(module: str) -> int:
        return 1 + max(map(level, imports[module]), default=0)

    return max(map(level, imports))


def installed_with(package: str) -> tuple[int, float]:
    """Return how many packages `pip install` brings for one of this repository, itself included, and their megabytes.

    They are read from this environment, where the packages of the repository are links to their source.
    """
    found, new = set[Requirement](), {Requirement(package)}
    while new:
        found |= new
        new = {each for known in new for each in _required_by(known)} - found
    names = {each.name.lower().replace("_", "-") for each in found}
    return len(names), sum(map(_bytes_of, names)) / 1_000_000


def _required_by(wanted: Requirement) -> Iterator[Requirement]:
    for each in map(Requirement, distribution(wanted.name).requires or ()):
        if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)):
            yield each


def _bytes_of(package: str) -> int:
    brought = distribution(package)
    files = [Path(str(brought.locate_file(each))) for each in brought.files or ()]
    files += (ROOT / "packages" / package.removeprefix("remit-") / "src").rglob("*")
    return sum(each.stat().st_size for each in files if each.is_file() and each.suffix != ".pyc")


class Way(NamedTuple):
    """The way of a request through the source files."""

    files: int
    """Through how many files it runs."""
    entries: int
    """How often it enters another file than the one it is in."""


class LoopTime(LoopClock):
    """The time of the event loop, which `way_of` stops."""

    now = staticmethod(lambda: asyncio.get_running_loop().time())


async def way_of(request: Callable[[], Awaitable[object]]) -> Way:
    """Return the way of *request*; what it loads once is not counted.

    How long a request takes changes nothing: the loop's time stands still, so no timer comes due, and only what the
    tasks of the request run is counted, not what the thread of the writer has the loop do.
    """
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "/src/remit" in frame.f_code.co_filename:
            task = asyncio.current_task()
            if task is not None and task not in others:
                called.append(frame.f_code.co_filename)

    await request()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    loop = asyncio.get_running_loop()
    stopped_at = loop.time()
    with patch.object(loop, "time", lambda: stopped_at):
        sys.setprofile(note)
        try:
            await request()
        finally:
            sys.setprofile(None)
    entries = sum(one != other for one, other in zip(["", *called], called, strict=False))
    return Way(len(set(called)), entries)


def hub_of_two(folder: str) -> Hub:
    """Return a hub in which `manager` asks `clerk`."""
    hub = Hub(store=Path(folder) / "hub.db", clock=LoopTime())

    async def clerk(brief: Brief) -> str:
        return brief.text

    async def manager(brief: Brief) -> str:
        return (await brief.delegate("clerk", objective=brief.text)).unwrap()

    hub.add("clerk", clerk)
    hub.add("manager", manager, may_call=["clerk"])
    return hub


def watch(hub: Hub) -> None:
    """Read the events of *hub*: without a reader, the state of the writer's thread decides which records wake it."""
    hub.store.listen(lambda _: None)


async def way_of_ask() -> Way:
    """Return the way of `hub.ask` of an agent which asks another one."""
    with tempfile.TemporaryDirectory() as folder:
        async with hub_of_two(folder) as hub:
            watch(hub)
            return await way_of(lambda: hub.ask("manager", "Sort this", user="u-1"))


async def way_of_post() -> Way:
    """Return the way of a POST to a served hub, for an agent which asks no other."""
    with tempfile.TemporaryDirectory() as folder:
        async with (
            hub_of_two(folder) as hub,
            serve(hub, clients={"web": "web"}) as address,
            ClientSession(address, headers={"authorization": "Bearer web"}) as client,
        ):
            watch(hub)

            async def post() -> None:
                body = {"target": "clerk", "user": "u-1", "objective": "Sort this"}
                async with client.post("/v1/delegations", json=body) as reply:
                    reply.raise_for_status()
                    await reply.read()

            return await way_of(post)


def measure() -> list[Figure]:
    lengths = [lines_of(module) for module in modules()]
    ask, post = asyncio.run(way_of_ask()), asyncio.run(way_of_post())
    core, whole = installed_with("remit-core"), installed_with("remit")
    twice = [name for name, homes in public_classes().items() if len(homes) > 1]
    counts: dict[str, tuple[float, Goal | None]] = {
        "modules": (len(lengths), at_most(600)),
        "lines": (sum(lengths), at_most(120_000)),
        "lines of tests": (
            sum(len(path.read_bytes().splitlines()) for path in test_files() if "node_modules" not in path.parts),
            at_most(95_000),
        ),
        "lines of the median module": (median(lengths), at_least(200)),
        "lines of the largest module": (max(lengths), at_most(700)),
        "lines of the largest function": (max(functions().values()), None),
        "public class names used twice": (len(twice), at_most(0)),
        "pairs of classes with the same fields": (len(twins()), at_most(60)),
        "levels of imports in runtime/": (import_levels("remit.runtime"), at_most(8)),
        "files run by hub.ask with a nested delegation": (ask.files, at_most(30)),
        "entries into a file by hub.ask with a nested delegation": (ask.entries, at_most(90)),
        "files run by a POST to a served hub": (post.files, at_most(36)),
        "entries into a file by a POST to a served hub": (post.entries, at_most(110)),
        "modules that Hub needs": (len(closure_of("remit.hub.hub")), at_most(120)),
        "lines that Hub needs": (sum(map(lines_of, closure_of("remit.hub.hub"))), at_most(22_000)),
    }
    counts |= {
        "packages of `pip install remit-core`": (core[0], at_most(6)),
        "MB of `pip install remit-core`": (round(core[1], 1), at_most(40)),
        "packages of `pip install remit`": (whole[0], None),
        "MB of `pip install remit`": (round(whole[1], 1), at_most(120)),
    }
    for package in PACKAGES:
        members = [module for module in modules() if package_of(module) == package]
        counts[f"package {package}: lines"] = sum(map(lines_of, members)), at_most(BUDGETS[package])
        counts[f"package {package}: modules"] = len(members), at_most(120) if package == "core" else None
        counts[f"package {package}: imports against the arrows"] = len(against_arrows(package)), at_most(0)
    return [Figure(name=f"layout: {name}", value=value, unit="", bound=goal) for name, (value, goal) in counts.items()]


if __name__ == "__main__":
    main(measure)
