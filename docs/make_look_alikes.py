"""Makes the `look_alikes.txt` of remit_redaction anew, from the confusables of Unicode 15.1 (UTS 39).

They come from the wheel confusable-homoglyphs, which is too slow to import in a hub: 900 KB of JSON.
Run: pip install confusable-homoglyphs==3.3.1 && python docs/make_look_alikes.py
"""

import json
import unicodedata
from importlib.resources import files
from pathlib import Path

MADE = Path(__file__).parent.parent / "packages/redaction/src/remit_redaction/look_alikes.txt"
# In these scripts a circle or a stroke is a letter of ordinary words, beside numbers that are searched for.
LEFT_OUT = ("ARABIC", "HEBREW", "SYRIAC", "NKO", "CJK", "HANGUL", "KATAKANA", "HIRAGANA", "THAI", "LAO", "KHMER")
# What is used as a disguise, and is not in the table or has another letter there.
BESIDES = dict(
    zip(
        "ІӀΙꓲӏ" "σςεηωγκχβτνќքլցգՏԼզ" "ԍүҮвнткмԜԝәӘƏəҺԚյ" "ɑɡɩıƽ",
        "IIIIl" "scenwykxbtvkplgqSLq" "gyYbhtkmWweEEeHQj" "agiis",
        strict=True,
    )
)  # fmt: skip


def look_alikes(confusables: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    """Return each letter that looks like one of ASCII, and that one; without those that NFKC replaces."""
    plain_by_char: dict[str, str] = {}
    for char, alike in confusables.items():
        plain = [each["c"] for each in alike if len(each["c"]) == 1 and each["c"].isascii() and each["c"].isalpha()]
        is_letter = len(char) == 1 and not char.isascii() and unicodedata.category(char).startswith("L")
        if not plain or not is_letter or unicodedata.name(char, "").startswith(LEFT_OUT):
            continue
        if not unicodedata.normalize("NFKC", char).isascii():
            # The table has no capital I: it looks like a small l.
            plain_by_char[char] = "I" if plain[0] == "l" and char.isupper() else plain[0]
    return plain_by_char | BESIDES


def main() -> None:
    """Write the file."""
    source = files("confusable_homoglyphs").joinpath("confusables.json").read_text(encoding="utf-8")
    plain_by_char = look_alikes(json.loads(source))
    rows = {
        plain: "".join(sorted(char for char, each in plain_by_char.items() if each == plain))
        for plain in sorted(set(plain_by_char.values()))
    }
    MADE.write_text("".join(f"{plain} {chars}\n" for plain, chars in rows.items()), encoding="utf-8")


if __name__ == "__main__":
    main()
