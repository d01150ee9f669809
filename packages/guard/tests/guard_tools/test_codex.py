"""Real Codex with a scripted model, under a real guard: `make test-guard`."""

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from command_line import document, remit
from guard_desk import SECONDS, Desk, check_shell
from model_servers import INPUT, OUTPUT, Calls, ScriptedModel, responses
from remit_guard.tools.codex import Codex, hook_hashes

CODEX = next((Path(__file__).parent / "node_modules" / "@openai").glob("codex-*/vendor/*/bin/codex"), Path("none"))

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not CODEX.exists(), reason="NOT TESTED: Codex is not installed; run make test-guard"),
]


def spawn(number: int | str, kind: str = "worker") -> tuple[str, dict[str, Any]]:
    return "multi_agent_v1.spawn_agent", {"message": f"Do task {number}", "agent_type": kind}


def waiting(prompts: list[str], results: list[str]) -> Calls:
    """Wait for the sub-agents that were started and have not answered yet; none: all have."""
    output = "\n".join(results)
    started = re.findall(r'"agent_id":"([^"]+)"', output)
    missing = [each for each in started if f'"{each}":{{"completed"' not in output]
    return [("multi_agent_v1.wait_agent", {"targets": missing, "timeout_ms": 60_000})] if missing else []


def trust(desk: Desk, but: str = "no event") -> None:
    """Note what Codex notes when its user chooses to trust all hooks, or all but those of an event."""
    hooks = desk.folder / "codex" / "hooks.json"
    with (desk.folder / "codex" / "config.toml").open("a") as settings:
        for _, place, digest in hook_hashes(json.loads(hooks.read_text())):
            if not place.startswith(but):
                settings.write(f'\n[hooks.state."{hooks}:{place}"]\ntrusted_hash = "{digest}"\n')


def configure(desk: Desk, model: ScriptedModel, more: str = "") -> None:
    (desk.folder / "codex" / "config.toml").write_text(
        f"""
model = "scripted"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
analytics.enabled = false
{more or "agents.max_depth = 9"}

[model_providers.scripted]
name = "scripted"
base_url = "{model.url}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""
    )


def start(desk: Desk, model: ScriptedModel, *options: str, more: str = "") -> subprocess.Popen[str]:
    configure(desk, model, more)
    trust(desk)
    return desk.start([str(CODEX), "exec", "--skip-git-repo-check", *options, "go"], {})


def run(desk: Desk, model: ScriptedModel, *options: str, more: str = "") -> None:
    out, err = start(desk, model, *options, more=more).communicate(timeout=SECONDS)
    assert "Done." in out, out + err


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    made = Desk(tmp_path)
    made.remit("guard", "codex", "--yes")
    return made


def deeper(prompts: list[str], results: list[str]) -> Calls:
    """Start a sub-agent at every level, for ever."""
    return waiting(prompts, results) if results else [spawn(f"below {prompts[-1][-40:]}")]


def test_a_tree_that_would_go_on_for_ever_is_stopped_at_the_limit_and_counted_to_the_token(desk: Desk) -> None:
    with ScriptedModel(deeper, responses) as model, desk.guard(depth=2, tokens=100_000, reserve=100):
        run(desk, model)
        output = "\n".join(model.results)
    assert "Remit: MAX_DEPTH_EXCEEDED: Delegation depth limit reached (2/2)." in output
    assert desk.tokens() == model.spent
    assert desk.tree().count("worker") == 3
    assert model.answers == 8


def old_form(number: int) -> tuple[str, dict[str, Any]]:
    return "multi_agent_v1.spawn_agent", {"message": f"Do task {number}"}


def new_form(number: int) -> tuple[str, dict[str, Any]]:
    about = {"message": f"Do task {number}", "task_name": f"task_{number}", "fork_turns": "none"}
    return "collaboration.spawn_agent", about


def waiting_in_new_form(prompts: list[str], results: list[str]) -> Calls:
    """Wait until as many tasks were answered as were given: an answer may come before the wait, which lasts then."""
    given = sum('"task_name"' in each or not each for each in results)
    answered = sum("Message Type: FINAL_ANSWER" in each for each in prompts)
    return [("collaboration.wait_agent", {"timeout_ms": 10_000})] if answered < given else []


@pytest.mark.parametrize(
    ("one", "wait", "more"),
    [(old_form, waiting, ""), (new_form, waiting_in_new_form, "features.multi_agent_v2 = true")],
)
def test_a_burst_never_starts_more_than_the_tokens_allow(
    one: Callable[[int], tuple[str, dict[str, Any]]],
    wait: Callable[[list[str], list[str]], Calls],
    more: str,
    desk: Desk,
) -> None:
    answered = threading.Event()

    def burst(prompts: list[str], results: list[str]) -> Calls:
        if "Do task" in prompts[-1]:
            answered.wait(SECONDS)  # none ends before all were asked for
            return []
        if results:
            answered.set()
        return wait(prompts, results) if results else [one(number) for number in range(6)]

    with ScriptedModel(burst, responses) as model, desk.guard(tokens=380, reserve=150, at_limit="stop"):
        run(desk, model, more=more)
        output = "\n".join(model.results)
    assert "TOKEN_BUDGET_EXCEEDED" in output
    assert len(re.findall(r'"(?:agent_id|task_name)":', output)) == 3, "the third one has less than the others"
    assert desk.tokens() == model.spent <= 380


def test_an_approval_from_another_process_lets_one_spawn_through(desk: Desk) -> None:
    def two(prompts: list[str], results: list[str]) -> Calls:
        if "Do task" in prompts[-1]:
            return []
        is_asked = any("did not agree" in each for each in results)
        return waiting(prompts, results) or ([] if is_asked else [spawn(len(results))])

    with ScriptedModel(two, responses) as model, desk.guard(tokens=50, reserve=100, at_limit="ask"):
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
    assert desk.tokens() == model.spent


def test_while_the_guard_is_dead_nothing_starts_and_afterwards_the_session_goes_on_with_its_total(desk: Desk) -> None:
    """The guard dies after the first sub-agent, and is there again after the second was refused."""
    with ExitStack() as guards:

        def three(prompts: list[str], results: list[str]) -> Calls:
            if "Do task" in prompts[-1]:
                return []
            if unfinished := waiting(prompts, results):
                return unfinished
            is_refused = any("no sub-agent may start. To start it: remit guard serve" in each for each in results)
            if not results:
                return [spawn(1)]
            if not is_refused:
                first.send_signal(signal.SIGKILL)
                first.wait()
                return [spawn(2)]
            if sum('"agent_id"' in each for each in results) == 1:
                guards.enter_context(desk.guard(reserve=100))
                return [spawn(3)]
            return []

        with ScriptedModel(three, responses) as model:
            first = guards.enter_context(desk.guard(reserve=100))
            run(desk, model)
    assert desk.tokens() == model.spent
    assert desk.tree().count("worker") == 1, "the run of the second guard has the third one"
    assert model.answers == 8


def test_a_sub_agent_that_spends_the_last_tokens_may_use_no_tool_and_the_session_goes_on(desk: Desk) -> None:
    written = desk.folder / "written"

    def busy(prompts: list[str], results: list[str]) -> Calls:
        if "Do task" not in prompts[-1]:
            return waiting(prompts, results) if results else [spawn(1)]
        is_told = any("The tokens of this session are spent" in each for each in results)
        return [] if is_told else [("exec_command", {"cmd": f"echo {len(results)} >> {written}"})]

    with ScriptedModel(busy, responses) as model, desk.guard(tokens=300, reserve=100, at_limit="stop"):
        run(desk, model)
    assert desk.tokens() == model.spent
    assert 300 <= model.spent <= 300 + 6 * (INPUT + OUTPUT)
    assert 5 <= len(written.read_text().splitlines()) <= 12


def test_a_sub_agent_that_is_woken_again_and_again_is_stopped_at_the_limit(desk: Desk) -> None:
    def awake(prompts: list[str], results: list[str]) -> Calls:
        if "Do task" in prompts[-1]:
            return []
        if not results:
            return [new_form(1)]
        if "Remit:" in results[-1]:
            return []
        return waiting_in_new_form(prompts, results) or [
            ("collaboration.followup_task", {"target": "task_1", "message": "Do task once more"})
        ]

    with ScriptedModel(awake, responses) as model, desk.guard(tokens=600, reserve=100, at_limit="stop"):
        run(desk, model, more="features.multi_agent_v2 = true")
        output = "\n".join(model.results)
    assert "Remit: TOKEN_BUDGET_EXCEEDED" in output
    assert desk.tokens() == model.spent
    assert 500 <= model.spent <= 600 + 6 * (INPUT + OUTPUT)


def test_a_start_that_codex_itself_refuses_holds_no_place(desk: Desk) -> None:
    def again(prompts: list[str], results: list[str]) -> Calls:
        if "Do task" in prompts[-1]:
            return []
        kinds = ["unknown", "unknown", "worker"]
        return waiting(prompts, results) or [spawn(number, kinds[number]) for number in range(len(results), 3)][:1]

    with ScriptedModel(again, responses) as model, desk.guard(reserve=100, at_once=1):
        run(desk, model)
        output = "\n".join(model.results)
    assert output.count("unknown agent_type") == 1
    assert "FAN_OUT_EXCEEDED" not in output
    assert desk.tokens() == model.spent


def test_a_session_without_a_transcript_starts_no_sub_agent(desk: Desk) -> None:
    with ScriptedModel(deeper, responses) as model, desk.guard():
        run(desk, model, "--ephemeral")
        assert "its tokens cannot be counted, and no sub-agent may start" in "\n".join(model.results)
    assert model.answers == 2


def test_hooks_that_are_not_trusted_are_left_out_and_the_status_says_so(desk: Desk) -> None:
    with ScriptedModel(deeper, responses) as model, desk.guard(depth=1):
        configure(desk, model, "agents.max_depth = 2")
        command = [str(CODEX), "exec", "--skip-git-repo-check", "go"]
        out, err = desk.start(command, {}).communicate(timeout=SECONDS)
        assert "Done." in out, err
        assert "Remit" not in "\n".join(model.results) + out + err
        status = remit("guard", "status", folder=desk.folder, **desk.variables)
        assert (status.returncode, "not heard since the guard was put in" in status.stdout) == (1, True)
        assert "Codex leaves out 9 of 9 hooks, since you have not trusted them" in status.stdout
        run(desk, model, more="agents.max_depth = 2")
        assert "Remit: MAX_DEPTH_EXCEEDED" in "\n".join(model.results)
        assert "Codex leaves out" not in desk.remit("guard", "status")


def test_a_start_is_refused_by_the_hook_for_all_tools_if_the_other_one_is_not_trusted(desk: Desk) -> None:
    with ScriptedModel(deeper, responses) as model, desk.guard(depth=1):
        configure(desk, model)
        trust(desk, but="pre_tool_use:0")
        command = [str(CODEX), "exec", "--skip-git-repo-check", "go"]
        out, err = desk.start(command, {}).communicate(timeout=SECONDS)
        assert "Done." in out, err
        status = remit("guard", "status", folder=desk.folder, **desk.variables)
    assert "Remit: MAX_DEPTH_EXCEEDED" in "\n".join(model.results)
    assert "Codex leaves out 1 of 9 hooks" in status.stdout
    assert desk.tokens() == model.spent


def test_undo_leaves_the_file_as_it_was_after_codex_has_used_it(desk: Desk) -> None:
    hooks = desk.folder / "codex" / "hooks.json"
    desk.remit("guard", "codex", "--undo")
    assert not hooks.exists()
    before = b'{"hooks":   {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]}}'
    hooks.write_bytes(before)
    desk.remit("guard", "codex", "--yes")
    with ScriptedModel(lambda prompts, results: [], responses) as model, desk.guard():
        run(desk, model)
        assert "codex" in desk.remit("guard", "status")
    desk.remit("guard", "codex", "--undo")
    assert hooks.read_bytes() == before


def test_the_budget_of_codex_itself_ends_a_tree_that_does_not_heed_the_guard(desk: Desk) -> None:
    def heedless(prompts: list[str], results: list[str]) -> Calls:
        if "Do task" not in prompts[-1]:
            return waiting(prompts, results) if results else [spawn(1)]
        return [("exec_command", {"cmd": "true"})]

    budget = "features.rollout_budget = {enabled = true, limit_tokens = 600, reminder_at_remaining_tokens = [100]}"
    with ScriptedModel(heedless, responses) as model, desk.guard(tokens=300, reserve=100, at_limit="stop"):
        out, err = start(desk, model, more=budget).communicate(timeout=SECONDS)
    assert "budget reached" in out + err
    assert 600 <= model.spent <= 600 + 2 * (INPUT + OUTPUT)


def test_the_version_that_is_installed_is_one_that_was_tried() -> None:
    version = subprocess.run([CODEX, "--version"], capture_output=True, text=True, check=True, timeout=SECONDS).stdout
    assert version.split()[-1] in Codex.tried


def test_each_command_of_its_shell_is_judged_before_it_runs(desk: Desk) -> None:
    check_shell(
        desk,
        start,
        lambda command: ("exec_command", {"cmd": command}),
        "claude -p",
        responses,
        {"command": "touch changed"},
    )
