"""Texts for users: one answer from several components, and progress lines, without names of agents."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import cast

from msgspec import Struct

from remit.protocol.card import AgentCard
from remit.protocol.confidence import Level, level_of
from remit.protocol.envelope import Response
from remit.protocol.errors import Code, Fault
from remit.text.failures import plain_part, plain_warning, reason
from remit.text.vocabulary import DESCRIPTION_VERBS
from remit.words.components import (
    Component,
    Conflict,
    Findings,
    capital,
    in_words,
    laid_out,
    said_shortly,
)

Glossary = Mapping[str, str]
"""The preferred term for each variant."""


class NarrativeSection(Component, frozen=True, kw_only=True):
    """A component as a step of the work: its result, and what is missing."""

    missing: tuple[str, ...] = ()
    """Requested parts that the result does not contain."""
    warnings: tuple[str, ...] = ()
    failure: Fault | None = None
    """Why there is no result, or only a partial one."""
    skipped: str = ""
    """Why the step was not begun, in plain language: "the flight was not booked"."""
    whole: bool = False
    """Whether the result is itself a narrative, which already states its confidence and what is missing."""


class Narrative(Struct, frozen=True, kw_only=True):
    """The text for the user, and the questions to ask them."""

    text: str
    questions: tuple[str, ...] = ()
    complete: bool = True
    """Whether nothing that was requested is missing."""


def section_of(title: str, response: Response) -> NarrativeSection:
    """Return the section for a step; for one that timed out, with what was finished before."""
    return NarrativeSection(
        response.target,
        response.result,
        response.confidence,
        title,
        missing=tuple(map(plain_part, response.unfinished)),
        warnings=tuple(dict.fromkeys(map(plain_warning, response.warnings))),
        failure=None if response.ok else (response.fault or Fault(code=Code.DELEGATION_FAILED, message="")).outward(),
    )


# ── the answer ────────────────────────────────────────────────────────────────────────────────────────────────────────

# The gravest come first; nobody reads a longer list, but it says that there is more.
_SHOWN = 10
NOTHING_DONE = "None of this could be done."
_SURENESS = {Level.HIGH: "high", Level.MEDIUM: "medium", Level.LOW: "low", Level.SPECULATIVE: "speculative"}


def narrate(
    sections: Sequence[NarrativeSection],
    findings: Findings | None = None,
    *,
    glossary: Glossary | None = None,
    forbidden: Collection[str] = (),
    blend: str = "",
    nothing: str = NOTHING_DONE,
) -> Narrative:
    """Return one answer from the sections, in the order given: results, confidence, and what is missing.

    *blend* is a text that already combines the results, and replaces them; the rest is added all the same. *nothing* is
    the answer if no section has a result and none succeeded without one. Agents and capabilities are not mentioned:
    *forbidden* names appear nowhere, and terms are those of the *glossary*.
    """
    titles = [" ".join(each.title.split()) or f"Part {place}" for place, each in enumerate(sections, 1)]
    told = [(each, title) for each, title in zip(sections, titles, strict=True) if each.result not in (None, "")]
    conflicts = findings.conflicts if findings else ()
    named = dict(zip((each.name for each in sections), zip(sections, titles, strict=True), strict=True))
    gaps = list(chain.from_iterable(map(_gaps, sections, titles)))
    questions = [each.question for each in conflicts if each.question]
    parts = [
        *(_blended(blend.strip(), told) if blend.strip() else _in_turn(told)),
        *_listed("Where the results differ", _shortened([_difference(each, named) for each in conflicts])),
        *_listed("What is missing", gaps),
        *_listed("What you need to decide", _shortened(questions)),
    ]
    if not told:
        silent = [title for each, title in zip(sections, titles, strict=True) if not (each.skipped or each.failure)]
        parts.insert(0, f"Done: {', '.join(silent)}." if silent else nothing)

    def clean(text: str) -> str:
        return without_names(unified(text, glossary or {}), forbidden)

    return Narrative(text=clean("\n\n".join(parts)), questions=tuple(map(clean, questions)), complete=not gaps)


def _in_turn(told: Sequence[tuple[NarrativeSection, str]]) -> Iterator[str]:
    for section, title in told:
        if len(told) > 1:
            yield f"## {title}"
        yield laid_out(section.result)
        if section.whole:
            continue
        notes = [f"Confidence: {_sureness(section.confidence)}."] + [f"Note: {each}" for each in section.warnings]
        yield "\n".join(notes)


def _blended(blend: str, told: Sequence[tuple[NarrativeSection, str]]) -> Iterator[str]:
    yield blend
    yield from _listed("How sure this is", (f"{title}: {_sureness(section.confidence)}" for section, title in told))
    yield from _listed("Please note", (warning for section, _ in told for warning in section.warnings))


def _listed(heading: str, lines: Iterable[str]) -> Iterator[str]:
    listed = [f"- {line}" for line in lines]
    if listed:
        yield "\n".join((f"## {heading}", "", *listed))


def _shortened(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _SHOWN else [*lines[:_SHOWN], f"… and {len(lines) - _SHOWN} more that weigh less."]


def _sureness(confidence: float | None) -> str:
    return "not stated" if confidence is None else _SURENESS[level_of(confidence)]


def _difference(conflict: Conflict, named: Mapping[str, tuple[NarrativeSection, str]]) -> str:
    """Return who says what, by the titles of their work, and which value is preferred and why."""
    sides: list[str] = []
    for value, names in conflict.values:
        sources = [named[name] for name in names if name in named]
        sure = "; ".join(f"{title}, confidence {_sureness(section.confidence)}" for section, title in sources)
        sides.append(f"{_quoted(value)} ({sure})" if sure else _quoted(value))
    if conflict.settled:
        reason = f"{_quoted(conflict.preferred)} counts, as you decided."
    elif conflict.preferred is None:
        reason = "Neither is the more certain." if len(sides) == 2 else "None is more certain than the others."
    else:
        reason = f"{_quoted(conflict.preferred)} is preferred, because that source is the more certain."
    return f"{capital(in_words(conflict.path))}: {' or '.join(sides)}. {reason}"


def _quoted(value: object) -> str:
    text = said_shortly(value) or "…"
    # A sentence within a sentence needs quotes, a figure does not.
    return f"“{text}”" if text.count(" ") > 2 else text


# ── missing parts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _gaps(section: NarrativeSection, title: str) -> Iterator[str]:
    if section.skipped:
        yield f"{title}: not begun, because {section.skipped.rstrip('.')}."
    elif section.failure:
        state = "not done" if section.result in (None, "") else "not finished"
        yield f"{title}: {state}; {reason(section.failure)}"
    if section.missing and not section.whole:
        yield f"{title}: without {', '.join(section.missing).rstrip('.')}."


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

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

    def put(found: re.Match[str]) -> str:
        said = " ".join(found[0].split())
        term = variants.get(said.lower())
        if term is None:
            return found[0]
        if said.isupper() and len(said) > 1 and said not in as_given:
            return term.upper()
        first = said[0].isupper() and (said not in as_given or _begins(found.string, found.start()))
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
    said = _stood_in(text, pattern, phrases, words)
    if words and _present(names, said) is None:
        return said
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
    for found in _outside(text, pattern):
        if found.start() < end:
            continue
        before = _BEFORE.search(text, max(end, found.start() - _LONGEST_BEFORE), found.start())
        start = before.start() if before else found.start()
        after = _AFTER.match(text, found.end())
        phrase = phrases.get(_key(found[0]), words)
        if _begins(text, start):
            phrase = capital(phrase)
        own = after["own"] if after and phrase[-1:].isalpha() else None
        parts += (text[end:start], phrase, own or "")
        end = after.end() if after else found.end()
    return "".join((*parts, text[end:]))


# ── progress ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_CODE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)++\b[:,]?\s*|\s*\([A-Z]{2,9}\)")
_END = re.compile(r"[.!?](?=\s)|\n")
# The length of a line that a person reads while something runs.
_PHRASE = 80


def progress_phrase(
    capability: str | None, phrases: Mapping[str, str], description: str = "", *, forbidden: Collection[str] = ()
) -> str:
    """Return the line that the user reads while a step runs, without codes and names.

    It is the team's phrase for the capability, or else is made from the capability's description. A plain word that is
    also the capability's name stays: in "Check the gallery" it says what the work is about.
    """
    hidden = {*forbidden, capability} if capability and not _is_word(capability) else forbidden
    if given := without_names(_line(phrases.get(capability or "", "")), hidden):
        return f"{given}…"
    told = without_names(_line(_CODE.sub("", description)), hidden)
    if not told:
        return "Working on it…"
    first, _, rest = told.partition(" ")
    if verb := _base(first.lower()):
        return f"Let me {verb} {rest}".rstrip() + "…"
    # An abbreviation keeps its upper case.
    return f"Working on {told if first[:2].isupper() else told[:1].lower() + told[1:]}…"


def _is_word(name: str) -> bool:
    """Return whether a name is written as a word in a sentence, and not as a code: `gallery`, but not `GALLERY`."""
    return name.isalpha() and name[1:] == name[1:].lower() and not name.isupper()


def _line(text: str) -> str:
    """Return the first sentence of a text as one line, short enough to read in passing."""
    line = " ".join(_END.split(text.strip(), 1)[0].split())
    if len(line) > _PHRASE:
        line = line[:_PHRASE].rpartition(" ")[0] or line[:_PHRASE]
    return line.rstrip(" .!…:;,")


def _base(word: str) -> str | None:
    """Return the imperative of a verb, if the word is one: `analyses` becomes `analyse`."""
    forms = (word, word.removesuffix("s"), word.removesuffix("es"), word.removesuffix("ies") + "y")
    return next((form for form in forms if form in DESCRIPTION_VERBS), None)
