"""What a local agent wants to send goes by itself only if no rule asks that a person see it first."""

from collections.abc import Iterable
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.policy.verdict import Finding
from remit_redaction.pipeline import KINDS, detector_pipeline
from remit_relay.bridge.ports import Draft
from remit_relay.session.review import CREDENTIALS, RULES, Review, ReviewFacts, ReviewRules, Rule, reviews

DETECT = detector_pipeline()
OBJECTIVE = "review this API for security issues"
ON_TOPIC = "Which endpoints of the API have had security reviews, and which issues were found there?"


def facts(**fields: Any) -> ReviewFacts:
    return replace(ReviewFacts(objective=OBJECTIVE, first_contact=False, detect=DETECT), **fields)


def asked(
    text: str = ON_TOPIC,
    *,
    confidence: float | None = 0.9,
    rules: ReviewRules = ReviewRules(),  # noqa: B008 (it is frozen)
    **known: Any,
) -> list[str]:
    return [review.rule for review in reviews(Draft(text=text, confidence=confidence), facts(**known), rules)]


def why(rule: Rule, text: str, **known: Any) -> str:
    """Return why *rule* asks, of all that ask."""
    return next(
        review.why for review in reviews(Draft(text=text, confidence=0.9), facts(**known)) if review.rule == rule
    )


# ── all of them ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sure_draft_about_the_objective_may_be_sent() -> None:
    assert asked() == []


def test_each_rule_has_a_name_and_a_sentence() -> None:
    """S6: the rules are explicit and shown."""
    assert tuple(RULES) == get_args(Rule)
    assert all(sentence.endswith(".") for sentence in RULES.values())


EXAMPLES: dict[Rule, dict[str, Any]] = {
    "low_confidence": {"confidence": 0.3},
    "first_contact": {"first_contact": True},
    "money": {"text": f"{ON_TOPIC} We pay for each."},
    "credentials": {"text": f"{ON_TOPIC} My password: hunter2secret"},
    "personal_data": {"text": f"{ON_TOPIC} Write to ann.lee@example.org"},
    "links": {"text": f"{ON_TOPIC} See https://example.com/spec"},
    "large_edit": {"text": f"{ON_TOPIC}\n```\nprint(1)\n```"},
    "off_objective": {"text": "Tomorrow the weather in Lisbon stays sunny, bring sunscreen and sandals."},
    "attachments": {"attachments": True},
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_asks_by_itself_and_can_be_switched_off(rule: Rule) -> None:
    """S6: review on a confidence or risk rule; tuned for each profile."""
    assert asked(**EXAMPLES[rule]) == [rule]
    assert asked(**EXAMPLES[rule], rules=ReviewRules(off=frozenset({rule}))) == []


def test_all_rules_that_ask_are_named_in_their_order() -> None:
    text = "Pay $90 with password: hunter2secret to bob@example.org at https://example.org ```code\n```\n```"
    assert asked(text, confidence=None, first_contact=True, attachments=True) == list(RULES)


@given(st.text(), st.sampled_from([None, 0.0, 0.9]), st.booleans(), st.sets(st.sampled_from(list(RULES))))
def test_a_rule_that_is_off_changes_nothing_for_the_others(
    text: str, confidence: float | None, first: bool, off: set[Rule]
) -> None:
    draft, known = Draft(text=text, confidence=confidence), facts(first_contact=first)
    every = reviews(draft, known)
    assert reviews(draft, known, ReviewRules(off=frozenset(off))) == tuple(r for r in every if r.rule not in off)


def test_a_review_survives_being_written_and_read() -> None:
    review = Review(rule="links", why="It links to example.com.")
    assert msgspec.json.decode(msgspec.json.encode(review), type=Review) == review


# ── confidence, contact ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("confidence", "expected"),
    [(None, ["low_confidence"]), (0.69, ["low_confidence"]), (float("nan"), ["low_confidence"]), (0.7, []), (1, [])],
)
def test_an_agent_that_is_not_sure_or_does_not_say_is_reviewed(confidence: float | None, expected: list[str]) -> None:
    """S6: absent confidence means review."""
    assert asked(confidence=confidence) == expected


def test_how_sure_an_agent_must_be_can_be_tuned() -> None:
    assert asked(confidence=0.5, rules=ReviewRules(min_confidence=0.5)) == []
    draft = Draft(text=ON_TOPIC, confidence=0.5)
    assert reviews(draft, facts()) == (
        Review(rule="low_confidence", why="The agent is sure to 0.50, and 0.70 is wanted."),
    )


# ── money, credentials, personal data ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        "It costs $40.",
        "about 40 euros",
        "1,200 USD",
        "send USD 300",
        "£5",
        "＄40",
        "I paid for it",
        "the in\u200bvoice",
        "Die Rechnung kommt",
        "by wire transfer",
        "0.5 BTC",
        "card 4111 1111 1111 1111",
        "DE89 3704 0044 0532 0130 00",
    ],
)
def test_whatever_is_about_money_is_reviewed(text: str) -> None:
    assert "money" in asked(text)


@pytest.mark.parametrize("text", ["Pay attention to issue 40.", "40 users", "version 1.2", "It repays reading? No."])
def test_other_figures_and_words_are_not_taken_for_money(text: str) -> None:
    assert "money" not in asked(text)


def test_reasons_never_show_what_they_found() -> None:
    """S13: no plaintext secrets."""
    secrets = ["4111 1111 1111 1111", "hunter2secret", "ann.lee@example.org", "tom:hunter2@"]
    text = f"{secrets[0]}, password: {secrets[1]}, {secrets[2]}, https://{secrets[3]}example.com/?token=hunter2secret"
    found = reviews(Draft(text=text), facts())
    assert {"money", "credentials", "personal_data", "links"} <= {review.rule for review in found}
    assert not [review for review in found for secret in secrets if secret in review.why or "hunter2" in review.why]


def test_reasons_name_the_kinds_that_were_found() -> None:
    text = "password: hunter2secret for ann.lee@example.org and 4111 1111 1111 1111"
    assert why("credentials", text) == "It seems to hold: password."
    assert why("personal_data", text) == "It seems to hold: credit card, email."
    assert why("money", text) == "It seems to hold: credit card."


@pytest.mark.parametrize("kind", [*KINDS, "EMPLOYEE_ID"])
def test_every_kind_that_a_detector_finds_is_a_credential_or_personal(kind: str) -> None:
    """Also kinds of a user's own detector, which nobody here has heard of."""

    def detect(text: str) -> Iterable[Finding]:
        return [Finding(0, len(text), kind)]

    expected = "credentials" if kind in CREDENTIALS else "personal_data"
    assert expected in asked(detect=detect)


def test_the_credentials_are_kinds_that_there_are() -> None:
    assert KINDS.keys() >= CREDENTIALS


# ── links ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("see https://Example.com/a?b", "example.com"),
        ("[here](http://a.example/x)", "a.example"),
        ("https://user:secret@host.example:8080/", "host.example:8080"),
        ("www.example.org", "www.example.org"),
        ("go to example.com, now", "example.com"),
        ("ssh://box", "box"),
        ("mailto:ann", "a mailto: address"),
        ("javascript:alert(1)", "a javascript: address"),
        ("https:///x", "an unnamed place"),
        ("hxxps://evil.example", "evil.example"),
        ("ht\u200btps://example.com", "example.com"),
        ("ｈttps：／／example.com", "example.com"),
    ],
)
def test_links_are_reviewed_and_said_where_they_lead(text: str, place: str) -> None:
    assert why("links", text) == f"It links to {place}."


def test_of_several_links_the_first_is_named() -> None:
    assert why("links", "https://a.example/1 https://a.example/2 https://b.example") == (
        "It links to a.example and 1 more."
    )


@pytest.mark.parametrize("text", ["setup.py and notes.md", "e.g. this", "3.14", "either/or", "note: this", "co.work"])
def test_names_of_files_and_the_like_are_no_links(text: str) -> None:
    assert "links" not in asked(text)


# ── large edits ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("api security " * 400, "It has 5,200 characters, more than 4,000."),
        ("Try this:\n  ```python\nx\n```", "It carries a block of code."),
        ("~~~\nx\n~~~", "It carries a block of code."),
        ("diff --git a/x b/x", "It carries a patch."),
        ("text\n@@ -1,2 +1,3 @@", "It carries a patch."),
        ("A" * 400, "It carries encoded data."),
    ],
)
def test_what_is_long_or_carries_something_is_reviewed(text: str, reason: str) -> None:
    assert why("large_edit", text) == reason


def test_a_draft_just_within_what_is_usual_is_not_large() -> None:
    assert "large_edit" not in asked("api " * 1_000)
    assert "large_edit" not in asked(f"use `code` inline, {'A' * 399}")
    assert "large_edit" in asked(ON_TOPIC, rules=ReviewRules(max_chars=20))


# ── off the objective ─────────────────────────────────────────────────────────────────────────────────────────────────

ASTRAY = "Tomorrow the weather in Lisbon stays sunny, bring sunscreen and sandals."


def test_a_draft_that_shares_few_words_with_what_it_is_about_is_reviewed() -> None:
    assert why("off_objective", ASTRAY) == (
        "Of its 8 telling words 0 also stand in the objective or in the last reply."
    )


def test_a_draft_may_be_about_what_the_other_side_said() -> None:
    assert asked(ASTRAY, remote_message="What will the weather be?") == []


def test_words_are_the_same_in_other_forms() -> None:
    assert asked("Describe endpoints, tokens, rotation, storage: anything securing them.") == []
    assert asked("Describe endpoints, tokens, rotation, storage: ANYTHING SECURING THEM.") == []


def test_what_says_too_little_to_be_about_anything_is_not_reviewed() -> None:
    assert asked("Yes, thank you very much. Please go on with the next ones!") == []


def test_scripts_without_spaces_are_read_too() -> None:
    assert "off_objective" not in asked("安全性の問題はありますか", objective="このAPIの安全性を確認する")
    assert "off_objective" in asked("明日の天気は晴れでしょう", objective="このAPIの安全性を確認する")
    assert "off_objective" not in asked("安", objective="このAPIの安全性を確認する")


def test_how_many_words_must_be_shared_can_be_tuned() -> None:
    assert asked(ASTRAY, rules=ReviewRules(min_shared_words=0)) == []
    assert asked(rules=ReviewRules(min_shared_words=1)) == ["off_objective"]
