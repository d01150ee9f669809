"""A person is told that a question waits: on the terminal of the guard, and on the desktop."""

import asyncio
import os
import pty
import sys
from pathlib import Path

import pytest
from aiohttp import ClientSession, UnixConnector

from claude_hooks import ClaudeCodeHooking, answered, guarding, record
from guard_desk import Desk
from remit.ports import Decision, Question
from remit.runtime.approvers import decide
from remit_guard.commands.guarding import show_question
from remit_guard.daemon import desktop_command, notify
from remit_guard.settings import GuardSettings
from remit_testing.samples import a_request

TEXT = "claude-code has used 30 of 20 tokens. Start one more general-purpose?"


def fake_notifier(folder: Path, name: str = "notify-send") -> Path:
    """Put a program on the path that writes down what it is called with, whole."""
    folder.mkdir(exist_ok=True)
    notice_file = folder / "told"
    script = folder / name
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {notice_file}.new && mv {notice_file}.new {notice_file}\n')
    script.chmod(0o755)
    return notice_file


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_question_is_told_where_the_guard_runs_and_on_the_desktop(tmp_path: Path, wanted: bool) -> None:
    notice_file = fake_notifier(tmp_path / "bin")
    desk = Desk(tmp_path)
    desk.variables["PATH"] = f"{notice_file.parent}:{os.environ['PATH']}"
    with desk.guard(tokens=20, reserve=100, notify=str(wanted).lower()):
        connector = UnixConnector(path=str(tmp_path / "guard" / "guard.sock"))
        async with ClientSession("http://guard", connector=connector) as web, asyncio.TaskGroup() as tasks:
            spawn = tasks.create_task(ClaudeCodeHooking(web, tmp_path).spawn(1))
            log = tmp_path / "guard.log"
            while "remit pending approve " not in log.read_text() or (wanted and not notice_file.exists()):
                assert not spawn.done(), spawn.result()
                await asyncio.sleep(0.01)
            (command,) = [line for line in log.read_text().splitlines() if line.startswith("→ remit pending approve")]
            await asyncio.to_thread(desk.remit, *command.removeprefix("→ remit ").partition("   (")[0].split())
        assert spawn.result() is None
    assert f"\n{TEXT}\n" in log.read_text()
    assert "\a" not in log.read_text(), "a file has no bell"
    assert notice_file.exists() == wanted
    if wanted:
        assert notice_file.read_text() == f"--app-name=Remit\n--\nA coding tool waits for you\n{TEXT}\n"


async def test_two_that_ask_the_same_at_once_need_an_answer_each(tmp_path: Path) -> None:
    async with guarding(tmp_path, GuardSettings(tokens=20, reserve=100, notify=False)) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        tool.says("both", tool="toolu-1")
        tool.says("both", tool="toolu-2")
        given = {"prompt": "Do it", "subagent_type": "general-purpose"}

        def spawn(number: int) -> asyncio.Task[dict[str, object]]:
            task = {**given, "description": f"Task {number}"}
            return asyncio.create_task(
                tool.hook("PreToolUse", tool_name="Agent", tool_use_id=f"toolu-{number}", tool_input=task)
            )

        both = [spawn(1), spawn(2)]
        async with record(tmp_path) as store:
            while len(questions := await store.pending()) < 2:
                await asyncio.sleep(0.01)
            await decide(store, questions[0].id, Decision(agreed=True, by="ada"))
            await decide(store, questions[1].id, Decision(agreed=False, by="ada"))
        answers = [await each for each in both]
    assert sorted(bool(each) for each in answers) == [False, True]


async def test_without_a_notifier_or_with_a_broken_one_the_question_waits_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert desktop_command("Title", "text") is None
    (tmp_path / "notify-send").write_text("no program")
    (tmp_path / "notify-send").chmod(0o755)
    await notify("Title", "text")
    async with guarding(tmp_path, GuardSettings(tokens=20, reserve=100)) as web:
        assert await answered(ClaudeCodeHooking(web, tmp_path).spawn(1), tmp_path, TEXT, agreed=True) is None


def test_the_notifier_of_apple_gets_title_and_text_as_arguments_and_markup_is_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    fake_notifier(tmp_path, "osascript")
    assert (desktop_command("Title", '"; do shell script "x') or [])[-2:] == ["Title", '"; do shell script "x']
    fake_notifier(tmp_path)
    assert (desktop_command("Title", "<b>a</b>") or [])[-2:] == ["Title", "&lt;b&gt;a&lt;/b&gt;"]


def test_a_terminal_rings_its_bell(monkeypatch: pytest.MonkeyPatch) -> None:
    question = Question(id="r-1", text="May it?", request=a_request(), asked_ms=1, expires_ms=2)
    shown, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        show_question(question)
        stream.flush()
        output = os.read(shown, 4_096).decode()
    os.close(shown)
    assert output.startswith("\aMay it?\r\n→ remit pending approve r-1 --store guard")


async def test_a_question_is_withdrawn_when_the_tool_gives_the_hook_up(tmp_path: Path) -> None:
    """Escape in a tool ends the hook that waits; a late yes must not hold a place for a sub-agent that never starts."""
    async with guarding(tmp_path, GuardSettings(tokens=20, reserve=100, at_once=1, notify=False)) as web:
        tool = ClaudeCodeHooking(web, tmp_path)
        given_up = asyncio.create_task(tool.spawn(1))
        async with record(tmp_path) as store:
            while not await store.pending():
                await asyncio.sleep(0.01)
            given_up.cancel()
            while await store.pending():
                await asyncio.sleep(0.01)
        assert await answered(tool.spawn(2), tmp_path, "Start one more", agreed=True) is None
