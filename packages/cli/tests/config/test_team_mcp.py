"""`[mcp.NAME]` of a team file: what is wrong with it, and what agents make of it."""

import json
import sys
from pathlib import Path

import pytest

from checkout import TESTS
from command_line import document
from remit import RemitError
from remit.agents.piped_process import Program
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


AGENTS = '[agents.echo]\nrun = "operator:neg"\n[agents.hidden]\nrun = "operator:neg"\n'


@pytest.mark.parametrize(
    ("serve", "expected"),
    [
        ('mcp_tools = ["echo"]', []),
        ('mcp_tools = ["*"]\nagents = ["echo"]', []),
        ('mcp_tools = ["ecco"]', ["remit.toml:2 serve.mcp_tools: there is no agent `ecco`; did you mean `echo`?"]),
        (
            'mcp_tools = ["hidden"]\nagents = ["echo"]',
            ["remit.toml:2 serve.mcp_tools: `hidden` is not among the `agents` of `[serve]`"],
        ),
    ],
)
def test_agents_that_are_tools_of_hosts_exist_and_are_served(tmp_path: Path, serve: str, expected: list[str]) -> None:
    assert problems(tmp_path, f"[serve]\n{serve}\n{AGENTS}") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[mcp.files]\nurl = "https://x"\nissuer = "https://y"\nclient_id = "z"\nallow = ["read"]',
            'remit.toml:3 mcp.files.issuer: `issuer` needs `client_secret`, too; or `auth = "oauth"` for a login',
        ),
        (
            '[mcp.files]\nurl = "https://x"\nauth = "oauth"\nclient_id = "z"\nallow = ["read"]',
            "remit.toml:4 mcp.files.client_id: `client_id` needs `issuer`, too",
        ),
        (
            '[mcp.files]\nurl = "http://far.example"\nauth = "oauth"\nallow = ["read"]',
            "remit.toml:2 mcp.files.url: a server with `auth` needs an https URL",
        ),
        (
            '[mcp.files]\nurl = "https://x"\nauth = "oauth"\ntoken = "$T"\nallow = ["read"]',
            "remit.toml:4 mcp.files.token: a server has a `token` or `auth`, not both",
        ),
        (
            '[mcp.files]\nallow = ["read"]',
            "remit.toml:1 mcp.files: a server needs `command`, which starts it, or `url`, where it is; not both",
        ),
        (
            f'[mcp.files]\ncommand = {PYTHON}\nurl = "http://x"\nallow = ["read"]',
            "remit.toml:1 mcp.files: a server needs `command`, which starts it, or `url`, where it is; not both",
        ),
        (
            '[mcp.files]\nurl = "http://x"\nargs = ["x"]\nallow = ["read"]',
            "remit.toml:3 mcp.files.args: `args` is for a server that has a `command`",
        ),
        (
            f'[mcp.files]\ncommand = {PYTHON}\ntoken = "$T"\nallow = ["read"]',
            "remit.toml:3 mcp.files.token: `token` is for a server that has a `url`; give a program its secret in "
            "`env`",
        ),
        (
            f"[mcp.files]\ncommand = {PYTHON}",
            "remit.toml:1 mcp.files.allow: required key is missing. Tools of the server that agents may be given, "
            "by the server's names.",
        ),
        (
            f'[mcp.files]\ncommand = {PYTHON}\nallow = ["read"]\nsafe_to_repeat = ["write"]',
            "remit.toml:4 mcp.files.safe_to_repeat: `write` is not in `allow`, so no agent can use it",
        ),
        (
            f'[mcp.files]\ncommand = {PYTHON}\nallow = ["a b", "a/b"]',
            "remit.toml:3 mcp.files.allow: `files.a_b` would also be `a b` of `[mcp.files]`; choose another `prefix`",
        ),
        (
            f'[tools.count]\nrun = "office:count"\n[mcp.files]\ncommand = {PYTHON}\nallow = ["count"]\nprefix = ""',
            "remit.toml:5 mcp.files.allow: `count` would also be the tool of that name; choose another `prefix`",
        ),
        (
            f'[mcp.files]\ncommand = {PYTHON}\nallow = ["read"]\nprefix = "!"',
            "remit.toml:3 mcp.files.allow: `!.read` cannot be a tool's name; choose another `prefix`",
        ),
        (
            '[mcp.files]\ncommand = "no-such-program"\nallow = ["read"]',
            "remit.toml:2 mcp.files.command: there is no program `no-such-program` that could be started",
        ),
        (
            f'[mcp.files]\ncommand = {PYTHON}\nallow = ["read"]\nenv = {{ TOKEN = "$FILES_TOKEN" }}',
            "remit.toml:4 mcp.files.env.TOKEN: the environment variable FILES_TOKEN is not set",
        ),
        (
            '[mcp.files]\nurl = "http://x"\ntoken = "$FILES_TOKEN"\nallow = ["read"]',
            "remit.toml:3 mcp.files.token: the environment variable FILES_TOKEN is not set",
        ),
        (
            f'[mcp.files]\ncommand = {PYTHON}\nallow = ["read"]\n'
            '[agents.a]\nrun = "office:tag"\ntools = ["files.write"]',
            "remit.toml:6 agents.a.tools: there is no tool `files.write`; did you mean `files.read`?",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(folder: Path, text: str, expected: str) -> None:
    secrets = {"T": "x" * 20}
    assert problems(folder, text, secrets) == [expected]


def test_several_servers_are_checked_at_once(folder: Path) -> None:
    found = problems(folder, '[mcp]\none = 3\n[mcp.two]\nallow = "x"\n[mcp.three]\nallow = [3]\nprefix = 4')
    assert len(found) == 4, found


def test_without_the_extra_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    found = problems(folder, f'[mcp.files]\ncommand = {PYTHON}\nallow = ["read"]')
    assert found == ["remit.toml:1 mcp.files: MCP servers need the extra `mcp`: pip install 'remit[mcp]'"]


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
