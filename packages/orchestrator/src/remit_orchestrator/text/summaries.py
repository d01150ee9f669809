"""Summarises a conversation without a model: requests, decisions, demands, names and open questions."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from remit.protocol.envelope import Message, Note
from remit.words.components import cut, squeezed
from remit_orchestrator.text.constraints import changes_demand, demand_in
from remit_orchestrator.text.lexicon import pattern_within, word_set
from remit_orchestrator.text.sentences import is_question, names_and_numbers, sentences, spoken
from remit_orchestrator.text.vocabulary import REQUEST_VERBS

# How many of the newest of each are kept: together some 500 tokens, an eighth of a callee's default context.
_KEPT = {"asks": 8, "decisions": 8, "constraints": 8, "identifiers": 16, "numbers": 16, "questions": 6}
# Two lines of a terminal: most sentences are shorter, and the start of a longer one says what it is about.
_SENTENCE = 160
_NOTE = 300
_REPLY = 120
# The middle of a longer text is a document; the request about it stands before or after.
_READ_CHARS = 8_000
# More decisions than this in one message are a document, not a conversation.
_NOTES = 16


class Summary(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The summary of a conversation that is too long to be shown: the newest of each kind, oldest first."""

    asks: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    """Questions of agents that the user has not answered yet."""
    seq: int = 0
    """The last message that it covers."""


# ── kinds of sentences ────────────────────────────────────────────────────────────────────────────────────────────────

_REPORTED_DECISION = pattern_within("summary.reported")
_DECISION = pattern_within("summary.reported", "summary.decision")
# A sentence with one of these is a supposition or open, not a decision.
_UNDECIDED = pattern_within("summary.undecided")
_SUPPOSED = re.compile(r"(?:if|when|unless|whether|suppose|wenn|falls|ob)\b")

_WISH = pattern_within("summary.wish")
# Words that begin a decision, a prohibition, or a wish to leave something unchanged.
_NO_ASK = frozenset({"use", "keep", "let", "note", "verwende"})
_LEAD = word_set("summary.lead")


class _Signs(NamedTuple):
    """The kinds of a user's sentence, each with the position of the words that show it."""

    ask: bool
    decision: int | None
    constraint: int | None


def _signs(sentence: str) -> _Signs:
    lowered = sentence.lower()
    asks = is_question(lowered)
    decision = None if asks else _decided(lowered, _DECISION)
    if decision is None and changes_demand(sentence):
        # "Nuts are fine after all" changes what was demanded before.
        decision = 0
    constraint = demand_in(sentence) if decision is None else None
    return _Signs(asks or bool(_WISH.search(lowered)) or _is_imperative(lowered), decision, constraint)


def only_demands(sentence: str) -> bool:
    """Say whether a sentence demands something, and asks for nothing."""
    signs = _signs(sentence)
    return signs.constraint is not None and not signs.ask


def _decided(sentence: str, cues: re.Pattern[str]) -> int | None:
    cue = cues.search(sentence)
    return None if cue is None or _SUPPOSED.match(sentence) or _UNDECIDED.search(sentence) else cue.start()


def _is_imperative(sentence: str) -> bool:
    for word in sentence.split(" ", 4)[:4]:
        bare = word.strip(",:;.!")
        if bare not in _LEAD:
            return bare in REQUEST_VERBS and bare not in _NO_ASK
    return False


# ── folding in messages ───────────────────────────────────────────────────────────────────────────────────────────────


def extend(summary: Summary, messages: Sequence[Message]) -> Summary:
    """Return the summary with *messages* added, oldest first; messages that it already covers change nothing.

    The result does not depend on how the messages are grouped, so a summary can be stored and extended later.
    """
    kept = {name: dict.fromkeys(getattr(summary, name)) for name in _KEPT}
    seq = summary.seq
    for message in messages:
        # Unrecorded messages have no number.
        if 0 < message.seq <= seq:
            continue
        seq = max(seq, message.seq)
        fresh = _of_user(message.text, list(kept["questions"])) if message.role == "user" else _of_agent(message.text)
        if message.role == "user":
            # Any message of the user counts as a reply to the questions before it.
            kept["questions"].clear()
        for name, items in fresh.items():
            _keep(kept[name], items, _KEPT[name])
    return Summary(**{name: tuple(items) for name, items in kept.items()}, seq=seq)


def _keep(kept: dict[str, None], items: Iterable[str], most: int) -> None:
    """Add items as the newest, moving those that exist; drop the oldest."""
    for item in items:
        kept.pop(item, None)
        kept[item] = None
    for item in list(kept)[: max(0, len(kept) - most)]:
        del kept[item]


def _sentences_to_read(text: str) -> list[str]:
    """Return the sentences of a message; for a long one, those at its beginning and end."""
    text = spoken(text)
    if len(text) > 2 * _READ_CHARS:
        # Without the words that were cut in half.
        text = f"{text[:_READ_CHARS].rpartition(' ')[0]}\n{text[-_READ_CHARS:].partition(' ')[2]}"
    return list(sentences(text))


def _of_user(text: str, questions: Sequence[str]) -> dict[str, list[str]]:
    asks: list[str] = []
    decisions: list[str] = []
    constraints: list[str] = []
    sentence_list = _sentences_to_read(text)
    # A short reply without a question answers the last question.
    reply = bool(questions and sentence_list) and len(text) <= _REPLY and not any(map(is_question, sentence_list))
    for sentence in sentence_list:
        signs = _signs(sentence)
        if signs.ask and not reply:
            asks.append(cut(sentence, _SENTENCE))
        if signs.decision is not None and not reply:
            decisions.append(cut(sentence, _SENTENCE, signs.decision))
        if signs.constraint is not None:
            constraints.append(cut(sentence, _SENTENCE, signs.constraint))
    if reply:
        decisions.append(_answered(questions[-1], " ".join(sentence_list), _SENTENCE))
    elif sentence_list and not (asks or decisions or constraints):
        # Any other message of a user is a request.
        asks.append(cut(sentence_list[0], _SENTENCE))
    return {"asks": asks, "decisions": decisions, "constraints": constraints, **_things(sentence_list)}


def _of_agent(text: str) -> dict[str, list[str]]:
    sentence_list = _sentences_to_read(text)
    decisions: list[str] = []
    questions: list[str] = []
    for sentence in sentence_list:
        if is_question(sentence):
            questions.append(cut(sentence, _SENTENCE))
        elif (place := _decided(sentence.lower(), _REPORTED_DECISION)) is not None:
            decisions.append(cut(sentence, _SENTENCE, place))
    return {"decisions": decisions, "questions": questions, **_things(sentence_list)}


def _things(sentence_list: Iterable[str]) -> dict[str, list[str]]:
    identifiers: list[str] = []
    numbers: list[str] = []
    for sentence in sentence_list:
        names, figures = names_and_numbers(sentence)
        identifiers += names
        numbers += figures
    return {"identifiers": identifiers, "numbers": numbers}


def _answered(question: str, reply: str, length: int) -> str:
    half = length // 2 - 2
    short_question = cut(question, half)
    return f"{short_question} → {cut(reply, length - len(short_question) - 3)}"


# ── the summary as text ───────────────────────────────────────────────────────────────────────────────────────────────

_HEADINGS = {
    "asks": "The user asked:",
    "decisions": "Decided:",
    "constraints": "Constraints:",
    "questions": "Not answered yet:",
    "identifiers": "Names:",
    "numbers": "Figures:",
}
_ON_ONE_LINE = frozenset({"identifiers", "numbers"})


def written(summary: Summary, *, room: int | None = None, count: Callable[[str], int] = len) -> str:
    """Return the summary as text, each line once, with the newest of each that fit in *room* (measured by *count*).

    Oldest first: a later line may correct an earlier one, and is read last.
    """
    for most in (max(_KEPT.values()), 8, 4, 2, 1):
        text = _render(summary, most)
        if room is None or count(text) <= room:
            return text
    return ""


def _render(summary: Summary, most: int) -> str:
    lines: list[str] = []
    shown: set[str] = set()
    for name, heading in _HEADINGS.items():
        items = [item for item in getattr(summary, name)[-most:] if item not in shown]
        shown.update(items)
        if not items:
            continue
        if name in _ON_ONE_LINE:
            lines.append(f"{heading} {', '.join(items)}")
        else:
            lines += [heading, *(f"- {item}" for item in items)]
    return "\n".join(lines)


def notes_of(text: str) -> tuple[Note, ...]:
    """Return a user's decisions and demands in one text, each once."""
    notes: dict[Note, None] = {}
    for sentence in _sentences_to_read(text):
        signs = _signs(sentence)
        if signs.decision is not None:
            notes[Note("decision", cut(sentence, _NOTE, signs.decision))] = None
        elif signs.constraint is not None:
            notes[Note("constraint", cut(sentence, _NOTE, signs.constraint))] = None
        if len(notes) == _NOTES:
            break
    return tuple(notes)


_OPTION = re.compile(r"\s*+(?:[-*•–+]|\d{1,3}[.)]|[a-zA-Z]\))\s")


def answer_note(question: str, reply: str) -> Note | None:
    """Return what a user's *reply* decides, if an agent's last message ends with a question or with options."""
    lines = question.splitlines()
    while lines and (not lines[-1].strip() or _OPTION.match(lines[-1])) and not is_question(lines[-1]):
        lines.pop()
    last_sentences = list(sentences(lines[-1])) if lines else []
    reply = squeezed(reply)
    if not last_sentences or not is_question(last_sentences[-1]) or not reply:
        return None
    return Note("answer", _answered(last_sentences[-1], reply, _NOTE))
