"""Which notes of a conversation a callee may see."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.policy.context import notes_for
from remit.protocol.envelope import ContextFilter, Known, Note

NOTES = (
    Note("fact", "The server is in Oslo", "finder"),
    Note("decision", "Use PostgreSQL"),
    Note("constraint", "budget: 500 EUR"),
    Note("answer", "May I pay? yes"),
)
FILTERS = st.none() | st.builds(ContextFilter, known=st.sampled_from([None, "none", "decisions", "all"]))


@pytest.mark.parametrize(
    ("known", "kinds"),
    [
        (None, []),
        ("none", []),
        ("decisions", ["decision", "constraint"]),
        ("all", ["fact", "decision", "constraint", "answer"]),
    ],
)
def test_an_agent_passes_what_it_names(known: Known | None, kinds: list[str]) -> None:
    assert [note.kind for note in notes_for(NOTES, [ContextFilter(known=known), None])] == kinds


def test_an_agent_without_a_filter_passes_none() -> None:
    assert notes_for(NOTES, [None, None]) == ()


def test_the_agent_that_the_user_talks_to_has_all_unless_the_user_says_otherwise() -> None:
    """K14."""
    assert notes_for(NOTES, [None]) == NOTES
    assert notes_for(NOTES, [ContextFilter()]) == NOTES
    assert notes_for(NOTES, [ContextFilter(known="none")]) == ()


@given(st.lists(FILTERS, min_size=1, max_size=5), FILTERS)
def test_no_callee_sees_a_note_that_its_caller_does_not_see(above: list[ContextFilter | None], own: object) -> None:
    assert isinstance(own, ContextFilter | None)
    assert set(notes_for(NOTES, [own, *above])) <= set(notes_for(NOTES, above))
