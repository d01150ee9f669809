"""Decides from a result whether a condition holds, by rules that can be said back in plain words."""

import re
from collections.abc import Iterator
from typing import cast

from msgspec import Struct

from remit.protocol.envelope import Json
from remit.words.components import cut, in_words, name_words, short_value
from remit_orchestrator.text.figures import Amount, Figure, figure_in, figures
from remit_orchestrator.text.lexicon import alternatives, word_set
from remit_orchestrator.text.request_clauses import denies
from remit_orchestrator.text.sentences import is_question, sentences
from remit_orchestrator.text.vocabulary import (
    ALL_NEGATIONS,
    COMMON_WORDS,
    DOUBT,
    STRICT_CONDITION,
    positive_of,
    same_meaning,
    sides_of,
)

# A result that is longer says too many things for one condition.
_LONGEST = 20_000
_MOST_STATEMENTS = 400
# How much of a result is quoted.
_QUOTED = 160


class Ruling(Struct, frozen=True):
    """Whether a condition holds, and what in the result says so."""

    holds: bool | None
    """None: nothing in the result decides it, or several statements contradict each other."""
    because: str = ""


UNDECIDED = Ruling(None)


def rule(clause: str, result: Json, question: str = "") -> Ruling:
    """Return whether a clause holds by a result; *question* is what the result answers.

    In this order: a comparison with a figure, a yes or no, a statement with the same word or its opposite, a list or
    text that is empty.
    """
    read = _Clause(clause, question)
    statements = _statements(result)
    if read.bound is not None:
        return _compared(read, statements)
    for decide in (_answered, _stated, _counted):
        if (ruling := decide(read, statements, result)) is not None:
            return ruling
    return UNDECIDED


def is_about_success(clause: str) -> bool | None:
    """Return whether a clause only asks if something worked: True, or False for "if it fails"; None if neither."""
    folded = clause.strip(" .,").casefold().replace("’", "'")
    if _FAILS.fullmatch(folded):
        return False
    if _WORKS.fullmatch(folded):
        return not denies(folded)
    return None


_SUBJECT = r"(?:it|that|this|the (?:last|first|previous) (?:step|one|part)|everything|all|es|das|dies|alles)"
_WORKS = re.compile(
    rf"(?:{_SUBJECT} )?(?:has |have |was |were |is |are |does |did |do |hat )?(?:not |doesn't |didn't |nicht )?"
    r"(?:work|works|worked|succeed|succeeds|succeeded|successful|go(?:es)? (?:through|well)|went (?:through|well)"
    r"|done|possible"
    r"|klappt|geklappt|funktioniert|gelingt|gelungen|erfolgreich|geht|möglich)(?: hat| ist| war)?"
    rf"|{_SUBJECT} (?:doesn't|didn't|isn't|wasn't|hasn't) (?:work|worked|succeed|successful|possible|go through)"
    rf"|(?:{_SUBJECT} )?nicht (?:klappt|geht|funktioniert|gelingt|möglich ist)"
)
_FAILS = re.compile(
    rf"(?:{_SUBJECT} )?(?:has |was |ist |hat )?(?:fails?|failed|goes wrong|went wrong|scheitert|gescheitert"
    rf"|schiefgeht|schief geht|misslingt)"
)


# ── the clause ────────────────────────────────────────────────────────────────────────────────────────────────────────

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_LESS = (
    "less than|fewer than|lower than|smaller than|shorter than|cheaper than|below|under|beneath|up to|at most"
    "|no more than|not more than|maximum of|weniger als|niedriger als|kleiner als|kürzer als|billiger als"
    "|günstiger als|unter|unterhalb|höchstens|maximal|nicht mehr als|bis zu"
)
_MORE = (
    "more than|greater than|higher than|larger than|bigger than|longer than|above|over|exceeds?|exceeding|at least"
    "|no less than|not less than|no fewer than|minimum of|mehr als|höher als|größer als|länger als|teurer als|über"
    "|oberhalb|mindestens|nicht weniger als|übersteigt|überschreitet"
)
_BOUND = re.compile(rf"\b(?:(?P<less>{_LESS})|(?P<more>{_MORE}))\b", re.IGNORECASE)
_REACHED = re.compile(rf"{alternatives('condition.reached')}", re.IGNORECASE)
_EXISTS = re.compile(rf"\b(?:{alternatives('condition.exists')})\b", re.IGNORECASE)
_WEAK = COMMON_WORDS | ALL_NEGATIONS | word_set("condition.weak") - {"no", "not"}


# "There is a flight under 200 euros": one of several is enough.
_OF_SEVERAL = re.compile(r"\b(?:is|are|gibt es|es gibt|ein|eine|einen|a|an|any|one)\b[^,]*\b\w+ $")


class _Clause:
    """A condition, taken apart."""

    def __init__(self, clause: str, question: str) -> None:
        text = clause.replace("’", "'")
        self.words = [word.casefold() for word in _WORD.findall(text)]
        self.negated = any(word in ALL_NEGATIONS for word in self.words) or "n't" in text
        self.content = [word for word in self.words if word not in _WEAK and len(word) > 1]
        self.question = [word.casefold() for word in _WORD.findall(question)]
        self.exists = _EXISTS.search(text) is not None
        self.bound = _BOUND.search(text) if figures(text) else None
        self.figure: Amount | None = None
        self.any = self.bound is not None and _OF_SEVERAL.search(text[: self.bound.start()]) is not None
        if self.bound is not None:
            amounts = [each.quantity for each in figures(text[self.bound.end() :]) if isinstance(each.quantity, Amount)]
            self.figure = amounts[0] if amounts else None
            if self.figure is None:
                self.bound = None

    @property
    def predicate(self) -> str:
        """The word that says what has to be so: mostly the last one that is no filler."""
        return self.content[-1] if self.content else ""


# ── the result ────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Statement(Struct):
    """A sentence of a result, or one of its fields."""

    text: str
    words: list[str]
    name: list[str]
    value: Json = None
    field: bool = False
    quote: str = ""

    @property
    def negated(self) -> bool:
        return any(word in ALL_NEGATIONS or word.endswith("n't") for word in self.words)


def _statements(result: Json) -> list[_Statement]:
    statements: list[_Statement] = []
    for statement in _walk_statements(result, ""):
        statements.append(statement)
        if len(statements) >= _MOST_STATEMENTS:
            break
    return statements


def _walk_statements(value: Json, path: str) -> Iterator[_Statement]:
    match value:
        case dict():
            for name, each in cast("dict[str, Json]", value).items():
                yield from _walk_statements(each, f"{path}.{name}" if path else str(name))
        case list() | tuple():
            several = cast("list[Json]", value)
            if path:
                yield _field(path, list(several))
            for place, each in enumerate(several):
                inner = f"{path}[{place + 1}]" if path else ""
                yield from _prose(each) if isinstance(each, str) else _walk_statements(each, inner)
        case str() if not path or len(value.split()) > 5:
            yield from _prose(value[:_LONGEST])
        case _ if path:
            yield _field(path, value)
        case _:
            return


def _prose(text: str) -> Iterator[_Statement]:
    for sentence in sentences(text):
        if is_question(sentence) or STRICT_CONDITION.search(sentence.casefold()):
            continue
        for clause in _BREAK.split(sentence):
            words = [word.casefold().replace("’", "'") for word in _WORD.findall(clause)]
            if words or figures(clause):
                yield _Statement(clause.strip(" ,"), words, [], quote=sentence)


_BREAK = re.compile(r",? (?:but|while|whereas|aber|während|jedoch)\s|; ", re.IGNORECASE)


def _field(path: str, value: Json) -> _Statement:
    name = [word for part in path.split(".") for word in name_words(part)]
    short = short_value(value) or "…"
    text = f"{in_words(path)}: {short}"
    words = [word.casefold() for word in _WORD.findall(short)] if isinstance(value, str) else []
    return _Statement(text, words, name, value, field=True, quote=text)


# ── the rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _compared(read: _Clause, statements: list[_Statement]) -> Ruling:
    """Compare the figure of a clause with those of the result that are of its kind, and about its words."""
    wanted = read.figure
    assert wanted is not None
    assert read.bound is not None
    candidates = [(each, amount) for each in statements for amount in _amounts(each, plain=wanted.kind == "number")]
    same = [pair for pair in candidates if pair[1].kind == wanted.kind and _same_currency(pair[1], wanted)]
    # "More than 300 euros", and the result has bare numbers.
    same = same or [pair for pair in candidates if pair[1].kind == "number"]
    about = [pair for pair in same if any(_has_word(word, pair[0]) for word in read.content)]
    chosen = about or same
    verdicts = {_within(amount, wanted, read.bound) for _, amount in chosen}
    if None in verdicts or not verdicts:
        return UNDECIDED
    because = cut(chosen[0][0].quote, _QUOTED)
    if len(verdicts) > 1:
        if not read.any:
            return Ruling(None, because)
        fits = next(each for each, amount in chosen if _within(amount, wanted, read.bound))
        return Ruling(not read.negated, cut(fits.quote, _QUOTED))
    denied = read.negated and not _BOUND_DENIED.search(" ".join(read.words))
    return Ruling(verdicts.pop() != denied, because)


def _amounts(statement: _Statement, *, plain: bool) -> list[Amount]:
    """Return the amounts of a statement; *plain*: as bare numbers, because the clause names no unit."""
    if statement.field and isinstance(statement.value, int | float) and not isinstance(statement.value, bool):
        figure = figure_in(statement.value, () if plain else tuple(statement.name))
        candidates = [] if figure is None else [figure]
    else:
        candidates = figures(statement.text)
        if plain:
            bare = (_UNIT.sub("", statement.text[each.start : each.end]) for each in candidates if _is_amount(each))
            candidates = [figure for each in bare for figure in figures(each)[:1]]
    return [each.quantity for each in candidates if isinstance(each.quantity, Amount)]


def _is_amount(figure: Figure) -> bool:
    return isinstance(figure.quantity, Amount)


_UNIT = re.compile(r"[^\d.,\w -]|(?<=\d)\s*[^\W\d_].*")

_BOUND_DENIED = re.compile(r"\b(?:no|not|nicht) (?:more|less|fewer|mehr|weniger)\b")


def _same_currency(one: Amount, other: Amount) -> bool:
    return not one.currency or not other.currency or one.currency == other.currency


def _within(amount: Amount, wanted: Amount, bound: re.Match[str]) -> bool | None:
    limit = wanted.low
    reached = _REACHED.search(bound[0]) is not None
    # A limit that may be reached counts as within.
    ends = {
        (value == limit and reached) or (value < limit if bound["less"] else value > limit)
        for value in (amount.low, amount.high)
    }
    return ends.pop() if len(ends) == 1 else None


def _has_word(word: str, statement: _Statement) -> bool:
    return any(same_meaning(word, each) for each in (*statement.words, *statement.name))


_YES = word_set("condition.yes")
_NO = word_set("condition.no")


def _answered(read: _Clause, statements: list[_Statement], result: Json) -> Ruling | None:
    """Read a yes or a no, if the clause says the same as the question did."""
    if isinstance(result, bool):
        yes, because = result, "yes" if result else "no"
    elif statements and not statements[0].field and isinstance(result, str):
        first = statements[0].words[:1]
        if first and first[0] in _NO and not re.match(r"\W*\w+\s*(?:[,.!:;–-]|$)", result.strip()):
            return None  # "No free slots": a statement
        if not first or first[0] not in _YES | _NO:
            return None
        yes, because = first[0] in _YES, cut(statements[0].quote, _QUOTED)
    else:
        return None
    word = read.predicate
    if word and read.question:
        signs = {sign for each in read.question if (sign := _likeness(word, each))}
        if signs == {-1}:
            yes = not yes
        elif signs != {1} and not isinstance(result, bool):
            return None
    return Ruling(yes != read.negated, because)


def _likeness(word: str, other: str) -> int:
    """Return 1 if two words mean the same, -1 if the opposite, 0 if neither is known."""
    if same_meaning(word, other):
        return 1
    opposite = {(axis, -sign) for axis, sign in sides_of(word)}
    if opposite & sides_of(other):
        return -1
    denied = any(same_meaning(word, each) for each in positive_of(other))
    return -1 if denied or any(same_meaning(each, other) for each in positive_of(word)) else 0


def _stated(read: _Clause, statements: list[_Statement], result: Json) -> Ruling | None:  # noqa: ARG001 - as the others
    """Look for statements with the predicate or its opposite; negations count on both sides."""
    word = read.predicate
    if not word:
        return None
    judged = [(each, verdict) for each in statements if (verdict := _verdict(word, each)) is not None]
    if not judged:
        return None
    if len({verdict for _, verdict in judged}) > 1:
        # The clause may say which of them it means.
        subject = read.content[:-1]
        named = [pair for pair in judged if any(_has_word(other, pair[0]) for other in subject)]
        judged = named or judged
    verdicts = {verdict for _, verdict in judged}
    because = cut(judged[0][0].quote, _QUOTED)
    if len(verdicts) > 1 or "doubt" in verdicts:
        return Ruling(None, because)
    return Ruling((verdicts.pop() == "yes") != read.negated, because)


def _verdict(word: str, statement: _Statement) -> str | None:
    """Return whether a statement says that something is so: `yes`, `no`, `doubt`, or None if it says nothing."""
    if statement.field:
        named = max((_likeness(word, each) for each in statement.name), key=abs, default=0)
        truth = _truth(statement.value)
        if named and truth is not None:
            return "yes" if truth == (named > 0) else "no"
    signs = {sign for each in statement.words if (sign := _likeness(word, each))}
    if not signs:
        return None
    if len(signs) > 1 or DOUBT.search(statement.text.casefold()) or _UNCERTAIN.search(statement.text):
        return "doubt"
    return "yes" if (signs == {1}) != statement.negated else "no"


_UNCERTAIN = re.compile(rf"\b(?:{alternatives('condition.uncertain')})\b", re.IGNORECASE)


def _truth(value: Json) -> bool | None:
    """Return what the value of a field named after the predicate says; None if it is no yes, no or amount."""
    match value:
        case bool():
            return value
        case None:
            return None
        case int() | float():
            return value > 0
        case list() | tuple() | dict():
            return bool(cast("list[Json]", value))
        case _:
            text = str(value).strip(" .!").casefold()
            if text in _YES:
                return True
            return False if text in _NO or text in _NONE else None


_NONE = word_set("condition.none")


def _counted(read: _Clause, statements: list[_Statement], result: Json) -> Ruling | None:
    """Decide whether there is something, from a result that is empty or has entries."""
    if not read.exists:
        return None
    if result in (None, "", [], {}):
        return Ruling(read.negated, "nothing")
    lists = [each for each in statements if each.field and isinstance(each.value, list)]
    if isinstance(result, list):
        return Ruling(not read.negated, f"{len(cast('list[Json]', result))} found")
    if len(lists) == 1:
        entries = cast("list[Json]", lists[0].value)
        return Ruling(bool(entries) != read.negated, cut(lists[0].quote, _QUOTED))
    if not read.content and len(statements) == 1 and (statements[0].negated or _EMPTY.search(statements[0].text)):
        return Ruling(read.negated, cut(statements[0].quote, _QUOTED))
    return None


_EMPTY = re.compile(r"\b(?:none|nothing|nobody|no one|empty|nichts|niemand|keine?[rsnm]?|leer)\b", re.IGNORECASE)
