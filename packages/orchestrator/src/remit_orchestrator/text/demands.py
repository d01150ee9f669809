"""Collects what a user demanded and decided in a conversation; a later word changes or lifts an earlier one."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from remit.protocol.envelope import Note
from remit_orchestrator.text.conflicts.decided import DecidedConflict, decided_conflicts
from remit_orchestrator.text.constraint_changes import Lifting, Revision, stated_change
from remit_orchestrator.text.quantities import Amount, Day, Quantity, TimeOfDay, Weekday
from remit_orchestrator.text.sentences import sentences
from remit_orchestrator.text.stated_constraints import MEANS, Constraint, Prohibition, Requirement, stated_constraints
from remit_orchestrator.text.stated_limits import Limit
from remit_orchestrator.text.word_relations import root_of

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
        said = note.text.rpartition(_ANSWERED)[2] if note.kind == "answer" else note.text
        for sentence in sentences(said):
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
