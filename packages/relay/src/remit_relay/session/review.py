"""The rules of `semi_auto`: when a person reviews a draft before it is sent, each with its reason (S6).

No reason quotes the draft beyond the host name of a link: the draft may contain secrets, and reasons are recorded.
"""

import re
from collections.abc import Callable
from typing import Annotated
from unicodedata import category, normalize

from msgspec import Meta, Struct

from remit.policy.verdict import Detector
from remit.words.components import words_of
from remit.words.numbers import figures
from remit_relay.bridge.ports import Draft, ReviewRule

RULES: dict[ReviewRule, str] = {
    "low_confidence": "The agent is less sure of its draft than you want it to be, or does not say how sure it is.",
    "first_contact": "Nothing was sent to this device for this profile before.",
    "money": "The draft names an amount of money, speaks of paying, or holds a card, account or wallet number.",
    "credentials": "The draft holds what looks like a password, key or token.",
    "personal_data": "The draft holds what looks like personal data: an address, a telephone number, an account.",
    "links": "The draft holds a link.",
    "large_edit": "The draft is unusually long, or carries code, a patch or encoded data.",
    "off_objective": "The draft shares few words with the objective and with what the remote agent said last.",
    "attachments": "The message carries files.",
}
"""Every rule, in the order of evaluation, with its description for users."""


class ReviewRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings of the rules in a profile."""

    off: frozenset[ReviewRule] = frozenset()
    """Disabled rules."""
    min_confidence: Annotated[float, Meta(ge=0, le=1)] = 0.7
    # A third of the 12,000 characters that a draft may have: two printed pages.
    max_chars: Annotated[int, Meta(ge=1)] = 4_000
    min_shared_words: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """The share of a draft's content words that must occur in the objective or in the last reply."""


class ReviewFacts(Struct, frozen=True, kw_only=True):
    """The context of a review besides the draft."""

    objective: str
    remote_message: str = ""
    first_contact: bool
    """Whether this profile has sent nothing to this device before, in this run or in any other."""
    detect: Detector
    """Finds personal data and secrets, as `remit_redaction.pipeline` does."""
    attachments: bool = False
    """Whether the message may carry files."""


class Review(Struct, frozen=True, kw_only=True):
    """A rule that asks for a review, and why."""

    rule: str
    why: str


def reviews(draft: Draft, facts: ReviewFacts, rules: ReviewRules = ReviewRules()) -> tuple[Review, ...]:  # noqa: B008 (it is frozen)
    """Return the rules that ask for a review, in the order of `RULES`; if none, the draft may be sent."""
    look = _Look(draft, facts, rules)
    reasons = ((rule, _ASKED[rule](look)) for rule in RULES if rule not in rules.off)
    return tuple(Review(rule=rule, why=why) for rule, why in reasons if why)


class _Look:
    """A draft with values that several rules need, computed once."""

    def __init__(self, draft: Draft, facts: ReviewFacts, rules: ReviewRules) -> None:
        self.draft, self.facts, self.rules = draft, facts, rules
        self.text = _plain(draft.text)
        self.kinds = sorted({finding.kind for finding in facts.detect(draft.text)})

    def named(self, kinds: list[str]) -> str:
        """Return what was found, by kind only."""
        return f"It seems to hold: {', '.join(kind.lower().replace('_', ' ') for kind in kinds)}." if kinds else ""


def _plain(text: str) -> str:
    """Return a normalised text: full-width letters replaced, and invisible characters removed."""
    return "".join(char for char in normalize("NFKC", text) if category(char) != "Cf")


# ── agent and peer ────────────────────────────────────────────────────────────────────────────────────────────────────


def _low_confidence(look: _Look) -> str:
    sure, least = look.draft.confidence, look.rules.min_confidence
    if sure is None:
        return "The agent did not say how sure it is."
    # Written so that NaN asks too.
    return "" if sure >= least else f"The agent is sure to {sure:.2f}, and {least:.2f} is wanted."


def _first_contact(look: _Look) -> str:
    return "Nothing was sent to this device before." if look.facts.first_contact else ""


def _attachments(look: _Look) -> str:
    return "The message carries files." if look.facts.attachments else ""


# ── harmful content ───────────────────────────────────────────────────────────────────────────────────────────────────

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
    if any(map(_is_amount, figures().finditer(look.text))):
        return "It names an amount of money."
    return "It speaks of paying." if _PAYING.search(look.text) else ""


def _is_amount(match: re.Match[str]) -> bool:
    return bool(match["before"]) or (match["unit"] or "").strip(" -").lower() in _CURRENCIES


def _credentials(look: _Look) -> str:
    return look.named([kind for kind in look.kinds if kind in CREDENTIALS])


def _personal_data(look: _Look) -> str:
    """All findings that are not credentials, including kinds of a user's own detector."""
    return look.named([kind for kind in look.kinds if kind not in CREDENTIALS])


# All repetitions are bounded, so that no text can make the match slow.
_LINK = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,20}://(?P<host>[^\s/?#<>\"'`)\]}]{0,300})"
    r"|\b(?P<scheme>mailto|tel|data|javascript|file):(?=\S)"
    r"|(?<![\w@.-])(?P<bare>www\.(?:[\w-]{1,63}\.){0,8}[\w-]{1,63}"
    # Names without a scheme: only endings that are not file extensions (`setup.py`, `notes.md`).
    r"|(?:[\w-]{1,63}\.){1,8}(?:com|org|net|edu|gov|info|biz|xyz|dev|app|io|ai|co|me|ly|gl|eu|uk|de|fr|ch|ru|cn))"
    r"(?![\w-])",
    re.IGNORECASE,
)


def _links(look: _Look) -> str:
    places = list(dict.fromkeys(map(_link_target, _LINK.finditer(look.text))))
    if not places:
        return ""
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return f"It links to {places[0]}{more}."


def _link_target(match: re.Match[str]) -> str:
    if match["scheme"]:
        return f"a {match['scheme'].lower()}: address"
    # The part before an @ is a user name and a password.
    host = (match["bare"] or match["host"]).rpartition("@")[2].lower()
    return host[:60] or "an unnamed place"


# ── form and topic ────────────────────────────────────────────────────────────────────────────────────────────────────

_FENCE = re.compile(r"^[ \t]{0,3}(?:```|~~~)", re.MULTILINE)
_PATCH = re.compile(r"^(?:diff --git |@@ -\d{1,9}|--- a/|\+\+\+ b/|Index: )", re.MULTILINE)
# A run without spaces that is longer than addresses and names: base64, hexadecimal, minified code.
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


# Shorter texts have no topic: "Thank you, please go on."
_FEWEST_WORDS = 5
# The letters of a word that are compared, which drops the endings of most languages.
_STEM = 5
# Scripts without spaces, where two letters count as a word.
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
    """Return the stems of the content words of a text."""
    stems: set[str] = set()
    for word in _WORD.findall(text.casefold()):
        if _IS_UNSPACED(word):
            stems.update(word[place : place + 2] for place in range(max(1, len(word) - 1)))
        elif word not in _SAYING_NOTHING:
            stems.add(word[:_STEM])
    return stems


_ASKED: dict[ReviewRule, Callable[[_Look], str]] = {
    "low_confidence": _low_confidence,
    "first_contact": _first_contact,
    "money": _money,
    "credentials": _credentials,
    "personal_data": _personal_data,
    "links": _links,
    "large_edit": _large_edit,
    "off_objective": _off_objective,
    "attachments": _attachments,
}
