"""Commands need only what they use: no secrets of servers that are not started, no sound team file to read a record."""

from pathlib import Path

import pytest

from command_line import make_team, remit

SERVERS = """
[mcp.shed]
command = "python3"
env = { SHED_TOKEN = "$SHED_TOKEN" }
allow = ["saw"]

[clients.console]
token = "$CONSOLE_TOKEN"
agents = ["counter"]
users = ["*"]

[agents.carpenter]
run = "carpentry:carpenter"
tools = ["shed.saw"]
"""
CARPENTER = """
async def carpenter(brief):
    return await brief.use("shed.saw")
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    make_team(tmp_path, more=SERVERS)
    (tmp_path / "carpentry.py").write_text(CARPENTER)
    return tmp_path


def test_a_run_needs_no_secrets_of_servers_that_it_does_not_start(shop: Path) -> None:
    done = remit("run", "counter", "One two", folder=shop)
    assert (done.returncode, done.stdout) == (0, "letters 6, words 2, sentences 1\n"), done.stderr


def test_a_server_that_is_needed_says_which_secret_is_not_set(shop: Path) -> None:
    done = remit("run", "carpenter", "Saw it", folder=shop)
    assert done.returncode != 0
    assert "MCP server shed cannot be started: the environment variable SHED_TOKEN is not set" in done.stderr


def test_whoever_serves_needs_them_all(shop: Path) -> None:
    done = remit("serve", folder=shop)
    assert done.returncode == 3
    assert "SHED_TOKEN is not set" in done.stderr
    assert "CONSOLE_TOKEN is not set" in done.stderr


NOT_TOML = "\n[agents.\n"


@pytest.mark.parametrize(
    "broken", ["\n[limits]\nmax_depht = 3\n", NOT_TOML, '\n[agents.x]\nrun = "no:where"\nnone = 1\n']
)
def test_runs_can_be_looked_at_though_the_team_file_is_broken(tmp_path: Path, broken: str) -> None:
    file = make_team(tmp_path, more='\n[store]\npath = "kept/here.db"\n')
    assert remit("run", "counter", "One two", folder=tmp_path).returncode == 0
    file.write_text(file.read_text().replace("[limits]\nmax_depth = 3 ", "# ") + broken)
    assert remit("validate", folder=tmp_path).returncode == 3
    for command in (["list"], ["show", "last"], ["answer", "last"], ["tree", "last"], ["print", "last"]):
        done = remit("runs", *command, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout
        text = "remit.toml is invalid (see `remit validate`); the record is read from kept/here.db."
        # Where the store is can be read without checking the agents.
        assert (text in done.stderr) == (broken == NOT_TOML), done.stderr


def test_without_a_record_the_broken_file_is_what_is_wrong(tmp_path: Path) -> None:
    make_team(tmp_path, more="\n[agents.\n")
    done = remit("runs", "list", folder=tmp_path)
    assert done.returncode == 3
    assert "not TOML" in done.stderr
    assert "Or give the store with --store." in done.stderr
