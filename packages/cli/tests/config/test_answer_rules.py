"""A team's rules about answers: by words, values, personal data, size, a schema, and functions of its own."""

from typing import Any

import msgspec
import pytest

from remit.policy.guards import judge
from remit.policy.verdict import ALLOW, Ask, Facts, Finding, Refuse, Rewrite, Verdict
from remit.protocol.codec import decode, encode
from remit.protocol.envelope import AnswerContent, Artifact, Json
from remit.protocol.files import File
from remit_cli.config.rules import Rule, answer_guard_of, guard_of, matching_rule
from samples import a_request


def finds_bob(text: str) -> list[Finding]:
    return [Finding(text.index("bob@x"), text.index("bob@x") + 5, "EMAIL")] if "bob@x" in text else []


def long_words(result: Json) -> object:
    return "words are long" if "extraordinarily" in str(result) else False


CHECKS = {"own:long_words": long_words}


def verdict(*rules: Rule, approved: tuple[str, ...] = (), **content: Any) -> Verdict:
    given: dict[str, Any] = {"result": "fine"} | content
    answer = AnswerContent(**given)
    request = a_request(act="answer", origin="writer", target="boss", input=answer.result)
    facts = Facts(target=None, answer=answer, approved=frozenset(approved))
    return answer_guard_of(rules, CHECKS, finds_bob)(request, facts)


@pytest.mark.parametrize(
    ("rule", "content"),
    [
        ({}, {}),
        ({"from": "writer", "to": "boss"}, {}),
        ({"mentions": ["secret"]}, {"result": "a s-e-c-r-e-t"}),
        ({"mentions": ["secret"]}, {"summary": "Secret"}),
        ({"mentions": ["secret"]}, {"artifacts": (Artifact(type="json", value={"a": ["secret"]}),)}),
        ({"mentions": ["secret"]}, {"files": (File(name="secret.txt", media_type="text/plain", data=b"x"),)}),
        ({"where": {"amount": "> 100"}}, {"result": {"amount": 500}}),
        ({"where": {"amount": "> 100"}}, {"result": {}}),  # what cannot be told counts against it
        ({"finds": ["EMAIL"]}, {"summary": "to bob@x"}),
        ({"finds": ["*"]}, {"result": {"to": "bob@x"}}),
        ({"longer_than": 3}, {}),
        ({"longer_than": 5}, {"summary": "too"}),
        ({"unless_schema": {"type": "integer"}}, {}),
        ({"check": "own:long_words"}, {"result": "extraordinarily"}),
    ],
)
def test_an_answer_that_matches_is_refused(rule: dict[str, Any], content: dict[str, Any]) -> None:
    made = msgspec.convert({"then": "refuse", "on": "answer"} | rule, Rule)
    assert isinstance(verdict(made, **content), Refuse)


@pytest.mark.parametrize(
    ("rule", "content"),
    [
        ({"from": "boss"}, {}),
        ({"to": "user"}, {}),
        ({"mentions": ["secret"]}, {}),
        ({"where": {"amount": "> 100"}}, {"result": {"amount": 5}}),
        ({"finds": ["IBAN"]}, {"result": "bob@x"}),
        ({"longer_than": 4}, {}),
        ({"unless_schema": {"type": "string"}}, {}),
        ({"check": "own:long_words"}, {}),
        ({"on": "call"}, {}),
    ],
)
def test_another_passes(rule: dict[str, Any], content: dict[str, Any]) -> None:
    made = msgspec.convert({"then": "refuse", "on": "answer"} | rule, Rule)
    assert verdict(made, **content) is ALLOW


def test_the_reason_is_what_the_team_or_its_function_says() -> None:
    def message(**fields: Any) -> str:
        refusal = verdict(Rule(then="refuse", on="answer", **fields), result="extraordinarily")
        assert isinstance(refusal, Refuse)
        return refusal.fault.message

    assert message() == "the team does not let writer give boss this answer"
    assert message(check="own:long_words") == "words are long"
    assert message(check="own:long_words", say="Shorter, please.") == "Shorter, please."
    assert verdict(Rule(then="ask", on="answer", check="own:long_words"), result="extraordinarily") == Ask(
        "May writer give boss this answer? (words are long)"
    )


def test_a_rule_that_changes_an_answer_leaves_the_rest_to_those_after_it() -> None:
    hides = Rule(then="rewrite", on="answer", finds=("EMAIL",))
    cuts = Rule(then="rewrite", on="answer", longer_than=10)
    content: dict[str, Any] = {"result": {"to": "bob@x", "n": 1}, "summary": "for bob@x!"}
    changed = verdict(hides, **content)
    assert isinstance(changed, Rewrite)
    assert changed.answer == AnswerContent({"to": "[EMAIL]", "n": 1}, summary="for [EMAIL]!")
    cut = verdict(hides, cuts, result="write to bob@x")
    assert isinstance(cut, Rewrite)
    assert cut.answer == AnswerContent("write to …")
    assert cut.request.input == "write to …"
    short = verdict(cuts, result="short", summary="as short as this")
    assert isinstance(short, Rewrite)
    assert short.answer == AnswerContent("short"), "what is beside the result is left out"
    assert isinstance(verdict(hides, Rule(then="refuse", on="answer", mentions=("1",)), **content), Refuse)
    assert isinstance(verdict(hides, Rule(then="allow", on="answer"), **content), Rewrite)


def test_what_a_person_agreed_to_is_changed_all_the_same() -> None:
    rules = (Rule(then="rewrite", on="answer", finds=("EMAIL",)), Rule(then="ask", on="answer", say="May it?"))
    assert verdict(*rules, result="bob@x") == Ask("May it?")
    passed = verdict(*rules, result="bob@x", approved=("May it?",))
    assert isinstance(passed, Rewrite)
    assert passed.answer == AnswerContent("[EMAIL]")
    request = a_request(act="answer", input="bob@x")
    facts = Facts(target=None, answer=AnswerContent("bob@x"), approved=frozenset({"May it?"}))
    whole = judge(request, facts, [answer_guard_of(rules, {}, finds_bob)])
    assert isinstance(whole, Rewrite)
    assert whole.answer == AnswerContent("[EMAIL]")


def test_rules_about_answers_say_nothing_about_calls() -> None:
    rules = (Rule(then="refuse", on="answer"), Rule(then="allow"))
    assert guard_of(rules)(a_request(), Facts(target=None)) is ALLOW
    assert matching_rule(rules, a_request()) == 1
    assert matching_rule(rules, a_request(act="answer")) == 0


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"then": "refuse", "finds": ["EMAIL"]}, 'add `on = "answer"`'),
        ({"then": "refuse", "longer_than": 5}, 'add `on = "answer"`'),
        ({"then": "rewrite"}, "needs `finds` or `longer_than`"),
        ({"then": "rewrite", "on": "answer", "mentions": ["x"]}, "needs `finds` or `longer_than`"),
        ({"then": "refuse", "on": "answer", "tool": "pay"}, "leave `tool` out"),
        ({"then": "refuse", "on": "answer", "unless_schema": {"type": "number!"}}, "unless_schema: "),
        ({"then": "refuse", "on": "answer", "longer_than": 0}, ">= 1"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rule: dict[str, Any], why: str) -> None:
    with pytest.raises(Exception, match="wrong") as error:
        decode(encode(rule), Rule)
    assert why in str(error.value.__cause__) or why in str(getattr(error.value, "fault", ""))
