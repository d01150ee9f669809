"""Words and phrases that change what a statement says: negations, advice, causes, doubts, conditions."""

import re

from remit.words.components import words_of
from remit_orchestrator.text import vocabulary

NEGATIONS = vocabulary.NEGATIONS | words_of("nowhere without lack lacks lacking unable mustn't needn't weder ohne")


ENGLISH_WAS = r"(?<=\w )(?<!und )(?<!aber )(?<!oder )(?<!mir )(?<!uns )(?<!ihnen )was"
"""The pattern of "was" in the past tense: at the beginning of a clause it is German, as in "was kostet ein Pass"."""


_NEGATIVE_PREFIXES = ("un", "in", "im", "ir", "il", "dis", "non-", "non", "mis")


def positive_of(word: str) -> tuple[str, ...]:
    """Return what a word may be the denial of, by its prefix or ending: `unpaid`, `non-compliant`, `harmless`."""
    found = [word.removeprefix(each) for each in _NEGATIVE_PREFIXES if word.startswith(each) and len(word) > 5]
    found += [word.removesuffix(each) for each in ("less", "los") if word.endswith(each) and len(word) > 6]
    return tuple(found)


def _phrases(text: str) -> re.Pattern[str]:
    lines = "|".join(filter(None, map(str.strip, text.splitlines())))
    return re.compile(rf"(?<![\w-])(?:{lines})(?![\w-])")


ADVICE = _phrases(r"""
    should|shouldn't|ought|must|mustn't|needs? to|ha(?:ve|s) to|had better|supposed to|required to
    recommend(?:s|ed|able)?|recommendations?|advis(?:e|es|ed|able)|advice|suggest(?:s|ed|ion|ions)?|consider(?:ing)?
    best to|better to|wise to|sensible to|worth|it (?:would|might|may) be (?:best|good|wise|better|a good idea)
    good idea
    please|make sure|be sure|ensure|remember to|don't forget|do not forget|feel free|why not|let's
    it is time to|urge[sd]?
    you (?:can|could|may|might) (?:want|wish|also|still)|if i were|avoid|beware|be careful|take care
    soll|sollen|sollte|sollten|solltest|muss|musst|müssen|müsste|müssten|empfehl\w*|empfohlen|empfiehlt|rat
    raten|rät|ratsam
    bitte|am besten|besser wäre|wäre (?:gut|besser|sinnvoll|ratsam)|sinnvoll|achten sie|denken sie
    vermeiden sie|es lohnt
    lassen sie|vergessen sie|nehmen sie|rufen sie|prüfen sie|wenden sie
""")
"""What tells somebody what to do."""


CAUSE = _phrases(r"""
    because|due to|owing to|thanks to|as a result|as a consequence|consequently|therefore|thus|hence
    that is why|caus(?:e|es|ed|ing)
    leads? to|led to|leading to|results? in|resulted in|resulting (?:in|from)|stems? from|reasons?
    which is why|on account of
    in response to|driven by|triggered(?: by)?|brought about|attribut\w+ to|given that|which means
    meaning that|so that|which (?:explains|led|caused)
    weil|wegen|aufgrund|auf grund|deshalb|deswegen|daher|darum|folglich|infolge\w*|sodass|so dass|führt\w* zu
    führt|verursach\w*
    dank|dadurch|somit|demnach|grund|gründe|bedingt durch|ausgelöst|zurückzuführen|denn
""")
"""What makes one thing the reason of another."""

_REASON_AFTER = re.compile(
    r"\b(?:because of|due to|owing to|thanks to|on account of|because|(?P<german>wegen|aufgrund|infolge|dank|weil))"
    r"\s+(?P<said>[^,;.:()]{3,80})",
    re.IGNORECASE,
)
_REASON_IS = re.compile(
    r"\b(?:(?:cause|reason)s?|(?P<german>ursachen?|gründe?)) (?:is|are|was|were|ist|sind|war|waren)"
    r"\s+(?P<said>(?:an?|the|ein\w*|der|die|das)\s[^,;.:()]{3,80})",
    re.IGNORECASE,
)
_NOUN = re.compile(r"\b[A-ZÄÖÜ]\w+")


def reason_given(text: str) -> str:
    """Return the words that follow "because" or "due to" in a sentence; of German, the nouns. Empty if it has none."""
    found = _REASON_AFTER.search(text) or _REASON_IS.search(text)
    if found is None:
        return ""
    return " ".join(_NOUN.findall(found["said"])) if found["german"] else found["said"]


POSSIBLY = _phrases(r"""
    may|might|could|possibly|perhaps|maybe|likely|unlikely|probabl[ey]|potential(?:ly)?|appears?|seems?
    presumably|apparently|suspected|chance|can
    risk|uncertain|unclear|not certain|not sure|expected|expects?|estimated|allowed|permitted
    könnte|könnten|vielleicht|möglicherweise|eventuell|wahrscheinlich|vermutlich|voraussichtlich|wohl|scheint
    womöglich|mutmaßlich|dürfte|dürften|kann|können
""")
"""What says that something is not certain; wide, because it is asked whether a doubt was kept."""


DOUBT = _phrases(r"""
    might|(?:may|could)(?! not)|possibly|perhaps|maybe|likely|probabl[ey]|presumably|apparently|suspected|uncertain
    könnte|könnten|vielleicht|möglicherweise|eventuell|wahrscheinlich|vermutlich|voraussichtlich|womöglich|mutmaßlich
""")
"""What is certainly a doubt."""


CONDITION = _phrases(r"""
    if|unless|in case|in the event|provided|as long as|only when|depending|depends|subject to|when|whenever
    once|should|until(?![^,;]{0,12}\d)|without|conditional\w*|except
    wenn|falls|sofern|solange|im fall\w*|bei|außer|vorausgesetzt|es sei denn|abhängig|erst
""")


STRICT_EXCEPTION = _phrases(
    "except(?:ing)?|apart from|aside from|but for|other than|excluding|ausgenommen|bis auf|abgesehen von"
)
"""What certainly leaves something out of a statement."""


EXCEPTION = _phrases(rf"""
    {STRICT_EXCEPTION.pattern}|exceptions?|excludes?|only|just|lacks?|missing|without|all but|still|open
    außer|ausnahme|nur|fehl\w*|ohne|noch
""")
"""What may leave something out; wide, because it is asked whether an exception was kept."""


ONLY = re.compile(
    r"\b(?:only|solely|exclusively|nur|ausschließlich|lediglich)\b"
    r"(?! (?:\d|an?\b|few|some|one|two|three|wenige|ein\w*|zwei|drei))"
)
"""What leaves everything else out; before a number it says only that it is small."""

RESTRICTS = _phrases(r"""
    only|solely|exclusively|just|alone|nothing but|no one|nobody|none|never|not|no|without|except|unless|until|before
    must|needs?|requires?d?|has to|have to|others?
    allein|nur|ausschließlich|lediglich|erst|bloß|nicht|kein\w*|ohne|muss|müssen
""")
"""What may say that something holds in one case alone."""


SUPPOSES = _phrases("would|würden?|wäre[n]?")
"""What says how something would be."""


STRICT_CONDITION = _phrases(
    "if|unless|provided that|only when|on condition|wenn|falls|sofern|es sei denn|vorausgesetzt"
)


OBLIGATION = re.compile(
    r"\b(?:required?s?|requires|necessary|mandatory|obligatory|compulsory|needed|(?:is|are) to|deadline|due|needs?"
    r"|expect\w*|planned|scheduled|likely|(?:asked|requested|urged|invited|told) to|gebeten|aufgefordert"
    r"|erforderlich|nötig|brauch\w*|benötig\w*|geplant|voraussichtlich"
    r"|notwendig|verpflicht\w*|frist|(?:ist|sind) \w+ zu)\b"
)
"""What a source may say where a text says what is to be done, or is expected."""
