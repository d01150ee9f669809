"""Runs a team and the console, and what plugins show beside them, in one process, until it is stopped."""

import asyncio
import logging
import os
import shutil
import sys
import webbrowser
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from remit.hub.hub import Hub
from remit.installed import brought_under, install_command, named
from remit.protocol.errors import RemitError
from remit.runtime.registry import team_invalid
from remit_cli.config.composition import PresentTeam, hub_of
from remit_cli.config.load import load_team
from remit_cli.config.serving import pricing_of
from remit_cli.config.team import Team
from remit_cli.config.team_policy import FileTeamPolicy
from remit_cli.config.team_search import make_private
from remit_cli.drive.running import Data, until_stopped
from remit_cli.places import importing, relative_path
from remit_server.access import token_in
from remit_server.app import Api
from remit_server.console.console import operator_console
from remit_server.console.hosts import DRAIN_S, HOST, MOST_CONNECTIONS, OWNER, TOKEN_FILE, hosts_at, owner_alone
from remit_server.console.pages import is_built, not_built
from remit_server.documents.team import DevUp
from remit_server.server import Server, freeze_loaded
from remit_server.transports.addresses import listening


class DevOrder(Struct, frozen=True, kw_only=True):
    """What is to be shown, and where."""

    folder: Path
    team_file: Path | None
    """The team of this folder; None: the example team."""
    overrides: tuple[str, ...]
    port: int
    fresh: bool
    opens: bool

    @property
    def root(self) -> Path:
        """The folder for the example team, or for that of this folder."""
        return self.folder / ("example" if self.team_file is None else "own")


async def run_dev(order: DevOrder, data: Data | None) -> int:
    """Run everything until it is stopped, and return the exit code."""
    if not is_built():
        raise not_built()
    with until_stopped() as stop_signal:
        if order.fresh and order.root.exists():
            shutil.rmtree(order.root)
        make_private(order.root)
        async with AsyncExitStack() as stack:
            showing = (named(address)(order) for address in brought_under("extensions", "dev"))
            shown = await stack.enter_async_context(
                next((each for each in showing if each is not None), None) or _without_chat(order)
            )
            _announce(order, shown, data)
            freeze_loaded()
            if order.team_file is None:
                playing = asyncio.create_task(play(shown.hub, shown.chat and shown.chat.start))
                stack.push_async_callback(_ended, playing)
            ends = {stop_signal} if shown.chat is None else {stop_signal, shown.chat.ended}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if shown.chat is not None and shown.chat.ended.done():
                raise shown.chat.ended.result()
            click.echo("Stopping.", err=True)
    click.echo(f"Stopped. Everything is kept in {relative_path(order.folder)}; --fresh begins anew.", err=True)
    return 0


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


# ── what is shown ─────────────────────────────────────────────────────────────────────────────────────────────────────


class ChatDemo(Struct, frozen=True, kw_only=True):
    """A chat that a plugin shows beside the team."""

    start: Callable[[], Coroutine[Any, Any, None]]
    """Starts it, unless it was started before."""
    ended: asyncio.Future[RemitError]
    """Done if the demo cannot go on."""


class Shown(Struct, frozen=True, kw_only=True):
    """A team whose console can be opened."""

    team: Team
    hub: Hub
    address: str
    link: str
    chat: ChatDemo | None = None
    """The chat demo; None if no plugin can show it."""


@asynccontextmanager
async def _without_chat(order: DevOrder) -> AsyncGenerator[Shown]:
    """Serve the console of the team alone while the block lasts."""
    with importing():
        team = team_shown(order)
    present = PresentTeam(team)
    with listening(HOST, order.port) as bound:
        async with hub_of(team, reloaded=present.replace) as hub:
            clients, hosts = (
                owner_alone(token_in(team.store_path.parent / TOKEN_FILE)),
                hosts_at(bound.getsockname()[1]),
            )
            console = operator_console(hub, hosts, clients, team=team.name, currency=team.currency)
            policy, pricing = FileTeamPolicy(hub, present), pricing_of(team)
            api = Api(hub, clients, console=console, hosts=hosts, policy=policy, pricing=pricing)
            async with Server(api, bound=bound, drain_s=DRAIN_S, connections=MOST_CONNECTIONS) as server:
                yield Shown(team=team, hub=hub, address=server.address, link=console.link(OWNER))


# ── the parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def team_shown(order: DevOrder, more: Mapping[str, str] | None = None) -> Team:
    """Return the team to show, with its own store and *more* settings."""
    file, settings = order.team_file, {"store.path": str(order.root / "you" / "hub.db")}
    if file is None:
        file = copied(files("remit_cli") / "templates" / "household", order.root / "team") / "remit.toml"
    if load_team(file, overrides=order.overrides, secrets=False, code=False).store.url is not None:
        why = "the team has a store in PostgreSQL, and this command keeps everything in a folder of its own"
        raise team_invalid(f"{why}; use: remit serve --console")
    settings |= more or {}
    return load_team(file, overrides=(*order.overrides, *(f"{key}={value}" for key, value in settings.items())))


def copied(template: Traversable, folder: Path) -> Path:
    """Return a folder with the files of a template. What is there already is kept: somebody may have changed it."""
    folder.mkdir(parents=True, exist_ok=True)
    with as_file(template) as source:
        for file in source.iterdir():
            if file.is_file() and not (folder / file.name).exists():
                shutil.copyfile(file, folder / file.name)
    return folder


# ── what is said ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _announce(order: DevOrder, shown: Shown, data: Data | None) -> None:
    """Say where the console is, and open it."""
    address, link, chat = shown.address, shown.link, shown.chat is not None
    if data is not None:
        data.document(DevUp(team=shown.team.name, address=address, link=link, folder=str(order.folder), chat=chat))
    else:
        if chat:
            team = "an example team" if order.team_file is None else f"the team of {relative_path(order.team_file)}"
            where = f"The console of {team} is at"
        else:
            where = f"The chat demo is off: it needs `{install_command('relay')}`. Everything else is at"
        click.echo(f"{where} {address} (Ctrl-C to stop).", err=True)
        click.echo(f"Open it, once within 5 minutes: {link}", err=True)
        click.echo(f"Everything is kept in {relative_path(order.folder)}.", err=True)
    if order.opens and _has_desktop():
        webbrowser.open(link)


def _has_desktop() -> bool:
    """Return whether a browser has a window to open; in a terminal alone, one would take over the terminal."""
    return sys.platform in ("darwin", "win32") or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())


SESSION = "march"
# Ada's words; the agents get placeholders in place of the account, the address and the number.
CLAIM = "Claim the tax back, to DE89 3704 0044 0532 0130 00. I am at ada.weber@example.org, +49 30 901820."
# The receipts hold nothing of the kind, so that the agent that sorts them fails.
STRANGE = [{"id": "r-99", "what": "yacht rental", "vendor": "Marina", "gross_cents": 120_000, "vat_percent": 19}]

log = logging.getLogger("remit")


async def play(hub: Hub, start_chat: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
    """Let two users ask the example team, and start the chat demo, if there is one.

    All of it is recorded, so that it is done once. Only the question that waited for an answer ended with the process.
    """
    parts: list[Coroutine[Any, Any, None]] = [_pay(hub)] if await hub.store.runs(limit=1) else [_ada(hub), _ben(hub)]
    if start_chat is not None:
        parts.append(start_chat())
    async with asyncio.TaskGroup() as tasks:
        for part in parts:
            tasks.create_task(_log_failure(part))


async def _log_failure(part: Coroutine[Any, Any, None]) -> None:
    try:
        await part
    except RemitError as error:
        log.warning("a part of the example failed: %s", error.fault.message)


async def _ada(hub: Hub) -> None:
    """Ask for a chain of agents, an unclear wish, a conflict, refusals and limits, and a payment, which waits."""
    for text in (
        "What did I spend in March?",
        "Something is wrong with my receipts.",
        "The second one.",
        "The bank is right.",
        "Look closely at every receipt",
        CLAIM,
    ):
        await hub.ask("orchestrator", text, user="ada", session=SESSION)
    await _pay(hub)


async def _pay(hub: Hub) -> None:
    await hub.ask("orchestrator", "Pay my bills.", user="ada", session=SESSION)


async def _ben(hub: Hub) -> None:
    """Ask some agents directly, one of which fails."""
    for month in ("2026-03", "2026-02"):
        await hub.ask("document-reader", f"Read the receipts of {month}", user="ben", capability="RECEIPTS_READ")
    await hub.ask("categoriser", "Sort these", input=STRANGE, user="ben", capability="RECEIPTS_SORT")
    await hub.ask("orchestrator", "how much did I spend on travel", user="ben", session="travel")
