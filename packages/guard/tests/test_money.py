"""Money of a session: asked about, refused and shown as its tokens are."""

import asyncio
import json
from pathlib import Path

import pytest

from claude_hooks import ClaudeCodeHooking, answered, guarding
from command_line import remit
from guard_desk import Desk
from remit_guard.settings import GuardSettings
from test_tool_rules import asked_at

# A token costs a cent, so that each message of the stand-in costs 0.30 EUR.
TEAM = """
currency = "EUR"

[prices."claude-scripted"]
input = 10_000
output = 10_000

[guard]
cost = "5 EUR"
"""


async def test_at_the_limit_of_money_a_person_is_asked_and_a_yes_extends_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with desk.guard(TEAM, notify="false"):
        async with asked_at(desk) as web:
            claude = ClaudeCodeHooking(web, tmp_path)
            assert await claude.spawn(1) is None
            claude.says("m1", "a1", counts=(490, 0, 0))
            await claude.hook("PreToolUse", "a1", tool_name="Read", tool_input={"file_path": "shop.py"})
            await claude.stop("a1")
            status = await asyncio.to_thread(desk.remit, "guard", "status", "--json")
            words = await asyncio.to_thread(remit, "guard", "status", folder=tmp_path, **desk.variables)
            for agreed in (False, True):
                at = (
                    "claude-code has used 550 of 2,000,000 tokens and 5.50 of 5.00 EUR. Start one more general-purpose?"
                )
                refused = await answered(claude.spawn(2), tmp_path, at, agreed=agreed)
                assert refused == (None if agreed else f"Remit: {SPENT} A person was asked, and did not agree to more.")
            claude.says("m2", "a2", counts=(100, 0, 0))
            stopped = await claude.hook("PreToolUse", "a2", tool_name="Read", tool_input={"file_path": "shop.py"})
            assert stopped["stopReason"].startswith(SPENT)
            await claude.hook("SessionEnd")
    (used,) = json.loads(status)["use"]
    assert (used["cost"], used["cost_limit"]) == (5_200_000, 5_000_000)
    assert "claude-code  s-1: 520 of 2,000,000 tokens and 5.20 of 5.00 EUR\n" in words.stdout
    assert "650 (6.50)" in await asyncio.to_thread(desk.tree)


SPENT = "The money of this session is spent. Do not go on; report what you have."


@pytest.mark.parametrize("at_limit", ["stop", "warn"])
async def test_at_the_limit_of_money_nothing_starts_or_the_record_says_so(tmp_path: Path, at_limit: str) -> None:
    desk = Desk(tmp_path)
    with desk.guard(TEAM, at_limit=f'"{at_limit}"'):
        async with asked_at(desk) as web:
            claude = ClaudeCodeHooking(web, tmp_path)
            claude.says("m1", counts=(500, 0, 0))
            refused = await claude.spawn(1)
            await claude.hook("SessionEnd")
    if at_limit == "stop":
        assert refused is not None
        assert "no money is left" in refused
    else:
        assert refused is None
        notices = desk.remit("runs", "show", "last", "--store", desk.store)
        assert "of 5.00 EUR were used; the limit only warns" in notices


@pytest.mark.parametrize("at_limit", ["ask", "stop"])
async def test_a_model_without_a_price_is_asked_about_or_starts_nothing_more(tmp_path: Path, at_limit: str) -> None:
    settings = GuardSettings(cost=5_000_000, at_limit="ask" if at_limit == "ask" else "stop", notify=False)
    async with guarding(tmp_path, settings) as web:
        claude = ClaudeCodeHooking(web, tmp_path)
        why = "The price of `anthropic:claude-scripted` is not known, and claude-code has a limit of 5.00 USD."
        if at_limit == "stop":
            assert await claude.spawn(1) == f"Remit: {why} Give its price in `[prices]` of the team file."
            return
        asked = answered(claude.spawn(1), tmp_path, f"{why} Start one more general-purpose", agreed=True)
        assert await asked is None
        claude.says("m2", "a1")
        assert await claude.hook("PreToolUse", "a1", tool_name="Read", tool_input={"file_path": "shop.py"}) == {}


def test_the_money_of_the_guard_is_checked_with_its_team(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text(
        '[guard]\ncost = "5 EUR"\n[guard.tools.codex]\ncost = "lots"\n[guard.projects."~/shop"]\ncost = "2 USD"\n'
    )
    done = remit("validate", folder=tmp_path)
    assert done.returncode == 3
    assert "the team's currency is USD: write it in USD" in done.stdout + done.stderr
    assert "guard.tools.codex.cost" in done.stdout + done.stderr
