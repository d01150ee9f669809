"""Knows which words exclude each other when they are said of one thing: `thick` and `thin`, `blue` and `red`."""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache

from remit.words.components import words_of
from remit_orchestrator.text.vocabulary import AXES, GERMAN_WEEKDAYS, german_stem
from remit_orchestrator.text.word_forms import IRREGULAR_FORMS
from remit_orchestrator.text.word_relations import STATES, is_ambiguous

# States of people and things, beyond the `STATES` of `word_relations`: one line for each, with its two sides.
_MORE_STATES = """
    manual manuell | automatic automatisch
    solid fest | liquid flüssig
    frozen gefroren | thawed melted aufgetaut geschmolzen
    awake wach | asleep schläft
    horizontal waagerecht | vertical senkrecht
    rural ländlich | urban städtisch
    acidic sour sauer | alkaline basisch
    ripe reif | unripe unreif
    smooth glatt | rough bumpy uneven rau holprig
    honest ehrlich | dishonest lying unehrlich
    flexible biegsam | rigid stiff starr
    unanimous einstimmig | divided gespalten
    loose wobbly locker wackelig | firm tight festsitzend
    attached befestigt montiert | detached removed abmontiert entfernt
    tense angespannt | relaxed calm entspannt
    polite friendly freundlich höflich | rude hostile unfriendly impolite unfreundlich unhöflich
    ancient antique uralt | modern contemporary recent modern
    natural natürlich | artificial synthetic künstlich synthetisch
    straight gerade | curved crooked bent krumm gebogen
    flat level eben | steep hilly sloping steil hügelig
    plain schlicht | ornate decorated verziert
    rare scarce selten knapp | common abundant plentiful frequent häufig reichlich
    armed bewaffnet | unarmed unbewaffnet
    pregnant trächtig schwanger | barren unfruchtbar
    fertile fruchtbar | infertile sterile unfruchtbar
    tame zahm | wild feral wild
    edible essbar genießbar | poisonous toxic inedible giftig ungenießbar
    willing bereit | reluctant unwilling unwillig
    hopeful zuversichtlich | hopeless aussichtslos
    satisfied happy pleased zufrieden glücklich | dissatisfied unhappy disappointed unzufrieden enttäuscht
    praised gelobt | criticised criticized kritisiert
    promoted befördert | demoted degradiert
    hired employed eingestellt angestellt | fired dismissed unemployed entlassen
    arrested detained verhaftet festgenommen | released freed freigelassen
    convicted verurteilt | acquitted freigesprochen
    rescued saved gerettet | drowned killed ertrunken getötet
    injured hurt wounded verletzt | unhurt uninjured unharmed unscathed unverletzt
    infected infiziert | uninfected cured cleared geheilt
    vaccinated geimpft | unvaccinated ungeimpft
    signed unterschrieben unterzeichnet | unsigned ununterschrieben
    published released veröffentlicht | unpublished withheld unveröffentlicht
    extended prolonged verlängert | shortened curtailed verkürzt
    doubled verdoppelt | halved halbiert
    upgraded aufgewertet | downgraded herabgestuft
    profitable rentabel | unprofitable lossmaking unrentabel
    inflated aufgepumpt | deflated punctured platt
    heated beheizt | unheated unbeheizt
    furnished möbliert | unfurnished unmöbliert
    inhabited bewohnt | uninhabited deserted abandoned unbewohnt verlassen
    cultivated bewirtschaftet | fallow neglected brachliegend
    navigable schiffbar | unnavigable
    worn abgenutzt verschlissen | unworn neuwertig
    seated sitzend | standing stehend
    salted salzig gesalzen | unsalted ungesalzen
    spicy hot scharf | mild bland mild
    tender zart | tough chewy zäh
    burnt burned verbrannt | undercooked raw roh
    watertight waterproof dicht wasserdicht | leaky leaking undicht
    rusty rostig | stainless rostfrei
    blunt stumpf | pointed spitz
    coarse grob | fine fein
    dense dicht | sparse spärlich
    opaque undurchsichtig | see-through durchsichtig
    electric elektrisch | petrol-driven diesel-powered
    controlled beherrscht | uncontrolled unbeherrscht
    decided entschieden | undecided open unentschieden
    proven proved bewiesen | disproved refuted widerlegt
    legible lesbar | illegible unreadable unleserlich
    audible hörbar | inaudible unhörbar
    kept retained preserved behalten aufbewahrt | deleted erased destroyed discarded gelöscht vernichtet entsorgt
    glossy shiny glänzend | matt matte dull
    blooming blühend | wilted withered faded verwelkt verblüht
    reversible umkehrbar | irreversible unumkehrbar
    refundable erstattungsfähig | nonrefundable non-refundable
    deductible absetzbar | nondeductible
    exempt befreit | liable taxable steuerpflichtig
"""
# What is advised: whoever advises one side advises against the other.
_ACTIONS = """
    stay remain bleiben | leave evacuate vacate verlassen räumen
    keep retain preserve behalten erhalten | discard scrap remove drop demolish sell wegwerfen entfernen abreißen
    continue proceed fortsetzen weitermachen | stop halt pause postpone wait delay abandon cancel warten abbrechen
    start begin launch beginnen anfangen | end cease finish aufhören beenden
    raise increase expand extend erhöhen verlängern | lower reduce cut shorten decrease senken kürzen
    add include hinzufügen | omit exclude weglassen
    accept approve approval acceptance annehmen zustimmen | reject rejection decline refuse refusal ablehnen
    repair fix mend reparieren | replace ersetzen austauschen
    hire employ | fire dismiss entlassen
    lock verriegeln | unlock entriegeln
    tighten anziehen | loosen lockern
    fill füllen | drain empty leeren
    heat erhitzen | cool chill kühlen
"""
WEEKDAY = "weekday"
# Of each kind a thing has one at a time. Weekdays in English are read as dates.
_KINDS = {
    "colour": """
        red blue green yellow orange purple violet pink brown black white grey gray beige turquoise silver golden
        rot blau grün gelb lila violett rosa braun schwarz weiß grau
    """,
    "sex": "male female männlich weiblich",
    "shape": "round square triangular oval rectangular rund eckig quadratisch oval",
}
_KIND_OF = {
    **{word: kind for kind, words in _KINDS.items() for word in words_of(words)},
    **dict.fromkeys(GERMAN_WEEKDAYS, WEEKDAY),
}
# Endings that make opposites of one stem: harmful and harmless, fettreich and fettarm.
_ENDINGS = (
    (re.compile(r"(.{3,})(?:ful|voll)"), re.compile(r"(.{3,})(?:less|los)")),
    (re.compile(r"(.{3,})reich(?:er)?"), re.compile(r"(.{3,})(?:arm|ärmer|ärm)")),
    (re.compile(r"(.{3,})st[aä]rk(?:er)?"), re.compile(r"(.{3,})schw[aä]ch(?:er)?")),
)


def kind_of(word: str) -> str:
    """Return the kind of which a thing has only one, if a word is of one: `blue` is a colour; else an empty text."""
    return _KIND_OF.get(word, "")


@lru_cache(maxsize=4096)
def state_of(word: str) -> tuple[str, int] | None:
    """Return the axis and side of a word for a state, `("deep", -1)` for `shallow`; None if it is no such word.

    Two words on two sides of one axis cannot both be said of one thing. Some words of `AXES` stand on a second axis,
    and for them it is that one: what is blocked is neither approved nor open.
    """
    known = AXES.get(word)
    found = _state_of(word)
    return None if known and found and found[0] == known[0] else found


def _state_of(word: str) -> tuple[str, int] | None:
    for positive, negative in _ENDINGS:
        for pattern, sign in ((positive, 1), (negative, -1)):
            if found := pattern.fullmatch(word):
                return f"-{found[1]}", sign
    return _states().get(word)


def action_of(word: str) -> tuple[str, int] | None:
    """Return the axis and side of an action that may be advised: whoever advises to stay advises against leaving."""
    return _actions().get(word)


def _named(sides: tuple[tuple[str, ...], tuple[str, ...]]) -> tuple[str, int]:
    """Return the name of the axis for two sides, and which side is its positive one.

    It is the axis of `AXES` on which most of their words stand, so that both tables can be compared; else a new one.
    """
    votes = Counter(
        (AXES[word][0], AXES[word][1] * sign)
        for sign, words in zip((1, -1), sides, strict=True)
        for word in words
        if word in AXES and not is_ambiguous(word)
    )
    return votes.most_common(1)[0][0] if votes else (sides[0][0], 1)


def _sides_in(table: str) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    lines = [line.split("|") for line in table.strip().splitlines()]
    return [(tuple(one.split()), tuple(other.split())) for one, other in lines]


def _table(several: Iterable[tuple[tuple[str, ...], tuple[str, ...]]]) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for sides in several:
        axis, way = _named(sides)
        for sign, words in zip((way, -way), sides, strict=True):
            for word in words:
                for form in () if is_ambiguous(word) else _forms(word):
                    found.setdefault(form, (axis, sign))
    return found


_IRREGULAR: dict[str, set[str]] = {}
for _form, _plain in IRREGULAR_FORMS.items():
    _IRREGULAR.setdefault(_plain, set()).add(_form)


def _forms(word: str) -> set[str]:
    """Return the forms in which a word is said of something; no derived nouns: there may be damage to what is whole."""
    short = word.removesuffix("e")
    forms = {word, f"{word}s", f"{short}es", f"{short}ed", f"{short}ing", f"{short}er", f"{short}est"}
    forms |= _IRREGULAR.get(word, set())
    if word.endswith("y"):
        forms |= {word[:-1] + ending for ending in ("ies", "ied", "ier", "iest")}
    return forms | {german_stem(form) for form in forms if len(form) > 5}


# They are made when the first text is read: most commands read none.


@cache
def _states() -> dict[str, tuple[str, int]]:
    return _table((*STATES, *_sides_in(_MORE_STATES)))


@cache
def _actions() -> dict[str, tuple[str, int]]:
    return _table(_sides_in(_ACTIONS))
