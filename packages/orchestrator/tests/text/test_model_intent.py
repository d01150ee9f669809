"""What a model is asked about a user's words (K7), and how much its word counts."""

from typing import Any

import pytest

from remit.protocol.card import Capability
from remit.runtime.schemas import misfits
from remit_orchestrator.text.classification import ClassifiedText, ScoredCapability
from remit_orchestrator.text.intent import Choose, Label, Planned, Unclear, decide, plan
from remit_orchestrator.text.model_proposals import DISPUTED, answer_schema, instructions, request, tempered, understood
from remit_orchestrator.text.request_plan import RequestPart

NPV = Capability(code="NPV", description="Work out\nwhat it is worth.", examples=("is it worth it", "npv please", "c"))
DOC = Capability(code="DOC")
CODES = ("NPV", "DOC", "ASK")
LABELS = {code: Label(target=code.lower(), description=f"Do {code.lower()}") for code in CODES}


def test_a_model_is_told_codes_descriptions_and_examples() -> None:
    """K7."""
    lines = instructions([NPV, DOC], examples=2).splitlines()
    assert lines[-2:] == ["- NPV: Work out what it is worth. People say: “is it worth it”; “npv please”", "- DOC: ."]
    assert "People say" not in instructions([NPV], examples=0)


def test_of_a_long_text_a_model_is_given_the_beginning() -> None:
    assert request("Sort it") == "Request:\nSort it"
    assert len(request("x" * 100_000)) < 2_100


def guess(code: str = "NPV", confidence: Any = 0.9) -> dict[str, Any]:
    return {"code": code, "confidence": confidence}


def test_one_intent_and_what_may_be_meant_instead() -> None:
    """K7: primary intent, with confidence."""
    reply = {"primary": guess(), "secondary": [], "alternatives": [guess("DOC", 0.3)]}
    assert misfits(answer_schema(CODES), reply) == ()
    assert understood(reply, CODES) == ClassifiedText([ScoredCapability("NPV", 0.9), ScoredCapability("DOC", 0.3)], [])


def test_secondary_intents_are_parts_of_their_own() -> None:
    """K7: secondary intents, with targets and confidence."""
    classified = understood(
        {"primary": guess(), "secondary": [guess("DOC", 0.8), guess("ASK", 0.4)]}, CODES, "money on paper"
    )
    assert isinstance(classified, ClassifiedText)
    decision = plan(classified, LABELS)
    assert isinstance(decision, Planned)
    assert [(each.how, each.text) for each in decision.parts] == [("act", "money on paper")] * 2 + [
        ("ask", "money on paper")
    ]


PARTS = tuple(RequestPart(text=text) for text in ("value it", "write it down", "sing a song"))


def of_part(part: int, code: str = "NPV", confidence: float = 0.9) -> dict[str, Any]:
    return {**guess(code, confidence), "part": part}


def test_a_model_is_given_the_parts_of_a_request_and_says_which_it_means() -> None:
    assert request("all of it", PARTS).endswith("Its parts:\n1. value it\n2. write it down\n3. sing a song")
    assert "Say of which part" in instructions([NPV], examples=0, parts=True)
    reply = {"primary": of_part(1), "secondary": [of_part(2, "DOC", 0.5)], "alternatives": [of_part(2, "ASK", 0.4)]}
    assert misfits(answer_schema(CODES, 3), reply) == ()
    classified = understood(reply, CODES, "all of it", PARTS)
    assert isinstance(classified, ClassifiedText)
    decision = plan(classified, LABELS)
    assert isinstance(decision, Planned)
    assert [(each.how, each.text) for each in decision.parts] == [
        ("act", "value it"),
        ("ask", "write it down"),
        ("cannot", "sing a song"),
    ]
    assert [each.intent.code for each in decision.parts[1].options] == ["DOC", "ASK"]


def test_what_a_model_names_besides_the_parts_is_not_lost() -> None:
    reply = {"primary": of_part(1), "secondary": [of_part(1, "DOC"), of_part(3, "NPV"), guess("ASK")]}
    classified = understood(reply, CODES, "all of it", PARTS)
    assert isinstance(classified, ClassifiedText)
    assert [each.text for each in classified.plan] == ["value it", "write it down", "sing a song", "value it"]
    assert [[each.code for each in scored] for scored in classified.parts] == [["NPV"], ["ASK"], ["NPV"], ["DOC"]]


def test_where_words_are_sure_of_another_part_the_user_is_asked_about_that_part() -> None:
    classified = understood({"primary": of_part(1)}, CODES, "all of it", PARTS[:2])
    assert isinstance(classified, ClassifiedText)
    words = ClassifiedText((), [[ScoredCapability("NPV", 0.9)], [ScoredCapability("DOC", 0.8)]])
    decision = plan(tempered(classified, words, act=0.6), LABELS)
    assert isinstance(decision, Planned)
    assert [each.how for each in decision.parts] == ["act", "ask"]


def test_nothing_is_an_answer_too() -> None:
    reply: dict[str, Any] = {"primary": None, "secondary": [], "alternatives": []}
    assert misfits(answer_schema(CODES), reply) == ()
    assert understood(reply, CODES) == ClassifiedText([], [])


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("NPV", "has not the form"),
        ({}, "missing required field `primary`"),
        ({"primary": "NPV"}, "has not the form"),
        ({"primary": guess(), "mood": "good"}, "unknown field"),
        ({"primary": guess(confidence=1.2)}, "<= 1.0"),
        ({"primary": guess(confidence=-0.1)}, ">= 0.0"),
        ({"primary": guess(confidence=float("nan"))}, "has not the form"),
        ({"primary": guess(confidence="0.9")}, "got `str`"),
        ({"primary": guess(confidence=True)}, "got `bool`"),
        ({"primary": guess("DELETE" * 100)}, "it named `DELETEDELETE"),
        ({"primary": guess(), "alternatives": [guess()]}, "it named `NPV` twice"),
        ({"primary": None, "secondary": [guess()]}, "and not what is asked for first"),
        ({"primary": {**guess(), "part": 4}}, "it named part 4 of 0"),
    ],
)
def test_what_a_model_must_not_say_is_refused(reply: Any, why: str) -> None:
    refused = understood(reply, CODES)
    assert isinstance(refused, str)
    assert why in refused
    assert len(refused) < 250


# ── how much it counts ────────────────────────────────────────────────────────────────────────────────────────────────

SURE = ClassifiedText([ScoredCapability("NPV", 0.95)])


@pytest.mark.parametrize(
    "by_words",
    [
        ClassifiedText(()),
        ClassifiedText([ScoredCapability("DOC", 0.5)]),
        ClassifiedText([ScoredCapability("NPV", 0.9)]),
        ClassifiedText(
            [ScoredCapability("DOC", 0.3)], [[ScoredCapability("NPV", 0.9)], [ScoredCapability("DOC", 0.9)]]
        ),
    ],
)
def test_what_words_do_not_contradict_stands_as_the_model_says_it(by_words: ClassifiedText) -> None:
    assert tempered(SURE, by_words, act=0.6) is SURE


def test_where_words_are_sure_of_something_else_the_user_is_asked() -> None:
    """K7: several valid routes are offered."""
    classified = tempered(SURE, ClassifiedText([ScoredCapability("DOC", 0.8)]), act=0.6)
    assert classified.whole == [ScoredCapability("NPV", DISPUTED), ScoredCapability("DOC", DISPUTED)]
    decision = decide(classified, LABELS)
    assert isinstance(decision, Choose)
    assert [option.intent.code for option in decision.options] == ["NPV", "DOC"]


def test_where_a_model_finds_nothing_and_words_do_the_user_is_asked() -> None:
    classified = tempered(
        ClassifiedText(()),
        ClassifiedText([ScoredCapability("ASK", 0.1)], [[ScoredCapability("DOC", 0.8)], []]),
        act=0.6,
    )
    assert isinstance(decide(classified, LABELS), Unclear)


def test_what_the_model_has_considered_is_no_contradiction() -> None:
    classified = ClassifiedText([ScoredCapability("NPV", 0.9), ScoredCapability("DOC", 0.1)])
    assert tempered(classified, ClassifiedText([ScoredCapability("DOC", 0.8)]), act=0.6) is classified
