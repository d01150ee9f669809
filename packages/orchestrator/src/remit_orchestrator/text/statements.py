"""Reads sentences as statements: what each part speaks of, its figures, and what it denies."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from remit.protocol.envelope import Json
from remit.words.components import SHARES, in_words, name_words, short_value
from remit.words.numbers import digit_readings
from remit.words.units import UNITS, Unit, unit_of, unit_word
from remit_orchestrator.text.grounding import dates_in, figure_unit, figure_value, times_in
from remit_orchestrator.text.lexicon import alternatives, groups, table, word_set
from remit_orchestrator.text.sentences import things, unmarked
from remit_orchestrator.text.vocabulary import (
    ADVISES,
    ALL_NEGATIONS,
    CAUSE,
    REQUEST_VERBS,
    WEAK,
    Sides,
    concept_of,
    positive_of,
    sides_of,
)

_KINDS = {kind: word_set(f"quantifier.{kind}") for kind in ("all", "most", "many", "half", "some", "few")}
_KIND_OF = {word: kind for kind, several in _KINDS.items() for word in several}
_PASSED = word_set("quantifier.passed")
# "At most 5", "a few minutes" and "each 5 kg" limit, or share out, a figure.
_NO_QUANTIFIER_AFTER = word_set("quantifier.no_quantifier_after")


def quantified(items: Sequence[str]) -> dict[str, str]:
    """Return the nouns of a part of a sentence that have a quantifier, by concept, with its kind."""
    words = [item.lower() for item in items]
    kinds: dict[str, str] = {}
    for place, word in enumerate(words):
        kind = _KIND_OF.get(word)
        if kind is None or (place and kind != "all" and words[place - 1] in _NO_QUANTIFIER_AFTER - {"the"}):
            continue
        after = [each for each in words[place + 1 : place + 5] if each not in _PASSED]
        if after and after[0].isalpha():
            kinds[concept_of(after[0])] = kind
    return kinds


# "The maximum load is 5": a limit that is named.
_NAMED = r"[^,;:.\d]{0,24}(?:\bis|\bare|\bof|\bist|\bsind|\bvon|\bbeträgt|:)"

_UPPER = re.compile(
    rf"\b(?P<noun>(?:maximum|maximal\w*|limit|capacity|höchst(?!ens)\w+|obergrenze)\b{_NAMED})"
    r"|\b(?P<strong>at most|up to|no more than|not more than|maximum(?: of)?|less than|fewer than|below|höchstens"
    r"|maximal|bis zu|weniger als|nicht mehr als"
    r"|(?:short|low|small|young|light|narrow|earli|cool|cold|slow)er than"
    r"|(?:kürz|kleine|jüng|leicht|niedrig|früh)e?r als)"
    r"|\b(?:no later than|under|within|until|till|before|bis|unter|spätestens|vor)",
)


_LOWER = re.compile(
    rf"\b(?P<noun>(?:minimum|mindest(?!ens)\w+|untergrenze)\b{_NAMED})"
    r"|\b(?P<strong>at least|no less than|no fewer than|minimum(?: of)?|more than|above|mindestens|mehr als|wenigstens"
    r"|(?:long|high|larg|bigg|great|old|heavi|wid|deep|tall|lat|warm|hott|fast)er than"
    r"|(?:läng|größ|höh|ält|schwer|breit|spät)er als"
    r"|exceed(?:s|ing|ed)?)|\b(?:no earlier than|over|after|since|from|über|ab|seit|nach)"
)


_AFTER_UPPER = re.compile(rf"\W*(?P<strong>{alternatives('statement.after_upper')})\b|\W*at the latest\b")


_AFTER_LOWER = re.compile(rf"\W*(?P<strong>{alternatives('statement.after_lower')})\b")


_GAP = re.compile(r"\s*(?:the|a|an|about|around|minus|dem|den|der|etwa|rund)?\s*-?\Z")


# "9 Uhr", "17.30 Uhr", "5 o'clock"
_CLOCK = re.compile(r"(\d{1,2})(?:\.(\d{2}))? (?:Uhr|o['’]clock)\b.*")


_NEXT = re.compile(r"[ -]([^\W\d_]+)")


# "60 euros per hour", "140 euros a night"
_RATE = re.compile(
    r"\s*(?:(?:per|each|every|pro|je)\s+|an?\s+(?=(?:hour|day|night|week|month|year|piece|person|head)\b)|/\s*)([^\W\d_]+)"
)


_BOUND_REACH = 40


class StatedFigure(Struct, frozen=True):
    kind: str
    """`n` for numbers, `d` for dates, `t` for times, `w` for days of the week."""
    values: tuple[object, ...]
    unit: Unit | None = None
    bound: int = 0
    """1 if it is an upper limit, -1 if a lower one."""
    strong: bool = False
    written: str = ""
    then: str = ""
    """The word after it, if it has no unit."""
    per: str = ""
    """What it is counted by: the concept of "hour" in "60 euros per hour"."""

    def same(self, other: "StatedFigure") -> bool:
        return self.kind == other.kind and self._fits(other) and not set(self.values).isdisjoint(other.values)

    def rivals(self, other: "StatedFigure") -> bool:
        return self.kind == other.kind and self._fits(other) and set(self.values).isdisjoint(other.values)

    def _fits(self, other: "StatedFigure") -> bool:
        return self.unit is None or other.unit is None or self.unit == other.unit

    @property
    def tokens(self) -> Iterator[str]:
        return (f"{self.kind}{value}" for value in self.values)


def read_figure(match: re.Match[str], line: str) -> StatedFigure | None:
    before = line[max(0, match.start() - _BOUND_REACH) : match.start()].lower()
    after = line[match.end() : match.end() + _BOUND_REACH].lower()
    bound, strong = bound_of(before, after)
    if match["date"]:
        days = tuple((date.month, date.day) for date in dates_in(match[0]))
        return StatedFigure("d", days, None, bound, strong, match[0]) if days else None
    if match["time"]:
        return StatedFigure("t", (times_in(match[0])[0],), None, bound, strong, match[0])
    if clock := _CLOCK.fullmatch(f"{match[0]}{line[match.end() : match.end() + 10]}".split(",")[0].strip()[:20]):
        return StatedFigure("t", ((int(clock[1]), int(clock[2] or 0), 0),), None, bound, strong, match[0])
    unit = figure_unit(match)
    readings = () if match["scale"] or match["sign"] or not match["digits"] else digit_readings(match["digits"])
    values = (figure_value(match), *(f"{whole}.{rest}" if rest.strip("0") else whole for whole, rest in readings))
    then = _NEXT.match(line, match.end()) if unit is None and not (match["unit"] or "").strip() else None
    if then and (further := _NEXT.match(line, then.end())) and (counted := unit_of(further[1])):
        unit, then = counted, None  # "12 further days"
    rate = _RATE.match(line, match.end())
    return StatedFigure(
        "n",
        tuple(dict.fromkeys(values)),
        unit,
        bound,
        strong,
        match[0],
        then[1].lower() if then else "",
        concept_of(rate[1].lower()) if rate else "",
    )


def bound_of(before: str, after: str) -> tuple[int, bool]:
    for sign, pattern, follow in ((1, _UPPER, _AFTER_UPPER), (-1, _LOWER, _AFTER_LOWER)):
        for match in pattern.finditer(before):
            if _GAP.match(before, match.end()):
                return sign, (match["strong"] or match["noun"]) is not None
        if match := follow.match(after):
            return sign, match["strong"] is not None
    return 0, False


FIGURE_START, FIGURE_END = "\ue000", "\ue001"


_SO = re.compile(rf"{alternatives('statement.so')}")


_IMPERATIVES = REQUEST_VERBS | word_set("segment.imperatives") - {"lies"}


_FINITE = word_set("segment.finite")


_SUBJECTS = word_set("segment.subjects")


_FADING, _BREAK = 0.6, 0.3


# How much a pronoun that is the subject says of what it stands for.
_MEANT = 0.9


class Segment(Struct):
    """A part of a sentence that can be true or false by itself."""

    sentence: "ReadSentence"
    words: list[str]
    """In small letters, in their order, with those that carry nothing."""
    own: dict[str, float]
    """What it speaks of, and how much each weighs."""
    figures: list[StatedFigure]
    sides: dict[str, Sides]
    """The words that have an opposite."""
    denies: bool
    names: dict[str, str]
    """Concepts of words with a capital, with the word before each."""
    roles: dict[str, str]
    """Names and figures, with the preposition before each."""
    runs: list[list[str]]
    """The same, those together that stand together."""
    inherited: dict[str, float]
    """What it speaks of without saying it again."""
    source: int = -1
    measured: set[str] = set()
    """Figures that are said of this segment alone, and are no part of a name: "ward 3" goes on, "12 beds" does not."""
    has_subject: bool = False
    """Whether it begins with a noun of its own, as far as an article or a capital shows."""
    denied: str = ""
    """What its negation stands before."""
    labels: set[str] = set()
    """Figures that are part of a name."""
    field: str = ""
    """The field of a result whose value it is."""
    anew: bool = False
    """Whether it follows a semicolon, or "whereas", and so has a subject of its own."""
    lacks: bool = False
    """Whether something is said to be without something."""
    lacked: str = ""
    """What that is."""
    order: int = 0
    """1 if it is said to come first, 2 if next, 3 if last."""
    relative: bool = False
    """Whether it follows "who" or "which", and so speaks of what was said last."""
    quantified: dict[str, str] = {}
    """Nouns of which it speaks, or goes on to speak, by the kind of their quantifier: "all", "some"."""

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def covers(self, tokens: Iterable[str]) -> bool:
        """Return whether it speaks of all of them, with what it inherits if it has no subject of its own."""
        leans = not self.has_subject or len(self.own) < 2
        return all(token in self.own or (leans and token in self.inherited) for token in tokens)

    def note(self, figure: StatedFigure, *, label: bool = False) -> None:
        tokens = list(figure.tokens)
        self.figures.append(figure)
        self.own.update(dict.fromkeys(tokens, 2.0 / len(tokens)))
        (self.labels if label else self.measured).update(tokens)


class ReadSentence(Struct):
    text: str
    small: str
    segments: list[Segment]
    hangs: bool = False
    """Whether it begins with a pronoun."""
    refers: bool = False
    """Whether it has one."""

    @property
    def hangs_on(self) -> bool:
        """Whether a pronoun is its subject, first or after a verb: "it is", "on Mondays it is"."""
        return self.refers and bool(self.segments) and not _SUBJECTS.isdisjoint(self.segments[0].words)

    @property
    def subject(self) -> str:
        """What its first part begins with, if that is a noun."""
        first = self.segments[0] if self.segments else None
        return next((each for each in first.own if each[-1:].isalpha()), "") if first and first.has_subject else ""

    @property
    def tokens(self) -> set[str]:
        return {token for segment in self.segments for token in segment.own}

    def follow(self, before: "ReadSentence | None", context: Iterable[str] = (), *, source: bool = False) -> None:
        """Note what each segment inherits: from the segments before it, and a pronoun from the sentence before."""
        weight = 0.5 if source else 0.3
        context = tuple(context)
        kept: set[str] = set()
        known: dict[str, float] = {}
        of_how_many: dict[str, str] = {}
        last: Segment | None = None
        subjects: set[str] = set()
        if before is not None and self.refers:
            known = {token: weight for segment in before.segments for token in (*segment.inherited, *segment.own)}
            if source and self.hangs_on and (subject := before.subject):
                known[subject] = _MEANT
        for segment in self.segments:
            if not segment.quantified:
                segment.quantified = {noun: kind for noun, kind in of_how_many.items() if noun not in segment.own}
            of_how_many = segment.quantified
            if segment.anew and len(segment.own) > 1:
                known = {token: at * _BREAK for token, at in known.items()}
            subject = _leading_name(segment)
            if subject and source:
                # "Anna has 3, Ben 5": what has a name of its own does not speak of the one before.
                known = {token: at * (_BREAK if token in subjects else 1.0) for token, at in known.items()}
                subjects.add(subject)
            if segment.relative and (meant := _last_noun(last)):
                known = {token: at * _BREAK for token, at in known.items()} | {meant: _MEANT}
            last = segment
            # "The dessert does not": what, was said before.
            share = 0.9 / weight if len(segment.own) < 2 and source else 1.0
            around = dict.fromkeys(context, 0.3) | {token: min(0.9, share * at) for token, at in known.items()}
            apart = _labels_of_others(segment, self.segments, before)
            segment.inherited = {
                token: at for token, at in around.items() if token not in segment.own and token not in apart
            }
            # What was said last is nearer; a name stays what the sentence is about until there is another.
            kept = set(segment.names) or kept
            known = {token: at if token in kept else at * _FADING for token, at in known.items()} | {
                token: weight * at for token, at in segment.own.items() if token not in segment.measured
            }

    @property
    def advises(self) -> bool:
        return ADVISES.search(self.small) is not None or any(map(_is_imperative, self.segments[:1]))

    @property
    def reasons(self) -> bool:
        return (CAUSE.search(self.small) or _SO.search(self.small)) is not None


def _leading_name(segment: Segment) -> str:
    """Return the name that a part of a sentence begins with."""
    first = next(iter(segment.own), "")
    return first if segment.has_subject and first in segment.names and segment.names[first] == "" else ""


def _last_noun(segment: Segment | None) -> str:
    """Return the last noun or name of a part of a sentence."""
    words = [token for token in segment.own if token[-1:].isalpha()] if segment else []
    return words[-1] if words else ""


def _labels_of_others(segment: Segment, others: Iterable[Segment], before: ReadSentence | None) -> set[str]:
    """Return the labels of other segments: they cannot be meant in a segment with a label of its own."""
    if not segment.labels:
        return set()
    return {token for each in (*others, *(before.segments if before else ())) for token in each.labels}


def _is_imperative(segment: Segment) -> bool:
    words = [word for word in segment.words if word not in {"please", "also", "then", "just", "bitte"}]
    return (
        bool(words)
        and words[0] in _IMPERATIVES
        and len(words) > 1
        and not words[1][0].isdigit()
        and words[1] not in {"of", "for"}  # "repair of the gate"
        and _FINITE.isdisjoint(words[1:])
        and not words[0].startswith(FIGURE_START)
    )


# ── words by what they do ─────────────────────────────────────────────────────────────────────────────────────────────

# What is longer is no sentence, and of it no more is read.
LONGEST_SENTENCE = 1_000
# Denials that have no word for it.
_DENIED = re.compile(rf"(?i:{alternatives('statement.denied')})")
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
EMPTY_WORDS = (WEAK - word_set("statement.weak_but_telling")) | ALL_NEGATIONS | word_set("statement.empty")


_ORDER = {word: int(order) for order, (those,) in table("statement.order").items() for word in those}
_LESSENING = word_set("statement.lessening")

# Stands for a word with a capital before another.
_CAPITAL = "A"


class SentenceReader:
    """Reads sentences; a word with a negative prefix or in a compound is known by the other words of all texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._known = {word for text in texts for word in re.findall(r"[^\W\d_]{3,}", text.lower())}

    def sentence(self, text: str) -> ReadSentence:
        line = _DENIED.sub(" not ", unmarked(text[:LONGEST_SENTENCE].replace("*", "")))
        figures: list[StatedFigure] = []

        def put(match: re.Match[str]) -> str:
            figure = None
            if match["date"] or match["time"] or (match["number"] and (match["spelled"] or "").lower() != "one"):
                figure = read_figure(match, line)
            if figure is None:
                return match[0]
            figures.append(figure)
            # What is counted stays a word.
            unit = match["unit"] if match["number"] and figure.unit is None else ""
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
            elif word in ALL_NEGATIONS and not _is_limit(items, place):
                segment.denies = True
                near = [item for item in items[place + 1 :] if _says(item)] or list(filter(_says, items[:place][::-1]))
                segment.denied = concept_of(near[0].lower()) if near else ""
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
        value_text = short_value(value) or ""
        sentence = self.sentence(f"{in_words(path)} {value_text}")
        sentence.text = f"{in_words(path)}: {value_text}"
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
            figure = StatedFigure("n", tuple(values), unit, written=value_text)
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
    return [match[0] for match in _ITEM.finditer(marked)]


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
