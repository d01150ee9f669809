"""When a person looks at a draft before it is sent: the rules of `semi_auto`, each with its reason (S6).

No reason quotes the draft beyond the host of a link: what asks for a review may be secret, and reasons are recorded.
"""

import re
from collections.abc import Callable
from typing import Annotated, Literal
from unicodedata import category, normalize

from msgspec import Meta, Struct

from remit.policy.verdict import Detector
from remit.relay.bridge.ports import Draft
from remit.text.sentences import FIGURE
from remit.text.vocabulary import words_of

Rule = Literal[
    "low_confidence",
    "first_contact",
    "money",
    "credentials",
    "personal_data",
    "links",
    "large_edit",
    "off_objective",
]

RULES: dict[Rule, str] = {
    "low_confidence": "The agent is less sure of its draft than you want it to be, or does not say how sure it is.",
    "first_contact": "Nothing was sent to this device for this profile before.",
    "money": "The draft names an amount of money, speaks of paying, or holds a card, account or wallet number.",
    "credentials": "The draft holds what looks like a password, key or token.",
    "personal_data": "The draft holds what looks like personal data: an address, a telephone number, an account.",
    "links": "The draft holds a link.",
    "large_edit": "The draft is unusually long, or carries code, a patch or encoded data.",
    "off_objective": "The draft shares few words with the objective and with what the remote agent said last.",
}
"""Every rule, in the order in which they are asked, and what users are told of it."""


class ReviewRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The rules as a profile wants them."""

    off: frozenset[Rule] = frozenset()
    """Rules that never ask."""
    min_confidence: Annotated[float, Meta(ge=0, le=1)] = 0.7
    # A third of the 12,000 characters that a draft may have: two printed pages.
    max_chars: Annotated[int, Meta(ge=1)] = 4_000
    min_shared_words: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Which share of a draft's telling words must stand in the objective or in the last reply."""


class ReviewFacts(Struct, frozen=True, kw_only=True):
    """What is looked at besides the draft."""

    objective: str
    remote_message: str = ""
    first_contact: bool
    """Whether this profile has sent nothing to this device before, in this run or in any other."""
    detect: Detector
    """Finds what is personal or secret, as `remit.detectors.pipeline` does."""


class Review(Struct, frozen=True, kw_only=True):
    """A rule that asks a person to look, and why."""

    rule: str
    why: str


def reviews(draft: Draft, facts: ReviewFacts, rules: ReviewRules = ReviewRules()) -> tuple[Review, ...]:  # noqa: B008 (it is frozen)
    """Return the rules that want a person to see the draft first, in the order of `RULES`; if none, it may be sent."""
    look = _Look(draft, facts, rules)
    found = ((rule, _ASKED[rule](look)) for rule in RULES if rule not in rules.off)
    return tuple(Review(rule=rule, why=why) for rule, why in found if why)


class _Look:
    """A draft with what several rules need of it, worked out once."""

    def __init__(self, draft: Draft, facts: ReviewFacts, rules: ReviewRules) -> None:
        self.draft, self.facts, self.rules = draft, facts, rules
        self.text = _plain(draft.text)
        self.kinds = sorted({finding.kind for finding in facts.detect(draft.text)})

    def named(self, kinds: list[str]) -> str:
        """Say what was found, by kind alone."""
        return f"It seems to hold: {', '.join(kind.lower().replace('_', ' ') for kind in kinds)}." if kinds else ""


def _plain(text: str) -> str:
    """Return a text as it is read: full-width letters as others, and nothing that cannot be seen."""
    return "".join(char for char in normalize("NFKC", text) if category(char) != "Cf")


# ── the agent, the other side ─────────────────────────────────────────────────────────────────────────────────────────


def _low_confidence(look: _Look) -> str:
    sure, wanted = look.draft.confidence, look.rules.min_confidence
    if sure is None:
        return "The agent did not say how sure it is."
    # Written so that what is no number asks too.
    return "" if sure >= wanted else f"The agent is sure to {sure:.2f}, and {wanted:.2f} is wanted."


def _first_contact(look: _Look) -> str:
    return "Nothing was sent to this device before." if look.facts.first_contact else ""


# ── what may do harm ──────────────────────────────────────────────────────────────────────────────────────────────────

CREDENTIALS = frozenset(["API_KEY", "PASSWORD", "BEARER_TOKEN", "URL_CREDENTIALS", "PRIVATE_KEY", "SESSION_COOKIE"])
_ACCOUNTS = frozenset(["CREDIT_CARD", "IBAN", "BTC_ADDRESS", "BANK_ACCOUNT"])
_CURRENCIES = words_of("$ € £ ¥ ₹ eur euro euros usd dollar dollars gbp pound pounds chf franc francs franken jpy yen")
_PAYING = re.compile(
    r"\b(?:pay(?!\ attention)(?:s|ing|able|ments?|pal|roll)?|paid|prepaid|invoic\w{0,4}|refund\w{0,5}|purchas\w{0,4}"
    r"|buy(?:s|ing)?|bought|pric(?:es?|ed|ing)|fees?|salar(?:y|ies)|(?:wire|bank)[ -](?:transfers?|accounts?)|deposits?"
    r"|checkout|subscri(?:be|ptions?)|loans?|credit[ -]cards?|debit[ -]cards?|bitcoins?|btc|eth|crypto|wallets?"
    r"|zahl(?:en|t|ung(?:en)?)|bezahl\w{0,5}|rechnung(?:en)?|überweis\w{0,5}|kauf(?:en|t|e)?|preise?|gebühr(?:en)?"
    r"|kosten|honorar)\b",
    re.IGNORECASE,
)


def _money(look: _Look) -> str:
    if accounts := look.named([kind for kind in look.kinds if kind in _ACCOUNTS]):
        return accounts
    if any(map(_is_amount, FIGURE.finditer(look.text))):
        return "It names an amount of money."
    return "It speaks of paying." if _PAYING.search(look.text) else ""


def _is_amount(found: re.Match[str]) -> bool:
    return bool(found["before"]) or (found["unit"] or "").strip(" -").lower() in _CURRENCIES


def _credentials(look: _Look) -> str:
    return look.named([kind for kind in look.kinds if kind in CREDENTIALS])


def _personal_data(look: _Look) -> str:
    """Whatever a detector finds that is no credential: also kinds that only a user's own detector knows."""
    return look.named([kind for kind in look.kinds if kind not in CREDENTIALS])


# Every step is bounded, so that a text that was made to be slow costs what any other of its length does.
_LINK = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,20}://(?P<host>[^\s/?#<>\"'`)\]}]{0,300})"
    r"|\b(?P<scheme>mailto|tel|data|javascript|file):(?=\S)"
    r"|(?<![\w@.-])(?P<bare>www\.(?:[\w-]{1,63}\.){0,8}[\w-]{1,63}"
    # Names without a scheme: of the endings only those that no file has (`setup.py`, `notes.md`).
    r"|(?:[\w-]{1,63}\.){1,8}(?:com|org|net|edu|gov|info|biz|xyz|dev|app|io|ai|co|me|ly|gl|eu|uk|de|fr|ch|ru|cn))"
    r"(?![\w-])",
    re.IGNORECASE,
)


def _links(look: _Look) -> str:
    places = list(dict.fromkeys(map(_place, _LINK.finditer(look.text))))
    if not places:
        return ""
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f"It links to {places[0]}{more}."


def _place(found: re.Match[str]) -> str:
    if found["scheme"]:
        return f"a {found['scheme'].lower()}: address"
    # Before an @ stand a name and a password.
    host = (found["bare"] or found["host"]).rpartition("@")[2].lower()
    return host[:60] or "an unnamed place"


# ── what it is ────────────────────────────────────────────────────────────────────────────────────────────────────────

_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)", re.MULTILINE)
_PATCH = re.compile(r"^(?:diff --git |@@ -\d{1,9}|--- a/|\+\+\+ b/|Index: )", re.MULTILINE)
# A row without a space that is longer than addresses and names are: base64, hexadecimal, minified code.
_ENCODED = re.compile(r"[!-~]{400}")


def _large_edit(look: _Look) -> str:
    text, most = look.draft.text, look.rules.max_chars
    if len(text) > most:
        return f"It has {len(text):,} characters, more than {most:,}."
    if _FENCE.search(text):
        return "It carries a block of code."
    if _PATCH.search(text):
        return "It carries a patch."
    return "It carries encoded data." if _ENCODED.search(text) else ""


# Less says too little to be about anything: "Thank you, please go on."
_FEWEST_WORDS = 5
# So many letters of a word, and the endings of most languages are left away.
_STEM = 5
# Scripts without spaces, where two letters are taken for a word.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_UNSPACED}]+|[^\W\d_{_UNSPACED}]{{3,}}")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]").match
_SAYING_NOTHING = words_of("""
    about after again all also and any are back because been before being both but can could dear did does done each
    for from further get give given good had has have hello her here his how into its just know let like make many may
    more most much need not now off one only other our out over please regards same see shall she should show some
    such sure tell than thank thanks that the their them then there these they this those through too two under until
    use very via want was well were what when where whether which while who why will with would yes yet you your
    aber auch auf aus bei bitte danke dann das dass dem den der des die diese doch durch ein eine einem einen einer
    eines für haben hat ich ihr ihre ist kann kein keine können man mehr mir mit nach nicht noch nur oder sich sie sind
    sowie über und uns unter vom von war was wenn wer werden wie wir wird zum zur
""")


def _off_objective(look: _Look) -> str:
    words = _telling(look.text)
    if len(words) < _FEWEST_WORDS:
        return ""
    shared = len(words & _telling(_plain(f"{look.facts.objective}\n{look.facts.remote_message}")))
    if shared >= look.rules.min_shared_words * len(words):
        return ""
    return f"Of its {len(words)} telling words {shared} also stand in the objective or in the last reply."


def _telling(text: str) -> set[str]:
    """Return the stems of the words of a text that say what it is about."""
    found: set[str] = set()
    for word in _WORD.findall(text.casefold()):
        if _IS_UNSPACED(word):
            found.update(word[place : place + 2] for place in range(max(1, len(word) - 1)))
        elif word not in _SAYING_NOTHING:
            found.add(word[:_STEM])
    return found


_ASKED: dict[Rule, Callable[[_Look], str]] = {
    "low_confidence": _low_confidence,
    "first_contact": _first_contact,
    "money": _money,
    "credentials": _credentials,
    "personal_data": _personal_data,
    "links": _links,
    "large_edit": _large_edit,
    "off_objective": _off_objective,
}
