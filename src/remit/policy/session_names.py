"""The names of a peer's sessions here and at the peer.

A peer's session ids are its own: here they end with `@` and the peer's name, so that no peer can name a session of
another peer or of a local user. A peer may send an id with or without that ending, and always gets its own form back.
"""

from msgspec.structs import replace

from remit.protocol.envelope import Request, Response


def here(session: str, peer: str) -> str:
    """Return this hub's name of a session that *peer* names; adding the ending twice changes nothing."""
    return f"{there(session, peer)}@{peer}"


def there(session: str, peer: str) -> str:
    """Return *peer*'s name of a session of this hub."""
    return session.removesuffix(f"@{peer}") or session  # no name is empty


def of_agent(session: str, agent: str) -> str:
    """Return the name of an agent's own part of a shared session; applying it twice changes nothing."""
    return f"{session.removesuffix(f'/{agent}')}/{agent}"


def peer_of(request: Request) -> str | None:
    """Return the peer that sent a request; None for a user's, a client's, and a local one."""
    return request.via if request.via is not None and request.origin.endswith(f"@{request.via}") else None


def speaker_of(request: Request) -> str:
    """Return who speaks in a root request, as in notes: empty for a user, else the peer's agent."""
    return "" if peer_of(request) is None else request.origin


def is_new(request: Request) -> bool:
    """Return whether a peer names a session after the request itself: nothing was said in it before."""
    peer = peer_of(request)
    return peer is not None and request.session == here(request.id, peer)


def named_by_peer(request: Request) -> str | None:
    """Return the id, in the peer's form, of the earlier session that a request continues; None if there is none."""
    peer = peer_of(request)
    if peer is None or request.session in (None, request.run) or is_new(request):
        return None
    name = there(request.session, peer)
    return name if request.session != name else None


def with_session_of_peer(response: Response, peer: str | None) -> Response:
    """Return a response with its session in *peer*'s form; unchanged for anyone else."""
    if peer is None or response.session is None or not response.session.endswith(f"@{peer}"):
        return response
    return replace(response, session=there(response.session, peer))
