"""Limits of a day, for all sessions and for those in a project."""

import asyncio
from datetime import date, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import ClientSession, UnixConnector
from hypothesis import given
from hypothesis import strategies as st

from claude_hooks import ClaudeCodeHooking, answered, guarding, record
from guard_desk import Desk
from opencode_events import OpenCodeTelling
from remit.runtime.agent_status import delegations_of
from remit_guard.days import KEPT_DAYS, DayLedger, DayLimit, DayTotal
from remit_guard.settings import GuardSettings, ProjectLimits

TODAY = date(2026, 11, 18)
ALL = DayLimit(1_000)
DAY = GuardSettings(tokens=100_000, reserve=100, day=300, at_limit="stop")


def ledger(folder: Path, day: date = TODAY) -> DayLedger:
    return DayLedger(folder, lambda: day)


def test_what_was_noted_is_known_to_the_next_guard_and_a_broken_line_spoils_no_other(tmp_path: Path) -> None:
    first = ledger(tmp_path)
    first.note(TODAY, DayTotal("claude-code", "s-1", "/shop", 100))
    first.note(TODAY, DayTotal("claude-code", "s-1", "/shop", 150))
    first.note(TODAY, DayTotal("claude-code", "s-1", "/shop", 20))  # read again from the beginning
    path = tmp_path / "2026-11-18.jsonl"
    path.write_bytes(path.read_bytes() + b'\n["claude-code","\xff","",5]\n\0\0\n["claude-code","s-')
    second = ledger(tmp_path)
    second.note(TODAY, DayTotal("opencode", "s-2", "", 50))
    third = ledger(tmp_path)
    assert (third.used(ALL), third.used(DayLimit(1_000, "/shop")), third.left(ALL)) == (200, 150, 800)


def test_each_day_begins_with_nothing_and_old_days_are_removed(tmp_path: Path) -> None:
    ledger(tmp_path).note(TODAY, DayTotal("opencode", "s", "", 100))
    assert ledger(tmp_path, TODAY + timedelta(days=1)).used(ALL) == 0
    ledger(tmp_path, TODAY + timedelta(days=KEPT_DAYS + 1))
    assert list(tmp_path.iterdir()) == []
    ledger(tmp_path).note(TODAY - timedelta(days=KEPT_DAYS + 1), DayTotal("claude-code", "resumed", "", 100))
    assert list(tmp_path.iterdir()) == [], "what an old session spent long ago matters to no limit"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 400)), max_size=20))
def test_what_is_set_aside_and_spent_is_never_more_than_the_limit_allows(tries: list[tuple[str, int]]) -> None:
    days = DayLedger(None, lambda: TODAY)
    totals = {"a": 0, "b": 0}
    for session, spent in tries:
        agent = object()
        if days.left(ALL) < 100:
            continue
        days.hold(agent, "", 100)
        totals[session] += min(spent, 100)
        days.note(TODAY, DayTotal("t", session, "", totals[session]))
        days.use_held(agent, min(spent, 100))
    assert sum(totals.values()) <= days.used(ALL) <= ALL.tokens


def test_the_innermost_project_holds_and_a_home_may_be_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "shop" / "web").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "shop")
    settings = GuardSettings(projects={"~": ProjectLimits(tokens=1), "~/shop": ProjectLimits(day=2)}, day=3)
    assert settings.project_of(str(tmp_path / "shop" / "web")) == "~/shop"
    assert settings.project_of(str(tmp_path / "link")) == "~/shop"
    assert settings.project_of(str(tmp_path / "shopping")) == "~"
    assert (settings.project_of("/"), settings.project_of("")) == ("", "")
    assert (settings.of_project("~").tokens, settings.of_project("~/shop").tokens) == (1, GuardSettings().tokens)
    assert settings.day_limits("~/shop") == (DayLimit(3), DayLimit(2, "~/shop"))
    assert settings.day_limits("~") == (DayLimit(3),)


async def test_a_burst_in_two_sessions_starts_no_more_than_is_left_of_the_day(tmp_path: Path) -> None:
    async with guarding(tmp_path, DAY) as web:
        one, two = ClaudeCodeHooking(web, tmp_path, "s-1"), ClaudeCodeHooking(web, tmp_path, "s-2")
        replies = await asyncio.gather(*(each.spawn(number) for each in (one, two) for number in (1, 2, 3)))
    refused = [each for each in replies if each is not None]
    # Each session has said up to 90 tokens itself, so that two sub-agents of 100 fit into 300 at most.
    assert 1 <= replies.count(None) <= 2
    assert all("of the 300 tokens of this day (`day` of `[guard]`) are used or set aside" in each for each in refused)


async def test_the_refusal_is_on_record_and_a_new_guard_goes_on_with_the_day(tmp_path: Path) -> None:
    async with guarding(tmp_path, DAY) as web:
        tool = ClaudeCodeHooking(web, tmp_path, "s-1")
        for number in range(8):
            tool.says(f"m-{number}")
        await tool.hook("Stop")
        refused = str(await tool.spawn(1))
        assert refused.startswith(
            "Remit: TOKEN_BUDGET_EXCEEDED: 270 of the 300 tokens of this day (`day` of `[guard]`)"
        )
    async with guarding(tmp_path, DAY) as web:
        assert "TOKEN_BUDGET_EXCEEDED: 300 of the 300" in str(await ClaudeCodeHooking(web, tmp_path, "s-2").spawn(1))
        tool = ClaudeCodeHooking(web, tmp_path, "s-1")
        await tool.hook("Stop")
        assert "TOKEN_BUDGET_EXCEEDED: 330 of the 300" in str(await tool.spawn(2)), "its past is not counted twice"
    async with record(tmp_path) as store:
        kept = [each for run in await store.runs(limit=9) for each in await delegations_of(store, run.run)]
    assert [each.status for each in kept if each.target == "general-purpose"] == ["refused"] * 3


async def test_a_killed_guard_leaves_the_day_to_the_next_one(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for session, refused in (("s-1", "None"), ("s-2", "TOKEN_BUDGET_EXCEEDED: 330 of the 300 tokens of this day")):
        with desk.guard(day=300, reserve=100, at_limit="stop") as process:
            connector = UnixConnector(path=str(tmp_path / "guard" / "guard.sock"))
            async with ClientSession("http://guard", connector=connector) as web:
                tool = ClaudeCodeHooking(web, tmp_path, session)
                assert refused in str(await tool.spawn(1))
                for number in range(9):
                    tool.says(f"m-{number}")
                await tool.hook("Stop")
            process.kill()


async def test_a_sub_agent_that_spends_the_last_of_a_projects_day_is_ended(tmp_path: Path) -> None:
    project = str(tmp_path / "shop")
    settings = GuardSettings(tokens=100_000, reserve=100, at_limit="stop", projects={project: ProjectLimits(day=300)})
    async with guarding(tmp_path, settings) as web:
        tool = ClaudeCodeHooking(web, tmp_path, folder=f"{project}/web")
        other = ClaudeCodeHooking(web, tmp_path, "s-2", folder=str(tmp_path))
        assert await tool.spawn(1) is None
        for number in range(8):
            tool.says(f"much-{number}", "a1")
        assert await tool.hook("PreToolUse", "a1", tool_name="Bash", tool_use_id="t", tool_input={}) == {}
        tool.says("more", "a1")
        tool.says("much more", "a1")
        stop = await tool.hook("PreToolUse", "a1", tool_name="Bash", tool_use_id="u", tool_input={})
        sentence = f'The 300 tokens of this day in {project} (`day` of `[guard.projects."{project}"]`) are spent.'
        assert sentence in stop["stopReason"]
        assert await other.spawn(1) is None, "outside of the project"


async def test_what_opencode_tells_again_after_a_restart_counts_once_and_on_its_day(tmp_path: Path) -> None:
    now_ms = datetime.now().astimezone().timestamp() * 1_000
    for _ in range(2):
        async with guarding(tmp_path, DAY) as web:
            tool = OpenCodeTelling(web)
            await tool.tell("message", "top", message="m0", tokens={"input": 5_000}, at_ms=now_ms - 2 * 86_400_000)
            await tool.tell("message", "top", message="m1", tokens={"input": 150}, at_ms=now_ms)
            assert await tool.start("top", "one") is None
            assert "300 tokens of this day" in str(await tool.start("top", "two"))


async def test_at_the_limit_of_a_day_a_person_is_asked_for_each_sub_agent(tmp_path: Path) -> None:
    settings = GuardSettings(tokens=100_000, reserve=100, day=50)
    async with guarding(tmp_path, settings) as web:
        tool, text = ClaudeCodeHooking(web, tmp_path), "of the 50 tokens of this day (`day` of `[guard]`) are used"
        assert await answered(tool.spawn(1), tmp_path, text, agreed=True) is None
        refused = await answered(tool.spawn(2), tmp_path, text, agreed=False)
        assert "A person was asked, and did not agree to more." in str(refused)


async def test_a_day_that_only_warns_stops_nothing_and_says_so_once(tmp_path: Path) -> None:
    async with guarding(tmp_path, GuardSettings(tokens=100_000, reserve=100, day=50, at_limit="warn")) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        assert [await tool.spawn(number) for number in (1, 2)] == [None, None]
        await tool.hook("SessionEnd")
    async with record(tmp_path) as store:
        (run,) = await store.runs(limit=9)
        warnings = [each for each in await store.records(run=run.run) if "the limit only warns" in str(each)]
    assert len(warnings) == 1
