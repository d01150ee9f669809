"""The client that the conformance suite of MCP tests: `python suite_client.py URL`; a variable names the scenario.

It is a hub whose agent uses the tool of the scenario, as agents use the tools of any MCP server.
"""

import asyncio
import json
import os
import sys
from urllib.parse import urlsplit

from aiohttp import ClientSession

from remit import Brief, Hub
from remit.hub.mcp_tools import McpOptions
from remit.protocol.envelope import Json
from remit.runtime.ports import Decision, Question
from remit.testing.memory import MemoryStore

CALLS: dict[str, tuple[str, dict[str, Json]]] = {
    "tools_call": ("add_numbers", {"a": 5, "b": 3}),
    "elicitation-sep1034-client-defaults": ("test_client_elicitation_defaults", {}),
    "sse-retry": ("test_reconnection", {}),
    "auth/client-credentials-basic": ("test-tool", {}),
}


async def agrees(_: Question) -> Decision:
    return Decision(agreed=True, by="ada")


async def reached(url: str) -> McpOptions:
    """Return how to reach the server: with credentials if the scenario has them; a team knows the issuer, too."""
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    if "client_secret" not in given:
        return {"url": url}
    where = urlsplit(url)
    about = f"{where.scheme}://{where.netloc}/.well-known/oauth-protected-resource{where.path}"
    async with ClientSession() as session, session.get(about) as reply:
        (issuer,) = (await reply.json())["authorization_servers"]
    return {"url": url, "issuer": issuer, "client_id": given["client_id"], "client_secret": given["client_secret"]}


async def main(url: str) -> None:
    call = CALLS.get(os.environ["MCP_CONFORMANCE_SCENARIO"])
    tool, arguments = call or ("nothing", {})
    hub = Hub(store=MemoryStore(), approver=agrees)
    hub.mcp("suite", allow=[tool], **await reached(url))

    @hub.agent("worker", tools=[f"suite.{tool}"])
    async def work(brief: Brief) -> Json:
        return None if call is None else await brief.use(f"suite.{tool}", **arguments)

    assert work
    async with hub:
        (await hub.ask("worker", "go", user="ada")).unwrap()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
