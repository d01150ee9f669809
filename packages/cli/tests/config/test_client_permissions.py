"""What `[clients.NAME]` and `[serve]` say of who may come: permissions, and the proxies before the server."""

from pathlib import Path

import pytest

from command_line import make_team
from remit.policy.reception import Permission
from remit.runtime.clock import LoopClock
from remit_cli.config.load import load_team
from remit_cli.config.peers import authenticator_of
from remit_server.transports.credentials.incoming import RunCredentials, Spending

WALL_MS = LoopClock().wall_ms
ENVIRON = {"GRAFANA_TOKEN": "a-token-that-nobody-guesses"}
CLIENT = """
[clients.grafana]
token = "$GRAFANA_TOKEN"
users = ["*"]
agents = []
"""


async def no_fetch(_: str) -> bytes:
    raise AssertionError


@pytest.mark.parametrize("may", [[], ["metrics"], ["read", "control"], ["metrics", "read", "control"]])
async def test_a_client_may_do_what_its_table_says(tmp_path: Path, may: list[str]) -> None:
    team = load_team(make_team(tmp_path, more=f"{CLIENT}permissions = {may}\n"), environ=ENVIRON, code=False)
    door = authenticator_of(
        team,
        held=RunCredentials(WALL_MS),
        spending=Spending(wall_ms=WALL_MS),
        wall_ms=WALL_MS,
        fetch=no_fetch,
        environ=ENVIRON,
    )
    sender = await door.sender({"authorization": f"Bearer {ENVIRON['GRAFANA_TOKEN']}"})
    assert (sender.permissions, sender.may_approve) == (frozenset(map(Permission, may)), False)


@pytest.mark.parametrize("proxy", ["127.0.0.1", "10.0.0.0/8", "::1"])
def test_a_proxy_is_named_by_its_address(tmp_path: Path, proxy: str) -> None:
    file = make_team(tmp_path, more=f'[serve]\nproxies = ["{proxy}"]\n')
    assert load_team(file, environ={}, code=False).serve.proxies == {proxy}
