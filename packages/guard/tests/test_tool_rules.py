"""Rules of a team about the tools of coding tools: each use is judged before it happens, and is in the record."""

import asyncio
import hashlib
import json
import subprocess
import tomllib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, UnixConnector
from msgspec import convert

from claude_hooks import ClaudeCodeHooking, guarding, record
from command_line import remit
from guard_desk import Desk
from opencode_events import OpenCodeTelling
from remit import Limits
from remit.ports import Decision
from remit.runtime.approvers import decide
from remit_guard import daemon, session
from remit_guard.install import install
from remit_guard.section import GuardSection
from remit_guard.settings import GuardSettings
from remit_guard.tools.claude_code import ClaudeCode
from waiting import eventually

RULES = """
[[guard.rules]]
then = "refuse"
tool = "[Bb]ash"
where = { command = "*rm -rf*" }
say = "nothing is deleted like that"

[[guard.rules]]
then = "refuse"
from = "general-purpose"
tool = "WebFetch"

[[guard.rules]]
then = "ask"
tool = "*pay"
where = { amount = "> 500" }
edit = ["input"]
"""


@asynccontextmanager
async def asked_at(desk: Desk) -> AsyncGenerator[ClientSession]:
    """Connect to the guard of a desk, as hooks do."""
    connector = UnixConnector(path=str(desk.folder / "guard" / "guard.sock"))
    async with ClientSession("http://guard", connector=connector) as web:
        yield web


def used(desk: Desk, tool: str) -> list[dict[str, Any]]:
    """Return the uses of tools in the record of the last session of a coding tool."""
    listed = desk.remit("runs", "list", "--store", desk.store, "--jsonl").splitlines()
    run = next(each["run"] for each in map(json.loads, listed) if each["agent"] == tool)
    records = desk.remit("runs", "export", run, "--store", desk.store).splitlines()
    return [each["body"] for each in map(json.loads, records) if each["kind"] == "tool"]


async def use(tool: ClaudeCodeHooking, name: str, agent: str = "", call: str = "", **arguments: Any) -> dict[str, Any]:
    answer = await tool.hook("PreToolUse", agent, tool_name=name, tool_use_id=call, tool_input=arguments)
    return answer.get("hookSpecificOutput", {})


async def test_a_rule_refuses_the_use_of_a_tool_by_its_arguments_and_its_agent(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with desk.guard(RULES):
        async with asked_at(desk) as web:
            claude, opencode = ClaudeCodeHooking(web, tmp_path), OpenCodeTelling(web)
            assert await use(claude, "Bash", command="ls") == {}
            refused = await use(claude, "Bash", command="cd /srv; rm -rf shop")
            assert refused["permissionDecision"] == "deny"
            assert refused["permissionDecisionReason"].startswith(
                "Remit: PERMISSION_DENIED: nothing is deleted like that. Ask for something that the rules"
            )
            assert await claude.spawn(1) is None
            assert await use(claude, "WebFetch", url="https://example.com") == {}, "the rule is about sub-agents"
            assert (await use(claude, "WebFetch", "a1", url="https://example.com"))["permissionDecision"] == "deny"
            assert await opencode.use("top", "read", filePath="shop.py") == {"refused": "", "is_new": True}
            assert "nothing is deleted" in (await opencode.use("top", "bash", command="rm -rf /"))["refused"]
            await claude.hook("SessionEnd")
    uses = await asyncio.to_thread(used, desk, "claude-code")
    assert [(each["agent"], each["tool"], bool(each.get("fault"))) for each in uses if not each.get("begun")] == [
        ("claude-code", "Bash", False),
        ("claude-code", "Bash", True),
        ("claude-code", "WebFetch", False),
        ("general-purpose", "WebFetch", True),
    ]


async def test_an_answer_is_for_one_use_even_if_another_has_the_same_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some models count their calls anew in each message."""
    monkeypatch.setattr(session, "AGAIN_S", 0.0)
    team = convert(tomllib.loads(RULES)["guard"], GuardSection)
    async with guarding(tmp_path, GuardSettings(notify=False), team.team_rules()) as web, record(tmp_path) as store:
        tool = OpenCodeTelling(web)
        assert (await tool.use("top", "bash", "call_0", command="ls"))["refused"] == ""
        assert "nothing is deleted" in (await tool.use("top", "bash", "call_0", command="rm -rf shop"))["refused"]
        for _ in range(2):
            use = asyncio.create_task(tool.use("top", "bank_pay", "call_0", to="bob", amount=900))
            (question,) = await eventually(store.pending)
            await decide(store, question.id, Decision(agreed=True, by="ada"))
            assert (await use)["refused"] == ""


def test_what_rules_say_is_explained_and_nothing_runs(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text(RULES)
    for agent, tool, arguments, code, said in (
        ("claude-code", "Bash", {"command": "rm -rf shop"}, 4, "refused: nothing is deleted like that\n"),
        ("Explore", "WebFetch", {}, 0, "allowed\n"),
        ("general-purpose", "WebFetch", {}, 4, "refused: the team does not let general-purpose use WebFetch\n"),
        (
            "claude-code",
            "mcp__bank__pay",
            {"amount": 900},
            4,
            "a person is asked: May claude-code use mcp__bank__pay?\n",
        ),
    ):
        done = remit("guard", "explain", agent, tool, "--input", json.dumps(arguments), folder=tmp_path)
        assert (done.returncode, done.stdout) == (code, said), done.stderr


@pytest.mark.parametrize("agreed", [True, False])
async def test_a_person_is_asked_once_and_may_change_the_arguments(tmp_path: Path, agreed: bool) -> None:
    """Hooks in the files of the user and of the project tell of the same use."""
    desk = Desk(tmp_path)
    with desk.guard(RULES, notify="false"):
        async with asked_at(desk) as web, record(tmp_path) as store:
            tool = ClaudeCodeHooking(web, tmp_path)
            assert await use(tool, "mcp__bank__pay", to="bob", amount=500) == {}
            both = [
                asyncio.create_task(use(tool, "mcp__bank__pay", call="toolu-1", to="bob", amount=900)) for _ in "ab"
            ]
            (question,) = await eventually(store.pending)
            edits = ["--edit", 'input={"to": "bob", "amount": 800}'] if agreed else []
            verb = "approve" if agreed else "reject"
            answer = ["pending", verb, question.id, *edits, "--store", desk.store]
            await asyncio.to_thread(desk.remit, *answer)
            answers = await asyncio.gather(*both)
            assert await store.pending() == []
        assert answers[0] == answers[1]
        if agreed:
            assert answers[0]["permissionDecision"] == "allow"
            assert answers[0]["updatedInput"] == {"to": "bob", "amount": 800}
        else:
            assert answers[0]["permissionDecision"] == "deny"
    uses = await asyncio.to_thread(used, desk, "claude-code")
    assert [each["input"]["amount"] for each in uses if each.get("input")] == [500, 800 if agreed else 900]


@pytest.mark.parametrize("rules", [RULES, '[[guard.rules]]\nthen = "ask"\nto = "Explore"\n'])
def test_while_the_guard_is_away_rules_about_tools_refuse_and_others_do_not(tmp_path: Path, rules: str) -> None:
    desk = Desk(tmp_path)
    install(ClaudeCode(), tmp_path / "settings.json", tmp_path / "guard")
    with desk.guard(rules) as process:
        process.kill()
        process.wait()
    hook = [str(tmp_path / "guard" / "hook.sh"), "claude-code", "tool", "5"]
    done = subprocess.run(hook, input=b"{}", capture_output=True, check=False)
    if rules is RULES:
        assert done.returncode == 2
        assert b"no tool may be used: the team has rules about tools. To start it: remit guard serve" in done.stderr
        with desk.guard(""):  # whoever serves without rules has none
            pass
        done = subprocess.run(hook, input=b"{}", capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


async def test_rules_hold_after_the_time_of_the_session_and_nobody_is_asked(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with desk.guard(RULES, time='"100ms"', notify="false"):
        async with asked_at(desk) as web, record(tmp_path) as store:
            tool = ClaudeCodeHooking(web, tmp_path)
            await tool.hook("SessionStart")

            async def has_ended() -> bool:
                return (await store.runs(limit=1))[0].response is not None

            await eventually(has_ended)
            assert await use(tool, "Bash", command="ls") == {}
            assert (await use(tool, "Bash", command="rm -rf shop"))["permissionDecision"] == "deny"
            asked = await use(tool, "mcp__bank__pay", to="bob", amount=900)
            assert "Nobody can be asked after the time of this session" in asked["permissionDecisionReason"]
            assert await store.pending() == []


async def test_without_rules_a_use_is_recorded_briefly(tmp_path: Path) -> None:
    """A session uses many tools on long files, and the record is to say what was done."""
    async with guarding(tmp_path, GuardSettings()) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        edits = [{"old_string": "a", "new_string": "b" * 1_000}] * 30
        assert await use(tool, "Write", file_path="a.py", content="x" * 100_000) == {}
        assert await use(tool, "MultiEdit", file_path="a.py", edits=edits) == {}
        await tool.hook("SessionEnd")
    records = remit("runs", "export", "last", "--store", str(tmp_path / "guard" / "hub.db"), folder=tmp_path).stdout
    uses = [each["body"] for each in map(json.loads, records.splitlines()) if each["kind"] == "tool"]
    written, edited = (each["input"] for each in uses if each.get("input"))
    assert written["file_path"] == "a.py"
    assert written["content"].startswith("x" * 400 + "… (100,000 bytes, SHA-256 ")
    assert len(written["content"]) < 500
    assert [each["new_string"][:401] for each in edited["edits"][:-1]] == ["b" * 400 + "…"] * 20
    assert edited["edits"][-1].startswith("… 10 more, SHA-256 ")


async def test_a_thousand_uses_with_large_arguments_fit_into_the_record(tmp_path: Path) -> None:
    """All of each is judged, and its beginning, size and digest are recorded."""
    team = convert(tomllib.loads(RULES)["guard"], GuardSection)
    text = "To be or not to be. " * 4_000
    async with guarding(tmp_path, GuardSettings(notify=False), team.team_rules()) as web, record(tmp_path) as store:
        claude = ClaudeCodeHooking(web, tmp_path)
        for number in range(1_000):
            assert await use(claude, "Write", file_path=f"{number}.txt", content=text) == {}
        refused = await use(claude, "Bash", command=f"echo '{text}'; rm -rf shop")
        assert "nothing is deleted" in refused["permissionDecisionReason"]
        await claude.hook("SessionEnd")
        (run,) = await store.runs(limit=1)
        uses = list[Any]()
        while page := await store.records(run=run.run, after=uses[-1].seq if uses else 0):
            uses += page
    bodies = [each.body for each in uses if each.kind == "tool"]
    assert len({each.input["file_path"] for each in bodies if each.tool == "Write" and each.input}) == 1_000
    written = next(each.input["content"] for each in bodies if each.tool == "Write" and each.input)
    assert written.startswith("To be or not to be. To be")
    assert written.endswith(f"… (80,000 bytes, SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:16]})")
    size = sum(len(str(each.input)) for each in bodies)
    assert size < 2_000_000 < 1_000 * len(text)


async def test_a_session_whose_record_is_full_says_what_to_do_and_its_next_begins_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "Limits", partial(Limits, max_record_bytes=20_000))
    team = convert(tomllib.loads(RULES)["guard"], GuardSection)
    async with guarding(tmp_path, GuardSettings(notify=False), team.team_rules()) as web:
        claude = ClaudeCodeHooking(web, tmp_path)
        refused = dict[str, Any]()
        for number in range(100):
            refused = refused or await use(claude, "Bash", command=f"echo {number}")
        reason = refused["permissionDecisionReason"]
        assert "RECORD_LIMIT_EXCEEDED" in reason
        assert "Tell the person to end it and to resume it in claude-code, or to begin a new one" in reason
        await claude.hook("SessionEnd")
        assert await use(claude, "Bash", command="echo again") == {}
