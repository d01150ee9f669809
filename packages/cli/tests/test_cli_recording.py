"""`remit run --record` and `remit runs replay`: a run is recorded once, and repeated without network and key."""

import json
from pathlib import Path

import pytest

from command_line import document, remit
from openai_server import OpenAIServer, call, say

TEAM = """
name = "desk"

[agents.desk]
model = "gpt-5-mini"
base_url = "%s"
api_key = "$DESK_KEY"
prompt = "Sort receipts."
tools = ["look_up"]

[tools.look_up]
run = "desk:look_up"
"""
CODE = """
from pathlib import Path

def look_up(key: str) -> str:
    with Path(__file__).with_name("used").open("a") as used:
        used.write(key)
    return f"{key} of anna@example.org"
"""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A team whose run was recorded with a model that is gone now."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "desk.py").write_text(CODE)
    with OpenAIServer([call("look_up", key="tea"), say("Sorted.")]) as server:
        (folder / "remit.toml").write_text(TEAM % server.base_url)
        done = remit("run", "desk", "Sort for bob@example.org", "--record", "r.jsonl", folder=folder, DESK_KEY="sk-1")
    assert (done.returncode, done.stdout) == (0, "Sorted.\n"), done.stderr
    assert done.stderr.rstrip().endswith("→ remit runs replay r.jsonl")
    return folder


def test_a_recorded_run_goes_again_without_network_and_key(desk: Path) -> None:
    used = (desk / "used").read_text()
    done = remit("runs", "replay", "r.jsonl", folder=desk)
    assert (done.returncode, done.stdout) == (0, "Same as the recording (3 replies recorded).\n"), done.stderr
    assert (desk / "used").read_text() == used == "tea"
    assert "example.org" not in (desk / "r.jsonl").read_text()
    assert document("runs", "list", folder=desk)["runs"].__len__() == 1, "a replay has a store of its own"


def test_the_first_difference_is_named_in_words_and_as_a_document(desk: Path) -> None:
    changed = ("--set", "agents.desk.prompt=Arrange receipts.")
    done = remit("runs", "replay", "r.jsonl", *changed, folder=desk)
    assert done.returncode == 1
    sentence = "desk's 1st call of its model: `messages[0].content`: 'Sort receipts.' became 'Arrange receipts.'"
    assert sentence in done.stdout
    printed = remit("runs", "replay", "r.jsonl", *changed, "--json", folder=desk)
    report = json.loads(printed.stdout)
    assert (report["same"], report["asked"], len(report["differences"])) == (False, 0, 1)
    assert report["differences"][0] == {
        "run": 1,
        "agent": "desk",
        "at": "",
        "kind": "model",
        "call": 1,
        "field": "body.messages[0].content",
        "before": "Sort receipts.",
        "after": "Arrange receipts.",
        "text": sentence,
    }


def test_a_changed_prompt_is_tried_on_the_real_model(desk: Path) -> None:
    with OpenAIServer([say("Arranged.")]) as server:
        changed = ("--set", "agents.desk.prompt=Arrange.", "--set", f"agents.desk.base_url={server.base_url}")
        done = remit("runs", "replay", "r.jsonl", "--new", "ask", *changed, folder=desk, DESK_KEY="sk-1")
        assert len(server.requests) == 1
    assert done.returncode == 1
    assert "desk: success: Arranged." in done.stdout
    assert remit("runs", "replay", "r.jsonl", "--new", "ask", folder=desk).returncode == 3, "without the key"


def test_what_cannot_be_recorded_is_refused_with_a_way_out(desk: Path) -> None:
    isolated = ("--set", "agents.other.run=desk:look_up", "--set", "agents.other.isolation=process")
    done = remit("run", "desk", "x", "--record", "no.jsonl", *isolated, folder=desk, DESK_KEY="k")
    assert (done.returncode, (desk / "no.jsonl").exists()) == (3, False)
    assert "--set agents.other.isolation=task" in done.stderr
    assert remit("run", "desk", "x", "--record", "no.jsonl", "--detach", folder=desk).returncode == 2


@pytest.mark.parametrize("text", [None, "not a recording\n"])
def test_a_file_that_is_no_recording_is_named(desk: Path, text: str | None) -> None:
    if text is not None:
        (desk / "none.jsonl").write_text(text)
    done = remit("runs", "replay", "none.jsonl", folder=desk)
    assert done.returncode == 2
    assert "none.jsonl" in done.stderr
