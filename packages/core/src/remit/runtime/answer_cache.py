"""Cached answers, and equal requests in flight: each is executed once."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from remit.policy.breaker import is_failure
from remit.policy.reception import is_new, peer_of
from remit.policy.restoring import restore
from remit.protocol.card import AgentCard
from remit.protocol.codec import encode
from remit.protocol.envelope import VERSION, Json, Request, Response, Usage, View
from remit.protocol.errors import Code, Fault, fault
from remit.protocol.lifecycle import Status

# Answers are kept in memory: a thousand of the usual few kilobytes take less than a hub itself.
MOST_ANSWERS = 1_000
MOST_BYTES = 16 * 2**20

moment = count(1).__next__
"""Returns a number above all earlier ones, to order answers and changes independently of the clock."""


class Lookup:
    """The cache key of an answer, how long it is valid, and the delegation's part in it."""

    __slots__ = ("begun", "follows", "in_session", "key", "leads", "likeness", "own", "public", "scoped", "ttl_ms")

    def __init__(
        self,
        key: bytes,
        ttl_ms: int,
        *,
        public: bool,
        scoped: bool,
        in_session: bool = False,
        likeness: bytes | None = None,
    ) -> None:
        self.key = key
        self.in_session = in_session
        """Whether there is an earlier conversation to read: an answer made from it is valid only this time."""
        self.likeness = likeness
        """The key shared by requests that ask the same in other words; None: only equal requests match."""
        self.ttl_ms = ttl_ms
        self.public = public
        self.scoped = scoped
        """Whether only this run can use the answer, because the request held redacted values."""
        self.begun = 0
        """The moment at which its execution began."""
        self.leads = False
        """Whether others wait for its answer."""
        self.follows = False
        """Whether another delegation executed it, so that its end says nothing about the callee."""
        self.own = False
        """Whether the answer is for this request alone, because its callee has read data outside the key."""


class CachedAnswer(NamedTuple):
    """A cached answer, redacted."""

    response: Response
    begun: int
    """The moment at which its execution began: it does not reflect later changes."""
    until: float
    size: int
    likeness: bytes | None


Landing = Response | Code | None
"""The outcome of a request that others wait for: an answer for all, a failure for all, or nothing for anyone else."""


class Flight(NamedTuple):
    """A request that others can wait for, and the moment at which it began."""

    landed: asyncio.Future[Landing]
    begun: int


def lookup(
    request: Request,
    clean: Request,
    card: AgentCard,
    *,
    known: dict[str, str | int],
    generation: int,
    digest: Callable[[bytes], bytes],
    gist: Callable[[str], Json],
) -> Lookup | None:
    """Return the cache key of a request; None if its answer may not be cached.

    *request* is the original, *clean* what the callee gets, *known* the tokens of its run. Texts with the same
    *gist* ask for the same. A request that shows
    messages of a conversation equals no other; one that continues a session equals only others of the same session with
    the same notes.
    """
    capability = card.capability(request.capability) if request.capability is not None else None
    if capability is None or not capability.read_only or not capability.cache_ms:
        return None
    if request.hints or not _is_empty(clean.view):
        return None
    goes_on = request.session not in (None, request.path) and not is_new(request)
    remit = clean.remit
    texts = [clean.objective, clean.input, _handed_over(clean), _notes(clean), *clean.files]
    scoped = bool(known) and restore(texts, known) != texts
    around = (
        generation,
        card.name,
        card.version,
        capability.code,
        capability.version,
        None if capability.public else remit.user,
        peer_of(request),  # what is said to an agent of this hub may not be meant for another organisation
        remit.tools,
        None if remit.targets is None else sorted(remit.targets),
        remit.may_delegate,
        (request.reason, request.refined_by),
        request.run if scoped else None,
        request.session if goes_on else None,
    )
    handed_over = _handed_over(request)
    key = digest(encode((around, (request.objective, request.input, handed_over, *request.files), texts)))
    likeness = None
    if capability.cache_similar:
        alike = (_alike(request, gist), _alike(clean, gist), handed_over, *request.files)
        likeness = digest(encode(("like", around, *alike, texts[2:])))
    in_session = goes_on or (request.handoff is not None and request.handoff.history is not None)
    return Lookup(
        key, capability.cache_ms, public=capability.public, scoped=scoped, in_session=in_session, likeness=likeness
    )


def _is_empty(view: View | None) -> bool:
    """Return whether a callee is shown nothing of a conversation."""
    return view is None or not (view.messages or view.summary or view.workspace or view.seen)


def _notes(request: Request) -> Json:
    return None if request.view is None else msgspec.to_builtins(request.view.known)


def _handed_over(request: Request) -> Json:
    """Return the part of a handoff that an answer may depend on: neither its place in the work nor its conversation."""
    handoff = request.handoff
    return None if handoff is None else msgspec.to_builtins(replace(handoff, history=None, position=""))


def _alike(request: Request, gist: Callable[[str], Json]) -> tuple[Json, Json]:
    """Return the key shared by requests that ask for the same; only texts can do so in other words."""
    return gist(request.objective), gist(request.input) if isinstance(request.input, str) else [request.input]


def landing(wanted: Lookup, response: Response, known: dict[str, str | int], *, session_read: bool = False) -> Landing:
    """Return the redacted response that others get; *known* are the tokens of its run.

    *session_read* says that it was made with earlier messages or state of its session.
    """
    if wanted.own:
        return None
    if response.status is not Status.SUCCESS:
        why = response.fault
        # A timeout or a cancellation concerns one caller only; another may have more time.
        return why.code if why is not None and is_failure(response) and why.code is not Code.TIMEOUT else None
    if wanted.in_session and session_read:
        return None  # the next time there is more to read
    if wanted.public and (response.new_facts or response.sources):
        return None  # these belong to one user
    # A token means nothing in another run.
    return response if wanted.scoped or not known or restore(response, known) is response else None


def answered_before(request: Request, response: Response, cache: Literal["hit", "similar"] = "hit") -> Response:
    """Return a cached answer as the answer to this request; it costs nothing."""
    return replace(
        response,
        id=request.id,
        run=request.run,
        session=request.session,
        usage=Usage(),
        duration_ms=0,
        queued_ms=0,
        waited_ms=0,
        tool_calls=(),
        cache=cache,
    )


def failed_beside(request: Request, code: Code) -> Response:
    """Return the failure of an equal request as the failure of this one, without details of the other."""
    why: Fault = fault(code, f"{request.target} failed on an equal request, whose outcome this one shares")
    return Response(
        version=VERSION,
        id=request.id,
        target=request.target,
        status=Status.FAILED,
        run=request.run,
        session=request.session,
        fault=why,
        cache="hit",
    )


class Cache:
    """Recent answers, least recently used dropped first, and requests in flight."""

    def __init__(self, most: int = MOST_ANSWERS, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self.generation = 0
        """How often the cache was cleared: keys from before a clear do not match later ones."""
        self._kept: OrderedDict[bytes, CachedAnswer] = OrderedDict()
        self._alike: dict[bytes, bytes] = {}
        """The key of the newest request among those that ask for the same, by their shared key."""
        self.flights: dict[bytes, Flight] = {}

    def get(self, key: bytes, now: float, changed: int = 0) -> Response | None:
        """Return a valid cached answer, if there is one; none from before the moment *changed*."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        if now >= kept.until:
            self._forget(key)
            return None
        if kept.begun < changed:
            return None
        self._kept.move_to_end(key)
        return kept.response

    def get_alike(self, likeness: bytes, now: float, changed: int = 0) -> Response | None:
        """Return a valid cached answer to a request for the same in other words, if there is one."""
        key = self._alike.get(likeness)
        return None if key is None else self.get(key, now, changed)

    def put(self, key: bytes, response: Response, until: float, likeness: bytes | None = None, begun: int = 0) -> None:
        """Cache an answer unless it is too large by itself; the oldest answers make room."""
        size = len(encode(response))
        self._forget(key)
        if size > self._most_bytes:
            return
        self._kept[key] = CachedAnswer(response, begun, until, size, likeness)
        if likeness is not None:
            self._alike[likeness] = key
        self._bytes += size
        while len(self._kept) > self._most or self._bytes > self._most_bytes:
            self._forget(next(iter(self._kept)))

    def clear(self) -> None:
        """Remove all answers."""
        self.generation += 1
        self._kept.clear()
        self._alike.clear()
        self._bytes = 0

    def _forget(self, key: bytes) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self._bytes -= kept.size
            if kept.likeness is not None and self._alike.get(kept.likeness) == key:
                del self._alike[kept.likeness]
