"""The checker of the chaos runs finds each kind of broken promise, and nothing where all is well."""

from typing import Any

import pytest
from msgspec.structs import replace

from chaos.check import Line, Promises, check

PROMISES = Promises(may_repeat=frozenset({"boss", "planner"}), user_tokens_per_day=100)


def line(kind: Any, at: float = 0.0, **more: Any) -> Line:
    return Line(kind=kind, request="one", at=at, **more)


ASKED = line("asked", 1, agent="boss", user="anna", tokens=80)
BEGAN = line("began", 2, agent="boss", call="one", by="s1 7", tokens=80)
CALLED = line("began", 3, agent="till", call="run.1", parent="one", by="w1 8", tokens=80)
CHARGED = line("charged", 4, agent="till", call="run.1", by="w1 8", receipt="abc")
HEARD = line("heard", 5, call="run.1", parent="one", by="s1 7", status="success")
ANSWERED = line("answered", 6, status="success", receipt="abc")
RECORD = [
    line("started", run="run", call="one", by="user"),
    line("started", run="run", call="run.1", parent="one", by="boss"),
    line("started", run="host", call="run.1", by="boss@chaos"),
    line("ended", run="host", call="run.1", status="success", receipt="abc"),
    line("ended", run="run", call="run.1", status="success", receipt="abc"),
    line("ended", run="run", call="one", status="success", receipt="abc"),
]
WHOLE = [ASKED, BEGAN, CALLED, CHARGED, HEARD, ANSWERED, *RECORD]
QUESTION = line("question", 2.2, question="run.1-q1")
AGREED = line("decided", 2.4, question="run.1-q1", agreed=True, by="person0")
OPENED = [replace(each, agent="vault") if each.agent == "till" else each for each in WHOLE]
DECLINED = line("answered", 6, status="refused", code="APPROVAL_DECLINED")
REFUSED_BEFORE = [
    line("question", 1.2, question="old.1-q1"),
    line("started", run="old", call="one", by="user"),
    line("ended", run="old", call="one", status="refused", code="RATE_LIMITED"),
]
SHARED = [
    *(replace(each, tokens=40) if each is CALLED else each for each in WHOLE),
    replace(CALLED, call="run.2", tokens=40),
    line("started", run="run", call="run.2", parent="one", by="boss"),
]
RESUMED = replace(BEGAN, at=5.5, by="s2 9")


def rules(*lines: Line, findings: tuple[str, ...] = ()) -> list[str]:
    return [each.rule for each in check(lines, PROMISES, findings)]


def spends(*tokens: int, call: str = "run.1", by: str = "w1 8", at: float = 4.0) -> list[Line]:
    return [
        line("spent", at + n / 100, call=call, by=by, agent="spender", tokens=each) for n, each in enumerate(tokens)
    ]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(WHOLE, id="one charge, answered and recorded"),
        pytest.param([*WHOLE, RESUMED, replace(HEARD, at=5.6, by="s2 9")], id="a resumable caller that ran again"),
        pytest.param(
            [*WHOLE, RESUMED, replace(HEARD, at=5.7, status="refused")], id="what a hub heard that was replaced"
        ),
        pytest.param([*WHOLE, replace(ANSWERED, at=7)], id="the same answer twice"),
        pytest.param(
            [*WHOLE, replace(ANSWERED, at=2, status="failed", code="STORE_UNAVAILABLE", receipt="")],
            id="told to ask again",
        ),
        pytest.param([ASKED, line("answered", 2, status="refused", code="RATE_LIMITED")], id="refused, and not run"),
        pytest.param([*OPENED, QUESTION, AGREED], id="a question that was answered once"),
        pytest.param(
            [*OPENED, QUESTION, line("unsure", 2.4, question="run.1-q1", agreed=True)], id="an answer that may count"
        ),
        pytest.param([*WHOLE, *spends(30, 30, 30)], id="one call too much by the agent that ran"),
        pytest.param([*REFUSED_BEFORE, *OPENED, QUESTION, AGREED], id="asked again after the first run was refused"),
        pytest.param(
            [*SHARED, *spends(30, 15), *spends(39, 5, call="run.2", at=4.1)], id="one call too much by each of two"
        ),
        pytest.param([ASKED, line("abandoned", 3, by="client0")], id="a client that was killed"),
    ],
)
def test_nothing_is_found_where_every_promise_was_kept(lines: list[Line]) -> None:
    assert check(lines, PROMISES) == []


@pytest.mark.parametrize(
    ("rule", "lines"),
    [
        pytest.param("charged twice", [*WHOLE, replace(CHARGED, receipt="def")], id="a second charge"),
        pytest.param("executed twice", [*WHOLE, replace(CALLED, by="w2 9")], id="a second execution"),
        pytest.param("not started but ran", [*WHOLE, replace(DECLINED, code="RATE_LIMITED")], id="answered as refused"),
        pytest.param(
            "not started but ran",
            [*WHOLE, line("answered", 7, status="failed", code="DELEGATION_UNAVAILABLE")],
            id="answered as unavailable",
        ),
        pytest.param(
            "not started but ran", [*WHOLE, replace(HEARD, status="refused")], id="its caller heard that it was refused"
        ),
        pytest.param(
            "not started but ran", [*WHOLE, replace(HEARD, at=2.5, status="refused")], id="begun after it was refused"
        ),
        pytest.param(
            "not started but ran",
            [*WHOLE, RESUMED, replace(HEARD, at=5.6, by="s2 9", status="refused")],
            id="refused when it was asked again",
        ),
        pytest.param("budget", [*WHOLE, *spends(30, 30, 30, 5)], id="two calls too much"),
        pytest.param(
            "budget",
            [
                *(replace(each, tokens=60) if each.kind == "began" else each for each in SHARED),
                *spends(50),
                *spends(50, call="run.2"),
            ],
            id="grants that are more than there was",
        ),
        pytest.param(
            "budget",
            [*WHOLE, *spends(81), replace(CALLED, at=5, call="run.2"), *spends(9, call="run.2", at=5.1)],
            id="an agent that began after the budget was used up",
        ),
        pytest.param(
            "asked twice",
            [*OPENED, QUESTION, AGREED, replace(QUESTION, question="run.1-q2")],
            id="two questions in a run",
        ),
        pytest.param("asked twice", [*OPENED, QUESTION, AGREED, REFUSED_BEFORE[0]], id="two runs that ask"),
        pytest.param("answered twice", [*OPENED, QUESTION, AGREED, replace(AGREED, by="person1")], id="two answers"),
        pytest.param("ran unasked", [*OPENED, QUESTION], id="nobody agreed"),
        pytest.param("ran unasked", [*OPENED, QUESTION, replace(AGREED, agreed=False)], id="somebody declined"),
        pytest.param("answer lost", [ASKED, QUESTION, AGREED, DECLINED], id="agreed to, and declined"),
        pytest.param("answer lost", [ASKED, QUESTION, DECLINED], id="declined by nobody"),
        pytest.param("answer lost", [*WHOLE[:-1], replace(RECORD[-1], receipt="def")], id="another outcome on record"),
        pytest.param("answer lost", [ASKED, replace(ANSWERED, receipt="")], id="answered, and not on record"),
        pytest.param("stuck", [ASKED], id="no answer"),
        pytest.param(
            "outcomes", [*WHOLE, line("answered", 7, status="failed", code="OUTCOME_UNKNOWN")], id="two answers"
        ),
        pytest.param("outcomes", [*WHOLE, RECORD[-1]], id="two outcomes on record"),
        pytest.param("outcomes", [*WHOLE, replace(RECORD[1], at=9)], id="a record after the end of its run"),
        pytest.param(
            "outcomes", [*WHOLE, line("started", run="other", call="two", by="user")], id="a run without an end"
        ),
        pytest.param("record", [*WHOLE, replace(CALLED, call="run.2")], id="an execution that is not on record"),
        pytest.param("untrue", [*WHOLE, replace(ANSWERED, receipt="def")], id="a receipt that nobody wrote"),
        pytest.param("untrue", [*WHOLE, replace(ANSWERED, status="rejected", receipt="")], id="a request called wrong"),
        pytest.param(
            "cancel lost",
            [*WHOLE, line("cancelled", 3), line("answered", 6, status="timeout")],
            id="a cancel without effect",
        ),
    ],
)
def test_each_broken_promise_is_found(rule: str, lines: list[Line]) -> None:
    assert rule in rules(*lines)


def test_the_day_of_a_user_is_summed_over_all_requests() -> None:
    others = [replace(each, request="two", at=each.at + 10) for each in (*WHOLE, *spends(70, 8))]
    assert rules(*WHOLE, *spends(50, 10), *others) == ["budget"]


def test_what_the_verification_of_the_record_finds_is_a_broken_promise() -> None:
    assert rules(*WHOLE, findings=("row 7 was changed",)) == ["record"]
