"""Which constraints are read in a user's words, and what breaks them: figures of the labelled texts."""

import pytest

from judgement_constraints import changed, results, stated, stating_none

PARTS = pytest.mark.parametrize("part", ["develop", "held"])


@PARTS
def test_most_constraints_are_read_and_few_that_nobody_stated(part: str) -> None:
    texts = list(stated(part))
    assert sum(each.right for each in texts) / sum(len(each.states) for each in texts) >= 0.9
    assert sum(len(each.wrong) for each in texts) <= 2
    none = list(stating_none(part))
    assert len(none) >= len(texts)
    assert sum(seen for _, seen in none) <= 3


@PARTS
def test_a_later_word_changes_or_lifts_a_constraint(part: str) -> None:
    those = list(changed(part))
    assert sum(each.whole for each in those) / len(those) >= 0.9


@PARTS
def test_what_breaks_a_constraint_is_pointed_out_and_little_else(part: str) -> None:
    those = list(results(part))
    broken = [each.right for each in those if each.breaks]
    assert sum(broken) / len(broken) >= 0.9
    assert sum(not each.right for each in those if not each.breaks) <= 1
