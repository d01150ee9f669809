"""Fields that ask for a value, and what is said where they hold a token instead."""

from typing import Any

import pytest

from remit.policy.redaction import Held
from remit.policy.restoring import (
    can_be_used,
    explain_tokens,
    fields_asking,
    key_to_add,
    kind_asked,
    of_kinds,
    reveal_arguments,
    token_given,
    tokens_asked_for,
    tokens_in,
)
from remit.protocol.card import AgentCard, Capability, ToolCard
from remit.protocol.envelope import Json
from remit.protocol.errors import Problem

EMAIL, PHONE, CARD = "[EMAIL:bcdfghjklmnp]", "[PHONE:bcdfghjklmnp]", "[CREDIT_CARD:bcdfghjklmnp]"
HELD: Held = {EMAIL: "ada@example.org", PHONE: "+1 415-555-2671", CARD: 5500005555555559}
FORGED = "[EMAIL:zzzzzzzzzzzz]"


# ── names and formats ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("email", "EMAIL"),
        ("e_mail", "EMAIL"),
        ("E-Mail", "EMAIL"),
        ("emails", "EMAIL"),
        ("customerEmail", "EMAIL"),
        ("email_address", "EMAIL"),
        ("emailAddress2", "EMAIL"),
        ("mail_address", "EMAIL"),
        ("phone", "PHONE"),
        ("phone_number", "PHONE"),
        ("homePhoneNo", "PHONE"),
        ("mobile", "PHONE"),
        ("IBAN", "IBAN"),
        ("payee_iban", "IBAN"),
        ("card_number", "CREDIT_CARD"),
        ("creditCard", "CREDIT_CARD"),
        ("ssn", "SSN"),
        ("client_ip", "IP"),
        ("ip_addresses", "IP"),
        ("password", "PASSWORD"),
        ("api_key", "API_KEY"),
    ],
)
def test_a_name_tells_what_a_field_asks_for(name: str, kind: str) -> None:
    assert kind_asked(name) == kind


@pytest.mark.parametrize(
    "name",
    ["name", "text", "email_subject", "phone_model", "mail", "card", "card_id", "sin", "address", "number", "zip", "e"],
)
def test_other_names_ask_for_nothing(name: str) -> None:
    assert kind_asked(name) is None
    assert kind_asked("") is None


@pytest.mark.parametrize(
    ("shape", "kind"), [("email", "EMAIL"), ("idn-email", "EMAIL"), ("ipv4", "IP"), ("date", None), (7, None)]
)
def test_a_format_tells_it_whatever_the_name(shape: object, kind: str | None) -> None:
    assert kind_asked("contact", shape) == kind


# ── schemas ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_field_of_a_schema_that_asks_for_a_value_is_found() -> None:
    schema = {
        "type": "object",
        "properties": {
            "email": {"type": "string"},
            "to": {"type": "array", "items": {"type": "string", "format": "email"}},
            "phones": {"items": {"type": ["string", "null"]}},
            "payee": {"$ref": "#/$defs/Payee"},
            "mobile": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "contact": {"anyOf": [{"type": "string"}, {"type": "null"}], "format": "email"},
            "text": {"type": "string"},
            # These ask for no value, or for one of a few that are no secret.
            "has_email": {"type": "boolean"},
            "phone": {"enum": ["home", "work"]},
            "fax": {"$ref": "#/$defs/Missing"},
            "tel": {"$ref": "elsewhere.json#/x/y"},
            "cell": True,
        },
        "$defs": {"Payee": {"properties": {"iban": {"type": "string"}, "card_number": {"type": "integer"}}}},
    }
    assert fields_asking(schema) == {
        "email": "EMAIL",
        "to": "EMAIL",
        "phones": "PHONE",
        "payee.iban": "IBAN",
        "payee.card_number": "CREDIT_CARD",
        "mobile": "PHONE",
        "contact": "EMAIL",
    }


def test_a_schema_that_refers_to_itself_comes_to_an_end() -> None:
    node: dict[str, Any] = {
        "properties": {"email": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}, "all": {"$ref": "#/$defs/Loop"}}
    }
    schema = {"$ref": "#/$defs/Node", "$defs": {"Node": node, "Loop": {"anyOf": [{"$ref": "#/$defs/Loop"}] * 2}}}
    fields = fields_asking(schema)
    assert fields["next.next.email"] == "EMAIL"
    assert len(fields) < 20


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_token_counts_where_its_field_asks_for_the_value() -> None:
    value: dict[str, Any] = {
        "email": EMAIL,
        "text": EMAIL,
        "note": {"phone": f" {PHONE} ", "email": f"write to {EMAIL}"},
        "emails": [EMAIL, "bob"],
        "mobile": FORGED,
        "ssn": 7,
    }
    assert tokens_asked_for(value, HELD) == {"email": EMAIL, "note.phone": PHONE, "emails": EMAIL}


def test_a_format_counts_where_the_schema_has_one() -> None:
    schema = {
        "properties": {
            "to": {"type": "array", "items": {"format": "email"}},
            "who": {"oneOf": [{"type": "null"}, {"properties": {"contact": {"format": "email"}}}]},
            "more": {"properties": "none of ours"},
        }
    }
    value: dict[str, Any] = {"to": [EMAIL], "who": {"contact": EMAIL, "other": EMAIL}, "more": {"x": EMAIL}}
    assert tokens_asked_for(value, HELD, schema) == {"to": EMAIL, "who.contact": EMAIL}


def test_what_is_nested_too_deep_is_left_alone() -> None:
    value: Any = {"email": EMAIL}
    for _ in range(30):
        value = {"x": value}
    assert tokens_asked_for(value, HELD) == {}


def test_the_warning_names_what_got_it_the_field_and_the_key() -> None:
    details = token_given("tool", "find", "customer.email", "EMAIL").details
    assert "tool find got a token" in details
    assert "`customer.email`" in details
    assert details.endswith('tools.find.sees = ["EMAIL"]')
    assert key_to_add("capability", "SEND", "IBAN") == 'capabilities.SEND.sees = ["IBAN"]'
    assert key_to_add("tool", "a.b", "IBAN") == 'tools."a.b".sees = ["IBAN"]'
    assert key_to_add("tool", "a.b", "IBAN", "mcp.a.sees.b") == 'mcp.a.sees.b = ["IBAN"]'


# ── what a tool is given ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tool_is_given_the_kinds_that_it_sees_in_all_arguments_or_in_one() -> None:
    arguments: dict[str, Any] = {"to": EMAIL, "text": [f"{EMAIL} {PHONE} {FORGED}"], "n": 1}
    raw = HELD[EMAIL]
    assert reveal_arguments(arguments, HELD, frozenset({"EMAIL"})) == (
        {"to": raw, "text": [f"{raw} {PHONE} {FORGED}"], "n": 1},
        {EMAIL: raw},
    )
    assert reveal_arguments(arguments, HELD, {"to": frozenset({"EMAIL"})}) == (arguments | {"to": raw}, {EMAIL: raw})


@pytest.mark.parametrize("sees", [frozenset[str](), frozenset({"IBAN"}), {"n": frozenset({"EMAIL"})}])
def test_where_there_is_nothing_to_put_in_the_arguments_are_the_same(sees: Any) -> None:
    arguments: dict[str, Any] = {"to": EMAIL, "n": 1}
    given, shown = reveal_arguments(arguments, HELD, sees)
    assert given is arguments
    assert shown == {}


def test_tokens_are_found_wherever_they_stand() -> None:
    value: Any = {"a": [EMAIL, {"b": f"x {PHONE} {FORGED}"}], EMAIL: None, "c": 1, "d": "plain"}
    assert list(tokens_in(value)) == [("a[0]", EMAIL), ("a[1].b", PHONE), ("a[1].b", FORGED), ("", EMAIL)]


def test_kinds_are_compared_as_they_are_spelled_in_tokens() -> None:
    assert of_kinds(HELD, ["email", "CREDIT_CARD"]) == {EMAIL: HELD[EMAIL], CARD: HELD[CARD]}


# ── whether a token is of use ─────────────────────────────────────────────────────────────────────────────────────────

TOOLS = {
    "find": ToolCard(name="find", input_schema={}, sees={"email": frozenset({"EMAIL"})}),
    "send": ToolCard(name="send", input_schema={}, sees=frozenset({"PHONE"})),
    "look": ToolCard(name="look", input_schema={}),
}
AGENTS = [
    AgentCard(name="finder", tools=frozenset({"find", "look"})),
    AgentCard(name="bank", capabilities=(Capability(code="PAY", sees=frozenset({"IBAN"})),)),
    AgentCard(name="clerk", sees=frozenset({"SSN"})),
]


@pytest.mark.parametrize(
    ("card", "kind", "is_so"),
    [
        (AgentCard(name="a", tools=frozenset({"look", "find", "gone"})), "EMAIL", True),
        (AgentCard(name="a", tools=frozenset({"find"})), "PHONE", False),
        (AgentCard(name="a"), "EMAIL", False),
        (AgentCard(name="a", may_call=frozenset({"*"})), "EMAIL", True),
        (AgentCard(name="a", may_call=frozenset({"bank"})), "IBAN", True),
        (AgentCard(name="a", may_call=frozenset({"clerk"})), "SSN", True),
        (AgentCard(name="a", may_call=frozenset({"clerk", "bank"})), "EMAIL", False),
        (AgentCard(name="clerk", may_call=frozenset({"*"})), "SSN", False),
    ],
)
def test_a_token_is_of_use_where_a_tool_or_an_agent_that_can_be_asked_sees_the_value(
    card: AgentCard, kind: str, is_so: bool
) -> None:
    assert can_be_used(kind, card, AGENTS, TOOLS) is is_so


def test_of_very_many_values_the_first_are_looked_at() -> None:
    rows: Any = [1] * 100_000
    assert tokens_asked_for({"email": EMAIL, "rows": rows}, HELD) == {"email": EMAIL}
    assert tokens_asked_for([*rows, {"email": EMAIL}], HELD) == {}


# ── a token in place of a number ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "place"),
    [({"card": CARD}, "$.card"), ([CARD], "$[0]"), (CARD, "$"), ({"cards": [1, CARD]}, "$.cards[1]")],
)
def test_a_field_with_a_token_in_place_of_its_value_is_explained(value: Json, place: str) -> None:
    (problem,) = explain_tokens((Problem(place, "expected a number"),), value)
    assert problem.path == place
    assert problem.message.startswith("expected a number: the value is withheld and a token stands for it")
    assert 'sees=["CREDIT_CARD"]' in problem.message


def test_a_problem_elsewhere_stays_as_it_is() -> None:
    problems = (Problem("$.name", "expected text"),)
    assert explain_tokens(problems, {"card": CARD, "name": 1}) == problems
