"""The checks of `remit doctor`; none of them changes stored data."""

import asyncio
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import apsw
import click
from msgspec.structs import replace

from remit import __version__
from remit.installed import brought, install_command, named
from remit.protocol.errors import RemitError
from remit.runtime.audit import AuditVerdict, follows
from remit.runtime.signing import read_key
from remit.stores.checkpoints import key_path
from remit.stores.connection import Durability, connect_reader, connect_writer, translate, write_lock
from remit.stores.schema import APPLICATION_ID, MIGRATIONS
from remit.words.terminal import speaks_unicode
from remit_cli.config.checks import secrets_of, unset
from remit_cli.config.load import load_team
from remit_cli.config.origins import dotted
from remit_cli.config.peers import unencrypted, unservable
from remit_cli.config.team import Team
from remit_cli.config.team_search import find_team
from remit_cli.places import DEFAULT_STORE, DatabasePlace, StoreView, reading, relative_path
from remit_cli.show.screen import clock_time, many, print_beside, spoken
from remit_server.documents.team import Check, CheckGroup, Checkup

COMPILED = (".so", ".pyd", ".dylib")


def examine(store_path: Path | None, team_file: Path | None, overrides: Sequence[str]) -> Iterator[Check]:
    """Return the findings by what they are about, in the order in which to fix them."""
    yield from _in_group("program", _program())
    team: list[Team] = []
    yield from _in_group("team", _team(team_file, overrides, team))
    yield from _in_group("store", _store(store_path, team[0] if team else None))


def _in_group(group: CheckGroup, checks: Iterable[Check]) -> Iterator[Check]:
    for each in checks:
        yield replace(each, group=group)


def _program() -> Iterator[Check]:
    yield ok("Python", f"{'.'.join(map(str, sys.version_info[:3]))}, {sys.executable}")
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
        yield from _clear(team)
        yield from _prices(team)
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


def _sandbox() -> Check:
    """Check whether isolated agents can be sandboxed here; the check of the team file tries networks of their own."""
    from remit.agents.cards import Sandbox
    from remit_cli.processes.sandbox import missing, version

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


def _requirements() -> Iterator[_Wanted]:
    """Yield what the packages of Remit ask for, each once for each extra that brings it."""
    left: list[tuple[str, str | None, str | None]] = [("remit" if _is_installed("remit") else "remit-cli", None, None)]
    known: set[object] = set()
    while left:
        package, part, extra = left.pop(0)
        for requirement in metadata.requires(package) or ():
            match = _REQUIREMENT.match(requirement)
            if match is None or (package != "remit" and match["extra"] not in (None, part)):
                continue
            brought_by = match["extra"] if package == "remit" else extra
            if (match["name"], match["with"], brought_by) in known:
                continue
            known.add((match["name"], match["with"], brought_by))
            if match["name"].startswith("remit-") and _is_installed(match["name"]):
                left.append((match["name"], match["with"], brought_by))
            else:
                yield _Wanted(match["name"], match["least"], brought_by)


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _packages() -> Iterator[Check]:
    """Check that the required packages are installed and can be loaded, and which extras are installed."""
    fine: list[str] = []
    always = {each.name for each in _requirements() if each.extra is None}
    for name, least, extra in dict.fromkeys(_requirements()):
        if extra and name in always:
            continue
        command = install_command(extra) if extra else f"pip install '{name}>={least or 0}'"
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
    modules = (package.read_text("top_level.txt") or "").split()
    modules = modules or [file.parts[0] for file in package.files or () if file.name == "__init__.py"]
    return next((module for module in modules if not module.startswith("_")), name)


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


def _clear(team: Team) -> Iterator[Check]:
    """Name the tools and agents from which models get personal data in clear."""
    for section, parts in (("tools", team.tools), ("agents", team.agents)):
        for name in (name for name, each in parts.items() if each.clear):
            says = "models get its results unredacted" if section == "tools" else "its model gets results unredacted"
            yield warning(f"{section}.{name}", says, "Leave out `clear` unless the model needs the values themselves.")


def _prices(team: Team) -> Iterator[Check]:
    """Tell where the price of each model comes from and of which day it is, and which models have none."""
    from remit_cli.config.composition import price_book_of

    book = price_book_of(team)
    sources: dict[str, list[str]] = {}
    for model in dict.fromkeys(book.models.values()):
        sources.setdefault(book.source(model), []).append(model)
    unknown = ", ".join(sources.pop("", ()))
    for source, models in sources.items():
        yield ok("prices", f"{', '.join(models)}: from {source}")
    if unknown:
        budgets, todo = team.budgets, f"Give it in `[prices]` of {relative_path(team.file)}."
        if budgets.run_cost or budgets.delegation_cost or budgets.cost_per_user_per_day:
            yield warning("prices", f"{unknown}: not known, and calls are refused where money is limited", todo)
        else:
            yield ok("prices", f"{unknown}: not known; does not count as free", todo)


def _peers(team: Team) -> Iterator[Check]:
    addresses = {name: peer.url for name, peer in team.peers.items() if peer.url}
    if not addresses:
        return

    faults = asyncio.run(check_hubs(set(addresses.values())))
    for name, url in addresses.items():
        if why := faults[url]:
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
        tasks = {url: group.create_task(_check_hub(url)) for url in urls}
    return {url: task.result() for url, task in tasks.items()}


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
            body = await reply.content.read(len(_ALIVE) + 1)
    except (ClientConnectorError, ConnectionTimeoutError) as error:
        return f"cannot connect: {in_words(error)}"
    except (ClientError, OSError, TimeoutError) as error:
        return f"invalid HTTP response ({type(error).__name__})"
    finally:
        await peer.close()
    return "" if reply.status == 200 and body == _ALIVE else f"the server there is not a hub (status {reply.status})"


COLOURS = {"problem": "red", "warning": "yellow", "ok": "green"}


def print_checkup(checkup: Checkup, *, shows_all: bool) -> None:
    """Print problems, then warnings, then what is fine: one line for each group, or *shows_all* of it."""
    by_state = {state: [each for each in checkup.checks if each.state == state] for state in COLOURS}
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
        shown = dict.fromkeys("extras" if name.startswith("extra ") else name for name in names)
        print_beside(f"ok       {group:{width}}  ", ", ".join(shown), fg=COLOURS["ok"])


def ok(about: str, says: str, todo: str = "") -> Check:
    return Check(state="ok", about=about, says=says, todo=todo)


def warning(about: str, says: str, todo: str) -> Check:
    return Check(state="warning", about=about, says=says, todo=todo)


def problem(about: str, says: str, todo: str) -> Check:
    return Check(state="problem", about=about, says=says, todo=todo)


# A problem below this; a warning below ten times as much.
LEAST_FREE_BYTES = 100 * 1024 * 1024
# Verifying this many rows takes about a second; of a larger record only the newest are checked.
QUICK_ROWS = 100_000
# Synchronized clocks differ by less.
CLOCK_MS = 60_000
# Nothing was recorded before this program was written (2025-01-01).
EPOCH_MS = 1_735_689_600_000
# A hub holds the lock for a few milliseconds at a time.
LOCK_SECONDS = 2
# Of a record in a database that is longer, none is verified: each row is fetched over the network.
QUICK_FETCHED = 10_000
# How many of the newest runs are checked for a silent hub.
RUNS = 200

_LOCAL = "Move the store to a local disk: `path` in `[store]` of the team file."

# Over these, locks and shared memory do not work between machines as SQLite needs them (https://sqlite.org/wal.html).
NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|afs|9p|ceph|glusterfs|lustre|gfs2|ocfs2|beegfs|vboxsf|drvfs|fuse\.(?!ext|ntfs).*"
)

# ── the disk ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def disk(path: Path) -> Iterator[Check]:
    """Check free space and file system for a store at *path*."""
    folder = next(each for each in (path.absolute().parent, *path.absolute().parents) if each.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        yield problem("folder", f"{folder} is not writable", f"Make it writable for this user: chmod u+wx {folder}")
    free = shutil.disk_usage(folder).free
    about, says = "disk", f"{_size(free)} free in {folder}"
    if free < LEAST_FREE_BYTES:
        yield problem(about, says, "Free disk space. Runs do not start if the store cannot be written.")
    elif free < 10 * LEAST_FREE_BYTES:
        yield warning(about, says, "Free disk space soon. Runs do not start if the store cannot be written.")
    else:
        yield ok(about, says)
    kind = _filesystem(folder)
    if kind and NETWORK.fullmatch(kind):
        yield warning("filesystem", f"{kind} is a network file system: locks may fail and damage the store", _LOCAL)
    elif kind:
        yield ok("filesystem", f"{kind}, local")


def _filesystem(folder: Path) -> str | None:
    """Return the file system type of a folder (Linux only)."""
    mounts: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
            _, place, kind, *_ = line.split(" ")
            mounts[place.replace("\\040", " ")] = kind
    return next((mounts[str(each)] for each in (folder, *folder.parents) if str(each) in mounts), None)


def _size(size: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1_024:
            return f"{size:.0f} {unit}"
        size /= 1_024
    return f"{size:.1f} TB"


# ── the store ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def durability(mode: Durability) -> Check:
    """Report which failures an answer survives."""
    survives = "a power cut" if mode == "power" else "a killed process, but not a power cut"
    return ok("durability", f"{mode}: an answer survives {survives}")


def store(path: Path) -> Iterator[Check]:
    """Check a store and its content without writing to it."""
    if not path.exists():
        yield ok("store", f"{path} does not exist yet; the first run creates it")
        yield _clock(None)
        return
    if (version := _older_version(path)) is not None:
        says = f"{path} has schema version {version} of an older remit; the current version is {len(MIGRATIONS)}"
        yield warning("store", says, "The next run upgrades it. Other commands cannot read it until then.")
        return
    try:
        with reading(path) as view:
            yield _opened(view, path)
            yield _lock(path)
            yield from _keys(path)
            yield _clock(view)
            yield _audit(view, path)
            yield _questions(view)
            yield _silent(view)
    except RemitError as error:
        yield problem("store", error.fault.message, error.fault.suggestion)


def _older_version(path: Path) -> int | None:
    """Return the version of a store that needs an upgrade; None for any other file."""
    with suppress(apsw.Error):
        connection = connect_reader(path, LOCK_SECONDS)
        try:
            version: int = connection.pragma("user_version")
            is_ours = connection.pragma("application_id") == APPLICATION_ID
            return version if is_ours and version < len(MIGRATIONS) else None
        finally:
            connection.close()
    return None


def _opened(view: StoreView, path: Path) -> Check:
    rows, version = many(view.before_newest(0), "row"), len(MIGRATIONS)
    size = sum(each.stat().st_size for each in (path, path.with_name(f"{path.name}-wal")) if each.exists())
    return ok("store", f"{path}: {rows}, {_size(size)}, version {version}, SQLite {apsw.sqlite_lib_version()}")


def _lock(path: Path) -> Check:
    """Take the write lock without writing."""
    try:
        connection = connect_writer(path, "process", LOCK_SECONDS)
        try:
            with write_lock(connection):
                mode = connection.pragma("journal_mode")
        finally:
            connection.close()
    except apsw.BusyError:
        return warning("locks", f"another process has been writing to {path} for {LOCK_SECONDS} s", "Try again later.")
    except (apsw.Error, OSError) as error:
        why = translate(error, path).fault
        return problem("locks", why.message, why.suggestion)
    if mode != "wal":
        return problem("locks", f"the file system does not support a shared write-ahead log ({mode})", _LOCAL)
    return ok("locks", "several processes can share the store (WAL)")


def _keys(path: Path) -> Iterator[Check]:
    file = key_path(path)
    try:
        read_key(file, private=False)
        mode = stat.S_IMODE(file.stat().st_mode)
    except FileNotFoundError:
        todo = (
            "Restore it from a backup. Otherwise the next run creates a new key, and `remit audit verify` reports that."
        )
        yield problem("key", f"{file} is missing, but checkpoints were signed with it", todo)
        return
    except OSError as error:
        yield problem("key", f"cannot read {file}: {error.strerror}", f"chmod 600 {file}, as the user who runs hubs")
        return
    except RemitError as error:
        yield problem("key", error.fault.message, error.fault.suggestion)
        return
    if mode & 0o077:
        says = f"other users can read {file} ({mode:o}) and could sign a forged record"
        yield problem("key", says, f"chmod 600 {file}")
    else:
        yield ok("key", f"only the owner can read {file}")
    others = stat.S_IMODE(path.stat().st_mode) & 0o077
    if others:
        yield warning("record", f"other users can read or write {path}", f"chmod 600 {path}")


def _clock(view: StoreView | None) -> Check:
    now_ms = time.time_ns() // 1_000_000
    if now_ms < EPOCH_MS:
        return problem("clock", f"the date is {time.strftime('%Y-%m-%d')}", "Set the clock of this machine.")
    if not time.get_clock_info("monotonic").monotonic:
        return problem("clock", "no monotonic clock on this machine", "Time limits do not work without one.")
    newest = view.records(None, view.before_newest(1), 1) if view else []
    if newest and newest[0].at_ms > now_ms + CLOCK_MS:
        ahead = spoken(newest[0].at_ms - now_ms)
        todo = "Synchronize the clocks of all machines that use the store: leases and approvals depend on them."
        return warning("clock", f"the newest record is {ahead} ahead of the clock", todo)
    return ok("clock", clock_time(now_ms) + (f"; newest record {clock_time(newest[0].at_ms)}" if newest else ""))


def _audit(view: StoreView, path: Path) -> Check:
    count = view.before_newest(0)
    if count <= QUICK_ROWS:
        return _verified(view.verify((), ()), key_path(path))
    before = b""
    for previous, row in view.linked_rows(after=view.before_newest(QUICK_ROWS)):
        if not follows(previous, row, row.seq) or (before and before != previous):
            return problem("audit", f"row {row.seq} was changed", _EACH_PLACE)
        before = row.digest
    return ok("audit", f"the newest {QUICK_ROWS} of {count} rows are intact", "`remit audit verify` checks all rows.")


_EACH_PLACE = "`remit audit verify` lists each place."


def _verified(verdict: AuditVerdict, key: Path) -> Check:
    if verdict.announced:
        return warning("audit", f"a hub reported a break in the record: {verdict.findings[0]}", _EACH_PLACE)
    if verdict.other_key:
        back = "Restore the key from a backup; `remit audit verify` shows which key signed."
        return problem("audit", f"{key.name} is not the key that signed the record", back)
    if not verdict.ok:
        return problem("audit", f"the record was tampered with: {verdict.findings[0]}", _EACH_PLACE)
    return ok("audit", f"the record is intact; {many(verdict.unprotected, 'row')} after the last checkpoint")


def _questions(view: StoreView) -> Check:
    now_ms = time.time_ns() // 1_000_000
    questions = view.pending()
    if not questions:
        return ok("questions", "none pending")
    left = spoken(min(each.expires_ms for each in questions) - now_ms)
    waits = f"{many(len(questions), 'question')} pending"
    return warning("questions", f"{waits}; the first expires in {left}", "`remit pending list` shows them.")


def _silent(view: StoreView) -> Check:
    silent = [each for each in view.runs(limit=RUNS) if each.state == "silent"]
    if not silent:
        return ok("runs", "none is silent")
    says = f"{many(len(silent), 'run')} in state `silent`: the hub stopped during the run"
    return warning(
        "runs", says, "The next hub that starts on this store resumes them, or ends those that cannot be resumed."
    )


def database(team: Team) -> Iterator[Check]:
    """Check the database of a team and its content without writing to it."""
    place, key = DatabasePlace(team), key_path(team.store_path)
    try:
        with reading(place) as view:
            rows = view.before_newest(0)
            yield ok("store", f"{place} can be read; {many(rows, 'row')}")
            if key.exists():
                yield ok("store key", f"{key}; keep a copy elsewhere, because all hubs need it")
            else:
                back = "Copy it from a hub that uses this store, or from a backup."
                yield problem("store key", f"there is no {key}", back)
            if rows > QUICK_FETCHED:
                yield ok("audit", f"not verified: {many(rows, 'row')} take a while", "remit audit verify")
            else:
                yield _verified(view.verify((), ()), key)
            yield _questions(view)
            yield _silent(view)
    except RemitError as error:
        yield problem("store", error.fault.message, error.fault.suggestion)
