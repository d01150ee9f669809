"""The agent that Bob shares: it knows a few things about his API."""

from remit import Brief

KNOWN = {
    "login": "Only /health and /login need none.",
    "deleted": "Its tokens live on until they expire, for a day at most.",
    "revoked": "Yes: DELETE /tokens/{id}, since last week.",
}


async def answer(brief: Brief) -> str:
    """Answer by the first word that is known."""
    return next((text for word, text in KNOWN.items() if word in brief.text), "That I do not know.")
