"""Rules about answers in the team file, as `remit run`, `remit pending` and `remit policy` meet them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from command_line import remit
from waiting import eventually

TEAM = """
name = "school"

[agents.tutor]
run = "school:tutor"

[agents.boss]
run = "school:boss"
may_call = ["tutor"]

[[rules]]
on = "answer"
from = "tutor"
check = "school:homework"
then = "refuse"

[[rules]]
on = "answer"
finds = ["EMAIL"]
then = "rewrite"

[[rules]]
on = "answer"
from = "tutor"
to = "user"
mentions = ["grade"]
then = "ask"
say = "May a grade be told?"
edit = ["input"]
"""
CODE = """
async def tutor(brief):
    return brief.text


async def boss(brief):
    reply = await brief.delegate("tutor", objective=brief.text)
    return f"{reply.status}: {reply.result}"


def homework(result):
    return "homework is not done here" if "x =" in str(result) else False
"""


@pytest.fixture
def school(tmp_path: Path) -> Path:
    (tmp_path / "remit.toml").write_text(TEAM, encoding="utf-8")
    (tmp_path / "school.py").write_text(CODE, encoding="utf-8")
    return tmp_path


def test_an_answer_is_refused_or_changed_before_its_caller_gets_it(school: Path) -> None:
    refused = remit("run", "tutor", "x = 4", folder=school)
    assert (refused.returncode, refused.stdout) == (4, "")
    assert "PERMISSION_DENIED: homework is not done here" in refused.stderr
    assert remit("run", "boss", "x = 4", folder=school).stdout == "failed: None\n"
    assert "homework is not done here" in remit("runs", "tree", "last", folder=school).stdout
    assert remit("run", "boss", "to bob@example.com", folder=school).stdout == "success: to [EMAIL]\n"
    assert "its answer was changed before boss got it" in remit("runs", "show", "last", folder=school).stdout


@pytest.mark.parametrize(("verb", "given"), [("approve", "the grade is B"), ("edit", "the grade is A"), ("reject", "")])
async def test_a_person_sees_the_answer_and_decides(school: Path, verb: str, given: str) -> None:
    detached = remit("run", "tutor", "the grade is B", "--detach", "--json", folder=school)
    assert detached.returncode == 0, detached.stderr
    (question,) = await eventually(lambda: asyncio.to_thread(_pending, school))
    assert question["text"] == "May a grade be told?"
    request = question["request"]
    assert (request["act"], request["origin"], request["target"]) == ("answer", "tutor", "user")
    assert request["input"] == "the grade is B"
    assert 'tutor answers the user: "the grade is B"' in remit("pending", "show", question["id"], folder=school).stdout
    edits = ("--edit", f'input="{given}"') if verb == "edit" else ()
    decided = remit("pending", "reject" if verb == "reject" else "approve", question["id"], *edits, folder=school)
    assert decided.returncode == 0, decided.stderr
    ended = remit("runs", "watch", "last", folder=school)
    assert ended.returncode == (4 if verb == "reject" else 0), ended.stderr
    shown = remit("runs", "show", "last", folder=school).stdout
    assert (given in shown) if given else ("APPROVAL_DECLINED" in shown)


def _pending(folder: Path) -> list[Any]:
    listed = remit("pending", "list", "--json", folder=folder)
    return [each["question"] for each in json.loads(listed.stdout)["questions"]]


def test_what_would_become_of_an_answer_is_explained(school: Path) -> None:
    refused = remit("policy", "explain", "tutor", "user", "x = 4", "--answer", folder=school)
    assert refused.returncode == 4
    assert "tutor answering user would be refused by team_answers. PERMISSION_DENIED: homework" in refused.stdout
    asks = remit("policy", "explain", "tutor", "user", "a grade", "--answer", folder=school)
    assert (asks.returncode, "by team_answers: May a grade be told?" in asks.stdout) == (4, True)
    fine = remit("policy", "explain", "tutor", "boss", "a grade", "--answer", folder=school)
    assert (fine.returncode, "tutor answering boss would be allowed." in fine.stdout) == (0, True)
    assert "team_answers" in remit("policy", "guards", folder=school).stdout


def test_a_function_or_a_kind_that_does_not_exist_is_named(school: Path) -> None:
    team = school / "remit.toml"
    text = team.read_text(encoding="utf-8").replace("school:homework", "school:nothing").replace("EMAIL", "MAIL")
    team.write_text(text, encoding="utf-8")
    done = remit("validate", folder=school)
    assert done.returncode != 0
    assert "rules[0].check: `school` has no `nothing`" in done.stderr + done.stdout
    assert "there is no kind of data `MAIL`" in done.stderr + done.stdout
