"""Words and phrases that change what a statement says: negations, advice, causes, doubts, conditions."""

import re

from remit_orchestrator.text import vocabulary
from remit_orchestrator.text.lexicon import pattern, word_set

NEGATIONS = vocabulary.NEGATIONS | word_set("marker.negations")


_NEGATIVE_PREFIXES = ("un", "in", "im", "ir", "il", "dis", "non-", "non", "mis")


def positive_of(word: str) -> tuple[str, ...]:
    """Return what a word may be the denial of, by its prefix or ending: `unpaid`, `non-compliant`, `harmless`."""
    found = [word.removeprefix(each) for each in _NEGATIVE_PREFIXES if word.startswith(each) and len(word) > 5]
    found += [word.removesuffix(each) for each in ("less", "los") if word.endswith(each) and len(word) > 6]
    return tuple(found)


ADVICE = pattern("marker.advice")
"""What tells somebody what to do."""


CAUSE = pattern("marker.cause")
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


POSSIBLY = pattern("marker.possibly")
"""What says that something is not certain; wide, because it is asked whether a doubt was kept."""


DOUBT = pattern("marker.doubt")
"""What is certainly a doubt."""


CONDITION = pattern("marker.condition")


STRICT_EXCEPTION = pattern("marker.strict_exception")
"""What certainly leaves something out of a statement."""


EXCEPTION = pattern("marker.strict_exception", "marker.exception")
"""What may leave something out; wide, because it is asked whether an exception was kept."""


ONLY = re.compile(
    r"\b(?:only|solely|exclusively|nur|ausschließlich|lediglich)\b"
    r"(?! (?:\d|an?\b|few|some|one|two|three|wenige|ein\w*|zwei|drei))"
)
"""What leaves everything else out; before a number it says only that it is small."""

RESTRICTS = pattern("marker.restricts")
"""What may say that something holds in one case alone."""


SUPPOSES = pattern("marker.supposes")
"""What says how something would be."""


STRICT_CONDITION = pattern("marker.strict_condition")


OBLIGATION = re.compile(
    r"\b(?:required?s?|requires|necessary|mandatory|obligatory|compulsory|needed|(?:is|are) to|deadline|due|needs?"
    r"|expect\w*|planned|scheduled|likely|(?:asked|requested|urged|invited|told) to|gebeten|aufgefordert"
    r"|erforderlich|nötig|brauch\w*|benötig\w*|geplant|voraussichtlich"
    r"|notwendig|verpflicht\w*|frist|(?:ist|sind) \w+ zu)\b"
)
"""What a source may say where a text says what is to be done, or is expected."""
