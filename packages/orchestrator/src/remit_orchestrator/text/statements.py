"""Reads sentences as statements: what each part speaks of, its figures, and what it denies."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from remit.protocol.envelope import Json
from remit.words.components import SHARES, in_words, name_words, said_shortly
from remit.words.units import UNITS, unit_word
from remit_orchestrator.text.lexicon import groups, table, word_set
from remit_orchestrator.text.markers import NEGATIONS, positive_of
from remit_orchestrator.text.quantifiers import quantified
from remit_orchestrator.text.sentence_segments import FIGURE_END, FIGURE_START, ReadSentence, Segment
from remit_orchestrator.text.sentences import things, unmarked
from remit_orchestrator.text.stated_figures import StatedFigure, bound_of, read_figure
from remit_orchestrator.text.vocabulary import WEAK
from remit_orchestrator.text.word_relations import concept_of, sides_of

# ── words by what they do ─────────────────────────────────────────────────────────────────────────────────────────────

# What is longer is no sentence, and of it no more is read.
LONGEST_SENTENCE = 1_000
# Denials that have no word for it.
_DENIED = re.compile(
    r"(?i:\bstill (?:has|have|needs?) to be\b|\b(?:has|have|is|are) yet to(?: be)?\b|\bremains? to be\b"
    r"|\bfree of\b(?! charge)|\bfrei von\b"
    r"|\bout of (?!date\b|the\b|\d)|\b(?:muss|müssen) noch\b|\bau(?:ß|ss)er (?=[A-ZÄÖÜ]))"
)
_CODE = re.compile(r"[A-Za-z]{0,3}\d+[A-Za-z]{0,2}|[A-Z]\d*")
_ITEM = re.compile(rf"{FIGURE_START}(\d+){FIGURE_END}|[^\W_][\w]*(?:['’.-]\w+)*|[,;:()\[\]–—|]")
_SEPARATORS = word_set("statement.separators")
# What these deny is a thing, and sometimes with it the whole statement.
_SOFT_NEGATIONS = word_set("statement.soft_negations")
_DETERMINERS = word_set("statement.determiners")
_BREAKS = word_set("statement.breaks")
_RELATIVES = word_set("statement.relatives")
_PRONOUNS = word_set("statement.pronouns")
_WEEKDAYS = {name: number for week in groups("statement.weekdays") for number, name in enumerate(week)}
# Words that carry no statement: of German, and beyond those of every reader.
EMPTY_WORDS = (WEAK - word_set("statement.weak_but_telling")) | NEGATIONS | word_set("statement.empty")


_ORDER = {word: int(order) for order, (those,) in table("statement.order").items() for word in those}
_LESSENING = word_set("statement.lessening")

# Stands for a word with a capital before another.
_CAPITAL = "A"


class SentenceReader:
    """Reads sentences; a word with a negative prefix or in a compound is known by the other words of all texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._known = {word for text in texts for word in re.findall(r"[^\W\d_]{3,}", text.lower())}
        self._concepts = {concept_of(word) for word in self._known}

    def sentence(self, text: str) -> ReadSentence:
        line = _DENIED.sub(" not ", unmarked(text[:LONGEST_SENTENCE].replace("*", "")))
        figures: list[StatedFigure] = []

        def put(found: re.Match[str]) -> str:
            figure = None
            if found["date"] or found["time"] or (found["number"] and (found["spelled"] or "").lower() != "one"):
                figure = read_figure(found, line)
            if figure is None:
                return found[0]
            figures.append(figure)
            # What is counted stays a word.
            unit = found["unit"] if found["number"] and figure.unit is None else ""
            return f" {FIGURE_START}{len(figures) - 1}{FIGURE_END} {unit or ''} "

        small = line.lower().replace("’", "'")
        marked = things().sub(put, line)
        sentence = ReadSentence(unmarked(text), small, [])
        bare_denial = False
        for items, separators in _split(_items(marked)):
            segment = self._segment(sentence, items, figures)
            segment.anew = not _BREAKS.isdisjoint(separators)
            segment.relative = not _RELATIVES.isdisjoint(separators)
            if bare_denial:  # "not yet, however, the second one"
                segment.denies = not segment.denies
            bare_denial = segment.denies and not segment.own
            if segment.own:
                sentence.segments.append(segment)
        words = re.findall(r"[^\W\d_]+", small)
        sentence.hangs = words[:1] != [] and words[0] in _PRONOUNS
        sentence.refers = _refers(_items(marked))
        return sentence

    def _segment(self, sentence: ReadSentence, items: Sequence[str], figures: Sequence[StatedFigure]) -> Segment:
        segment = Segment(sentence, [], {}, [], {}, False, {}, {}, [], {}, quantified=quantified(items))
        segment.order = next((order for item in items if (order := _ORDER.get(item.lower()))), 0)
        before, lessened = "", False
        segment.has_subject = items[0].lower() in _DETERMINERS or items[0][:1].isupper()
        for place, item in enumerate(items):
            if item.startswith(FIGURE_START):
                figure = figures[int(item[1:-1])]
                segment.words.append(figure.written.lower())
                segment.note(figure, label=figure.unit is None and _is_label(items, place))
                segment.roles.update(dict.fromkeys(figure.tokens, before))
                before = ""
                continue
            word = item.lower().replace("’", "'")
            segment.words.append(word)
            if (day := word.removesuffix("'s")) in _WEEKDAYS:
                bound, strong = bound_of(" ".join(segment.words[:-1]) + " ", "")
                figure = StatedFigure("w", (_WEEKDAYS[day],), None, bound, strong, item)
                segment.note(figure)
                continue
            if (place or item[-1].isdigit()) and _CODE.fullmatch(item):
                # "Hall A" and "gate B7": what tells two of a kind apart.
                figure = StatedFigure("l", (word,), written=item)
                segment.note(figure, label=True)
                segment.roles.update(dict.fromkeys(figure.tokens, before))
                before = ""
                continue
            if word in _SOFT_NEGATIONS:
                segment.lacks = True
                segment.lacked = next((concept_of(each.lower()) for each in items[place + 1 :] if _says(each)), "")
            elif word in NEGATIONS and not _is_limit(items, place):
                segment.denies = True
                said = [item for item in items[place + 1 :] if _says(item)] or list(filter(_says, items[:place][::-1]))
                segment.denied = concept_of(said[0].lower()) if said else ""
            bounds = word in _BOUNDING and (_near_figure(items, place) or items[place + 1 : place + 2] == ["to"])
            if bounds or word in EMPTY_WORDS or len(word) == 1:
                before = word
                if not bounds and (sides := sides_of(word)):
                    segment.sides[concept_of(word)] = sides
                continue
            if word in _LESSENING and items[place + 1 : place + 2] and sides_of(items[place + 1].lower()):
                lessened = True
                continue
            self._note(segment, word, item, before, lessened=lessened)
            lessened = False
            before = _CAPITAL if item[:1].isupper() else ""
        return segment

    def _note(self, segment: Segment, word: str, written: str, before: str, *, lessened: bool = False) -> None:
        sides = sides_of(word)
        if not sides:
            for positive in positive_of(word):
                if positive in self._known and len(positive) > 3:
                    segment.denies = not segment.denies
                    word = positive
                    sides = sides_of(word)
                    break
        concept = concept_of(word)
        if lessened:  # "less expensive" is cheaper
            concept, sides = f"less {concept}", frozenset((axis, -sign) for axis, sign in sides)
        segment.own[concept] = 1.0
        if sides:
            segment.sides[concept] = sides
        for part in self._parts(word):
            segment.own.setdefault(concept_of(part), 0.6)
        if written[:1].isupper():
            if before == _CAPITAL:
                segment.runs[-1].append(concept)
            else:
                segment.runs.append([concept])
            segment.names[concept] = segment.roles[concept] = "" if before == _CAPITAL else before

    def _parts(self, word: str) -> Iterator[str]:
        """Give the words of a compound that are known by themselves."""
        if len(word) < 8:
            return
        for at in range(4, len(word) - 2):
            if word[:at] in self._known and len(word) - at > 2:
                yield word[:at]
            if len(word) - at > 3 and word[at:] in self._known:
                yield word[at:]

    def leaf(self, path: str, value: Json, siblings: Mapping[str, Json]) -> ReadSentence:
        """Return a field of a result as a statement."""
        said = said_shortly(value) or ""
        sentence = self.sentence(f"{in_words(path)} {said}")
        sentence.text = f"{in_words(path)}: {said}"
        if isinstance(value, bool):
            sentence = self.sentence(in_words(path) if value else f"no {in_words(path)}")
        if isinstance(value, int | float) and not isinstance(value, bool):
            words = name_words(path)
            unit = UNITS.get(unit_word(words))
            currency = siblings.get("currency")
            if unit is None and isinstance(currency, str):
                unit = UNITS.get(currency.lower())
            values: list[object] = [_plain(value)]
            if isinstance(value, float) and abs(value) < 1 and SHARES.intersection(words):
                values.append(_plain(value * 100))
                unit = None
            figure = StatedFigure("n", tuple(values), unit, written=said)
            if not sentence.segments:
                sentence.segments.append(Segment(sentence, [], {}, [], {}, False, {}, {}, [], {}))
            last = sentence.segments[-1]
            for segment in sentence.segments:
                segment.figures.clear()
                for token in [token for token in segment.own if token[0] == "n" and token[1:2].isdigit()]:
                    del segment.own[token]
            last.note(figure)
        return sentence


_COMPARATIVES = word_set("statement.comparatives")
_BOUNDING = word_set("statement.bounding")


def _near_figure(items: Sequence[str], place: int) -> bool:
    """Return whether a figure follows within two words, or stands before "or"."""
    after = items[place + 1 : place + 3]
    return any(item.startswith(FIGURE_START) for item in (*after, *items[max(0, place - 2) : place - 1]))


def _is_limit(items: Sequence[str], place: int) -> bool:
    """Return whether a negation only makes a limit: "no more than 3", "not only"."""
    after = [item.lower() for item in items[place + 1 : place + 3]]
    return after[:1] in (["only"], ["nur"]) or (
        len(after) == 2 and after[0] in _COMPARATIVES and after[1] in {"than", "als"}
    )


def _refers(items: Sequence[str]) -> bool:
    """Return whether a pronoun comes before any name that it could stand for."""
    for place, item in enumerate(items):
        if item.lower() in _PRONOUNS:
            return True
        if place and item[:1].isupper() and item.lower() not in _WEEKDAYS:
            return False
    return False


def _is_label(items: Sequence[str], place: int) -> bool:
    """Return whether a number belongs to the word before it: "ward 3 has", and not "has 3 wards"."""
    before, after = items[place - 1 : place], items[place + 1 : place + 2]
    return bool(before) and _says(before[0]) and not (after and _says(after[0]))


def _says(item: str) -> bool:
    return item[0].isalpha() and item.lower() not in EMPTY_WORDS


def _plain(value: float) -> str:
    return f"{value:.10g}"


def _items(marked: str) -> list[str]:
    return [found[0] for found in _ITEM.finditer(marked)]


def _split(items: Sequence[str]) -> Iterator[tuple[list[str], set[str]]]:
    """Give the parts of a sentence, each with the words and signs that separate it from the one before."""
    part: list[str] = []
    separators: set[str] = set()
    for item in items:
        word = item.lower()
        if word in _SEPARATORS:
            if part:
                yield part, separators
                part, separators = [], set()
            separators.add(word)
            continue
        part.append(item)
    if part:
        yield part, separators
