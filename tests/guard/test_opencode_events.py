"""The events of OpenCode as its plugin sends them, over the socket of a running guard."""

from pathlib import Path
from typing import Any

from aiohttp import ClientSession, UnixConnector

from remit.guard.daemon import running_guard
from remit.guard.install import install, is_in, uninstall
from remit.guard.settings import GuardSettings
from remit.guard.tools.known_tools import TOOLS

SMALL = GuardSettings(tokens=1_000, reserve=100, depth=2, at_once=2, at_limit="stop")

TOOL = TOOLS["opencode"]


class OpenCode:
    """Sends events as the plugin does; each sub-agent is a session."""

    def __init__(self, web: ClientSession) -> None:
        self.web = web

    async def tell(self, event: str, session: str, **more: Any) -> dict[str, Any]:
        async with self.web.post("/hooks/opencode", json={"event": event, "session": session, **more}) as reply:
            assert reply.status == 200, await reply.text()
            return await reply.json()

    async def start(self, parent: str, session: str) -> str | None:
        """Start a sub-agent as a session; return why it may not start."""
        about = {"kind": "general", "title": f"Start {session}", "task": "Do it"}
        answer = await self.tell("spawn", parent, call=f"call-{session}", **about)
        if not answer:
            await self.tell("created", session, parent=parent)
        return answer.get("refused")


async def test_sessions_below_a_session_are_its_tree(tmp_path: Path) -> None:
    async with (
        running_guard(tmp_path, lambda _: SMALL, "ada") as path,
        ClientSession("http://guard", connector=UnixConnector(path=str(path))) as web,
    ):
        tool = OpenCode(web)
        await tool.tell("created", "top", directory="/work")
        assert await tool.start("top", "one") is None
        assert await tool.start("one", "two") is None
        assert "MAX_DEPTH_EXCEEDED" in str(await tool.start("two", "three"))
        use = {"input": 100, "output": 50, "cached": 900}
        await tool.tell("message", "two", message="m1", tokens=use)
        await tool.tell("message", "two", message="m1", tokens=use)  # told again when it ends
        assert await tool.tell("tool", "two") == {"stopped": ""}
        await tool.tell("message", "two", message="m2", tokens={"input": 900})
        assert "tokens of this session are spent" in (await tool.tell("tool", "two"))["stopped"]
        assert await tool.tell("tool", "top") == {"stopped": ""}, "the person goes on"
        await tool.tell("idle", "two")
        await tool.tell("idle", "one")
        assert "TOKEN_BUDGET_EXCEEDED" in str(await tool.start("top", "four"))
        await tool.tell("deleted", "top")
        async with web.get("/status") as reply:
            assert (await reply.json())["sessions"] == []


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
