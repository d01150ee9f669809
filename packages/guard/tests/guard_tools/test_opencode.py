"""Real OpenCode with a scripted model, under a real guard: `make test-guard`."""

import json
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from platform import machine
from typing import Any

import pytest

from command_line import document
from guard_desk import SECONDS, Desk, check_shell, spent
from model_servers import INPUT, OUTPUT, Calls, ScriptedModel
from remit_guard.tools.opencode import OpenCode

BUILD = {"aarch64": "arm64", "x86_64": "x64"}.get(machine(), machine())
OPENCODE = Path(__file__).parent / "node_modules" / f"opencode-linux-{BUILD}" / "bin" / "opencode"

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not OPENCODE.exists(), reason="NOT TESTED: OpenCode is not installed; run make test-guard"),
]


def spawn(number: int | str) -> tuple[str, dict[str, Any]]:
    return "task", {"description": f"Task {number}", "prompt": f"Do task {number}", "subagent_type": "worker"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    made.remit("guard", "opencode", "--yes")
    return made


def start(desk: Desk, model: ScriptedModel) -> subprocess.Popen[str]:
    provider = {
        "npm": "@ai-sdk/anthropic",
        "options": {"baseURL": f"{model.url}/v1", "apiKey": "none"},
        "models": {"m": {"name": "m", "tool_call": True, "limit": {"context": 200_000, "output": 8_000}}},
    }
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": "scripted/m",
        "small_model": "scripted/m",
        "permission": {"*": "allow"},
        "subagent_depth": 9,
        "provider": {"scripted": provider},
        # A kind of sub-agent that may start others.
        "agent": {"worker": {"mode": "subagent", "description": "Works.", "permission": {"task": "allow"}}},
    }
    folder = desk.folder / "config" / "opencode"
    (folder / "opencode.json").write_text(json.dumps(settings))
    # OpenCode installs a package for plugins, which this one does not need, unless it seems to be there.
    (folder / "node_modules").mkdir(exist_ok=True)
    lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": OpenCode.tried[-1]}}}}
    (folder / "package-lock.json").write_text(json.dumps(lock))
    variables = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    return desk.start([str(OPENCODE), "run", "go"], variables)


def run(desk: Desk, model: ScriptedModel) -> None:
    out, err = start(desk, model).communicate(timeout=SECONDS)
    assert "Done." in out, out + err


def deeper(prompts: list[str], results: list[str]) -> Calls:
    """Start a sub-agent at every level, for ever."""
    return [] if results else [spawn(f"below {prompts[-1][-20:]}")]


def test_a_tree_that_would_go_on_for_ever_is_stopped_at_the_limit_and_counted_to_the_token(desk: Desk) -> None:
    with ScriptedModel(deeper) as model, desk.guard(depth=2, tokens=100_000, reserve=100):
        run(desk, model)
        output = "\n".join(model.results)
    assert "Remit: MAX_DEPTH_EXCEEDED: Delegation depth limit reached (2/2)." in output
    assert desk.tokens() == spent(model)
    assert desk.tree().count("worker") == 3


def test_a_burst_never_starts_more_than_the_tokens_allow(desk: Desk) -> None:
    def burst(prompts: list[str], results: list[str]) -> Calls:
        return [] if results or "Do task" in prompts[-1] else [spawn(number) for number in range(6)]

    with ScriptedModel(burst) as model, desk.guard(tokens=280, reserve=100, at_limit="stop"):
        run(desk, model)
        output = "\n".join(model.results)
    assert "TOKEN_BUDGET_EXCEEDED" in output
    assert desk.tokens() == spent(model) <= 280


def test_an_approval_from_another_process_lets_one_spawn_through(desk: Desk) -> None:
    def two(prompts: list[str], results: list[str]) -> Calls:
        return [spawn(len(results))] if len(results) < 2 and "Do task" not in prompts[-1] else []

    with ScriptedModel(two) as model, desk.guard(tokens=50, reserve=100, at_limit="ask"):
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
    assert desk.tree().count("worker") == 1


def test_without_the_guard_nothing_starts(desk: Desk) -> None:
    with ScriptedModel(deeper) as model:
        run(desk, model)
        output = "\n".join(model.results)
    assert "no sub-agent may start. To start it: remit guard serve" in output
    assert model.answers == 2


def test_a_sub_agent_that_spends_the_last_tokens_is_ended_and_the_session_goes_on(desk: Desk) -> None:
    def busy(prompts: list[str], results: list[str]) -> Calls:
        if "Do task" in prompts[-1]:
            return [("bash", {"command": f"echo {len(results)}", "description": "Say a number"})]
        return [] if results else [spawn(1)]

    with ScriptedModel(busy) as model, desk.guard(tokens=300, reserve=100, at_limit="stop"):
        run(desk, model)
        output = "\n".join(model.results)
    if version() != "1.18.18":  # which ends the sub-agent with an empty result
        assert "Remit: The tokens of this session are spent." in output
    assert desk.tokens() == spent(model)
    assert 300 <= spent(model) <= 300 + 4 * (INPUT + OUTPUT)


def test_while_the_guard_is_dead_nothing_starts_and_afterwards_it_goes_on_with_the_same_total(desk: Desk) -> None:
    with ExitStack() as guards:

        def across(prompts: list[str], results: list[str]) -> Calls:
            if "Do task 0" not in prompts[-1]:
                return [] if "Do task" in prompts[-1] or len(results) > 1 else [spawn(len(results))]
            if not results:  # killed while a sub-agent works, which then wants to start another one
                process.send_signal(signal.SIGKILL)
                process.wait()
            if len(results) == 1:
                guards.enter_context(desk.guard(reserve=100))
            return [spawn(f"{len(results)} below")] if len(results) < 2 else []

        process = guards.enter_context(desk.guard(reserve=100))
        with ScriptedModel(across) as model:
            run(desk, model)
        assert "0 sessions open" in desk.remit("guard", "status"), "the tool has ended"
    refused = "no sub-agent may start. To start it: remit guard serve"
    assert [refused in each for each in model.results].count(True) == 1
    assert desk.tokens() == spent(model)
    assert desk.tree().count("─ worker  success") == 2


def test_the_version_that_is_installed_is_one_that_was_tried() -> None:
    assert version() in OpenCode.tried


def version() -> str:
    output = subprocess.run([OPENCODE, "--version"], capture_output=True, text=True, check=True, timeout=SECONDS).stdout
    return output.split()[0]


def test_each_command_of_its_shell_is_judged_before_it_runs(desk: Desk) -> None:
    check_shell(desk, start, lambda command: ("bash", {"command": command, "description": "Work"}), "codex exec")
