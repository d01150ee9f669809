"""Tells whether a sentence demands something: not if it reports or asks."""

import re

from remit_orchestrator.text.lexicon import pattern_within
from remit_orchestrator.text.sentences import is_question

_LEAD = (
    r"\W*(?:(?:but|and|so|also|well|then|now|yes|no|oh|ok|okay|please|aber|und|also|dann|jetzt|ja|nein|bitte)\b"
    r"\W*){0,3}"
)


# Questions that ask for something to be found or done: "do you have anything below 800 euros?"
_REQUESTING = re.compile(
    _LEAD + r"(?:(?:can|could|would|will) you|(?:can|could|may) (?:i|we) (?:get|have|book|order|hire|rent|reserve|buy)"
    r"|do you (?:have|know|offer|sell)(?: of)? (?:a|an|any\w*|some\w*)|(?:is|are) there (?:a|an|any\w*|some\w*)"
    r"|have you got|kannst du|können sie|könnt(?:est du|en sie|e man)|würde(?:st du|n sie)"
    r"|(?:gibt es|haben sie|hast du) (?:ein\w*|etwas|was|irgend\w*))\b"
)
# What somebody else said, or what the user does not know for sure, is nobody's demand.
_REPORTED = pattern_within("demand.reported")
_PAST = pattern_within("english_was", "demand.past")
# A sentence with one of these says how something has to be, whoever its subject is.
_OBLIGING = pattern_within("demand.obliging")
_WISHING = pattern_within("demand.wishing")
# "My budget is 1,200 euros": it names its own kind.
_BOUNDED = re.compile(
    r"(?:(?:my|our|the|mein|unser|das|die|der|meine|unsere)\s+)?(?:[^\W\d_]+\s+){0,2}"
    r"(?:budget|limit|maximum|minimum|ceiling|cap|deadline|upper limit|obergrenze|grenze|höchstgrenze|frist)\b"
)
_SUBJECT = re.compile(
    r"(?:i|we|you|he|she|it|they|this|that|these|those|there|one|everything|everybody|somebody|nobody"
    r"|ich|wir|du|er|sie|es|man|alles|jemand|niemand)\b"
)
_NOUN_PHRASE = re.compile(
    r"(?:the|a|an|my|our|your|his|her|its|their|der|die|das|ein|eine|mein\w{0,2}|unser\w{0,2}|ihre?|dein\w{0,2})\s"
)
_FINITE = pattern_within("demand.finite")
_THIRD_VERB = re.compile(r"\S+\s+\S+\s+[a-z]{2,20}(?:s|ed)\b")
# "No problem", "only one question": they say something about the talk.
_OF_THE_TALK = re.compile(
    _LEAD
    + r"(?:(?:i|we|ich|wir|that is|that['’]s|there is|das ist)\s+(?:only\s+|just\s+)?(?:have\s+|habe\s+|haben\s+)?)?"
    r"(?:(?:no|not|only|just|nur|noch|kein\w{0,2}|nicht|one|a|an|another|eine?|more|so)\s+){1,3}"
    r"(?:problems?|idea|hurry|rush|worries|worry|doubts?|need|matter|way|wonder|clue|chance|luck|questions?|comment"
    r"|objections?|thanks?|thank you|trouble|reason|point|yet|now|really|necessary|important|bad|sure|quite|so"
    r"|ahnung|idee|probleme?|sorgen?|eile|fragen?|zweifel|wunder|grund|ursache|nötig|schlimm|wichtig|jetzt|mehr)\W*$"
)
_KNOWING = re.compile(
    r"\bthat i know\b|\bas far as\b|\bsoweit\b|\b(?:yet|so far|bisher|bislang)\W*$"
    # "It must be a mistake" guesses.
    r"|\b(?:there|here|da|hier) (?:must|muss|müssen)\b|\bi must (?:say|admit|confess)\b|\bich muss (?:sagen|zugeben)\b"
    r"|\b(?:must|muss)\b(?: be)?(?: an?| ein\w{0,2})?"
    r" (?:mistake|error|misunderstanding|joke|wrong|fehler|irrtum|falsch)\b"
    r"|\b(?:do not|don['’]t) (?:worry|forget|hesitate|bother|mind|understand|know)\b"
)


def may_demand(sentence: str) -> bool:
    """Return whether a sentence may state what has to hold: a wish, a request, or words without a verb.

    "We were at most ten people", "The price is under 300" and "Is it under 300?" demand nothing.
    """
    said = sentence.casefold()
    if is_question(said):
        return _REQUESTING.match(said) is not None
    if _OF_THE_TALK.match(said) or _REPORTED.search(said) or _PAST.search(said) or _KNOWING.search(said):
        return False
    rest = re.sub(rf"^{_LEAD}", "", said)
    if _OBLIGING.search(said) or _WISHING.search(said) or _BOUNDED.match(rest):
        return True
    if _SUBJECT.match(rest):
        return False
    if _NOUN_PHRASE.match(rest):
        return not (_FINITE.search(rest) or _THIRD_VERB.match(rest))
    return not _VERB_FIRST.match(rest)


# "Nothing has arrived", "up to now it works"
_VERB_FIRST = re.compile(r"(?:[^\W\d_]+\s+){1,3}(?:is|are|has|have|works?|ist|sind|hat|haben)\b")
