"""The events of OpenCode as its plugin sends them, over the socket of a running guard."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import ClientSession, UnixConnector

from opencode_events import OpenCodeTelling
from remit.stores.sqlite import SqliteStore
from remit_guard.daemon import running_guard
from remit_guard.install import install, is_in, uninstall
from remit_guard.settings import GuardSettings
from remit_guard.tools.known_tools import TOOLS

SMALL = GuardSettings(tokens=1_000, reserve=100, depth=2, at_once=2, at_limit="stop")

TOOL = TOOLS["opencode"]


@asynccontextmanager
async def guarding(folder: Path, parents: dict[str, str] | None = None) -> AsyncGenerator[OpenCodeTelling]:
    async with (
        running_guard(folder, lambda _: SMALL, "ada") as path,
        ClientSession("http://guard", connector=UnixConnector(path=str(path))) as web,
    ):
        yield OpenCodeTelling(web, parents)


async def totals(folder: Path) -> list[int]:
    """Return the tokens of each run, the newest first."""
    store = SqliteStore(folder / "hub.db", durability="process")
    await store.open()
    try:
        return [run.response.usage.total for run in await store.runs(limit=9) if run.response is not None]
    finally:
        await store.close()


async def test_sessions_below_a_session_are_its_tree(tmp_path: Path) -> None:
    async with guarding(tmp_path) as tool:
        await tool.tell("created", "top", directory="/work")
        assert await tool.start("top", "one") is None
        assert await tool.start("one", "two") is None
        assert "MAX_DEPTH_EXCEEDED" in str(await tool.start("two", "three"))
        use = {"input": 100, "output": 50, "cached": 900}
        await tool.tell("message", "two", message="m1", tokens=use)
        await tool.tell("message", "two", message="m1", tokens=use)  # told again when it ends
        assert await tool.tell("call", "two") == {"stopped": ""}
        await tool.tell("message", "two", message="m2", tokens={"input": 900})
        assert "tokens of this session are spent" in (await tool.tell("call", "two"))["stopped"]
        assert await tool.tell("call", "top") == {"stopped": ""}, "the person goes on"
        await tool.tell("idle", "two")
        await tool.tell("idle", "one")
        assert "TOKEN_BUDGET_EXCEEDED" in str(await tool.start("top", "four"))
        await tool.tell("deleted", "top")
        async with tool.web.get("/status") as reply:
            assert (await reply.json())["sessions"] == []


async def test_the_same_task_may_be_given_again_after_an_edit(tmp_path: Path) -> None:
    given = {"kind": "general", "title": "Run the tests", "task": "All of them"}
    async with guarding(tmp_path) as tool:
        await tool.tell("created", "top", directory="/work")
        for call, edits, refused in (("one", False, False), ("two", False, True), ("three", True, False)):
            if edits:
                assert await tool.use("top", "edit", filePath="shop.py") == {"refused": ""}
            answer = await tool.tell("spawn", "top", call=call, resumes="", **given)
            assert ("CYCLE_DETECTED" in str(answer)) is refused
            if not refused:
                tool.parents[call] = "top"
                await tool.tell("created", call)
                await tool.tell("idle", call)


async def test_a_guard_that_was_restarted_asks_for_what_was_spent_and_knows_whose_sub_agents_they_are(
    tmp_path: Path,
) -> None:
    async with guarding(tmp_path) as tool:
        assert await tool.tell("created", "top") == {"is_new": True}
        assert await tool.start("top", "one") is None
        assert await tool.says("one", "m1") == {}
    async with guarding(tmp_path, tool.parents) as tool:
        assert await tool.says("one", "m2") == {"is_new": True}
        for message, session in {"m0": "top", "m1": "one", "m2": "one"}.items():
            assert await tool.says(session, message) == {}
        assert await tool.start("one", "two") is None
        await tool.says("two", "m3")
        await tool.tell("ended", "top")
        assert await tool.tell("ended", "top") == {}, "it opens nothing"
    assert await totals(tmp_path) == [30 * 4, 30]


async def test_a_sub_agent_that_is_resumed_is_charged_for_what_it_spends_then(tmp_path: Path) -> None:
    async with guarding(tmp_path) as tool:
        assert await tool.start("top", "one") is None
        await tool.tell("idle", "one")
        assert await tool.spawn("top", "again", resumes="one") is None
        await tool.tell("message", "one", message="much", tokens={"input": 1_100})
        assert "are spent" in (await tool.tell("call", "one"))["stopped"]


async def test_two_plugins_for_the_user_and_for_the_project_count_as_one(tmp_path: Path) -> None:
    async with guarding(tmp_path) as tool:
        for _ in range(2):
            assert await tool.spawn("top", "a") is None
        assert await tool.spawn("top", "b") is None
        tool.parents.update(one="top", two="top")
        for session in ("one", "one", "two", "two"):
            await tool.tell("created", session)
        for session in ("one", "two"):
            await tool.tell("message", session, message="much", tokens={"input": 1_100})
            assert "are spent" in (await tool.tell("call", session))["stopped"]


async def test_a_sub_agent_that_the_person_declined_frees_its_place_when_its_caller_is_idle(tmp_path: Path) -> None:
    async with guarding(tmp_path) as tool:
        assert await tool.spawn("top", "a") is None
        assert await tool.spawn("top", "b") is None
        assert "FAN_OUT_EXCEEDED" in str(await tool.spawn("top", "c"))
        await tool.tell("idle", "top")
        assert await tool.start("top", "d") is None


def test_the_plugin_is_written_and_removed(tmp_path: Path) -> None:
    path, folder = TOOL.path(tmp_path), tmp_path / "guard"
    install(TOOL, path, folder)
    assert is_in(TOOL, path, folder)
    assert f'const SOCKET = "{folder}/guard.sock";' in path.read_text()
    assert uninstall(TOOL, path, folder)
    assert not path.exists()


def test_a_plugin_that_was_changed_is_not_taken_for_the_guards(tmp_path: Path) -> None:
    path, folder = TOOL.path(tmp_path), tmp_path / "guard"
    install(TOOL, path, folder)
    path.write_text("export const Mine = async () => ({});")
    assert not is_in(TOOL, path, folder)
    assert not uninstall(TOOL, path, folder)
    assert "Mine" in path.read_text()


async def test_what_was_spent_before_is_asked_for_also_if_a_shell_command_is_told_first(tmp_path: Path) -> None:
    """The plugin tells it after an event that only meters; the guard may be started just before another one."""
    async with guarding(tmp_path) as tool:
        assert await tool.use("top", "bash", command="ls") == {"refused": "", "is_new": True}
        assert (await tool.tell("call", "top"))["is_new"] is True
        assert await tool.tell("call", "top") == {"stopped": ""}


async def test_a_call_of_a_session_that_has_ended_is_not_taken_for_one_of_the_next(tmp_path: Path) -> None:
    """A session is opened again under its id: what it had asked for before is over."""
    async with guarding(tmp_path) as tool:
        assert await tool.spawn("top", "aborted") is None
        await tool.tell("ended", "top")
        assert await tool.start("top", "one") is None
        await tool.says("one", "m1")
        await tool.tell("idle", "one")
        assert [await tool.start("top", "two"), await tool.start("top", "three")] == [None, None]
        await tool.tell("ended", "top")
