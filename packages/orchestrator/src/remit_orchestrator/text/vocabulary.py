"""Word lists for readers without a language model: verbs, and the function of words in a sentence."""

from functools import lru_cache

from remit.words.components import words_of
from remit_orchestrator.text.word_forms import IRREGULAR_FORMS

# ── verbs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

_TASKS = words_of("""
    add analyse analyze answer book build calculate categorise categorize check classify collect combine compare
    compute convert create describe design detect determine develop draft edit estimate evaluate examine explain
    explore extract fetch file find forecast format generate identify inspect investigate list look make map measure
    monitor optimise optimize order organise organize plan predict prepare present produce propose provide rank read
    recommend reconcile research review revise schedule search select sort summarise summarize tell test track
    translate update validate verify write
""")
REQUEST_VERBS = _TASKS | words_of("""
    adjust apply arrange ask assign attach buy call cancel change clean close complete configure confirm connect
    consider consolidate continue copy correct count debug define delete deploy document download draw email enable
    ensure expand export extend figure fill filter finalise finalize finish fix follow get give go group handle help
    implement import improve include inform install integrate invite invoice keep learn let load mark match merge
    migrate modify move name note notify open outline parse pay pick post print prioritise prioritize process
    publish pull push put query record reduce refactor refund register remind remove rename reorder repair repeat
    replace reply report request reserve resolve restart restore retry return rewrite run save scan send set share
    shorten show sign simplify sketch solve split start stop store study submit suggest take transfer try turn undo
    upgrade upload use visit wait walk watch
    analysiere antworte baue berechne beschreibe erkläre erstelle fasse finde gib hilf lies liste lösche mach mache
    nenne ordne plane prüfe rechne sag sage schick schicke schreib schreibe sende sortiere suche teste übersetze
    vergleiche zeig zeige
""")
"""Verbs that begin a request to an agent."""
DESCRIPTION_VERBS = _TASKS | words_of("""
    assess audit claim compose gather model price project prove rate say score simulate transform weigh work
""")
"""Verbs that begin the description of an agent's work. Here a first word like "email" is more often a noun."""
CLAUSE_VERBS = words_of("""
    do does did is are was were has have had will can costs cost leaves leave departs depart arrives arrive takes take
    starts start ends end begins begin rose fell grew increased decreased declined dropped amounts totals equals opens
    closes weighs lasts includes requires needs pays earns employs owns spends uses holds reaches reached entered won
    lost sold bought made makes goes went comes came gets got runs ran says said sells serves covers
    contains lies lay stands stops meets sits moves became remains stays
    ist sind war waren wird werden wurde wurden hat haben hatte hatten kann liegt lag findet kostet beginnt endet dauert
    kommt geht fährt steht bleibt gilt enthält heißt
""")
"""Verbs that show that a part of a statement is a clause."""

# ── words by their function in a sentence ─────────────────────────────────────────────────────────────────────────────

# Words that say nothing about the subject. Words that distinguish subjects are not here (before, after, without, per,
# total).
WEAK = words_of("""
    a about according actual actually all along also am an and any are around as at be been being both by can currently
    data date day did do does done each estimated exactly expected figure figures following for from given had has have
    he her here him his how i in is it its itself just me my now of on only or our out overall own planned please
    projected report reported reports result results say says scheduled she show shows since so some source sources
    still such than that the their them then there these they this those time to today under until upon us value values
    very via was we were what which who will with you your yes set comes amounts equals roughly approximately nearly
    almost over up between answer approx circa likely also again already too
    everyone everybody everything
    yet always ever finally officially definitely certainly clearly fully completely entirely totally formally recently
    immediately simply really generally usually normally apparently reportedly remains remain remained stays stayed
    immer stets bereits endgültig offiziell vollkommen
""")
_HEDGES = words_of("""
    if whether unless may might could would when once likely unlikely possibly perhaps maybe potential
    potentially assuming otherwise until till except
    wenn falls sofern könnte könnten würde würden vielleicht möglicherweise eventuell voraussichtlich
""")
COMMON_WORDS = words_of("""
    the a an and or of to in on at for from with by is are was be been do does did have has had can could will would
    should may i you he she it we they me my your our this that these those what when where which who how why if not no
    so as about into up out please tell know want need like get give show help there let us am i'm i'd what's
    der die das den dem des ein eine einen einem einer und oder von zu zum zur in im auf an für mit bei aus ist sind war
    sein hat habe haben kann kannst können möchte will soll ich du er sie es wir ihr mich mir mein meine meinen dein
    bitte wie was wann wo wer warum welche nicht kein so dass wenn auch noch mal
    le la les un une des du de et ou à au aux en dans sur pour avec par est sont je tu il elle nous vous ils me moi mon
    ma mes ce cette ces que qui quoi quand où comment pourquoi quel quelle ne pas plus s'il plaît peux veux voudrais
    el los las unos unas y o del al en con por para es son está yo tú él ella nosotros mi mis su se lo que qué cuándo
    dónde cómo quién cuál no sí por favor puedo puedes quiero necesito
    il lo gli uno una e di da nel sul per con è sono ho io tu lui lei noi mi mio mia che chi quando dove come perché
    quale non vorrei posso puoi
    o os as um uma e ou do da dos das no na em para com por é são eu você ele ela meu minha que quando onde como quem
    não quero preciso posso pode
    de het een en of van naar op voor met is zijn heb heeft ik jij hij zij wij mijn jouw dit dat wat wanneer waar wie
    hoe waarom niet kan wil graag
""")
"""Words in seven languages that say nothing about what is wanted."""
PUNCTUATION = frozenset(",:;()")
DETERMINERS = words_of("the a an his her its their your my our this that")
GERMAN_WEEKDAYS = words_of("montag dienstag mittwoch donnerstag freitag samstag sonnabend sonntag")
NEGATIONS = words_of("""
    not no never cannot none neither nor nothing nobody
    isn't aren't wasn't weren't don't doesn't didn't won't wouldn't can't couldn't shouldn't hasn't haven't hadn't
    nicht kein keine keinen keinem keiner keines nie niemals nichts niemand
""")
# "No later than", "not only": nothing is denied.
NOT_DENIED = words_of("later earlier more less fewer only just doubt least most")
# After these, a day or time is the claim itself, and not the time of the claim.
EVENTS = words_of("""
    depart arriv start end open clos due expir launch found born sign deliver ship meet land board publish releas happen
    occur appointment birthday schedul enter join di elect
""")
# A text about itself: "I am 80 % sure".
ON_ITSELF = words_of("confident confidence certainty")
# A number after one of these is part of a name.
LABELS = words_of("""
    order invoice ticket case item line row step phase section chapter page table figure version option plan scenario
    week number no nr id flight train bus part appendix article level stage sprint release batch lot unit model team
    group question claim contract account customer variant alternative candidate product supplier vendor class type
    building method approach
""")
# "Stand" is English as well as a form of "stehen".
_PLAIN_FORMS = frozenset(IRREGULAR_FORMS.values())
_SYNONYMS = {
    word: words.split()[0]
    for words in """
        depart leav departur left
        arriv arrival
        pric cost
        start begin began commenc beginning
        end finish ending
        due deadlin
        staff employe headcount personnel
        meet meeting
        deliver delivery
    """.strip().splitlines()
    for word in words.split()
}


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """Return the common stem of the forms of a word."""
    word = word.removesuffix("'s")
    if word not in _PLAIN_FORMS:
        word = IRREGULAR_FORMS.get(word, word)
    if len(word) > 3:
        if word.endswith("ies"):
            word = word[:-3] + "y"
        elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
            word = word[:-1]
        for ending in ("ing", "ed"):
            if word.endswith(ending) and len(word) > len(ending) + 2:
                word = word.removesuffix(ending)
                if word[-1] == word[-2] and word[-1] not in "ls":
                    word = word[:-1]
                break
        if word.endswith("e") and len(word) > 3:
            word = word[:-1]
    return _SYNONYMS.get(word, word)


# Adjectives that describe a thing; before a noun they separate things, as in "the cheap one".
_DEGREES = {
    "size": (
        "large larger largest big bigger biggest greater greatest groß größer",
        "small smaller smallest little klein kleiner",
    ),
    "height": ("high higher highest hoch höher", "low lower lowest niedrig niedriger"),
    "length": ("long longer longest lang länger", "short shorter shortest kurz kürzer"),
    "quality": (
        "good better best excellent gut besser",
        "bad worse worst poor poorer poorest schlecht schlechter",
    ),
    "speed": ("fast faster fastest quick quicker quickest schnell schneller", "slow slower slowest langsam langsamer"),
    "price": (
        "expensive dearer dearest costlier costliest teuer teurer",
        "cheap cheaper cheapest inexpensive billig billiger günstig günstiger",
    ),
    "age": ("old older oldest alt älter", "new newer newest young younger youngest neu neuer jung jünger"),
    "when": ("early earlier earliest sooner früh früher", "later latest spät später"),
    "warmth": ("hot hotter hottest warm warmer warmest heiß wärmer", "cold colder coldest cool cooler kalt kälter"),
    "strength": ("strong stronger strongest stark stärker", "weak weaker weakest schwach schwächer"),
    "weight": ("heavy heavier heaviest schwer schwerer", "light lighter lightest leicht leichter"),
    "ease": ("easy easier easiest simple simpler einfach einfacher", "difficult hard harder hardest schwierig"),
    "distance": ("near nearer nearest close closer closest nah näher", "far farther further farthest weit weiter"),
    "width": ("wide wider widest breit breiter", "narrow narrower narrowest schmal schmaler"),
    "fullness": ("full fuller voll", "empty leer"),
    "moisture": ("wet wetter nass feucht", "dry drier trocken"),
    "noise": ("loud louder noisy laut lauter", "quiet quieter silent leise leiser ruhig"),
    "brightness": ("bright brighter hell heller", "dark darker dunkel dunkler"),
    "cleanness": ("clean cleaner sauber", "dirty dirtier schmutzig"),
    "risk": ("risky riskier riskiest riskanter", "safer safest sicherer"),
    "order": ("before vor", "after"),
    "much": ("more mehr", "less fewer weniger"),
}
# Words with an opposite; "increasing" describes a thing, "including" separates two things.
AXES = {
    word: (axis, sign)
    for axis, sides in {
        "approve": (
            "approve approves approved accept accepts accepted grant grants granted admitted cleared authorised "
            "authorized released confirmed proceeds proceed proceeding upheld valid "
            "endorsed ratified settled clear "
            "genehmigt bewilligt freigegeben zugelassen bestätigt angenommen akzeptiert gültig",
            "reject rejects rejected refuse refuses refused denied deny denies declined dismissed blocked suspended "
            "withdrawn revoked halted cancelled canceled postponed invalid "
            "vetoed overturned scrapped abandoned obstructed "
            "abgelehnt verweigert gesperrt zurückgewiesen abgesagt storniert widerrufen ausgesetzt verschoben ungültig",
        ),
        "rise": (
            "rose rise rises rising increased increase increases increasing grew grow grows growing climbed "
            "climbing gained gaining improved improving improve "
            "steigen wachsen stieg steigt gestiegen wuchs wächst gewachsen zugenommen",
            "fell fall falls falling decreased decrease decreases decreasing dropped drop drops dropping "
            "shrank shrink shrinks shrinking declining worsened worsening "
            "sinken fallen fiel fällt gefallen sank sinkt gesunken abgenommen",
        ),
        "available": ("available verfügbar erhältlich lieferbar", "unavailable"),
        "safe": ("safe secure harmless sicher", "unsafe dangerous insecure hazardous gefährlich"),
        "allow": (
            "allowed permitted legal lawful erlaubt gestattet zulässig",
            "forbidden prohibited banned illegal unlawful disallowed verboten untersagt",
        ),
        "succeed": (
            "succeeded successful successfully success passed bestanden erfolgreich gelungen",
            "failed unsuccessful unsuccessfully failure gescheitert fehlgeschlagen durchgefallen",
        ),
        "open": ("open opened geöffnet offen", "closed shut geschlossen"),
        "true": ("true correct richtig wahr korrekt", "false incorrect wrong falsch"),
        "complete": (
            "complete completed finished abgeschlossen fertig erledigt",
            "incomplete unfinished pending outstanding ausstehend",
        ),
        "enable": ("enabled active aktiv", "disabled inactive"),
        "profit": ("profitable", "unprofitable"),
        "possible": ("possible feasible", "impossible infeasible"),
        "eligible": ("eligible", "ineligible"),
        "include": (
            "includes include included covers cover covered contains contain contained enthält enthalten inbegriffen",
            "excludes exclude excluded lacks lack lacking without ohne ausgeschlossen",
        ),
        "comply": ("compliant", "noncompliant non-compliant"),
        "pay": ("paid", "unpaid"),
        "support": ("supports supported", "opposes opposed"),
        "guilty": ("guilty", "innocent"),
        "solvent": ("solvent", "insolvent bankrupt"),
        "online": ("online", "offline"),
        "run": (
            "running operational working functioning läuft funktioniert",
            "stopped broken defective ausgefallen kaputt defekt",
        ),
        "occupy": ("free vacant unoccupied frei", "occupied taken busy booked besetzt belegt"),
        "require": ("required mandatory compulsory obligatory", "optional voluntary freiwillig"),
        "positive": ("positive positiv", "negative negativ"),
        "present": ("present anwesend vorhanden", "absent missing abwesend"),
        "stable": ("stable stabil", "unstable critical instabil kritisch"),
        "punctual": ("punctual pünktlich", "delayed late overdue verspätet"),
        "health": ("healthy gesund", "ill sick krank"),
        "alive": ("alive lebt", "dead deceased tot verstorben"),
        "benign": ("benign gutartig", "malignant bösartig"),
        "normal": ("normal", "abnormal"),
        "permanent": ("permanent unbefristet dauerhaft", "temporary provisional befristet vorläufig"),
        "public": ("public öffentlich", "private privat"),
        "win": ("won wins gewonnen", "lost loses verloren"),
        "connect": ("connected verbunden", "disconnected getrennt"),
        "buy": ("buy buying kaufen", "sell selling verkaufen"),
        "side": ("leftward links", "rightward rechts"),
        "inside": ("inside innen drinnen", "outside außen draußen"),
        "same": ("same identical gleich identisch", "different verschieden unterschiedlich"),
        "enough": ("enough sufficient adequate ausreichend genug", "insufficient inadequate"),
        **_DEGREES,
    }.items()
    for sign, words in zip((1, -1), sides, strict=True)
    for word in words.split()
}

DEGREES = frozenset(word for sides in _DEGREES.values() for side in sides for word in side.split())

# Words of advice for something, or against it.
ADVICE = {
    **dict.fromkeys(
        words_of("""
            recommend recommends recommended advise advises advised suggest suggests suggested advisable should ought
            recommendable empfehlen empfehle empfiehlt empfohlen sollte sollten sollst soll sollen ratsam rate raten
            empfehlenswert must muss müssen
        """),
        1,
    ),
    **dict.fromkeys(
        words_of("""
            discourage discourages discouraged avoid refrain inadvisable warn warns abraten abgeraten vermeiden warnen
            gewarnt meiden
        """),
        -1,
    ),
}
# Verbs that tell somebody what to do if a sentence begins with them.
IMPERATIVES = words_of("""
    take use choose pick buy sell accept book order keep leave stay go wait wear eat drink apply replace start stop
    continue open close sign pay send call contact visit follow bring add remove install switch turn try prefer hire
    invest raise lower increase reduce postpone cancel proceed repair store feed plant
    nehmen nimm kaufen wählen nutzen verwenden
""")
# Verbs that add nothing to advice: "take the early flight" advises the same as "the early flight".
LIGHT_VERBS = words_of("tak us use do mak go get hav be choos pick perform undergo nehm mach")

# Several words that are read as one.
PHRASES = {
    tuple(phrase.split()): word
    for word, phrases in {
        "not": "no longer/not any more/not any longer/nicht mehr/nicht länger/by no means",
        "rose": "picking up/picks up/picked up/went up/goes up/gone up/going up/go up",
        "fell": "dying down/dies down/died down/easing off/letting up/went down/goes down/gone down/going down/go down",
        "not must": "need not/needn't/no need to/not necessary to/unnecessary to/no reason to/muss nicht/müssen nicht",
        "must": "have to/has to/had to/need to/needs to",
        "insufficient": "not enough/too little/too few/nicht genug/zu wenig/zu wenige",
        "leftward": "on the left/to the left/left side",
        "rightward": "on the right/to the right/right side",
        "cancelled": "called off/call off/struck down",
        "rejected": "turned down/turn down/thrown out",
        "proceeds": "goes ahead/go ahead/going ahead/went ahead",
        "lacks": "free of/free from/frei von/devoid of",
        "unavailable": "out of stock/sold out/nicht vorrätig/ausverkauft",
        "available": "in stock/auf lager/vorrätig",
        "broken": "broken down/broke down/breaks down/"
        "out of order/out of service/out of action/in bad condition/in poor condition/in bad shape/"
        "außer betrieb/in schlechtem zustand",
        "running": "up and running/in operation/in service/in betrieb",
        "punctual": "on time/in time/on schedule/im zeitplan",
        "delayed": "behind schedule/im verzug",
        "contains": "full of/voll von/voll mit",
        "controlled": "under control/unter kontrolle",
        "uncontrolled": "out of control/außer kontrolle",
        "working": "in order/in working order/in good order/in good condition/in good shape/as good as new/in ordnung/"
        "in gutem zustand",
        "valid": "in force/in effect/in kraft",
        "safe": "out of danger/außer gefahr/in sicherheit",
        "dangerous": "in danger/at risk/in gefahr",
        "suspended": "on hold/auf eis",
        "proceeding": "under way/im gange/in gang",
        "supports": "in favour of/in favor of/is for",
        "opposes": "opposed to/is against",
        "outdated": "out of date",
        "current": "up to date/auf dem neuesten stand",
        "dearer": "more expensive",
        "cheaper": "less expensive",
        "abraten": "advise against/advises against/advised against/recommend against/recommends against/"
        "warns against/warn against/decide against/shouldn't",
    }.items()
    for phrase in phrases.split("/")
}
PHRASE_STARTS = {
    first: tuple(sorted((each for each in PHRASES if each[0] == first), key=len, reverse=True))
    for first in {phrase[0] for phrase in PHRASES}
}
"""The phrases by their first words, the longest first."""

# German function words with the English words that stand for them.
GERMAN: dict[str, str] = {
    word: english
    for english, words in {
        "the": "der die das den dem des",
        "a": "ein eine einen einem einer eines",
        "no": "kein keine keinen keinem keiner keines",
        "not": "nicht",
        "nothing": "nichts",
        "never": "nie niemals",
        "nobody": "niemand",
        "is": "ist wird sei",
        "are": "sind werden gibt",
        "was": "war wurde worden",
        "were": "waren wurden",
        "has": "hat",
        "have": "haben",
        "had": "hatte hatten",
        "can": "kann können",
        "in": "im in ins",
        "on": "am auf",
        "at": "um bei beim an",
        "from": "von vom aus",
        "to": "nach zu zum zur",
        "for": "für",
        "by": "durch bis",
        "with": "mit",
        "via": "über",
        "and": "und",
        "or": "oder",
        "it": "es er sie ihm ihn",
        "we": "wir uns unser unsere",
        "you": "ihnen ihr ihre ihren",
        "that": "dass dieser diese dieses diesen",
        "as": "wie als",
        "than": "als",
        "also": "auch noch schon",
        "only": "nur",
        "here": "hier",
        "there": "da dort",
        "now": "jetzt derzeit aktuell",
        "today": "heute",
        "again": "wieder",
        "since": "seit",
        "during": "während",
    }.items()
    for word in words.split()
}
# Words that show that a sentence is German if it has no English function word.
GERMAN_SIGNS = words_of("""
    der die das den dem des ein eine einen einem einer ist sind wird werden wurde wurden nicht kein keine keinen und
    oder für mit von vom zum zur auf bei im es gibt wir sie hat haben
""")
_GERMAN_ENDINGS = ("en", "er", "es", "em", "e", "n", "s")


@lru_cache(maxsize=4096)
def german_stem(word: str) -> str:
    """Return a German word without the ending of its case and number."""
    for ending in _GERMAN_ENDINGS:
        if word.endswith(ending) and len(word) > len(ending) + 3:
            return word.removesuffix(ending)
    return word


# The function of each word in a sentence, unless the word is about the subject.
ROLES = {
    **dict.fromkeys(WEAK | PUNCTUATION, "weak"),
    **dict.fromkeys(AXES, "axis"),
    **dict.fromkeys(NEGATIONS, "negation"),
    **dict.fromkeys(_HEDGES, "hedge"),
    **dict.fromkeys(ADVICE, "advice"),
    **dict.fromkeys(("now", "today", "currently", "presently"), "now"),
}
