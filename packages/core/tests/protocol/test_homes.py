"""Every field that the source documents have is at home in exactly one place of our envelopes."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from remit.protocol.card import AgentCard
from remit.protocol.codec import decode, decode_request, encode
from remit.protocol.envelope import Call, Request, Response
from remit.protocol.generous import decode_response
from samples import a_card, a_request, a_response

Plain = dict[str, Any]


class Field(NamedTuple):
    """A field of a source document, and where it lives here."""

    id: str
    name: str
    home: str
    value: Any
    shows: list[Any] | None = None
    """What is computed from it, where the document's own field is."""

    def __str__(self) -> str:
        return f"{self.id}-{self.name}"


def _fields(kind: str) -> list[Field]:
    rows: list[list[Any]] = json.loads((Path(__file__).parent / "homes.json").read_text(encoding="utf-8"))[kind]
    return [Field(*row) for row in rows]


REQUEST_FIELDS, RESPONSE_FIELDS = _fields("request"), _fields("response")
CALL_FIELDS, CARD_FIELDS = _fields("call"), _fields("card")


def put(plain: Plain, home: str, value: Any) -> Plain:
    """Return *plain* with *value* at *home*."""
    name, _, rest = home.partition(".")
    return plain | {name: put(plain.get(name, {}), rest, value) if rest else value}


def at(value: Any, home: str) -> Any:
    for name in home.split("."):
        value = getattr(value, name)
    return value


def plainly(value: Any) -> Any:
    return msgspec.json.decode(encode(value))


def lives_where_it_is_said(field: Field, value: Any, again: Any) -> None:
    assert plainly(at(value, field.home)) == field.value
    assert again == value
    if field.shows:
        assert at(value, field.shows[0]) == field.shows[1]


@pytest.mark.parametrize("field", REQUEST_FIELDS, ids=str)
def test_a_field_of_a_request_has_its_home(field: Field) -> None:
    """X1, C3, K1, K5: every field has one canonical home, and crosses the wire there."""
    request: Request = decode_request(encode(put(plainly(a_request()), field.home, field.value)))
    lives_where_it_is_said(field, request, decode_request(encode(request)))


@pytest.mark.parametrize("field", RESPONSE_FIELDS, ids=str)
def test_a_field_of_a_response_has_its_home(field: Field) -> None:
    """X2, K2, O7: every field has one canonical home, and crosses the wire there."""
    response: Response = decode_response(encode(put(plainly(a_response()), field.home, field.value)))
    lives_where_it_is_said(field, response, decode_response(encode(response)))


@pytest.mark.parametrize("field", CALL_FIELDS, ids=str)
def test_a_field_of_a_wanted_call_has_its_home(field: Field) -> None:
    """O1, C3: every field has one canonical home, and crosses the wire there."""
    call = decode(encode(put({}, field.home, field.value)), Call)
    lives_where_it_is_said(field, call, decode(encode(call), Call))


@pytest.mark.parametrize("field", CARD_FIELDS, ids=str)
def test_a_field_of_a_card_has_its_home(field: Field) -> None:
    """X11, O5, K1: what a team says of an agent has one canonical home."""
    card = decode(encode(put(plainly(a_card()), field.home, field.value)), AgentCard)
    lives_where_it_is_said(field, card, decode(encode(card), AgentCard))


@pytest.mark.parametrize("fields", [REQUEST_FIELDS, RESPONSE_FIELDS, CALL_FIELDS, CARD_FIELDS])
def test_no_field_of_a_document_has_two_homes(fields: list[Field]) -> None:
    names = [(field.id, field.name) for field in fields]
    assert len(names) == len(set(names))


def test_what_a_caller_leaves_open_takes_the_defaults_of_the_team() -> None:
    """O1: max_context_tokens, allowed_tools and the filter may be left out; K1: so may priority and timeout_ms."""
    assert decode(b"{}", Call) == Call(
        target=None,
        max_tokens=None,
        deadline_ms=None,
        context_tokens=None,
        tools=None,
        priority=None,
        context=None,
        may_delegate=True,
    )
