"""Text without its disguises: what rules and redaction read in the place of what was written."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.policy.rules import Rule, guard_of
from remit.policy.verdict import Facts, Refuse
from remit.words import normalisation
from remit.words.normalisation import likeness, search_text, search_word, unescaped
from samples import a_request

FACTS = Facts(target=None)


def mentions(word: str, **changes: Any) -> bool:
    rule = Rule(then="refuse", mentions=(word,))
    return isinstance(guard_of([rule])(a_request(**changes), FACTS), Refuse)


@pytest.mark.parametrize(
    "written",
    [
        "wire transfer",
        "w\u200bi\u200dr\u2060e tran\ufeffsfer",
        "wi\u00adre trans\u00adfer",
        "ｗｉｒｅ　ｔｒａｎｓｆｅｒ",
        "𝐰𝐢𝐫𝐞 𝓉𝓇𝒶𝓃𝓈𝒻ℯ𝓇",
        "ⓦⓘⓡⓔ 🅣🆁🅐🅝🅢🅕🅔🅡",
        "wіrе trаnѕfеr",  # Cyrillic
        "wirε τrαnsfεr",  # Greek
        "w\u0336i\u0336r\u0336e\u0336 trànsfér",
        "wíré ŧrańsƒer",
        "ᴡɪʀᴇ ᴛʀᴀɴꜱꜰᴇʀ",
        "w-i-r-e t-r-a-n-s-f-e-r",
        "wi-re trans-\n  fer",
        "w.i.r.e t_r_a_n_s_f_e_r",
        "w*i*r*e tr~ans|fer",
        "%77ire%20transfer",
        "%2577ire transfer",
        "&#119;ire &#x74;ransfer",
        "wire&nbsp;transfer",
        r"\u0077ire \x74ransfer",
        r"\\u{77}ire transfer",
    ],
)
def test_a_rule_about_words_sees_through_disguises(written: str) -> None:
    assert mentions("Wire Transfer", objective=f"Please {written} it")
    assert mentions("wire transfer", objective="x", input=written)
    assert mentions("wire transfer", objective="x", input={"how": [written]})


def test_letters_apart_are_a_word() -> None:
    assert mentions("wire", objective="please w i r e it")
    assert not mentions("wire", objective="a b w ire")


@pytest.mark.parametrize(
    "word", ["перевод", "Перевод", "支付", "송금", "μεταφορά", "Straße", "تحويل", "e-mail", "%40", "&amp;"]
)
def test_words_of_every_script_and_with_signs_are_still_found(word: str) -> None:
    assert mentions(word, objective=f"please {word} now")
    assert mentions(word, objective=f"please {word.casefold()} now")
    assert mentions(word.casefold(), objective=f"please {word} now")
    assert not mentions(word, objective="nothing of the kind")


def test_a_word_that_only_has_invisible_characters_is_found_as_written_alone() -> None:
    assert not mentions("\u200b", objective="nothing of the kind")
    assert mentions("\u200b", objective="some\u200bthing")


def test_no_word_is_found_across_objective_and_input() -> None:
    assert not mentions("wire", objective="w-", input="ire")


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
    found = unescaped(text)
    assert found is not None
    assert found.text == decoded
    assert found.hides


@pytest.mark.parametrize("text", ["", "100 % & more \\", "50%zz \\n", "&unknown;"])
def test_a_text_without_escapes_has_no_other_form(text: str) -> None:
    assert unescaped(text) is None


def test_escapes_that_must_be_written_hide_nothing() -> None:
    found = unescaped("a%20b &lt;p&gt; &quot;x&quot;")
    assert found is not None
    assert (found.text, found.hides) == ('a b <p> "x"', False)


@given(
    st.lists(st.sampled_from(["a", "é", "@", "%40", "%C3%A9", "&#64;", "\\u0040", "%FF", " ", "&commat;"]), max_size=12)
)
def test_every_decoded_character_knows_where_it_was_written(parts: list[str]) -> None:
    text = "".join(parts)
    found = unescaped(text)
    if found is None:
        return
    assert len(found.text) == len(found.starts) == len(found.ends)
    assert [0, *found.ends] == [*found.starts, len(text)]
    for char, start, end in zip(found.text, found.starts, found.ends, strict=True):
        assert end - start > 1 or char == text[start]


@given(st.text(max_size=80))
def test_a_text_mentions_every_part_of_itself(text: str) -> None:
    assert search_word(text[: len(text) // 2]).is_in(search_text(text)) or not text


@given(st.text(alphabet="%&\\#xu25;0Aamp{}", max_size=120), st.integers(1, 20))
def test_a_text_that_is_searched_in_steps_has_the_same_escapes(text: str, step: int) -> None:
    whole = unescaped(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normalisation, "_STEP", step)
        assert unescaped(text) == whole


def test_an_escape_is_whole_wherever_a_step_ends() -> None:
    for before in range(49_900, 50_010):
        found = unescaped("." * before + "%41" * 200 + r"\u0042")
        assert found is not None
        assert found.text == "." * before + "A" * 200 + "B"
