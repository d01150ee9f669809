"""The search for contradictions: field by field, and claim by claim."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import combinations, islice, permutations, product
from typing import Literal, NamedTuple, TypeVar

from remit.policy.components import Component, Conflict, Findings, Said, Severity, in_words, said_shortly, words_of
from remit.policy.conflicts.claims import (
    Claim,
    Clause,
    Subject,
    apart,
    claims,
    clauses,
    compared,
    content,
    is_telling,
    likeness,
)
from remit.policy.conflicts.english import stem
from remit.policy.conflicts.fields import Field, Meaning, agreed, difference, fields, is_prose, meaning
from remit.policy.conflicts.quantities import Amount
from remit.protocol.envelope import Json

# More than this of one component is not looked at: a result of 10 KB has some 500 fields or 150 sentences.
_FIELDS = 5_000
_SENTENCES = 1_000
_CHARACTERS = 100_000
# So many fields of all are also compared with what is said in sentences, or in fields of another shape.
_SPOKEN_FIELDS = 3_000
# A word of more things than this tells nothing apart, and a thing of which more is said than this is no one thing.
_CROWD = 200
_PAIRS = 2_000
# Nobody reads more.
_LISTED = 100
_QUOTED = 160

_ORDER: tuple[Severity, ...] = ("high", "medium", "low")
# Where a decision stands, any difference is grave.
_DECISIONS = words_of("status decision verdict recommendation outcome approval")
# Names of fields that only hold what is said.
_WRAPPING = words_of("result results data output outputs value values response answer the of in at is time date")


class _Held(NamedTuple):
    """A value of a field, and the components that have it."""

    field: Field
    owners: set[int]


class _Meant(NamedTuple):
    """What that value says."""

    field: Field
    owners: set[int]
    meaning: Meaning


class _Statement(NamedTuple):
    """Something claimed, and the components that claim it."""

    claim: Claim
    owners: set[int]
    kind: Literal["sentence", "alone", "shared"]
    """In a sentence, in a field that no two have, or in one that several have."""


class _Dispute(NamedTuple):
    """Something on which there are several sides: what each says, and who is on it."""

    path: str
    about: str
    distance: float
    sides: list[list[tuple[Json, set[int]]]]


class _Search:
    """What has been found so far."""

    def __init__(self) -> None:
        self.disputes: list[_Dispute] = []
        self.agreeing = 0
        self.comparisons = 0
        self.complete = True


Places = dict[str, dict[Hashable, _Held]]
S = TypeVar("S", _Meant, _Statement)


def find(components: Sequence[Component]) -> Findings:
    """Return what components contradict each other in, the gravest first, and how far they agree.

    What only one of them says is no conflict, and neither is what is rounded, or written differently, or in another
    unit. The order of the components changes nothing but the order in which they are named.
    """
    search = _Search()
    places: Places = {}
    for owner, component in enumerate(components):
        taken = list(fields(component.result, _FIELDS))
        search.complete = search.complete and len(taken) < _FIELDS
        for field in taken:
            value = field.value
            # 1 and true are equal, and not the same.
            same = (field.name, type(value), repr(value) if isinstance(value, tuple) else value)
            held = places.setdefault(field.key, {})
            if (known := held.get(same)) is None:
                held[same] = _Held(field, {owner})
            else:
                known.owners.add(owner)
                if field.path < known.field.path:
                    held[same] = _Held(field, known.owners)
    _compare_fields(search, places)
    _compare_claims(search, _statements(search, places))
    conflicts = [_conflict(dispute, components) for dispute in search.disputes]
    conflicts.sort(key=lambda each: (_ORDER.index(each.severity), each.path))
    return Findings(
        conflicts=tuple(conflicts[:_LISTED]),
        agreement=search.agreeing / search.comparisons if search.comparisons else 1.0,
        complete=search.complete and len(conflicts) <= _LISTED,
    )


def _conflict(dispute: _Dispute, components: Sequence[Component]) -> Conflict:
    def trust(owners: Iterable[int]) -> float:
        # Who does not say how sure it is cannot be preferred to one who does.
        rated = [confidence for owner in owners if (confidence := components[owner].confidence) is not None]
        return round(max(rated, default=-1.0), 2)

    sides: list[tuple[float, list[int], Json]] = []
    for said in dispute.sides:
        owners = sorted(set[int]().union(*(each for _, each in said)))
        value = min(said, key=lambda each: (-trust(each[1]), str(each[0])))[0]
        sides.append((trust(owners), owners, value))
    sides.sort(key=lambda side: (-side[0], side[1]))
    severity: Severity = "high" if dispute.distance > 0.1 else "medium" if dispute.distance > 0.01 else "low"
    preferred = sides[0][2] if sides[0][0] > sides[1][0] else None
    question = None
    if preferred is None and severity != "low":
        values = ", or ".join(said_shortly(value) or "…" for _, _, value in sides)
        question = f"The sources disagree on {dispute.about}: {values}. Which one should count?"
    return Conflict(
        path=dispute.path,
        severity=severity,
        values=tuple(Said(value, tuple(components[owner].name for owner in owners)) for _, owners, value in sides),
        preferred=preferred,
        question=question,
    )


# ── fields ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _compare_fields(search: _Search, places: Places) -> None:
    for held in places.values():
        if len(held) == 1:
            _count(search, [held_by.owners for held_by in held.values()])
            continue
        meant = [_Meant(*each, said) for each in held.values() if (said := meaning(each.field.value, each.field.name))]
        sides = _sides(sorted(meant, key=_exactness), lambda one, other: agreed(one.meaning, other.meaning))
        _count(search, [set[int]().union(*(each.owners for each in side)) for side in sides])
        sides = _disputed(sides)
        if len(sides) > 1:
            path = min(each.field.path for each in held.values())
            decision = not _DECISIONS.isdisjoint(meant[0].field.name)
            far = max(difference(one[0].meaning, other[0].meaning) for one, other in combinations(sides, 2))
            said = [[(each.field.value, each.owners) for each in side] for side in sides]
            search.disputes.append(_Dispute(path, in_words(path), 1.0 if decision else far, said))


def _exactness(meant: _Meant) -> tuple[float, str]:
    """Put the most exact first: what is rounded agrees with it."""
    found = meant.meaning.figures
    slack = found[0].quantity.slack if found and isinstance(found[0].quantity, Amount) else 0.0
    return slack, repr(meant.field.value)


def _sides(said: Iterable[S], verdict: Callable[[S, S], bool | None]) -> list[list[S]]:
    """Return who agrees with whom; whoever cannot be compared with anybody is left out."""
    sides: list[list[S]] = []
    for each in said:
        verdicts = [verdict(each, side[0]) for side in sides]
        if True in verdicts:
            sides[verdicts.index(True)].append(each)
        elif False in verdicts or not sides:
            sides.append([each])
    return sides


def _disputed(sides: list[list[S]]) -> list[list[S]]:
    """Return the sides that another one is opposed to: each has a component that is not on the other."""
    owners = [set[int]().union(*(each.owners for each in side)) for side in sides]
    return [
        side for side, here in zip(sides, owners, strict=True) if any(here - other and other - here for other in owners)
    ]


def _count(search: _Search, sides: list[set[int]]) -> None:
    """Note how many comparisons of two components there were, and how many agreed."""
    everybody = len(set[int]().union(*sides))
    search.comparisons += everybody * (everybody - 1)
    if sum(map(len, sides)) == everybody:
        search.agreeing += sum(len(side) * (len(side) - 1) for side in sides)
    else:
        # Somebody is on two sides, and agrees with both.
        search.agreeing += len({pair for side in sides for pair in permutations(side, 2)})


# ── claims ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _statements(search: _Search, places: Places) -> Iterator[_Statement]:
    """Give what is claimed in sentences, and in the fields that these, or fields of another shape, may contradict."""
    prose: list[tuple[str, set[int]]] = []
    plain: list[tuple[_Held, bool]] = []
    for held in places.values():
        alone = sum(len(each.owners) for each in held.values()) == 1
        for each in held.values():
            value = each.field.value
            if isinstance(value, tuple):
                texts = [item for item in value if isinstance(item, str) and is_prose(item, each.field.name)]
                if texts:
                    prose.append(("\n".join(texts), each.owners))
            elif isinstance(value, str) and is_prose(value, each.field.name):
                prose.append((value, each.owners))
            else:
                plain.append((each, alone))
    read: dict[int, int] = defaultdict(int)
    said: dict[Clause, set[int]] = {}
    for text, owners in prose:
        room = _SENTENCES - max(read[owner] for owner in owners)
        several = list(islice(clauses(text[:_CHARACTERS]), room + 1))
        search.complete = search.complete and len(several) <= room and len(text) <= _CHARACTERS
        for clause in several[:room]:
            said.setdefault(clause, set()).update(owners)
        for owner in owners:
            read[owner] += len(several)
    yield from _claimed(said)
    spoken = [each for each in plain if each[1] or prose]
    search.complete = search.complete and len(spoken) <= _SPOKEN_FIELDS
    for (field, owners), alone in spoken[:_SPOKEN_FIELDS]:
        yield from (_Statement(claim, owners, "alone" if alone else "shared") for claim in _claims_of(field))


def _claimed(said: dict[Clause, set[int]]) -> Iterator[_Statement]:
    """Give what clauses claim; what only affirms matters where something is denied."""
    denied = False
    plain: list[Clause] = []
    for clause, owners in said.items():
        if is_telling(clause):
            made = claims(clause)
            denied = denied or any(claim.sign < 0 and not claim.axis for claim in made)
            yield from (_Statement(claim, owners, "sentence") for claim in made)
        else:
            plain.append(clause)
    for clause in plain if denied else ():
        yield from (_Statement(claim, said[clause], "sentence") for claim in claims(clause))


def _claims_of(field: Field) -> Iterator[Claim]:
    """Give what a field claims: each of its figures, of what its path names."""
    about = tuple(dict(content(in_words(field.path), _WRAPPING)).items())
    meant = meaning(field.value, field.name) if about else None
    if meant is not None and meant.figures:
        subject, text = Subject(frozenset(root for root, _ in about)), said_shortly(field.value) or ""
        nouns = frozenset(map(stem, meant.words))
        yield from (Claim(subject, figure, nouns, text=text, about=about) for figure in meant.figures)


def _compare_claims(search: _Search, made: Iterable[_Statement]) -> None:
    statements = _merged(made)
    agreeing, opposed = _verdicts(search, statements)
    # Whoever agrees with anything that a component says of it does not contradict that component.
    heard = [set(each.owners) for each in statements]
    for one, other in agreeing:
        heard[one] |= statements[other].owners
        heard[other] |= statements[one].owners
    surest: dict[int, float] = defaultdict(float)
    disputes: list[tuple[int, int, float]] = []
    for one, other, like in opposed:
        if statements[other].owners - heard[one] and statements[one].owners - heard[other]:
            disputes.append((one, other, like))
            surest[one], surest[other] = max(surest[one], like), max(surest[other], like)
    kept = [(one, other) for one, other, like in disputes if like >= surest[one] and like >= surest[other]]
    search.agreeing += sum(len(each.owners) * (len(heard[place]) - 1) for place, each in enumerate(statements))
    search.comparisons += sum(len(each.owners) * (len(heard[place]) - 1) for place, each in enumerate(statements))
    search.comparisons += 2 * sum(len(statements[one].owners) * len(statements[other].owners) for one, other in kept)
    for together in _joined(kept, agreeing):
        _dispute(search, [statements[place] for place in together])


def _merged(made: Iterable[_Statement]) -> list[_Statement]:
    """Return statements without what is affirmed and nowhere denied, most of any text; and each only once."""
    statements = list(made)
    denied = {claim.subject.words for claim, _, _ in statements if claim.sign < 0 and not claim.axis}
    merged: dict[Hashable, _Statement] = {}
    for claim, owners, kind in statements:
        if claim.figure or claim.axis or claim.subject.words in denied:
            quantity = claim.figure and (claim.figure.quantity, claim.figure.other)
            same = (kind, claim.subject, quantity, claim.nouns, claim.lead, claim.senses, claim.axis, claim.sign)
            known = merged.get(same)
            if known is not None and (known.claim.text, known.claim.about) <= (claim.text, claim.about):
                claim = known.claim
            merged[same] = _Statement(claim, owners | known.owners if known else owners, kind)
    return list(merged.values())


def _verdicts(
    search: _Search, statements: Sequence[_Statement]
) -> tuple[list[tuple[int, int]], list[tuple[int, int, float]]]:
    """Return which statements agree, and which contradict each other, with how surely they are about one thing."""
    things: dict[frozenset[str], list[int]] = defaultdict(list)
    for place, statement in enumerate(statements):
        things[statement.claim.subject.words].append(place)
    having: dict[str, list[frozenset[str]]] = defaultdict(list)
    for words in things:
        for word in words:
            having[word].append(words)
    agreeing: list[tuple[int, int]] = []
    opposed: list[tuple[int, int, float]] = []
    for words, here in things.items():
        # Whatever has all these words has the rarest of them.
        crowd = min((having[word] for word in words), key=len)
        search.complete = search.complete and len(crowd) <= _CROWD
        for more in crowd[:_CROWD]:
            if not words <= more:
                continue
            pairs = combinations(here, 2) if more == words else product(here, things[more])
            if len(here) * len(things[more]) > _PAIRS:
                search.complete = False
                continue
            for one, other in pairs:
                verdict, like = _judged(statements[one], statements[other])
                if verdict:
                    agreeing.append((one, other))
                elif verdict is False:
                    opposed.append((one, other, like))
    return agreeing, opposed


def _judged(one: _Statement, other: _Statement) -> tuple[bool | None, float]:
    if one.owners == other.owners and len(one.owners) == 1:
        return None, 0.0
    like = likeness(one.claim.subject, other.claim.subject)
    # Fields at one place have been compared; of others only those that are called just the same may be one.
    fields_only = one.kind != "sentence" != other.kind
    if not like or (fields_only and (like < 1 or one.kind == "shared" or other.kind == "shared")):
        return None, 0.0
    return compared(one.claim, other.claim), like


def _joined(opposed: Iterable[tuple[int, int]], agreeing: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the statements that are about one thing: those that are opposed, and those that agree with one of them."""
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


def _dispute(search: _Search, statements: list[_Statement]) -> None:
    statements.sort(key=_place)
    sides = _disputed(_sides(statements, lambda one, other: bool(compared(one.claim, other.claim))))
    if len(sides) < 2:
        return
    shared = frozenset[str].intersection(*(each.claim.subject.words for each in statements))
    path = " ".join(word for root, word in statements[0].claim.about if root in shared)
    far = max(apart(one[0].claim, other[0].claim) for one, other in combinations(sides, 2))
    said: dict[frozenset[int], list[tuple[int, str]]] = defaultdict(list)
    for side in sides:
        # Of one component's "120/80" both are one side.
        owners = frozenset[int]().union(*(each.owners for each in side))
        said[owners].append((side[0].claim.figure.start if side[0].claim.figure else 0, side[0].claim.text[:_QUOTED]))
    values: list[list[tuple[Json, set[int]]]] = [
        [(" and ".join(text for _, text in sorted(texts)), set(owners))] for owners, texts in said.items()
    ]
    search.disputes.append(_Dispute(path, f"“{path}”", far, values))


def _place(statement: _Statement) -> tuple[object, ...]:
    """Put the most exact first, as with fields; the rest makes the order the same, whoever said what."""
    claim = statement.claim
    quantity = claim.figure.quantity if claim.figure else None
    slack = quantity.slack if isinstance(quantity, Amount) else 0.0
    return (
        slack,
        len(claim.subject.words),
        claim.text,
        claim.about,
        repr(claim.figure),
        claim.axis,
        claim.sign,
        statement.kind,
    )
