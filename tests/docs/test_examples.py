"""Every example in README.md and docs/ runs as it stands there.

A `python` block is a script of its own, which runs when it is pasted into a file. The other blocks of a page are
followed in order, in one folder, as a reader would: a block whose fence names a file (`python agents.py`) is saved
there, and in a `console` block the lines that start with `$ remit` or `$ python` are run; `# exit 4` says how one
ends that does not succeed. What needs no shell has none, and is forked from a process that has imported everything;
README.md is followed with the wheel alone, too (`test_wheel.py`), and the first tutorials are by `make build`. A block
whose fence says `model` finds one where OpenAI's would be: it uses a tool, or asks an agent, if it has one, and says
what came of it. A block is left out only by its fence: `python no-run <reason>`.
"""

import os
import re
import shlex
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from commands import REMIT, run_program
from doc_pages import EXIT, ROOT, Block, blocks, page_path
from openai_server import OpenAIServer, Reply, Request, call, say

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# Shorter than the limit of a test, so that the example is ended rather than abandoned.
SECONDS = 50

# What goes wrong without reaching the exit code: warnings in finalizers, errors that nobody awaited.
SILENT_FAILURES = ("Exception ignored in", "never retrieved", "Task was destroyed")


def examples(language: str) -> list[Block]:
    in_language = [block for page in PAGES if page.exists() for block in blocks(page) if block.language == language]
    return [block for block in in_language if "no-run" not in block.marks]


def obliging(request: Request) -> Reply:
    """Answer like a model that uses the first tool it is offered, and says what it got back."""
    if request.results:
        return say(f"It says: {request.results[-1]}")
    tools: list[dict[str, Any]] = request.body.get("tools", [])
    if not tools:
        return say("That is all there is to say about it.")
    tool: dict[str, Any] = tools[0]["function"]
    given = dict.fromkeys(tool["parameters"].get("required", ()), "this")
    if (agent := re.search(r"^- ([\w-]+):", tool["description"], re.MULTILINE)) is not None:
        given["agent_name"] = agent[1]
    return call(tool["name"], **given)


@contextmanager
def surroundings(block: Block) -> Generator[dict[str, str]]:
    """What a block finds in its environment besides what is always there."""
    if "model" not in block.marks:
        yield {}
        return
    with OpenAIServer(obliging) as server:
        yield {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "a key"}


def words(command: str) -> list[str] | None:
    """Return the arguments of what is typed in a shell; None if the shell itself has something to do there."""
    command = EXIT.sub("", command)
    unquoted = re.sub(r"""'[^']*'|"[^"$`\\]*\"""", "", command)
    if re.search(r"""[^\w\s./:=,@%+-]""", unquoted):
        return None
    program, *arguments = shlex.split(command)
    return [{"remit": REMIT, "python": sys.executable}[program], *arguments]


def run(command: Sequence[str], folder: Path, code: int = 0, *, besides: Mapping[str, str] | None = None) -> None:
    """Run *command* in *folder*, as a user of this environment would, and expect it to end with *code*."""
    scripts = Path(sys.executable).parent
    environment = {
        "HOME": str(folder),
        "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONWARNINGS": "error",
        "PYTHONUTF8": "1",
        **(besides or {}),
    }
    done = run_program(command, folder=folder, variables=environment, timeout=SECONDS)
    output = done.stdout + done.stderr
    assert done.returncode == code, output
    assert not any(failure in done.stderr for failure in SILENT_FAILURES), output


@pytest.mark.parametrize("block", [block for block in examples("python") if block.file is None], ids=str)
def test_a_python_example_runs_as_often_as_a_reader_likes(block: Block, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(block.script, encoding="utf-8")
    with surroundings(block) as besides:
        run([sys.executable, str(script)], tmp_path, besides=besides)
        if (tmp_path / ".remit").exists():  # whoever runs it again finds the store of the first time
            run([sys.executable, str(script)], tmp_path, besides=besides)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_can_be_followed_from_top_to_bottom(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        if "no-run" in block.marks:
            continue
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            with surroundings(block) as besides:
                for command in block.commands:
                    if command.startswith(("remit ", "python ")):
                        match = EXIT.search(command)
                        typed = words(command) or ["sh", "-c", command]
                        run(typed, tmp_path, int(match[1]) if match else 0, besides=besides)


def test_each_turn_of_the_dialogue_is_answered_as_its_page_shows(tmp_path: Path) -> None:
    """In a console block of that page, each line below a command is one that the command prints."""
    besides = {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
        "PYTHONUTF8": "1",
    }
    turns = 0
    for block in blocks(page_path("dialogue")):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        printed: list[str] = []
        for line in block.text.splitlines() if block.language == "console" else ():
            if line.startswith("$ "):
                command = words(line.removeprefix("$ "))
                assert command is not None
                done = run_program(command, folder=tmp_path, variables=besides, timeout=SECONDS)
                assert done.returncode == 0, done.stdout + done.stderr
                printed = done.stdout.splitlines()
                turns += command[1] == "ask"
            else:
                assert line in printed
    assert turns == 10


def test_an_example_that_is_not_run_could_be_pasted_into_a_file_as_well() -> None:
    """None awaits at the top level, which only a notebook takes."""
    for page in PAGES:
        for block in blocks(page):
            if block.language == "python":
                compile(block.script, str(block), "exec")


def test_an_example_that_is_not_run_says_why() -> None:
    unexplained = [
        str(block)
        for page in PAGES
        if page.exists()
        for block in blocks(page)
        if "no-run" in block.marks and block.marks[-1] == "no-run"
    ]
    assert unexplained == []


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("remit validate", ["validate"]),
        ('remit run a-b "Is it?" --input \'{"a": [1, 2]}\'', ["run", "a-b", "Is it?", "--input", '{"a": [1, 2]}']),
        ("remit run x --set a.b=1  # exit 4", ["run", "x", "--set", "a.b=1"]),
        ('remit ask "$(remit keys show)"', None),
        ("remit ask x | head -1", None),
        ("remit chat x < /dev/null", None),
        ("remit validate *.toml", None),
        ("remit validate ~/x", None),
        ("remit ask it's", None),
        ("remit ask a\\ b", None),
    ],
)
def test_a_command_is_typed_without_a_shell_only_if_the_shell_has_nothing_to_do(
    command: str, arguments: list[str] | None
) -> None:
    assert words(command) == (None if arguments is None else [REMIT, *arguments])
