"""Commands need only what they use: no programs and tokens of servers that nobody in this run speaks with."""

from pathlib import Path

from command_line import make_team, remit

SERVERS = """
[mcp.shed]
command = "no-such-program"
allow = ["saw"]

[peers.north]
url = "http://127.0.0.1:9"
token = "$NORTH_TOKEN"

[peers.south]
url = "http://127.0.0.1:9"
token = "$SOUTH_TOKEN"

[agents.far]
peer = "south"
"""


def test_a_run_needs_neither_programs_of_servers_nor_tokens_of_peers_that_nobody_asks(tmp_path: Path) -> None:
    make_team(tmp_path, more=SERVERS.partition("[peers.south]")[0])
    done = remit("run", "counter", "One two", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "letters 6, words 2, sentences 1\n"), done.stderr


def test_the_token_of_a_peer_is_needed_where_an_agent_lives_there(tmp_path: Path) -> None:
    make_team(tmp_path, more=SERVERS)
    done = remit("run", "counter", "One two", folder=tmp_path)
    assert done.returncode == 3
    assert "SOUTH_TOKEN is not set" in done.stderr
    assert "NORTH_TOKEN" not in done.stderr


def test_the_check_of_the_file_names_all_of_it(tmp_path: Path) -> None:
    make_team(tmp_path, more=SERVERS)
    done = remit("validate", folder=tmp_path)
    assert done.returncode == 3
    for each in ("no-such-program", "NORTH_TOKEN", "SOUTH_TOKEN"):
        assert each in done.stdout


def test_code_that_cannot_be_imported_leads_to_the_check_that_imports_it(tmp_path: Path) -> None:
    """The plain check imports nothing, and would say that all is well."""
    make_team(tmp_path)
    code = tmp_path / "agents.py"
    code.write_text(code.read_text() + "\nimport no_such_module\n")
    assert remit("validate", folder=tmp_path).returncode == 0
    done = remit("run", "counter", "One two", folder=tmp_path)
    assert done.returncode == 3
    assert "importing `agents` failed" in done.stderr
    assert "`remit validate --code` imports it" in done.stderr
    assert remit("validate", "--code", folder=tmp_path).returncode == 3
