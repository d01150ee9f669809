"""Finds instructions to a model in a text that should only describe something.

It is a tripwire for a reader, and no defence: a text without such marks can still mislead a model.
"""

import re

# Written for the descriptions of tools: what real ones do not say, and published attacks do.
_MARKS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "tells the model to ignore what it was told",
        re.compile(
            r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:previous|prior|above|before|earlier|other|all)\b"
            r".{0,40}\b(?:instruction|prompt|rule|told|message|guideline)",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "hides something from the user",
        re.compile(
            r"\b(?:do not|don't|never|without)\b.{0,30}\b(?:tell|telling|mention|mentioning|inform|informing|show|"
            r"showing|reveal|revealing|notify|notifying)\b.{0,30}\b(?:user|human|person|anyone|them)\b",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "speaks as the system",
        re.compile(
            r"<\s*/?\s*(?:system|important|instructions?|secret|admin)\s*>|\[\s*(?:system|inst)\s*\]|<\|im_start\|>"
            r"|^\s*(?:system|assistant)\s*:|\bsystem prompt\b|\byou are now\b|\bnew instructions\b",
            re.IGNORECASE | re.MULTILINE,
        ),
    ),
    (
        "sends the model to secrets",
        re.compile(
            r"\.ssh\b|\bid_rsa\b|\.env\b|\bapi[ _-]?keys?\b|\bpasswords?\b|\bcredentials\.json\b|/etc/passwd",
            re.IGNORECASE,
        ),
    ),
    ("has invisible characters", re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")),
)

# What is longer is no description; it bounds the cost of a hostile one.
MAX_SCANNED = 20_000


def planted_instructions(text: str) -> tuple[str, ...]:
    """Return what is suspicious in a text of a stranger, each as the end of a sentence about it; empty: nothing."""
    text = text[:MAX_SCANNED]
    return tuple(what for what, mark in _MARKS if mark.search(text))
