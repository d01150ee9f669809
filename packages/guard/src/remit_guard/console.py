"""The console over the sessions of coding tools, served on this machine once somebody wants to look."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from remit.hub.hub import Hub

if TYPE_CHECKING:
    from remit_server.console.console import Console

TOKEN_FILE = "console.token"


class GuardConsole:
    """Serves the console from the first link on; a guard that nobody looks at opens no port."""

    def __init__(self, hub: Hub, folder: Path) -> None:
        self._hub = hub
        self._folder = folder
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._console: Console | None = None

    async def link(self) -> str:
        """Return a link that signs in one browser, once."""
        from remit_server.console.hosts import OWNER

        async with self._opening:
            console = self._console = self._console or await self._open()
        return console.link(OWNER)

    async def _open(self) -> "Console":
        from remit_server.access import token_in
        from remit_server.app import Api
        from remit_server.console.console import operator_console
        from remit_server.console.hosts import HOST, ConsoleHosts, owner_alone
        from remit_server.documents.spend import Pricing
        from remit_server.model_prices import PriceBook  # a guard that nobody looks at starts without all this
        from remit_server.server import Server
        from remit_server.transports.addresses import listening

        async with AsyncExitStack() as stack:
            bound = stack.enter_context(listening(HOST, 0))
            hosts = ConsoleHosts(bound.getsockname()[1])
            clients = owner_alone(token_in(self._folder / TOKEN_FILE))
            console = operator_console(self._hub, hosts, clients, team="guard", currency="USD")
            pricing = Pricing(price=PriceBook().price)
            # Nobody asks an agent of a tool but the tool itself.
            api = Api(self._hub, clients, exposed=tuple, console=console, hosts=hosts, pricing=pricing)
            await stack.enter_async_context(Server(api, bound=bound))
            self._stack = stack.pop_all()
            return console

    async def close(self) -> None:
        """Stop serving."""
        await self._stack.aclose()
