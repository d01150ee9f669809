"""Searches for contradictions between components, in their fields and in their claims.

Owners are components, as the bits of a number: 0b101 is the first and the third. Each claim is held once, with its
owners. Two claims are compared if all words of one subject are among those of the other. A component that agrees with
any claim of another about a subject does not contradict it. Claims that contradict each other, and those that agree
with one of them, are one dispute.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import combinations, product
from typing import Literal, NamedTuple, Protocol, TypeVar

from msgspec import Struct

from remit.protocol.envelope import Json
from remit.words.components import (
    Component,
    Conflict,
    Findings,
    ReportedValue,
    Severity,
    in_words,
    short_value,
)
from remit_orchestrator.text.conflicts.claims import (
    Affirmed,
    Claim,
    Subject,
    apart,
    claims,
    compared,
    is_telling,
    likeness,
)
from remit_orchestrator.text.conflicts.clauses import OwnedClause, Prose, content
from remit_orchestrator.text.conflicts.fields import (
    Meaning,
    PlacedValue,
    Places,
    ResultFields,
    agreed,
    difference,
    field_at,
    is_prose,
    may_say_figures,
    meaning,
)
from remit_orchestrator.text.figures import Amount, figures, figures_agree
from remit_orchestrator.text.lexicon import word_set
from remit_orchestrator.text.replies import place_named
from remit_orchestrator.text.vocabulary import stem

# Names of fields that only wrap the content.
_WRAPPING = word_set("dispute.wrapping")


class OwnedStatement(Protocol):
    """A statement and its owners, one bit for each."""

    @property
    def owners(self) -> int: ...


S = TypeVar("S", bound=OwnedStatement)


class Dispute(Struct, frozen=True, gc=False):
    """A point on which components contradict each other."""

    path: str
    """The place in the results, or the words that the texts share."""
    about: str
    """The same for people to read."""
    distance: float
    """How far apart the sides are: 0 is nearly the same, 1 or more has nothing in common."""
    sides: list[list[tuple[Json, int]]]
    """For each side, its values, each with its owners."""


class Search:
    """What a search has found so far, with what it has read once and needs again."""

    def __init__(self) -> None:
        self.disputes: list[Dispute] = []
        self.agreeing = 0
        """How many comparisons of two components agreed."""
        self.comparisons = 0
        self.complete = True
        """False if there was more to compare than the limits allow."""
        self._meanings: dict[PlacedValue, Meaning | None] = {}
        self._words: dict[str, tuple[tuple[str, str], ...]] = {}

    def meaning(self, held: PlacedValue) -> Meaning | None:
        """Return the meaning of a value, computed once."""
        if held not in self._meanings:
            self._meanings[held] = meaning(held.value, held.name)
        return self._meanings[held]

    def about(self, path: str) -> tuple[tuple[str, str], ...]:
        """Return the stems of the meaningful words of a path; the common part of many paths is read once."""
        above, _, last = path.rpartition(".")
        if not above or "]" in last:
            return tuple(dict(content(in_words(path), _WRAPPING)).items())
        for part in (above, last):
            if part not in self._words:
                self._words[part] = tuple(content(in_words(part), _WRAPPING))
        return tuple(dict((*self._words[above], *self._words[last])).items())


def everybody(side: Iterable[OwnedStatement]) -> int:
    """Return all owners of the statements of a side."""
    return union([each.owners for each in side])


def union(several: Iterable[int]) -> int:
    """Return the union of these sets of owners."""
    owners = 0
    for each in several:
        owners |= each
    return owners


@lru_cache(maxsize=4096)
def members(owners: int) -> tuple[int, ...]:
    """Return the numbers of the owners in a set, in order."""
    return tuple(place for place in range(owners.bit_length()) if owners >> place & 1)


def sides_of(statements: Iterable[S], verdict: Callable[[S, S], bool | None]) -> list[list[S]]:
    """Divide statements into sides: each joins the first side with whose first statement it agrees.

    One that agrees with none opens a side of its own if it contradicts another side, and is left out if it cannot be
    compared with any.
    """
    sides: list[list[S]] = []
    for each in statements:
        opposed = not sides
        for side in sides:
            agrees = verdict(each, side[0])
            if agrees:
                side.append(each)
                break
            opposed = opposed or agrees is False
        else:
            if opposed:
                sides.append([each])
    return sides


def disputed(sides: list[list[S]]) -> list[list[S]]:
    """Return the sides that contradict another one: each has a component that is not on the other."""
    owners = [everybody(side) for side in sides]
    if len(sides) == 2:
        return sides if owners[0] & ~owners[1] and owners[1] & ~owners[0] else []
    return [
        side
        for side, here in zip(sides, owners, strict=True)
        if any(here & ~other and other & ~here for other in owners)
    ]


def tally(search: Search, sides: Sequence[int]) -> None:
    """Count the comparisons of two components, and how many agreed."""
    everybody = places = agreeing = 0
    for side in sides:
        everybody |= side
        number = side.bit_count()
        places += number
        agreeing += number * (number - 1)
    number = everybody.bit_count()
    search.comparisons += number * (number - 1)
    if places > number:
        # An owner on two sides agrees with both.
        agreeing = sum(union([side for side in sides if side >> one & 1]).bit_count() - 1 for one in members(everybody))
    search.agreeing += agreeing


# More clauses than this of one component are ignored: a text of 10 KB has some 150 sentences.
_SENTENCES = 1_000
_CHARACTERS = 100_000
# This many fields of all components are also compared with sentences, and with fields of another structure.
_SPOKEN_FIELDS = 3_000
# A word that occurs in more subjects than this distinguishes nothing, and a subject with more claims than this is not
# one thing.
_CROWD = 200
_PAIRS = 2_000
# "No vacancies in May" are not none at all.
_LIMITED = re.compile(r"\b(?:in|on|at|for|of|among|within|from|to|im|am|auf|bei|für|von|vom)\b", re.IGNORECASE)
# Nobody reads more.
_QUOTED = 160


class _Statement(Struct, frozen=True, gc=False):
    """A claim and its owners."""

    claim: Claim
    owners: int
    kind: Literal["sentence", "alone", "shared"]
    """Whether it is from a sentence, from a field that only one has, or from a field that several have."""


_Affirmation = tuple[Affirmed, int]
"""A sentence that denies nothing, and its owners."""


def compare_claims(search: Search, places: Places) -> None:
    """Record which claims contradict each other, and how many agree."""
    _compare(search, _statements(search, places))


def _statements(search: Search, places: Places) -> list[_Statement | _Affirmation]:
    """Return the claims of sentences, and those of fields that sentences or fields of another structure may
    contradict.
    """
    prose: list[tuple[str, int]] = []
    plain: list[tuple[PlacedValue, bool]] = []
    for values in places.values():
        for held in values.values():
            value = held.value
            if isinstance(value, tuple):
                texts = [item for item in value if isinstance(item, str) and is_prose(item, held.name)]
                if texts:
                    prose.append(("\n".join(texts), held.owners))
            elif isinstance(value, str) and is_prose(value, held.name):
                prose.append((value, held.owners))
            else:
                plain.append((held, len(values) == held.owners.bit_count() == 1))
    read: dict[int, int] = defaultdict(int)
    all_prose = Prose()
    for text, owners in prose:
        room = _SENTENCES - max(read[owner] for owner in members(owners))
        several = all_prose.add(text[:_CHARACTERS], owners, room)
        search.complete = search.complete and several <= room and len(text) <= _CHARACTERS
        for owner in members(owners):
            read[owner] += several
    made = _claimed(all_prose.clauses)
    spoken = [each for each in plain if each[1] or prose]
    search.complete = search.complete and len(spoken) <= _SPOKEN_FIELDS
    for held, alone in spoken[:_SPOKEN_FIELDS]:
        kind = "alone" if alone else "shared"
        made += [_Statement(claim, held.owners, kind) for claim in _claims_of(search, held)]
    return made


def _claimed(clauses: Iterable[OwnedClause]) -> list[_Statement | _Affirmation]:
    """Return the claims of clauses; an affirmation matters only where something is denied."""
    claimed: list[_Statement | _Affirmation] = []
    denied = False
    plain: list[OwnedClause] = []
    for each in clauses:
        if not is_telling(each.clause):
            plain.append(each)
            continue
        made, affirmed = claims(each.clause)
        for claim in made:
            denied = denied or (claim.sign < 0 and not claim.axis)
            claimed.append(_Statement(claim, each.owners, "sentence"))
        if affirmed is not None:
            claimed.append((affirmed, each.owners))
    for each in plain if denied else ():
        _, affirmed = claims(each.clause)
        if affirmed is not None:
            claimed.append((affirmed, each.owners))
    return claimed


def _claims_of(search: Search, held: PlacedValue) -> list[Claim]:
    """Return the claims of a field: each of its figures or its value, about the subject that its path names."""
    figured = may_say_figures(held.value)
    meant = search.meaning(held) if figured or isinstance(held.value, str) else None
    if meant is None or not (about := search.about(held.path)):
        return []
    if not meant.figures:
        # "Carrier: DHL" is said in a sentence, too: "The carrier is UPS."
        words = meant.words if not (meant.prose or meant.denied) else frozenset[str]()
        on = Subject(frozenset([root for root, _ in about]))
        return [Claim(on, lead="is", value=words, text=short_value(held.value) or "", about=about)] if words else []
    subject, text = Subject(frozenset([root for root, _ in about])), short_value(held.value) or ""
    nouns = frozenset(map(stem, meant.words))
    return [Claim(subject, figure, nouns, text=text, about=about) for figure in meant.figures]


def _compare(search: Search, made: Sequence[_Statement | _Affirmation]) -> None:
    statements = _merged(made)
    agreeing, opposed = _verdicts(search, statements)
    # An owner that agrees with any claim of a component about a subject does not contradict that component.
    owners = [each.owners for each in statements]
    for one, other in agreeing:
        owners[one] |= statements[other].owners
        owners[other] |= statements[one].owners
    surest: dict[int, float] = defaultdict(float)
    disputes: list[tuple[int, int, float]] = []
    for one, other, like in opposed:
        if statements[other].owners & ~owners[one] and statements[one].owners & ~owners[other]:
            disputes.append((one, other, like))
            surest[one], surest[other] = max(surest[one], like), max(surest[other], like)
    kept = [(one, other) for one, other, like in disputes if like >= surest[one] and like >= surest[other]]
    agreed_on = sum(each.owners.bit_count() * (owners[place].bit_count() - 1) for place, each in enumerate(statements))
    search.agreeing += agreed_on
    search.comparisons += agreed_on + 2 * sum(
        statements[one].owners.bit_count() * statements[other].owners.bit_count() for one, other in kept
    )
    for together in _joined(kept, agreeing):
        _dispute(search, [statements[place] for place in together])


def _merged(made: Sequence[_Statement | _Affirmation]) -> list[_Statement]:
    """Return the statements without affirmations that are denied nowhere, which most texts consist of; each
    only once.
    """
    statements = [each for each in made if isinstance(each, _Statement)]
    denied = {each.claim.subject.words for each in statements if each.claim.sign < 0 and not each.claim.axis}
    universal = {
        each.claim.subject.words
        for each in statements
        if each.claim.sign < 0 and each.claim.lead == "no" and not each.claim.axis
    }
    if denied:
        statements = [
            each if isinstance(each, _Statement) else _Statement(each[0].claim(), each[1], "sentence")
            for each in made
            if isinstance(each, _Statement) or each[0].words in denied or any(map(each[0].words.__gt__, universal))
        ]
    merged: dict[Hashable, _Statement] = {}
    for statement in statements:
        claim, kind = statement.claim, statement.kind
        figure = claim.figure
        quantity = figure and (figure.quantity, figure.other)
        same = (
            kind,
            claim.subject,
            quantity,
            claim.nouns,
            claim.lead,
            claim.senses,
            claim.axis,
            claim.sign,
            claim.value,
        )
        known = merged.get(same)
        if known is None:
            merged[same] = statement
            continue
        if (known.claim.text, known.claim.about) <= (claim.text, claim.about):
            claim = known.claim
        merged[same] = _Statement(claim, statement.owners | known.owners, kind)
    return list(merged.values())


def _verdicts(
    search: Search, statements: Sequence[_Statement]
) -> tuple[list[tuple[int, int]], list[tuple[int, int, float]]]:
    """Return which statements agree and which contradict each other, with how certainly they are about one thing."""
    things: dict[frozenset[str], list[int]] = defaultdict(list)
    for place, statement in enumerate(statements):
        things[statement.claim.subject.words].append(place)
    named = list(things)
    having: dict[str, set[int]] = defaultdict(set)
    for number, words in enumerate(named):
        for word in words:
            having[word].add(number)
    agreeing: list[tuple[int, int]] = []
    opposed: list[tuple[int, int, float]] = []
    for words, here in things.items():
        crowds = sorted([having[word] for word in words], key=len)
        if len(crowds[0]) == len(here) == 1:
            continue  # no other component is about it
        for more in _among(search, crowds):
            there = things[named[more]]
            if len(here) * len(there) > _PAIRS:
                search.complete = False
                continue
            for one, other in combinations(here, 2) if there is here else product(here, there):
                verdict, like = _judged(statements[one], statements[other])
                if verdict:
                    agreeing.append((one, other))
                elif verdict is False:
                    opposed.append((one, other, like))
    return agreeing, opposed


def _among(search: Search, crowds: Sequence[set[int]]) -> list[int]:
    """Return the items that are in all these groups, in order; the smallest group comes first."""
    smallest, *others = crowds
    if len(smallest) > _CROWD:
        search.complete = False
        smallest = set(sorted(smallest)[:_CROWD])
    return sorted(smallest.intersection(*others))


def _judged(one: _Statement, other: _Statement) -> tuple[bool | None, float]:
    if one.owners == other.owners and one.owners.bit_count() == 1:
        return None, 0.0
    none = one.claim.lead == "no"
    everywhere = none and not _LIMITED.search(one.claim.text)
    like = likeness(one.claim.subject, other.claim.subject, 1 if none else 2, everywhere=everywhere)
    # Fields at the same place have been compared; of the others, only those with exactly the same name may be the same.
    fields_only = one.kind != "sentence" != other.kind
    if not like or (fields_only and (like < 1 or one.kind == "shared" or other.kind == "shared")):
        return None, 0.0
    return compared(one.claim, other.claim), like


def _joined(opposed: Iterable[tuple[int, int]], agreeing: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the statements about one thing: those that contradict each other, and those that agree with one of
    them.
    """
    of: dict[int, set[int]] = {}
    for one, other in opposed:
        together = of.get(one, {one}) | of.get(other, {other})
        of.update(dict.fromkeys(together, together))
    whole = {id(together): together for together in of.values()}
    more: dict[int, set[int]] = defaultdict(set)
    for pair in agreeing:
        for known, also in (pair, pair[::-1]):
            if known in of and also not in of:
                more[id(of[known])].add(also)
    return [sorted(together | more[key]) for key, together in whole.items()]


def _dispute(search: Search, statements: list[_Statement]) -> None:
    statements = sorted(statements, key=_exactness_of_claim)
    opposed = disputed(sides_of(statements, _agree))
    if len(opposed) < 2:
        return
    first, *others = [each.claim.subject.words for each in statements]
    shared = first.intersection(*others)
    path = " ".join([word for root, word in statements[0].claim.about if root in shared])
    far = max([apart(one[0].claim, other[0].claim) for one, other in combinations(opposed, 2)])
    quotes: dict[int, list[tuple[int, str]]] = {}
    for side in opposed:
        claim = side[0].claim
        # Both figures of one component's "120/80" are one side.
        quotes.setdefault(everybody(side), []).append((claim.figure.start if claim.figure else 0, claim.text[:_QUOTED]))
    values: list[list[tuple[Json, int]]] = [
        [(" and ".join([text for _, text in sorted(texts)]), owners)] for owners, texts in quotes.items()
    ]
    search.disputes.append(Dispute(path, f"“{path}”", far, values))


def _agree(one: _Statement, other: _Statement) -> bool:
    return bool(compared(one.claim, other.claim))


def _exactness_of_claim(statement: _Statement) -> tuple[object, ...]:
    """Return the sort key that puts the most exact first, as for fields; it does not depend on the owners."""
    claim = statement.claim
    quantity = claim.figure.quantity if claim.figure else None
    slack = quantity.slack if isinstance(quantity, Amount) else 0.0
    written = claim.text, claim.about, repr(claim.figure), claim.axis, claim.sign, statement.kind
    return slack, len(claim.subject.words), *written


# More fields than this of one component are ignored: a result of 10 KB has some 500 fields.
_FIELDS = 5_000
# Nobody reads more.
_LISTED = 100

_ORDER: tuple[Severity, ...] = ("high", "medium", "low")
# In a field with a decision, any difference is grave.
_DECISIONS = word_set("result.decisions")


def find(components: Sequence[Component]) -> Findings:
    """Return the contradictions between components, the gravest first, and how far they agree.

    Components are compared if they answer the same question; of others, only the fields that hold the same thing. A
    value that only one of them gives is not a conflict, nor is one that is rounded, written differently, or in
    another unit. The order of the components changes only the order in which they are named.
    """
    search = Search()
    by_question: dict[str, list[int]] = defaultdict(list)
    for owner, component in enumerate(components):
        by_question[component.question].append(owner)
    for owners in by_question.values():
        if len(owners) > 1:
            taken = ResultFields(_FIELDS)
            for owner in owners:
                taken.take(components[owner].result, owner)
            search.complete = search.complete and taken.complete
            _compare_fields(search, taken.places)
            compare_claims(search, taken.places)
    _compare_same_fields(search, components)
    conflicts = [conflict_of(dispute, components) for dispute in search.disputes]
    conflicts.sort(key=lambda each: (_ORDER.index(each.severity), each.path))
    return Findings(
        conflicts=tuple(conflicts[:_LISTED]),
        agreement=search.agreeing / search.comparisons if search.comparisons else 1.0,
        complete=search.complete and len(conflicts) <= _LISTED,
    )


def conflict_of(dispute: Dispute, components: Sequence[Component]) -> Conflict:
    """Return a dispute as users and programs are told of it."""

    def trust(owners: int) -> float:
        # A source that does not state its confidence cannot be preferred to one that does.
        rated = [each for owner in members(owners) if (each := components[owner].confidence) is not None]
        return round(max(rated), 2) if rated else -1.0

    sides: list[tuple[float, tuple[int, ...], Json]] = []
    for one_side in dispute.sides:
        if len(one_side) == 1:
            value, owners = one_side[0]
        else:
            value = min(one_side, key=lambda each: (-trust(each[1]), str(each[0])))[0]
            owners = union([each for _, each in one_side])
        sides.append((trust(owners), members(owners), value))
    sides.sort(key=lambda side: (-side[0], side[1]))
    severity: Severity = "high" if dispute.distance > 0.1 else "medium" if dispute.distance > 0.01 else "low"
    preferred = sides[0][2] if sides[0][0] > sides[1][0] else None
    question = None
    if preferred is None and severity != "low":
        values = ", or ".join(short_value(value) or "…" for _, _, value in sides)
        question = f"The sources disagree on {dispute.about}: {values}. Which one should count?"
    return Conflict(
        path=dispute.path,
        severity=severity,
        values=tuple(
            [ReportedValue(value, tuple([components[each].name for each in owners])) for _, owners, value in sides]
        ),
        preferred=preferred,
        question=question,
    )


# ── fields ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _OwnedMeaning(Struct, frozen=True, gc=False):
    """A value of a field, its meaning and its owners."""

    held: PlacedValue
    owners: int
    meaning: Meaning


def _compare_fields(search: Search, places: Places) -> None:
    for values in places.values():
        if len(values) == 1:
            (held,) = values.values()
            tally(search, (held.owners,))
            continue
        meant = [_OwnedMeaning(held, held.owners, own) for held in values.values() if (own := search.meaning(held))]
        sides = sides_of(sorted(meant, key=_exactness), lambda one, other: agreed(one.meaning, other.meaning))
        tally(search, [everybody(side) for side in sides])
        sides = disputed(sides)
        if len(sides) > 1:
            path = min(held.path for held in values.values())
            decision = not _DECISIONS.isdisjoint(meant[0].held.name)
            far = max(difference(one[0].meaning, other[0].meaning) for one, other in combinations(sides, 2))
            disputed_values = [[(each.held.value, each.owners) for each in side] for side in sides]
            search.disputes.append(Dispute(path, in_words(path), 1.0 if decision else far, disputed_values))


def _compare_same_fields(search: Search, components: Sequence[Component]) -> None:
    """Compare the fields that hold the same thing, unless they have been compared because they have the same place."""
    places: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for component in components:
        for path, thing in component.same_as:
            places[thing].add((component.question, path))
    taken = ResultFields(_FIELDS)
    for owner, component in enumerate(components):
        for path, thing in component.same_as:
            if len(places[thing]) > 1:
                taken.take_field(thing, path, field_at(component.result, path), owner)
    search.complete = search.complete and taken.complete
    _compare_fields(search, taken.places)


def _exactness(meant: _OwnedMeaning) -> tuple[float, str]:
    """Return the sort key that puts the most exact value first: rounded values agree with it."""
    numbers = meant.meaning.figures
    slack = numbers[0].quantity.slack if numbers and isinstance(numbers[0].quantity, Amount) else 0.0
    return slack, repr(meant.held.value)


class Side(NamedTuple):
    """One of the conflicting values, and the names of its sources as users read them."""

    value: str
    sources: tuple[str, ...] = ()


_WORD = re.compile(r"[^\W\d_]+")
# Words that many sources have in their names.
_COMMON = frozenset({"the", "a", "an", "your", "my", "our", "of", "in", "on", "from", "what", "says", "say"})


def settled(reply: str, sides: Sequence[Side]) -> int | None:
    """Return the index of the side that a reply means: by its value, its source, or its position.

    None if it may mean several, or means none of them.
    """
    for means in (_by_value, _by_source):
        meant = _longest([side for side in sides if means(reply, side)])
        if meant:
            return sides.index(meant[0]) if len(meant) == 1 else None
    place = place_named(reply)
    return place - 1 if 0 < place <= len(sides) else None


def _longest(sides: Sequence[Side]) -> list[Side]:
    """Return the sides whose values are not part of another's: "not approved" contains "approved"."""
    values = [side.value.casefold() for side in sides]
    return [
        side
        for side, value in zip(sides, values, strict=True)
        if not any(value in other for other in values if other != value)
    ]


def _by_value(reply: str, side: Side) -> bool:
    value = " ".join(side.value.split())
    if re.search(rf"(?<!\w){re.escape(value)}(?!\w)", " ".join(reply.split()), re.IGNORECASE):
        return True
    value_figures = figures(side.value)
    return any(figures_agree(one, other) for one in figures(reply) for other in value_figures)


def _by_source(reply: str, side: Side) -> bool:
    words = set(_WORD.findall(reply.casefold()))
    names = (set(_WORD.findall(source.casefold())) - _COMMON for source in side.sources)
    return any(name and name <= words for name in names)
