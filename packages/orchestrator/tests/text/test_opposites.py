"""Words that exclude each other when they are said of one thing."""

import pytest

from remit.words.components import Component
from remit_orchestrator.text.conflicts import find
from remit_orchestrator.text.conflicts.clauses import action_of, kind_of, state_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("deep", "shallow"), ("deeper", "shallower"), ("survived", "died"), ("sharp", "blunt")),
        *(("painful", "painless"), ("fettreich", "fettarm"), ("lichtstärker", "lichtschwächer")),
        ("fortgesetzt", "eingestellt"),
    ],
)
def test_words_of_two_sides_stand_on_one_axis(one: str, other: str) -> None:
    here, there = state_of(one), state_of(other)
    assert here is not None
    assert there is not None
    assert here == (there[0], -there[1])


def test_a_noun_that_is_made_of_such_a_word_is_not_one() -> None:
    assert state_of("damaged") is not None
    assert state_of("damage") is None


def test_a_word_may_stand_on_a_second_axis() -> None:
    """What is blocked is neither approved nor open; `AXES` has the first."""
    assert state_of("blocked") == ("open", -1)


def test_kinds_and_actions_are_known_by_their_words() -> None:
    assert (kind_of("blue"), kind_of("yellow"), kind_of("table")) == ("colour", "colour", "")
    stay, leave = action_of("stay"), action_of("leave")
    assert stay is not None
    assert leave is not None
    assert stay == (leave[0], -leave[1])


def contradict(one: str, other: str) -> bool:
    return bool(find([Component("a", one), Component("b", other)]).conflicts)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The thin wire is hot.", "The thick wire is hot."),
        ("The tea is stronger than the coffee.", "The coffee is weaker than the tea."),
        ("The road was closed because of snow.", "The road is open again since noon."),
        ("The mixture is solid at 10 degrees.", "The mixture is liquid at 40 degrees."),
        ("There was damage to the hull.", "The hull was damaged."),
        ("The return for 2023 was filed in time.", "The return for 2024 was filed late."),
    ],
)
def test_what_only_tells_two_things_apart_is_no_contradiction(one: str, other: str) -> None:
    assert not contradict(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The lake is deep.", "The lake is shallow."),
        ("Use the eastern door.", "Avoid the eastern door."),
        ("The sequel is funnier than the first part.", "The sequel is less funny than the first part."),
        ("Kiel won the final.", "The final was won by Jena."),
        ("All samples were tested.", "Only two samples were tested."),
        ("The dome is shut because of the wind.", "The dome is open."),
    ],
)
def test_what_cannot_both_be_so_is_found(one: str, other: str) -> None:
    assert contradict(one, other)
