"""Splits requests into clauses, by the words that open a request, a condition or the next of several requests."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from remit.words.numbers import NUMBER_WORDS
from remit_orchestrator.text.lexicon import alternatives, word_set
from remit_orchestrator.text.vocabulary import REQUEST_VERBS

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")

# ── a request ─────────────────────────────────────────────────────────────────────────────────────────────────────────

# Common verbs in the imperative, besides those that agents are mostly asked for.
_VERBS = (REQUEST_VERBS | word_set("request.verbs")) - {"bitte"}
_DETERMINERS = word_set("request.determiners")
_OBJECTS = word_set("request.objects")
# A word of these is no verb, whatever follows.
_CLOSED = word_set("request.closed")
_ASKS = re.compile(rf"(?:{alternatives('request.asks')})\b", re.IGNORECASE)
# Names what the next clause is about: "what about my brother, did he pass?".
_TOPIC = re.compile(rf"(?:and |but |und |aber )?(?:{alternatives('request.topic')})\b", re.IGNORECASE)
_QUESTION = re.compile(rf"(?:{alternatives('request.question')})\b", re.IGNORECASE)
_WISH = re.compile(
    r"(?:i|we)(?:'d| would| also| really)* (?:want|need|like|love|wish|have|must|prefer|plan|hope|intend)\b.{0,3} to \w"
    r"|(?:i am|i'm|we are|we're) (?:going|planning|hoping) to \w"
    r"|(?:ich|wir) (?:möchten?|will|wollen|muss|müssen|würden?)\b.* \w+e[lr]?n\W*$",
    re.IGNORECASE,
)


def is_wish(text: str) -> bool:
    """Return whether a clause says what the user wants to do: "we want to get married in June"."""
    return _WISH.match(text.strip(" \"'“”()")) is not None


_POLITE = re.compile(rf"(?:(?:{alternatives('request.polite')})\b,? *)+", re.IGNORECASE)


_WITHDRAWS = re.compile(
    r"(?:(?:ok|okay|well|actually|and|but|no|so|then|please|dann|also|bitte|und|nein|gut)\b,? )*"
    r"(?:forget (?:about )?(?!to\b)|never ?mind\b|(?:do not|don't) (?!forget|worry|hesitate)"
    r"|vergiss (?!nicht)|vergessen sie (?!nicht))",
    re.IGNORECASE,
)


def withdraws(text: str) -> bool:
    """Return whether a text begins by taking something back: "then forget the massage", "don't book it"."""
    return _WITHDRAWS.match(text.strip(" \"'“”()")) is not None


def takes_back(text: str) -> bool:
    """Return whether a text only takes back what was said before: "never mind", "vergiss es"."""
    phrase = text.strip(" \"'“”().,;!")
    match = _WITHDRAWS.match(f"{phrase} ")
    return match is not None and f"{phrase} "[match.end() :].strip().casefold() in _NOTHING_ELSE


_NOTHING_ELSE = frozenset({"", "it", "that", "about it", "about that", "es", "das", "bother"})


@lru_cache(maxsize=1024)
def opens_request(text: str, *, first: bool = True) -> bool:
    """Return whether a text begins as a request does: with a verb, a question, or "could you".

    *first*: it begins a sentence, where a capital letter says nothing.
    """
    phrase = text.strip(" \"'“”()")
    polite = _POLITE.match(phrase)
    phrase = phrase[polite.end() :] if polite else phrase
    if _TOPIC.match(phrase):
        return False
    if _ASKS.match(phrase) or _QUESTION.match(phrase):
        return True
    words = _WORD.findall(phrase[:300])
    if not words or (words[0][0].isupper() and not first and not polite):
        return False
    return starts_with_verb(words) or _ends_with_infinitive(words)


def starts_with_verb(words: list[str]) -> bool:
    """Return whether words begin with a verb that tells somebody to do something."""
    verb = words[0].casefold()
    if verb in _CLOSED:
        return False
    if verb in _VERBS:
        # "Order 12 is late", "report on sales": a noun, which a verb or a preposition of its own follows.
        return not (len(words) > 1 and words[1].casefold() in _AFTER_NOUN)
    if len(words) < 2 or verb.endswith(("s", "ing")):
        return False
    after = words[1].casefold()
    return after in _DETERMINERS or after in _OBJECTS or after in NUMBER_WORDS


_AFTER_NOUN = word_set("request.after_noun")


def _ends_with_infinitive(words: list[str]) -> bool:
    """Return whether words are a German request such as "Termin bitte absagen"."""
    last, low = words[-1], [word.casefold() for word in words]
    if len(words) < 2 or not last.islower() or len(last) < 5 or not last.endswith(("en", "ern", "eln")):
        return False
    german = any(word[0].isupper() for word in words[:-1])
    return german and not _FINITE & set(low) and last not in _CLOSED and last not in NUMBER_WORDS


_FINITE = word_set("request.finite")


def main_start(text: str) -> int | None:
    """Return where, in a clause without a comma, the request begins: in "it is positive book a visit" at "book"."""
    matches = list(_WORD.finditer(text))
    for place in range(1, len(matches)):
        word, before = matches[place][0], matches[place - 1][0].casefold()
        if word[0].isupper() or word.casefold() not in _VERBS or before in _BEFORE_NOUN or before in _DETERMINERS:
            continue
        rest = [each[0] for each in matches[place:]]
        if len(rest) > 1 and starts_with_verb(rest) and rest[1].casefold() not in _CLOSED - _DETERMINERS - _OBJECTS:
            return matches[place].start()
    return None


_BEFORE_NOUN = word_set("request.before_noun")


def is_only_verb(text: str) -> bool:
    """Return whether a request still lacks what it is about: "tell me", "prüfe", "schau nach"."""
    words = [word.casefold() for word in _WORD.findall(text)]
    return (
        0 < len(words) <= _MOST_BEFORE_OBJECT
        and (
            all(word in _CLOSED for word in words[1:])
            # "Mir sagen", "Ihnen mitteilen".
            or (words[0] in _OBJECTS and words[-1].endswith("en") and all(word in _CLOSED for word in words[:-1]))
        )
    )


# "Please let me know".
_MOST_BEFORE_OBJECT = 4
# What opens a clause that belongs to the one before.
SUBORDINATE = re.compile(r"(?:ob|dass|weil|damit|whether|that|because|so that|which|who)\b", re.IGNORECASE)

# ── order ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

THEN = re.compile(rf"(?:and |und |but |aber )?(?:{alternatives('request.then')})\b,? *", re.IGNORECASE)
LAST = re.compile(rf"(?:and |und )?(?:{alternatives('request.last')})\b,? *", re.IGNORECASE)
FIRST = re.compile(rf"(?:but |aber )?(?:{alternatives('request.first')})\b,? *", re.IGNORECASE)
BEFORE = re.compile(rf"(?:but |and |aber |und )?(?:{alternatives('request.before')})\b,? *", re.IGNORECASE)
ALSO = re.compile(rf"(?:and |und )?(?:{alternatives('request.also')})\b,? *", re.IGNORECASE)
# What follows is asked for because of what was said before.
HENCE = re.compile(rf"(?:and |und )?(?:{alternatives('request.hence')})\b,? +", re.IGNORECASE)
ANYWAY = re.compile(rf"\b(?:{alternatives('request.anyway')})\b,? *", re.IGNORECASE)
# In German, and at the end of an English clause, these stand within it.
LATER_WITHIN = re.compile(rf"\b(?:{alternatives('request.later_within')})\b", re.IGNORECASE)
SOONER_WITHIN = re.compile(r"\b(?:beforehand|before that|vorher|zuvor|davor)\b", re.IGNORECASE)

# ── conditions ────────────────────────────────────────────────────────────────────────────────────────────────────────

IF = re.compile(
    r"(?:(?:and|but|or|then|und|aber|oder|dann),? )?(?:but |aber )?(?:only |nur |nur dann,? )?"
    r"(?P<if>if|in case|in the event that|provided(?: that)?|providing(?: that)?|assuming(?: that)?|as long as"
    r"|on condition that"
    r"|falls|wenn|sofern|solange|im falle?,? dass|vorausgesetzt,?(?: dass)?)\b,? *",
    re.IGNORECASE,
)
UNLESS = re.compile(rf"(?:(?:and|but|und|aber),? )?(?:{alternatives('request.unless')})\b,? *", re.IGNORECASE)
SHOULD = re.compile(
    r"(?:(?:and|but|und|aber),? )?(?P<if>should|sollten?)\b (?=(?:there|it|the|this|that|he|she|they|any|my|es"
    r"|das|der|die|er|sie)\b)",
    re.IGNORECASE,
)
ONCE = re.compile(
    r"(?:(?:and|but|und|aber),? )?(?:only |erst,? )?"
    # Not "once more" or "once a week".
    r"(?P<if>once(?! (?:more|again|a|an|per|every|or)\b)|as soon as|when|whenever|sobald)\b "
    r"(?!(?:do|does|did|is|are|was|were|can|could|will|would|should|may|exactly|to)\b)",
    re.IGNORECASE,
)
# A comparison with a figure, "bei mehr als 800 Euro".
GIVEN = re.compile(rf"(?:bei|with|at|for)\b (?=(?:{alternatives('request.given')})\b)", re.IGNORECASE)
OTHERWISE = re.compile(rf"(?:(?:and|but|or|und|aber),? )?(?:{alternatives('request.otherwise')})\b,? *", re.IGNORECASE)
IN_THAT_CASE = re.compile(rf"(?:(?:and|und),? )?(?:{alternatives('request.in_that_case')})\b,? *", re.IGNORECASE)
# "When" and its kind with somebody who acts: "after you have checked it", "before booking it".
AFTER_DOING = re.compile(
    r"(?:(?:and|but|only|und|aber|erst),? )*(?:(?:after|once|when|as soon as) (?:you|we)(?:'ve| have)? (?=\w)"
    r"|(?:after|upon|following)"
    r" (?=\w+ing\b)|(?:nachdem|sobald|wenn) (?:du|sie|ihr|wir) )",
    re.IGNORECASE,
)
BEFORE_DOING = re.compile(
    r"(?:(?:and|but|und|aber),? )*(?:before (?:you |we )(?=\w)|before (?=\w+ing\b)|(?:bevor|ehe) (?:du|sie|ihr"
    r"|wir) )",
    re.IGNORECASE,
)
# A German condition without "wenn": "liegt er noch im Bett, …". After a verb that also tells somebody to do something
# only a subject counts.
VERB_FIRST_IF = re.compile(
    r"(?:(?:ist|sind|war|hat|haben|wird|werden|kann|können|gibt|liegt|liegen|steht|stehen|kostet|kosten|fehlt|fehlen"
    r"|reicht|passt|geht|klappt|kommt|kommen|stimmt|bleibt|dauert|braucht|gilt)\b (?!ihr\b|du\b)"
    r"|\w+t (?:er|der|man|jemand|niemand|keiner)\b)",
    re.IGNORECASE,
)
# "If" after these means "whether".
WHETHER = re.compile(
    r"(?:\b(?:tell|ask|show|inform)\b(?: \w+){0,2}|\b(?:know|check|see|find out|look|verify|wonder|wondering|say"
    r"|sure|decide|determine"
    r"|confirm|doubt|test|matter|question|care)\b(?: for me| up)?)$",
    re.IGNORECASE,
)
# These are courtesies, and no conditions.
COURTESY = re.compile(rf"(?:{alternatives('request.courtesy')})(?=\W|$)", re.IGNORECASE)

# ── references ────────────────────────────────────────────────────────────────────────────────────────────────────────

# Words that stand for something said before.
REFERS = re.compile(rf"\b(?:{alternatives('request.refers')})\b", re.IGNORECASE)


_DUMMY = re.compile(
    r"\b(?:is|was|will|does|did|has|can|would) it\b|\bit (?:is|was|will|takes|costs|rains)\b"
    r"|\b(?:gibt|ist|wird|geht|regnet|war|kostet) (?:es|sie)\b"
    # "Habt ihr", and "Sie" as a form of address.
    r"|\b(?:\w+t|ob|wann|wo|wie|dass|wenn) ihr\b|(?<=\s)(?-i:Sie|Ihnen)\b",
    re.IGNORECASE,
)
HAVE_DONE = re.compile(r" (?:hast|haben|habt|worden ist|ist)$", re.IGNORECASE)
WHETHER_CLAUSE = re.compile(r"\b(?:if|whether|ob)\b (.+)", re.IGNORECASE)
SPEAKS_OF_EARLIER = re.compile(
    r"(?:it|they|that|this|there|he|she|not|none|nothing|nobody|no|any|we|you|one|so|yes|es|das|er|sie|dies|ja"
    r"|nein|nicht|kein\w*"
    r"|niemand|nichts|man|welche)\b|\S+$|(?:more|less|fewer|above|below|over|under|at|mehr|weniger|über|unter)\b",
    re.IGNORECASE,
)
_SO = re.compile(rf"(?:{alternatives('request.so')})", re.IGNORECASE)
_BARE_SO = re.compile(r"(?:so|not|yes|no|ja|nein|nicht|doch)\b,? +", re.IGNORECASE)
BARE_NO = frozenset({"not", "no", "nein", "nicht"})
_DENIED = re.compile(r"\b(?:not|no|none|nein|nicht)\b|n't\b", re.IGNORECASE)


def is_so(clause: str) -> bool:
    """Return whether a clause only says that what was asked before is so, or is not."""
    return _SO.fullmatch(clause.strip(" .,;!?").replace("’", "'")) is not None


def bare_so(clause: str) -> int:
    """Return where the request begins in "not put me on the list": after the word that is the whole condition."""
    match = _BARE_SO.match(clause)
    return match.end() if match and opens_request(clause[match.end() :], first=False) else 0


def denies(clause: str) -> bool:
    """Return whether a clause has a negation."""
    return _DENIED.search(clause.replace("’", "'")) is not None


def refers(text: str) -> bool:
    return REFERS.search(_DUMMY.sub("", text)) is not None


# Something is left out after a number: "take two", "welche bestellen", "buy three of them".
_COUNTS = re.compile(
    rf"\b(?:\d+|{'|'.join(NUMBER_WORDS)}|some|any|another|more|welche|einige|mehr)"
    r"(?=[.,;!?]*$| of them\b| davon\b| dazu\b| [a-zäöü]+en[.,;!?]*$)",
    re.IGNORECASE,
)


def leaves_out(text: str) -> bool:
    """Return whether a request counts something that only the part before names."""
    return _COUNTS.search(text) is not None


AND = re.compile(r"^(?:and|und)\s+", re.IGNORECASE)
_FIRST_WORD = re.compile(r"(?:(?:please|bitte|could you|can you|kindly|there)\s+)*\S+\s+", re.IGNORECASE)


def resolved(text: str, before: str, *, statement: bool = False) -> str:
    """Return a text with the object of the part before in the place of the pronoun; of a *statement*, its subject."""
    whether = WHETHER_CLAUSE.search(before)
    if whether or statement or before.rstrip().endswith("?"):
        clause = whether[1] if whether else before
        thing = _PREDICATE.split(_ASKED_WORDS.sub("", clause), maxsplit=1)[0].strip(" .?!")
    else:
        verb = _FIRST_WORD.match(before)
        thing = before[verb.end() :].strip(" .?!") if verb else ""
    if not thing or REFERS.fullmatch(thing) or thing.casefold() == "one":
        return ""
    if leaves_out(text):
        return _COUNTS.sub(lambda match: f"{match[0]} {thing}", _OF_THEM.sub("", text).strip(), count=1)
    return REFERS.sub(lambda _: thing, text, count=1) if REFERS.search(text) else ""


# What comes before the subject of a question: "are there any", "do you have", "gibt es noch".
_ASKED_WORDS = re.compile(rf"^(?:(?:{alternatives('request.asked_words')})\s+)+", re.IGNORECASE)
# What is asked about the subject of a clause begins here.
_PREDICATE = re.compile(rf"\s(?:{alternatives('request.predicate')})\b", re.IGNORECASE)
_OF_THEM = re.compile(r"(?:\bof them|\bdavon|\bdazu)\b", re.IGNORECASE)


class Chunk(NamedTuple):
    """A piece of a sentence, and what stands before it: a comma, `and`, a semicolon, the start, or nothing."""

    joint: str
    text: str
    mark: str = " "
    """The joint as it was written: ", ", " oder "."""


_QUOTED = re.compile(r"“[^”]{1,500}”|„[^“”]{1,500}[“”]|\"[^\"]{1,500}\"|«[^»]{1,500}»|`[^`]{1,500}`")
_ANY_WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")
_JOINT = re.compile(
    r"(?P<comma>,)?\s+(?P<and>(?:and|und|but|aber|or|oder|plus|sowie|et|y),?\s+)"
    r"|(?P<only>,)\s+|\s+[–—]\s+|(?<=\w)(?P<colon>:)\s+"
    # Before these a new clause begins, with or without a comma.
    r"|\s+(?=(?:(?:but\s+)?only\s+)?(?:if|unless|in case|provided|providing|assuming|as long as"
    r"|once(?! (?:more|again|a|an|per|every|or)\b)|as soon as|when|falls|wenn|sofern|sobald"
    r"|except if)\b)|\s+(?=(?:then|before|after|otherwise)\s)",
    re.IGNORECASE,
)


def chunks(sentence: str) -> Iterator[Chunk]:
    """Split a sentence where a clause may begin; words that only open one stay with it."""
    lead: Chunk | None = None
    for chunk in _pieces(sentence):
        joined = chunk if lead is None else lead._replace(text=f"{lead.text.strip()} {chunk.text}")
        marks = marks_of(joined.text, first=True)
        # "Es sei denn, er kommt": the comma stands before the clause.
        opens = marks.opener in {"", "if", "unless"} and marks.text.strip(" ,").casefold() in _ONLY_OPENS
        lead = joined if opens else None
        if lead is None:
            yield joined
    if lead is not None:
        yield lead


_ONLY_OPENS = frozenset({"", "only", "but only", "nur", "erst"})


def _pieces(sentence: str) -> Iterator[Chunk]:
    """Split a sentence at each joint; what is quoted stays whole."""
    masked = _QUOTED.sub(lambda match: "\ue001" * len(match[0]), sentence)
    start, joint, mark = 0, "start", " "
    for joint_match in _JOINT.finditer(masked):
        before = sentence[start : joint_match.start()]
        # A colon after a request opens what it is about, "tell them: call back"; after a statement, a request.
        if joint_match["colon"] and (opens_request(before) or not _asks(sentence[joint_match.end() :])):
            continue
        if before:
            yield Chunk(joint, before, mark)
            joint = ""
        comma = joint_match["comma"] or joint_match["only"] or joint_match["colon"]
        joint = "and" if joint_match["and"] else "comma" if comma else joint
        start, mark = joint_match.end(), joint_match[0]
    if sentence[start:].strip():
        yield Chunk(joint, sentence[start:], mark)


def _asks(text: str) -> bool:
    """Return whether the first clause of a text is a request."""
    return opens_request(marks_of(text.split(",", 1)[0], first=False).text)


def count_words(text: str) -> int:
    return len(_ANY_WORD.findall(text))


class Marks(NamedTuple):
    """What the opening words of a clause say about it."""

    text: str
    order: str = ""
    """`then`, `last`, `before`, or nothing."""
    opener: str = ""
    """`if`, `unless`, `once`, `after`, `before`, `otherwise`, `so`, or nothing."""
    opening_words: str = ""
    """The opening words of a condition."""
    anyway: bool = False
    also: bool = False


_ORDERS = (("then", THEN), ("last", LAST), ("before", BEFORE), ("first", FIRST))
_OPENERS = (
    ("after", AFTER_DOING),
    ("before", BEFORE_DOING),
    ("unless", UNLESS),
    ("if", IF),
    ("if", SHOULD),
    ("once", ONCE),
    ("otherwise", OTHERWISE),
    ("so", IN_THAT_CASE),
    ("if", GIVEN),
)


def _first(patterns: Sequence[tuple[str, re.Pattern[str]]], text: str) -> tuple[str, re.Match[str]] | None:
    """Return the name and match of the first pattern with which a text begins."""
    for name, pattern in patterns:
        if match := pattern.match(text):
            return name, match
    return None


def marks_of(text: str, *, first: bool) -> Marks:
    """Take the words that say when, in which order and under which condition off the front of a clause."""
    read = Marks(text.strip())
    while True:
        rest = read.text
        anyway = ANYWAY.match(rest)
        if anyway:
            read = read._replace(text=rest[anyway.end() :], anyway=True)
            continue
        order = _first(_ORDERS, rest)
        if order is not None and not read.order:
            name, match = order
            # "The first one": an order only if something to do follows.
            read = read._replace(text=rest[match.end() :], order="before" if name == "first" and not first else name)
            continue
        if (hence := HENCE.match(rest)) and opens_request(rest[hence.end() :], first=False):
            read = read._replace(text=rest[hence.end() :])
            continue
        if (also := ALSO.match(rest)) and not read.also:
            read = read._replace(text=rest[also.end() :], also=True)
            continue
        opener = _first(_OPENERS, rest)
        if opener is not None:
            name, match = opener
            read = read._replace(text=rest[match.end() :], opener=name, opening_words=match[0].strip(" ,"))
        return read
