"""A request is split so that every word is in a piece, lists stay whole, and no condition is lost."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from remit_orchestrator.dialogue.phrases import phrases_of, tokens
from remit_orchestrator.dialogue.spans import TextPiece, Vocabulary, openings_of, split, unexplained
from remit_orchestrator.splitting import known_verbs

PHRASES = phrases_of("en")
TEAMS: list[dict[str, Any]] = tomllib.loads((Path(__file__).parents[1] / "judgement/parts.toml").read_text("utf-8"))[
    "team"
]
EXAMPLES = ["cancel my visit", "book a visit", "order search and rescue gear", "what does it cost", "Termin absagen"]


def vocabulary(examples: list[str]) -> Vocabulary:
    verbs = known_verbs()
    return Vocabulary(verbs, verbs | openings_of(examples, PHRASES), tuple(tokens(each) for each in examples))


def pieces(text: str, examples: list[str] = EXAMPLES) -> tuple[TextPiece, ...]:
    return split(text, PHRASES, vocabulary(examples), lambda _left, _right: False)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("cancel my visit", ["cancel my visit"]),
        ("cancel my visit and book a visit", ["cancel my visit", "book a visit"]),
        (
            "1) cancel my visit 2) add me to the list 3) show me how",
            ["cancel my visit", "add me to the list", "show me how"],
        ),
        ("a) my visit\nb) the list of today", ["my visit", "the list of today"]),
        ("- cancel my visit\n- call me a taxi", ["cancel my visit", "call me a taxi"]),
        ("cancel my visit\nbook a visit", ["cancel my visit", "book a visit"]),
        ("Cancel my visit. Book a visit!", ["Cancel my visit", "Book a visit"]),
        ("Hello! Could you book a visit? Thanks", ["Could you book a visit"]),
        ("order search and rescue gear, then book a visit", ["order search and rescue gear", "book a visit"]),
        ("order bread and butter", ["order bread and butter"]),
        ("sage den Termin ab und bestelle Brot", ["sage den Termin ab", "bestelle Brot"]),
    ],
)
def test_a_text_is_split_where_something_else_is_asked_for(text: str, parts: list[str]) -> None:
    assert [each.action.of(text) for each in pieces(text)] == parts


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("book a visit if it is free", ["if it is free"]),
        ("if it is free, book a visit", ["if it is free"]),
        ("if it is free book a visit", ["if it is free"]),
        ("What does it cost? Unless it is more than 50 euros, book a visit.", ["", "Unless it is more than 50 euros"]),
        ("book a visit only when Tom can come", ["only when Tom can come"]),
        ("If it is free, book a visit, otherwise cancel my visit", ["If it is free", "otherwise (If it is free)"]),
        ("Buche einen Besuch, falls es regnet", ["falls es regnet"]),
        ("Wenn es regnet, sage den Besuch ab", ["Wenn es regnet"]),
        ("tell me if it is free", [""]),
        ("when do you open", [""]),
        ("book a visit if you can", [""]),
    ],
)
def test_a_condition_stays_with_what_stands_under_it(text: str, conditions: list[str]) -> None:
    assert [each.condition for each in pieces(text)] == conditions


def test_a_condition_at_the_end_holds_for_all_that_may_stand_under_it() -> None:
    first, second = pieces("cancel my visit and book a visit if it rains")
    assert (first.condition, first.shared, second.condition, second.shared) == (
        "if it rains",
        True,
        "if it rains",
        False,
    )


def examples_of(team: dict[str, Any]) -> list[str]:
    return [text for each in team["capabilities"].values() for text in each["examples"]]


@pytest.mark.parametrize("team", TEAMS, ids=lambda team: team["name"])
def test_every_word_is_in_a_piece_and_lists_of_examples_are_whole(team: dict[str, Any]) -> None:
    examples = examples_of(team)
    for text, *_ in team["texts"]:
        assert "".join(each.whole.of(text) for each in pieces(text, examples)) == text
    firsts = [each["examples"][0] for each in team["capabilities"].values()][:4]
    joints = ("\n".join, ", ".join, " and ".join, "; ".join, ". ".join, ", then ".join)
    for text in (joint(firsts) for joint in joints):
        assert [tokens(each.action.of(text)) for each in pieces(text, examples)] == [tokens(each) for each in firsts]
    numbered = " ".join(f"{place}. {each}" for place, each in enumerate(firsts, 1))
    assert [tokens(each.action.of(numbered)) for each in pieces(numbered, examples)] == [
        tokens(each) for each in firsts
    ]


def test_of_the_labelled_requests_most_are_split_as_they_are_meant() -> None:
    """A check that is made from a condition has no words of its own."""
    right = total = 0
    for team in TEAMS:
        for text, *parts in team["texts"]:
            total += 1
            right += len(parts) - len(pieces(text, examples_of(team))) in (
                0,
                1 if any("?" in each for each in parts) else 0,
            )
    assert right / total >= 0.65


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("book a visit and my red shoes", "my red shoes"),
        ("book a visit and shoes", ""),
        ("book a visit and a check-up visit", ""),
        ("book a visit", ""),
    ],
)
def test_two_words_after_a_conjunction_that_nothing_explains_are_found(text: str, rest: str) -> None:
    assert unexplained(text, PHRASES, {"book", "visit"}) == rest


def test_a_long_text_is_not_searched() -> None:
    assert len(pieces("book a visit. " * 1_000)) == 1
