"""Collects the constraints of a conversation, and finds what in a result breaks them."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from msgspec.structs import replace

from remit.protocol.envelope import Answer, Json, Note, Response
from remit.words.components import in_words, name_words, short_value
from remit_orchestrator.text.conflicts.decided import DecidedConflict, decided_conflicts
from remit_orchestrator.text.figures import Amount, Day, Figure, Quantity, TimeOfDay, Weekday, figure_in, figures
from remit_orchestrator.text.lexicon import alternatives, word_set
from remit_orchestrator.text.sentences import is_question, sentences
from remit_orchestrator.text.spoken_times import spoken_times
from remit_orchestrator.text.stated_constraints import (
    BY,
    MEANS,
    Constraint,
    Lifting,
    Limit,
    Prohibition,
    Requirement,
    Revision,
    rate_of,
    roots_of,
    stated_change,
    stated_constraints,
)
from remit_orchestrator.text.summaries import notes_of
from remit_orchestrator.text.vocabulary import ALL_NEGATIONS, positive_of, root_of

_ANSWERED = " → "


class Demands(NamedTuple):
    """What the user demanded and decided in a conversation, and has not taken back."""

    constraints: tuple[Constraint, ...] = ()
    decided: tuple[DecidedConflict, ...] = ()

    @property
    def limits(self) -> Iterator[Limit]:
        return (each for each in self.constraints if isinstance(each, Limit))


def demands_of(notes: Sequence[Note]) -> Demands:
    """Return what the user's notes demand, in their order."""
    standing: list[Constraint] = []
    for note in notes:
        if note.by or note.kind == "fact":
            continue
        text = note.text.rpartition(_ANSWERED)[2] if note.kind == "answer" else note.text
        for sentence in sentences(text):
            change = stated_change(sentence)
            if isinstance(change, Revision):
                standing = _revised(standing, change)
            elif change is not None:
                standing = [each for each in standing if not _is_lifted(each, change, standing)]
            else:
                for each in stated_constraints(sentence):
                    standing = _added(standing, each)
    decided = decided_conflicts(note.text for note in notes if note.kind == "decision")
    return Demands(tuple(standing), tuple(decided.values()))


def _added(standing: list[Constraint], fresh: Constraint) -> list[Constraint]:
    """Return the constraints with a new one, in the place of those that it changes."""
    if isinstance(fresh, Limit):
        changed = [each for each in standing if isinstance(each, Limit) and _same_bound(each, fresh)]
        if changed and _is_bare(fresh.quantity):
            # "Now up to 800": in the unit of before.
            fresh = changed[-1]._replace(text=fresh.text, quantity=_in_unit_of(changed[-1].quantity, fresh.quantity))
        return [*(each for each in standing if each not in changed), fresh]
    kept = [each for each in standing if isinstance(each, Limit) or not _is_replaced(each, fresh)]
    return [*kept, fresh]


def _same_bound(old: Limit, new: Limit) -> bool:
    if old.most != new.most or (new.per and old.per != new.per):
        return False
    if not _same_kind(old.quantity, new.quantity) or (new.noun and root_of(old.noun) != root_of(new.noun)):
        return False
    return not new.subject or old.subject == new.subject or bool(old.subject & new.subject)


def _same_kind(old: Quantity, new: Quantity) -> bool:
    if isinstance(old, Amount) and isinstance(new, Amount):
        if _is_bare(new):
            return old.kind in {"money", "number"}
        return old.kind == new.kind and (old.currency == new.currency or not old.currency)
    if isinstance(old, Day | Weekday) and isinstance(new, Day | Weekday):
        return True
    return isinstance(old, TimeOfDay) and isinstance(new, TimeOfDay)


def _is_bare(quantity: Quantity) -> bool:
    return isinstance(quantity, Amount) and quantity.kind == "number"


def _in_unit_of(old: Quantity, new: Quantity) -> Quantity:
    assert isinstance(old, Amount)
    assert isinstance(new, Amount)
    return replace(old, low=new.low, high=new.high)


def _is_replaced(old: Requirement | Prohibition, fresh: Requirement | Prohibition) -> bool:
    """Return whether a choice takes the place of another, or a word that of its opposite."""
    if old.roots == fresh.roots or (old.means and groups_of(old) == groups_of(fresh)):
        return True
    return (
        isinstance(old, Requirement)
        and isinstance(fresh, Requirement)
        and bool(fresh.means)
        and old.means == fresh.means
    )


def groups_of(constraint: Requirement | Prohibition) -> frozenset[str]:
    """Return the means that a constraint names: `sea` for "by ship"."""
    return frozenset(MEANS[word][1] for word in map(str.casefold, constraint.about.split()) if word in MEANS)


def _revised(standing: list[Constraint], change: Revision) -> list[Constraint]:
    """Return the constraints with another value for the last limit that it is for."""
    for place in range(len(standing) - 1, -1, -1):
        old = standing[place]
        if not isinstance(old, Limit) or (value := _value_for(old, change.quantity)) is None:
            continue
        if not change.widens or is_beyond(value, old.quantity, most=old.most):
            return [*standing[:place], old._replace(text=change.text, quantity=value), *standing[place + 1 :]]
    return standing


def _value_for(old: Limit, new: Quantity) -> Quantity | None:
    """Return a new value for a limit, in its unit; None if it is none for it."""
    if isinstance(old.quantity, TimeOfDay) and isinstance(new, Amount):
        return TimeOfDay(new.low * 60) if new.kind == "number" and 0 <= new.low <= 24 else None
    if not _same_kind(old.quantity, new):
        return None
    return _in_unit_of(old.quantity, new) if _is_bare(new) else new


def is_beyond(value: Quantity, bound: Quantity, *, most: bool) -> bool:
    """Return whether a value is more than the most, or less than the least; no if nobody can tell."""
    match value, bound:
        case Amount(), Amount():
            return value.low > bound.low + value.slack if most else value.high < bound.low - value.slack
        case TimeOfDay(), TimeOfDay():
            return value.at > bound.at if most else value.at < bound.at
        case Day(readings=((year, month, day),)), Day(readings=((bound_year, bound_month, bound_day),)):
            if not all((month, day, bound_month, bound_day)):
                return False
            if not (year or bound_year) and abs(month - bound_month) > 6:
                # Without a year, December may be before January or after it.
                return False
            here = (year or bound_year, month, day)
            there = (bound_year or year, bound_month, bound_day)
            return here > there if most else here < there
        case _:
            return False


def _is_lifted(constraint: Constraint, change: Lifting, standing: Sequence[Constraint]) -> bool:
    match change.scope:
        case "all":
            return True
        case "last":
            return constraint == standing[-1]
        case "limits":
            return isinstance(constraint, Limit)
        case "money":
            return isinstance(constraint, Limit) and _is_money(constraint)
        case "time":
            return isinstance(constraint, Limit) and isinstance(constraint.quantity, TimeOfDay | Day | Weekday)
        case _:
            return not isinstance(constraint, Limit) and constraint.roots <= change.roots


def _is_money(limit: Limit) -> bool:
    return isinstance(limit.quantity, Amount) and (
        limit.quantity.kind == "money" or (limit.quantity.kind == "number" and not limit.noun)
    )


_MOST_STATEMENTS = 500
_DEEPEST = 8
_MEANS_FIELDS = word_set("checked.means_fields")
_PAYING = word_set("checked.paying")
# Sums of money that nobody has to pay for what was asked.
_NO_PRICE = word_set("checked.no_price")
# "Ten years old" is no time that something takes.
_AGES = frozenset(map(root_of, ("old", "alt", "ago")))
_HYPHENED_WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
_CLAUSE = re.compile(r"[;,](?!\d)|\s(?:but|while|whereas|aber|sondern|während)\s", re.IGNORECASE)
_EXCLUDING = re.compile(
    r"\b(?:free (?:of|from)|frei von|instead of|rather than|except|exclud\w+|avoid\w*|statt|anstatt|anstelle|außer"
    r"|against|gegen)\b"
    r"|\w-free\b|\w(?:frei|los)\b",
    re.IGNORECASE,
)
# "Open from Monday to Friday", "from 8:00 to 16:00": nobody has to come at all of these times.
_OPENING = re.compile(rf"\b(?:{alternatives('constraint.opening')})\b", re.IGNORECASE)


class ResultStatement(NamedTuple):
    """A part of a result: its words, the name of its field, and its value."""

    text: str
    name: tuple[str, ...]
    value: Json

    @property
    def quote(self) -> str:
        whole = f"{in_words('_'.join(self.name))}: {short_value(self.value)}" if self.name else self.text
        return whole.rstrip(".")

    @property
    def words(self) -> set[str]:
        return {*self.name, *(word.casefold() for word in _HYPHENED_WORD.findall(self.text))}


class _MeasuredFigure(NamedTuple):
    statement: ResultStatement
    quantity: Quantity
    per: str = ""
    counted: frozenset[str] = frozenset()


def breaches(demands: Demands, results: Sequence[Json]) -> list[str]:
    """Return a sentence for each thing in the results that breaks a demand, each once."""
    messages: dict[str, None] = {}
    for result in results:
        statements = list(_statements(result, (), 0))[:_MOST_STATEMENTS]
        for each in demands.constraints:
            match each:
                case Limit():
                    broken = _over_limit(each, statements)
                case Prohibition():
                    broken = _forbidden(each, statements)
                case Requirement():
                    broken = _against_choice(each, statements)
            messages |= dict.fromkeys(
                f"You said “{each.text}”, but this does not keep to it: “{statement.quote}”." for statement in broken
            )
        for decided in demands.decided:
            messages |= dict.fromkeys(_decided_against(decided, statements))
    return list(messages)


def with_breaches(
    answer: Answer, known: Iterable[Note], request: str, responses: Iterable[Response], clean: Callable[[str], str]
) -> Answer:
    """Return an answer that points out what in the results breaks a demand of the user.

    *known* are the notes of the conversation before the request, and *request* are the words of the request.
    """
    broken = breaches(demands_of((*known, *notes_of(request))), [each.result for each in responses if each.ok])
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


def _over_limit(limit: Limit, statements: Sequence[ResultStatement]) -> Iterator[ResultStatement]:
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
        following = [
            root_of(word.casefold()) for word in _HYPHENED_WORD.findall(text[figure.end : figure.end + 40])[:2]
        ]
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


def _against_choice(constraint: Requirement, statements: Sequence[ResultStatement]) -> Iterator[ResultStatement]:
    """Yield the statements that say that something is not what the user chose."""
    if constraint.means:
        chosen = groups_of(constraint)
        means = [(each, _means_in(each)) for each in statements]
        if any(chosen & {group for _, group in kinds} for _, kinds in means):
            return
        for each, kinds in means:
            if any(kind == constraint.means for kind, _ in kinds):
                yield each
        return
    for each in statements:
        if any(_is_negated(clause) for clause in _clauses_about(constraint, each)) or _is_opposed(constraint, each):
            yield each


def _means_in(statement: ResultStatement) -> list[tuple[str, str]]:
    """Return the means by which a statement says that something is done: each with its kind."""
    if not isinstance(statement.value, str):
        return []
    words = [(each[1] or each[2]).casefold() for each in BY.finditer(statement.text)]
    if not _MEANS_FIELDS.isdisjoint(statement.name) and len(statement.text.split()) <= 2:
        words += [word.casefold() for word in _HYPHENED_WORD.findall(statement.text)]
    return [MEANS[word] for word in words if word in MEANS]


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
    return not ALL_NEGATIONS.isdisjoint(word.casefold().replace("’", "'") for word in _HYPHENED_WORD.findall(clause))


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


def _decided_against(decided: DecidedConflict, statements: Sequence[ResultStatement]) -> Iterator[str]:
    """Yield a field with a value that the user decided against."""
    for each in statements:
        about = in_words("_".join(each.name)).casefold()
        if about == decided.about.casefold() and short_value(each.value) in decided.others:
            yield f"You decided that {about} is {decided.counts}, but this says {short_value(each.value)}."
