"""Bytes that are almost what a reader expects: valid samples, changed in a few places."""

# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false

import json
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

# Where readers have gone wrong before: half letters, numbers out of range, names given twice, deep nesting.
_BITS = (
    b"",
    b"\x00",
    b"\xff",
    b'"',
    b"\\",
    b'"\\ud800"',
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"NaN",
    b"0.1",
    b"9" * 30,
    b"{}",
    b"[]",
    b"[" * 3_000,
    b'{"a":' * 3_000,
    b"\r\n",
    b"\n",
    b" " * 5_000,
    b"\xc1\xd4\xdf\xff",
)
_TEXTS = ("", "\x00", "\ud800", "é" * 300, "x" * 70_000, "../..", "[EMAIL:abcdefghijkl]", "-", "1", "null", " \u2028")
_VALUES: SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(_TEXTS)
    | st.text(max_size=20)
    | st.just([])
    | st.just({})
    | st.lists(st.integers(), max_size=3)
    | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)
)


@st.composite
def changed_bytes(draw: st.DrawFn, samples: tuple[bytes, ...]) -> bytes:
    """Return a sample in which up to four places were overwritten, taken out, repeated, or filled from another one."""
    content = draw(st.sampled_from(samples))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.sampled_from((0, 1, 1, 2, 8, 64, 100_000))))
        match draw(st.integers(0, 3)):
            case 0:
                new = draw(st.sampled_from(_BITS))
            case 1:
                new = draw(st.binary(max_size=8))
            case 2:
                new = content[start:end] * 2
            case _:
                other = draw(st.sampled_from(samples))
                at = draw(st.integers(0, len(other)))
                new = other[at : at + draw(st.integers(0, 64))]
        content = content[:start] + new + content[end:]
    return content


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    places = [place]
    parts: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in parts:
        places += _places(part, (*place, step))
    return places


def _put(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    step, *rest = place
    if isinstance(value, dict):
        return {**value, step: _put(value[step], tuple(rest), new)}
    return [*value[:step], _put(value[step], tuple(rest), new), *value[step + 1 :]]


def _part_at(value: Any, place: tuple[Any, ...]) -> Any:
    for step in place:
        value = value[step]
    return value


@st.composite
def changed_values(draw: st.DrawFn, samples: tuple[Any, ...], encode: Callable[[Any], bytes]) -> bytes:
    """Return a sample in which up to three values were replaced, or fields added; it is still well-formed."""
    value = draw(st.sampled_from(samples))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(_places(value)))
        new = draw(_VALUES)
        if isinstance(held := _part_at(value, place), dict) and draw(st.booleans()):
            new = {**held, draw(st.text(max_size=10) | st.sampled_from(sorted(map(str, held)) or [""])): new}
        value = _put(value, place, new)
    return encode(value)


def _json(value: Any) -> bytes:
    # Half a letter is written as its escape, as others do.
    return json.dumps(value).encode()


def _msgpack(value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError):  # it has no larger numbers, and no half letters
        return b"\xc0"


def bytes_like(*samples: bytes) -> SearchStrategy[bytes]:
    return changed_bytes(samples) | st.binary(max_size=200)


def json_like(*samples: bytes) -> SearchStrategy[bytes]:
    return changed_values(tuple(map(json.loads, samples)), _json) | bytes_like(*samples)


def msgpack_like(*samples: bytes) -> SearchStrategy[bytes]:
    values = tuple(msgspec.msgpack.decode(each) for each in samples)
    return changed_values(values, _msgpack) | bytes_like(*samples)
