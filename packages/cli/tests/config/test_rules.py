"""A team's own rules: the first that fits decides, and what no rule fits is allowed."""

from typing import Any

import msgspec
import pytest

from remit.policy.verdict import ALLOW, Ask, Facts, Refuse, Verdict
from remit.protocol.conditions import Condition, ValueBounds
from remit.protocol.envelope import Handoff
from remit.protocol.errors import Code
from remit.protocol.files import File
from remit_cli.config.rules import Rule, guard_of, matching_rule
from samples import a_remit, a_request

FACTS = Facts(target=None)


def verdict(*rules: Rule, **changes: Any) -> Verdict:
    return guard_of(rules)(a_request(**changes), FACTS)


def refuses(rule: Rule, **changes: Any) -> bool:
    return isinstance(verdict(rule, **changes), Refuse)


def test_without_rules_everything_is_allowed() -> None:
    assert verdict() is ALLOW


def test_the_first_rule_that_fits_decides() -> None:
    """C6: order is data."""
    allow, forbid = Rule(then="allow", to="tag"), Rule(then="refuse")
    assert verdict(allow, forbid) is ALLOW
    assert isinstance(verdict(forbid, allow), Refuse)
    assert isinstance(verdict(Rule(then="allow", to="other"), forbid), Refuse)


def test_the_rule_that_decides_is_found_by_its_place() -> None:
    rules = (Rule(then="refuse", to="nobody"), Rule(then="allow", to="*"))
    assert matching_rule(rules, a_request()) == 1
    assert matching_rule(rules[:1], a_request()) is None


def test_what_no_rule_fits_is_allowed() -> None:
    assert verdict(Rule(then="refuse", to="other"), Rule(then="ask", from_="other")) is ALLOW


@pytest.mark.parametrize(
    ("rule", "changes", "fits"),
    [
        (Rule(then="refuse", from_="prime"), {}, True),
        (Rule(then="refuse", from_="pri*"), {}, True),
        (Rule(then="refuse", from_="PRIME"), {}, False),
        (Rule(then="refuse", to="t?g"), {}, True),
        (Rule(then="refuse", to="tax"), {}, False),
        (Rule(then="refuse", user="u-*"), {}, True),
        (Rule(then="refuse", user="u-2"), {}, False),
        (Rule(then="refuse", user="u-2"), {"remit": a_remit(user="u-2")}, True),
        (Rule(then="refuse", capability="PAY*"), {"capability": "PAY_BILL"}, True),
        (Rule(then="refuse", capability="PAY*"), {"capability": "READ"}, False),
        (Rule(then="refuse", capability="PAY*"), {}, False),
        (Rule(then="refuse", capability="*"), {}, True),
        (Rule(then="refuse", from_="prime", to="other"), {}, False),
    ],
)
def test_a_rule_fits_if_each_of_its_patterns_does(rule: Rule, changes: dict[str, Any], fits: bool) -> None:
    assert refuses(rule, **changes) is fits


@pytest.mark.parametrize(
    ("rule", "call", "use"),
    [
        (Rule(then="refuse", tool="pay"), False, True),
        (Rule(then="refuse", tool="p*"), False, True),
        (Rule(then="refuse", tool="tag"), False, False),
        (Rule(then="refuse", to="tag"), True, False),
        (Rule(then="refuse", to="pay"), False, False),
        (Rule(then="refuse", capability="*"), True, False),
        (Rule(then="refuse"), True, True),
        (Rule(then="refuse", from_="prime", mentions=("eve",)), False, True),
        (Rule(then="refuse", to="tag", where={"amount": "> 100"}), True, False),  # the call has no such field
        (Rule(then="allow", to="tag", where={"amount": "> 100"}), False, False),
        (Rule(then="allow", tool="*", where={"amount": "> 100"}), False, True),
        (Rule(then="refuse", tool="pay", where={"amount": "> 500"}), False, False),
        (Rule(then="refuse", tool="pay", where={"amount": 500, "to": ("eve", "mallory")}), False, True),
        (Rule(then="refuse", tool="pay", where={"amount": 500, "to": ValueBounds(not_in=("eve",))}), False, False),
        (Rule(then="refuse", tool="pay", where={"purpose": "rent"}), False, True),  # it cannot be told
        (Rule(then="allow", tool="pay", where={"purpose": "rent"}), False, False),
    ],
)
def test_a_rule_is_about_calls_or_about_tools_and_their_arguments(rule: Rule, call: bool, use: bool) -> None:
    used = a_request(target="pay", objective="", input={"to": "Eve", "amount": 500}, act="tool")
    assert (matching_rule([rule], a_request()) == 0, matching_rule([rule], used) == 0) == (call, use)


def test_only_a_list_whose_values_all_fit_is_allowed_and_one_that_does_is_enough_to_refuse() -> None:
    used = a_request(target="pay", objective="", input={"to": ["bob", "eve"]}, act="tool")
    bob: dict[str, Condition] = {"to": "bob"}
    rules = [Rule(then=then, tool="pay", where=bob) for then in ("allow", "ask", "refuse")]
    assert [matching_rule([rule], used) for rule in rules] == [None, 0, 0]


def test_conditions_need_what_they_are_about() -> None:
    with pytest.raises(ValueError, match="`where` needs the `tool`"):
        Rule(then="refuse", where={"amount": "> 100"})


def test_a_rule_about_a_tool_speaks_of_its_use() -> None:
    used: dict[str, Any] = {"target": "pay", "objective": "", "input": {}, "act": "tool"}
    assert verdict(Rule(then="ask", tool="pay"), **used) == Ask("May prime use pay?")
    refused = verdict(Rule(then="refuse", tool="pay"), **used)
    assert isinstance(refused, Refuse)
    assert refused.fault.message == "the team does not let prime use pay"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"tool": "pay", "to": "tag"}, "a rule is about a tool"),
        ({"tool": "pay", "capability": "PAY"}, "a rule is about a tool"),
        ({"tool": "pay", "where": {"amount": "> much"}}, "where.amount: `> much` compares with no number"),
        ({"where": {"amount": "> 5"}}, "`where` needs the `tool`, or the agent"),
    ],
)
def test_a_rule_that_makes_no_sense_says_why(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Rule(then="refuse", **wrong)


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({"objective": "WIRE the money"}, True),
        ({"objective": "x", "input": "please Transfer"}, True),
        ({"objective": "x", "input": {"how": ["by wire"]}}, True),
        ({"objective": "x", "input": {"transfer": 1}}, True),
        ({"objective": "Straße", "input": None}, True),
        ({"objective": "look", "input": "nothing"}, False),
        ({"objective": "w", "input": "ire"}, False),
        ({"objective": "x", "input": [1, {"a": ["b", None, "wi\nre"]}]}, True),
        ({"objective": "x", "hints": ("a wire",)}, True),
        ({"objective": "x", "target": "wire-bot"}, True),
        ({"objective": "x", "capability": "WIRE_IT"}, True),
        ({"objective": "x", "files": (File(name="wire.bin", data=b"\xff"),)}, True),
        ({"objective": "x", "files": (File(name="a.txt", url="https://example.org/wire"),)}, True),
        ({"objective": "x", "files": (File(name="a.txt", media_type="text/plain", data="wіre".encode()),)}, True),
        ({"objective": "x", "files": (File(name="a.bin", data=b"\xffwire"),)}, False),
        ({"objective": "x", "handoff": Handoff(data={"how": "wire"})}, True),
        ({"objective": "x", "handoff": Handoff(original_request="wire")}, False),
    ],
)
def test_a_rule_about_words_fits_where_one_of_them_stands(changes: dict[str, Any], fits: bool) -> None:
    """Whatever their case, in anything that the callee is told; not across two texts."""
    assert refuses(Rule(then="refuse", mentions=("wire", "TRANSFER", "STRASSE")), **changes) is fits


def test_a_refusal_says_what_the_team_said_or_who_may_not_ask_whom() -> None:
    worded = verdict(Rule(then="refuse", say="not on sundays"))
    unsaid = verdict(Rule(then="refuse"))
    for_capability = verdict(Rule(then="refuse"), capability="PAY")
    assert isinstance(worded, Refuse)
    assert isinstance(unsaid, Refuse)
    assert isinstance(for_capability, Refuse)
    assert (worded.fault.code, worded.fault.message) == (Code.PERMISSION_DENIED, "not on sundays")
    assert unsaid.fault.message == "the team does not let prime ask tag"
    assert for_capability.fault.message == "the team does not let prime ask tag for PAY"


def test_a_question_says_what_the_team_said_or_who_wants_to_ask_whom() -> None:
    assert verdict(Rule(then="ask", say="Sure?", edit=frozenset({"input"}))) == Ask("Sure?", frozenset({"input"}))
    assert verdict(Rule(then="ask")) == Ask("May prime ask tag?")
    assert verdict(Rule(then="ask"), capability="PAY") == Ask("May prime ask tag for PAY?")


def test_a_question_holds_nothing_of_what_is_asked() -> None:
    """X12: what a person is shown of the content is the redacted request, not the rule's words."""
    worded = verdict(
        Rule(then="ask", mentions=("pay",)), objective="pay alice@example.org", input="pay bob@example.org"
    )
    assert worded == Ask("May prime ask tag?")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"then": "maybe"}',
        b'{"to": "x"}',
        b'{"then": "ask", "to": ""}',
        b'{"then": "ask", "edit": ["handoff"]}',
        b'{"then": "ask", "mentions": [""]}',
        b'{"then": "ask", "form": "x"}',
    ],
)
def test_a_rule_that_is_none_cannot_be_read(raw: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(raw, type=Rule)


def test_a_rule_is_read_and_written_with_the_word_from() -> None:
    rule = msgspec.json.decode(b'{"then": "ask", "from": "a*"}', type=Rule)
    assert rule == Rule(then="ask", from_="a*")
    assert msgspec.json.decode(msgspec.json.encode(rule)) == {"then": "ask", "from": "a*"}
