"""Two `remit serve` processes that know each other's keys, and a proxy between them that changes replies."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp import ClientSession, web

from command_line import remit
from meddling import Meddler
from remit_server.transports.credentials.proof import REPLY_PROOF
from serve_command import CLIENT_TOKEN, serving
from waiting import PATIENCE_S

BACK = """
name = "back"

[store]
durability = "process"

[agents.bank]
run = "bank_code:bank"

[peers.front]
agents = ["bank"]
"""
FRONT = """
name = "front"

[store]
durability = "process"

[agents.teller]
run = "teller_code:teller"
may_call = ["bank"]

[agents.bank]
peer = "back"

[peers.back]
url = "{url}"

[clients.app]
token = "$WEB_TOKEN"
users = ["*"]
agents = ["teller"]
"""
BANK = """
import os

async def bank(brief):
    with open("ledger", "a") as ledger:
        ledger.write("paid 5\\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    brief.progress("paying 5")
    return "paid 5"
"""
TELLER = """
async def teller(brief):
    reply = await brief.delegate("bank", objective="Pay 5")
    return f"{reply.status}: {reply.result or reply.fault.message}"
"""


class Hubs(NamedTuple):
    """Both hubs at work, and who stands between them."""

    front: str
    between: Meddler
    ledger: Path

    async def pay(self, *, stream: bool = False) -> str:
        headers = {
            "authorization": f"Bearer {CLIENT_TOKEN}",
            "accept": "text/event-stream" if stream else "application/json",
        }
        body = {"target": "teller", "user": "ann", "objective": "Pay 5"}
        async with (
            ClientSession() as session,
            session.post(f"{self.front}/v1/delegations", json=body, headers=headers) as reply,
        ):
            return await reply.text()


@pytest.fixture
async def hubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Hubs]:
    back, front = tmp_path / "back", tmp_path / "front"
    for folder, team, name, code in (
        (back, BACK, "bank_code", BANK),
        (front, FRONT.format(url="http://127.0.0.1:9"), "teller_code", TELLER),
    ):
        folder.mkdir()
        (folder / "remit.toml").write_text(team)
        (folder / f"{name}.py").write_text(code)
    keys: dict[Path, str] = {}
    for folder in (back, front):
        made = remit("keys", "init", folder=folder, WEB_TOKEN=CLIENT_TOKEN)
        assert made.returncode == 0, made.stderr
        shown = remit("keys", "show", folder=folder, WEB_TOKEN=CLIENT_TOKEN).stdout
        keys[folder] = next(word for word in shown.split() if word.startswith("ed25519/"))
    for folder, peer, other in ((back, "front", front), (front, "back", back)):
        trusted = remit("keys", "trust", peer, keys[other], folder=folder, WEB_TOKEN=CLIENT_TOKEN)
        assert trusted.returncode == 0, trusted.stderr
    monkeypatch.chdir(back)
    with serving() as bank:
        async with asyncio.timeout(PATIENCE_S), Meddler(bank.said["address"]).listening() as between:
            (front / "remit.toml").write_text(FRONT.format(url=between.address))
            monkeypatch.chdir(front)
            with serving(WEB_TOKEN=CLIENT_TOKEN) as teller:
                yield Hubs(teller.said["address"], between, back / "ledger")


def with_seven(reply: web.Response) -> web.Response:
    assert isinstance(reply.body, bytes)
    return web.Response(status=reply.status, headers=reply.headers, body=reply.body.replace(b"paid 5", b"paid 7"))


def without_proof(reply: web.Response) -> web.Response:
    return web.Response(
        status=reply.status,
        body=reply.body,
        headers={name: value for name, value in reply.headers.items() if name != REPLY_PROOF},
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_counts_only_as_the_other_hub_signed_it(hubs: Hubs, stream: bool) -> None:
    assert "paid 5" in await hubs.pay(stream=stream)
    for meddle in (with_seven, without_proof):
        hubs.between.meddle_reply = meddle
        reply = await hubs.pay(stream=stream)
        assert "paid 7" not in reply
        assert "the reply of the other hub is not proven" in reply
    assert hubs.ledger.read_text() == "paid 5\n" * 3
