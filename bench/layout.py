"""The size and the shape of the source tree, and how much of it one request runs through.

A newcomer reads a module, follows its imports, and steps through a request. These figures say how far that goes. The
same counts are limits in `tests/runtime/test_layout.py` and `tests/test_names.py`.
"""

import ast
import asyncio
import sys
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import median
from types import FrameType

from aiohttp import ClientSession

import remit
from harness import Figure, at_most, main
from remit import Brief, Hub

SOURCE = Path(remit.__file__).parent

# The packages that the tree is to become, by the modules that each holds; the longest name that fits decides.
PACKAGES = {
    "core": "protocol words policy runtime hub stores transports.local agents.function agents.threads agents.typed"
    " agents.token_count",
    "redaction": "detectors",
    "cli": "cli config hub.isolation agents.process agents.process_brief agents.process_group agents.process_main"
    " agents.piped_process agents.sandbox agents.linux_sandbox agents.spawn agents.outgoing_proxy agents.channel"
    " agents.inherited_variables agents.restart_pause agents.lines",
    "server": "server client dialects documents transports hub.serving hub.a2a_agents",
    "models": "agents hub.mcp_tools",
    "orchestrator": "text classifiers hub.orchestration agents.orchestrator agents.workflow agents.workflow_answer"
    " agents.narrator agents.plan_proposer agents.plan_reply agents.plan_state agents.planned_request agents.plugin"
    " agents.open_question agents.intent_classifier agents.conflict_reader agents.disputes agents.follow_ups"
    " agents.known_answers agents.placement agents.request_steps agents.summaries",
    "cluster": "stores.postgres stores.copying transports.nats hub.joining",
    "relay": "relay cli.shared config.device config.device_gateway config.device_host config.device_peers"
    " config.device_process config.device_service config.shared_agents",
    "guard": "guard config.coding_tools",
    "otel": "telemetry hub.telemetry config.telemetry",
    "testing": "testing",
}
# What a package needs besides the core.
NEEDS = {"relay": {"server"}, "guard": {"cli"}}


@cache
def paths() -> dict[str, Path]:
    """Return the paths of all modules by name, such as `runtime.frames`; templates are files for users."""
    found: dict[str, Path] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if "templates" not in parts:
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


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
    found: dict[str, list[str]] = defaultdict(list)
    for module, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module)
    return found


@cache
def imports_of(module: str) -> frozenset[str]:
    """Return the modules of Remit that a module imports, also within functions."""
    found: set[str] = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            home = node.module.removeprefix("remit.")
            named = (f"{home}.{name.name}" for name in node.names)
            found.update(name if name in paths() else home for name in named)
    return frozenset(found.intersection(paths()))


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


def imports_within(package: str) -> dict[str, set[str]]:
    """Return which modules of a package each of its modules imports, also within functions."""
    members = {module for module in paths() if module.startswith(f"{package}.")}
    return {module: members.intersection(imports_of(module)) for module in members}


@cache
def package_of(module: str) -> str:
    """Return the package that a module belongs to."""
    homes = [(name, package) for package, names in PACKAGES.items() for name in names.split()]
    fitting = [each for each in homes if f"{module}.".startswith(f"{each[0]}.")]
    return max(fitting, key=lambda each: len(each[0]), default=("", "core"))[1]


def imports_against_arrows() -> dict[str, int]:
    """Return how many imports of each package are of another one that it does not need."""
    against = dict.fromkeys(PACKAGES, 0)
    for module in paths():
        own = package_of(module)
        allowed = {own, "core", *NEEDS.get(own, ())}
        against[own] += sum(package_of(each) not in allowed for each in imports_of(module))
    return against


def closure_of(module: str) -> set[str]:
    """Return a module and everything that it imports, directly or not, also within functions."""
    found, new = set[str](), {module}
    while new:
        found |= new
        new = {each for known in new for each in imports_of(known)} - found
    return found


def import_levels(package: str) -> int:
    """Return the length of the longest chain of imports within a package."""
    imports = imports_within(package)

    @cache
    def level(module: str) -> int:
        return 1 + max(map(level, imports[module]), default=0)

    return max(map(level, imports))


async def files_run_by(request: Callable[[], Awaitable[object]]) -> set[str]:
    """Return the source files whose functions *request* calls in this thread; what it loads once is not counted."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            files.add(frame.f_code.co_filename)

    await request()
    sys.setprofile(note)
    try:
        await request()
    finally:
        sys.setprofile(None)
    return files


def hub_of_two(folder: str) -> Hub:
    """Return a hub in which `manager` asks `clerk`."""
    hub = Hub(store=Path(folder) / "hub.db")

    async def clerk(brief: Brief) -> str:
        return brief.text

    async def manager(brief: Brief) -> str:
        return (await brief.delegate("clerk", objective=brief.text)).unwrap()

    hub.add("clerk", clerk)
    hub.add("manager", manager, may_call=["clerk"])
    return hub


async def files_of_ask() -> set[str]:
    """Return the files that `hub.ask` of an agent which asks another one runs through."""
    with tempfile.TemporaryDirectory() as folder:
        async with hub_of_two(folder) as hub:
            return await files_run_by(lambda: hub.ask("manager", "Sort this", user="u-1"))


async def files_of_post() -> set[str]:
    """Return the files that a POST to a served hub runs through, for an agent which asks no other."""
    with tempfile.TemporaryDirectory() as folder:
        async with (
            hub_of_two(folder) as hub,
            hub.serve(clients={"web": "web"}) as address,
            ClientSession(address, headers={"authorization": "Bearer web"}) as client,
        ):

            async def post() -> None:
                body = {"target": "clerk", "user": "u-1", "objective": "Sort this"}
                async with client.post("/v1/delegations", json=body) as reply:
                    reply.raise_for_status()
                    await reply.read()

            return await files_run_by(post)


def measure() -> list[Figure]:
    lengths = [lines_of(module) for module in modules()]
    twice = [name for name, homes in public_classes().items() if len(homes) > 1]
    counts = {
        "modules": (len(lengths), None),
        "lines": (sum(lengths), None),
        "lines of the median module": (median(lengths), None),
        "lines of the largest module": (max(lengths), at_most(700)),
        "lines of the largest function": (max(functions().values()), None),
        "public class names used twice": (len(twice), at_most(0)),
        "pairs of classes with the same fields": (len(twins()), None),
        "levels of imports in runtime/": (import_levels("runtime"), at_most(8)),
        "files run by hub.ask with a nested delegation": (len(asyncio.run(files_of_ask())), None),
        "files run by a POST to a served hub": (len(asyncio.run(files_of_post())), None),
        "modules that Hub needs": (len(closure_of("hub.hub")), None),
        "lines that Hub needs": (sum(map(lines_of, closure_of("hub.hub"))), None),
    }
    for package, against in imports_against_arrows().items():
        members = [module for module in modules() if package_of(module) == package]
        counts[f"package {package}: lines"] = sum(map(lines_of, members)), None
        counts[f"package {package}: modules"] = len(members), None
        counts[f"package {package}: imports against the arrows"] = against, None
    return [Figure(name=f"layout: {name}", value=value, unit="", bound=goal) for name, (value, goal) in counts.items()]


if __name__ == "__main__":
    main(measure)
