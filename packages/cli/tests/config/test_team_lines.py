"""Every key of a TOML text is found in its line."""

import tomllib
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit_cli.config.origins import DuplicateKey, Place, TomlLines, dotted, value_at

# ── any TOML ──────────────────────────────────────────────────────────────────────────────────────────────────────────

bare_keys = st.text("abAB01_-", min_size=1, max_size=4)
any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), max_size=6)
keys = bare_keys | any_text | st.sampled_from(["a.b", 'q"q', "it's", "#", "]", "=", "key with space", "ä"])


def quoted(text: str) -> str:
    escapes = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(escapes.get(c) or (c if c >= " " else f"\\u{ord(c):04x}") for c in text) + '"'


def key_of(key: str) -> str:
    if key and all(c in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-" for c in key):
        return key
    return quoted(key)


blanks = st.sampled_from(["", " ", "\t "])
gaps = st.sampled_from(["", " ", "\n", " # ] } \" ''' a comment\n", "\n\n  "])

long_texts = st.lists(
    st.sampled_from(["a", " ", "\n", "#", "[", "]", "{", "}", ",", "=", "'", "k = 1", '\\"', '"', "\\\\"]), max_size=6
).map("".join)
several_lines = long_texts.filter(lambda text: '"""' not in text).map(lambda text: f'"""\n{text}"""')
several_plain_lines = (
    long_texts.map(lambda text: text.replace("\\", "/")).filter(lambda text: "'''" not in text).map("'''{}'''".format)
)
plain_values = (
    st.integers(-999, 999).map(str)
    | st.sampled_from(["true", "1.5", "nan", "1979-05-27", "1979-05-27 07:32:00Z", "0x1F", "''", "'#'", "'\"'"])
    | any_text.map(quoted)
    | several_lines
    | several_plain_lines
)


@st.composite
def arrays(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    items = draw(st.lists(values, max_size=3))
    text = "["
    for at, item in enumerate(items):
        text += draw(gaps) + item + draw(gaps) + ("," if at < len(items) - 1 or draw(st.booleans()) else "")
    return text + draw(gaps) + "]"


@st.composite
def inline_tables(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    names = draw(st.lists(keys, max_size=3, unique=True))
    pairs = [f"{draw(blanks)}{key_of(name)}{draw(blanks)}={draw(blanks)}{draw(values)}{draw(blanks)}" for name in names]
    return "{" + ",".join(pairs) + "}"


values = st.recursive(plain_values, lambda inner: arrays(inner) | inline_tables(inner), max_leaves=6)


@st.composite
def statements(draw: st.DrawFn) -> str:
    path = f"{draw(blanks)}.{draw(blanks)}".join(key_of(key) for key in draw(st.lists(keys, min_size=1, max_size=3)))
    inner = f"{draw(blanks)}{path}{draw(blanks)}"
    kind = draw(st.sampled_from(["pair", "pair", "pair", "table", "array"]))
    match kind:
        case "pair":
            statement = f"{inner}={draw(blanks)}{draw(values)}"
        case "table":
            statement = f"[{inner}]"
        case _:
            statement = f"[[{inner}]]"
    return statement + draw(st.sampled_from(["", " ", " # comment"]))


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Statements that are TOML together: each that is not, after those before it, is left out."""
    text = ""
    for statement in draw(st.lists(statements(), max_size=8)):
        longer = text + draw(gaps) * bool(text) + statement + "\n"
        try:
            tomllib.loads(longer)
        except tomllib.TOMLDecodeError:
            continue
        text = longer
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


def places(value: object, place: Place = ()) -> Iterator[Place]:
    if isinstance(value, dict):
        for key, each in cast("dict[str, object]", value).items():
            yield (*place, key)
            yield from places(each, (*place, key))
    elif isinstance(value, list):
        for index, each in enumerate(cast("list[object]", value)):
            yield (*place, index)
            yield from places(each, (*place, index))


@given(documents())
def test_every_key_is_found_at_a_line_that_contains_it(text: str) -> None:
    lines = TomlLines(text)
    written = text.replace("\r\n", "\n").split("\n")
    all_places = set(places(tomllib.loads(text)))
    assert set(lines.of) == all_places
    assert lines.twice == []
    for place in all_places:
        key = place[-1]
        if isinstance(key, str):
            line = written[lines.of[place] - 1]
            assert key_of(key) in line or key in line


@given(st.text("ab.=\"[]{}\n#',\\ ", max_size=40))
def test_what_is_not_toml_is_read_without_harm(text: str) -> None:
    TomlLines(text)


# ── particular TOML ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_table_is_found_where_it_is_written_and_not_where_it_is_only_passed_through() -> None:
    lines = TomlLines("[agents.tag.rate]\ncalls = 1\n[agents.tag]\n[agents.prime]\n")
    assert (lines.of[("agents",)], lines.of["agents", "tag"], lines.of["agents", "prime"]) == (1, 3, 4)


def test_tables_in_an_array_are_told_apart() -> None:
    lines = TomlLines('[[rules]]\nthen = "ask"\n[rules.more]\nx = 1\n[[rules]]\nthen = "ask"\n')
    assert lines.of == {
        ("rules",): 1,
        ("rules", 0): 1,
        ("rules", 0, "then"): 2,
        ("rules", 0, "more"): 3,
        ("rules", 0, "more", "x"): 4,
        ("rules", 1): 5,
        ("rules", 1, "then"): 6,
    }


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        ("a = 1\na = 2\n", [DuplicateKey(("a",), 1, 2)]),
        ("[a]\nb.c = 1\n[a.b]\nc = 2\n", [DuplicateKey(("a", "b", "c"), 2, 4)]),
        ("[a]\n[b]\n[a]\n", [DuplicateKey(("a",), 1, 3)]),
        ("a = { b = 1, b = 2 }", [DuplicateKey(("a", "b"), 1, 1)]),
        ('a = 1\n"a" = 2', [DuplicateKey(("a",), 1, 2)]),
    ],
)
def test_a_key_that_stands_twice_is_noticed(text: str, twice: list[DuplicateKey]) -> None:
    assert TomlLines(text).twice == twice


@pytest.mark.parametrize(
    "text", ["a = [1", "a = {b = 1", "[a", "a", "= 1", '"\\x" = 1', 'a = "1" b = 2\nc = 3', "a = "]
)
def test_reading_ends_where_a_text_goes_wrong(text: str) -> None:
    assert ("c",) not in TomlLines(text).of


def test_places_are_shown_as_they_would_be_written() -> None:
    assert dotted(("agents", "tax-ai", "may_call")) == "agents.tax-ai.may_call"
    assert dotted(("rules", 0, "then")) == "rules[0].then"
    assert dotted(("agents", "a.b")) == 'agents."a.b"'


def test_a_value_is_found_by_its_place() -> None:
    table: dict[str, Any] = {"a": [{"b": 1}]}
    assert value_at(table, ("a", 0, "b")) == 1
    assert value_at(table, ("a", "b")) is None
    assert value_at(table, ("x", "b")) is None
