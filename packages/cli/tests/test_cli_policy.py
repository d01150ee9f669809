"""`remit policy`: what each guard says of a request, and why."""

from pathlib import Path

import pytest

from command_line import document, make_team, remit
from remit.policy.guards import GUARDS, LAST

RULE = """
[[rules]]
to = "reader"
mentions = ["secret"]
then = "ask"
edit = ["objective"]
say = "May the reader see a secret?"
"""


def test_a_request_that_every_guard_allows_is_allowed(tmp_path: Path) -> None:
    make_team(tmp_path)
    done = remit("policy", "explain", "assistant", "reader", "Read this", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    text = "allowed  assistant asking reader would be allowed, with 5 s and 5000 tokens."
    assert done.stdout.splitlines()[0] == text


def test_every_guard_is_heard_in_its_order_and_the_first_objection_stands(tmp_path: Path) -> None:
    make_team(tmp_path)
    output = document("policy", "explain", "counter", "reader", "Read", "--tools", "hammer", folder=tmp_path)
    names = [each["guard"] for each in output["guards"]]
    assert [name for name in names if name != "input_schema"] == [guard.__name__ for guard in (*GUARDS, LAST)]
    objections = [each["guard"] for each in output["guards"] if each["verdict"] == "refuse"]
    assert objections == ["permission", "tools"]
    assert (output["outcome"], output["by"], output["fault"]["code"]) == ("refused", "permission", "PERMISSION_DENIED")


def test_the_exit_code_is_that_of_the_refusal(tmp_path: Path) -> None:
    make_team(tmp_path)
    refused = remit("policy", "explain", "counter", "reader", "Read", folder=tmp_path)
    assert refused.returncode == 4
    verdict, todo, *_ = refused.stdout.splitlines()
    assert verdict.startswith("refused  counter asking reader would be refused by permission. PERMISSION_DENIED: ")
    assert todo.startswith("→"), "a refusal says what to do"
    assert remit("policy", "explain", "user", "nobody", "Read", folder=tmp_path).returncode == 2
    assert (
        remit("policy", "explain", "user", "reader", "Read all of this", "--budget", "1", folder=tmp_path).returncode
        == 5
    )
    assert remit("policy", "explain", "user", "reader", "Read", "--deadline", "1ms", folder=tmp_path).returncode == 6


def test_a_rule_that_asks_says_its_question_and_what_may_be_changed(tmp_path: Path) -> None:
    make_team(tmp_path, more=RULE)
    output = document("policy", "explain", "assistant", "reader", "A secret", folder=tmp_path)
    assert (output["outcome"], output["by"], output["exit_code"]) == ("asks", "team_rules", 4)
    assert (output["question"], output["editable"]) == ("May the reader see a secret?", ["objective"])


def test_a_list_of_calls_that_need_nobody_is_taken_into_account(tmp_path: Path) -> None:
    make_team(tmp_path, more=RULE + '\n[approvals]\nallow = ["assistant -> reader"]\n')
    assert remit("policy", "explain", "assistant", "reader", "A secret", folder=tmp_path).returncode == 0
    assert remit("policy", "explain", "user", "reader", "A secret", folder=tmp_path).returncode == 4


def test_in_a_team_that_asks_nobody_a_question_is_a_refusal(tmp_path: Path) -> None:
    make_team(tmp_path, more=RULE + '\n[approvals]\notherwise = "deny"\n')
    output = document("policy", "explain", "user", "reader", "A secret", folder=tmp_path)
    assert (output["outcome"], output["fault"]["code"]) == ("refused", "APPROVAL_DECLINED")


def test_what_would_be_struck_is_said_by_kind_and_place_and_never_shown(tmp_path: Path) -> None:
    make_team(tmp_path)
    command = ["policy", "explain", "user", "reader", "Write to ann@example.org"]
    given = ["--input", '{"people": [{"mail": "bob@example.org"}]}']
    output = document(*command, *given, folder=tmp_path)
    assert output["struck"] == [
        {"kind": "EMAIL", "place": "objective", "shown": False},
        {"kind": "EMAIL", "place": "input.people[0].mail", "shown": False},
    ]
    for form in ([], ["--json"]):
        printed = remit(*command, *given, *form, folder=tmp_path).stdout
        assert "[EMAIL:" in printed
        assert "@example.org" not in printed


def test_what_the_team_lets_a_callee_see_is_marked(tmp_path: Path) -> None:
    make_team(tmp_path, more='\n[agents.clerk]\nrun = "agents:counter"\nsees = ["EMAIL"]\n')
    output = document("policy", "explain", "user", "clerk", "Write to ann@example.org", folder=tmp_path)
    assert output["struck"] == [{"kind": "EMAIL", "place": "objective", "shown": True}]
    assert "ann@example.org" not in str(output)


def test_a_detector_that_fails_shows_nothing_of_what_it_looked_at(tmp_path: Path) -> None:
    make_team(tmp_path, more='\n[redaction]\ndetectors = ["agents:broken"]\n')
    with (tmp_path / "agents.py").open("a", encoding="utf-8") as code:
        code.write("\n\ndef broken(text):\n    raise ValueError(text)\n")
    done = remit("policy", "explain", "user", "reader", "A very private matter", folder=tmp_path)
    assert done.returncode == 4
    assert "a guard failed (ValueError)" in done.stdout
    assert "private" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("given", "code"), [('[{"gross_cents": 1}]', "DATA_MISSING_REQUIRED_INPUT"), ("[1]", "INPUT_VALIDATION_FAILED")]
)
def test_an_input_that_does_not_fit_its_capability_is_refused(tmp_path: Path, given: str, code: str) -> None:
    make_team(tmp_path, "receipts")
    command = ["policy", "explain", "assistant", "tax", "", "--capability", "CLAIM", "--input"]
    output = document(*command, given, folder=tmp_path)
    assert (output["by"], output["fault"]["code"]) == ("input_schema", code)
    right = '[{"gross_cents": 1, "vat_percent": 7, "category": "travel"}]'
    assert document(*command, right, folder=tmp_path)["outcome"] == "allowed"


def test_no_agent_is_run_and_nothing_is_recorded(tmp_path: Path) -> None:
    make_team(tmp_path)
    remit("policy", "explain", "user", "reader", "Read", folder=tmp_path)
    assert not (tmp_path / ".remit").exists()


@pytest.mark.parametrize("origin", ["oders", "USER"])
def test_whoever_is_not_there_cannot_ask(tmp_path: Path, origin: str) -> None:
    make_team(tmp_path)
    done = remit("policy", "explain", origin, "reader", "Read", folder=tmp_path)
    assert done.returncode == 2
    assert f"no such agent `{origin}`; known agents: " in done.stderr


def test_the_guards_are_listed_with_a_sentence_each_also_without_a_team(tmp_path: Path) -> None:
    output = document("policy", "guards", folder=tmp_path)
    assert [each["name"] for each in output["guards"]][-1] == "redaction"
    assert all(each["says"] for each in output["guards"])
    printed = remit("policy", "guards", folder=tmp_path).stdout
    assert "loop" in printed
    assert "…" not in printed


# ── hand it on, or handle it ──────────────────────────────────────────────────────────────────────────────────────────

CREW = """
[agents.front]
run = "crew:front"
capabilities = ["TRANSLATE"]
may_call = ["expert", "crowd"]

[agents.expert]
run = "crew:expert"
capabilities = ["TRANSLATE", "PROVE"]

[agents.crowd]
run = "crew:expert"
capabilities = ["TRANSLATE"]

[capabilities.TRANSLATE]
description = "Translate a text into another language"
examples = ["translate this letter", "what does it say in French"]

[capabilities.PROVE]
description = "Prove a theorem"
examples = ["prove this lemma", "is this theorem true"]
"""

CREW_CODE = """
import asyncio

from remit import Brief


async def front(brief: Brief) -> str:
    if brief.text != "well":
        raise ValueError("not today")
    return "done"


async def expert(brief: Brief) -> str:
    await asyncio.sleep(0.06 if brief.text == "slowly" else 0)
    return "done"
"""


def make_crew(folder: Path) -> None:
    (folder / "remit.toml").write_text(CREW, encoding="utf-8")
    (folder / "crew.py").write_text(CREW_CODE, encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "decision", "reason"),
    [
        (("front", "expert", "Go on", "--capability", "PROVE"), "route", "capability"),
        (("front", "expert", "Is this theorem true?"), "route", "intent"),
        (("front", "expert", "Go on", "--capability", "TRANSLATE", "--lacks-data"), "route", "data"),
        (("front", "expert", "Go on", "--capability", "TRANSLATE", "--simple"), "local", "simplicity"),
        (("front", "expert", "Go on", "--capability", "TRANSLATE"), "local", "scope"),
        (("front", "crowd", "Is this theorem true?"), "local", "equivalence"),
        (("user", "front", "Is this theorem true?"), "route", "intent"),
        (("user", "expert", "Is this theorem true?"), "local", "scope"),
    ],
)
def test_a_request_says_whether_it_should_be_handed_on_and_why(
    tmp_path: Path, arguments: tuple[str, ...], decision: str, reason: str
) -> None:
    """K4: the document's reasons decide, visibly."""
    make_crew(tmp_path)
    output = document("policy", "explain", *arguments, folder=tmp_path)["place"]
    assert (output["decision"], output["reason"]) == (decision, reason)
    assert (output["confidence"] is None) is ("--capability" in arguments)
    assert output["agent"] == (arguments[1] if arguments[0] == "user" else arguments[0])
    text = remit("policy", "explain", *arguments, folder=tmp_path).stdout
    what = "should delegate it" if decision == "route" else "should handle it itself"
    assert f"{output['agent']} {what} ({reason}): {output['why']}" in text


def test_how_each_has_done_so_far_counts(tmp_path: Path) -> None:
    """K4: expertise, equivalence and latency, by what is on record."""
    make_crew(tmp_path)

    def reason(*more: str) -> str:
        command = ("policy", "explain", "front", "expert", "Go on", "--capability", "TRANSLATE", *more)
        return document(*command, folder=tmp_path)["place"]["reason"]

    for agent, text in (("front", "well"), ("expert", "well")):
        assert remit("run", agent, text, "--capability", "TRANSLATE", folder=tmp_path).returncode == 0
    assert reason() == "equivalence"
    for text in ("badly", "worse"):
        assert remit("run", "front", text, "--capability", "TRANSLATE", folder=tmp_path).returncode == 1
    assert reason() == "expertise"
    assert remit("run", "expert", "slowly", "--capability", "TRANSLATE", folder=tmp_path).returncode == 0
    assert reason("--deadline", "40ms") == "latency"


def test_nothing_is_said_of_handing_on_where_it_is_not_known_what_is_asked_for(tmp_path: Path) -> None:
    make_crew(tmp_path)
    for arguments in (("front", "expert", "Xyzzy"), ("front", "expert", "Go on", "--capability", "COOK")):
        assert document("policy", "explain", *arguments, folder=tmp_path)["place"] is None
        output = remit("policy", "explain", *arguments, folder=tmp_path).stdout
        assert not any(text in output for text in ("should delegate it", "should handle it itself"))


def test_a_damaged_record_keeps_nobody_from_hearing_the_guards(tmp_path: Path) -> None:
    make_crew(tmp_path)
    (tmp_path / ".remit").mkdir()
    (tmp_path / ".remit" / "hub.db").write_bytes(b"no database" * 1_000)
    output = document("policy", "explain", "front", "expert", "Go on", "--capability", "TRANSLATE", folder=tmp_path)
    assert (output["outcome"], output["place"]["reason"]) == ("allowed", "scope")
