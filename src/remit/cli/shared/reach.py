"""Reaches the device of a team: joins the process that runs it, or runs it in this one."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from remit import __version__
from remit.cli.shared.client import DeviceClient
from remit.config.device import device_path
from remit.config.device_process import Command, DeviceProcess, file_digest, find_process
from remit.config.sections.relay import SharedSection
from remit.config.team import Team
from remit.protocol.errors import Code, RemitError, fault

# A process that has the device and serves no API yet does so within this time.
STARTING_S = 3.0
_LOOK_S = 0.05


class Reached(NamedTuple):
    """A client of the device, and whether the device runs in this process."""

    client: DeviceClient
    is_here: bool


@asynccontextmanager
async def reach_device(
    team: Team,
    *,
    command: Command,
    overrides: tuple[str, ...],
    shared: Mapping[str, SharedSection] | None = None,
    lost: Callable[[DeviceProcess | None], None] = lambda _: None,
) -> AsyncGenerator[Reached]:
    """Have a client of the team's device while the block lasts; see `DeviceClient` for *lost*.

    Raises a `RemitError` if the process that runs the device cannot be joined.
    """
    folder = device_path(team).parent
    async with AsyncExitStack() as stack:
        process, is_here = find_process(folder), False
        if process is None:
            from remit.config.device_host import device_here  # takes long to import, and a client does not need it

            try:
                here = await stack.enter_async_context(
                    device_here(team, command=command, overrides=overrides, shared=shared)
                )
                process, is_here = here.process, True
            except RemitError as error:
                if error.fault.code is not Code.STATE_CONFLICT or (process := await _starting(folder)) is None:
                    raise
        if not is_here:
            check_settings(process, team, overrides)
        yield Reached(await stack.enter_async_context(DeviceClient(folder, process, lost=lost)), is_here)


async def _starting(folder: Path) -> DeviceProcess | None:
    """Return the process that runs the device, once its API is there."""
    loop = asyncio.get_running_loop()
    until = loop.time() + STARTING_S
    while True:
        found = find_process(folder)
        if found is not None or loop.time() > until:
            return found
        await asyncio.sleep(_LOOK_S)


def check_settings(process: DeviceProcess, team: Team, overrides: tuple[str, ...]) -> None:
    """Raise a `RemitError` if a process has another version, another team file, or not the settings of this command."""
    again = "restart it: remit up --stop, then remit up" if process.command == "up" else "end that process first"
    if process.version != __version__:
        why = f"{process.title} runs this device with version {process.version}; this command has {__version__}"
        raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion=f"{again[0].upper()}{again[1:]}."))
    if process.team != str(team.file.absolute()):
        why = f"{process.title} runs this device with the team file {process.team}"
        raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion=f"Use that file (--team), or {again}."))
    if set(overrides) - set(process.overrides):
        why = f"--set has no effect: {process.title} runs this device with its own settings"
        raise RemitError(fault(Code.STATE_CONFLICT, why, suggestion=f"Leave out --set, or {again}."))


def is_outdated(process: DeviceProcess, team: Team) -> bool:
    """Return whether the team file was changed after the process read it."""
    return process.digest != file_digest(team.file)
