"""Relations between words, in English and German: same meaning, opposite meaning, and what changes a statement."""

from functools import lru_cache

from remit.words.components import words_of
from remit_orchestrator.text.word_forms import IRREGULAR_FORMS

# ── forms of one word ─────────────────────────────────────────────────────────────────────────────────────────────────

_ENDINGS = (
    *(
        "ations",
        "ation",
        "ating",
        "ated",
        "ates",
        "ate",
        "ingly",
        "ments",
        "ment",
        "nesses",
        "ness",
        "ities",
        "ity",
        "ions",
        "ion",
        "ings",
        "ing",
    ),
    *("ances", "ance", "ences", "ence", "ables", "able", "ible", "edly", "ers", "ies", "ied", "ed", "es", "ly", "al"),
    *("ungen", "ung", "keiten", "keit", "heiten", "heit", "lichen", "lich", "bar", "eten", "ete", "ten", "te", "test"),
    *("ern", "er", "en", "em", "et", "st", "e", "s", "n", "t", "y"),
)
_INFLECTIONS = frozenset({"ing", "ed", "s"})
_SOFTENED = ("ens", "ans", "cis", "lus", "vis")
_SHORTEST_ROOT = 4
_LONGEST_ROOT = 7


@lru_cache(maxsize=8192)
def root_of(word: str) -> str:
    """Return what the forms and derivations of a word have in common: `reserve`, `reservation` and `reserved` are one.

    It is rough on purpose: it tells whether two texts speak of one thing, not whether they say the same of it.
    """
    word = word.removesuffix("'s").removesuffix("'").replace("ß", "ss")
    if plain := IRREGULAR_FORMS.get(word):
        word = plain
    elif word.startswith("ge") and word.endswith(("t", "en")) and len(word) > 6:
        word = word[2:]  # a German participle
    while True:
        if len(word) > _SHORTEST_ROOT and word[-1] == word[-2]:
            word = word[:-1]
        ending = next((each for each in _ENDINGS if word.endswith(each)), "")
        if not ending or len(word) - len(ending) < _SHORTEST_ROOT - (ending in _INFLECTIONS):
            break
        word = word.removesuffix(ending)
        if len(word) > _SHORTEST_ROOT and word.endswith(_SOFTENED):
            word = word[:-1] + "d"  # extend and extension, decide and decision
            break
    return word[:_LONGEST_ROOT].translate(_PLAIN_VOWELS)


_PLAIN_VOWELS = str.maketrans("äöü", "aou")

# ── the same in other words ───────────────────────────────────────────────────────────────────────────────────────────

_SAME = """
    arrive come land
    depart leave
    cost price charge fee
    begin start commence
    stay remain
    book reserve
    need require take
    visit attend
    deliver ship bring carry transport
    store keep hold
    contain have include possess
    show display indicate
    find detect discover identify see notice spot observe
    say state report mention
    check examine inspect review verify prüfen überprüfen kontrollieren
    repair fix mend
    run operate work function laufen läuft funktionieren arbeiten
    reach achieve attain meet
    buy purchase acquire
    help assist support
    ask request inquire
    answer reply respond
    choose select pick
    send forward transmit
    get receive obtain
    make produce create
    move relocate transfer
    outdated date obsolete
    likely probable probably
    now currently presently
    doctor physician
    car vehicle automobile
    house home building
    worker employee staff
    customer client
    company firm
    illness disease sickness
    kids child
    total sum overall
    daily day
    late delay
    fast quick rapid
    small little
    near close nearby
    under beneath
    kosten preis zahlen bezahlen
    beginnen anfangen starten
    ankommen eintreffen kommen
    abfahren losfahren
    brauchen benötigen
    dauern anspruch
    betragen lauten belaufen
    bereit abholbereit fertig
    schicken senden
    zeigen anzeigen
    finden entdecken
    arzt doktor
    auto wagen fahrzeug
    kunde klient
    firma unternehmen
    vorn vorder
    hinten hinter
"""

# ── the opposite ──────────────────────────────────────────────────────────────────────────────────────────────────────

# Sides of one axis; each side has words that mean the same. Not here: what is an opposite only in one trade.
# A star marks states: of one thing, at one time, only one side can be so. A film begins and ends; a door is open or
# shut.
_OPPOSED = """
    rise increase grow climb gain up upward surge soar higher improve zunehmen steigen wachsen erhöhen anstieg
        zu | fall decrease decline drop shrink sink down downward plunge lower worsen reduce dip abnehmen sinken
        fallen zurückgehen zurückging zurückgegangen verringern rückgang ab;
    high tall hoch | low niedrig tief;
    more mehr | less fewer weniger;
    most meist | least wenigst;
    better besser | worse schlechter schlimmer;
    best beste | worst schlechteste;
    good fine gut | bad poor schlecht;
    well gut | badly poorly ill schlecht;
    * open reopen accessible passable öffnen geöffnet offen begehbar befahrbar zugänglich | close closed shut
        locked sealed blocked impassable inaccessible schließen geschlossen gesperrt versperrt unpassierbar zu;
    * approve accept grant agree clear authorise authorize genehmigen zustimmen annehmen bewilligen | reject
        refuse deny decline dismiss turn veto ablehnen verweigern zurückweisen;
    * allow permit may legal lawful erlauben zulassen gestatten dürfen legal | forbid prohibit ban illegal
        unlawful disallow verbieten untersagen illegal;
    * available free vacant reachable verfügbar frei erreichbar | unavailable occupied taken busy unreachable
        full besetzt belegt voll ausgebucht;
    * safe secure harmless sicher ungefährlich | dangerous unsafe hazardous risky harmful gefährlich unsicher;
    * succeed success pass successful bestehen gelingen erfolgreich | fail failure unsuccessful scheitern
        misslingen durchfallen;
    * true correct right accurate valid wahr richtig korrekt gültig | false wrong incorrect inaccurate invalid
        expired lapsed falsch ungültig abgelaufen verfallen;
    * complete finish done ready fertig abgeschlossen vollständig | incomplete unfinished pending outstanding
        ausstehend unvollständig;
    * enable active activate aktiv | disable inactive deactivate inaktiv;
    * include inbegriffen enthalten einschließlich | exclude ausgeschlossen exklusive;
    * possible feasible möglich | impossible infeasible unmöglich;
    * confirm valid bestätigen | cancel call revoke absagen stornieren;
    win beat gewinnen siegen | lose verlieren;
    profit surplus gewinn überschuss | loss deficit verlust defizit;
    early früh | late spät;
    earlier before früher vor bevor | later after später nachdem;
    first erste | last letzte;
    long lengthy lang | short brief kurz;
    longer länger | shorter kürzer;
    big large great huge groß | small little tiny klein;
    larger bigger greater größer | smaller kleiner;
    * fast quick rapid schnell rasch | slow langsam;
    * strong powerful stark | weak schwach;
    * heavy schwer | light leicht;
    * hot warm heiß | cold cool chilly kalt kühl;
    warmer wärmer | colder cooler kälter;
    * dry trocken | wet damp moist humid nass feucht;
    * full voll | empty leer;
    new neu | old alt;
    * cheap inexpensive günstig billig | expensive dear teuer;
    cheaper billiger günstiger | dearer teurer;
    * easy simple einfach leicht | difficult hard complicated schwierig;
    * positive positiv | negative negativ;
    * healthy gesund | sick ill unwell krank;
    * clean sauber | dirty contaminated polluted schmutzig verunreinigt;
    * calm quiet ruhig | rough stormy loud noisy stürmisch laut;
    * stable steady stabil | unstable volatile instabil;
    * present anwesend | absent abwesend;
    remember | forget;
    buy purchase kaufen | sell verkaufen;
    import | export;
    lend | borrow;
    arrive ankommen ankunft | depart leave abfahren abfahrt;
    inbound incoming eingehend | outbound outgoing ausgehend;
    above over über oberhalb | below under beneath unter unterhalb;
    exceed surpass überschreiten übertreffen | undershoot unterschreiten;
    ahead front before vor | behind after hinter;
    left links | right rechts;
    north northern nord nördlich norden | south southern süd südlich süden;
    east eastern ost östlich osten | west western westlich westen;
    inside indoors indoor innen drinnen | outside outdoors outdoor außen draußen;
    upper top oben | lower bottom unten;
    begin start commence beginnen anfangen starten | end stop finish cease enden aufhören stoppen beenden;
    * continue proceed ongoing resume fortsetzen fortgesetzt weitergehen weitergeführt | halt interrupt suspend
        pause discontinue abort adjourn unterbrechen unterbrochen eingestellt abgebrochen beendet vertagt;
    add attach hinzufügen | remove delete entfernen löschen;
    * accelerate hasten beschleunigen | slow delay verlangsamen verzögern;
    * expand extend widen erweitern verlängern ausdehnen | contract narrow cut verkürzen kürzen;
    * strengthen stärken | weaken schwächen;
    support favour favor recommend befürworten empfehlen | oppose discourage advise ablehnen abraten;
    love like mögen | hate dislike;
    agree zustimmen | disagree;
    * guilty schuldig | innocent unschuldig;
    * solvent zahlungsfähig | insolvent bankrupt zahlungsunfähig insolvent;
    * paid settled bezahlt beglichen | unpaid overdue owed unbezahlt offen;
    known bekannt | unknown unbekannt;
    * visible sichtbar | invisible hidden unsichtbar;
    * public öffentlich | private privat;
    * permanent dauerhaft | temporary vorübergehend;
    * voluntary optional freiwillig | mandatory compulsory obligatory required verpflichtend pflicht;
    maximum maximal höchst | minimum minimal mindest;
    major main | minor;
    majority mehrheit | minority minderheit;
    all every each both alle jede jeder jedes sämtliche | some several few einige manche wenige;
    always immer | never sometimes rarely seldom selten manchmal;
    often frequently oft häufig | seldom rarely selten;
    morning morgens vormittag | evening abends abend;
    day tagsüber | night nachts nacht;
    today heute | yesterday tomorrow gestern;
    adult erwachsene | child children kind kinder;
    male man men mann männer | female woman women frau frauen;
    teacher | pupil student;
    buyer käufer | seller verkäufer;
    tenant mieter | landlord owner vermieter;
    sender absender | recipient receiver empfänger;
    credit gutschrift | debit belastung;
    income revenue einnahmen | expense expenditure ausgaben;
    * alive survive lebendig überleben überlebt | dead die died dies perish tot sterben gestorben verendet;
    * rich reich | poor arm;
    * thick dick | thin dünn;
    * wide broad breit | narrow eng schmal;
    * deep tief | shallow flach seicht;
    * soft weich | hard hart;
    * sharp scharf | blunt stumpf;
    * bright hell | dark dunkel;
    young jung | old alt;
    * sweet süß | sour bitter sauer;
    * fresh frisch | stale rotten spoiled verdorben;
    * intact whole undamaged repaired mended unbeschädigt heil repariert | broken damaged defective faulty
        kaputt defekt beschädigt;
    * genuine real authentic echt | fake forged counterfeit gefälscht;
    * sufficient enough adequate ausreichend genügend | insufficient inadequate lacking unzureichend;
    gain win | lose forfeit;
    hire recruit einstellen | dismiss fire lay entlassen;
    * lock verriegelt | unlock entriegelt;
    * load beladen | unload entladen;
    * mild leicht | severe serious acute schwer ernst;
    * benign gutartig | malignant bösartig;
    * contagious infectious ansteckend | harmless;
    stop verhindern prevent avoid | cause allow trigger;
    attend teilnehmen | miss skip verpassen;
    on an eingeschaltet | off aus ausgeschaltet;
    * online | offline;
    run operate work laufen läuft funktionieren | stop idle halt stillstehen;
    with mit | without ohne;
    toward towards hin | away weg;
    near close nahe | far distant weit fern;
    ascend aufsteigen | descend absteigen;
    * optimistic optimistisch | pessimistic pessimistisch;
    * certain sure sicher gewiss | uncertain unsure doubtful unsicher ungewiss;
    * punctual time pünktlich | late delayed verspätet;
    * domestic inland | foreign abroad ausland;
    * temporary befristet | permanent unbefristet;
    * compatible | incompatible;
    * found located recovered traced gefunden geortet | missing untraced vermisst verschollen;
    * married verheiratet | single divorced ledig;
    vegetarian vegan | meat;
    * occupied besetzt | vacant frei;
"""
# Words with another common meaning are on no side.
_AMBIGUOUS = words_of("""
    may turn call clear with without mit ohne on off an aus zu ab time man men mann frau light hard like right left
    before after vor over under close fine contract taken meat cool main top lay hell reich arm free single kind weg day
    real dear loss see land fallen schwer leicht sicher dick rough hold gain fire
""")

Sides = frozenset[tuple[int, int]]
"""The axes on which a word stands, each with its side: 1 or -1."""


_LINES = [line.strip() for line in _OPPOSED.rstrip().rstrip(";").split(";")]
STATES = tuple(
    (tuple(one.split()), tuple(other.split()))
    for line in _LINES
    if line.startswith("*")
    for one, other in [line.removeprefix("*").split("|")]
)
"""Words for states that exclude each other: those of one side, and those of the other."""


def is_ambiguous(word: str) -> bool:
    """Return whether a word has another common meaning, so that it stands on no side."""
    return word in _AMBIGUOUS


def _sides() -> dict[str, Sides]:
    sides: dict[str, set[tuple[int, int]]] = {}
    for axis, line in enumerate(_LINES):
        for sign, words in zip((1, -1), line.removeprefix("*").split("|"), strict=True):
            for word in words.split():
                if word not in _AMBIGUOUS:
                    sides.setdefault(root_of(word), set()).add((axis, sign))
    return {root: frozenset(each) for root, each in sides.items()}


_SIDES = _sides()
_CLASSES: dict[str, str] = {}
for _line in _SAME.strip().splitlines():
    for _word in _line.split():
        _CLASSES.setdefault(root_of(_word), root_of(_line.split()[0]))
_NOWHERE: Sides = frozenset()


def concept_of(word: str) -> str:
    """Return what a word has in common with its forms and with words of the same meaning."""
    root = root_of(word)
    return _CLASSES.get(root, root)


def sides_of(word: str) -> Sides:
    """Return the axes on which a word stands; "increase" and "fall" are on two sides of one."""
    return _NOWHERE if word in _AMBIGUOUS else _SIDES.get(root_of(word), _NOWHERE)


def same_meaning(one: str, other: str) -> bool:
    """Return whether two words are known to mean the same."""
    return concept_of(one) == concept_of(other) or bool(sides_of(one) & sides_of(other))
