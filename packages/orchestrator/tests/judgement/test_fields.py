"""Which fields of an input are found in a user's words: figures of the labelled texts."""

import pytest

from judgement_fields import cases


@pytest.mark.parametrize("part", ["develop", "held"])
def test_no_field_is_filled_wrongly_and_most_that_stand_in_a_text_are_found(part: str) -> None:
    """Whatever is not found is asked for, so a value that is missed costs a question, and a wrong one more."""
    those = list(cases(part))
    assert [(each.text, each.wrong) for each in those if each.wrong] == []
    assert sum(each.right for each in those) / sum(len(each.stands) for each in those) >= 0.95
