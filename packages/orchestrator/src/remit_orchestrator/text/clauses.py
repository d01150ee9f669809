"""Splits texts into clauses that can be true or false by themselves, with their sources."""

import re
from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from remit_orchestrator.text.vocabulary import CLAUSE_VERBS, PUNCTUATION, WEAK, stem

# Placeholder for a figure.
FIGURE = "\ue000"
TOKEN = re.compile(rf"[^\W\d_]\w*+(?:[-']\w++)*+|{FIGURE}|\d\w*+|[,:;()]")
DIGIT = re.compile(r"\d")
NO_WORDS: frozenset[str] = frozenset()

_END = re.compile(r"""([.!?;](?:(?= [A-Z])|(?<=;)|["')\]*_]{0,3}(?=\s+["'(\[*_]{0,3}[A-Z0-9•-]|\s*\Z)))""")
_ABBREVIATIONS = ("dr", "mr", "mrs", "ms", "st", "no", "ca", "vs", "approx", "e.g", "i.e")
_LONGEST_ABBREVIATION = 7
_TURNS = (" but ", " while ", " whereas ", " although ", " though ", " however ")
_TURN = re.compile(f",?(?:{'|'.join(_TURNS)})")
_JOINT = re.compile(r",?\sand\s|,\s")
_HEADING = re.compile(r"\s{0,3}(?:#{1,6}\s|\*\*[^*]{1,80}\*\*:?\s{0,3}\Z)|.{1,80}:\s{0,3}\Z")
_MARKS = " \t-*•>|#"
# Longer texts are not sentences.
_SHORTEST, _LONGEST = 4, 400


class Clause(Struct, frozen=True, gc=False):
    """A part of a text that can be true or false by itself, with the words of the heading above it."""

    text: str
    context: frozenset[str] = NO_WORDS


class OwnedClause(Struct, eq=False, gc=False):
    """A clause and its owners, one bit for each."""

    clause: Clause
    owners: int = 0


class Prose:
    """The clauses of several texts, each once."""

    def __init__(self) -> None:
        self.said: list[OwnedClause] = []
        """In the order in which they were first said."""
        self._clauses: dict[Clause, OwnedClause] = {}
        self._read: dict[frozenset[str], dict[str, list[OwnedClause]]] = {}
        """Sentences already read, by the heading above them; sources that agree share many."""

    def hear(self, text: str, owners: int, most: int) -> int:
        """Add the clauses of a text, at most *most*; return how many it has, up to one more.

        Questions, headings and texts too long for a sentence are skipped.
        """
        left = most
        context = NO_WORDS
        read = self._read.setdefault(context, {})
        for line in text.replace(FIGURE, " ").splitlines():
            if _HEADING.match(line) and not DIGIT.search(line):
                context = frozenset(root for root, _ in content(line))
                read = self._read.setdefault(context, {})
                continue
            # Each sentence except the last is followed by the mark that ends it.
            pieces = _END.split(line)
            pieces.append("")
            cut = ""
            for place, (sentence, end) in enumerate(zip(pieces[::2], pieces[1::2], strict=True)):
                if cut:
                    sentence = cut + sentence
                    cut = ""
                said = read.get(sentence)
                if said is None:
                    short = end and sentence[-_LONGEST_ABBREVIATION:].lower().endswith(_ABBREVIATIONS)
                    if short and _is_abbreviated(line, sum(map(len, pieces[: 2 * place + 1])), len(end)):
                        cut = sentence + end
                        continue
                    if "?" in end:
                        continue
                    said = self._parsed(sentence, context)
                    if not short:  # otherwise it belongs to what comes next
                        read[sentence] = said
                elif "?" in end:
                    continue
                for each in said:
                    if not left:
                        return most + 1
                    left -= 1
                    if not each.owners:
                        self.said.append(each)
                    each.owners |= owners
        return most - left

    def _parsed(self, sentence: str, context: frozenset[str]) -> list[OwnedClause]:
        """Return the parts of a sentence that have a verb: "the hotel costs 100 and has a pool" has two."""
        if not _SHORTEST <= len(sentence) <= _LONGEST:
            return []
        heard: list[OwnedClause] = []
        for turn in _TURN.split(sentence) if any(map(sentence.__contains__, _TURNS)) else (sentence,):
            for part in _parts(turn) if " and " in turn or ", " in turn else (turn,):
                clause = Clause(part.strip(_MARKS), context)
                known = self._clauses.get(clause)
                if known is None:
                    known = self._clauses[clause] = OwnedClause(clause)
                heard.append(known)
        return heard


def _is_abbreviated(line: str, dot: int, length: int) -> bool:
    word = line[max(0, dot - _LONGEST_ABBREVIATION) : dot].lower().split()[-1]
    # "No. 5" is a number, "no. It was" is an answer.
    return word in _ABBREVIATIONS and (word != "no" or line[dot + length :].lstrip()[:1].isdigit())


def _parts(sentence: str) -> Iterator[str]:
    start, subject, given = 0, "", ""
    joints = [(0, 0), *(joint.span() for joint in _JOINT.finditer(sentence)), (len(sentence), len(sentence))]
    for (end, begin), (stop, _) in pairwise(joints):
        words = sentence[begin:stop].split()
        verb = next((place for place, word in enumerate(words) if word.lower() in CLAUSE_VERBS), None)
        if verb is None or not (verb or subject):
            continue
        if subject:
            yield given + sentence[start:end]
            # A part without a subject has the subject of the part before.
            start, given = begin, "" if verb else f"{subject} "
        subject = " ".join(words[:verb]) or subject
    yield given + sentence[start:]


def tokens(text: str) -> list[str]:
    """Return the words and signs of a text, in lower case."""
    # Most texts are letters and spaces, and need no pattern.
    if text.isascii() and text.replace(" ", "").isalpha():
        return text.lower().split()
    return TOKEN.findall(small(text))


def small(text: str) -> str:
    """Return a text in lower case, with one kind of apostrophe."""
    return text.lower().replace("’", "'")


def content(text: str, weak: frozenset[str] = WEAK) -> Iterator[tuple[str, str]]:
    """Return the words that carry meaning, each after its stem."""
    return ((stem(word), word) for word in TOKEN.findall(text.lower()) if word not in weak and word not in PUNCTUATION)
