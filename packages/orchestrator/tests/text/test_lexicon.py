"""The files of words by which texts are read."""

import re
from pathlib import Path

import pytest

import remit_orchestrator
from remit_orchestrator.text import lexicon

SOURCE = Path(remit_orchestrator.__file__).parent


def sections(language: str) -> list[str]:
    text = (SOURCE / "text" / "words" / f"{language}.txt").read_text(encoding="utf-8")
    return re.findall(r"^\[(.*)\]$", text, re.MULTILINE)


@pytest.mark.parametrize("language", lexicon.LANGUAGES)
def test_every_section_of_a_language_is_read_by_some_module_and_stands_once(language: str) -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    names = sections(language)
    assert len(names) == len(set(names)) > 0
    unread = [name for name in names if f'"{name}"' not in code and f"'{name}'" not in code]
    assert [name for name in unread if not name.startswith("quantifier.")] == []


def test_every_language_has_a_file_and_every_file_a_language() -> None:
    assert {path.stem for path in (SOURCE / "text" / "words").iterdir()} == set(lexicon.LANGUAGES)


def test_a_section_holds_what_all_languages_or_those_asked_for_have() -> None:
    assert {"we", "wir"} <= lexicon.word_set("request.pronouns")
    assert "wir" not in lexicon.word_set("request.pronouns", "en")
    assert lexicon.table("opposites")["win"][1] == ("lose", "verlieren")
    assert "im verzug" in lexicon.phrases("status.phrases")["verspätet"]


def test_a_section_that_no_language_has_is_an_error() -> None:
    with pytest.raises(KeyError):
        lexicon.word_set("no such section")
