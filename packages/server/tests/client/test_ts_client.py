"""The TypeScript client: its own tests against a real server, its types, and what its package would hold."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from a2a_install import node
from checkout import ROOT
from remit import Brief, Hub
from remit_cli import Rule, guard_of
from serving import serving
from waiting import PATIENCE_S

CLIENT = ROOT / "clients" / "ts"
TOOLS = ROOT / "web" / "node_modules"


def environment(**more: str) -> dict[str, str]:
    """Return the variables of this process, with node and the tools of `web` in the path."""
    path = os.pathsep.join((str(TOOLS / ".bin"), str(node() / "bin"), os.environ.get("PATH", "")))
    return {**os.environ, "PATH": path, "NO_COLOR": "1", **more}


def served(hub: Hub) -> Hub:
    @hub.agent("writer", description="Writes.")
    async def write(brief: Brief) -> str:
        brief.progress("thinking")
        return f"wrote {brief.objective}"

    @hub.agent("cashier")
    async def pay(brief: Brief) -> str:
        return f"paid {brief.objective}"

    @hub.agent("failing")
    async def fail(brief: Brief) -> str:
        raise ValueError("broken")

    @hub.agent("slow")
    async def wait(brief: Brief) -> str:
        await asyncio.Event().wait()
        return ""

    assert all((write, pay, fail, wait))
    return hub


async def test_the_tests_of_the_client_pass_against_a_real_server(make_hub: Callable[..., Hub]) -> None:
    rules = [Rule(then="ask", to="cashier", say="May it pay?")]
    hub = served(make_hub(guards=[guard_of(rules)], approver="inbox"))
    async with serving(hub) as server:
        tests = await asyncio.create_subprocess_exec(
            node() / "bin" / "node",
            "--test",
            "test/client.test.mjs",
            cwd=CLIENT,
            env=environment(REMIT_URL=server.address),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                output, _ = await tests.communicate()
        finally:
            if tests.returncode is None:
                tests.kill()
                await tests.wait()
    assert tests.returncode == 0, output.decode()


def test_the_package_has_no_dependencies_and_its_types_are_those_of_the_console() -> None:
    package = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))
    assert "dependencies" not in package
    assert '"resolved"' not in (CLIENT / "package-lock.json").read_text(encoding="utf-8")
    # Those are compared with the OpenAPI document of now by packages/server/tests/console/test_console_types.py.
    made = (ROOT / "web" / "src" / "api" / "operator.ts").read_text(encoding="utf-8")
    assert (CLIENT / "src" / "api.ts").read_text(encoding="utf-8") == made, "run `npm run types` in web/"


def test_the_package_is_built_and_packed(tmp_path: Path) -> None:
    if not TOOLS.exists():
        pytest.skip("the packages of web/ are not installed: there was no registry when the console was built")
    copy = tmp_path / "ts"
    shutil.copytree(CLIENT, copy, ignore=shutil.ignore_patterns("dist", "node_modules"))
    npm = node() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    done = subprocess.run(
        [node() / "bin" / "node", npm, "pack", "--dry-run", "--json"],
        cwd=copy,
        env=environment(npm_config_cache=str(tmp_path / "cache")),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    body = json.loads(done.stdout[done.stdout.index("[\n") :])
    packed = {each["path"] for each in body[0]["files"]}
    names = [f"dist/{name}{end}" for name in ("index", "errors", "events") for end in (".js", ".d.ts")]
    assert {"package.json", "README.md", *names} <= packed
    assert not any(each.startswith(("src", "test")) for each in packed)
    script = (copy / "dist" / "index.js").read_text(encoding="utf-8")
    assert 'from "./events.js"' in script
