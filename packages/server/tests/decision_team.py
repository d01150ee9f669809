"""A team in which a person has to agree before the cashier pays, and one call is refused."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from aiohttp import ClientSession

from remit_cli.config.load import load_team
from remit_cli.config.serving import serving
from waiting import PATIENCE_S

BOUND_S = PATIENCE_S
_numbers = count()

TEAM = """\
[agents.shop]
run = "CODE:shop"
may_call = ["cashier", "archive"]
tools = ["stamp", "sign"]

[agents.cashier]
run = "CODE:cashier"
capabilities = ["PAY"]
tools = ["stamp"]

[agents.archive]
run = "CODE:archive"

[agents.vault]
run = "CODE:archive"

[tools.stamp]
run = "CODE:stamp"

[tools.sign]
run = "CODE:stamp"

[capabilities.PAY]
description = "Pay a sum."

[limits]
max_depth = 3

[[rules]]
then = "ask"
to = "cashier"
say = "May the cashier pay?"
edit = ["input"]

[serve]
drain = "100ms"
"""
CODE = """
from remit import ContextFilter

async def shop(brief):
    await brief.delegate("vault", objective="Open the vault")
    found = await brief.delegate(
        "cashier",
        objective="Pay for bob@example.org",
        input=brief.input,
        capability="PAY",
        context=ContextFilter(last_messages=1, roles=frozenset({"user"})),
        max_tokens=5_000,
    )
    return str(found.result or found.fault.message)

async def cashier(brief):
    brief.spend(prompt=30, completion=12)
    return f"paid {brief.text}"

async def archive(brief):
    return "kept"

def stamp(paper: str) -> str:
    return paper
"""


class Shop:
    """The server of the team, and a client that may do everything."""

    def __init__(self, address: str, token: str, client: ClientSession) -> None:
        self.address = address
        self.token = token
        self.client = client

    async def ask(self, text: str, session: str | None = None) -> str:
        """Ask the shop for something, and return the run, which waits for a person."""
        body: dict[str, Any] = {"target": "shop", "user": "anna", "input": text, "session": session}
        async with self.client.post("/v1/delegations", json=body) as reply:
            assert reply.status == 202, await reply.text()
            return (await reply.json())["run"]

    async def answer(self, run: str, *, agree: bool) -> None:
        """Answer the question of a run, and wait for its end."""
        async with self.client.get("/v1/approvals") as reply:
            (item,) = [each for each in (await reply.json())["waiting"] if each["run"] == run]
        said = {"agree": agree, "digest": item["digest"], "reason": "checked"}
        async with self.client.post(f"/v1/approvals/{item['id']}", json=said) as reply:
            assert reply.status == 200, await reply.text()
        await self.end(run)

    async def end(self, run: str) -> Any:
        """Return how a run ended, once it has."""
        async with self.client.get(f"/v1/delegations/{run}/events") as reply:
            await reply.read()
        async with self.client.get(f"/v1/delegations/{run}") as reply:
            return await reply.json()


@asynccontextmanager
async def shop_in(folder: Path) -> AsyncGenerator[Shop]:
    """Serve the team from a folder, with its console."""
    # A module is imported once in a process, wherever it lies: each team has one of its own.
    name = f"decision_code_{next(_numbers)}"
    (folder / f"{name}.py").write_text(CODE, encoding="utf-8")
    (folder / "remit.toml").write_text(TEAM.replace("CODE", name), encoding="utf-8")
    loaded = load_team(folder / "remit.toml")
    async with asyncio.timeout(BOUND_S), serving(loaded, port=0, console=True) as made, made.server as server:
        assert made.token is not None
        token = made.token.read_text().strip()
        async with ClientSession(server.address, headers={"authorization": f"Bearer {token}"}) as client:
            yield Shop(server.address, token, client)
