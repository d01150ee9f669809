"""Real Gemini CLI with a scripted model, under a real guard: `make test-guard`."""

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from a2a_install import node
from command_line import document
from guard_desk import SECONDS, Desk, check_shell, spent
from model_servers import INPUT, OUTPUT, Calls, Decide, ScriptedModel, gemini
from remit_guard.tools.gemini_cli import GeminiCli

GEMINI = Path(__file__).parent / "node_modules" / "@google" / "gemini-cli" / "bundle" / "gemini.js"
COMMAND = [str(node() / "bin" / "node"), str(GEMINI)]
SETTINGS = """\
{
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": false},
    "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false},
    "tools": {"useRipgrep": false}}
"""

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not GEMINI.exists(), reason="NOT TESTED: Gemini CLI is not installed; run make test-guard"),
]


def spawn(number: int | str) -> tuple[str, dict[str, Any]]:
    return "invoke_agent", {"agent_name": "generalist", "prompt": f"Do task {number}"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "settings.json").write_text(SETTINGS)
    made.remit("guard", "gemini-cli", "--yes")
    return made


def scripted(decide: Decide) -> ScriptedModel:
    return ScriptedModel(decide, gemini)


def start(desk: Desk, model: ScriptedModel) -> subprocess.Popen[str]:
    variables = {"GOOGLE_GEMINI_BASE_URL": model.url, "GEMINI_API_KEY": "none", "GEMINI_CLI_NO_RELAUNCH": "true"}
    return desk.start([*COMMAND, "-p", "go", "--model", "gemini-2.5-flash", "--yolo", "--skip-trust"], variables)


def run(desk: Desk, model: ScriptedModel) -> None:
    out, err = start(desk, model).communicate(timeout=SECONDS)
    assert "Done." in out, out + err


def test_a_series_that_would_go_on_for_ever_is_stopped_at_the_limit_and_counted_to_the_token(desk: Desk) -> None:
    def endless(prompts: list[str], results: list[str]) -> Calls:
        is_over = "Do task" in prompts[-1] or "TOKEN_BUDGET_EXCEEDED" in "".join(results)
        return [] if is_over else [spawn(len(results))]

    with scripted(endless) as model, desk.guard(tokens=280, reserve=100, at_limit="stop"):
        run(desk, model)
        output = "\n".join(model.results)
    assert "Remit: TOKEN_BUDGET_EXCEEDED: no tokens are left" in output
    assert desk.tokens() == spent(model)
    assert desk.tree().count("─ generalist  success") == 4


def test_a_burst_never_starts_more_than_the_tokens_allow(desk: Desk) -> None:
    def burst(prompts: list[str], results: list[str]) -> Calls:
        return [] if results or "Do task" in prompts[-1] else [spawn(number) for number in range(6)]

    with scripted(burst) as model, desk.guard(tokens=280, reserve=100, at_limit="stop"):
        run(desk, model)
        output = "\n".join(model.results)
    assert "TOKEN_BUDGET_EXCEEDED" in output
    assert desk.tokens() == spent(model) <= 280


def test_an_approval_from_another_process_lets_one_spawn_through(desk: Desk) -> None:
    def two(prompts: list[str], results: list[str]) -> Calls:
        return [spawn(len(results))] if len(results) < 2 and "Do task" not in prompts[-1] else []

    with scripted(two) as model, desk.guard(tokens=50, reserve=100, at_limit="ask"):
        process = start(desk, model)
        for answer in ("approve", "reject"):
            until = time.monotonic() + SECONDS
            while not document("pending", "list", "--store", desk.store, folder=desk.folder)["questions"]:
                assert time.monotonic() < until
                assert process.poll() is None, process.communicate()
                time.sleep(0.2)
            desk.remit("pending", answer, "last", "--store", desk.store)
        out, err = process.communicate(timeout=SECONDS)
        output = "\n".join(model.results)
    assert "Done." in out, err
    assert "A person was asked, and did not agree to more." in output
    assert desk.tree().count("generalist") == 1


def test_while_the_guard_is_dead_nothing_starts_and_afterwards_it_goes_on_with_the_same_total(desk: Desk) -> None:
    with ExitStack() as guards:

        def three(prompts: list[str], results: list[str]) -> Calls:
            if "Do task" in prompts[-1]:
                if process.poll() is None:  # killed while the first sub-agent works
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                return []
            if len(results) == 2:
                guards.enter_context(desk.guard(reserve=100))
            return [spawn(len(results))] if len(results) < 3 else []

        process = guards.enter_context(desk.guard(reserve=100))
        with scripted(three) as model:
            run(desk, model)
    refused = "no sub-agent may start. To start it: remit guard serve"
    assert [each for each in model.results if refused in each] == [model.results[1]]
    assert desk.tokens() == spent(model)
    assert desk.tree().count("generalist") == 1


def test_a_sub_agent_that_spends_the_last_tokens_is_ended_and_the_session_goes_on(desk: Desk) -> None:
    def busy(prompts: list[str], results: list[str]) -> Calls:
        if "Do task" in prompts[-1]:
            return [("run_shell_command", {"command": f"echo {len(results)}", "description": "Say a number"})]
        return [] if results else [spawn(1)]

    with scripted(busy) as model, desk.guard(tokens=300, reserve=100, at_limit="stop"):
        run(desk, model)
        output = "\n".join(model.results)
    assert "Remit: The tokens of this session are spent." in output
    assert desk.tokens() == spent(model)
    assert 300 <= spent(model) <= 300 + 2 * (INPUT + OUTPUT)


def test_the_same_task_may_be_given_again_after_a_tool_of_an_mcp_server(desk: Desk) -> None:
    path = desk.folder / ".gemini" / "settings.json"
    settings = json.loads(path.read_text())
    program = Path(__file__).parents[4] / "tests" / "toolshed.py"
    server = {"command": sys.executable, "args": [str(program)], "trust": True}
    path.write_text(json.dumps({**settings, "mcpServers": {"shed": server}}))

    def again(prompts: list[str], results: list[str]) -> Calls:
        if "Do task" in prompts[-1]:
            return []
        told[:] = results
        use: Calls = [("mcp_shed_picture", {})]
        return [[spawn(1)], [spawn(1)], use, [spawn(1)], []][len(results)]

    told: list[str] = []
    with scripted(again) as model, desk.guard():
        run(desk, model)
    assert ["CYCLE_DETECTED" in each for each in told] == [False, True, False, False], told
    assert "see" in told[2], "the tool of the server was used"


def test_undo_leaves_the_settings_byte_for_byte_as_they_were(desk: Desk) -> None:
    path = desk.folder / ".gemini" / "settings.json"
    hooks = json.loads(path.read_text())["hooks"]
    assert hooks["BeforeTool"][0]["hooks"][0]["timeout"] == 3_600_000
    desk.remit("guard", "gemini-cli", "--undo")
    assert path.read_text() == SETTINGS


def test_the_version_that_is_installed_is_one_that_was_tried() -> None:
    version = subprocess.run(
        [*COMMAND, "--version"], capture_output=True, text=True, check=True, timeout=SECONDS
    ).stdout
    assert version.split()[0] in GeminiCli.tried


def test_each_command_of_its_shell_is_judged_before_it_runs(desk: Desk) -> None:
    check_shell(
        desk,
        start,
        lambda command: ("run_shell_command", {"command": command, "description": "Work"}),
        "codex exec",
        gemini,
    )
