"""Real Claude Code with a scripted model, under a real guard: `make test-guard`."""

import json
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from command_line import document
from guard_desk import SECONDS, Desk, check_shell, spent
from model_servers import INPUT, OUTPUT, Calls, ScriptedModel
from remit_guard.tools.claude_code import ClaudeCode

HERE = Path(__file__).parent
# The program itself: the one in `.bin` is made by a script of its package, and those are not run here.
CLAUDE = next(HERE.glob("node_modules/@anthropic-ai/claude-code-*/claude"), HERE / "none")

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not CLAUDE.exists(), reason="NOT TESTED: Claude Code is not installed; run make test-guard"),
]


def spawn(number: int | str) -> tuple[str, dict[str, Any]]:
    about = {"description": f"Task {number}", "prompt": f"Do task {number}", "subagent_type": "general-purpose"}
    return "Agent", {**about, "run_in_background": False}


def start(desk: Desk, model: ScriptedModel, *options: str) -> subprocess.Popen[str]:
    quiet = ("DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "IS_SANDBOX")
    variables = dict.fromkeys(quiet, "1") | {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-ant-none"}
    command = [str(CLAUDE), "-p", "go", "--model", "claude-sonnet-4-5", "--dangerously-skip-permissions"]
    return desk.start([*command, *options], variables)


def run(desk: Desk, model: ScriptedModel, *options: str) -> None:
    out, err = start(desk, model, *options).communicate(timeout=SECONDS)
    assert "Done." in out, out + err


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    made.remit("guard", "claude-code", "--yes")
    return made


def deeper(prompts: list[str], results: list[str]) -> Calls:
    """Start a sub-agent at every level, for ever."""
    return [] if results else [spawn(f"{len(prompts)} below {prompts[-1][-40:]}")]


def test_a_tree_that_would_go_on_for_ever_is_stopped_at_the_limit_and_counted_to_the_token(desk: Desk) -> None:
    with ScriptedModel(deeper) as model, desk.guard(depth=2, tokens=100_000, reserve=100):
        run(desk, model)
        output = "\n".join(model.results)
    assert "Remit: MAX_DEPTH_EXCEEDED: Delegation depth limit reached (2/2)." in output
    assert desk.tokens() == spent(model)
    assert desk.tree().count("general-purpose") == 3


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

    store = desk.store
    with ScriptedModel(two) as model, desk.guard(tokens=50, reserve=100, at_limit="ask"):
        process = start(desk, model)
        for answer in ("approve", "reject"):
            until = time.monotonic() + SECONDS
            while not document("pending", "list", "--store", store, folder=desk.folder)["questions"]:
                assert time.monotonic() < until
                assert process.poll() is None, process.communicate()
                time.sleep(0.2)
            desk.remit("pending", answer, "last", "--store", store)
        out, err = process.communicate(timeout=SECONDS)
        output = "\n".join(model.results)
    assert "Done." in out, err
    assert "A person was asked, and did not agree to more." in output
    assert desk.tree().count("general-purpose") == 1


def test_while_the_guard_is_dead_nothing_starts_and_afterwards_it_goes_on_with_the_same_total(desk: Desk) -> None:
    killed = list[int]()

    def three(prompts: list[str], results: list[str]) -> Calls:
        if "Do task" in prompts[-1]:
            return []
        if len(results) == 1:
            guards[0].send_signal(signal.SIGKILL)
            guards[0].wait()
            killed.append(1)
        return [spawn(len(results))] if len(results) < 2 else []

    guards = list[subprocess.Popen[str]]()
    with ScriptedModel(three) as model:
        with desk.guard(reserve=100) as process:
            guards.append(process)
            run(desk, model)
        assert killed
        assert "no sub-agent may start. To start it: remit guard serve" in "\n".join(model.results)
        first = model.answers
    with (
        ScriptedModel(lambda prompts, results: [] if results or "Do task" in prompts[-1] else [spawn(9)]) as model,
        desk.guard(reserve=100),
    ):
        run(desk, model)
    assert desk.tokens() == spent(model)
    assert first == 4


def test_the_version_that_is_installed_is_one_that_was_tried() -> None:
    version = subprocess.run([CLAUDE, "--version"], capture_output=True, text=True, check=True, timeout=SECONDS).stdout
    assert version.split()[0] in ClaudeCode.tried


def test_a_sub_agent_that_spends_the_last_tokens_is_ended_and_the_session_goes_on(desk: Desk) -> None:
    def busy(prompts: list[str], results: list[str]) -> Calls:
        if "Do task" in prompts[-1]:
            return [("Bash", {"command": f"echo {len(results)}", "description": "Say a number"})]
        return [] if results else [spawn(1)]

    with ScriptedModel(busy) as model, desk.guard(tokens=300, reserve=100, at_limit="stop"):
        run(desk, model)
    assert desk.tokens() == spent(model)
    assert 300 <= spent(model) <= 300 + 4 * (INPUT + OUTPUT)


def test_sub_agents_in_the_background_are_counted_too(desk: Desk) -> None:
    def background(prompts: list[str], results: list[str]) -> Calls:
        if "Do task" in prompts[-1] or results:
            return []
        name, given = spawn(1)
        return [(name, {**given, "run_in_background": True})]

    with ScriptedModel(background) as model, desk.guard(reserve=100):
        run(desk, model)
    assert desk.tokens() == spent(model)
    assert desk.tree().count("general-purpose") == 1


def test_sub_agents_that_run_while_the_guard_is_killed_and_started_again_keep_their_places(desk: Desk) -> None:
    limits = {"depth": 2, "reserve": 100}
    with ExitStack() as guards:

        def through(prompts: list[str], results: list[str]) -> Calls:
            if "Do task 2" in prompts[-1] and not results:
                first.kill()
                first.wait()
                guards.enter_context(desk.guard(**limits))
                return [("Bash", {"command": "echo on", "description": "Go on"})]
            if "Do task 2" in prompts[-1]:
                return [spawn(3)] if len(results) == 1 else []
            return [] if results else [spawn(2 if "Do task 1" in prompts[-1] else 1)]

        first = guards.enter_context(desk.guard(**limits))
        with ScriptedModel(through) as model:
            run(desk, model)
            output = "\n".join(model.results)
    assert "Remit: MAX_DEPTH_EXCEEDED: Delegation depth limit reached (2/2)." in output
    assert desk.tokens() == spent(model)
    assert desk.tree().count("general-purpose") == 3


def test_a_message_that_wakes_a_sub_agent_is_asked_for_and_counted(desk: Desk) -> None:
    def waking(prompts: list[str], results: list[str]) -> Calls:
        if any("Do task" in each for each in prompts):
            return []
        if len(results) < 2:
            return [("ToolSearch", {"query": "select:SendMessage", "max_results": 3}) if results else spawn(1)]
        if len(results) == 2:
            (note,) = (desk.folder / "claude" / "projects").rglob("agent-*.meta.json")
            agent = note.name.removeprefix("agent-").removesuffix(".meta.json")
            return [("SendMessage", {"to": agent, "summary": "again", "message": "Do it again"})]
        return []

    with ScriptedModel(waking) as model, desk.guard(reserve=100):
        run(desk, model)
    assert desk.tokens() == spent(model)
    assert "Task 1 (woken, 1)" in desk.tree()


def test_each_command_of_its_shell_is_judged_before_it_runs(desk: Desk) -> None:
    check_shell(desk, start, lambda command: ("Bash", {"command": command, "description": "Work"}), "codex exec")


def test_a_session_whose_tokens_cannot_be_counted_starts_no_sub_agents(desk: Desk) -> None:
    """Without a transcript nobody would know what they spend."""
    with ScriptedModel(deeper) as model, desk.guard(tokens=100_000, reserve=100):
        run(desk, model, "--no-session-persistence")
        output = "\n".join(model.results)
    assert "Remit: This session keeps no transcript" in output
    assert len(desk.last()["delegations"]) == 1, "the session alone"


def test_a_sub_agent_that_another_hook_refuses_holds_no_place(desk: Desk) -> None:
    """The tool asks all hooks, and tells the guard nothing of the refusal of another."""
    settings = desk.folder / "claude" / "settings.json"
    hooks = json.loads(settings.read_text())
    once = desk.folder / "once"
    refusing = {"type": "command", "command": f"test -e {once} || {{ touch {once}; exit 2; }}"}
    hooks["hooks"]["PreToolUse"].append({"matcher": "Agent", "hooks": [refusing]})
    settings.write_text(json.dumps(hooks))

    def two(prompts: list[str], results: list[str]) -> Calls:
        return [spawn(len(results))] if len(results) < 2 and "Do task" not in prompts[-1] else []

    with ScriptedModel(two) as model, desk.guard(at_once=1, reserve=100):
        run(desk, model)
    assert "Task 1" in desk.tree()
    assert "FAN_OUT_EXCEEDED" not in desk.tree()
