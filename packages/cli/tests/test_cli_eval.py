"""`remit eval`: cases with checks on answers and on the calls between agents, as people and as CI meet them."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from command_line import document, remit
from doc_pages import blocks, page_path, page_text
from openai_server import OpenAIServer, Reply, Request, say
from remit_cli.config.sections.cases import CaseTable, EvalCase, EvalFile, Expectation, ExpectedUse


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The team of the page."""
    folder = tmp_path_factory.mktemp("office")
    for block in blocks(page_path("evaluating")):
        if block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")
    return folder


def evaluated(office: Path, cases: str, *options: str) -> dict[str, Any]:
    """Run cases with one expectation after another and return the document."""
    (office / "own.toml").write_text(cases, encoding="utf-8")
    done = remit("eval", "own.toml", "--json", *options, folder=office)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def failures(office: Path, expect: str, task: str = "small receipt") -> list[str]:
    """Return what one case that expects this has not done."""
    text = f'agent = "assistant"\n[cases.one]\ntask = "{task}"\n[cases.one.expect]\n{expect}\n'
    [case] = evaluated(office, text)["cases"]
    return [each for run in case["failed"] for each in run["failures"]]


@pytest.mark.parametrize(
    ("expect", "failure"),
    [
        ('equals = "yes"', "the answer is filed the small receipt and paid, not yes"),
        ('contains = ["filed", "posted"]', "the answer lacks `posted`: filed the small receipt and paid"),
        ('lacks = "paid"', "the answer has `paid`: filed the small receipt and paid"),
        ('matches = "^paid"', "the answer does not match `^paid`: filed the small receipt and paid"),
        ('schema = { type = "integer" }', "the answer does not fit the schema: $: "),
        ('status = "failed"', "it ended as success, not as failed"),
        ('check = "office:clerk"', "office:clerk: raised TypeError: "),
        ("asked = { clerk = 2 }", "clerk was called once, expected twice"),
        ("asked = { clerk = { at_least = 2 } }", "clerk was called once, expected at least twice"),
        ('not_asked = ["clerk"]', "clerk was called once"),
        ('order = ["clerk", "clerk"]', "the calls were clerk, not in the order clerk, clerk"),
        ('refused = { pay = "PERMISSION_DENIED" }', "pay was not refused"),
        ('tools = [{ tool = "pay", arguments = { amount = 6 } }]', 'pay was used with {"amount":6} never, expected '),
        ('tools = [{ tool = "pay", agent = "clerk" }]', "pay was used by clerk never, expected at least once"),
        ('not_used = ["pay"]', "pay was used once"),
    ],
)
def test_each_expectation_that_does_not_hold_is_one_sentence(office: Path, expect: str, failure: str) -> None:
    [text] = failures(office, expect)
    assert text.startswith(failure)


def test_what_is_refused_is_told_with_its_code(office: Path) -> None:
    assert failures(office, "refused = {}", "large") == ["pay was refused (PERMISSION_DENIED)"]
    assert failures(office, 'refused = { pay = "RATE_LIMITED" }', "large") == [
        "pay was refused with PERMISSION_DENIED, not RATE_LIMITED"
    ]
    assert failures(office, 'refused = { pay = "PERMISSION_DENIED" }\nnot_used = ["pay"]', "large") == []


def test_all_that_does_not_hold_is_told_and_what_holds_is_not(office: Path) -> None:
    expect = 'contains = "filed"\nlacks = "paid"\nasked = { clerk = 1 }\nnot_used = ["pay", "look_up"]'
    assert len(failures(office, expect)) == 3


def test_the_exit_code_says_whether_the_threshold_is_reached(office: Path) -> None:
    cases = (
        'agent = "assistant"\n[cases.good]\ntask = "small"\n[cases.bad]\ntask = "large"\nexpect = { lacks = "not" }\n'
    )
    (office / "own.toml").write_text(cases, encoding="utf-8")
    codes = {
        share: remit("eval", "own.toml", "--threshold", share, folder=office).returncode for share in ("0.5", "0.6")
    }
    assert codes == {"0.5": 0, "0.6": 1}
    assert remit("eval", "own.toml", "--case", "good", folder=office).returncode == 0
    own = evaluated(office, f"threshold = 0\n{cases.replace('[cases.bad]', '[cases.bad]' + chr(10) + 'threshold = 1')}")
    assert (own["ok"], [case["ok"] for case in own["cases"]]) == (False, [True, False])


def test_cases_are_run_as_often_as_is_said_and_each_run_begins_anew(office: Path) -> None:
    report = evaluated(office, 'agent = "assistant"\n[cases.a]\ntask = "small"\n', "--runs", "3")
    [case] = report["cases"]
    assert (case["runs"], case["passed"], report["ok"]) == (3, 3, True)


def test_a_table_for_people_and_nothing_on_stdout_but_what_was_asked_for(office: Path) -> None:
    done = remit("eval", "cases.toml", folder=office)
    rows = [line.split()[:5] for line in done.stdout.splitlines()]
    assert rows[:3] == [
        ["CASE", "AGENT", "PASSED", "TIME"],
        ["small", "assistant", "1", "of", "1"],
        ["large", "assistant", "1", "of", "1"],
    ]
    assert done.stdout.splitlines()[-1] == "2 of 2 runs passed (100%, threshold 100%)"


def test_a_question_to_a_person_is_answered_as_the_case_says(tmp_path: Path, office: Path) -> None:
    shutil.copy(office / "office.py", tmp_path)
    team = (office / "remit.toml").read_text().replace('then = "refuse"', 'then = "ask"')
    (tmp_path / "remit.toml").write_text(team)
    case = 'task = "large"\nexpect = { contains = "%s" }\n'
    declined, approved = case % "APPROVAL_DECLINED", f"approve = true\n{case % 'and paid'}"
    report = evaluated(tmp_path, f'agent = "assistant"\n[cases.no]\n{declined}[cases.yes]\n{approved}')
    assert report["ok"], report


def test_all_errors_of_a_file_are_told_with_their_lines(office: Path) -> None:
    (office / "wrong.toml").write_text(
        'agent = "asistant"\n[cases.a]\n[cases.a.expect]\nasked = { clrk = 1 }\nmatches = "("\ncheck = "office:none"\n'
        'max_cost = "1 CHF"\ncode = "TIMEOUT"\n[cases.b]\ntask = "x"\nturns = ["y"]\n'
    )
    done = remit("eval", "wrong.toml", folder=office)
    assert done.returncode == 3
    lines = [line.strip() for line in done.stderr.splitlines()]
    for start in (
        "wrong.toml:1 agent: no such agent `asistant`; did you mean `assistant`?",
        "wrong.toml:2 cases.a.task: nothing is asked",
        "wrong.toml:4 cases.a.expect.asked: no such agent `clrk`; did you mean `clerk`?",
        "wrong.toml:5 cases.a.expect.matches: this is not a regular expression",
        "wrong.toml:6 cases.a.expect.check: `office` has no `none`",
        "wrong.toml:7 cases.a.expect.max_cost: the prices of the team are in USD",
        "wrong.toml:8 cases.a.expect.code: ",
        "wrong.toml:11 cases.b.turns: a case has `task` or `turns`, not both",
    ):
        assert any(line.startswith(start) for line in lines), (start, done.stderr)
    (office / "wrong.toml").write_text('agent = "assistant"\n[cases.a]\ntsk = "x"\nexpect = { contians = "y" }\n')
    done = remit("eval", "wrong.toml", folder=office)
    assert "wrong.toml:3 cases.a.tsk: unknown key; did you mean `task`?" in done.stderr
    assert "wrong.toml:4 cases.a.expect.contians: unknown key; did you mean `contains`?" in done.stderr
    for name in ("none.toml", "office.py"):
        assert remit("eval", name, folder=office).returncode == 3


def test_every_key_of_the_file_is_on_its_page() -> None:
    text = page_text("evaluating")
    kinds: list[type[CaseTable]] = [EvalFile, EvalCase, Expectation, ExpectedUse]
    keys = {each for kind in kinds for each in kind.__struct_encode_fields__}
    assert {key for key in keys if f"`{key}`" not in text} == set()


# ── with a model, and without a network ───────────────────────────────────────────────────────────────────────────────

TEAM = """
name = "desk"

[agents.desk]
model = "openai:gpt-5-mini"
base_url = "%s"
prompt = "Answer customers."
"""
CASES = 'agent = "desk"\nrecordings = "recordings"\n' + "".join(
    f'[cases.n{number}]\ntask = "What is {number} times 7?"\n[cases.n{number}.expect]\ncontains = "{number * 7}"\n'
    for number in range(30)
)


def times_seven(request: Request) -> Reply:
    number = request.messages[-1]["content"].split()[2]
    return say(f"It is {int(number) * 7}.")


def test_thirty_cases_are_recorded_once_and_evaluated_without_network_and_key(tmp_path: Path) -> None:
    (tmp_path / "cases.toml").write_text(CASES)
    with OpenAIServer(times_seven) as server:
        (tmp_path / "remit.toml").write_text(TEAM % server.base_url)
        recorded = remit("eval", "cases.toml", "--record", folder=tmp_path, OPENAI_API_KEY="a key")
        assert recorded.returncode == 0, recorded.stderr + recorded.stdout
        assert len(server.requests) == 30
    assert len(list((tmp_path / "recordings").iterdir())) == 30
    report = document("eval", "cases.toml", folder=tmp_path)
    assert (report["runs"], report["passed"], report["ok"]) == (30, 30, True)
    team = tmp_path / "remit.toml"
    team.write_text(team.read_text().replace("Answer customers.", "Answer guests."))
    changed = remit("eval", "cases.toml", "--case", "n3", folder=tmp_path)
    assert changed.returncode == 1
    change = "`messages[0].content`: 'Answer customers.' became 'Answer guests.'"
    sentence = f"it differs from its recording: desk's 1st call of its model: {change}"
    assert sentence in " ".join(changed.stdout.split())
