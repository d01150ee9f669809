"""The record of the guard: on the command line, and in the console that it serves on demand."""

import asyncio
from pathlib import Path
from subprocess import CompletedProcess

from aiohttp import ClientSession, CookieJar, UnixConnector
from yarl import URL

from command_line import remit
from remit_guard.daemon import running_guard
from remit_guard.places import guard_store, socket_of
from remit_guard.settings import GuardSettings


async def command(*arguments: str, folder: Path, guard: Path) -> CompletedProcess[str]:
    return await asyncio.to_thread(remit, *arguments, folder=folder, REMIT_GUARD=str(guard))


async def record(folder: Path) -> None:
    """Leave a session with one sub-agent in the store of a guard."""
    folder.mkdir(parents=True)
    async with running_guard(folder, lambda _: GuardSettings(), "ada") as socket:
        await one_session(socket)


async def one_session(socket: Path) -> None:
    async with ClientSession("http://guard", connector=UnixConnector(str(socket))) as web:
        for event in (
            {"event": "created", "session": "s", "directory": "/work/shop"},
            {"event": "spawn", "session": "s", "call": "c", "kind": "worker", "title": "Find it", "task": "Find it"},
            {"event": "created", "session": "below", "parent": "s"},
        ):
            async with web.post("/hooks/opencode", json={"root": "s", **event}) as reply:
                assert "refused" not in await reply.json()


async def test_without_a_team_the_record_of_the_guard_is_shown(tmp_path: Path) -> None:
    await record(tmp_path / "guard")
    (tmp_path / "here").mkdir()
    about = {"folder": tmp_path / "here", "guard": tmp_path / "guard"}

    tree = await command("runs", "tree", "last", **about)
    assert "There is no team here: this is the record of the guard" in tree.stderr
    assert [line.strip("└─ ").split()[0] for line in tree.stdout.splitlines()[1:]] == ["opencode", "worker"]
    (tmp_path / "here" / "remit.toml").touch()
    own = await command("runs", "list", **about)
    assert (own.returncode, "no record yet" in own.stderr) == (7, True)
    named = await command("runs", "tree", "last", "--store", "guard", **about)
    assert (named.stdout, named.stderr) == (tree.stdout, "")


async def test_commands_that_change_a_store_never_take_the_guards_unasked(tmp_path: Path) -> None:
    await record(tmp_path / "guard")
    done = await command("users", "erase", "ada", "--yes", folder=tmp_path, guard=tmp_path / "guard")
    assert "no record yet" in done.stderr
    assert guard_store(tmp_path / "guard").exists()


async def test_the_console_shows_a_session_while_it_runs(tmp_path: Path) -> None:
    folder = tmp_path / "guard"
    about = {"folder": tmp_path, "guard": folder}
    none = await command("guard", "console", "--no-browser", **about)
    assert (none.returncode, none.stderr) == (1, "The guard does not run.\n→ remit guard serve\n")
    folder.mkdir()
    async with running_guard(folder, lambda _: GuardSettings(), "ada"):
        await one_session(socket_of(folder))
        done = await command("guard", "console", "--no-browser", **about)
        link = URL(done.stdout.split()[-1])
        async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as browser:
            async with browser.get(link, allow_redirects=False) as page:
                browser.headers["x-remit-page-key"] = page.headers["location"].removeprefix("/#key=")
                assert page.status == 303
            async with browser.get(link.with_path("/v1/runs")) as reply:
                (run,) = (await reply.json())["runs"]
            assert (run["agent"], run["state"], run["user"]) == ("opencode", "running", "ada")
            async with browser.get(link.with_path("/v1/agents")) as reply:
                assert (await reply.json())["agents"] == []
