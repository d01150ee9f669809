"""A tool of an MCP server that is not safe to repeat is used once, also if the hub is killed with -9 meanwhile.

Run as a program, this file is a hub that uses the server `bank_server.py`.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from remit import Brief, Code, Hub, RemitError
from remit.runtime import root_runs
from remit_models.mcp import add_mcp

BANK = str(Path(__file__).resolve().parents[4] / "tests" / "bank_server.py")
BOUND_S = 60
LEASE_MS = 300
pytestmark = pytest.mark.timeout(2 * BOUND_S)


def a_hub(folder: Path, *, survivor: bool) -> Hub:
    """Return a hub with an agent that has two charges made, and says what it was told of each."""
    hub = Hub(store=folder / "hub.db", durability="process")
    add_mcp(hub, "bank", sys.executable, [BANK, str(folder)], allow=["charge"], time_ms=BOUND_S * 1_000)

    async def use(brief: Brief, what: str) -> str:
        try:
            return await brief.use("bank.charge", what=what)
        except RemitError as error:
            return error.fault.code

    @hub.agent("till", tools=["bank.charge"], resumable=True)
    async def till(brief: Brief) -> list[str]:
        first = await use(brief, "first")
        if not survivor:
            os.write(1, b"first\n")
        return [first, await use(brief, "second")]

    assert till
    return hub


async def order(hub: Hub) -> list[str]:
    async with hub:
        return (await hub.ask("till", "Charge", user="u", request_id="1")).unwrap()


async def test_what_a_server_had_done_is_known_and_what_it_was_doing_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not among the tests, where the hub has this file started as its server, is it found.
    from commands import start_program

    monkeypatch.setattr(root_runs, "LEASE_MS", LEASE_MS)
    async with asyncio.timeout(BOUND_S):
        victim = await start_program([sys.executable, __file__, "hub", str(tmp_path)])
        assert victim.stdout is not None
        assert await victim.stdout.readline() == b"first\n"
        while "second" not in charges(tmp_path):
            await asyncio.sleep(0.02)
        victim.kill()
        await victim.wait()
        assert await order(a_hub(tmp_path, survivor=True)) == ["paid for first", Code.OUTCOME_UNKNOWN]
    assert charges(tmp_path) == ["first", "second"]


def charges(folder: Path) -> list[str]:
    path = folder / "charges"
    return path.read_text().split() if path.exists() else []


# ── the program ───────────────────────────────────────────────────────────────────────────────────────────────────────

if __name__ == "__main__":
    root_runs.LEASE_MS = LEASE_MS
    asyncio.run(order(a_hub(Path(sys.argv[2]), survivor=False)))
