"""The checker finds each kind of violation that is planted in a history, and none in a right one."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from chaos.history import Event, HistoryFile, Outcome, Rules, StoredRequest, Violation, check, read_history

RULES = Rules(may_repeat=frozenset({"steady"}), run_tokens=500, user_tokens_per_day=700)
PAID = Outcome("success", "", "receipt-1")
UNKNOWN = Outcome("failed", "OUTCOME_UNKNOWN")
REFUSED = Outcome("refused", "OVERLOADED")


def event(kind: str, at: float, **fields: object) -> Event:
    given = {"kind": kind, "id": "one", "agent": "till", "by": "h1 17", "at": at, **fields}
    return Event(**given)  # pyright: ignore[reportArgumentType]


ASKED = event("asked", 1, by="client", user="ada")
ACCEPTED = event("accepted", 2, by="client h1")
EXECUTED = event("executed", 3, epoch=1)
RETURNED = event("returned", 4, epoch=1, receipt="receipt-1")
ANSWERED = event("answered", 5, by="client h1", outcome=PAID)
WHOLE = [ASKED, ACCEPTED, EXECUTED, RETURNED, ANSWERED]
STORED = StoredRequest(id="one", agent="till", user="ada", outcome=PAID, tokens=300)


def found(events: list[Event], *stored: StoredRequest) -> list[str]:
    return [each.rule for each in check(events, stored, RULES)]


def test_a_right_history_has_no_violation() -> None:
    assert found(WHOLE, STORED) == []


@pytest.mark.parametrize("told", [[ACCEPTED], [EXECUTED, RETURNED, ANSWERED]])
def test_something_acknowledged_that_the_store_does_not_have_is_lost(told: list[Event]) -> None:
    assert "lost" in found([ASKED, *told])


def test_an_answer_that_the_store_keeps_as_another_is_lost() -> None:
    other = replace(STORED, outcome=Outcome("failed", "DELEGATION_FAILED"))
    assert found(WHOLE, other) == ["lost"]


def test_two_answers_for_one_id_are_found() -> None:
    assert found([*WHOLE, replace(ANSWERED, at=6, outcome=UNKNOWN), replace(ANSWERED, at=7)], STORED) == ["outcomes"]


def test_two_outcomes_on_record_are_found() -> None:
    assert found(WHOLE, replace(STORED, outcomes=2)) == ["outcomes"]


def test_a_second_execution_is_found_unless_the_capability_allows_it() -> None:
    taken_over = [replace(EXECUTED, by="h1 16", epoch=1), replace(EXECUTED, epoch=2), replace(RETURNED, epoch=2)]
    (twice,) = check([ASKED, *taken_over, ANSWERED], [STORED], RULES)
    assert twice == Violation("executed twice", "one", "till by h1 16 (epoch 1), h1 17 (epoch 2)")
    steady = [replace(each, agent="steady") for each in (ASKED, *taken_over, ANSWERED)]
    assert found(steady, replace(STORED, agent="steady")) == []


def test_a_request_without_an_end_is_stuck() -> None:
    assert found([ASKED]) == ["stuck"]
    assert found([ASKED, ACCEPTED], replace(STORED, outcome=None)) == ["stuck", "stuck"]


def test_an_answer_that_no_execution_gave_is_untrue() -> None:
    assert found([ASKED, EXECUTED, ANSWERED], STORED) == ["untrue"]


def test_a_refusal_of_something_that_was_executed_is_untrue() -> None:
    assert found([ASKED, EXECUTED, replace(ANSWERED, outcome=REFUSED)]) == ["untrue"]
    assert found([ASKED, replace(ANSWERED, outcome=REFUSED)]) == []


def test_a_request_that_is_called_wrong_is_found() -> None:
    assert found([ASKED, replace(ANSWERED, outcome=Outcome("rejected", "MALFORMED_ENVELOPE"))]) == ["untrue"]


def test_a_client_that_is_told_to_ask_again_was_told_nothing() -> None:
    later = replace(ANSWERED, at=2, outcome=Outcome("failed", "STORE_UNAVAILABLE"))
    assert found([*WHOLE, later], STORED) == []


def test_an_outcome_of_a_hub_that_was_replaced_is_found() -> None:
    steady = [replace(each, agent="steady") for each in WHOLE]
    taken_over = event("executed", 3.5, agent="steady", by="h2 18", epoch=2)
    assert found([*steady, taken_over], replace(STORED, agent="steady")) == ["fencing"]


def test_budgets_that_were_exceeded_are_found() -> None:
    assert found(WHOLE, replace(STORED, tokens=501)) == ["budget"]
    both = [STORED, replace(STORED, id="two", tokens=401)]
    assert found(WHOLE, *both) == ["budget"]


def test_a_broken_chain_is_found() -> None:
    assert [each.rule for each in check(WHOLE, [STORED], RULES, findings=["row 7 was changed"])] == ["chain"]
    assert [each.rule for each in check(WHOLE, [STORED], RULES, unchained=3)] == ["chain"]


def test_the_histories_of_several_processes_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    first, second = HistoryFile(tmp_path / "a.jsonl"), HistoryFile(tmp_path / "b.jsonl")
    for file, each in ((second, ASKED), (first, EXECUTED), (second, ANSWERED)):
        file.add(each)
    first.close()
    second.close()
    assert [each.kind for each in read_history(tmp_path)] == ["asked", "executed", "answered"]
