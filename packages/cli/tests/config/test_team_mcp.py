"""`[mcp.NAME]` of a team file: what is wrong with it, and what agents make of it."""

import json
import sys
from pathlib import Path

import pytest

from checkout import TESTS
from command_line import document
from remit import RemitError
from remit.agents.program import Program
from remit.installed import install_command
from remit.runtime.clock import LoopClock
from remit.runtime.schemas import misfits
from remit_cli.config.load import load_team
from remit_cli.config.peers import authenticator_of
from remit_cli.config.serving import fetch
from remit_cli.config.team import team_schema
from remit_models.mcp.oauth_settings import OauthClient, OauthLogin
from remit_models.mcp.section import settings_of
from remit_models.mcp.settings import Address, Unset
from remit_server.transports.credentials.incoming import RunCredentials, Spending

SHED = TESTS / "quick_shed.py"
PYTHON = json.dumps(sys.executable)


def problems(folder: Path, text: str, environ: dict[str, str] | None = None) -> list[str]:
    """Return what is wrong with a team file, each with its place."""
    file = folder / "remit.toml"
    file.write_text(text, encoding="utf-8")
    try:
        load_team(file, environ=environ or {})
    except RemitError as error:
        return [f"{each.path}: {each.message}" for each in error.fault.problems]
    return []


def test_without_the_extra_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    problems_found = problems(folder, f'[mcp.files]\ncommand = {PYTHON}\nallow = ["read"]')
    assert problems_found == [f"remit.toml:1 mcp.files: MCP servers need the extra `mcp`: {install_command('mcp')}"]


def test_a_server_gets_its_secrets_and_the_folder_of_the_team(folder: Path) -> None:
    text = f"""
[mcp.near]
command = {PYTHON}
args = ["server.py"]
env = {{ TOKEN = "$FILES_TOKEN", MODE = "quiet", EMPTY = "" }}
allow = ["read"]
time = "2m"

[mcp.far]
url = "https://tools.example/mcp"
token = "$FILES_TOKEN"
allow = ["read"]
max_output = 500
sampling = false

[mcp.safe]
url = "https://safe.example/mcp"
issuer = "https://login.example"
client_id = "office"
client_secret = "$FILES_TOKEN"
allow = ["read"]

[mcp.mine]
url = "https://mine.example/mcp"
auth = "oauth"
scope = "read"
allow = ["read"]

[mcp.keyed]
url = "https://safe.example/mcp"
issuer = "https://login.example"
client_id = "office"
client_key = "$FILES_TOKEN"
allow = ["read"]
"""
    environ = {"FILES_TOKEN": "the secret"}
    assert problems(folder, text, environ) == []
    team = load_team(folder / "remit.toml", environ=environ)
    near, far = settings_of(team, "near", environ), settings_of(team, "far", environ)
    assert near.reach == Program(
        command=sys.executable,
        args=("server.py",),
        env={"TOKEN": "the secret", "MODE": "quiet", "EMPTY": ""},
        folder=str(folder),
    )
    assert near.time_s == 120
    assert far.reach == Address(url="https://tools.example/mcp", token="the secret")
    assert far.max_output == 500
    assert (near.sampling, far.sampling) == (True, False)
    login = OauthClient(issuer="https://login.example", client_id="office", client_secret="the secret")
    assert settings_of(team, "safe", environ).reach == Address(url="https://safe.example/mcp", oauth=login)
    assert "the secret" not in repr(login)
    mine = settings_of(team, "mine", environ).reach
    kept = folder / ".remit" / "mcp-logins"
    assert mine == Address(url="https://mine.example/mcp", oauth=OauthLogin(scope="read", folder=kept))
    keyed = OauthClient(issuer="https://login.example", client_id="office", client_key="the secret")
    assert settings_of(team, "keyed", environ).reach == Address(url="https://safe.example/mcp", oauth=keyed)
    assert isinstance(settings_of(team, "safe", {}).reach, Unset)
    assert settings_of(team, "far", {}).reach == Unset(why="the environment variable FILES_TOKEN is not set")


def test_an_agent_of_a_team_file_uses_a_server(folder: Path) -> None:
    (folder / "adding.py").write_text("async def add(brief):\n    return await brief.use('sums.add', a=20, b=22)\n")
    text = f"""
[mcp.shed]
command = {PYTHON}
args = [{json.dumps(str(SHED))}]
allow = ["add"]
safe_to_repeat = ["add"]
prefix = "sums"

[agents.adder]
run = "adding:add"
tools = ["sums.add"]
"""
    (folder / "remit.toml").write_text(text, encoding="utf-8")
    ran = document("run", "adder", "x", folder=folder)
    assert (ran["status"], ran["result"]) == ("success", 42)
    assert document("validate", folder=folder)["tools"] == 1


def test_editors_know_that_a_server_has_a_command_or_an_address() -> None:
    schema = team_schema()
    assert not misfits(schema, {"mcp": {"x": {"command": "x", "allow": ["y"]}}})
    assert not misfits(schema, {"mcp": {"x": {"url": "http://x", "allow": ["y"]}}})
    assert misfits(schema, {"mcp": {"x": {"command": "x", "url": "http://x", "allow": ["y"]}}})
    assert misfits(schema, {"mcp": {"x": {"command": "x"}}})


async def test_a_team_says_whose_users_may_answer_questions(folder: Path) -> None:
    text = """
[clients.desk]
token = "$DESK_TOKEN"
users = ["ada"]
agents = ["*"]
may_approve = true

[clients.robot]
token = "$ROBOT_TOKEN"
users = ["ada"]
agents = ["*"]
"""
    environ = {"DESK_TOKEN": "a-token-that-is-long-enough", "ROBOT_TOKEN": "another-that-is-long-enough"}
    assert problems(folder, text, environ) == []
    wall_ms = LoopClock().wall_ms
    door = authenticator_of(
        load_team(folder / "remit.toml", environ=environ),
        held=RunCredentials(wall_ms),
        spending=Spending(wall_ms=wall_ms),
        wall_ms=wall_ms,
        fetch=fetch,
        environ=environ,
    )
    senders = [await door.sender({"authorization": f"Bearer {token}"}) for token in environ.values()]
    assert [(sender.name, sender.may_approve) for sender in senders] == [("desk", True), ("robot", False)]


def test_all_agents_that_are_served_may_be_tools_of_hosts(folder: Path) -> None:
    text = '[serve]\nmcp_tools = ["*"]\nagents = ["echo"]\n[agents.echo]\nrun = "office:tag"\n'
    assert problems(folder, text) == []
