"""A team's device: its identity beside the store, its gateway, and checks of the team file against known devices.

Connecting is in `device_service`, which takes too long to import for commands that only read.
"""

import os
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from msgspec import Struct, structs

from remit.agents.program import Program
from remit.protocol.errors import Code, RemitError, fault
from remit.protocol.problems import did_you_mean
from remit.runtime.registry import team_invalid
from remit_cli.config.checks import secret_of
from remit_cli.config.team import Team
from remit_cli.config.team_search import make_private
from remit_relay.device.peers import PeerDevice
from remit_relay.device.state import DEVICE_FILE, KEY_FILE, DeviceFile, open_keys
from remit_relay.e2e.account import Device
from remit_relay.team.section import PROFILES, RELAY, SHARED, RelaySection, SharedSection, gateway_name, host_of

# A shorter prefix could match by accident.
MIN_PREFIX = 4


def device_path(team: Team) -> Path:
    """Return the file of the team's device, beside its store; the key file is beside it."""
    return team.store_path.parent / DEVICE_FILE


def open_device(team: Team, *, environ: Mapping[str, str] = os.environ) -> Device:
    """Return the team's device, or raise a `RemitError` if there is none; close its `state` after use."""
    path = device_path(team)
    if not path.exists():
        raise _missing(path)
    key_file(path)  # otherwise a new one would be created
    state = _opened(team, environ)
    try:
        device = Device.load(state)
        if device is None:
            raise _missing(path)
    except BaseException:
        state.close()
        raise
    return device


def create_device(team: Team, name: str, *, environ: Mapping[str, str] = os.environ) -> Device:
    """Create a device for the team, or raise a `RemitError` if it has one; its card names the team's gateway."""
    relay = RELAY.of(team)
    gateway = "" if relay is None else relay.gateway
    folder = device_path(team).parent
    try:
        make_private(folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    state = _opened(team, environ)
    try:
        if (existing := Device.load(state)) is not None:
            why = f"this team has a device already: {existing.card.name}, in {device_path(team)}"
            todo = (
                "To start over with a new identity, move that file and device.key away. To see it: remit devices show"
            )
            raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion=todo))
        return Device.create(state, name=name, gateway=gateway)
    except BaseException:
        state.close()
        raise


@contextmanager
def using_device(team: Team) -> Generator[Device]:
    """Open the team's device for a short time, to read it or the devices that it knows."""
    device = open_device(team)
    try:
        yield device
    finally:
        device.state.close()


def key_file(path: Path) -> Path:
    """Return the key of a device's file, or raise a `RemitError` if it is missing: a new one could not open it."""
    key = path.with_name(KEY_FILE)
    if not key.exists():
        why = f"{key} is not there, and nothing else opens {path}"
        todo = "Restore it from a backup, or move the other file away and start over: remit devices init"
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=todo))
    return key


def passphrase_of(team: Team, environ: Mapping[str, str] = os.environ) -> str:
    """Return the passphrase of a team's device, empty if it has none; raise a `RemitError` if it is not set."""
    relay = RELAY.of(team)
    variable = relay and relay.passphrase
    try:
        return secret_of(variable, environ) if variable else ""
    except ValueError as error:
        raise team_invalid(str(error)) from error


def find_device(peers: Iterable[PeerDevice], named: str) -> PeerDevice:
    """Return the known device with a name, an id or a prefix of an id, or raise a `RemitError` with similar names.

    If several devices had a name one after the other, the one that is not revoked is returned.
    """
    known = list(peers)
    if members := [each.card.name for each in known if named in each.groups]:
        why = f"`{named}` is a group of {', '.join(members)}, and one device is needed here"
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, why, suggestion="Name one of its devices."))
    exact = [each for each in known if named in (each.card.name, each.device)]
    candidates = [each for each in exact if not each.revoked] or exact
    if not candidates and len(named) >= MIN_PREFIX:
        candidates = [each for each in known if each.device.startswith(named.lower())]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        which = ", ".join(f"{each.device} ({each.card.name})" for each in candidates)
        why = f"ambiguous device `{named}`: {which}"
        todo = "Type more of its id."
        raise RemitError(fault(Code.INPUT_VALIDATION_FAILED, why, suggestion=todo))
    groups = sorted({group for each in known for group in each.groups})
    names = [*(each.card.name for each in known if not each.revoked), *groups]
    near = did_you_mean(named, names) or (f"; there are: {', '.join(names)}" if names else "; none is known yet")
    why = f"there is no device `{named[:100]}`{near}"
    todo = "See them all with `remit devices list`; one that is not there is paired first."
    raise RemitError(fault(Code.NOT_FOUND, why, suggestion=todo))


def find_devices(peers: Iterable[PeerDevice], named: str) -> list[PeerDevice]:
    """Return the devices of a group, or the one that `find_device` finds."""
    known = list(peers)
    return [each for each in known if named in each.groups] or [find_device(known, named)]


def _opened(team: Team, environ: Mapping[str, str]) -> DeviceFile:
    path, passphrase = device_path(team), passphrase_of(team, environ)
    try:
        return DeviceFile.open(path, open_keys(path.with_name(KEY_FILE), passphrase), team.store.durability)
    except OSError as error:
        raise _unwritable(path.parent, error) from error


def _unwritable(folder: Path, error: OSError) -> RemitError:
    message = f"{folder} cannot be written to: {error.strerror}"
    suggestion = "Give this user write access, or set another `path` in `[store]`."
    return RemitError(fault(Code.TEAM_INVALID, message, suggestion=suggestion))


def _missing(path: Path) -> RemitError:
    message = f"this team has no device yet: there is none in {path}"
    return RemitError(fault(Code.TEAM_INVALID, message, suggestion="Make one: remit devices init"))


# ── checks of a team file ─────────────────────────────────────────────────────────────────────────────────────────────


def program_of(team: Team, profile: str, environ: Mapping[str, str] = os.environ) -> Program:
    """Return the program of a profile that has one, or raise a `RemitError` if a secret of it is not set."""
    profile_section = PROFILES.of(team)[profile]
    command, *args = profile_section.run or profile_section.acp or ("",)
    try:
        env = {
            key: secret_of(value, environ) if value.startswith("$") else value
            for key, value in profile_section.env.items()
        }
    except ValueError as error:
        raise team_invalid(str(error)) from error
    return Program(command=command, args=tuple(args), env=env, folder=str(team.folder))


class DeviceWarning(NamedTuple):
    """A part of a valid team file that will not work with the known devices."""

    about: str
    says: str
    todo: str


def device_warnings(
    team: Team, peers: Iterable[PeerDevice], shared: Mapping[str, SharedSection] | None = None
) -> Iterator[DeviceWarning]:
    """Return devices in the team file (or *shared*) that are unknown or lack permission, and sections without any.

    Also the grants to known devices that name an agent or a profile that the team does not have.
    """
    known = list(peers)
    for name, profile in PROFILES.of(team).items():
        about = f"profiles.{name}"
        granted = [each for each in known if each.may_be_asked_by(name)]
        if not profile.allow_shared_agent_calls and not (granted and profile.allow_shared_agent_calls is None):
            message, todo = (
                "it may not call shared agents",
                f"Allow a device, if it may: {allow_command('DEVICE', name)}",
            )
            if profile.allow_shared_agent_calls is False or profile.devices:
                todo = "Set `allow_shared_agent_calls = true`, if it may."
            yield DeviceWarning(about, message, todo)
            continue
        named = profile.devices if profile.allow_shared_agent_calls else ()
        todo = allow_command("DEVICE", name)
        yield from _warnings_about(f"{about}.devices", named, known, "be asked from here", granted=granted, todo=todo)
    for name, agent in team.agents.items():
        if agent.device is not None:
            yield from _warnings_about(f"agents.{name}.device", (agent.device,), known, "be asked from here")
    for name, section in (SHARED.of(team) if shared is None else shared).items():
        granted = [each for each in known if each.may_ask(name)]
        todo = f"remit devices allow DEVICE --agent {quote(name)}"
        yield from _warnings_about(
            f"shared.{name}.devices",
            section.devices,
            known,
            "reach this device",
            is_asking=True,
            granted=granted,
            todo=todo,
        )
    for peer in known:
        yield from _stale_grants(team, peer, (shared or {}).keys() | SHARED.of(team).keys())


def _stale_grants(team: Team, peer: PeerDevice, shared: Collection[str]) -> Iterator[DeviceWarning]:
    name = peer.card.name
    take_back = f"Take it back: remit devices allow {quote(name)}"
    for each in sorted(peer.agents.difference(shared)):
        message = f"{name} was let to ask the agent {each}, which the team does not share"
        yield DeviceWarning("device", message, f"{take_back} --agent {quote(each)} --remove")
    for each in sorted(peer.profiles.difference(PROFILES.of(team))):
        message = f"the profile {each} was let to ask {name}, and the team has no such profile"
        yield DeviceWarning("device", message, f"{take_back} --profile {quote(each)} --remove")


def _warnings_about(
    about: str,
    named: Iterable[str],
    known: list[PeerDevice],
    may: str,
    *,
    is_asking: bool = False,
    granted: Collection[PeerDevice] = (),
    todo: str = "",
) -> Iterator[DeviceWarning]:
    for each in sorted(named):
        named_devices = [peer for peer in known if each in peer.names]
        standing = [peer for peer in named_devices if not peer.revoked]
        if named_devices and not standing:
            yield DeviceWarning(
                about, f"the device {each} was revoked", "Pair with its new identity, or remove it from the file."
            )
        elif not standing:
            near = did_you_mean(each, {name for peer in known for name in (peer.card.name, *peer.groups)})
            yield DeviceWarning(
                about,
                f"no device {each} is known here{near}",
                "Run `remit pair` on one side, and `remit pair CODE` on the other.",
            )
        for peer in standing:
            name = peer.card.name if each in peer.groups else each
            if not (peer.allowed if is_asking else peer.may_talk):
                allow = f"Allow it, if it may: remit devices allow {quote(name)}"
                yield DeviceWarning(about, f"the device {name} is known, and may not {may}", allow)
            elif not peer.verified:
                yield DeviceWarning(
                    about,
                    f"the device {name} is not verified: another device could impersonate it",
                    "Pair again: remit pair",
                )
    if not set(named) and not granted:
        yield DeviceWarning(about, "no device is allowed", f"Allow one: {todo}")


def allow_command(device: str, profile: str) -> str:
    """Return the command that lets a profile ask a device."""
    return f"remit devices allow {quote(device)} --profile {quote(profile)}"


# ── the gateway of a device ───────────────────────────────────────────────────────────────────────────────────────────

_FACT = "gateway"


class KeptGateway(Struct, frozen=True, kw_only=True):
    """The gateway in a device's file: `remit pair --gateway` puts it there."""

    url: str
    name: str = ""
    """The name that it gives itself, if it is not its host."""


def kept_gateway(device: Device) -> KeptGateway | None:
    """Return the gateway in a device's file, if there is one."""
    return device.state.fact(_FACT, KeptGateway)


def keep_gateway(team: Team, device: Device, gateway: KeptGateway) -> None:
    """Put a gateway into the device's file and on its card; raise a `RemitError` if the team file names another."""
    if (relay := RELAY.of(team)) is not None:
        if (relay.gateway.rstrip("/"), gateway_name(team)) != (
            gateway.url.rstrip("/"),
            gateway.name or host_of(gateway.url),
        ):
            why = f"{team.file} names another gateway: {relay.gateway}, not {gateway.url}"
            todo = (
                "A code holds for one gateway: both sides use the same. Change `gateway` in `[relay]`, or pair there."
            )
            raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion=todo))
        return
    with device.state.writing():
        device.state.keep(_FACT, gateway)
        if device.card.gateway != gateway.url:
            device.rename(gateway=gateway.url)


def with_gateway(team: Team, device: Device | None = None, *, environ: Mapping[str, str] = os.environ) -> Team:
    """Return the team with its gateway: from the team file, else from its device's file; or raise a `RemitError`."""
    if RELAY.of(team) is not None:
        return team
    if device is not None:
        kept = kept_gateway(device)
    elif device_path(team).exists():
        opened = open_device(team, environ=environ)
        try:
            kept = kept_gateway(opened)
        finally:
            opened.state.close()
    else:
        kept = None
    if kept is None:
        why = f"this device has no gateway to other devices: {team.file} names none, nor does {device_path(team)}"
        todo = "Pair over one, which is kept: remit pair --gateway wss://… (`remit relay` runs one)."
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=todo))
    return structs.replace(team, relay=RelaySection(gateway=kept.url, name=kept.name or None))
