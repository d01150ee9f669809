"""Text without its disguises: what rules and redaction read in the place of what was written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit_redaction import disguises
from remit_redaction.disguises import likeness, unescaped


@pytest.mark.parametrize(
    ("char", "seen"),
    [
        ("а", "a"), ("Н", "H"), ("ё", "e"), ("й", "и"), ("ł", "l"), ("Ø", "O"), ("æ", "ae"), ("ʟ", "l"), ("ı", "i"),
        ("🅰", "A"), ("½", "1/2"), ("\u207b", "-"),
        ("٣", "3"), ("\u3164", ""), ("’", "'"), ("“", '"'), ("€", "$"), ("·", "."),
        ("–", "-"), ("\u2028", " "), ("例", "例"), ("한", "한"), ("ß", "ß"), ("x", "x"),
    ],
)  # fmt: skip
def test_a_character_is_read_as_what_it_looks_like(char: str, seen: str) -> None:
    assert likeness(char) == seen


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("a%40b", "a@b"),
        ("caf%C3%A9 %61", "café a"),
        ("%FF%61", "ÿa"),
        ("a&#64;b &commat; &amp;#64; &amp;amp;#x40;", "a@b @ @ @"),
        (r"a\u0040b \x40 \\\\u0040", "a@b @ @"),
        ("&#1114112;%41", "&#1114112;A"),
        ("&unknown;%41", "&unknown;A"),
    ],
)
def test_escapes_are_decoded(text: str, decoded: str) -> None:
    plain = unescaped(text)
    assert plain is not None
    assert plain.text == decoded
    assert plain.hides


@pytest.mark.parametrize("text", ["", "100 % & more \\", "50%zz \\n", "&unknown;"])
def test_a_text_without_escapes_has_no_other_form(text: str) -> None:
    assert unescaped(text) is None


def test_escapes_that_must_be_written_hide_nothing() -> None:
    plain = unescaped("a%20b &lt;p&gt; &quot;x&quot;")
    assert plain is not None
    assert (plain.text, plain.hides) == ('a b <p> "x"', False)


@given(
    st.lists(st.sampled_from(["a", "é", "@", "%40", "%C3%A9", "&#64;", "\\u0040", "%FF", " ", "&commat;"]), max_size=12)
)
def test_every_decoded_character_knows_where_it_was_written(parts: list[str]) -> None:
    text = "".join(parts)
    plain = unescaped(text)
    if plain is None:
        return
    assert len(plain.text) == len(plain.starts) == len(plain.ends)
    assert [0, *plain.ends] == [*plain.starts, len(text)]
    for char, start, end in zip(plain.text, plain.starts, plain.ends, strict=True):
        assert end - start > 1 or char == text[start]


@given(st.text(alphabet="%&\\#xu25;0Aamp{}", max_size=120), st.integers(1, 20))
def test_a_text_that_is_searched_in_steps_has_the_same_escapes(text: str, step: int) -> None:
    whole = unescaped(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disguises, "_STEP", step)
        assert unescaped(text) == whole


def test_an_escape_is_whole_wherever_a_step_ends() -> None:
    for before in range(49_900, 50_010):
        plain = unescaped("." * before + "%41" * 200 + r"\u0042")
        assert plain is not None
        assert plain.text == "." * before + "A" * 200 + "B"
