"""The checks of `remit doctor`; none of them changes stored data."""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import click
from msgspec.structs import replace

from remit import __version__
from remit.plugin import brought, named
from remit.protocol.errors import RemitError
from remit.words.terminal import speaks_unicode
from remit_cli.config.checks import secrets_of, unset
from remit_cli.config.line_numbers import dotted
from remit_cli.config.load import load_team
from remit_cli.config.peers import unencrypted, unservable
from remit_cli.config.team import Team
from remit_cli.config.team_search import find_team
from remit_cli.doctor_store_checks import database, disk, durability, ok, problem, store, warning
from remit_cli.places import DEFAULT_STORE, relative_path
from remit_cli.show.screen import many, print_beside
from remit_server.documents.team import Check, CheckGroup, Checkup

PYTHON = (3, 11)
COMPILED = (".so", ".pyd", ".dylib")


def examine(store_path: Path | None, team_file: Path | None, overrides: Sequence[str]) -> Iterator[Check]:
    """Return the findings by what they are about, in the order in which to fix them."""
    yield from _about("program", _program())
    team: list[Team] = []
    yield from _about("team", _team(team_file, overrides, team))
    yield from _about("store", _store(store_path, team[0] if team else None))


def _about(group: CheckGroup, found: Iterable[Check]) -> Iterator[Check]:
    for each in found:
        yield replace(each, group=group)


def _program() -> Iterator[Check]:
    yield _python()
    yield ok("remit", f"{__version__}, in {Path(__file__).parents[2]}")
    yield from _packages()
    yield _sandbox()
    yield _console()
    yield _terminal()


def _team(team_file: Path | None, overrides: Sequence[str], loaded: list[Team]) -> Iterator[Check]:
    """Check the team file; append the team to *loaded*, if there is one and it is valid."""
    try:
        file = find_team(team_file)
        if file is None:
            says = "not found here or in a parent folder"
            yield warning("team file", says, "Create one with `remit init`.")
        else:
            team = load_team(file, overrides=overrides, secrets=False, code=False, thorough=True)
            loaded.append(team)
            flows = f", {many(len(team.workflows), 'workflow')}" if team.workflows else ""
            yield ok("team file", f"{relative_path(team.file)}: {many(len(team.agents), 'agent')}{flows}")
            yield ok("code", "not imported, because importing runs it", "remit validate --code")
    except RemitError as error:
        why = error.fault
        lines = "`remit validate` lists each problem with its line."
        yield problem("team file", why.message, lines if why.problems else why.suggestion)
    for team in loaded:
        yield from _secrets(team)
        yield from _served(team)
        yield from _peers(team)
        for bring in brought("checks"):
            for address in bring():
                yield from named(address)(team)


def _store(store_path: Path | None, team: Team | None) -> Iterator[Check]:
    if team is not None and team.store.url is not None and store_path is None:
        yield from database(team)
        return
    path = store_path or (relative_path(team.store_path) if team else DEFAULT_STORE)
    yield from disk(path)
    yield durability(team.store.durability if team else "power")
    yield from store(path)


# ── the program ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON:
        needed = ".".join(map(str, PYTHON))
        return problem(
            "Python", f"{found}; {needed} is required", f"Install Python {needed} or newer, then reinstall remit."
        )
    return ok("Python", f"{found}, {sys.executable}")


def _sandbox() -> Check:
    """Check whether isolated agents can be sandboxed here; the check of the team file tries networks of their own."""
    from remit.agents.cards import Sandbox
    from remit_cli.processes.linux_sandbox import version
    from remit_cli.processes.sandbox import missing

    if why := missing(Sandbox()):
        return ok("sandbox", f"not available for isolated agents: {why}")
    return ok("sandbox", f"available for isolated agents: Landlock {version()}, seccomp")


def _console() -> Check:
    """Check that the page of the console is in this package; a checkout has it once it is built."""
    from remit_server.console.pages import is_built, not_built

    if is_built():
        return ok("console", "its page is part of this package")
    return warning("console", "its page is not part of this package", not_built().fault.suggestion)


_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(?:\[(?P<with>[^\]]*)\])?[^;<>=]*(?:>=(?P<least>[\d.]+))?[^;]*"
    r"(?:;.*extra == ['\"](?P<extra>[^'\"]+))?"
)


class _Wanted(NamedTuple):
    """A package of others that Remit asks for, or one of its own that is not installed."""

    name: str
    least: str | None
    extra: str | None
    """The extra of `remit` that brings it; None if it is always there."""


def _wanted() -> Iterator[_Wanted]:
    """Yield what the packages of Remit ask for, each once for each extra that brings it."""
    left: list[tuple[str, str | None, str | None]] = [("remit" if _is_installed("remit") else "remit-cli", None, None)]
    known: set[object] = set()
    while left:
        package, part, extra = left.pop(0)
        for requirement in metadata.requires(package) or ():
            found = _REQUIREMENT.match(requirement)
            if found is None or (package != "remit" and found["extra"] not in (None, part)):
                continue
            brought_by = found["extra"] if package == "remit" else extra
            if (found["name"], found["with"], brought_by) in known:
                continue
            known.add((found["name"], found["with"], brought_by))
            if found["name"].startswith("remit-") and _is_installed(found["name"]):
                left.append((found["name"], found["with"], brought_by))
            else:
                yield _Wanted(found["name"], found["least"], brought_by)


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _packages() -> Iterator[Check]:
    """Check that the required packages are installed and can be loaded, and which extras are installed."""
    fine: list[str] = []
    always = {each.name for each in _wanted() if each.extra is None}
    for name, least, extra in dict.fromkeys(_wanted()):
        if extra and name in always:
            continue
        command = f"pip install 'remit[{extra}]'" if extra else f"pip install '{name}>={least or 0}'"
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            if extra:
                yield ok(f"extra {extra}", f"{name} is not installed (optional)", command)
            else:
                yield problem(name, "not installed", command)
            continue
        if least and _numbers(version) < _numbers(least):
            yield problem(name, f"{version} is too old; {least} is required", command)
            continue
        if extra:
            yield ok(f"extra {extra}", f"{name} {version}")
            continue
        try:
            _load(name)
        except ImportError as error:
            yield problem(name, f"{version} is installed but fails to load: {error}", f"{command} --force-reinstall")
        else:
            fine.append(f"{name} {version}")
    yield ok("packages", ", ".join(fine))


def _load(name: str) -> None:
    """Load a package that was compiled: a wheel built for another platform can be installed and still not work."""
    module = _module_of(name)
    if any(file.suffix in COMPILED for file in metadata.files(name) or ()):
        import_module(module)
    elif find_spec(module) is None:
        raise ImportError(f"there is no module {module}")


def _module_of(name: str) -> str:
    """Return the module that an installed package brings; most have the name of their package."""
    package = metadata.distribution(name)
    found = (package.read_text("top_level.txt") or "").split()
    found = found or [file.parts[0] for file in package.files or () if file.name == "__init__.py"]
    return next((module for module in found if not module.startswith("_")), name)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])]


def _secrets(team: Team) -> Iterator[Check]:
    missing = {dotted(wrong.place): wrong.message for wrong in unset(team, os.environ)}
    for place, reference in secrets_of(team):
        about = "redaction key" if place == ("redaction", "key") else dotted(place)
        if (why := missing.get(dotted(place))) is None:
            yield ok(about, f"{reference} is set")
        else:
            yield problem(about, why, "Set it in the environment of the hubs. They do not start without it.")
    for name, agent in team.agents.items():
        if unset_names := sorted(each for each in agent.env if each not in os.environ):
            says = f"not set here, so not passed to the agent: {', '.join(unset_names)}"
            yield warning(f"agents.{name}.env", says, "Set it in the environment of the hubs, if the agent needs it.")
    try:
        load_team(team.file, overrides=team.overrides, code=False, thorough=True)
    except RemitError as error:
        for each in error.fault.problems:
            if each.message not in missing.values():
                about = each.path.partition(" ")[2] or "team file"
                yield problem(about, each.message, "Hubs of this team do not start until this is fixed.")


def _served(team: Team) -> Iterator[Check]:
    for wrong in unservable(team):
        yield problem(dotted(wrong.place), wrong.message, "`remit serve` does not start until this is fixed.")


def _peers(team: Team) -> Iterator[Check]:
    addresses = {name: peer.url for name, peer in team.peers.items() if peer.url}
    if not addresses:
        return

    found = asyncio.run(check_hubs(set(addresses.values())))
    for name, url in addresses.items():
        if why := found[url]:
            todo = (
                f"Check that its hub is running, and `url` in `[peers.{name}]`. Its agents cannot be called until then."
            )
            yield warning(f"peers.{name}", f"{url}: {why}", todo)
        else:
            yield ok(f"peers.{name}", f"{url} answers")
    for wrong in unencrypted(team):
        is_hub = wrong.place[0] == "peers"
        todo = "Give that hub a certificate; see `remit docs serving`." if is_hub else "Write an address with https."
        yield warning(dotted(wrong.place), wrong.message, todo)


def _terminal() -> Check:
    if not speaks_unicode(sys.stdout):
        return warning(
            "terminal",
            f"encoding is {sys.stdout.encoding}, not UTF-8",
            "Set PYTHONUTF8=1 to see arrows and other symbols.",
        )
    if not sys.stdout.isatty():
        return ok("terminal", "stdout is not a terminal: output is plain text")
    colours = "no colors, because NO_COLOR is set" if os.environ.get("NO_COLOR") else "colors"
    return ok("terminal", f"{shutil.get_terminal_size().columns} columns, {colours}")


# The response of every hub to GET /healthz.
_ALIVE = b"alive\n"


async def check_hubs(urls: Iterable[str]) -> dict[str, str]:
    """Return for each address why no hub is reachable; an empty text if one is."""
    async with asyncio.TaskGroup() as group:
        found = {url: group.create_task(_check_hub(url)) for url in urls}
    return {url: task.result() for url, task in found.items()}


async def _check_hub(url: str) -> str:
    # Slow to load, and most teams have no peers.
    from aiohttp import ClientConnectorError, ClientError, ConnectionTimeoutError

    from remit_server.transports.http import HubPeer
    from remit_server.transports.remote_calls import CONNECT_S, in_words

    peer = HubPeer(url)
    try:
        async with (
            asyncio.timeout(2 * CONNECT_S),
            peer.session.get(f"{peer.url}/healthz", allow_redirects=False) as reply,
        ):
            said = await reply.content.read(len(_ALIVE) + 1)
    except (ClientConnectorError, ConnectionTimeoutError) as error:
        return f"cannot connect: {in_words(error)}"
    except (ClientError, OSError, TimeoutError) as error:
        return f"invalid HTTP response ({type(error).__name__})"
    finally:
        await peer.close()
    return "" if reply.status == 200 and said == _ALIVE else f"the server there is not a hub (status {reply.status})"


COLOURS = {"problem": "red", "warning": "yellow", "ok": "green"}


def print_checkup(found: Checkup, *, shows_all: bool) -> None:
    """Print problems, then warnings, then what is fine: one line for each group, or *shows_all* of it."""
    by_state = {state: [each for each in found.checks if each.state == state] for state in COLOURS}
    todo = [*by_state["problem"], *by_state["warning"]]
    _print_checks(todo)
    if todo:
        click.echo()
    if shows_all:
        _print_checks(by_state["ok"])
    else:
        _print_folded(by_state["ok"])
    problems, warnings = many(len(by_state["problem"]), "problem"), many(len(by_state["warning"]), "warning")
    more = "" if shows_all else " Every check: remit doctor --all"
    click.echo()
    print_beside("", f"{problems}, {warnings}.{more}")


def _print_checks(checks: Sequence[Check]) -> None:
    width = max((len(each.about) for each in checks), default=0)
    for each in checks:
        print_beside(f"{each.state:7}  {each.about:{width}}  ", each.says, fg=COLOURS[each.state])
        if each.todo:
            print_beside(" " * (width + 11) + "→ ", each.todo)


def _print_folded(checks: Sequence[Check]) -> None:
    groups = dict.fromkeys(each.group for each in checks)
    width = max(map(len, groups), default=0)
    for group in groups:
        names = [each.about for each in checks if each.group == group]
        said = dict.fromkeys("extras" if name.startswith("extra ") else name for name in names)
        print_beside(f"ok       {group:{width}}  ", ", ".join(said), fg=COLOURS["ok"])
