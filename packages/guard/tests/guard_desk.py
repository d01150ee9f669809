"""A folder with a project, a guard as a process of its own, and coding tools that work there."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from command_line import REMIT, document, environment, remit
from commands import popen
from model_servers import INPUT, OUTPUT, Answers, Calls, ScriptedModel, anthropic

# Coding tools take some seconds to start; a guard that waits for a person takes as long as the test lets it.
SECONDS = 120


class Desk:
    """Runs commands of Remit and a tool in a home of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        self.store = str(folder / "guard" / "hub.db")
        self.variables = {
            "REMIT_GUARD": str(folder / "guard"),
            "CLAUDE_CONFIG_DIR": str(folder / "claude"),
            "CODEX_HOME": str(folder / "codex"),
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_STATE_HOME": str(folder / "state"),
        }

    def remit(self, *arguments: str) -> str:
        done = remit(*arguments, folder=self.folder, **self.variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def guard(self, team: str = "", /, **settings: object) -> Generator[subprocess.Popen[str]]:
        """Run a guard with a team file and settings of `[guard]`."""
        given = [part for name, value in settings.items() for part in ("--set", f"guard.{name}={value}")]
        (self.folder / "remit.toml").write_text(team)
        log = self.folder / "guard.log"
        with log.open("a") as log_file:
            process = popen(
                [REMIT, "guard", "serve", *given],
                cwd=self.folder,
                env=environment(**self.variables),
                stdout=subprocess.PIPE,
                stderr=log_file,
                text=True,
            )
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("The guard answers at"), log.read_text()
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=SECONDS)

    def start(self, command: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start a tool in the project."""
        return subprocess.Popen(
            command,
            cwd=self.project,
            env={**self.variables, "PATH": os.environ["PATH"], **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def last(self) -> dict[str, Any]:
        """Return the newest run of the guard."""
        return document("runs", "show", "last", "--store", self.store, folder=self.folder)

    def tokens(self) -> int:
        """Return the tokens of the newest run."""
        usage = self.last()["usage"]
        return usage["prompt"] + usage["completion"]

    def tree(self) -> str:
        return self.remit("runs", "tree", "last", "--store", self.store)


def spent(model: ScriptedModel) -> int:
    """Return the tokens that a model has told of, without those for titles and the like."""
    return model.answers * (INPUT + OUTPUT)


RULES = """
[[guard.rules]]
then = "refuse"
tool = "*"
mentions = ["forbidden"]

[[guard.rules]]
then = "ask"
tool = "*"
mentions = ["uncertain"]
edit = ["input"]
"""


def check_shell(
    desk: Desk,
    start: Callable[[Desk, ScriptedModel], subprocess.Popen[str]],
    shell: Callable[[str], tuple[str, dict[str, Any]]],
    escape: str,
    speaks: Answers = anthropic,
    changed: dict[str, Any] | None = None,
) -> None:
    """Check that each command of a tool's shell is judged before it runs.

    *escape* starts a session of another tool, and *changed* is `touch changed` in the arguments that hooks tell, if
    they are not those of *shell*.
    """
    commands = [f"cd /tmp && {escape} x", "touch forbidden", "touch uncertain", "touch allowed"]

    def four(_: list[str], results: list[str]) -> Calls:
        return [shell(commands[len(results)])] if len(results) < len(commands) else []

    with ScriptedModel(four, speaks) as model, desk.guard(RULES, shell="deny", notify="false"):
        process, until = start(desk, model), time.monotonic() + SECONDS
        while not document("pending", "list", "--store", desk.store, folder=desk.folder)["questions"]:
            assert time.monotonic() < until
            assert process.poll() is None, process.communicate()
            time.sleep(0.2)
        edit = f"input={json.dumps(changed or shell('touch changed')[1])}"
        desk.remit("pending", "approve", "last", "--edit", edit, "--store", desk.store)
        out, err = process.communicate(timeout=SECONDS)
        output = "\n".join(model.results)
    assert "Done." in out, out + err
    assert f"Remit: `{escape.split(maxsplit=1)[0]}` in a shell of" in output
    assert "Remit: PERMISSION_DENIED" in output
    assert sorted(path.name for path in desk.project.iterdir() if path.is_file()) == ["allowed", "changed"]
