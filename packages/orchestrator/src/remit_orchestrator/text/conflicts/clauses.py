"""Splits texts into clauses that can be true or false by themselves, and reads their words in one form."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise

from msgspec import Struct

from remit_orchestrator.text.figures import Amount, Figure
from remit_orchestrator.text.lexicon import groups, table
from remit_orchestrator.text.vocabulary import (
    AXES,
    CLAUSE_VERBS,
    DEGREES,
    DETERMINERS,
    GERMAN,
    GERMAN_SIGNS,
    GERMAN_WEEKDAYS,
    IRREGULAR_FORMS,
    LABELS,
    PHRASE_STARTS,
    PHRASES,
    PUNCTUATION,
    ROLES,
    STATES,
    WEAK,
    german_stem,
    is_ambiguous,
    stem,
)

# States of people and things, beyond the `STATES` of `word_relations`: one line for each, with its two sides.
# What is advised: whoever advises one side advises against the other.
WEEKDAY = "weekday"
# Of each kind a thing has one at a time. Weekdays in English are read as dates.
_KIND_OF = {
    **{word: kind for kind, (members,) in table("kinds").items() for word in members},
    **dict.fromkeys(GERMAN_WEEKDAYS, WEEKDAY),
}
# Endings that make opposites of one stem: harmful and harmless, fettreich and fettarm.
_ENDINGS = (
    (re.compile(r"(.{3,})(?:ful|voll)"), re.compile(r"(.{3,})(?:less|los)")),
    (re.compile(r"(.{3,})reich(?:er)?"), re.compile(r"(.{3,})(?:arm|ärmer|ärm)")),
    (re.compile(r"(.{3,})st[aä]rk(?:er)?"), re.compile(r"(.{3,})schw[aä]ch(?:er)?")),
)


def kind_of(word: str) -> str:
    """Return the kind of which a thing has only one, if a word is of one: `blue` is a colour; else an empty text."""
    return _KIND_OF.get(word, "")


@lru_cache(maxsize=4096)
def state_of(word: str) -> tuple[str, int] | None:
    """Return the axis and side of a word for a state, `("deep", -1)` for `shallow`; None if it is no such word.

    Two words on two sides of one axis cannot both be said of one thing. Some words of `AXES` stand on a second axis,
    and for them it is that one: what is blocked is neither approved nor open.
    """
    known = AXES.get(word)
    state = _state_of(word)
    return None if known and state and state[0] == known[0] else state


def _state_of(word: str) -> tuple[str, int] | None:
    for positive, negative in _ENDINGS:
        for pattern, sign in ((positive, 1), (negative, -1)):
            if match := pattern.fullmatch(word):
                return f"-{match[1]}", sign
    return _states().get(word)


def action_of(word: str) -> tuple[str, int] | None:
    """Return the axis and side of an action that may be advised: whoever advises to stay advises against leaving."""
    return _actions().get(word)


def _axis_of(sides: tuple[tuple[str, ...], tuple[str, ...]]) -> tuple[str, int]:
    """Return the name of the axis for two sides, and which side is its positive one.

    It is the axis of `AXES` on which most of their words stand, so that both tables can be compared; else a new one.
    """
    votes = Counter(
        (AXES[word][0], AXES[word][1] * sign)
        for sign, words in zip((1, -1), sides, strict=True)
        for word in words
        if word in AXES and not is_ambiguous(word)
    )
    return votes.most_common(1)[0][0] if votes else (sides[0][0], 1)


def _pairs(name: str) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(one, other) for one, other in table(name).values()]


def _table(several: Iterable[tuple[tuple[str, ...], tuple[str, ...]]]) -> dict[str, tuple[str, int]]:
    states: dict[str, tuple[str, int]] = {}
    for sides in several:
        axis, way = _axis_of(sides)
        for sign, words in zip((way, -way), sides, strict=True):
            for word in words:
                for form in () if is_ambiguous(word) else _forms(word):
                    states.setdefault(form, (axis, sign))
    return states


_IRREGULAR: dict[str, set[str]] = {}
for _form, _plain in IRREGULAR_FORMS.items():
    _IRREGULAR.setdefault(_plain, set()).add(_form)


def _forms(word: str) -> set[str]:
    """Return the forms in which a word is said of something; no derived nouns: there may be damage to what is whole."""
    short = word.removesuffix("e")
    forms = {word, f"{word}s", f"{short}es", f"{short}ed", f"{short}ing", f"{short}er", f"{short}est"}
    forms |= _IRREGULAR.get(word, set())
    if word.endswith("y"):
        forms |= {word[:-1] + ending for ending in ("ies", "ied", "ier", "iest")}
    return forms | {german_stem(form) for form in forms if len(form) > 5}


# They are made when the first text is read: most commands read none.


@cache
def _states() -> dict[str, tuple[str, int]]:
    return _table((*STATES, *_pairs("states")))


@cache
def _actions() -> dict[str, tuple[str, int]]:
    return _table(_pairs("actions"))


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
        self.clauses: list[OwnedClause] = []
        """In the order in which they were first said."""
        self._owned: dict[Clause, OwnedClause] = {}
        self._clauses_below: dict[frozenset[str], dict[str, list[OwnedClause]]] = {}
        """Sentences already read, by the heading above them; sources that agree share many."""

    def add(self, text: str, owners: int, most: int) -> int:
        """Add the clauses of a text, at most *most*; return how many it has, up to one more.

        Questions, headings and texts too long for a sentence are skipped.
        """
        left = most
        context = NO_WORDS
        read = self._clauses_below.setdefault(context, {})
        for line in text.replace(FIGURE, " ").splitlines():
            if _HEADING.match(line) and not DIGIT.search(line):
                context = frozenset(root for root, _ in content(line))
                read = self._clauses_below.setdefault(context, {})
                continue
            # Each sentence except the last is followed by the mark that ends it.
            pieces = _END.split(line)
            pieces.append("")
            cut = ""
            for place, (sentence, end) in enumerate(zip(pieces[::2], pieces[1::2], strict=True)):
                if cut:
                    sentence = cut + sentence
                    cut = ""
                clauses = read.get(sentence)
                if clauses is None:
                    short = end and sentence[-_LONGEST_ABBREVIATION:].lower().endswith(_ABBREVIATIONS)
                    if short and _is_abbreviated(line, sum(map(len, pieces[: 2 * place + 1])), len(end)):
                        cut = sentence + end
                        continue
                    if "?" in end:
                        continue
                    clauses = self._parsed(sentence, context)
                    if not short:  # otherwise it belongs to what comes next
                        read[sentence] = clauses
                elif "?" in end:
                    continue
                for each in clauses:
                    if not left:
                        return most + 1
                    left -= 1
                    if not each.owners:
                        self.clauses.append(each)
                    each.owners |= owners
        return most - left

    def _parsed(self, sentence: str, context: frozenset[str]) -> list[OwnedClause]:
        """Return the parts of a sentence that have a verb: "the hotel costs 100 and has a pool" has two."""
        if not _SHORTEST <= len(sentence) <= _LONGEST:
            return []
        clauses: list[OwnedClause] = []
        for turn in _TURN.split(sentence) if any(map(sentence.__contains__, _TURNS)) else (sentence,):
            for part in _parts(turn) if " and " in turn or ", " in turn else (turn,):
                clause = Clause(part.strip(_MARKS), context)
                known = self._owned.get(clause)
                if known is None:
                    known = self._owned[clause] = OwnedClause(clause)
                clauses.append(known)
        return clauses


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


def standard_words(text: str, figures: Sequence[Figure]) -> list[str]:
    """Return the words of a clause in the form in which they are compared.

    They are in small letters. `FIGURE` stands for each figure, a phrase is one word (`went up` is `rose`), and German
    function words are in English (`nicht` is `not`).
    """
    return _standardize(_tokens(text, figures))


def _tokens(text: str, figures: Sequence[Figure]) -> list[str]:
    words: list[str] = []
    end = 0
    for figure in figures:
        words += tokens(text[end : figure.start])
        words.append(FIGURE)
        end = figure.end
    if end < len(text):
        words += tokens(text[end:])
    if "frei" in text or "free" in text:
        words = [word for token in words for word in _split_free_of(token)]
    return words


# "Sugar-free", "alkoholfrei": without what stands before it.
_FREE_OF = re.compile(r"([^\W\d_]{4,})(?:-free|-?frei(?:e[nmrs]?)?)")


def _split_free_of(token: str) -> tuple[str, ...]:
    match = _FREE_OF.fullmatch(token)
    return ("lacks", match[1]) if match else (token,)


_ENGLISH = frozenset({"the", "is", "are", "was", "were", "of", "and", "has", "have", "to", "at"})


def _standardize(words: list[str]) -> list[str]:
    """Return the words of a clause with each phrase as one word, and German function words in English."""
    if not _BOUNDS.isdisjoint(words):
        words = [
            each for place, each in enumerate(words) if each not in _BOUNDS or words[place + 1 : place + 2] != [FIGURE]
        ]
    switched = len(words) > 2 and words[-2] in _SWITCHED and words[-1] in ("on", "off")
    if switched or (len(words) > 2 and words[-2] in _BEING and words[-1] in _LAST):
        words = [*words[:-1], _LAST[words[-1]]]
    if "than" in words:
        words = _split_comparative(words)
    if not PHRASE_STARTS.keys().isdisjoint(words):
        words = _join_phrases(words)
    if GERMAN_SIGNS.isdisjoint(words) or not _ENGLISH.isdisjoint(words):
        return words
    if words[-1] == "mehr" and not _NOT_ANY.isdisjoint(words):
        words = words[:-1]  # "es gibt keine Karten mehr"
    verb = -3 if len(words) > 3 and words[-2] == "nicht" else -2
    if len(words) > 2 and (words[verb], words[-1]) in _SEPARABLE:
        words = [*words[:verb], *words[verb + 1 : -1], _SEPARABLE[words[verb], words[-1]]]  # "der Kurs fällt aus"
    if words[-1] == "ab" and not _ADVISING.isdisjoint(words):
        words = ["abraten" if token in _ADVISING else token for token in words[:-1]]  # "wir raten vom Kauf ab"
    return [_in_english(token) for token in words]


def _split_comparative(words: list[str]) -> list[str]:
    """Return the words with "funnier than" as "more funny than"; those with a known opposite stay as they are."""
    place = words.index("than") - 1
    word = words[place] if place >= 0 else ""
    if not word.endswith("er") or len(word) < 6 or word in ROLES or word in _NOT_MORE or state_of(word):
        return words
    plain = f"{word[:-3]}y" if word.endswith("ier") else word[:-2]
    return [*words[:place], "more", plain, *words[place + 1 :]]


_NOT_MORE = frozenset({"rather", "other", "further", "either", "neither", "whether", "number", "together"})


def _join_phrases(words: list[str]) -> list[str]:
    read: list[str] = []
    end = 0
    for place, token in enumerate(words):
        if place < end:
            continue
        for phrase in PHRASE_STARTS.get(token, ()):
            if tuple(words[place : place + len(phrase)]) == phrase:
                token, end = PHRASES[phrase], place + len(phrase)
                break
        read += token.split()
    return read


_NOT_ANY = frozenset({"kein", "keine", "keinen", "keinem", "keiner", "nichts", "niemand"})
# Before a figure they say how far it reaches, not what is spoken of.
_BOUNDS = frozenset({"above", "below"})
# "The server is up": at the end of a clause they are said of a thing.
_LAST = {"up": "running", "down": "stopped", "on": "enabled", "off": "disabled"}
_SWITCHED = frozenset({"switched", "turned", "powered"})
_BEING = frozenset({"is", "are", "was", "were"})
# German verbs that stand in two parts, where nothing stands between them.
_SEPARABLE = {(verb, part): word for verb, part, word in groups("separable_verbs")}
_ADVISING = frozenset({"rate", "raten", "rät"})


def _in_english(token: str) -> str:
    known = GERMAN.get(token)
    if known is not None:
        return known
    return token if token in ROLES or token in CLAUSE_VERBS or not token.isalpha() else german_stem(token)


def labels(text: str, words: Sequence[str], figures: Sequence[Figure]) -> frozenset[int]:
    """Return the places of the figures that are part of a name: order 4411, Ward 3."""
    places: list[int] = []
    numbers = iter(figures)
    for place, token in enumerate(words):
        if token == FIGURE and _is_label(text, words, place, next(numbers), len(figures)):
            places.append(place)
    return frozenset(places) if places else NO_LABELS


def _is_label(text: str, words: Sequence[str], place: int, figure: Figure, several: int) -> bool:
    quantity = figure.quantity
    noun = words[place - 1] if place else ""
    if noun == "the" and place > 1:
        noun = words[place - 2]
    if not isinstance(quantity, Amount) or quantity.kind != "number":
        return False
    if noun in LABELS:
        return True
    if not text[figure.start : figure.end].isdigit() or not noun.isalpha() or noun in ROLES or noun in CLAUSE_VERBS:
        return False
    following = words[place + 1] if place + 1 < len(words) else ""
    if following in CLAUSE_VERBS or ROLES.get(following) in ("advice", "hedge", "negation"):
        return True  # "Ward 3 has", "hive 4 should": it belongs to what is spoken of
    if several < 2 or (following and following not in ROLES):
        # "Hall 2 seats 300": a name has a capital, and a verb has none.
        return several > 1 and place == 1 and text[:1].isupper() and text[figure.end :].lstrip()[:1].islower()
    before = words[place - 2] if place > 1 else ""
    return before in _BEFORE_NAMES or text[: figure.start].rsplit(maxsplit=1)[-1][:1].isupper()


NO_LABELS: frozenset[int] = frozenset()
_BEFORE_NAMES = frozenset({"in", "on", "at", "of", "for", "from", "to", "the"})


def tells_apart(words: Sequence[str], place: int, verb: int, figured: bool) -> bool:
    """Say whether a word that could be the opposite of another tells a thing from others: "the cheap one is quick"."""
    token = words[place]
    following = words[place + 1] if place + 1 < len(words) else ""
    if figured and token in DEGREES and (following != "than" or FIGURE in words[place : place + 3]):
        return True  # "no later than 9:40", "the new price is $12"; not "higher than in 2019"
    if place and place < verb and words[place - 1] == "the" and following in CLAUSE_VERBS:
        return True  # "the stable is full": it is a noun
    if not following.isalpha() or following in ROLES or following in CLAUSE_VERBS:
        return False
    if place and words[place - 1] in _ONE_OF_MANY:
        return True
    if place > 1 and token in DEGREES and words[place - 1] == "the" and words[place - 2] not in _BEING:
        return True  # "switch to the new release"
    return place < verb and (token in DEGREES or verb < len(words)) and token not in _MUCH


def is_instruction(words: Sequence[str]) -> bool:
    """Say whether a clause that begins with a verb tells somebody what to do: "take the ridge", not "order 4411"."""
    return len(words) > 1 and words[1] != ":" and (words[1] in _BEFORE_NOUNS or words[1] in ROLES or words[1].isalpha())


def is_predicate(words: Sequence[str], place: int, verb: int) -> bool:
    """Say whether a word is said of the subject by itself: "is thin", "died"; not "the thin one", "by the thief"."""
    before = words[place - 1] if place else ""
    following = words[place + 1] if place + 1 < len(words) else ""
    if place <= verb < len(words) or (verb == len(words) and place < 2):
        return False
    if not before or before in _BEFORE_NOUNS or before == FIGURE:
        return False
    return not following.isalpha() or following in ROLES or following in CLAUSE_VERBS or following in _BEFORE_NOUNS


# After these comes a noun, which is not said of the subject.
_BEFORE_NOUNS = DETERMINERS | frozenset(
    {"another", "of", "in", "on"}
    | {"at", "by", "for", "from", "to", "into", "via", "with", "near", "through", "over", "under", "between", "against"}
    | {"about", "during", "without", "within", "per", "no", "some", "any", "one"}
)
_ONE_OF_MANY = frozenset({"a", "an", "another", "both"})
_MUCH = frozenset({"more", "mehr", "less", "fewer", "weniger"})
