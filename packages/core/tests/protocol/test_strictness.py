"""What is not exactly an envelope is refused: with a code, what to do, and the path of every wrong field."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from remit import Code, RemitError
from remit.protocol import codec, problems
from remit.protocol.card import AgentCard
from remit.protocol.codec import (
    MAX_BYTES,
    MAX_NESTING,
    MAX_VALUES,
    VERSIONS,
    checked,
    decode,
    decode_envelope,
    decode_request,
    decode_submission,
    encode,
    refuse_many_values,
    whole,
)
from remit.protocol.envelope import Answer, Json, Request, Response
from remit.protocol.errors import TABLE, Fault, Problem
from remit.protocol.generous import decode_response
from samples import a_request, a_response
from strategies import json_values, requests, texts

Plain = dict[str, Any]

REQUEST: Plain = msgspec.to_builtins(a_request(), str_keys=True)
RESPONSE: Plain = msgspec.to_builtins(a_response(), str_keys=True)


READERS: dict[type[Any], Callable[[bytes], object]] = {
    Request: decode_request,
    Response: partial(decode_envelope, kind=Response, versions=VERSIONS),
}


def fault_of(raw: bytes, kind: type[Any] = Request) -> Fault:
    """Return the fault with which *raw* is refused."""
    read: Callable[[bytes], object] = READERS.get(kind, lambda raw: decode(raw, kind))
    with pytest.raises(RemitError) as raised:
        read(raw)
    fault = raised.value.fault
    assert fault.recoverable is TABLE[fault.code].recoverable
    assert fault.suggestion
    return fault


def paths_of(raw: bytes, kind: type[Any] = Request) -> list[str]:
    """Return the wrong fields for which *raw* is refused."""
    fault = fault_of(raw, kind)
    assert fault.code is Code.MALFORMED_ENVELOPE
    return [problem.path for problem in fault.problems]


def with_input(value: bytes) -> bytes:
    """Return a request whose input is written as *value*."""
    return encode(REQUEST | {"input": "…"}).replace('"…"'.encode(), value)


# ── fields ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_wrong_field_is_named_at_once_with_what_was_expected_there() -> None:
    """X1: unknown fields, wrong types and missing fields are refused by name."""
    wrong: Plain = {
        "version": "1.0",
        "id": "",
        "origin": "prime",
        "objectiv": "Categorize",
        "colour": "red",
        "remit": {"user": "u-1", "depth": -1, "max_depth": 5.0, "time_ms": "10", "budget": 5, "may_delegate": 1},
        "handoff": {"references": [{"owner_scope": "u-1", "source_id": "a"}, {"owner_scope": 7}, "b"]},
        "hints": ["tax", 1, "canada", None],
    }
    assert fault_of(encode(wrong)).problems == (
        Problem("$.colour", f"unknown field; known fields: {', '.join(sorted(Request.__struct_fields__))}"),
        Problem("$.objectiv", "unknown field; did you mean `objective`?"),
        Problem("$.handoff.references[1].owner_scope", "Expected `str`, got `int`"),
        Problem("$.handoff.references[1].source_id", "required field is missing"),
        Problem("$.handoff.references[2]", "Expected `object`, got `str`"),
        Problem("$.hints[1]", "Expected `str`, got `int`"),
        Problem("$.hints[3]", "Expected `str`, got `null`"),
        Problem("$.id", "Expected `str` of length >= 1"),
        Problem("$.target", "required field is missing"),
        Problem(
            "$.remit.budget",
            "unknown field; known fields: chain, context_tokens, cost, depth, max_depth, may_delegate, priority, "
            "targets, time_ms, tokens, tools, user",
        ),
        Problem("$.remit.depth", "Expected `int` >= 0"),
        Problem("$.remit.max_depth", "Expected `int`, got `float`"),
        Problem("$.remit.time_ms", "Expected `int`, got `str`"),
        Problem("$.remit.tokens", "required field is missing"),
        Problem("$.remit.may_delegate", "Expected `bool`, got `int`"),
    )


def test_unknown_fields_are_named_in_the_order_in_which_they_stand() -> None:
    """X1: the same envelope is always refused in the same words."""
    unknown = [f"x{number}" for number in (5, 1, 9, 3, 7)]
    raw = msgspec.json.encode(REQUEST | dict.fromkeys(unknown, 0))
    assert paths_of(raw) == [f"$.{name}" for name in unknown]
    assert fault_of(raw).message == "5 fields are wrong: $.x5, $.x1, $.x9, $.x3, $.x7"


@pytest.mark.parametrize("name", Request.__struct_fields__)
def test_a_field_of_a_request_that_has_the_wrong_type_is_named(name: str) -> None:
    """X1: every field has its type."""
    if name != "input":  # which may be anything
        assert paths_of(encode(REQUEST | {name: {"not": "this"}}))[0].startswith(f"$.{name}")


@pytest.mark.parametrize("name", Response.__struct_fields__)
def test_a_field_of_a_response_that_has_the_wrong_type_is_named(name: str) -> None:
    """X2: every field has its type."""
    if name not in {"result", "metadata"}:
        assert paths_of(encode(RESPONSE | {name: {"not": "this"}}), Response)[0].startswith(f"$.{name}")


@pytest.mark.parametrize("name", ["version", "id", "origin", "target", "remit"])
def test_a_required_field_of_a_request_that_is_missing_is_named(name: str) -> None:
    """X1: what has no default must be there."""
    rest = {key: value for key, value in REQUEST.items() if key != name}
    assert fault_of(encode(rest)).problems == (Problem(f"$.{name}", "required field is missing"),)


@pytest.mark.parametrize("name", ["version", "id", "target", "status"])
def test_a_required_field_of_a_response_that_is_missing_is_named(name: str) -> None:
    """X2: what has no default must be there."""
    rest = {key: value for key, value in RESPONSE.items() if key != name}
    assert fault_of(encode(rest), Response).problems == (Problem(f"$.{name}", "required field is missing"),)


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"confidence": 1.1}, "$.confidence"),
        ({"confidence": -0.1}, "$.confidence"),
        ({"status": "SUCCESS"}, "$.status"),
        ({"cache": "warm"}, "$.cache"),
        ({"artifacts": [{"type": "image", "value": 1}]}, "$.artifacts[0].type"),
        ({"artifacts": [{"type": "json"}]}, "$.artifacts[0].value"),
        ({"sources": [{"owner_scope": "u", "source_id": "s", "relevance": 2}]}, "$.sources[0].relevance"),
        ({"usage": {"prompt": -1}}, "$.usage.prompt"),
        ({"usage": {"total": 1}}, "$.usage.total"),
        ({"fault": {"code": "NO_SUCH_CODE", "message": "x"}}, "$.fault.code"),
        ({"fault": {"code": "TIMEOUT"}}, "$.fault.message"),
        (
            {"fault": {"code": "TIMEOUT", "message": "x", "problems": [{"path": "$", "message": "x", "line": 1}]}},
            "$.fault.problems[0].line",
        ),
    ],
)
def test_what_a_response_cannot_say_is_refused_where_it_stands(changes: Plain, path: str) -> None:
    """X2: each part of the response has its own rules."""
    assert paths_of(encode(RESPONSE | changes), Response) == [path]


MISPLACED: list[tuple[Plain, str]] = [
    ({"remit": []}, "$.remit"),
    ({"remit": [1, 2]}, "$.remit"),
    ({"handoff": []}, "$.handoff"),
    ({"handoff": "x"}, "$.handoff"),
    ({"handoff": {"references": {}}}, "$.handoff.references"),
    ({"handoff": {"references": {"owner_scope": "u"}}}, "$.handoff.references"),
    ({"handoff": {"references": [[]]}}, "$.handoff.references[0]"),
    ({"handoff": {"prior_outputs": []}}, "$.handoff.prior_outputs"),
    ({"context": {"roles": {}}}, "$.context.roles"),
    ({"hints": {}}, "$.hints"),
    ({"objective": []}, "$.objective"),
    ({"version": 1}, "$.version"),
    ({"version": ["1.0"]}, "$.version"),
    ({"version": None}, "$.version"),
]


@pytest.mark.parametrize(("changes", "path"), MISPLACED)
def test_an_array_for_an_object_or_the_reverse_is_a_wrong_field_like_any_other(changes: Plain, path: str) -> None:
    """X1: wrong types are refused by name."""
    assert paths_of(encode(REQUEST | changes)) == [path]


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"id": "x" * 201}, "$.id"),
        ({"objective": "x" * 100_001}, "$.objective"),
        ({"remit": REQUEST["remit"] | {"chain": ["a@hub"] * 101}}, "$.remit.chain"),
        ({"remit": REQUEST["remit"] | {"tools": [f"t{each}" for each in range(1_001)]}}, "$.remit.tools"),
        ({"remit": REQUEST["remit"] | {"tools": {f"t{each}": {} for each in range(1_001)}}}, "$.remit.tools"),
        ({"remit": REQUEST["remit"] | {"tools": {"t": {f"a{each}": 1 for each in range(101)}}}}, "$.remit.tools.t"),
        ({"remit": REQUEST["remit"] | {"tokens": 2**53}}, "$.remit.tokens"),
    ],
)
def test_too_long_is_wrong_even_if_each_part_is_right(changes: Plain, path: str) -> None:
    assert paths_of(encode(REQUEST | changes)) == [path]


@pytest.mark.parametrize(
    ("limits", "path"),
    [
        ({"pay": 5}, "pay"),
        ({"pay": {"amount": None}}, "pay.amount"),
        ({"pay": [{}, {"amount": {"atmost": 5}}]}, "pay[1].amount.atmost"),
        ({"pay": {"to": ["bob", None]}}, "pay.to[1]"),
    ],
)
def test_a_malformed_condition_on_an_argument_is_named_with_its_tool(limits: Plain, path: str) -> None:
    assert paths_of(encode(REQUEST | {"remit": REQUEST["remit"] | {"tools": limits}})) == [f"$.remit.tools.{path}"]


@pytest.mark.parametrize("raw", [b"[]", b"[{}]", b"[1]", b'"x"', b"1", b"null", b"true"])
@pytest.mark.parametrize("kind", [Request, Response, Answer, AgentCard])
def test_an_envelope_is_an_object(raw: bytes, kind: type[Any]) -> None:
    assert paths_of(raw, kind) == ["$"]


def test_a_card_is_read_as_strictly_as_an_envelope() -> None:
    card: Plain = {"name": "tag", "rate": {"calls": 0, "seconds": 0, "burst": 1}, "capabilities": [{"cod": "TAG"}]}
    assert paths_of(encode(card), AgentCard) == [
        "$.capabilities[0].cod",
        "$.capabilities[0].code",
        "$.rate.burst",
        "$.rate.calls",
        "$.rate.seconds",
    ]


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

REMIT_OF: Plain = REQUEST["remit"]
NAMES: dict[str, Callable[[str], Plain]] = {
    "$.id": lambda name: REQUEST | {"id": name},
    "$.origin": lambda name: REQUEST | {"origin": name},
    "$.target": lambda name: REQUEST | {"target": name},
    "$.capability": lambda name: REQUEST | {"capability": name},
    "$.run": lambda name: REQUEST | {"run": name},
    "$.parent": lambda name: REQUEST | {"parent": name},
    "$.session": lambda name: REQUEST | {"session": name},
    "$.parent_session": lambda name: REQUEST | {"parent_session": name},
    "$.refined_by": lambda name: REQUEST | {"refined_by": name},
    "$.retry_of": lambda name: REQUEST | {"retry_of": name},
    "$.remit.user": lambda name: REQUEST | {"remit": REMIT_OF | {"user": name}},
    "$.remit.chain[1]": lambda name: REQUEST | {"remit": REMIT_OF | {"chain": ["prime@hub", name]}},
    "$.remit.tools[0]": lambda name: REQUEST | {"remit": REMIT_OF | {"tools": [name]}},
    "$.remit.targets[0]": lambda name: REQUEST | {"remit": REMIT_OF | {"targets": [name]}},
    "$.handoff.prior_agents[0]": lambda name: REQUEST | {"handoff": {"prior_agents": [name]}},
    "$.handoff.references[0].source_id": (
        lambda name: REQUEST | {"handoff": {"references": [{"owner_scope": "u-1", "source_id": name}]}}
    ),
}
RULE = "control characters are not allowed in a name"


@pytest.mark.parametrize("path", NAMES)
@pytest.mark.parametrize("character", ["\n", "\x00", "\x1b", "\x7f", "\x85", "\x9b", "\u2028", "\u2029"])
def test_a_name_that_could_break_a_line_or_steer_a_terminal_is_refused(path: str, character: str) -> None:
    assert fault_of(encode(NAMES[path](f"tag{character}"))).problems == (Problem(path, RULE),)


@pytest.mark.parametrize("path", ["$.id", "$.target", "$.run", "$.session", "$.path[0]"])
def test_the_names_in_a_response_are_held_to_the_same_rule(path: str) -> None:
    field = path.removeprefix("$.").removesuffix("[0]")
    name = ["tag\n"] if path.endswith("[0]") else "tag\n"
    assert fault_of(encode(RESPONSE | {field: name}), Response).problems == (Problem(path, RULE),)


def test_every_such_name_is_listed_at_once() -> None:
    assert paths_of(encode(REQUEST | {"id": "a\nb", "origin": "a\rb"})) == ["$.id", "$.origin"]


def test_names_in_any_script_are_names() -> None:
    request = a_request(origin="café", target="分類", run="run ✓")
    assert decode_request(encode(request)) == request


def test_the_name_of_an_unknown_field_cannot_break_a_line_in_what_is_said_of_it() -> None:
    fault = fault_of(encode(REQUEST | {"x\ny\x1b[2J": 1}))
    assert str(RemitError(fault)).count("\n") == 2
    assert "\x1b" not in str(RemitError(fault))


# ── ambiguity ─────────────────────────────────────────────────────────────────────────────────────────────────────────

TWICE = "duplicate key in one object"


@pytest.mark.parametrize(
    ("raw", "paths"),
    [
        (b'{"id":"a","id":"b"}', ["$.id"]),
        (b'{"id":"a","id":"a"}', ["$.id"]),
        (b'{"id":"a","\\u0069d":"b"}', ["$.id"]),
        (b'{"\\u0069d":"a","\\u0069\\u0064":"b"}', ["$.id"]),
        (b'{"id" :"a","id"\n\t:"b"}', ["$.id"]),
        (with_input(b'{"x":{"k":1,"j":2,"k":3}}'), ["$.input.x.k"]),
        (with_input(b'[{"k":1},{"k":1,"k":2}]'), ["$.input[1].k"]),
        (with_input(b'[[],[0,{"k":1,"k":[]}]]'), ["$.input[1][1].k"]),
        (with_input(b'{"":1,"":2}'), ["$.input['']"]),
        (with_input(b'{"k":1,"k":2,"j":[{"i":1,"i":2}]}'), ["$.input.k", "$.input.j[0].i"]),
        (with_input(b'{"say \\"k\\":":1,"say \\"k\\":":2}'), ["$.input['say \"k\":']"]),
    ],
)
def test_a_key_that_stands_twice_in_one_object_is_refused_where_it_stands(raw: bytes, paths: list[str]) -> None:
    assert fault_of(raw).problems == tuple(Problem(path, TWICE) for path in paths)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'[{"k":1},{"k":1}]', [{"k": 1}, {"k": 1}]),
        (b'{"k":{"k":{"k":1}}}', {"k": {"k": {"k": 1}}}),
        (b'{"k":"k","j":"k"}', {"k": "k", "j": "k"}),
        (b'["{\\"k\\":1,\\"k\\":2}","k","k"]', ['{"k":1,"k":2}', "k", "k"]),
        (b'{"k":1,"K":2,"k ":3}', {"k": 1, "K": 2, "k ": 3}),
        (b'{"a\\\\":1,"a\\"":2}', {"a\\": 1, 'a"': 2}),
    ],
)
def test_the_same_key_in_different_objects_or_texts_is_fine(raw: bytes, value: Any) -> None:
    assert decode_request(with_input(raw)).input == value


@pytest.mark.parametrize("integer", [2**53, -(2**53), 2**63, 2**64, 10**30, -(10**300)])
def test_an_integer_that_two_readers_would_read_differently_is_refused_where_it_stands(integer: int) -> None:
    raw = with_input(f'{{"n":[1,{integer}]}}'.encode())
    assert fault_of(raw).problems == (Problem("$.input.n[1]", "the integer is past ±(2**53 - 1); send it as text"),)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "nan", "1e400", "-1e400", "9" * 5_000])
def test_what_is_no_finite_number_is_refused(number: str) -> None:
    assert paths_of(with_input(number.encode())) == ["$"]


def test_a_sentence_that_only_looks_like_a_huge_integer_is_a_sentence() -> None:
    text = '{"n": 99999999999999999999, "n": [[[ \\'
    assert decode_request(with_input(encode(text))).input == text


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

VALID = encode(REQUEST)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b" \n", id="blank"),
        pytest.param(b"\xef\xbb\xbf" + VALID, id="byte order mark"),
        pytest.param(VALID.decode().encode("utf-16"), id="utf-16"),
        pytest.param(VALID + b"x", id="trailing letter"),
        pytest.param(VALID + VALID, id="two envelopes"),
        pytest.param(VALID + b"\x00", id="trailing nul"),
        pytest.param(VALID[:-1], id="cut off"),
        pytest.param(b"{'id':'a'}", id="single quotes"),
        pytest.param(b'{"id":"a",}', id="trailing comma"),
        pytest.param(b'{id:"a"}', id="bare key"),
        pytest.param(b'{"id":"a"/**/}', id="comment"),
        pytest.param(with_input(b'"\xff"'), id="not utf-8"),
        pytest.param(with_input(b'"\xed\xa0\x80"'), id="surrogate in utf-8"),
        pytest.param(with_input(b'"\xc0\x80"'), id="overlong utf-8"),
        pytest.param(with_input(b'{"\xff":1}'), id="key that is not utf-8"),
        pytest.param(with_input(b'"\\ud800"'), id="lone high surrogate"),
        pytest.param(with_input(b'"\\udc00"'), id="lone low surrogate"),
        pytest.param(with_input(b'"\\udc00\\ud800"'), id="surrogates the wrong way round"),
        pytest.param(with_input(b'{"\\ud800":1}'), id="lone surrogate in a key"),
        pytest.param(with_input(b'"a\nb"'), id="raw control character"),
        pytest.param(with_input(b"01"), id="leading zero"),
        pytest.param(with_input(b"+1"), id="leading plus"),
        pytest.param(with_input(b"1."), id="no digits after the point"),
    ],
)
def test_what_is_not_json_is_refused_as_a_whole(raw: bytes) -> None:
    assert paths_of(raw) == ["$"]


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"k":', b"}")])
@pytest.mark.parametrize("levels", [MAX_NESTING, 900, 40_000])
def test_an_envelope_that_is_nested_too_deep_is_refused(opening: bytes, closing: bytes, levels: int) -> None:
    fault = fault_of(with_input(opening * levels + b"1" + closing * levels))
    assert (fault.code, fault.message) == (Code.TOO_LARGE, f"the envelope is nested deeper than {MAX_NESTING} levels")


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"k":', b"}")])
def test_one_that_is_nested_deeper_than_anything_is_not_even_looked_at(opening: bytes, closing: bytes) -> None:
    assert fault_of(with_input(opening * 100_000 + b"1" + closing * 100_000)).code is Code.TOO_LARGE


def test_an_envelope_may_be_nested_as_deep_as_is_said() -> None:
    levels = MAX_NESTING - 1
    decode_request(with_input(b"[" * levels + b"]" * levels))


def test_an_envelope_may_hold_more_lists_beside_each_other_than_within_each_other() -> None:
    assert decode_request(with_input(b"[" + b"[]," * (2 * MAX_NESTING) + b"[]]")).input == [[]] * (2 * MAX_NESTING + 1)


def test_an_envelope_that_is_too_large_is_refused_unread() -> None:
    fault = fault_of(b"x" * (MAX_BYTES + 1))
    assert (fault.code, fault.message) == (
        Code.TOO_LARGE,
        f"there are {MAX_BYTES + 1} bytes; at most {MAX_BYTES} are taken",
    )


def test_a_reader_may_set_a_smaller_size() -> None:
    raw = encode(Answer("x" * 100))
    assert decode(raw, Answer, max_bytes=len(raw)) == Answer("x" * 100)
    with pytest.raises(RemitError, match="at most 50 are taken"):
        decode(raw, Answer, max_bytes=50)


# ── anything at all ───────────────────────────────────────────────────────────────────────────────────────────────────


def refusal_of(raw: bytes, read: Callable[[bytes], object] = decode_request) -> str:
    """Return what is said of *raw*; nothing if it is an envelope."""
    try:
        read(raw)
    except RemitError as error:
        return str(error)
    return ""


def refused_or_read(raw: bytes) -> None:
    for read in READERS.values():
        refusal_of(raw, read)


@given(st.binary())
def test_any_bytes_are_read_or_refused_and_nothing_else(raw: bytes) -> None:
    refused_or_read(raw)


@given(requests, st.data())
def test_an_envelope_with_any_bytes_changed_is_read_or_refused(request: Request, data: st.DataObject) -> None:
    raw = encode(request)
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, min(start + 5, len(raw))))
    patch = data.draw(
        st.binary(max_size=5) | st.sampled_from([b'"', b"\\", b"{", b"[", b"]", b"}", b"1" * 20, b",", b":"])
    )
    refused_or_read(raw[:start] + patch + raw[end:])


def keys_of(value: Any) -> list[Any]:
    """Return the names or the indexes of what *value* holds."""
    if isinstance(value, dict):
        return sorted(cast("Plain", value))
    return list(range(len(cast("list[Any]", value)))) if isinstance(value, list) else []


EMPTY: list[Any] = [[], {}, [[]], [{}]]


@st.composite
def tampered(draw: st.DrawFn) -> bytes:
    """A request in which anything stands in the place of some part, or beside it."""
    plain: Any = msgspec.json.decode(encode(draw(requests)))
    part: Any = plain
    key: Any = draw(st.sampled_from(sorted(plain)))
    while keys := keys_of(part[key]):
        if draw(st.booleans()):
            break
        part, key = part[key], draw(st.sampled_from(keys))
    part[key] = draw(json_values | st.sampled_from(EMPTY))
    if type(part) is dict and draw(st.booleans()):
        part[draw(texts)] = draw(json_values)
    return encode(plain)


@given(tampered())
def test_an_envelope_with_any_part_exchanged_is_read_or_refused(raw: bytes) -> None:
    refused_or_read(raw)


def filled(before: bytes, part: bytes, after: bytes) -> bytes:
    """Return as much of *part* between the two as an envelope may hold."""
    return before + part * ((MAX_BYTES - len(before) - len(after)) // len(part)) + after


HEAD, TAIL = with_input(b"|").split(b"|")
UNKNOWN = b",".join(b'"%x":0' % each for each in range(300_000))

HOSTILE = {
    "digits of a fraction": filled(HEAD + b"0.", b"1", TAIL),
    "digits before an exponent": filled(HEAD + b"0.", b"1", b"e5" + TAIL),
    "digits of an exponent": filled(HEAD + b"1e", b"0", b"1" + TAIL),
    "digits of an integer": filled(HEAD, b"9", TAIL),
    "long numbers": filled(HEAD + b"[", b"1111111111111111.0,", b"1]" + TAIL),
    "huge integers": filled(HEAD + b"[", b"9999999999999999,", b"1]" + TAIL),
    "backslashes": filled(HEAD + b'"', b"\\\\", b'"' + TAIL),
    "quotes": filled(HEAD + b'["', b'","', b'"]' + TAIL),
    "escaped quotes": filled(HEAD + b'"', b'\\"', b'"' + TAIL),
    "a text without an end": filled(HEAD + b'"', b"x", b""),
    "space before a colon": filled(HEAD + b'{"k"', b" ", b":1}" + TAIL),
    "space after texts": filled(HEAD + b"[", b'""          ,', b'""]' + TAIL),
    "brackets side by side": filled(HEAD + b"[", b"[],", b"[]]" + TAIL),
    "brackets in each other": filled(HEAD, b"[", b""),
    "the same key": filled(HEAD + b"{", b'"k":0,', b'"k":0}' + TAIL),
    "unknown fields": b"{" + UNKNOWN + b"}",
    "one unknown field with a long name": filled(b'{"', b"x", b'":0}'),
    "one unknown field with a long name that comes close": filled(b'{"', b"objective", b'":0}'),
    "wrong elements": filled(encode(REQUEST)[:-1] + b',"hints":[', b"0,", b"0]}"),
    "a long version": filled(b'{"version":"', b"x", b'"}'),
    "a name too long": filled(b'{"id":"', b"x", b'"}'),
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_envelope_is_dealt_with_in_time_and_in_few_words(raw: bytes) -> None:
    assert len(raw) <= MAX_BYTES
    assert len(refusal_of(raw)) < 100_000


# ── numbers ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Part(Struct):
    count: int = 0
    share: float = 0.0


class Whole(Struct, rename="camel"):
    part_count: int | None = None
    either: int | float = 0
    free: Json = None
    part: Part | None = None
    parts: tuple[Part, ...] = ()
    listed: list[int] = []
    named: dict[str, int] = {}


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ({"partCount": 12.5}, {"partCount": 12}),
        ({"partCount": None, "unknown": 1.5}, {"partCount": None, "unknown": 1.5}),
        ({"either": 1.5, "free": 1.5}, {"either": 1.5, "free": 1.5}),
        ({"part": {"count": 2.9, "share": 0.5}}, {"part": {"count": 2, "share": 0.5}}),
        ({"parts": [{"count": -1.5}], "listed": [1.5, 2]}, {"parts": [{"count": -1}], "listed": [1, 2]}),
        ({"named": {"a": 3.5}}, {"named": {"a": 3}}),
        ({"partCount": "12.5"}, {"partCount": "12.5"}),
        ([1.5], [1.5]),
    ],
)
def test_a_fraction_is_cut_off_where_an_integer_is_wanted(value: Any, read: Any) -> None:
    assert whole(value, Whole) == read


def test_what_is_no_number_stays_what_it_is() -> None:
    infinite = float("inf")
    assert whole({"partCount": infinite}, Whole) == {"partCount": infinite}


def test_answers_of_hubs_are_read_so_and_requests_strictly() -> None:
    raw = encode(a_response()).replace(b'"version"', b'"duration_ms":12.5,"version"')
    assert decode_response(raw).duration_ms == 12
    with pytest.raises(RemitError, match="max_tokens"):
        decode_submission(b'{"version":"1.0","target":"tag","max_tokens":12.5}')


# ── many values ───────────────────────────────────────────────────────────────────────────────────────────────────────


NOISE = '" , [ ] { } \\ " \\" \\\\ '


def refused(raw: bytes) -> bool:
    try:
        refuse_many_values(raw)
    except RemitError as error:
        return error.fault.code is Code.TOO_LARGE and str(MAX_VALUES) in error.fault.message
    return False


CASES: list[tuple[Any, bool]] = [
    ([1] * MAX_VALUES, False),
    ([1] * (MAX_VALUES + 1), True),
    ([{}] * MAX_VALUES, True),
    ({f"n{number}": [1] for number in range(MAX_VALUES // 2 - 2)}, False),
    ({f"n{number}": [1] for number in range(MAX_VALUES // 2 + 2)}, True),
    ([""] * (MAX_VALUES * 3), True),
    (["\\"] * (MAX_VALUES * 3), True),
    (NOISE * 100_000, False),
    ([NOISE] * (MAX_VALUES // 2), False),
    ([NOISE, 5] * (MAX_VALUES // 2 + 2), True),
]


@pytest.mark.parametrize(("value", "many"), CASES)
def test_values_are_counted_and_not_what_texts_hold(value: Any, *, many: bool) -> None:
    assert refused(json.dumps(value).encode()) is many


def test_what_is_no_json_is_counted_too() -> None:
    assert refused(b"[" * 4 * MAX_VALUES)
    assert refused(b'"' * 5 * MAX_VALUES)
    assert not refused(b" " * 4 * MAX_VALUES)


def test_it_is_counted_before_anything_is_read() -> None:
    many = json.dumps({"target": "a", "user": "u", "input": [1] * (MAX_VALUES + 1), "nonsense": 1}).encode()
    with pytest.raises(RemitError) as caught:
        decode_submission(many)
    assert caught.value.fault.code is Code.TOO_LARGE
    with pytest.raises(RemitError) as caught:
        decode(many, object)
    assert caught.value.fault.code is Code.TOO_LARGE


def test_what_an_agent_gives_is_counted_as_well() -> None:
    with pytest.raises(RemitError) as caught:
        checked({"rows": [1] * (MAX_VALUES + 1)})
    assert caught.value.fault.code is Code.TOO_LARGE


noisy_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet='",[]{}\\ab', max_size=6),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text('",[]{}\\a', max_size=4), parts, max_size=4),
    max_leaves=20,
)


@given(noisy_values)
def test_what_stands_outside_of_strings_is_found_whatever_they_hold(value: Any) -> None:
    outside = codec._outside_strings(codec._without_escapes(msgspec.json.encode(value)))  # pyright: ignore[reportPrivateUsage]
    brackets, commas = count(value)
    assert (outside.count(b"[") + outside.count(b"{"), outside.count(b",")) == (brackets, commas)


def count(value: Any) -> tuple[int, int]:
    if not isinstance(value, list | dict):
        return 0, 0
    several: list[Any] = list(
        cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
    )
    parts = [count(each) for each in several]
    return 1 + sum(each for each, _ in parts), max(len(several) - 1, 0) + sum(each for _, each in parts)


def test_of_many_unknown_fields_only_the_first_are_compared_with_those_that_there_are() -> None:
    body = json.dumps({"target": "a", **{f"objectiv{number}": 1 for number in range(30)}}).encode()
    with pytest.raises(RemitError) as caught:
        decode_submission(body)
    hints = ["did you mean" in problem.message for problem in caught.value.fault.problems]
    assert hints == [True] * problems.MAX_LIKENESSES + [False] * (30 - problems.MAX_LIKENESSES)
    assert all("known fields" in problem.message for problem in caught.value.fault.problems[problems.MAX_LIKENESSES :])
