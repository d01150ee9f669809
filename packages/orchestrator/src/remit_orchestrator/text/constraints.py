"""Finds what in a result breaks what the user demanded or decided: "at most 5,000 euros", "by sea", "no nuts"."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from msgspec.structs import replace

from remit.protocol.envelope import Answer, Json, Note, Response
from remit.words.components import in_words, name_words, said_shortly
from remit_orchestrator.text.conflicts.decided import DecidedConflict
from remit_orchestrator.text.demands import Demands, demands_of, groups_of, is_beyond
from remit_orchestrator.text.figures import figure_in, figures
from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.markers import NEGATIONS, positive_of
from remit_orchestrator.text.quantities import Amount, Day, Figure, Quantity, TimeOfDay, Weekday
from remit_orchestrator.text.sentences import is_question, sentences
from remit_orchestrator.text.spoken_times import spoken_times
from remit_orchestrator.text.stated_constraints import BY, MEANS, Prohibition, Requirement, roots_of
from remit_orchestrator.text.stated_limits import Limit, rate_of
from remit_orchestrator.text.summaries import notes_of
from remit_orchestrator.text.word_relations import root_of

_MOST_STATEMENTS = 500
_DEEPEST = 8
_MEANS_FIELDS = word_set("checked.means_fields")
_PAYING = word_set("checked.paying")
# Sums of money that nobody has to pay for what was asked.
_NO_PRICE = word_set("checked.no_price")
# "Ten years old" is no time that something takes.
_AGES = frozenset(map(root_of, ("old", "alt", "ago")))
_WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
_CLAUSE = re.compile(r"[;,](?!\d)|\s(?:but|while|whereas|aber|sondern|während)\s", re.IGNORECASE)
_EXCLUDING = re.compile(
    r"\b(?:free (?:of|from)|frei von|instead of|rather than|except|exclud\w+|avoid\w*|statt|anstatt|anstelle|außer"
    r"|against|gegen)\b"
    r"|\w-free\b|\w(?:frei|los)\b",
    re.IGNORECASE,
)
# "Open from Monday to Friday", "from 8:00 to 16:00": nobody has to come at all of these times.
_OPENING = re.compile(
    r"\b(?:open|opens|opening|close[sd]?|geöffnet|offen|öffnungszeiten|öffnet|schließt)\b", re.IGNORECASE
)


class ResultStatement(NamedTuple):
    """A part of a result: its words, the name of its field, and its value."""

    text: str
    name: tuple[str, ...]
    value: Json

    @property
    def said(self) -> str:
        whole = f"{in_words('_'.join(self.name))}: {said_shortly(self.value)}" if self.name else self.text
        return whole.rstrip(".")

    @property
    def words(self) -> set[str]:
        return {*self.name, *(word.casefold() for word in _WORD.findall(self.text))}


class _MeasuredFigure(NamedTuple):
    statement: ResultStatement
    quantity: Quantity
    per: str = ""
    counted: frozenset[str] = frozenset()


def breaches(demands: Demands, results: Sequence[Json]) -> list[str]:
    """Return a sentence for each thing in the results that breaks a demand, each once."""
    told: dict[str, None] = {}
    for result in results:
        statements = list(_statements(result, (), 0))[:_MOST_STATEMENTS]
        for each in demands.constraints:
            match each:
                case Limit():
                    broken = _over(each, statements)
                case Prohibition():
                    broken = _forbidden(each, statements)
                case Requirement():
                    broken = _otherwise(each, statements)
            told |= dict.fromkeys(
                f"You said “{each.text}”, but this does not keep to it: “{statement.said}”." for statement in broken
            )
        for decided in demands.decided:
            told |= dict.fromkeys(_undone(decided, statements))
    return list(told)


def with_breaches(
    answer: Answer, known: Iterable[Note], said: str, responses: Iterable[Response], clean: Callable[[str], str]
) -> Answer:
    """Return an answer that points out what in the results breaks a demand of the user.

    *known* are the notes of the conversation before the request, and *said* are the words of the request.
    """
    broken = breaches(demands_of((*known, *notes_of(said))), [each.result for each in responses if each.ok])
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
        case None | dict() | list():
            return
        case bool():
            yield ResultStatement(f"{'' if value else 'no '}{in_words('_'.join(name))}", name, value)
        case _:
            yield ResultStatement(f"{in_words('_'.join(name))} {value}", name, value)


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _over(limit: Limit, statements: Sequence[ResultStatement]) -> Iterator[ResultStatement]:
    """Yield the statements with a figure beyond a limit."""
    measured = [figure for each in statements for figure in _measured(each, limit.quantity)]
    alike = [figure for figure in measured if _is_comparable(limit, figure)]
    for figure in alike:
        if is_beyond(figure.quantity, limit.quantity, most=limit.most) and _is_about(
            limit, figure, alone=len(alike) == 1
        ):
            yield figure.statement


def _measured(statement: ResultStatement, bound: Quantity) -> Iterator[_MeasuredFigure]:
    if not isinstance(statement.value, str):
        figure = None if isinstance(statement.value, bool) else figure_in(statement.value, statement.name)
        if figure is not None:
            per = next((word for word in statement.name if rate_of(f" per {word}", 0)), "")
            counted = frozenset(root_of(word) for word in statement.name)
            yield _MeasuredFigure(statement, _larger(figure), per, counted)
        return
    text = statement.value
    if isinstance(bound, TimeOfDay):
        times = spoken_times(text)
        # Of several times it is not known which one the limit is for.
        if len(times) == 1 and not _OPENING.search(text):
            yield _MeasuredFigure(statement, TimeOfDay(times[0].hour * 60 + times[0].minute))
        return
    for figure in figures(text):
        following = [root_of(word.casefold()) for word in _WORD.findall(text[figure.end : figure.end + 40])[:2]]
        named = (root_of(word) for word in statement.name)
        yield _MeasuredFigure(statement, _larger(figure), rate_of(text, figure.end), frozenset((*following, *named)))


def _larger(figure: Figure) -> Quantity:
    """Return a figure's quantity; 1.500 euros are fifteen hundred, as no price has three decimals."""
    quantity, other = figure.quantity, figure.other
    money = isinstance(quantity, Amount) and quantity.kind == "money"
    return other if money and isinstance(other, Amount) else quantity


def _is_comparable(limit: Limit, figure: _MeasuredFigure) -> bool:
    bound, other = limit.quantity, figure.quantity
    if isinstance(bound, Amount) and isinstance(other, Amount):
        if other.form not in {"point", "range"} or (limit.per and limit.per != figure.per):
            return False
        if bound.kind == "number":
            return other.kind == "money" if not limit.noun else root_of(limit.noun) in figure.counted
        return bound.kind == other.kind and (
            bound.currency == other.currency or not (bound.currency and other.currency)
        )
    if isinstance(bound, Day) and isinstance(other, Day):
        return other.form == "point"
    return isinstance(bound, TimeOfDay) and isinstance(other, TimeOfDay)


def _is_about(limit: Limit, figure: _MeasuredFigure, *, alone: bool) -> bool:
    """Tell whether a figure is what a bound is about: a price, a thing that both name, or the only one of its kind."""
    words = figure.statement.words
    if limit.noun or isinstance(limit.quantity, TimeOfDay):
        return True
    if not _AGES.isdisjoint(figure.counted):
        return False
    if limit.subject & {root_of(word) for word in words}:
        return True
    if isinstance(figure.quantity, Amount) and figure.quantity.kind == "money":
        if not _PAYING.isdisjoint(words) or limit.per:
            return True
        return alone and not figure.statement.name and _NO_PRICE.isdisjoint(words)
    return alone


# ── choices and prohibitions ──────────────────────────────────────────────────────────────────────────────────────────


def _forbidden(constraint: Prohibition, statements: Sequence[ResultStatement]) -> Iterator[ResultStatement]:
    """Yield the statements that say that something is what it must not be."""
    for each in statements:
        if is_question(each.text):
            continue
        if constraint.means:
            if groups_of(constraint) & {group for _, group in _means_in(each)} and not _is_denied(each.text):
                yield each
        elif any(not _is_denied(clause) and not _is_span(clause) for clause in _clauses_about(constraint, each)):
            yield each


def _otherwise(constraint: Requirement, statements: Sequence[ResultStatement]) -> Iterator[ResultStatement]:
    """Yield the statements that say that something is not what the user chose."""
    if constraint.means:
        chosen = groups_of(constraint)
        means = [(each, _means_in(each)) for each in statements]
        if any(chosen & {group for _, group in found} for _, found in means):
            return
        for each, found in means:
            if any(kind == constraint.means for kind, _ in found):
                yield each
        return
    for each in statements:
        if any(_is_negated(clause) for clause in _clauses_about(constraint, each)) or _is_opposed(constraint, each):
            yield each


def _means_in(statement: ResultStatement) -> list[tuple[str, str]]:
    """Return the means by which a statement says that something is done: each with its kind."""
    if not isinstance(statement.value, str):
        return []
    found = [(each[1] or each[2]).casefold() for each in BY.finditer(statement.text)]
    if not _MEANS_FIELDS.isdisjoint(statement.name) and len(statement.text.split()) <= 2:
        found += [word.casefold() for word in _WORD.findall(statement.text)]
    return [MEANS[word] for word in found if word in MEANS]


def _clauses_about(constraint: Requirement | Prohibition, statement: ResultStatement) -> Iterator[str]:
    """Yield the clauses of a statement with all the words that a constraint is about."""
    if not constraint.roots:
        return
    named = roots_of(" ".join(statement.name)) if statement.name else frozenset[str]()
    for clause in _CLAUSE.split(statement.text):
        if constraint.roots <= roots_of(clause) | named:
            yield clause


def _is_denied(clause: str) -> bool:
    return _is_negated(clause) or _EXCLUDING.search(clause) is not None


def _is_negated(clause: str) -> bool:
    return not NEGATIONS.isdisjoint(word.casefold().replace("’", "'") for word in _WORD.findall(clause))


def _is_span(clause: str) -> bool:
    days = [each for each in figures(clause) if isinstance(each.quantity, Weekday)]
    return len(days) > 1 or _OPENING.search(clause) is not None


def _is_opposed(choice: Requirement, statement: ResultStatement) -> bool:
    """Tell whether a statement has the opposite of a chosen word: `smoking` for `non-smoking`."""
    words = choice.about.casefold().split()
    if len(words) != 1 or not isinstance(statement.value, str) or _is_denied(statement.text):
        return False
    chosen = words[0]
    for word in statement.words:
        if word != chosen and (chosen in positive_of(word) or word in positive_of(chosen)):
            return chosen not in statement.words
    return False


# ── settled conflicts ─────────────────────────────────────────────────────────────────────────────────────────────────


def _undone(decided: DecidedConflict, statements: Sequence[ResultStatement]) -> Iterator[str]:
    """Yield a field with a value that the user decided against."""
    for each in statements:
        about = in_words("_".join(each.name)).casefold()
        if about == decided.about.casefold() and said_shortly(each.value) in decided.others:
            yield f"You decided that {about} is {decided.counts}, but this says {said_shortly(each.value)}."
