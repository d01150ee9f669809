"""Disguises of a word, each with whether a rule sees through it; and ordinary texts, in which it sees none."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.policy.verdict import Facts, Refuse
from remit_cli.config.rules import Rule, guard_of, search_text, search_word
from samples import a_request

FACTS = Facts(target=None)

CAUGHT = {
    "upper case": "REFUND",
    "zero-width space": "re\u200bfund",
    "zero-width joiner": "re\u200dfund",
    "zero-width non-joiner": "re\u200cfund",
    "word joiner": "re\u2060fund",
    "byte order mark": "re\ufefffund",
    "soft hyphen": "re\u00adfund",
    "combining grapheme joiner": "re\u034ffund",
    "Mongolian vowel separator": "re\u180efund",
    "Hangul filler": "re\u3164fund",
    "halfwidth Hangul filler": "re\uffa0fund",
    "Hangul choseong filler": "re\u115ffund",
    "variation selector": "r\ufe0fe\ufe0ffund",
    "variation selector supplement": "re\U000e0101fund",
    "invisible times": "re\u2062fund",
    "tag characters inside": "re\U000e0061\U000e0062fund",
    "tag characters alone": "".join(chr(0xE0000 + ord(char)) for char in "refund"),
    "left-to-right mark": "re\u200efund",
    "bidirectional isolate": "re\u2066fun\u2069d",
    "right-to-left override": "\u202ednufer\u202c",
    "combining strokes": "r\u0336e\u0336f\u0336u\u0336n\u0336d\u0336",
    "enclosing circles": "r\u20dde\u20ddf\u20ddu\u20ddn\u20ddd\u20dd",
    "accents": "réfünd",
    "fullwidth": "ｒｅｆｕｎｄ",
    "mathematical bold": "𝐫𝐞𝐟𝐮𝐧𝐝",
    "mathematical script": "𝓇ℯ𝒻𝓊𝓃𝒹",
    "mathematical monospace": "𝚛𝚎𝚏𝚞𝚗𝚍",
    "double-struck": "𝕣𝕖𝕗𝕦𝕟𝕕",
    "circled": "ⓡⓔⓕⓤⓝⓓ",
    "negative squared": "🆁🅴🅵🆄🅽🅳",
    "regional indicators": "🇷🇪🇫🇺🇳🇩",
    "small capitals": "ʀᴇꜰᴜɴᴅ",
    "superscript": "ʳᵉᶠᵘⁿᵈ",
    "stroked Latin": "ɍɇƒʉnđ",
    "one Cyrillic letter": "rеfund",
    "several Cyrillic letters": "rеfunԁ",
    "Greek letters": "rεfυηd",
    "Armenian letters": "refսոd",
    "Cherokee letters": "ᎡᎬfund",
    "Lisu letters": "ꓣꓰꓝꓴꓠꓓ",
    "Coptic letters": "REFUⲚD",
    "Canadian syllabics": "REᖴUNᗞ",
    "ancient letters": "REFU𐔓D",
    "blank Braille pattern": "re\u2800fund",
    "no-break space inside": "re\u00a0fund",
    "hair space inside": "re\u200afund",
    "ideographic space inside": "re\u3000fund",
    "newline inside": "re\nfund",
    "carriage return and newline inside": "re\r\n  fund",
    "line separator inside": "re\u2028fund",
    "each letter on a line": "r\ne\nf\nu\nn\nd",
    "hyphen and newline": "re-\n  fund",
    "letters apart": "r e f u n d",
    "dots between": "r.e.f.u.n.d",
    "hyphens between": "re-fund",
    "underscores between": "r_e_f_u_n_d",
    "asterisks between": "re**fund**",
    "markup inside": "re<b>fund</b>",
    "comment inside": "re<!-- x -->fund",
    "decimal entities": "&#114;&#101;fund",
    "hexadecimal entities": "&#x72;&#x65;fund",
    "double entities": "&amp;#114;efund",
    "named entity": "re&shy;fund",
    "named letters": "&rscr;&escr;fund",
    "percent-encoding": "%72%65fund",
    "double percent-encoding": "%2572efund",
    "Unicode escapes": r"\u0072efund",
    "hexadecimal escapes": r"\x72\x65fund",
}  # fmt: skip

NOT_CAUGHT = {
    "digits for letters": "r3fund",
    "other signs for letters": "re£und",
    "one space": "ref und",
    "a picture between": "re🔥fund",
    "turned letters": "punɟǝɹ",
    "backwards": "dnufer",
    "left out letters": "rfund",
    "swapped letters": "refnud",
    "base64": "cmVmdW5k",
    "hexadecimal digits": "726566756e64",
    "rot13": "ershaq",
    "quoted-printable": "=72=65fund",
    "octal escapes": r"\162\145fund",
    "Morse code": ".-. . ..-. ..- -. -..",
    "bytes in variation selectors": "x"
    + "".join(chr(0xFE00 + nibble) for byte in b"refund" for nibble in divmod(byte, 16)),
    "two fields": "re",
    "another word": "reimbursement",
    "another language": "remboursement",
    "look-alikes alone, in a text of their script": "сору, прошу вас",
}


def refuses(text: str, word: str = "refund") -> bool:
    rule = Rule(then="refuse", mentions=(word,))
    return isinstance(guard_of([rule])(a_request(objective=text), FACTS), Refuse)


@pytest.mark.parametrize("name", CAUGHT)
def test_a_rule_sees_a_word_through_this_disguise(name: str) -> None:
    assert refuses(f"please {CAUGHT[name]} it")


@pytest.mark.parametrize("name", NOT_CAUGHT)
def test_a_rule_does_not_see_a_word_through_this_disguise(name: str) -> None:
    """What the documentation lists as not caught; a change that catches one moves it."""
    word = "copy" if name.startswith("look-alikes") else "refund"
    assert not refuses(f"please {NOT_CAUGHT[name]} it", word)


# Ordinary texts, some with words that fold to one of the rules below: браузер holds "рау", and рот is spelled like pot.
ORDINARY = (
    "Открой браузер и проверь расписание на завтра.",
    "Врач посмотрел рот и нос, потом выписал сироп. Тот, кто хочет, сор вынесет.",
    "Веер, сосна и роса: темы для стихов. Она рассердилась.",
    "Будь ласка, перевір рахунок і надішли звіт до вечора.",
    "Παρακαλώ στείλτε μου την αναφορά για το ταξίδι στην Αθήνα, τον Οκτώβριο.",
    "Το νερό και ο αέρας: τα πρώτα στοιχεία. Ένα τοπ θέμα.",
    "Խնդրում եմ ուղարկեք ինձ հաշվետվությունը մինչև երեկո։ Նոր տուն, օր ու գիշեր։",
    "გთხოვთ გამომიგზავნოთ ანგარიში საღამომდე.",
    "Bitte schicken Sie mir den Bericht über die Straße nach Köln.\nDer Weg ist weit, und die Gäste kommen früh.",
    "Envíame el informe del año, señor; ¿qué opinas del café?",
    "Envoie-moi le rapport : l’été à l’île, 10 000 € en tout.",
    "Proszę wysłać sprawozdanie do piątku. Łódź jest piękna.",
    "请把报告发给我。今天天气很好。",
    "レポートを送ってください。",
    "보고서를 보내 주세요.",
    "أرسل لي التقرير من فضلك.",
    "אנא שלח לי את הדוח עד הערב.",
    "कृपया मुझे रिपोर्ट भेजें।",
    "The α and β coefficients of the Δt test are µ-scaled; see §4.",
    "Fund raising is on Monday.\nRe: your question\nFund managers agree that we are\nfunded well.",
    "We use\ncretaceous rocks. He said top\nping is fine. car\npets and ex\nport.",
    "const x = a <b && c> d; // re-use, f(u), n/d",
    "1. a\n2. b\n3. c\n\n- r\n- e",
)
WORDS = (
    *("refund", "pay", "pot", "cop", "top", "nose", "secret", "copy", "wire transfer", "casino", "password", "hop"),
    *("рот", "кот", "όρος", "Ապրիլ"),
)  # fmt: skip


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_texts_of_many_languages_mention_none_of_these_words(text: str) -> None:
    rules = {word for word in WORDS if refuses(text, word)}
    assert rules == {word for word in WORDS if word.casefold() in text.casefold()}


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


@given(st.text(max_size=80))
def test_a_text_mentions_every_part_of_itself(text: str) -> None:
    assert search_word(text[: len(text) // 2]).is_in(search_text(text)) or not text
