"""The checks of `remit doctor`; none of them changes stored data."""

import asyncio
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from remit import __version__
from remit.agents.mcp.logins import LoginFile, usable
from remit.agents.mcp.oauth_settings import OauthLogin
from remit.cli.doctor_database_checks import database
from remit.cli.doctor_store_checks import disk, durability, ok, problem, store, warning
from remit.cli.places import DEFAULT_STORE, relative_path
from remit.cli.show.screen import many
from remit.config.checks import secrets_of, unset
from remit.config.line_numbers import dotted
from remit.config.load import load_team
from remit.config.mcp import oauth_keys
from remit.config.mcp_servers import logins_folder
from remit.config.peers import unencrypted, unservable
from remit.config.team import Team
from remit.config.team_search import find_team
from remit.documents.team import Check, CheckGroup
from remit.protocol.errors import RemitError
from remit.words.terminal import speaks_unicode

if TYPE_CHECKING:  # slow to load, and most teams have no device
    from remit.relay.e2e.account import Device

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
        yield from _logins(team)
        yield from _peers(team)
        yield from _device(team)


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
    from remit.agents.linux_sandbox import version
    from remit.agents.sandbox import Sandbox, missing

    if why := missing(Sandbox()):
        return ok("sandbox", f"not available for isolated agents: {why}")
    return ok("sandbox", f"available for isolated agents: Landlock {version()}, seccomp")


def _console() -> Check:
    """Check that the page of the console is in this package; a checkout has it once it is built."""
    from remit.server.console.pages import is_built, not_built

    if is_built():
        return ok("console", "its page is part of this package")
    return warning("console", "its page is not part of this package", not_built().fault.suggestion)


_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)[^;<>=]*(?:>=(?P<least>[\d.]+))?[^;]*(?:;.*extra == ['\"](?P<extra>[^'\"]+))?"
)


def _packages() -> Iterator[Check]:
    """Check that the required packages are installed and can be loaded, and which extras are installed."""
    fine: list[str] = []
    for requirement in metadata.requires("remit") or ():
        found = _REQUIREMENT.match(requirement)
        if found is None:
            continue
        name, least, extra = found["name"], found["least"], found["extra"]
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


def _logins(team: Team) -> Iterator[Check]:
    """Check that somebody is logged in at each MCP server that wants it."""
    for name, section in team.mcp.items():
        oauth = oauth_keys(section).chosen()
        if not isinstance(oauth, OauthLogin) or section.url is None:
            continue
        todo = f"remit mcp login {shlex.quote(name)}"
        login = usable(LoginFile(logins_folder(team), name).read(), section.url, oauth)
        if login is None:
            yield warning(f"mcp.{name}", "nobody is logged in, so its tools cannot be used", todo)
        elif login.refresh_token is None and login.renew_at is not None and login.renew_at <= time.time():
            yield warning(f"mcp.{name}", "the login has expired, so its tools cannot be used", todo)
        else:
            yield ok(f"mcp.{name}", f"logged in at {login.issuer}")


def _peers(team: Team) -> Iterator[Check]:
    addresses = {name: peer.url for name, peer in team.peers.items() if peer.url}
    if not addresses:
        return
    from remit.cli.doctor_connection_checks import check_hubs  # slow to load, and most teams have no peers

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


def _device(team: Team) -> Iterator[Check]:
    """Check the team's device, if the team has one or configures one."""
    if not (team.relay or team.profiles or team.shared):
        return
    if find_spec("vodozemac") is None:
        says = "the team works with other devices, but the extra `relay` is not installed"
        yield warning("device", says, "pip install 'remit[relay]'")
        return
    # Slow to load, and most teams have no device.
    from remit.config.device import device_path, device_warnings, program_of, using_device
    from remit.config.device_gateway import with_gateway
    from remit.relay.device.peers import Peers

    try:
        with using_device(team) as device:
            known = Peers(device.state).list()
            place, count = relative_path(device_path(team)), many(len(known), "device")
            says = f"{device.card.name}, {device.id}, in {place}; {count} known"
            team = with_gateway(team, device)
    except RemitError as error:
        yield warning("device", error.fault.message, error.fault.suggestion)
        return
    yield ok("device", says)
    yield _gateway(team, device)
    for about, why, todo in device_warnings(team, known):
        yield warning(about, why, todo)
    for name, profile in team.profiles.items():
        key = "run" if profile.run is not None else "acp"
        if profile.agent is not None:
            continue
        if key == "acp" and find_spec("acp") is None:
            says = "the extra `acp` is not installed"
            yield warning(f"profiles.{name}.acp", says, "pip install 'remit[acp]'")
        with suppress(RemitError):  # a missing secret is reported above
            program = program_of(team, name)
            if not program.exists():
                says = f"program `{program.command}` not found"
                yield warning(f"profiles.{name}.{key}", says, "Install it, or set its path.")


def _gateway(team: Team, device: "Device") -> Check:
    """Check that the gateway is reachable, is the expected one, and knows this device."""
    from remit.cli.doctor_connection_checks import device_status

    assert team.relay is not None, "asked only where there is one"
    about, at = "gateway", team.relay.gateway
    try:
        found = asyncio.run(device_status(team, device))
    except RemitError as error:
        return warning(about, f"{at}: {error.fault.message}", error.fault.suggestion)
    if not found.known:
        says = f"{at} is reachable; this device has never connected to it, so other devices cannot reach it"
        return warning(about, says, "Connect once, with `remit share` or `remit chat PROFILE DEVICE`.")
    waiting = f"; {many(found.waiting, 'message')} waiting" if found.waiting else ""
    connected = "connected" if found.connected else "registered"
    return ok(about, f"{at} is reachable; this device is {connected}{waiting}")


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
