"""The conformance suite of MCP, against a hub as server and against a hub as client."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from a2a_install import UnreachableError, install
from checkout import TESTS
from commands import forked_command
from waiting import PATIENCE_S

HERE = Path(__file__).resolve().parent
SUITE = HERE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
PIPE = asyncio.subprocess.PIPE
VARIABLES = {**os.environ, "PYTHONPATH": str(TESTS)}


@pytest.fixture(scope="module")
def node() -> str:
    try:
        return str(install(HERE))
    except UnreachableError as error:
        pytest.skip(f"the conformance suite of MCP cannot be installed, because npm reaches no registry: {error}")


async def ran(node: str, folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the suite, and return its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        node, SUITE, *arguments, cwd=folder, env=VARIABLES, stdout=PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(PATIENCE_S):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


@asynccontextmanager
async def served() -> AsyncGenerator[str]:
    """Serve the hub of the suite, and yield the address of its MCP server."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        HERE / "suite_server.py",
        env=VARIABLES,
        stdin=PIPE,
        stdout=PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield (await process.stdout.readline()).decode().strip()
            process.stdin.close()
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_hub_is_a_server_as_the_suite_asks_for(node: str, tmp_path: Path) -> None:
    async with served() as url:
        arguments = ("--url", url, "--suite", "all")
        code, output = await ran(node, tmp_path, "server", *arguments)
    assert code == 0, output
    passed = re.findall(r"^✓ ([\w-]+):", output, re.MULTILINE)
    assert len(passed) == 32, output


# What the suite tells a client to do; it runs them in one process, which takes longer to start than any of them.
_LOGINS = """
2025-03-26-oauth-metadata-backcompat 2025-03-26-oauth-endpoint-fallback resource-mismatch offline-access-scope
offline-access-not-supported client-credentials-jwt client-credentials-basic cross-app-access-complete-flow
metadata-default metadata-var1 metadata-var2 metadata-var3 basic-cimd pre-registration scope-from-www-authenticate
scope-from-scopes-supported scope-omitted-when-undefined scope-step-up scope-retry-limit token-endpoint-auth-basic
token-endpoint-auth-post token-endpoint-auth-none
"""
SCENARIOS = {
    *("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"),
    *(f"auth/{name}" for name in _LOGINS.split()),
}


async def test_a_hub_is_a_client_as_the_suite_asks_for(node: str, tmp_path: Path) -> None:
    command = " ".join(forked_command(HERE / "suite_client.py"))
    bound = f"{PATIENCE_S * 1_000:.0f}"
    code, output = await ran(node, tmp_path, "client", "--command", command, "--suite", "all", "--timeout", bound)
    assert code == 0, output
    assert set(re.findall(r"^✓ ([\w/-]+): \d+ passed, 0 failed$", output, re.MULTILINE)) >= SCENARIOS, output
    assert re.search(r"^Total: \d+ passed, 0 failed, 0 warnings$", output, re.MULTILINE), output
