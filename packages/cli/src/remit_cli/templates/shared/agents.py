"""The agent that this team shares: a plain function. Put a model or a web service behind it whenever you like."""

from remit import Brief

ENDPOINTS = {"/health": "no login", "/orders": "a login", "/admin": "a login and the role admin"}


async def expert(brief: Brief) -> str:
    """Say which endpoints a question is about, and what each needs."""
    endpoints = [path for path in ENDPOINTS if path.strip("/") in brief.text.lower()]
    return "; ".join(f"{path} needs {ENDPOINTS[path]}" for path in endpoints or ENDPOINTS)
