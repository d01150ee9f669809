"""`remit serve`: a process that serves, and one that ends well."""

import json
import os
import signal
import socket
import subprocess
import threading
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from command_line import document, remit
from commands import REMIT, popen, run_program
from remit_server.console.pages import is_built
from remit_server.transports.addresses import listening
from serve_command import CLIENT_TOKEN, serving, started
from waiting import PATIENCE_S

TEAM = """
name = "shop"

[store]
durability = "process"

[agents.echo]
run = "shop_code:echo"

[agents.slow]
run = "shop_code:slow"
resumable = true
"""
CODE = """
import asyncio
from pathlib import Path

async def echo(brief):
    return f"{brief.user}: {brief.text}"

async def slow(brief):
    Path("begun").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "done at last"
"""
CLIENTS = """
[clients.web]
token = "$WEB_TOKEN"
users = ["*"]
agents = ["echo"]
"""


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "remit.toml").write_text(TEAM)
    (tmp_path / "shop_code.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_team_that_names_nobody_lets_in_who_knows_the_token_of_this_machine(team: Path) -> None:
    with serving() as up:
        assert up.said["agents"] == ["echo", "slow"]
        assert (
            up.get("/v1/delegations", {"target": "echo", "user": "anna", "objective": "hi"})[1]["result"] == "anna: hi"
        )
        assert up.get("/v1/agents", token="wrong" * 10)[0] == 401
        up.process.send_signal(signal.SIGINT)
        _, stderr = up.process.communicate(timeout=PATIENCE_S)
    assert (up.process.returncode, "Stopped. No request was interrupted." in stderr) == (0, True)
    assert (team / ".remit" / "serve.token").stat().st_mode & 0o077 == 0


def test_a_run_that_came_from_elsewhere_says_through_whom_and_under_which_id(team: Path) -> None:
    with serving() as up:
        up.get("/v1/delegations", {"target": "echo", "user": "anna", "objective": "hi", "id": "their-1"})
    listed = document("runs", "list", folder=team)["runs"]
    assert [each["via"] for each in listed] == ["local"]
    shown = document("runs", "show", "last", folder=team)
    assert (shown["user"], shown["via"], shown["request"]) == ("anna", "local", "their-1")
    assert "via     local, as their-1\n" in remit("runs", "show", "last", folder=team).stdout
    assert "VIA    TASK" in remit("runs", "list", folder=team).stdout


def test_a_token_file_that_holds_none_is_said_and_nothing_is_served(team: Path) -> None:
    """Else nobody could come, or anybody who guesses."""
    (team / ".remit").mkdir()
    for content in ("", "short\n"):
        (team / ".remit" / "serve.token").write_text(content)
        (team / ".remit" / "serve.token").chmod(0o600)
        process = started()
        out, stderr = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, json.loads(out)["code"]) == (3, "TEAM_INVALID")
        assert "serve.token holds no valid token" in stderr


def test_a_token_file_that_others_can_read_or_that_is_no_file_is_said(team: Path) -> None:
    file = team / ".remit" / "serve.token"
    file.parent.mkdir()
    file.write_text(CLIENT_TOKEN)
    file.chmod(0o644)
    process = started()
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, f"→ Run: chmod 600 {file}" in stderr) == (3, True)
    file.unlink()
    file.mkdir()
    process = started()
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, "serve.token cannot be read: Is a directory" in stderr) == (3, True)


def test_a_folder_in_which_no_token_can_be_made_is_said(team: Path) -> None:
    (team / ".remit").write_text("no folder")
    process = started()
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, "serve.token cannot be written: " in stderr, "Traceback" in stderr) == (3, True, False)


def test_what_follows_the_headers_of_an_answer_does_not_wait(team: Path) -> None:
    """A socket that holds it back until the headers are acknowledged makes every request take 40 ms."""
    with listening("127.0.0.1", 0) as bound:
        client = socket.create_connection(bound.getsockname())
        accepted, _ = bound.accept()
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        accepted.close()
        client.close()


def test_clients_of_the_team_file_come_with_their_own_tokens(team: Path) -> None:
    (team / "remit.toml").write_text(TEAM + CLIENTS)
    with serving(WEB_TOKEN=CLIENT_TOKEN) as up:
        assert up.said["token_file"] is None
        assert [each["name"] for each in up.get("/v1/agents")[1]["agents"]] == ["echo"]
        status, body = up.get("/v1/delegations", {"target": "slow", "user": "anna", "objective": "x"})
        assert (status, body["fault"]["code"]) == (404, "AGENT_NOT_FOUND")
        assert up.get("/v1/audit")[0] == 403


def test_a_server_for_other_machines_is_not_started_for_a_team_that_names_nobody(team: Path) -> None:
    process = started("--host", "0.0.0.0")
    out, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, json.loads(out)["code"]) == (3, "TEAM_INVALID")
    assert "[clients.NAME]" in stderr


@pytest.mark.parametrize(("host", "is_said"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_server_that_others_reach_says_if_nothing_is_encrypted(team: Path, host: str, is_said: bool) -> None:
    (team / "remit.toml").write_text(TEAM + CLIENTS)
    process = popen(
        [REMIT, "serve", "--port", "0", "--host", host],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "WEB_TOKEN": CLIENT_TOKEN},
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("Serving shop at http://")
    process.send_signal(signal.SIGTERM)
    errors = process.stderr.read()  # not `communicate`, which knows nothing of what was read ahead
    assert process.wait(PATIENCE_S) == 0
    process.stderr.close()
    assert ("others on the network can read tokens and requests" in errors) == is_said


def test_a_server_whose_certificate_is_none_is_not_started_and_says_why(team: Path) -> None:
    files = 'certificate = "shop_code.py"\nprivate_key = "shop_code.py"\n'
    (team / "remit.toml").write_text(f"{TEAM}\n[serve]\n{files}")
    process = started()
    out, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, json.loads(out)["code"]) == (3, "TEAM_INVALID")
    assert "serve.certificate: " in stderr
    assert "Traceback" not in stderr
    assert "serve.certificate" in remit("doctor", folder=team).stdout


def test_a_port_that_is_taken_is_said_and_nothing_is_started(team: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = run_program([REMIT, "serve", "--port", str(port)])
    assert process.returncode == 3
    assert f"port {port} is in use" in process.stderr
    assert not (team / ".remit" / "hub.db").exists()


def test_a_server_that_is_told_to_end_finishes_what_it_has_begun_and_takes_nothing_more(team: Path) -> None:
    """Graceful shutdown: stops admitting, finishes what is running, loses nothing."""
    with serving() as up:
        answers: list[tuple[int, Any]] = []
        body = {"target": "slow", "user": "anna", "objective": "x", "id": "mine"}
        asking = threading.Thread(target=lambda: answers.append(up.get("/v1/delegations", body)))
        asking.start()
        _wait_for(team / "begun")
        up.process.send_signal(signal.SIGTERM)
        (team / "go").touch()
        asking.join(PATIENCE_S)
        up.process.communicate(timeout=PATIENCE_S)
    assert answers == [(200, answers[0][1])]
    assert answers[0][1]["result"] == "done at last"


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_server_says_for_what_it_waits_and_does_not_wait_if_it_is_told_again(
    team: Path, second: signal.Signals
) -> None:
    with serving("--set", "serve.drain=1h") as up:
        body = {"target": "slow", "user": "anna", "objective": "x"}
        asking = threading.Thread(target=lambda: up.get("/v1/delegations", body))
        asking.start()
        _wait_for(team / "begun")
        up.process.send_signal(signal.SIGINT)
        assert up.process.stderr is not None
        stderr = up.process.stderr.readline()
        assert stderr == "Stopping: waiting up to 60 min for 1 request. Press Ctrl-C again to stop at once.\n"
        up.process.send_signal(second)
        _, stderr = up.process.communicate(timeout=PATIENCE_S)
        asking.join(PATIENCE_S)
    assert up.process.returncode == 0
    assert stderr.splitlines() == [
        "Stopped with 1 request in progress. The next hub resumes what it can; the rest is cancelled.",
        "→ remit runs list",
    ]


def test_what_was_acknowledged_is_finished_after_a_kill(team: Path) -> None:
    """Kill -9 in the middle: what was acknowledged is there after the restart."""
    body = {"target": "slow", "user": "anna", "objective": "x", "id": "mine"}
    with serving() as up:
        killer = threading.Thread(target=lambda: (_wait_for(team / "begun"), up.process.kill()))
        killer.start()
        with pytest.raises(OSError):  # noqa: PT011 - whichever way the connection ends
            up.get("/v1/delegations", body)
        killer.join(PATIENCE_S)
    (team / "go").touch()
    with serving() as up:
        status, answer = up.get("/v1/delegations", body)
    assert (status, answer["result"]) == (200, "done at last")


def _wait_for(path: Path) -> None:
    waiting = threading.Event()
    for _ in range(3_000):
        if path.exists():
            return
        waiting.wait(0.01)
    raise AssertionError(f"{path} never came")


# ── the console ───────────────────────────────────────────────────────────────────────────────────────────────────────

built = pytest.mark.skipif(not is_built(), reason="NOT TESTED: the console is not built here")


def opened(link: str, session: dict[str, str] | None = None) -> tuple[int, dict[str, str]]:
    """Open a link as a browser does, without following it; return the status and the headers of a new session."""
    address = urlsplit(link)
    connection = HTTPConnection(address.netloc, timeout=PATIENCE_S)
    connection.request("GET", f"{address.path}?{address.query}", headers=session or {})
    reply = connection.getresponse()
    reply.read()
    connection.close()
    cookie, key = reply.headers.get("set-cookie", ""), reply.headers.get("location", "").removeprefix("/#key=")
    return reply.status, {"cookie": cookie.partition(";")[0], "x-remit-page-key": key}


@built
def test_the_access_log_of_all_workers_is_one_file_or_standard_error(team: Path) -> None:
    with serving("--workers", "2", "--set", 'serve.access_log="access.jsonl"') as server:
        for _ in range(4):
            assert server.get("/v1/agents")[0] == 200
    lines = [json.loads(each) for each in (team / "access.jsonl").read_text().splitlines()]
    assert [(each["path"], each["status"], each["client"]) for each in lines] == [("/v1/agents", 200, "local")] * 4
    with serving("--access-log") as server:
        assert server.get("/v1/agents")[0] == 200
        server.process.send_signal(signal.SIGTERM)
        stderr = server.process.communicate(timeout=PATIENCE_S)[1]
    assert '"path":"/v1/agents","status":200' in stderr


def test_the_console_is_served_with_a_link_that_counts_once_for_all_workers(team: Path) -> None:
    with serving("--console", "--workers", "2") as server:
        assert server.said["console"] == f"{server.said['address']}/"
        port = str(server.port)
        link = document("serve", "--link", "--port", port, folder=team)["url"]
        sessions: list[dict[str, str]] = []
        for each in (server.said["console_link"], link):
            status, session = opened(each)
            assert status == 303
            sessions.append(session)
            assert [opened(each)[0] for _ in range(4)] == [401] * 4
        for session in sessions * 4:
            status, _ = server.send("/v1/console", **{"authorization": "", **session})
            assert status == 401, "a token that is sent counts, even a wrong one"
            assert opened(f"{server.said['address']}/v1/console?", session)[0] == 200
    with serving("--console", "--port", port) as server:
        assert opened(f"{server.said['address']}/v1/console?", sessions[0])[0] == 200, "it outlives a restart"


@built
def test_a_link_is_for_the_client_that_is_named(team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = '[clients.ops]\ntoken = "$OPS_TOKEN"\nusers = []\nagents = ["*"]\npermissions = ["read"]\n'
    (team / "remit.toml").write_text(TEAM + CLIENTS + more + "[serve]\nconsole = true\n")
    tokens = {"WEB_TOKEN": CLIENT_TOKEN, "OPS_TOKEN": "another-token-that-is-long"}
    for name, value in tokens.items():
        monkeypatch.setenv(name, value)
    with serving() as server:
        assert (server.said["console_link"], server.said["console"]) == (None, f"{server.said['address']}/")
        port = str(server.port)
        unnamed = remit("serve", "--link", "--port", port, folder=team)
        assert (unnamed.returncode, "there are: ops, web" in unnamed.stderr) == (3, True)
        wrong = remit("serve", "--link", "--port", port, "--client", "opps", folder=team)
        assert (wrong.returncode, "no client `opps`" in wrong.stderr) == (3, True)
        named = remit("serve", "--link", "--port", port, "--client", "ops", folder=team)
        status, session = opened(named.stdout.strip())
        assert status == 303
        assert opened(f"{server.said['address']}/v1/audit?", session)[0] == 200
        monkeypatch.delenv("OPS_TOKEN")
        unset = remit("serve", "--link", "--port", port, "--client", "ops", folder=team)
        assert "OPS_TOKEN is not set" in unset.stderr


def test_a_link_needs_a_server_with_a_console(team: Path) -> None:
    with serving() as server:
        done = remit("serve", "--link", "--port", str(server.port), folder=team)
        assert (done.returncode, "serves no console" in done.stderr) == (2, True)
    with listening("127.0.0.1", 0) as bound:
        port = str(bound.getsockname()[1])
    gone = remit("serve", "--link", "--port", port, folder=team)
    assert "no server answers" in gone.stderr
    assert remit("serve", "--client", "web", folder=team).returncode == 2
