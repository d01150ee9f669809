"""`/mcp` and host names: a page in a browser cannot use a server that its own host name resolves to."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from remit import Hub
from remit.policy.reception import Sender
from remit_cli.config.load import load_team
from remit_cli.config.serving import serving as serving_team
from remit_server import serve
from remit_server.server import Server
from serving import client_of, serving

ANNA = Sender(name="anna-desk", users=frozenset({"anna"}))
GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "host", "version": "1"},
    },
}


def port_of(server: Server) -> int:
    return int(server.address.rpartition(":")[2])


async def greeted(session: ClientSession, **headers: str) -> tuple[int, Any]:
    """Send the first message of a host, and return the status and the fault."""
    accept = {"accept": "application/json, text/event-stream"}
    async with session.post("/mcp", json=GREETING, headers={**accept, **headers}) as reply:
        is_json = reply.content_type == "application/json"
        return reply.status, (await reply.json()).get("fault") if is_json else None


async def test_a_host_name_that_is_not_of_the_server_is_refused(make_hub: Callable[..., Hub]) -> None:
    async with serving(make_hub(), ANNA) as server, client_of(server, "anna-desk") as host:
        for name in ("evil.example", f"evil.example:{port_of(server)}", "127.0.0.1.evil.example", "192.168.1.5", ""):
            status, why = await greeted(host, host=name)
            assert (status, why["code"]) == (403, "PERMISSION_DENIED"), name
            assert why["message"] == "this host name is not one of this server"


async def test_loopback_names_are_accepted_with_every_port(make_hub: Callable[..., Hub]) -> None:
    async with serving(make_hub(), ANNA) as server, client_of(server, "anna-desk") as host:
        for name in ("localhost", "LOCALHOST:9000", f"127.0.0.1:{port_of(server)}", "[::1]:1"):
            assert (await greeted(host, host=name))[0] == 200, name


async def test_a_page_of_another_origin_is_refused(make_hub: Callable[..., Hub]) -> None:
    async with serving(make_hub(), ANNA) as server, client_of(server, "anna-desk") as host:
        here = f"localhost:{port_of(server)}"
        for origin in ("http://evil.example", "null", "http://localhost:1", f"http://127.0.0.1:{port_of(server)}"):
            status, why = await greeted(host, host=here, origin=origin)
            assert (status, why["message"]) == (403, "cross-origin requests are not allowed"), origin
        assert (await greeted(host, host=here, **{"sec-fetch-site": "cross-site"}))[0] == 403
        assert (await greeted(host, host=here, origin=f"http://{here}"))[0] == 200


async def test_hosts_are_refused_before_anyone_is_authenticated(make_hub: Callable[..., Hub]) -> None:
    async with serving(make_hub(), ANNA) as server, client_of(server, "nobody") as host:
        assert (await greeted(host, host="evil.example"))[0] == 403
        assert (await greeted(host))[0] == 401
        async with host.get("/mcp", headers={"host": "evil.example"}) as reply:
            assert (reply.status, reply.headers["connection"]) == (403, "close"), "its body is not read"
        async with host.delete("/mcp", headers={"origin": "http://evil.example"}) as reply:
            assert reply.status == 403


TEAM = """
name = "office"

[serve]
console_hosts = ["office.example"]

[a2a]
url = "https://a2a.example:8443"

[clients.desk]
token = "$DESK_TOKEN"
users = ["ada"]
agents = ["*"]
"""


async def test_the_names_that_a_team_is_served_under_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "a-token-of-the-desk-that-is-long"
    monkeypatch.setenv("DESK_TOKEN", token)
    (tmp_path / "remit.toml").write_text(TEAM)
    team = load_team(tmp_path / "remit.toml")
    async with serving_team(team, port=0) as served, served.server as server, client_of(server, token) as host:
        assert (await greeted(host, host="office.example", origin="https://office.example"))[0] == 200
        assert (await greeted(host, host="a2a.example:8443"))[0] == 200
        status, why = await greeted(host, host="other.example")
    assert status == 403
    assert "`console_hosts` of `[serve]`" in why["suggestion"]


async def test_a_program_names_further_hosts(make_hub: Callable[..., Hub]) -> None:
    token = "t" * 32
    async with (
        make_hub() as hub,
        serve(hub, clients={"desk": token}, users={"desk": ["ada"]}, hosts=["office.example"]) as address,
        ClientSession(address, headers={"authorization": f"Bearer {token}"}) as host,
    ):
        assert (await greeted(host, host="office.example"))[0] == 200
        status, why = await greeted(host, host="other.example")
    assert status == 403
    assert "`hosts` of `serve`" in why["suggestion"]
