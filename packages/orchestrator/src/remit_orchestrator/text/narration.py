"""Texts for users: one answer from several components, and progress lines, without names of agents."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec import Struct

from remit.protocol.envelope import Level, Response, level_of
from remit.protocol.errors import Code, Fault
from remit.words.components import (
    Component,
    Conflict,
    Findings,
    capital,
    in_words,
    laid_out,
    short_value,
)
from remit.words.failures import plain_part, plain_warning, reason
from remit.words.names import Glossary, unified, without_names
from remit_orchestrator.text.vocabulary import DESCRIPTION_VERBS


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
    titled = [(each, title) for each, title in zip(sections, titles, strict=True) if each.result not in (None, "")]
    conflicts = findings.conflicts if findings else ()
    named = dict(zip((each.name for each in sections), zip(sections, titles, strict=True), strict=True))
    gaps = list(chain.from_iterable(map(_gaps, sections, titles)))
    questions = [each.question for each in conflicts if each.question]
    parts = [
        *(_blended(blend.strip(), titled) if blend.strip() else _in_turn(titled)),
        *_listed("Where the results differ", _shortened([_difference(each, named) for each in conflicts])),
        *_listed("What is missing", gaps),
        *_listed("What you need to decide", _shortened(questions)),
    ]
    if not titled:
        silent = [title for each, title in zip(sections, titles, strict=True) if not (each.skipped or each.failure)]
        parts.insert(0, f"Done: {', '.join(silent)}." if silent else nothing)

    def clean(text: str) -> str:
        return without_names(unified(text, glossary or {}), forbidden)

    return Narrative(text=clean("\n\n".join(parts)), questions=tuple(map(clean, questions)), complete=not gaps)


def _in_turn(titled: Sequence[tuple[NarrativeSection, str]]) -> Iterator[str]:
    for section, title in titled:
        if len(titled) > 1:
            yield f"## {title}"
        yield laid_out(section.result)
        if section.whole:
            continue
        notes = [f"Confidence: {_sureness(section.confidence)}."] + [f"Note: {each}" for each in section.warnings]
        yield "\n".join(notes)


def _blended(blend: str, titled: Sequence[tuple[NarrativeSection, str]]) -> Iterator[str]:
    yield blend
    yield from _listed("How sure this is", (f"{title}: {_sureness(section.confidence)}" for section, title in titled))
    yield from _listed("Please note", (warning for section, _ in titled for warning in section.warnings))


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
    text = short_value(value) or "…"
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
    phrase = without_names(_line(_CODE.sub("", description)), hidden)
    if not phrase:
        return "Working on it…"
    first, _, rest = phrase.partition(" ")
    if verb := _base(first.lower()):
        return f"Let me {verb} {rest}".rstrip() + "…"
    # An abbreviation keeps its upper case.
    return f"Working on {phrase if first[:2].isupper() else phrase[:1].lower() + phrase[1:]}…"


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
