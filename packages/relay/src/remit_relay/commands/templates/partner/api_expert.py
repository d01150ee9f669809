"""The agent that Bob shares: it knows a few things about his API."""

from remit import Brief

KNOWN = {
    "login": "Only `/health` and `/login` need none. Everything else answers 401 without a token.",
    "deleted": "Its tokens live on until they expire, for a day at most. We know that this is too long.",
    "revoked": "Yes: `DELETE /tokens/{id}`, since last week.",
    "limit": "A token may send 100 requests a minute. After that: 429, with `Retry-After`.",
    "hello": "Hello! Ask me about logins, tokens or limits of Bob's API.",
}


async def answer(brief: Brief) -> str:
    """Answer by the first word that is known."""
    brief.spend(prompt=len(brief.text) // 4, estimated=True)
    text = brief.text.lower()
    return next(
        (message for word, message in KNOWN.items() if word in text), "That I do not know. Ask about logins or tokens."
    )
