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
from commands import forked_command
from waiting import PATIENCE_S

HERE = Path(__file__).resolve().parent
SUITE = HERE / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
PIPE = asyncio.subprocess.PIPE
VARIABLES = {**os.environ, "PYTHONPATH": str(HERE.parent)}


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
        code, said = await ran(node, tmp_path, "server", *arguments)
    assert code == 0, said
    passed = re.findall(r"^✓ ([\w-]+):", said, re.MULTILINE)
    assert len(passed) == 32, said


SCENARIOS = (
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
    "auth/cross-app-access-complete-flow",
)


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_hub_is_a_client_as_the_suite_asks_for(node: str, tmp_path: Path, scenario: str) -> None:
    command = " ".join(forked_command(HERE / "suite_client.py"))
    code, said = await ran(node, tmp_path, "client", "--command", command, "--scenario", scenario)
    assert code == 0, said
    assert "OVERALL: PASSED" in said
    assert ", 0 warnings" in said
