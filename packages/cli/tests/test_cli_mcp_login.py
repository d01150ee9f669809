"""`remit mcp login` and `remit mcp logout`: real processes, against a real authorization server."""

import asyncio
import re
from pathlib import Path
from subprocess import PIPE

from command_line import REMIT, document, environment, remit
from commands import popen
from oauth_servers import GuardedMcp, browser, guarded
from waiting import PATIENCE_S

CODE = """
async def answer(brief):
    return await brief.use("far.read")
"""


def team(folder: Path, server: GuardedMcp) -> None:
    (folder / "clerk.py").write_text(CODE, encoding="utf-8")
    text = f"""
name = "office"

[mcp.far]
url = "{server.url}"
auth = "oauth"
allow = ["read"]

[mcp.near]
url = "https://near.example/mcp"
allow = ["read"]

[agents.clerk]
run = "clerk:answer"
tools = ["far.read"]
"""
    (folder / "remit.toml").write_text(text, encoding="utf-8")


async def typed(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run a command beside the servers of this process, and return its exit code and what it printed."""
    done = await asyncio.to_thread(remit, *arguments, folder=folder)
    return done.returncode, done.stdout + done.stderr


async def logged_in(folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Type the command, and open the address that it prints; return its exit code, the address and its output."""
    command = [REMIT, "mcp", "login", "far", "--no-browser", *arguments]
    process = popen(command, cwd=folder, env=environment(), stdout=PIPE, stderr=PIPE, text=True)
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE_S):
        while not (address := (await asyncio.to_thread(process.stderr.readline)).strip()).startswith("http"):
            assert process.poll() is None
        await browser(address)
        out, err = await asyncio.to_thread(process.communicate)
    return process.returncode, address, out + err


async def test_a_person_logs_in_once_and_runs_use_it_until_the_logout(tmp_path: Path) -> None:
    """Proves the commands, the error before and after, and what `remit doctor` says."""
    async with guarded() as server:
        team(tmp_path, server)
        code, output = await typed(tmp_path, "run", "clerk", "read")
        assert code != 0
        assert "remit mcp login far" in output
        code, output = await typed(tmp_path, "mcp", "--tools", "far")
        assert (code, "remit mcp login far" in output) == (3, True)
        assert server.logins.requests == []

        code, address, output = await logged_in(tmp_path)
        assert code == 0, output
        assert f"Logged in to far ({server.logins.address})." in output
        assert address.startswith(f"{server.logins.address}/authorize?")
        tokens = re.findall(r"(?:access|refresh)-[\w-]+", (tmp_path / ".remit/mcp-logins/far.json").read_text())
        assert len(tokens) == 2
        assert not [each for each in tokens if each in output]

        code, output = await typed(tmp_path, "run", "clerk", "read")
        assert (code, output.startswith("the letter\n")) == (0, True)
        checks = (await asyncio.to_thread(document, "doctor", folder=tmp_path))["checks"]
        assert [each["says"] for each in checks if each["about"] == "mcp.far"] == [
            f"logged in at {server.logins.address}"
        ]

        assert await typed(tmp_path, "mcp", "logout", "far") == (0, "Logged out of far.\n")
        assert await typed(tmp_path, "mcp", "logout", "far") == (0, "There was no login at far.\n")
        code, output = await typed(tmp_path, "run", "clerk", "read")
        assert "remit mcp login far" in output
        checks = (await asyncio.to_thread(document, "doctor", folder=tmp_path))["checks"]
        (check,) = [each for each in checks if each["about"] == "mcp.far"]
        assert check["todo"] == "remit mcp login far"


async def test_a_login_can_ask_for_further_scopes(tmp_path: Path) -> None:
    async with guarded() as server:
        team(tmp_path, server)
        await logged_in(tmp_path, "--scope", "post")
        await logged_in(tmp_path, "--scope", "files:read files:write")
    scopes = [each["scope"] for path, _, each in server.logins.requests if path == "/authorize"]
    assert scopes == ["post", "post files:read files:write"]


async def test_a_declined_login_fails_and_stores_nothing(tmp_path: Path) -> None:
    async with guarded() as server:
        team(tmp_path, server)
        server.logins.declines = True
        code, _, output = await logged_in(tmp_path)
    assert code != 0
    assert "the login was refused (access_denied)" in output
    assert not (tmp_path / ".remit/mcp-logins/far.json").exists()


async def test_only_servers_with_logins_have_them(tmp_path: Path) -> None:
    async with guarded() as server:
        team(tmp_path, server)
        code, output = await typed(tmp_path, "mcp", "login", "near")
        assert (code, "MCP server near has no logins" in output) == (3, True)
        code, output = await typed(tmp_path, "mcp", "login", "fax")
        assert (code, "no such MCP server `fax`" in output) == (3, True)
