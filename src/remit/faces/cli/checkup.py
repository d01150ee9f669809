"""What `remit doctor` looks at, one check after another; none of them changes anything that is kept."""

import asyncio
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from remit import __version__
from remit.faces.cli.places import DEFAULT_STORE, importing, reading, shorter, team_of
from remit.faces.cli.show.screen import clock_time, many, spoken
from remit.faces.outputs.team import Check
from remit.faces.safe_text import speaks_unicode
from remit.faces.team.checks import secrets_of, unset
from remit.faces.team.file import find_team, load_team
from remit.faces.team.lines import dotted
from remit.faces.team.others import unservable
from remit.faces.team.team import Team
from remit.protocol.errors import RemitError
from remit.runtime.audit import link
from remit.runtime.signing import read_key
from remit.stores import inbox
from remit.stores.audit import verify_file
from remit.stores.checkpoints import key_path
from remit.stores.connection import Connection, connect_reader, connect_writer, write_lock
from remit.stores.export import before_newest, linked_rows
from remit.stores.faults import translate
from remit.stores.reader import records, runs
from remit.stores.schema import APPLICATION_ID, MIGRATIONS

if TYPE_CHECKING:  # most teams have no device, and all that belongs to one takes a while to load
    from remit.relay.device import Device

PYTHON = (3, 11)
# Below this a store can stop any moment; below ten times as much one should know.
LEAST_FREE_BYTES = 100 * 1024 * 1024
# Verifying so many rows takes about a second; of a larger record the newest are looked at.
QUICK_ROWS = 100_000
# Clocks of machines that share a store differ by less.
CLOCK_MS = 60_000
# Nothing was recorded before this program was written (2025-01-01).
EPOCH_MS = 1_735_689_600_000
# A hub holds the lock for a few milliseconds at a time.
LOCK_SECONDS = 2
# How many of the newest runs are looked at for those whose hub went silent.
RUNS = 200

_LOCAL = "Keep the store on a disk of this machine: `path` in `[store]` of the team file."

# Over these, locks and shared memory do not work between machines as SQLite needs them (https://sqlite.org/wal.html).
NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|afs|9p|ceph|glusterfs|lustre|gfs2|ocfs2|beegfs|vboxsf|drvfs|fuse\.(?!ext|ntfs).*"
)


def examine(store_path: Path | None, team_file: Path | None, overrides: Sequence[str]) -> Iterator[Check]:
    """Return what was found, in the order in which one would mend it."""
    yield _python()
    yield ok("remit", f"{__version__}, in {Path(__file__).parents[2]}")
    yield from _packages()
    team = None
    file = team_file or find_team()
    if file is None:
        yield warning("team file", "there is none here, nor in a folder above", "`remit init` makes one to begin with.")
    else:
        try:
            team = team_of(file, overrides)
            flows = f", {many(len(team.workflows), 'workflow')}" if team.workflows else ""
            yield ok("team file", f"{shorter(team.file)}: {many(len(team.agents), 'agent')}{flows}")
        except RemitError as error:
            yield problem("team file", error.fault.message, "`remit validate` says what is wrong, line by line.")
    path = store_path or (shorter(team.store_path) if team else DEFAULT_STORE)
    yield from _secrets(team)
    yield from _served(team)
    yield from _peers(team)
    yield from _device(team)
    yield from _disk(path)
    yield _durability(team)
    yield from _store(path)
    yield _terminal()


def ok(about: str, says: str, todo: str = "") -> Check:
    return Check(state="ok", about=about, says=says, todo=todo)


def warning(about: str, says: str, todo: str) -> Check:
    return Check(state="warning", about=about, says=says, todo=todo)


def problem(about: str, says: str, todo: str) -> Check:
    return Check(state="problem", about=about, says=says, todo=todo)


# ── the program ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON:
        needed = ".".join(map(str, PYTHON))
        return problem(
            "Python", f"{found}; {needed} is needed", f"Install Python {needed} or newer, and remit with it."
        )
    return ok("Python", f"{found}, {sys.executable}")


_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)[^;<>=]*(?:>=(?P<least>[\d.]+))?[^;]*(?:;.*extra == ['\"](?P<extra>[^'\"]+))?"
)


def _packages() -> Iterator[Check]:
    """Return whether each package that remit needs is there and can be loaded, and which extras are."""
    modules = {_name(each): module for module, names in metadata.packages_distributions().items() for each in names}
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
                yield ok(f"extra {extra}", f"{name} is not installed, and need not be", command)
            else:
                yield problem(name, "it is not installed", command)
            continue
        if least and _numbers(version) < _numbers(least):
            yield problem(name, f"{version} is too old; {least} is needed", command)
            continue
        if extra:
            yield ok(f"extra {extra}", f"{name} {version}")
            continue
        try:
            # Loaded, because a wheel that was built for another machine is installed and does not work.
            import_module(modules.get(_name(name), name))
        except ImportError as error:
            yield problem(name, f"{version} is installed and cannot be loaded: {error}", f"{command} --force-reinstall")
        else:
            fine.append(f"{name} {version}")
    yield ok("packages", ", ".join(fine))


def _name(distribution: str) -> str:
    """Return a package's name in the one form that all its spellings share."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])]


def _secrets(team: Team | None) -> Iterator[Check]:
    if team is None:
        return
    missing = {dotted(wrong.place): wrong.message for wrong in unset(team, os.environ)}
    for place, reference in secrets_of(team):
        about = "redaction key" if place == ("redaction", "key") else dotted(place)
        if (why := missing.get(dotted(place))) is None:
            yield ok(about, f"{reference} is set")
        else:
            yield problem(about, why, "Set it where hubs are started; without it they do not start.")
    try:
        with importing():
            load_team(team.file, overrides=team.overrides)
    except RemitError as error:
        for each in error.fault.problems:
            if each.message not in missing.values():
                about = each.path.partition(" ")[2] or "team file"
                yield problem(about, each.message, "Until then, no hub of this team starts.")


def _served(team: Team | None) -> Iterator[Check]:
    for wrong in () if team is None else unservable(team):
        yield problem(dotted(wrong.place), wrong.message, "Until then, `remit serve` does not start.")


def _peers(team: Team | None) -> Iterator[Check]:
    addresses = {} if team is None else {name: peer.url for name, peer in team.peers.items() if peer.url}
    if not addresses:
        return
    from remit.faces.cli.meeting import met  # most teams ask nobody elsewhere

    found = asyncio.run(met(set(addresses.values())))
    for name, url in addresses.items():
        if why := found[url]:
            todo = (
                f"See that its hub runs, and where: `url` in `[peers.{name}]`. Until then its agents cannot be asked."
            )
            yield warning(f"peers.{name}", f"{url}: {why}", todo)
        else:
            yield ok(f"peers.{name}", f"{url} answers")


def _device(team: Team | None) -> Iterator[Check]:
    """Return whether the team's device could be at work, if it has one or says that it would."""
    if team is None or team.relay is None:
        return
    if find_spec("vodozemac") is None:
        says = "the team has a gateway, and the extra `relay` is not installed"
        yield warning("device", says, "pip install 'remit[relay]'")
        return
    # Most teams have no device, and all that belongs to one takes a while to load.
    from remit.faces.device import device_path, doubts, program_of, using_device
    from remit.relay.peers import Peers

    try:
        with using_device(team) as device:
            known = Peers(device.state).list()
            says = (
                f"{device.card.name}, {device.id}, in {shorter(device_path(team))}; {many(len(known), 'device')} known"
            )
    except RemitError as error:
        yield warning("device", error.fault.message, error.fault.suggestion)
        return
    yield ok("device", says)
    yield _gateway(team, device)
    for about, why, todo in doubts(team, known):
        yield warning(about, why, todo)
    for name, profile in team.profiles.items():
        key = "run" if profile.run is not None else "acp"
        if profile.agent is not None:
            continue
        if key == "acp" and find_spec("acp") is None:
            says = "the extra `acp` is not installed"
            yield warning(f"profiles.{name}.acp", says, "pip install 'remit[acp]'")
        with suppress(RemitError):  # a secret that is missing is said above
            program = program_of(team, name)
            if not program.exists():
                says = f"there is no program `{program.command}` that could be started"
                yield warning(f"profiles.{name}.{key}", says, "Install it, or say where it is.")


def _gateway(team: Team, device: "Device") -> Check:
    """Return whether the team's gateway is there, is the one that is meant, and knows the device."""
    from remit.faces.cli.standing import standing

    assert team.relay is not None, "asked only where there is one"
    about, at = "gateway", team.relay.gateway
    try:
        found = asyncio.run(standing(team, device))
    except RemitError as error:
        return warning(about, f"{at}: {error.fault.message}", error.fault.suggestion)
    if not found.known:
        says = f"{at} answers; the device was never connected there, so nobody can reach it"
        return warning(about, says, "Connect once: remit share, or remit chat PROFILE DEVICE")
    waiting = f"; {many(found.waiting, 'message')} waiting for it" if found.waiting else ""
    connected = "is connected" if found.connected else "is known there"
    return ok(about, f"{at} answers, and the device {connected}{waiting}")


def _terminal() -> Check:
    if not speaks_unicode(sys.stdout):
        return warning(
            "terminal", f"it speaks {sys.stdout.encoding}, not UTF-8", "Set PYTHONUTF8=1 to see arrows and …"
        )
    if not sys.stdout.isatty():
        return ok("terminal", "stdout is none: output is plain text")
    colours = "no colours, because NO_COLOR is set" if os.environ.get("NO_COLOR") else "colours"
    return ok("terminal", f"{shutil.get_terminal_size().columns} columns, {colours}")


# ── the disk ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _disk(path: Path) -> Iterator[Check]:
    folder = next(each for each in (path.absolute().parent, *path.absolute().parents) if each.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        yield problem("folder", f"{folder} cannot be written to", f"Give this user the right to: chmod u+wx {folder}")
    free = shutil.disk_usage(folder).free
    about, says = "disk", f"{_size(free)} are free in {folder}"
    if free < LEAST_FREE_BYTES:
        yield problem(about, says, "Make room: a store that cannot write lets nothing start.")
    elif free < 10 * LEAST_FREE_BYTES:
        yield warning(about, says, "Make room soon: a store that cannot write lets nothing start.")
    else:
        yield ok(about, says)
    kind = _filesystem(folder)
    if kind and NETWORK.fullmatch(kind):
        yield warning("filesystem", f"{kind} is a network's: locks may fail, and a store be damaged", _LOCAL)
    elif kind:
        yield ok("filesystem", f"{kind}, of this machine")


def _filesystem(folder: Path) -> str | None:
    """Return the kind of the file system that holds a folder, where the system tells (Linux)."""
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


def _durability(team: Team | None) -> Check:
    mode = team.store.durability if team else "power"
    survives = "a power cut" if mode == "power" else "a killed process, but not a power cut"
    return ok("durability", f"{mode}: an answer survives {survives}")


def _store(path: Path) -> Iterator[Check]:
    if not path.exists():
        yield ok("store", f"{path} is not there yet: the first run makes it")
        yield _clock(None)
        return
    if (version := _older_version(path)) is not None:
        says = f"{path} has version {version}, which an older remit wrote; the current one is {len(MIGRATIONS)}"
        yield warning("store", says, "The next run brings it up to date. Until then nothing else here can read it.")
        return
    try:
        with reading(path) as connection:
            yield _opened(connection, path)
            yield _lock(path)
            yield from _keys(path)
            yield _clock(connection)
            yield _audit(connection, path)
            yield _questions(connection)
            yield _silent(connection)
    except RemitError as error:
        yield problem("store", error.fault.message, error.fault.suggestion)


def _older_version(path: Path) -> int | None:
    """Return the version of a store that was not brought up to date yet; None for any other file."""
    with suppress(apsw.Error):
        connection = connect_reader(path, LOCK_SECONDS)
        try:
            version: int = connection.pragma("user_version")
            is_ours = connection.pragma("application_id") == APPLICATION_ID
            return version if is_ours and version < len(MIGRATIONS) else None
        finally:
            connection.close()
    return None


def _opened(connection: Connection, path: Path) -> Check:
    rows, version = many(before_newest(connection, 0), "row"), connection.pragma("user_version")
    size = sum(each.stat().st_size for each in (path, path.with_name(f"{path.name}-wal")) if each.exists())
    return ok("store", f"{path}: {rows}, {_size(size)}, version {version}, SQLite {apsw.sqlite_lib_version()}")


def _lock(path: Path) -> Check:
    """Try to write, as far as that goes without writing."""
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
        return problem("locks", f"the file system cannot share a write-ahead log ({mode})", _LOCAL)
    return ok("locks", "several processes can share the store (WAL)")


def _keys(path: Path) -> Iterator[Check]:
    file = key_path(path)
    try:
        read_key(file)
        mode = stat.S_IMODE(file.stat().st_mode)
    except FileNotFoundError:
        todo = (
            "Put it back from a backup; else the next run makes a new one, and `remit audit verify` names the change."
        )
        yield problem("key", f"{file} is not there, and checkpoints were signed with it", todo)
        return
    except OSError as error:
        yield problem("key", f"{file} cannot be read: {error.strerror}", f"chmod 600 {file}, as the user who runs hubs")
        return
    except RemitError as error:
        yield problem("key", error.fault.message, error.fault.suggestion)
        return
    if mode & 0o077:
        says = f"{file} can be read by others ({mode:o}): they could sign a record of their own"
        yield problem("key", says, f"chmod 600 {file}")
    else:
        yield ok("key", f"{file} can be read by its owner only")
    others = stat.S_IMODE(path.stat().st_mode) & 0o077
    if others:
        yield warning("record", f"{path} can be read or written by others", f"chmod 600 {path}")


def _clock(connection: Connection | None) -> Check:
    now_ms = time.time_ns() // 1_000_000
    if now_ms < EPOCH_MS:
        return problem("clock", f"it says {time.strftime('%Y-%m-%d')}", "Set the clock of this machine.")
    if not time.get_clock_info("monotonic").monotonic:
        return problem("clock", "this machine has none that only moves forward", "Time limits would not hold here.")
    newest = records(None, None, before_newest(connection, 1), 1)(connection) if connection else []
    if newest and newest[0].at_ms > now_ms + CLOCK_MS:
        ahead = spoken(newest[0].at_ms - now_ms)
        todo = "Set the clocks of all machines that use the store: leases and approvals depend on them."
        return warning("clock", f"the newest record is {ahead} ahead of it", todo)
    return ok("clock", clock_time(now_ms) + (f"; newest record {clock_time(newest[0].at_ms)}" if newest else ""))


def _audit(connection: Connection, path: Path) -> Check:
    todo = "`remit audit verify` names each place."
    count = before_newest(connection, 0)
    if count <= QUICK_ROWS:
        verdict = verify_file(path)
        if not verdict.ok:
            return problem("audit", f"the record was tampered with: {verdict.findings[0]}", todo)
        return ok("audit", f"the record is whole; {many(verdict.unprotected, 'row')} after the last checkpoint")
    before = b""
    for previous, row in linked_rows(connection, after=before_newest(connection, QUICK_ROWS)):
        fits = row.digest == link(previous, row.seq, row.kind, row.at_ms, row.run, row.session, row.body)
        if not fits or (before and before != previous):
            return problem("audit", f"row {row.seq} is not what was written", todo)
        before = row.digest
    return ok("audit", f"the newest {QUICK_ROWS} of {count} rows are whole", "`remit audit verify` checks them all.")


def _questions(connection: Connection) -> Check:
    now_ms = time.time_ns() // 1_000_000
    found = inbox.pending(connection, now_ms)
    if not found:
        return ok("questions", "nothing waits for a person")
    left = spoken(min(each.expires_ms for each in found) - now_ms)
    waits = f"{many(len(found), 'question')} {'waits' if len(found) == 1 else 'wait'} for a person"
    return warning("questions", f"{waits}, the first for {left} more", "`remit pending list` shows them.")


def _silent(connection: Connection) -> Check:
    now_ms = time.time_ns() // 1_000_000
    silent = [each for each in runs(None, None, RUNS, now_ms)(connection) if each.state == "silent"]
    if not silent:
        return ok("runs", "none has gone silent")
    says = f"{many(len(silent), 'run')} went silent: the hub stopped while at it"
    return warning("runs", says, "The next hub that starts on this store ends them, or takes them up if they can be.")
