"""`remit init`: a team that runs, to begin with."""

import shlex
import tomllib
from pathlib import Path

import pytest

from command_line import REMIT, document, make_team, remit
from openai_server import OpenAIServer, say
from remit_cli.config.load import load_team
from remit_cli.init import TEMPLATES
from terminals import Terminal


# What the template `shared` says to type next waits for another person; test_cli_init_shared.py does it with two.
@pytest.mark.parametrize("template", [each for each in TEMPLATES if each != "shared"])
def test_what_it_says_to_type_next_works_at_once(tmp_path: Path, template: str) -> None:
    """A model is a server here that says what it always says."""
    made = document("init", "my-team", "--template", template, folder=tmp_path)
    enter, *commands = map(shlex.split, made["next"])
    assert enter == ["cd", "my-team"]
    with OpenAIServer([say("Sencha costs 4.20 EUR.")]) as server:
        for program, *arguments in commands:
            if program == "export":
                assert arguments == ["OPENAI_API_KEY=…"]
                continue
            variables = {"OPENAI_API_KEY": "a key", "OPENAI_BASE_URL": server.base_url}
            done = remit(*arguments, folder=tmp_path / "my-team", **variables)
            assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
            assert done.stdout.strip(), "the answer is on stdout"


@pytest.mark.parametrize("template", list(TEMPLATES))
def test_a_team_can_be_given_an_orchestrator(tmp_path: Path, template: str) -> None:
    """No agent of a template has the name that `[orchestrator]` has."""
    make_team(tmp_path, template, more="\n[orchestrator]\n")
    team = load_team(tmp_path / "remit.toml", secrets=False, code=False)
    assert "orchestrator" not in team.agents


def test_the_branches_of_the_workflow_join(tmp_path: Path) -> None:
    make_team(tmp_path, "workflow")
    light = remit("run", "shipping", "?", "--input", '[{"kilos": 4}]', folder=tmp_path)
    heavy = remit("run", "shipping", "?", "--input", '[{"kilos": 40}]', folder=tmp_path)
    assert (light.stdout, heavy.stdout) == ("4 kg by courier: 6.50 EUR\n", "40 kg by haulier: 80.00 EUR\n")


def test_the_files_are_those_that_it_names_and_hold_the_team_by_its_name(tmp_path: Path) -> None:
    made = document("init", "--name", "books", "--template", "receipts", folder=tmp_path)
    assert sorted(made["files"]) == sorted(each.name for each in tmp_path.iterdir())
    text = (tmp_path / "remit.toml").read_text(encoding="utf-8")
    assert tomllib.loads(text)["name"] == "books"
    assert text.splitlines()[0] == "#:schema ./remit.schema.json"
    assert (tmp_path / ".gitignore").read_text(encoding="utf-8") == ".remit/\n"


def test_the_schema_beside_the_team_file_is_the_one_that_the_command_prints(tmp_path: Path) -> None:
    make_team(tmp_path)
    printed = remit("schema", folder=tmp_path)
    assert (tmp_path / "remit.schema.json").read_text(encoding="utf-8") == printed.stdout


def test_files_that_exist_are_named_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text("mine", encoding="utf-8")
    done = remit("init", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "agents.py already exists: nothing was written" in done.stderr
    assert "→" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["agents.py"]
    assert (tmp_path / "agents.py").read_text(encoding="utf-8") == "mine"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = remit("init", "file/inside", folder=tmp_path)
    assert done.returncode == 2
    assert "nothing was written" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_git_ignores_already_stays_and_is_added_to_once(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.pyc", encoding="utf-8")
    assert ".gitignore" in document("init", folder=tmp_path)["files"]
    assert (tmp_path / ".gitignore").read_text(encoding="utf-8") == "*.pyc\n.remit/\n"
    for name in ("remit.toml", "agents.py", "remit.schema.json"):
        (tmp_path / name).unlink()
    assert ".gitignore" not in document("init", folder=tmp_path)["files"]
    assert (tmp_path / ".gitignore").read_text(encoding="utf-8") == "*.pyc\n.remit/\n"


def test_a_folder_whose_name_is_no_team_name_still_gives_one(tmp_path: Path) -> None:
    (tmp_path / "Ännas Bücher!").mkdir()
    make_team(tmp_path / "Ännas Bücher!")
    remit("init", "Ännas Bücher!/x y", folder=tmp_path)
    named = tomllib.loads((tmp_path / "Ännas Bücher!" / "x y" / "remit.toml").read_text(encoding="utf-8"))["name"]
    assert named == "x-y"


def test_a_name_that_a_team_cannot_have_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    done = remit("init", "--name", "two words", folder=tmp_path)
    assert done.returncode == 2
    assert "letters, digits" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_at_a_terminal_it_asks_two_questions_and_takes_the_answers(tmp_path: Path) -> None:
    with Terminal([REMIT, "init"], folder=tmp_path) as terminal:
        terminal.wait_for("Name of the team")
        terminal.type("no name!\r")
        terminal.wait_for("a name has at most 128 letters")
        terminal.type("books\r")
        terminal.wait_for("Template", "three agents and a tool")
        terminal.type("receipts\r")
        terminal.wait_for('remit run assistant "Sort my receipts"')
        assert terminal.wait() == 0
    assert tomllib.loads((tmp_path / "remit.toml").read_text(encoding="utf-8"))["name"] == "books"
    assert (tmp_path / "receipts.csv").exists()


def test_at_a_terminal_it_asks_nothing_if_told_so(tmp_path: Path) -> None:
    with Terminal([REMIT, "init", "--yes"], folder=tmp_path) as terminal:
        assert terminal.wait() == 0
        assert "?" not in terminal.screen
