"""Names and terms in texts for users: preferred terms, and no names of agents."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import cast

from remit.protocol.card import AgentCard
from remit.words.components import capital

Glossary = Mapping[str, str]
"""The preferred term for each variant."""

# Placeholders for redacted values must stay unchanged.
_TOKEN = re.compile(r"\[[A-Z][A-Z0-9_]{0,31}:[a-z]{12}\]")
# Links and quotations must stay unchanged, too.
_KEPT = re.compile(
    rf"{_TOKEN.pattern}|`[^`\n]{{1,200}}`|\bhttps?://[^\s<>\"')\]]{{1,500}}|(?<![\w.+-])[\w.+-]{{1,64}}+@[\w.-]{{1,200}}"
)
_NEW_SENTENCE = re.compile(r"(?:^|[.!?:]\s+|\n[\s#*•>-]*)\Z")


def unified(text: str, glossary: Glossary) -> str:
    """Return the text with the preferred term for each variant, as whole words, in the case of the original."""
    variants = {_key(variant): term for variant, term in glossary.items() if variant.strip()}
    if not variants:
        return text
    # A term that contains a variant is itself preferred.
    terms = (_key(term) for term in variants.values() if term.strip())
    pattern = _any_of({*variants, *terms}, after=r"(?!\w)")
    as_given = {" ".join(variant.split()) for variant in glossary}

    def put(match: re.Match[str]) -> str:
        written = " ".join(match[0].split())
        term = variants.get(written.lower())
        if term is None:
            return match[0]
        if written.isupper() and len(written) > 1 and written not in as_given:
            return term.upper()
        first = written[0].isupper() and (written not in as_given or _begins(match.string, match.start()))
        return capital(term) if first else term

    parts, end = list[str](), 0
    for kept in _KEPT.finditer(text):
        parts += (pattern.sub(put, text[end : kept.start()]), kept[0])
        end = kept.end()
    return "".join((*parts, pattern.sub(put, text[end:])))


def _key(name: str) -> str:
    return " ".join(name.lower().split())


def _any_of(names: Iterable[str], after: str) -> re.Pattern[str]:
    """Return a pattern for any of the names as a whole, longest first, in any case and spacing.

    A name of capital letters alone is matched in that case: NEWS is a code, "news" a word.
    """
    each = (
        ("(?<!\\w)" if re.match(r"\w", name) else "")
        + (rf"(?:(?-i:{name})|{name}(?=_\w))" if _is_capital(name) else r"\s+".join(map(re.escape, name.split())))
        + (after if name[-1].isalnum() else "")
        for name in sorted(names, key=lambda name: (-len(name), name))
    )
    return re.compile("|".join(each), re.IGNORECASE)


def _is_capital(name: str) -> bool:
    return name.isascii() and name.isalpha() and name.isupper()


def _begins(text: str, at: int) -> bool:
    """Return whether a sentence begins at this position."""
    return _NEW_SENTENCE.search(text[max(0, at - 20) : at]) is not None


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

# Replacements for a name: the first one that contains no name is used.
_STAND_INS = ("the analysis", "this part", "that step")
_ROLES = "(?:sub-)?agent|assistant|capability|service|tool|bot|worker|librarian|employee"
_BEFORE = re.compile(rf"(?:\b(?:the|an?|our)\s+)?(?:\b(?:{_ROLES})\s+)?[\"'`“‘]?\Z", re.IGNORECASE)
_AFTER = re.compile(rf"(?:(?P<own>['’]s\b)|[\"'`”’])?(?:\s+(?:{_ROLES})\b)?", re.IGNORECASE)
_LONGEST_BEFORE = 30
# A sentence of these words and a name says only who does the work.
_ROUTING = re.compile(
    r"\b(?:rout(?:e|es|ed|ing)|hand(?:ing)?[- ]?(?:off|over)|handed|delegat(?:e|es|ed|ing)|invok(?:e|es|ed|ing)"
    r"|dispatch(?:ed|ing)?|forward(?:ed|ing)|initiating)\b",
    re.IGNORECASE,
)
_SENTENCES = re.compile(r"((?<=[.!?…])\s+|\n+)")
_DIGIT = re.compile(r"\d")


# Codes of the contract that names agents have two or three letters; four leave room.
_LONGEST_CODE = 4


def hidden_names(cards: Iterable[AgentCard]) -> set[str]:
    """Return the names of agents and codes of capabilities that users never read."""
    return revealing(name for card in cards for name in (card.name, *(each.code for each in card.capabilities)))


def revealing(names: Iterable[str]) -> set[str]:
    """Return those of some names that reveal to a user that there are agents; a plain word does not."""
    return {name for name in names if not name.isalpha() or (name.isupper() and len(name) <= _LONGEST_CODE)}


def without_names(text: str, forbidden: Collection[str]) -> str:
    """Return the text without *forbidden* names, and without sentences about who does the work.

    Case is ignored, except in names of capital letters alone. A name is replaced by its entry in a mapping, or else by
    words for the work itself. Placeholders for redacted values stay unchanged.
    """
    names = {" ".join(name.split()) for name in forbidden if name.strip()}
    pattern = _present(names, text)
    if pattern is None:
        return text
    text = _without_routing(text, pattern)
    phrases: dict[str, str] = {}
    if isinstance(forbidden, Mapping):
        phrases = {_key(name): phrase for name, phrase in cast("Mapping[str, str]", forbidden).items()}
    words = next((each for each in _STAND_INS if _present(names, each) is None), "")
    replaced = _stood_in(text, pattern, phrases, words)
    if words and _present(names, replaced) is None:
        return replaced
    # A character that is in no name cannot form one with the text around it, as words could.
    return _stood_in(text, pattern, {}, next(sign for sign in map(chr, range(0x2022, 0x3000)) if not _has(names, sign)))


def _has(names: Collection[str], sign: str) -> bool:
    return any(sign in name for name in names)


def _present(names: Collection[str], text: str) -> re.Pattern[str] | None:
    """Return the pattern for the names that occur in the text; None if none does."""
    folded = text.casefold().replace("i\u0307", "i").replace("ı", "i")
    # Of a thousand names, few occur in any text: searching for each one literally costs least.
    near = [name for name in names if not name.isascii() or name.split()[0].lower() in folded]
    # A code that begins with a name is a separate code: ANL_MONTECARLO.
    pattern = _any_of(near, after=r"(?:_\w*+)?(?![^\W_])") if near else None
    return pattern if pattern and any(True for _ in _outside(text, pattern)) else None


def _outside(text: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Yield the matches outside placeholders for redacted values."""
    start = 0
    for token in (*_TOKEN.finditer(text), None):
        yield from pattern.finditer(text, start, token.start() if token else len(text))
        start = token.end() if token else start


def _without_routing(text: str, pattern: re.Pattern[str]) -> str:
    if not _ROUTING.search(text):
        return text
    pieces = [*_SENTENCES.split(text), ""]
    kept = [
        sentence + space
        for sentence, space in zip(pieces[::2], pieces[1::2], strict=True)
        if _DIGIT.search(sentence) or not (_ROUTING.search(sentence) and pattern.search(sentence))
    ]
    return "".join(kept).strip() if 2 * len(kept) < len(pieces) else text


def _stood_in(text: str, pattern: re.Pattern[str], phrases: Mapping[str, str], words: str) -> str:
    parts: list[str] = []
    end = 0
    for match in _outside(text, pattern):
        if match.start() < end:
            continue
        before = _BEFORE.search(text, max(end, match.start() - _LONGEST_BEFORE), match.start())
        start = before.start() if before else match.start()
        after = _AFTER.match(text, match.end())
        phrase = phrases.get(_key(match[0]), words)
        if _begins(text, start):
            phrase = capital(phrase)
        own = after["own"] if after and phrase[-1:].isalpha() else None
        parts += (text[end:start], phrase, own or "")
        end = after.end() if after else match.end()
    return "".join((*parts, text[end:]))
