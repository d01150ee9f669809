"""A request as it is sent to a hub: by another hub, or by a client with a few fields."""

from remit.protocol.envelope import USER, VERSION, AssignmentOptions, BoundedAssignment, View
from remit.protocol.remit import Chain, Count, Name, Remit


class Submission(BoundedAssignment, frozen=True, kw_only=True):
    """A request that is still to be received; every `Request` reads as one.

    A hub sends its remit. A client has none: it names the user, and the limits that it wants; the hub's defaults apply
    to the rest.
    """

    target: Name
    version: str = VERSION
    id: Name | None = None
    """The sender's own id: if it is sent again with the same content, it is executed once. None: every
    submission is new.
    """
    origin: Name = USER
    user: Name | None = None
    remit: Remit | None = None
    depth: Count = 0
    """The depth of the callee, from a sender without a remit; never less than the length of its chain."""
    chain: Chain = ()
    run: Name = ""
    parent: Name | None = None
    parent_session: Name | None = None
    created_ms: Count | None = None
    view: View | None = None
    traceparent: str | None = None
    handover: Name | None = None
    """Who is to answer: an agent that the target may hand the conversation over to, or the target itself. None: whoever
    is in charge of the session."""
    via: Name | None = None


class AskOptions(AssignmentOptions, total=False):
    """The options of a request besides agent, text and user."""

    request_id: str | None
    """An id of your own: a request that is repeated with it is answered once. None: a new one."""
    traceparent: str | None
    """The place in a trace that your program began (W3C)."""
    handover: str | None
    """The agent that is to answer: one that the agent may hand the conversation over to, or the agent itself. None:
    whoever is in charge of the session."""
