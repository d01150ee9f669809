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
from remit.ports import Decision, Question
from remit.protocol.envelope import Json
from remit_models.mcp import add_mcp, server
from remit_models.mcp.hub_servers import McpOptions
from remit_testing.memory import MemoryStore

CALLS: dict[str, tuple[str, dict[str, Json]]] = {
    "tools_call": ("add_numbers", {"a": 5, "b": 3}),
    "elicitation-sep1034-client-defaults": ("test_client_elicitation_defaults", {}),
    "sse-retry": ("test_reconnection", {}),
}
OF_LOGINS: tuple[str, dict[str, Json]] = ("test-tool", {})
# The document that the suite takes for that of its client.
DOCUMENT = "https://conformance-test.local/client-metadata.json"


async def agrees(_: Question) -> Decision:
    return Decision(agreed=True, by="ada")


async def follow(address: str) -> None:
    """Log in as the suite wants it: its authorization server sends everyone on to the hub."""
    async with ClientSession() as session, session.get(address) as reply:
        await reply.read()


async def issuer_of(url: str) -> str:
    """Return the authorization server of an MCP server, which a team knows."""
    where = urlsplit(url)
    about = f"{where.scheme}://{where.netloc}/.well-known/oauth-protected-resource{where.path}"
    async with ClientSession() as session, session.get(about) as reply:
        (issuer,) = (await reply.json())["authorization_servers"]
        return issuer


async def exchanged(given: dict[str, str], issuer: str, resource: str) -> str:
    """Return the grant that the identity provider of the scenario gives for the token of a person (RFC 8693)."""
    kind = "urn:ietf:params:oauth:token-type:"
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "client_id": given["idp_client_id"],
        "subject_token": given["idp_id_token"],
        "subject_token_type": f"{kind}id_token",
        "requested_token_type": f"{kind}id-jag",
        "audience": issuer,
        "resource": resource,
    }
    async with ClientSession() as session, session.post(given["idp_token_endpoint"], data=form) as reply:
        return (await reply.json())["access_token"]


async def reached(url: str, scenario: str) -> McpOptions:
    """Return how to reach the server of a scenario."""
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    if not scenario.startswith("auth/"):
        return {"url": url}
    if "client_id" not in given:
        return {"url": url, "auth": "oauth", "browser": follow, "client_metadata_url": DOCUMENT}
    known: McpOptions = {"url": url, "issuer": await issuer_of(url), "client_id": given["client_id"]}
    if scenario == "auth/pre-registration":
        return {**known, "auth": "oauth", "browser": follow, "client_secret": given["client_secret"]}
    if "private_key_pem" in given:
        return {**known, "client_key": given["private_key_pem"]}
    if "idp_id_token" not in given:
        return {**known, "client_secret": given["client_secret"]}

    async def assertion(issuer: str, resource: str) -> str:
        return await exchanged(given, issuer, resource)

    return {**known, "client_secret": given["client_secret"], "assertion": assertion}


async def main(url: str) -> None:
    server.START_S = 240.0  # the suite starts all scenarios at once, and bounds each itself
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    call = OF_LOGINS if scenario.startswith("auth/") else CALLS.get(scenario)
    tool, arguments = call or ("nothing", {})
    hub = Hub(store=MemoryStore(), approver=agrees)
    add_mcp(hub, "suite", allow=[tool], **await reached(url, scenario))

    @hub.agent("worker", tools=[f"suite.{tool}"])
    async def work(brief: Brief) -> Json:
        return None if call is None else await brief.use(f"suite.{tool}", **arguments)

    assert work
    async with hub:
        (await hub.ask("worker", "go", user="ada")).unwrap()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
