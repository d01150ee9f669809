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
from remit_relay.bridge.ports import Draft, ReviewRule
from remit_relay.session.review import CREDENTIALS, RULES, Review, ReviewFacts, ReviewRules, reviews

DETECT = detector_pipeline()
OBJECTIVE = "review this API for security issues"
ON_TOPIC = "Which endpoints of the API have had security reviews, and which issues were found there?"


def facts(**fields: Any) -> ReviewFacts:
    return replace(ReviewFacts(objective=OBJECTIVE, first_contact=False, detect=DETECT), **fields)


def rules_asking(
    text: str = ON_TOPIC,
    *,
    confidence: float | None = 0.9,
    rules: ReviewRules = ReviewRules(),  # noqa: B008 (it is frozen)
    **known: Any,
) -> list[str]:
    return [review.rule for review in reviews(Draft(text=text, confidence=confidence), facts(**known), rules)]


def why(rule: ReviewRule, text: str, **known: Any) -> str:
    """Return why *rule* asks, of all that ask."""
    return next(
        review.why for review in reviews(Draft(text=text, confidence=0.9), facts(**known)) if review.rule == rule
    )


# ── all of them ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_rule_has_a_name_and_a_sentence() -> None:
    """S6: the rules are explicit and shown."""
    assert tuple(RULES) == get_args(ReviewRule)
    assert all(sentence.endswith(".") for sentence in RULES.values())


EXAMPLES: dict[ReviewRule, dict[str, Any]] = {
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
def test_each_rule_asks_by_itself_and_can_be_switched_off(rule: ReviewRule) -> None:
    """S6: review on a confidence or risk rule; tuned for each profile."""
    assert rules_asking() == []
    assert rules_asking(**EXAMPLES[rule]) == [rule]
    assert rules_asking(**EXAMPLES[rule], rules=ReviewRules(off=frozenset({rule}))) == []


def test_all_rules_that_ask_are_named_in_their_order() -> None:
    text = "Pay $90 with password: hunter2secret to bob@example.org at https://example.org ```code\n```\n```"
    assert rules_asking(text, confidence=None, first_contact=True, attachments=True) == list(RULES)


@given(st.text(), st.sampled_from([None, 0.0, 0.9]), st.booleans(), st.sets(st.sampled_from(list(RULES))))
def test_a_rule_that_is_off_changes_nothing_for_the_others(
    text: str, confidence: float | None, first: bool, off: set[ReviewRule]
) -> None:
    draft, known = Draft(text=text, confidence=confidence), facts(first_contact=first)
    every = reviews(draft, known)
    assert reviews(draft, known, ReviewRules(off=frozenset(off))) == tuple(r for r in every if r.rule not in off)


def test_a_review_survives_being_written_and_read() -> None:
    review = Review(rule="links", why="It links to example.com.")
    assert msgspec.json.decode(msgspec.json.encode(review), type=Review) == review


# ── each rule ─────────────────────────────────────────────────────────────────────────────────────────────────────────

ASTRAY = EXAMPLES["off_objective"]["text"]
SAFETY = "このAPIの安全性を確認する"

MONEY = (
    *("It costs $40.", "about 40 euros", "1,200 USD", "send USD 300", "£5", "＄40", "I paid for it", "0.5 BTC"),
    *("the in\u200bvoice", "Die Rechnung kommt", "by wire transfer", "card 4111 1111 1111 1111"),
    "DE89 3704 0044 0532 0130 00",
)
NO_MONEY = ("Pay attention to issue 40.", "40 users", "version 1.2", "It repays reading? No.")
NO_LINKS = ("setup.py and notes.md", "e.g. this", "3.14", "either/or", "note: this", "co.work")
ON_THE_OBJECTIVE: tuple[dict[str, Any], ...] = (
    {"text": ASTRAY, "remote_message": "What will the weather be?"},
    {"text": "Describe endpoints, tokens, rotation, storage: anything securing them."},
    {"text": "Describe endpoints, tokens, rotation, storage: ANYTHING SECURING THEM."},
    {"text": "Yes, thank you very much. Please go on with the next ones!"},
    {"text": "安全性の問題はありますか", "objective": SAFETY},
    {"text": "安", "objective": SAFETY},
    {"text": ASTRAY, "rules": ReviewRules(min_shared_words=0)},
)


@pytest.mark.parametrize(
    ("rule", "asks", "draft"),
    [
        # S6: absent confidence means review.
        *(("low_confidence", True, {"confidence": sure}) for sure in (None, 0.69, float("nan"))),
        *(("low_confidence", False, {"confidence": sure}) for sure in (0.7, 1)),
        ("low_confidence", False, {"confidence": 0.5, "rules": ReviewRules(min_confidence=0.5)}),
        *(("money", True, {"text": text}) for text in MONEY),
        *(("money", False, {"text": text}) for text in NO_MONEY),
        *(("links", False, {"text": text}) for text in NO_LINKS),
        ("large_edit", False, {"text": "api " * 1_000}),
        ("large_edit", False, {"text": f"use `code` inline, {'A' * 399}"}),
        ("large_edit", True, {"rules": ReviewRules(max_chars=20)}),
        *(("off_objective", False, each) for each in ON_THE_OBJECTIVE),
        ("off_objective", True, {"text": "明日の天気は晴れでしょう", "objective": SAFETY}),
        ("off_objective", True, {"rules": ReviewRules(min_shared_words=1)}),
    ],
)
def test_a_rule_asks_for_what_it_is_about_and_for_nothing_else(
    rule: ReviewRule, asks: bool, draft: dict[str, Any]
) -> None:
    assert (rule in rules_asking(**draft)) is asks


@pytest.mark.parametrize(
    ("rule", "text", "reason"),
    [
        ("credentials", "password: hunter2secret for ann.lee@example.org", "It seems to hold: password."),
        ("personal_data", "ann.lee@example.org, 4111 1111 1111 1111", "It seems to hold: credit card, email."),
        ("money", "4111 1111 1111 1111", "It seems to hold: credit card."),
        *(
            ("links", text, f"It links to {place}.")
            for text, place in (
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
                ("https://a.example/1 https://a.example/2 https://b.example", "a.example and 1 more"),
            )
        ),
        ("large_edit", "api security " * 400, "It has 5,200 characters, more than 4,000."),
        ("large_edit", "Try this:\n  ```python\nx\n```", "It carries a block of code."),
        ("large_edit", "~~~\nx\n~~~", "It carries a block of code."),
        ("large_edit", "diff --git a/x b/x", "It carries a patch."),
        ("large_edit", "text\n@@ -1,2 +1,3 @@", "It carries a patch."),
        ("large_edit", "A" * 400, "It carries encoded data."),
        ("off_objective", ASTRAY, "Of its 8 telling words 0 also stand in the objective or in the last reply."),
    ],
)
def test_a_rule_says_why_it_asks(rule: ReviewRule, text: str, reason: str) -> None:
    assert why(rule, text) == reason


def test_how_sure_the_agent_is_and_must_be_is_said() -> None:
    assert reviews(Draft(text=ON_TOPIC, confidence=0.5), facts()) == (
        Review(rule="low_confidence", why="The agent is sure to 0.50, and 0.70 is wanted."),
    )


def test_reasons_never_show_what_they_found() -> None:
    """S13: no plaintext secrets."""
    secrets = ["4111 1111 1111 1111", "hunter2secret", "ann.lee@example.org", "tom:hunter2@"]
    text = f"{secrets[0]}, password: {secrets[1]}, {secrets[2]}, https://{secrets[3]}example.com/?token=hunter2secret"
    all_reviews = reviews(Draft(text=text), facts())
    assert {"money", "credentials", "personal_data", "links"} <= {review.rule for review in all_reviews}
    assert not [
        review for review in all_reviews for secret in secrets if secret in review.why or "hunter2" in review.why
    ]


@pytest.mark.parametrize("kind", [*KINDS, "EMPLOYEE_ID"])
def test_every_kind_that_a_detector_finds_is_a_credential_or_personal(kind: str) -> None:
    """Also kinds of a user's own detector, which nobody here has heard of."""

    def detect(text: str) -> Iterable[Finding]:
        return [Finding(0, len(text), kind)]

    assert KINDS.keys() >= CREDENTIALS
    assert ("credentials" if kind in CREDENTIALS else "personal_data") in rules_asking(detect=detect)
