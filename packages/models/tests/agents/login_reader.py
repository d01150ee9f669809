"""A process whose agent uses a guarded MCP server with a stored login: `python login_reader.py URL FOLDER`."""

import asyncio
import sys

from remit import Brief, Hub
from remit_models.mcp import add_mcp
from remit_testing.memory import MemoryStore


async def main(url: str, folder: str) -> None:
    hub = Hub(store=MemoryStore())
    add_mcp(hub, "far", url=url, auth="oauth", logins=folder, allow=["read"])

    @hub.agent("clerk", tools=["far.read"])
    async def clerk(brief: Brief) -> object:
        return await brief.use("far.read")

    assert clerk
    async with hub:
        print((await hub.ask("clerk", "read", user="u")).unwrap())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
