"""A peer that is asked over a network without encryption is pointed at."""

import json
from pathlib import Path

import pytest

from command_line import make_team, remit
from remit_cli.config.load import load_team
from remit_cli.config.peers import unencrypted

PEER = """
[peers.far]
url = "{url}"
token = "$FAR_TOKEN"
"""
TOKEN = "a-token-that-nobody-guesses"


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://hub.example.org:8080", True),
        ("http://192.0.2.7", True),
        ("https://hub.example.org", False),
        ("http://127.0.0.1:8080", False),
        ("http://127.1.2.3:8080", False),
        ("http://[::1]:8080", False),
        ("http://localhost:8080", False),
        ("http://localhost.example.org", True),
    ],
)
def test_plain_http_to_another_machine_is_pointed_at(tmp_path: Path, url: str, warned: bool) -> None:
    file = make_team(tmp_path, more=PEER.format(url=url))
    team = load_team(file, environ={"FAR_TOKEN": TOKEN}, code=False)
    assert [each.place for each in unencrypted(team)] == ([("peers", "far", "url")] if warned else [])


@pytest.mark.parametrize(
    ("keys", "warned"),
    [
        ('url = "http://far.example/mcp"\ntoken = "$FAR_TOKEN"', ["url"]),
        ('url = "http://far.example/mcp"', []),
        ('url = "http://127.0.0.1:1/mcp"\ntoken = "$FAR_TOKEN"', []),
        (
            'url = "http://far.example/mcp"\nissuer = "http://login.example"\nclient_id = "office"\n'
            'client_secret = "$FAR_TOKEN"',
            ["url", "issuer"],
        ),
    ],
)
def test_secrets_of_mcp_servers_over_plain_http_are_pointed_at(tmp_path: Path, keys: str, warned: list[str]) -> None:
    file = make_team(tmp_path, more=f'\n[mcp.far]\nallow = ["read"]\n{keys}\n')
    team = load_team(file, environ={"FAR_TOKEN": TOKEN}, code=False)
    assert [each.place for each in unencrypted(team)] == [("mcp", "far", key) for key in warned]


def test_validate_and_doctor_warn_and_say_what_to_do(tmp_path: Path) -> None:
    # Nobody listens there, and that is found out at once.
    url = "http://0.0.0.0:9"
    file = make_team(tmp_path, more=PEER.format(url=url))
    done = remit("validate", folder=tmp_path, FAR_TOKEN=TOKEN)
    assert done.returncode == 0
    assert "peers.far.url: plain http: anyone on the network path can read requests and answers" in done.stdout
    (warned,) = json.loads(remit("validate", "--json", folder=tmp_path, FAR_TOKEN=TOKEN).stdout)["warnings"]
    assert file.read_text("utf-8").splitlines()[warned["line"] - 1] == f'url = "{url}"'
    checks = json.loads(remit("doctor", "--json", folder=tmp_path, FAR_TOKEN=TOKEN).stdout)["checks"]
    (check,) = [each for each in checks if each["about"] == "peers.far.url"]
    assert (check["state"], "certificate" in check["todo"]) == ("warning", True)
