"""`remit intents` and what `remit validate` says about examples, as users meet them."""

import tomllib
from pathlib import Path

import pytest

from command_line import document, remit

CODE = """
async def work(brief):
    return "Done."
"""

TEAM = """\
# Our shop.
[orchestrator]

[agents.desk]
run = "desk:work"
capabilities = ["HOURS", "ORDER", "RETURN"]

[capabilities.HOURS] # only reads
description = "Tell the opening hours"
read_only = true
examples = [
    "when do you open",
    "when do you close",
    "when do you open on Sunday",  # the last one
]

[capabilities.ORDER]
description = "Order a lamp"
examples = ["order a lamp", "order a small lamp", 'order a red lamp']

[capabilities.RETURN]
description = "Send a lamp back"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "desk.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "remit.toml").write_text(TEAM, encoding="utf-8")
    return tmp_path


def with_team(folder: Path, team: str) -> Path:
    (folder / "remit.toml").write_text(team, encoding="utf-8", newline="")
    return folder


def test_examples_that_the_others_lead_to_are_counted(folder: Path) -> None:
    shown = document("intents", "check", folder=folder)
    assert (shown["schema"], shown["capabilities"], shown["examples"]) == ("remit.intents/1", 3, 6)
    assert (shown["misread"], shown["close"]) == ([], [])
    assert shown["few"] == [{"capability": "RETURN", "examples": 0}]


def test_capabilities_that_are_said_alike_are_named_as_a_pair(folder: Path) -> None:
    examples = 'examples = ["order a lamp back", "order a small lamp again", "order a red lamp"]'
    with_team(folder, TEAM.replace('description = "Send a lamp back"', f'description = "Order again"\n{examples}'))
    shown = document("intents", "check", folder=folder)
    assert [each["capabilities"] for each in shown["close"]] == [["ORDER", "RETURN"]]
    assert {each["read_as"] for each in shown["misread"]} == {"ORDER", "RETURN"}
    printed = remit("intents", "check", folder=folder).stdout
    assert "too close: ORDER and RETURN" in printed
    assert "misread: RETURN: “order a red lamp” is read as ORDER" in printed


def test_validate_names_capabilities_with_too_few_examples_in_one_line(folder: Path) -> None:
    done = remit("validate", folder=folder)
    assert done.returncode == 0, done.stdout
    warned = [line for line in done.stdout.splitlines() if "fewer than 3 examples: `RETURN`" in line]
    assert len(warned) == 1
    assert "remit intents check" in warned[0]
    with_team(folder, TEAM.replace("[orchestrator]\n", ""))
    assert "examples" not in remit("validate", folder=folder).stdout


ADDED = '    "are you open \\"now\\"",\n'


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("code", "example", "before", "after"),
    [
        ("HOURS", 'are you open "now"', ",  # the last one\n", f",  # the last one\n{ADDED}"),
        ("ORDER", "a lamp please", "'order a red lamp']", "'order a red lamp', \"a lamp please\"]"),
        (
            "RETURN",
            "I don't like it",
            "[capabilities.RETURN]\n",
            '[capabilities.RETURN]\nexamples = ["I don\'t like it"]\n',
        ),
    ],
)
def test_an_added_example_leaves_everything_else_in_the_file_as_it_was(
    folder: Path, line_end: str, code: str, example: str, before: str, after: str
) -> None:
    with_team(folder, TEAM.replace("\n", line_end))
    done = remit("intents", "add", code, example, folder=folder)
    assert done.returncode == 0, done.stderr
    written = (folder / "remit.toml").read_bytes().decode()
    assert written == TEAM.replace(before, after).replace("\n", line_end)
    assert example in tomllib.loads(written)["capabilities"][code]["examples"]
    assert sorted(each.name for each in folder.iterdir() if each.name.startswith(".remit.toml")) == []


def test_a_list_without_a_comma_at_its_end_gets_one(folder: Path) -> None:
    listed = 'examples = [\n  "order a lamp", # usual\n  "a lamp" # short\n]'
    with_team(folder, TEAM.replace('examples = ["order a lamp", "order a small lamp", \'order a red lamp\']', listed))
    assert remit("intents", "add", "ORDER", "lamp now", folder=folder).returncode == 0
    written = (folder / "remit.toml").read_text(encoding="utf-8")
    assert '  "a lamp", # short\n  "lamp now"\n]' in written


def test_a_file_that_is_written_in_another_way_is_left_alone(folder: Path) -> None:
    team = "capabilities.RETURN.description = 'Send a lamp back'\n" + TEAM.partition("\n[capabilities.RETURN]")[0]
    team = team.replace("[capabilities.HOURS] # only reads", "[capabilities.HOURS]").replace(
        "capabilities.RETURN.description = 'Send a lamp back'\n", ""
    )
    inline = (
        team.replace('"RETURN"]', '"RETURN"]\n') + '\n[capabilities]\nRETURN = { description = "Send a lamp back" }\n'
    )
    with_team(folder, inline)
    done = remit("intents", "add", "RETURN", "take it back", folder=folder)
    assert (done.returncode, "by hand" in done.stderr) == (3, True), done.stderr
    assert (folder / "remit.toml").read_text(encoding="utf-8") == inline


def test_an_example_that_is_known_or_of_an_unknown_capability_is_not_added(folder: Path) -> None:
    for arguments, why in (
        (("ORDER", "When do you OPEN"), "`HOURS` has this example already"),
        (("ORDR", "a lamp"), "no capability `ORDR`"),
        (("ORDER", "  "), "the example is empty"),
    ):
        done = remit("intents", "add", *arguments, folder=folder)
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr
    assert (folder / "remit.toml").read_text(encoding="utf-8") == TEAM


def test_a_request_that_was_asked_back_becomes_an_example(folder: Path) -> None:
    asked = remit("ask", "something about a lamp", "--session", "s", "--user", "ann", folder=folder)
    assert "1. " in asked.stdout, asked.stdout + asked.stderr
    chosen = next(line[0] for line in asked.stdout.splitlines() if "Order a lamp" in line)
    assert remit("ask", chosen, "--session", "s", "--user", "ann", folder=folder).returncode == 0
    assert document("intents", "check", folder=folder)["asked_back"] == []
    assert document("intents", "check", "--log", "--user", "bob", folder=folder)["asked_back"] == []
    found = document("intents", "check", "--log", "--user", "ann", folder=folder)["asked_back"]
    assert found == [{"text": "something about a lamp", "meant": "ORDER"}]
    printed = remit("intents", "check", "--log", "--user", "ann", folder=folder).stdout
    assert "→ remit intents add ORDER 'something about a lamp'" in printed
    assert remit("intents", "add", "ORDER", "something about a lamp", folder=folder).returncode == 0
    assert document("intents", "check", "--log", "--user", "ann", folder=folder)["asked_back"] == []
