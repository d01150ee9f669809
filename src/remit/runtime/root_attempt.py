"""A root request while it is judged, until it is submitted or refused."""

from msgspec.structs import replace

from remit.protocol.envelope import Json, Request
from remit.runtime.delegation.attempt import RequestInspection
from remit.runtime.ports import SessionOwner
from remit.runtime.registry import RegisteredAgent

_NONE: frozenset[str] = frozenset()


class RootAttempt:
    """A user's request on its way to an agent."""

    __slots__ = (
        "approved",
        "content",
        "entry",
        "goes_on",
        "looked",
        "may_be_known",
        "owner",
        "questions",
        "request",
        "run",
        "session",
        "taken",
    )

    def __init__(self, request: Request, content: bytes, *, may_be_known: bool) -> None:
        self.request = request
        self.content = content
        """The digest of the request's content."""
        self.may_be_known = may_be_known
        """Whether the same request may have been submitted before: its sender chose the id."""
        self.session = request.session if request.session != request.run else None
        """The session that the sender chose; its owner may have used it before."""
        self.owner: SessionOwner | None = None
        self.taken = False
        """Whether the session was assigned to this user and agent."""
        self.goes_on = False
        """Whether it continues a conversation."""
        self.entry: RegisteredAgent | None = None
        self.approved = _NONE
        """The questions that a person has approved."""
        self.questions = 0
        self.looked: RequestInspection | None = None

    def agreed(self, question: str, edits: dict[str, Json]) -> None:
        """Note that a person agreed, and their edits.

        An approval covers what the person was shown; if another guard changes it, the person is asked again.
        """
        self.approved = (_NONE if edits else self.approved) | {question}
        self.questions += 1
        if edits:
            self.request = replace(self.request, **edits)
