"""Compares the claims of all components, from sentences and from fields, and records which contradict each other.

Each claim is held once, with its owners: the components that make it, one bit for each. Two claims are compared if all
words of one subject are among those of the other. A component that agrees with any claim of another about a subject
does not contradict it. Claims that contradict each other, and those that agree with one of them, are one dispute.
"""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations, product
from typing import Literal

from msgspec import Struct

from remit.protocol.envelope import Json
from remit.words.components import said_shortly
from remit_orchestrator.text.clauses import OwnedClause, Prose
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
from remit_orchestrator.text.conflicts.disputes import Dispute, Search, disputed, everybody, members, sides_of
from remit_orchestrator.text.conflicts.fields import is_prose, may_say_figures
from remit_orchestrator.text.conflicts.result_fields import PlacedValue, Places
from remit_orchestrator.text.quantities import Amount
from remit_orchestrator.text.vocabulary import stem

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
    heard = Prose()
    for text, owners in prose:
        room = _SENTENCES - max(read[owner] for owner in members(owners))
        several = heard.hear(text[:_CHARACTERS], owners, room)
        search.complete = search.complete and several <= room and len(text) <= _CHARACTERS
        for owner in members(owners):
            read[owner] += several
    made = _claimed(heard.said)
    spoken = [each for each in plain if each[1] or prose]
    search.complete = search.complete and len(spoken) <= _SPOKEN_FIELDS
    for held, alone in spoken[:_SPOKEN_FIELDS]:
        kind = "alone" if alone else "shared"
        made += [_Statement(claim, held.owners, kind) for claim in _claims_of(search, held)]
    return made


def _claimed(said: Iterable[OwnedClause]) -> list[_Statement | _Affirmation]:
    """Return the claims of clauses; an affirmation matters only where something is denied."""
    claimed: list[_Statement | _Affirmation] = []
    denied = False
    plain: list[OwnedClause] = []
    for each in said:
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
        said = meant.words if not (meant.prose or meant.denied) else frozenset[str]()
        on = Subject(frozenset([root for root, _ in about]))
        return [Claim(on, lead="is", value=said, text=said_shortly(held.value) or "", about=about)] if said else []
    subject, text = Subject(frozenset([root for root, _ in about])), said_shortly(held.value) or ""
    nouns = frozenset(map(stem, meant.words))
    return [Claim(subject, figure, nouns, text=text, about=about) for figure in meant.figures]


def _compare(search: Search, made: Sequence[_Statement | _Affirmation]) -> None:
    statements = _merged(made)
    agreeing, opposed = _verdicts(search, statements)
    # An owner that agrees with any claim of a component about a subject does not contradict that component.
    heard = [each.owners for each in statements]
    for one, other in agreeing:
        heard[one] |= statements[other].owners
        heard[other] |= statements[one].owners
    surest: dict[int, float] = defaultdict(float)
    disputes: list[tuple[int, int, float]] = []
    for one, other, like in opposed:
        if statements[other].owners & ~heard[one] and statements[one].owners & ~heard[other]:
            disputes.append((one, other, like))
            surest[one], surest[other] = max(surest[one], like), max(surest[other], like)
    kept = [(one, other) for one, other, like in disputes if like >= surest[one] and like >= surest[other]]
    agreed_on = sum(each.owners.bit_count() * (heard[place].bit_count() - 1) for place, each in enumerate(statements))
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
    statements = _in_order(statements)
    opposed = disputed(sides_of(statements, _agree))
    if len(opposed) < 2:
        return
    first, *others = [each.claim.subject.words for each in statements]
    shared = first.intersection(*others)
    path = " ".join([word for root, word in statements[0].claim.about if root in shared])
    far = max([apart(one[0].claim, other[0].claim) for one, other in combinations(opposed, 2)])
    said: dict[int, list[tuple[int, str]]] = {}
    for side in opposed:
        claim = side[0].claim
        # Both figures of one component's "120/80" are one side.
        said.setdefault(everybody(side), []).append((claim.figure.start if claim.figure else 0, claim.text[:_QUOTED]))
    values: list[list[tuple[Json, int]]] = [
        [(" and ".join([text for _, text in sorted(texts)]), owners)] for owners, texts in said.items()
    ]
    search.disputes.append(Dispute(path, f"“{path}”", far, values))


def _in_order(statements: list[_Statement]) -> list[_Statement]:
    """Return the statements with the most exact first, as for fields; the order does not depend on their owners."""
    places = {_rough_place(each): each for each in statements}
    if len(places) < len(statements):
        return sorted(statements, key=_place)
    return [places[each] for each in sorted(places)]


def _agree(one: _Statement, other: _Statement) -> bool:
    return bool(compared(one.claim, other.claim))


def _rough_place(statement: _Statement) -> tuple[float, int, str, tuple[tuple[str, str], ...]]:
    claim = statement.claim
    quantity = claim.figure.quantity if claim.figure else None
    slack = quantity.slack if isinstance(quantity, Amount) else 0.0
    return slack, len(claim.subject.words), claim.text, claim.about


def _place(statement: _Statement) -> tuple[object, ...]:
    claim = statement.claim
    return (*_rough_place(statement), repr(claim.figure), claim.axis, claim.sign, statement.kind)
