"""Finds what in a result breaks what the user demanded or decided: "at most 5,000 euros", "by sea"."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from msgspec.structs import replace

from remit.protocol.envelope import Answer, Json, Note, Response
from remit.text.components import in_words, name_words, said_shortly
from remit.text.conflicts.decided import DecidedConflict, decided_conflicts
from remit.text.figures import figure_in, figures
from remit.text.quantities import Amount, Day, Figure
from remit.text.sentences import sentences
from remit.text.vocabulary import COMMON_WORDS, stem, words_of

_MOST_STATEMENTS = 500
_DEEPEST = 8
_GERMAN_MOST = re.compile(r"\b(?:höchstens|maximal|nicht mehr als|bis zu|unter)\s$", re.IGNORECASE)
_GERMAN_LEAST = re.compile(r"\b(?:mindestens|wenigstens|nicht weniger als)\s$", re.IGNORECASE)
# "By sea", "per Bahn": a noun without an article says how; a day or a person has another form.
_BY = re.compile(r"\b(?:only |nur )?(?:by|via|per) ([a-zäöü]{3,20}|(?<=per )[A-ZÄÖÜ][a-zäöüß]{2,20})\b(?! \d)")
_NO_MANNER = words_of("""
    the then now noon midnight today tomorrow tonight monday tuesday wednesday thursday friday saturday sunday next end
    far default mistake accident hand chance law weight person day week month year
""")
_MEANS = words_of(
    "mode means method transport transportation via carrier way shipping delivery versandart transportmittel"
)
_PAYING = words_of(
    "cost costs price fee total charge amount pay paid rent kosten kostet preis gebühr summe betrag miete"
)
_WORD = re.compile(r"[^\W\d_]+")
_BUDGET = words_of("budget limit most least more less than spend may must should only maximum minimum cost costs price")


class Limit(NamedTuple):
    """A bound that the user set: the words, the figure, and what it is about."""

    text: str
    figure: Figure
    most: bool
    subject: frozenset[str]


class Demands(NamedTuple):
    """What the user demanded and decided in a conversation."""

    limits: tuple[Limit, ...] = ()
    manners: tuple[tuple[str, str], ...] = ()
    """How something is to be done: the word, and the sentence with it."""
    decided: tuple[DecidedConflict, ...] = ()


class ResultStatement(NamedTuple):
    """A part of a result: its words, the name of its field, and its value."""

    text: str
    name: tuple[str, ...]
    value: Json


def demands_of(notes: Sequence[Note]) -> Demands:
    """Return what the user's notes demand; a later bound of the same kind and subject takes the place of an earlier."""
    limits: dict[tuple[object, ...], Limit] = {}
    manner: tuple[tuple[str, str], ...] = ()
    for note in notes:
        if note.by or note.kind == "fact":
            continue
        for each in _limits(note.text):
            limits[type(each.figure.quantity), getattr(each.figure.quantity, "kind", ""), each.most, each.subject] = (
                each
            )
        if (how := _manner(note.text)) is not None:
            manner = ((how, note.text),)
    decided = decided_conflicts(note.text for note in notes if note.kind == "decision")
    return Demands(tuple(limits.values()), manner, tuple(decided.values()))


def _limits(text: str) -> Iterator[Limit]:
    subject = frozenset(stem(word) for word in _WORD.findall(text.casefold()) if _is_subject(word))
    for figure in figures(text):
        quantity, before = figure.quantity, text[max(0, figure.start - 30) : figure.start]
        if isinstance(quantity, Amount) and quantity.kind != "number":
            if quantity.form in {"limit", "loose"}:
                yield Limit(text, figure, quantity.low == float("-inf"), subject)
            elif _GERMAN_MOST.search(before) or _GERMAN_LEAST.search(before):
                yield Limit(text, figure, bool(_GERMAN_MOST.search(before)), subject)
        elif isinstance(quantity, Day) and quantity.form in {"limit", "loose"} and quantity.before:
            yield Limit(text, figure, True, subject)


def _is_subject(word: str) -> bool:
    return len(word) > 2 and word not in COMMON_WORDS and word not in _BUDGET


def _manner(text: str) -> str | None:
    found = [match[1].casefold() for match in _BY.finditer(text) if match[1].casefold() not in _NO_MANNER]
    return found[-1] if found else None


def breaches(demands: Demands, results: Sequence[Json]) -> list[str]:
    """Return a sentence for each thing in the results that breaks a demand, each once."""
    told: dict[str, None] = {}
    for result in results:
        statements = list(_statements(result, (), 0))[:_MOST_STATEMENTS]
        for limit in demands.limits:
            told |= dict.fromkeys(_over(limit, statements))
        for how, text in demands.manners:
            told |= dict.fromkeys(_otherwise(how, text, statements))
        for decided in demands.decided:
            told |= dict.fromkeys(_undone(decided, statements))
    return list(told)


def with_breaches(
    answer: Answer, notes: Iterable[Note], responses: Iterable[Response], clean: Callable[[str], str]
) -> Answer:
    """Return an answer that points out what in the results breaks a demand of the user."""
    broken = breaches(demands_of(tuple(notes)), [each.result for each in responses if each.ok])
    if not broken or not isinstance(answer.result, str):
        return answer
    listed = "\n".join(f"- {clean(each)}" for each in broken)
    text = f"{answer.result}\n\n## Not as you asked\n\n{listed}"
    return replace(answer, result=text, metadata=answer.metadata | {"broken": broken})


def _statements(value: Json, name: tuple[str, ...], depth: int) -> Iterator[ResultStatement]:
    match value:
        case dict() if depth < _DEEPEST:
            for key, each in cast("dict[str, Json]", value).items():
                yield from _statements(each, (*name, *name_words(key)), depth + 1)
        case list() if depth < _DEEPEST:
            for each in cast("list[Json]", value):
                yield from _statements(each, name, depth + 1)
        case str():
            yield from (ResultStatement(each, name, each) for each in sentences(value))
        case bool() | None | dict() | list():
            return
        case _:
            yield ResultStatement(f"{in_words('_'.join(name))} {value}", name, value)


def _over(limit: Limit, statements: Sequence[ResultStatement]) -> Iterator[str]:
    bound = limit.figure.quantity
    found: list[tuple[ResultStatement, Figure]] = []
    for each in statements:
        if isinstance(each.value, str):
            found += [(each, figure) for figure in figures(each.value)]
        elif (figure := figure_in(each.value, each.name)) is not None:
            found.append((each, figure))
    alike = [(each, figure) for each, figure in found if _comparable(bound, figure.quantity)]
    for each, figure in alike:
        if _breaks(bound, figure.quantity, most=limit.most) and _is_about(limit, each, alone=len(alike) == 1):
            said = f"{in_words('_'.join(each.name))}: {each.value}" if each.name else each.text
            yield f"You said “{limit.text}”, but this does not keep to it: “{said.rstrip('.')}”."


def _comparable(bound: object, other: object) -> bool:
    if isinstance(bound, Amount) and isinstance(other, Amount):
        currencies = bound.currency == other.currency or not (bound.currency and other.currency)
        return bound.kind == other.kind and currencies and other.form == "point"
    return isinstance(bound, Day) and isinstance(other, Day) and other.form == "point"


def _breaks(bound: object, other: object, *, most: bool) -> bool:
    if isinstance(bound, Amount) and isinstance(other, Amount):
        ends = [end for end in (bound.low, bound.high) if abs(end) != float("inf")]
        return other.low > ends[-1] + other.slack if most else other.low < ends[0] - other.slack
    assert isinstance(bound, Day)
    assert isinstance(other, Day)
    (year, month, day), *more = bound.readings
    (other_year, *rest), *others = other.readings
    if more or others or not all((month, day, *rest)):
        return False
    return (other_year or year, *rest) > (year or other_year, month, day)


def _is_about(limit: Limit, statement: ResultStatement, *, alone: bool) -> bool:
    """Tell whether a figure is what a bound is about: a price, a thing that both name, or the only one of its kind."""
    words = {*statement.name, *(_WORD.findall(statement.text.casefold()))}
    if limit.subject & {stem(word) for word in words}:
        return True
    quantity = limit.figure.quantity
    if isinstance(quantity, Amount) and quantity.kind == "money":
        return not _PAYING.isdisjoint(words)
    return alone


def _otherwise(how: str, text: str, statements: Sequence[ResultStatement]) -> Iterator[str]:
    """Yield what is said to be done in another way than the user wants."""
    if any(_manner(each.text) == how for each in statements if isinstance(each.value, str)):
        return
    for each in statements:
        if not isinstance(each.value, str):
            continue
        other = _manner(each.text)
        if other is None and not _MEANS.isdisjoint(each.name) and len(each.text.split()) <= 2:
            other = each.text.casefold().rstrip(".")
        if other is not None and other != how and how not in _WORD.findall(each.text.casefold()):
            yield f"You said “{text}”, but this does not keep to it: “{each.text.rstrip('.')}”."


def _undone(decided: DecidedConflict, statements: Sequence[ResultStatement]) -> Iterator[str]:
    """Yield a field with a value that the user decided against."""
    for each in statements:
        about = in_words("_".join(each.name)).casefold()
        if about == decided.about.casefold() and said_shortly(each.value) in decided.others:
            yield f"You decided that {about} is {decided.counts}, but this says {said_shortly(each.value)}."
