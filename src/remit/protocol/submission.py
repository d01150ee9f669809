"""A request as it is sent to a hub: by another hub, or by a client with a few fields."""

from msgspec import Struct

from remit.protocol.envelope import USER, VERSION, ContextFilter, Handoff, Json, Text, View
from remit.protocol.files import Files
from remit.protocol.remit import Chain, Count, Name, Names, Priority, Remit


class Submission(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
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
    max_tokens: Count | None = None
    deadline_ms: Count | None = None
    max_depth: Count | None = None
    depth: Count = 0
    """The depth of the callee, from a sender without a remit; never less than the length of its chain."""
    chain: Chain = ()
    context_tokens: Count | None = None
    tools: Names | None = None
    targets: Names | None = None
    may_delegate: bool = True
    priority: Priority | None = None
    objective: Text = ""
    input: Json = None
    capability: Name | None = None
    run: Name = ""
    parent: Name | None = None
    session: Name | None = None
    parent_session: Name | None = None
    handoff: Handoff | None = None
    context: ContextFilter | None = None
    view: View | None = None
    hints: tuple[str, ...] = ()
    reason: str = ""
    refined_by: Name | None = None
    correlation: str | None = None
    retry_of: Name | None = None
    created_ms: Count | None = None
    traceparent: str | None = None
    via: Name | None = None
    files: Files = ()
    """Files for the callee: their content as base64, or a URL that nobody here fetches."""
