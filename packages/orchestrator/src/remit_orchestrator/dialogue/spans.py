"""Splits a text into the pieces that may each ask for something, so that every word is in a piece.

Numbering, bullets, line breaks and sentences always part. A conjunction or a comma parts before a word that opens a
request: a verb, or the first word of an example. Which language a text is in is known to the phrases alone.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from remit_orchestrator.dialogue.commands import TextSpan
from remit_orchestrator.dialogue.phrases import Phrases, PhraseSet, consists_of, phrase_set, tokens
from remit_orchestrator.text.sentences import sentence_spans

# Each piece costs a reading, and nobody asks for more at once; what follows stays in the last one.
MOST_PIECES = 12
# A request is usually stated in the first paragraphs; the rest is the material to work on.
LONGEST_TEXT = 2_000

_MARK = re.compile(r"[ \t]*(?:(?:[-*•–#>+]{1,6}|\(?(?:\d{1,2}[.)]|[a-z]\)))[ \t]+)")
_INLINE_NUMBER = re.compile(r"(?:^|(?<=\s))\(?(?:\d{1,2}[.)]|[a-z]\))[ \t]+(?=\S)")
# The token of a redacted value is one word.
_WORD = re.compile(r"\[[A-Z][A-Z0-9_]{0,31}:[a-z]{12}\]|[^\W_]+(?:['’‘`´-][^\W_]+)*")
_COMMA = re.compile(r"[,;:]\s+|\s[–—]\s")


class TextPiece(Struct, frozen=True, kw_only=True):
    """A piece of a text that may ask for something."""

    whole: TextSpan
    """With its condition and what stands between it and the next piece: together these are the whole text."""
    action: TextSpan
    """What is asked for, without its condition and without what only says when."""
    condition: str = ""
    """The condition in the user's words: "if it is positive"; empty without one."""
    otherwise: bool = False
    """Whether it is what is done if the condition before does not hold."""
    shared: bool = False
    """Whether the condition stands with another piece, and may be meant for that one alone."""
    opens: bool = False
    """Whether it begins as a request does."""
    sentence: bool = False
    """Whether a sentence or a line begins with it."""
    listed: bool = False
    """Whether it stands in a list, or is an example word for word: then it is a request of its own."""


class Vocabulary(Struct, frozen=True):
    """The words of a team that help to split texts."""

    verbs: frozenset[str]
    """Verbs that tell somebody to do something, in the languages that are known."""
    openings: frozenset[str]
    """The words that open a request: verbs, and the first words of examples."""
    examples: tuple[tuple[str, ...], ...]
    """The examples, as words: a list of them is split exactly."""


Asks = Callable[[str, str], bool]
"""Returns whether the second of two texts asks for something else than the first."""


def split(text: str, phrases: Phrases, vocabulary: Vocabulary, asks: Asks) -> tuple[TextPiece, ...]:
    """Return the pieces of a text, in their order; none for a text without words."""
    if len(text) > LONGEST_TEXT:
        return (TextPiece(whole=TextSpan(0, len(text)), action=TextSpan(0, len(text))),)
    splitter = _Splitter(text, phrases, vocabulary, asks)
    pieces: list[TextPiece] = []
    for hard in splitter.hard():
        first, *others = splitter.pieces(hard, pieces)
        pieces += [replace(first, sentence=True, listed=splitter.is_listed(hard)), *others]
    kept = _without_noise(text, pieces, phrases)
    if len(kept) == len(pieces) == 1 and not kept[0].condition:
        # All of it, with its punctuation, is asked for.
        start, end = len(text) - len(text.lstrip()), len(text.rstrip())
        kept = [replace(kept[0], action=TextSpan(start, end))]
    opened = [replace(each, opens=splitter.opens(each.action)) for each in kept]
    return _covering(text, opened[:MOST_PIECES])


class _Splitter:
    def __init__(self, text: str, phrases: Phrases, vocabulary: Vocabulary, asks: Asks) -> None:
        self._text = text
        self._vocabulary = vocabulary
        self._asks = asks
        self._conjunctions = phrase_set(phrases, "conjunctions")
        self._conditions = phrase_set(phrases, "conditions")
        self._otherwise = phrase_set(phrases, "otherwise")
        self._whether = phrase_set(phrases, "whether")
        self._courtesies = phrase_set(phrases, "courtesies")
        self._around = phrase_set(phrases, "fillers", "order")
        self._around_words = phrases.fillers | phrases.order
        self._words = [TextSpan(*each.span()) for each in _WORD.finditer(text)]
        self._tokens = [_token(each.of(text)) for each in self._words]
        self._verbatim = self._examples()
        self._marked: list[TextSpan] = []

    def opens(self, span: TextSpan) -> bool:
        """Return whether a span begins as a request does, after courtesies."""
        for place in self._places(span):
            if [self._tokens[place]] not in self._around:
                return self._tokens[place] in self._vocabulary.openings
        return False

    def is_listed(self, span: TextSpan) -> bool:
        """Return whether a sentence or a line has the mark of a list, or is an example word for word."""
        return span in self._verbatim or span in self._marked

    # ── what always parts ─────────────────────────────────────────────────────────────────────────────────────────────

    def hard(self) -> list[TextSpan]:
        """Return the sentences, lines and numbered parts, and each example that stands in the text word for word."""
        cuts = {0, len(self._text)}
        for start, end in sentence_spans(self._text):
            cuts |= {start, end}
        numbers = list(_INLINE_NUMBER.finditer(self._text))
        if len(numbers) > 1:
            cuts.update(each.start() for each in numbers)
        cuts.update(match.start() + 1 for match in re.finditer(";", self._text))
        cuts = {cut for cut in cuts if not any(each.start < cut < each.end for each in self._verbatim)}
        for each in self._verbatim:
            cuts |= {each.start, each.end}
        ordered = sorted(cuts)
        spans = [TextSpan(one, other) for one, other in pairwise(ordered)]
        return [bare for each in spans if (bare := self._bare(each)) is not None]

    def _bare(self, span: TextSpan) -> TextSpan | None:
        """Return a span without the mark of a list, and without space and punctuation around it."""
        mark = _MARK.match(self._text, span.start, span.end)
        start = mark.end() if mark else span.start
        inside = [each for each in self._words if start <= each.start and each.end <= span.end]
        if not inside:
            return None
        bare = TextSpan(inside[0].start, inside[-1].end)
        if mark:
            self._marked.append(bare)
        return bare

    def _examples(self) -> list[TextSpan]:
        """Return where examples stand in the text, the longest first; a single one that is all of it says nothing."""
        if self._condition(TextSpan(0, len(self._text))) is not None:
            return []
        found: list[TextSpan] = []
        taken: set[int] = set()
        for example in sorted(set(self._vocabulary.examples), key=len, reverse=True):
            if len(example) < 2:
                continue
            for at in range(len(self._tokens) - len(example) + 1):
                places = range(at, at + len(example))
                if (
                    tuple(self._tokens[at : at + len(example)]) == example
                    and not taken.intersection(places)
                    and self._stands_alone(at, places[-1])
                ):
                    taken.update(places)
                    found.append(TextSpan(self._words[at].start, self._words[places[-1]].end))
        return found

    def _stands_alone(self, first: int, last: int) -> bool:
        """Return whether words begin and end where a piece may: at a mark, a conjunction, or an end of the text."""
        before = self._text[self._words[first - 1].end : self._words[first].start] if first else ","
        after = self._text[self._words[last].end : self._words[last + 1].start] if last + 1 < len(self._words) else ","
        follows = next(iter(self._conjunctions.lengths_at(self._tokens, last + 1)), 0)
        leads = any(
            count in self._conjunctions.lengths_at(self._tokens, first - count) for count in range(1, min(first, 3) + 1)
        )
        if after.strip() in {",", ":"} and not follows and last + 1 < len(self._words):
            # "Claim the tax back, to my account": what follows says more of it.
            opens = self._tokens[last + 1] in self._vocabulary.openings | self._around_words
            return bool((before.strip() or leads) and opens)
        return bool((before.strip() or leads) and (after.strip() or follows))

    # ── what parts within a sentence ──────────────────────────────────────────────────────────────────────────────────

    def pieces(self, span: TextSpan, before: Sequence[TextPiece]) -> list[TextPiece]:
        """Return the pieces of one sentence; *before* are those of the sentences before it."""
        if span in self._verbatim:
            return [TextPiece(whole=span, action=span)]
        if (cut := self._otherwise_within(span)) is not None:
            earlier = self.pieces(TextSpan(span.start, cut), before)
            return [*earlier, *self.pieces(TextSpan(cut, span.end), [*before, *earlier])]
        otherwise = self._leading(span, self._otherwise)
        if otherwise and before:
            rest = self._from(span, otherwise)
            if rest is None:
                return [TextPiece(whole=span, action=span, condition=span.of(self._text), otherwise=True)]
            known = next((each.condition for each in reversed(before) if each.condition), "")
            wording = TextSpan(span.start, rest.start).of(self._text).strip(" ,:;")
            return [
                TextPiece(
                    whole=each, action=each, condition=f"{wording} ({known})" if known else wording, otherwise=True
                )
                for each in self._soft(rest)
            ]
        marker = self._condition(span)
        if marker is None:
            return [TextPiece(whole=each, action=each) for each in self._soft(span)]
        clause, action = self._clause(TextSpan(marker.start, span.end))
        first = self._until(span, marker.start)
        wording = clause.of(self._text).strip(" ,:;")
        leading = self._soft(first) if first is not None else []
        if action is not None:
            rest = [TextPiece(whole=each, action=each, condition=wording) for each in self._soft(action)]
            rest = [replace(each, shared=place > 0) for place, each in enumerate(rest)]
            rest[0] = replace(rest[0], whole=TextSpan(clause.start, rest[0].whole.end))
            return [*(TextPiece(whole=each, action=each) for each in leading), *rest]
        if not leading:
            # Nothing is asked for under it: a question such as "when do you open".
            return [TextPiece(whole=span, action=span)]
        last = TextPiece(whole=TextSpan(leading[-1].start, span.end), action=leading[-1], condition=wording)
        return [*(TextPiece(whole=each, action=each, condition=wording, shared=True) for each in leading[:-1]), last]

    def _otherwise_within(self, span: TextSpan) -> int | None:
        """Return where an "otherwise" begins within a sentence, after a comma or a conjunction."""
        places = self._places(span)
        words = [self._tokens[place] for place in places]
        for at in range(1, len(words) - 1):
            gap = self._text[self._words[places[at - 1]].end : self._words[places[at]].start]
            if next(iter(self._otherwise.lengths_at(words, at)), 0) and (
                gap.strip() or words[at - 1 : at] in self._conjunctions
            ):
                return self._words[places[at]].start
        return None

    def _places(self, span: TextSpan) -> list[int]:
        return [place for place, each in enumerate(self._words) if span.start <= each.start and each.end <= span.end]

    def _leading(self, span: TextSpan, phrases: PhraseSet) -> int:
        """Return with how many words of some phrases a span begins."""
        return phrases.prefix([self._tokens[place] for place in self._places(span)])

    def _from(self, span: TextSpan, count: int) -> TextSpan | None:
        places = self._places(span)[count:]
        return TextSpan(self._words[places[0]].start, span.end) if places else None

    def _until(self, span: TextSpan, end: int) -> TextSpan | None:
        """Return what stands before a place, without a conjunction at its end."""
        places = [place for place in self._places(span) if self._words[place].end <= end]
        while places:
            for length in range(min(3, len(places)), 0, -1):
                words = [self._tokens[place] for place in places[-length:]]
                if words in self._conjunctions or words in self._around:
                    places = places[:-length]
                    break
            else:
                return TextSpan(self._words[places[0]].start, self._words[places[-1]].end)
        return None

    def _condition(self, span: TextSpan) -> TextSpan | None:
        """Return where the condition of a sentence begins; None if it has none."""
        places = self._places(span)
        words = [self._tokens[place] for place in places]
        at = 0
        while at < len(words):
            if length := next(iter(self._courtesies.lengths_at(words, at)), 0):
                at += length
                continue
            length = next(iter(self._conditions.lengths_at(words, at)), 0)
            asked = any(words[at - count : at] in self._whether for count in range(1, min(at, 3) + 1))
            if length and not asked:
                return TextSpan(self._words[places[at]].start, self._words[places[at + length - 1]].end)
            at += max(1, length)
        return None

    def _clause(self, span: TextSpan) -> tuple[TextSpan, TextSpan | None]:
        """Return a condition and what is to be done under it; None if that stands elsewhere."""
        comma = _COMMA.search(self._text, span.start, span.end)
        if comma is not None and (rest := self._bare_start(TextSpan(comma.end(), span.end))) is not None:
            return TextSpan(span.start, comma.start()), rest
        places = self._places(span)
        # "If it is positive book a visit": the first word that opens a request, after two that say something.
        for place in places[3:]:
            if self._tokens[place] in self._vocabulary.verbs and place != places[-1]:
                return TextSpan(span.start, self._words[place].start), TextSpan(self._words[place].start, span.end)
        return span, None

    def _bare_start(self, span: TextSpan) -> TextSpan | None:
        places = self._places(span)
        return TextSpan(self._words[places[0]].start, span.end) if places else None

    def _soft(self, span: TextSpan) -> list[TextSpan]:
        """Split at conjunctions and commas before what opens a request, or asks for something else."""
        cuts = self._cuts(self._places(span))
        # "My tent is torn, bring a new one": without a conjunction, what opens a request may say more of the same.
        if not any(joined for _, _, joined in cuts):
            cuts = []
        places = self._places(span)
        starts = [0, *(start for _, start, _ in cuts)]
        ends = [*(end for end, _, _ in cuts), len(places)]
        return [self._trimmed(self._over(places[start:end])) for start, end in zip(starts, ends, strict=True)]

    def _cuts(self, places: Sequence[int]) -> list[tuple[int, int, bool]]:
        """Return where pieces may end and the next ones begin, and whether a conjunction or their sense parts them."""
        cuts: list[tuple[int, int, bool]] = []
        start = 0
        at = 1
        while at < len(places):
            length, follows = self._joint(places, at)
            if length is None or at + length >= len(places):
                at += 1
                continue
            left = self._over(places[start:at])
            if (joined := self._parts(places, at + length, follows=follows, left=left)) is not None:
                cuts.append((at, at + length, joined))
                start = at + length
                at = start + 1
            else:
                at += max(1, length)
        return cuts

    def _trimmed(self, span: TextSpan) -> TextSpan:
        """Return a piece without the conjunctions and words of order around it."""
        places = self._places(span)
        while len(places) > 1:
            words = [self._tokens[place] for place in places]
            length = next(
                (each for each in range(min(3, len(words) - 1), 0, -1) if words[:each] in self._conjunctions), 0
            )
            ending = next(
                (each for each in range(min(3, len(words) - 1), 0, -1) if words[-each:] in self._conjunctions), 0
            )
            if not length and not ending:
                break
            places = places[length : len(places) - ending]
        return self._over(places) if places else span

    def _over(self, places: Sequence[int]) -> TextSpan:
        return TextSpan(self._words[places[0]].start, self._words[places[-1]].end)

    def _joint(self, places: Sequence[int], at: int) -> tuple[int | None, bool]:
        """Return how many words join two pieces at a place, 0 for a comma alone, and whether a conjunction does."""
        words = [self._tokens[place] for place in places]
        length = next(iter(self._conjunctions.lengths_at(words, at)), 0)
        if length:
            return length, True
        gap = self._text[self._words[places[at - 1]].end : self._words[places[at]].start]
        return (0, False) if _COMMA.search(gap) or gap.strip() in {",", ";", ":"} else (None, False)

    def _parts(self, places: Sequence[int], at: int, *, follows: bool, left: TextSpan) -> bool | None:
        """Return None if nothing else begins at a place; else whether that is so without another conjunction."""
        while at < len(places) and [self._tokens[places[at]]] in self._around:
            at += 1
        rest = places[at:]
        if len(rest) < 2:
            return None
        asks = self._asks(left.of(self._text), self._next(rest).of(self._text))
        if self._tokens[rest[0]] in self._vocabulary.openings:
            return follows or asks
        return True if follows and asks else None

    def _next(self, places: Sequence[int]) -> TextSpan:
        """Return the words up to the next conjunction or comma."""
        for count in range(2, len(places)):
            if self._joint(places, count)[0] is not None:
                return self._over(places[:count])
        return self._over(places)


def unexplained(text: str, phrases: Phrases, known: Collection[str]) -> str:
    """Return the words after a conjunction, two or more, of which none is *known*; empty if there are none."""
    words = [TextSpan(*each.span()) for each in _WORD.finditer(text)]
    named = [_token(each.of(text)) for each in words]
    conjunctions, around = phrase_set(phrases, "conjunctions"), phrase_set(phrases, "fillers", "order")
    for at in range(1, len(named)):
        length = next(iter(conjunctions.lengths_at(named, at)), 0)
        rest = [word for word in named[at + length :] if [word] not in around]
        if length and len(rest) > 1 and not any(word in known for word in rest if len(word) > 2):
            return text[words[at + length].start :].strip(" .!?")
    return ""


def openings_of(examples: Iterable[str], phrases: Phrases) -> frozenset[str]:
    """Return the first words of examples, without courtesies before them."""
    fillers = phrase_set(phrases, "fillers")
    found: set[str] = set()
    for each in examples:
        words = tokens(each)
        count = 0
        while count < len(words) and (words[count],) in fillers:
            count += 1
        found.update(words[count : count + 1])
    return frozenset(word for word in found if len(word) > 1)


def _token(word: str) -> str:
    return "".join(tokens(word))


def _without_noise(text: str, pieces: Sequence[TextPiece], phrases: Phrases) -> list[TextPiece]:
    """Leave out greetings and courtesies, unless there is nothing else."""
    besides = phrase_set(phrases, "fillers", "order", "courtesies")
    greetings = phrase_set(phrases, "greet", "fillers")
    kept = [each for each in pieces if not consists_of(tokens(each.action.of(text)), greetings, besides)]
    return kept or list(pieces[:1])


def _covering(text: str, pieces: Sequence[TextPiece]) -> tuple[TextPiece, ...]:
    """Let each piece reach to the beginning of the next, so that together they are the whole text."""
    covered: list[TextPiece] = []
    for place, each in enumerate(pieces):
        start = 0 if place == 0 else covered[-1].whole.end
        end = pieces[place + 1].whole.start if place + 1 < len(pieces) else len(text)
        covered.append(replace(each, whole=TextSpan(start, end)))
    return tuple(covered)
