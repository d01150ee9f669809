"""Disguises of a word, each with whether a rule sees through it; and ordinary texts, in which it sees none."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.policy.verdict import Facts, Refuse
from remit_cli.config.rules import Rule, guard_of, search_text, search_word
from samples import a_request

FACTS = Facts(target=None)

TABLES = tomllib.loads(Path(__file__).with_name("disguises.toml").read_text(encoding="utf-8"))
CAUGHT, NOT_CAUGHT, ORDINARY = TABLES["caught"], TABLES["not_caught"], TABLES["ordinary"]


def refuses(text: str, word: str = "refund") -> bool:
    rule = Rule(then="refuse", mentions=(word,))
    return isinstance(guard_of([rule])(a_request(objective=text), FACTS), Refuse)


@pytest.mark.parametrize("name", CAUGHT)
def test_a_rule_sees_a_word_through_this_disguise(name: str) -> None:
    assert refuses(f"please {CAUGHT[name]} it")


@pytest.mark.parametrize("name", NOT_CAUGHT)
def test_a_rule_does_not_see_a_word_through_this_disguise(name: str) -> None:
    word = "copy" if name.startswith("look-alikes") else "refund"
    assert not refuses(f"please {NOT_CAUGHT[name]} it", word)


@pytest.mark.parametrize("text", ORDINARY["texts"])
def test_ordinary_texts_of_many_languages_mention_none_of_these_words(text: str) -> None:
    rules = {word for word in ORDINARY["words"] if refuses(text, word)}
    assert rules == {word for word in ORDINARY["words"] if word.casefold() in text.casefold()}


def test_a_word_of_another_script_is_found_in_it_and_disguised() -> None:
    assert refuses("Сделай перевoд завтра", "перевод")  # a Latin o
    assert refuses("сделай пе\u200bревод", "Перевод")
    assert refuses("μεταφορα", "μεταφορά")
    assert refuses("открой рот", "рот")
    assert not refuses("put it into the pot", "рот")


# ── where words are looked for ───────────────────────────────────────────────────────────────────────────────────────


def mentions(word: str, **changes: Any) -> bool:
    rule = Rule(then="refuse", mentions=(word,))
    return isinstance(guard_of([rule])(a_request(**changes), FACTS), Refuse)


@pytest.mark.parametrize("written", TABLES["wire_transfer"]["written"])
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


@given(st.text(max_size=80))
def test_a_text_mentions_every_part_of_itself(text: str) -> None:
    assert search_word(text[: len(text) // 2]).is_in(search_text(text)) or not text
