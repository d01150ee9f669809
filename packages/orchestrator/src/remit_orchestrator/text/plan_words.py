"""A plan in plain words: what will be done, what was done because of a condition, and what was not done."""

from collections.abc import Mapping, Sequence

from remit.words.components import capital
from remit_orchestrator.text.conditions import Ruling
from remit_orchestrator.text.intent import Label, PlannedPart, words_for
from remit_orchestrator.text.request_part import Condition
from remit_orchestrator.text.vocabulary import DESCRIPTION_VERBS, REQUEST_VERBS

_CANNOT = "I did not do this, because I cannot do it: “{text}”."
_BUILDS_ON = "I did not do this, because it builds on something that I cannot do: “{text}”."
_LEFT_OUT = "I left this out, as you said: “{text}”."
_GIVEN_UP = "I did not go on with “{text}”, because you asked for something else."


def in_order(parts: Sequence[PlannedPart]) -> list[int]:
    """Return the places of the parts in the order in which they are done; those that wait for each other as said."""
    found: list[int] = []
    left = list(range(len(parts)))
    while left:
        place = next((at for at in left if not set(parts[at].after) & set(left)), left[0])
        left.remove(place)
        found.append(place)
    return found


def spoken_plan(parts: Sequence[PlannedPart], labels: Mapping[str, Label]) -> str:
    """Return a plan as one sentence without a full stop: "Look up a result, then, if it is positive, book a visit"."""
    done = [parts[place] for place in in_order(parts) if parts[place].intent is not None]
    names = [_named(each, labels) for each in done]
    said: list[str] = []
    for place, (each, name) in enumerate(zip(done, names, strict=True)):
        # Two parts for one capability are told apart by the user's own words.
        words = name if names.count(name) < 2 else f"{name} (“{each.text}”)".strip()
        condition = each.condition
        if condition is not None and " " not in condition.said:
            said.append(f"{condition.said[:1].lower()}{condition.said[1:]} {words}")
        elif condition is not None:
            said.append(f"{'then, ' if place else ''}{condition.said[:1].lower()}{condition.said[1:]}, {words}")
        elif place and each.after:
            said.append(f"then {words}")
        else:
            said.append(words)
    last = said[-1] if said else ""
    plain = len(said) > 1 and last == names[-1]
    return capital(f"{', '.join(said[:-1])} and {last}" if plain else ", ".join(said))


def understood_as(said: str) -> str:
    """Return the sentence that shows a plan before it is carried out, and a space; empty if nothing can be done."""
    return f"I understood: {said}. " if said else ""


def _named(part: PlannedPart, labels: Mapping[str, Label]) -> str:
    code = "" if part.intent is None else part.intent.code
    words = (words_for(code, labels) if code in labels else "") or f"“{part.text}”"
    first = words.split(" ", 1)[0]
    # A German noun keeps its capital letter.
    return words[:1].lower() + words[1:] if first.casefold() in DESCRIPTION_VERBS | REQUEST_VERBS else words


def ruled(part: PlannedPart, ruling: Ruling, *, done: bool, by_user: bool = False) -> str:
    """Return why a part was done or not done: its condition, and what in the result decides it."""
    condition = part.condition
    assert condition is not None
    what = f"so I went on with “{part.text}”." if done else f"so I did not do this: “{part.text}”."
    if by_user:
        return f"As you said, this is {'' if ruling.holds else 'not '}so: “{condition.clause}”, {what}"
    return f"You said {_quoted(condition)}: {ruling.because}, {what}"


def _quoted(condition: Condition) -> str:
    if condition.clause in condition.said or not condition.said:
        return f"“{condition.said or condition.clause}”"
    return f"“{condition.said}” (about “{condition.clause}”)"


def asking(parts: Sequence[PlannedPart], clause: str, because: str) -> str:
    """Return the question whether a clause holds, with what follows from the answer."""
    those = [each for each in parts if each.condition is not None and each.condition.clause == clause]
    yes = [f"“{each.text}”" for each in those if each.condition is not None and each.condition.holds]
    no = [f"“{each.text}”" for each in those if each.condition is not None and not each.condition.holds]
    why = f" The result says “{because}”." if because else ""
    then = f"If so, I go on with {' and '.join(yes)}" if yes else "If so, I leave it out"
    otherwise = f"; if not, with {' and '.join(no)}." if yes and no else "."
    if no and not yes:
        then = f"If not, I go on with {' and '.join(no)}"
    return f"I cannot tell whether this is so: “{clause}”.{why} Is it? {then}{otherwise} Please say yes or no."


def not_done(part: PlannedPart, *, builds_on: bool = False) -> str:
    """Return that a part is not served by anything."""
    return (_BUILDS_ON if builds_on else _CANNOT).replace("{text}", part.text)


def left_out(part: PlannedPart) -> str:
    """Return that the user did not want a part after all."""
    return _LEFT_OUT.replace("{text}", part.text)


def given_up(part: PlannedPart) -> str:
    """Return that a part was waiting for a reply that did not come."""
    return _GIVEN_UP.replace("{text}", part.text)
