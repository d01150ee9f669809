"""The advice of a fault is right or absent: with the time to wait in it, and never two sentences run together."""

import pytest

from remit.protocol.codec import convert
from remit.protocol.envelope import Request
from remit.protocol.errors import TABLE, Code, RemitError, duration, fault, in_sentences
from remit.protocol.submission import Submission


@pytest.mark.parametrize(
    ("code", "wait_ms", "said"),
    [
        (Code.RATE_LIMITED, 1_500, "Wait 2 s and try again."),
        (Code.RATE_LIMITED, None, "Wait a while and try again."),
        (Code.OVERLOADED, 200, "Wait 200 ms and try again, or ask another agent."),
        (Code.DELEGATION_UNAVAILABLE, 240_000, "Try again in 4 minutes or use an alternative."),
        (Code.DELEGATION_UNAVAILABLE, None, "Try again later or use an alternative."),
    ],
)
def test_advice_to_wait_gives_the_time_where_it_is_known(code: Code, wait_ms: int | None, said: str) -> None:
    assert fault(code, "no", retry_after_ms=wait_ms).suggestion == said


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [(0, "0 ms"), (999, "999 ms"), (1_000, "1 s"), (1_001, "2 s"), (119_000, "119 s"), (119_001, "2 minutes")],
)
def test_a_time_to_wait_is_never_told_shorter_than_it_is(milliseconds: int, said: str) -> None:
    assert duration(milliseconds) == said


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (("it failed", "Try again."), "it failed. Try again."),
        (("it failed.", "Install: pip install x"), "it failed. Install: pip install x."),
        (("did you mean `a`?", ""), "did you mean `a`?"),
        (("", ""), ""),
    ],
)
def test_sentences_do_not_run_together(parts: tuple[str, ...], said: str) -> None:
    assert in_sentences(*parts) == said


def test_every_advice_of_the_table_is_a_sentence() -> None:
    for code, row in TABLE.items():
        assert row.suggestion.endswith("."), code
        assert row.suggestion[0].isupper(), code


def test_material_in_the_objective_leads_to_the_input() -> None:
    """900 KB of text do not become shorter by correcting the field."""
    sent = {"target": "reader", "user": "u", "objective": "word " * 180_000}
    with pytest.raises(RemitError) as caught:
        convert(sent, Submission)
    assert "`--input @FILE`" in caught.value.fault.suggestion
    with pytest.raises(RemitError) as caught:
        convert({**sent, "objective": 7}, Submission)
    assert caught.value.fault.suggestion == "Correct the fields that are named and send it again."


def test_what_is_no_envelope_at_all_names_no_fields() -> None:
    with pytest.raises(RemitError) as caught:
        convert([], Request)
    assert caught.value.fault.suggestion == "Correct it and send it again."
