"""Word lists for readers without a language model: verbs, and the function of words in a sentence."""

from functools import lru_cache


def words_of(text: str) -> frozenset[str]:
    """Return the words of a list as a set."""
    return frozenset(text.split())


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
    almost over up between answer approx circa likely
""")
_HEDGES = words_of("""
    if whether unless may might could would should when once likely unlikely possibly perhaps maybe potential
    potentially assuming otherwise until till except
""")
PUNCTUATION = frozenset(",:;()")
NEGATIONS = words_of("""
    not no never cannot none neither nor nothing nobody
    isn't aren't wasn't weren't don't doesn't didn't won't wouldn't can't couldn't shouldn't hasn't haven't hadn't
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


# Words with an opposite; "increasing" describes a thing, "including" separates two things.
AXES = {
    word: (axis, sign)
    for axis, sides in {
        "approve": ("approve approves approved accepted granted", "reject rejects rejected refused denied"),
        "rise": (
            "rose rises rising increased increases increasing grew grows climbed gained improved",
            "fell falls falling decreased decreases decreasing dropped drops shrank worsened",
        ),
        "available": ("available", "unavailable"),
        "safe": ("safe secure", "unsafe dangerous insecure"),
        "allow": ("allowed permitted legal lawful", "forbidden prohibited banned illegal unlawful disallowed"),
        "succeed": ("succeeded successful passed", "failed unsuccessful"),
        "open": ("open", "closed shut"),
        "true": ("true correct valid", "false incorrect wrong invalid"),
        "complete": ("complete completed finished", "incomplete unfinished pending"),
        "enable": ("enabled active", "disabled inactive"),
        "profit": ("profitable", "unprofitable"),
        "possible": ("possible feasible", "impossible infeasible"),
        "eligible": ("eligible", "ineligible"),
        "include": ("includes include included", "excludes exclude excluded"),
        "comply": ("compliant", "noncompliant non-compliant"),
        "pay": ("paid", "unpaid"),
        "support": ("supports supported", "opposes opposed"),
        "confirm": ("confirmed", "cancelled canceled"),
        "guilty": ("guilty", "innocent"),
        "solvent": ("solvent", "insolvent bankrupt"),
    }.items()
    for sign, words in zip((1, -1), sides, strict=True)
    for word in words.split()
}

# The function of each word in a sentence, unless the word is about the subject.
ROLES = {
    **dict.fromkeys(WEAK | PUNCTUATION, "weak"),
    **dict.fromkeys(AXES, "axis"),
    **dict.fromkeys(NEGATIONS, "negation"),
    **dict.fromkeys(_HEDGES, "hedge"),
    **dict.fromkeys(("now", "today", "currently", "presently"), "now"),
}
