"""Real Claude Code with a scripted model, under a real guard: `make test-guard`."""

import os
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from anthropic_server import INPUT, OUTPUT, Calls, ScriptedModel
from command_line import REMIT, document, environment
from remit.guard.claude_code import TRIED_VERSIONS

HERE = Path(__file__).parent
CLAUDE = HERE / "node_modules" / ".bin" / "claude"
# Claude Code takes some seconds to start; a guard that waits for a person takes as long as the test lets it.
SECONDS = 120

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not CLAUDE.exists(), reason="NOT TESTED: Claude Code is not installed; run make test-guard"),
]


def spawn(number: int | str) -> tuple[str, dict[str, Any]]:
    about = {"description": f"Task {number}", "prompt": f"Do task {number}", "subagent_type": "general-purpose"}
    return "Agent", {**about, "run_in_background": False}


class Desk:
    """A folder with a project, the settings of Claude Code, and the guard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.variables = {
            "REMIT_GUARD": str(folder / "guard"),
            "CLAUDE_CONFIG_DIR": str(folder / "claude"),
            "HOME": str(folder),
        }
        self.remit("guard", "claude-code", "--yes")

    def remit(self, *arguments: str) -> str:
        done = subprocess.run(
            [REMIT, *arguments],
            cwd=self.folder,
            env=environment(**self.variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def guard(self, **settings: object) -> Generator[subprocess.Popen[str]]:
        given = [part for name, value in settings.items() for part in ("--set", f"guard.{name}={value}")]
        (self.folder / "remit.toml").write_text("")
        command = [REMIT, "guard", "serve", *given]
        log = (self.folder / "guard.log").open("a")
        process = subprocess.Popen(
            command, cwd=self.folder, env=environment(**self.variables), stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("The guard answers at"), (self.folder / "guard.log").read_text()
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS)
            log.close()

    def start(self, model: ScriptedModel) -> subprocess.Popen[str]:
        quiet = ("DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "IS_SANDBOX")
        variables = {**self.variables, **dict.fromkeys(quiet, "1"), "PATH": os.environ["PATH"]}
        variables |= {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-ant-none"}
        command = [str(CLAUDE), "-p", "go", "--model", "claude-sonnet-4-5", "--dangerously-skip-permissions"]
        return subprocess.Popen(
            command, cwd=self.project, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, model: ScriptedModel) -> None:
        out, err = self.start(model).communicate(timeout=SECONDS)
        assert "Done." in out, out + err

    def last(self) -> dict[str, Any]:
        """Return the newest run of the guard."""
        return document("runs", "show", "last", "--store", str(self.folder / "guard" / "hub.db"), folder=self.folder)

    def tree(self) -> str:
        return self.remit("runs", "tree", "last", "--store", str(self.folder / "guard" / "hub.db"))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def deeper(asked: list[str], results: list[str]) -> Calls:
    """Start a sub-agent at every level, for ever."""
    return [] if results else [spawn(f"{len(asked)} below {asked[-1][-40:]}")]


def test_a_tree_that_would_go_on_for_ever_is_stopped_at_the_limit_and_counted_to_the_token(desk: Desk) -> None:
    with ScriptedModel(deeper) as model, desk.guard(depth=2, tokens=100_000, reserve=100):
        desk.run(model)
        told = "\n".join(model.told)
    assert "Remit: MAX_DEPTH_EXCEEDED: Delegation depth limit reached (2/2)." in told
    usage = desk.last()["usage"]
    assert usage["prompt"] + usage["completion"] == model.answers * (INPUT + OUTPUT)
    assert desk.tree().count("general-purpose") == 3


def test_a_burst_never_starts_more_than_the_tokens_allow(desk: Desk) -> None:
    def burst(asked: list[str], results: list[str]) -> Calls:
        return [] if results or "Do task" in asked[-1] else [spawn(number) for number in range(6)]

    with ScriptedModel(burst) as model, desk.guard(tokens=280, reserve=100, at_limit="stop"):
        desk.run(model)
        told = "\n".join(model.told)
    assert "TOKEN_BUDGET_EXCEEDED" in told
    usage = desk.last()["usage"]
    assert usage["prompt"] + usage["completion"] == model.answers * (INPUT + OUTPUT) <= 280


def test_an_approval_from_another_process_lets_one_spawn_through(desk: Desk) -> None:
    def two(asked: list[str], results: list[str]) -> Calls:
        return [spawn(len(results))] if len(results) < 2 and "Do task" not in asked[-1] else []

    store = str(desk.folder / "guard" / "hub.db")
    with ScriptedModel(two) as model, desk.guard(tokens=50, reserve=100, at_limit="ask"):
        process = desk.start(model)
        for answer in ("approve", "reject"):
            until = time.monotonic() + SECONDS
            while not document("pending", "list", "--store", store, folder=desk.folder)["questions"]:
                assert time.monotonic() < until
                assert process.poll() is None, process.communicate()
                time.sleep(0.2)
            desk.remit("pending", answer, "last", "--store", store)
        out, err = process.communicate(timeout=SECONDS)
        told = "\n".join(model.told)
    assert "Done." in out, err
    assert "A person was asked, and did not agree to more." in told
    assert desk.tree().count("general-purpose") == 1


def test_while_the_guard_is_dead_nothing_starts_and_afterwards_it_goes_on_with_the_same_total(desk: Desk) -> None:
    killed = list[int]()

    def three(asked: list[str], results: list[str]) -> Calls:
        if "Do task" in asked[-1]:
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
            desk.run(model)
        assert killed
        assert "no sub-agent may start. To start it: remit guard serve" in "\n".join(model.told)
        first = model.answers
    with (
        ScriptedModel(lambda asked, results: [] if results or "Do task" in asked[-1] else [spawn(9)]) as model,
        desk.guard(reserve=100),
    ):
        desk.run(model)
    usage = desk.last()["usage"]
    assert usage["prompt"] + usage["completion"] == model.answers * (INPUT + OUTPUT)
    assert first == 4


def test_the_version_that_is_installed_is_one_that_was_tried() -> None:
    said = subprocess.run([CLAUDE, "--version"], capture_output=True, text=True, check=True, timeout=SECONDS).stdout
    assert said.split()[0] in TRIED_VERSIONS


def test_a_sub_agent_that_spends_the_last_tokens_is_ended_and_the_session_goes_on(desk: Desk) -> None:
    def busy(asked: list[str], results: list[str]) -> Calls:
        if "Do task" in asked[-1]:
            return [("Bash", {"command": f"echo {len(results)}", "description": "Say a number"})]
        return [] if results else [spawn(1)]

    with ScriptedModel(busy) as model, desk.guard(tokens=300, reserve=100, at_limit="stop"):
        desk.run(model)
    usage = desk.last()["usage"]
    assert usage["prompt"] + usage["completion"] == model.answers * (INPUT + OUTPUT)
    assert 300 <= model.answers * (INPUT + OUTPUT) <= 300 + 4 * (INPUT + OUTPUT)


def test_sub_agents_in_the_background_are_counted_too(desk: Desk) -> None:
    def background(asked: list[str], results: list[str]) -> Calls:
        if "Do task" in asked[-1] or results:
            return []
        name, given = spawn(1)
        return [(name, {**given, "run_in_background": True})]

    with ScriptedModel(background) as model, desk.guard(reserve=100):
        desk.run(model)
    usage = desk.last()["usage"]
    assert usage["prompt"] + usage["completion"] == model.answers * (INPUT + OUTPUT)
    assert desk.tree().count("general-purpose") == 1
