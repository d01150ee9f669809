"""Conversations that a callee was given a reference to (`handoff.history`), and may therefore read.

A reference is a claim. It opens only what the caller could have shown: its own conversation, one with an agent that it
asked itself, or one that it was given a reference to. A user may name any conversation of their own, and a peer any of
its own. All of them belong to the user of the request.
"""

from msgspec.structs import replace

from remit.policy.session_names import here, peer_of
from remit.protocol.envelope import ContextFilter, Message
from remit.protocol.errors import Code, RemitError, fault
from remit.runtime.context import RuntimeContext
from remit.runtime.frames import Frame
from remit.runtime.sessions import resumed


async def referred(
    parts: RuntimeContext, frame: Frame, reference: str, wanted: ContextFilter, tokens: int
) -> list[Message]:
    """Return what was said in a conversation by its reference; raise a `RemitError` if it may not be read."""
    name, user = frame.card.name, frame.request.remit.user
    if not _is_given(frame, reference):
        raise RemitError(
            fault(
                Code.PERMISSION_DENIED,
                f"{name} was given no reference to the conversation `{reference[:100]}`",
                suggestion="Read `brief.handoff.history`; a caller can give its own session, or one of its callees'.",
            )
        )
    session = await _named_here(parts, frame, reference)
    await parts.store.flush()
    owner = await parts.store.owner(session)
    if owner is None:
        raise RemitError(fault(Code.NOT_FOUND, f"the conversation `{reference[:100]}` is not kept here", suggestion=""))
    if owner.user != user:
        why = f"User ID mismatch - security violation: the conversation `{reference[:100]}` is another user's"
        raise RemitError(fault(Code.USER_MISMATCH, why))
    return await parts.sessions.said_in(frame, session, wanted, tokens)


def _is_given(frame: Frame, reference: str) -> bool:
    """Say whether a callee was given a reference, by someone who could have shown what is there."""
    handoff, caller = frame.request.handoff, frame.parent
    if handoff is None or handoff.history != reference:
        return False
    if caller is None:
        return True
    own = caller.request.session or caller.path
    return reference == own or reference.startswith(f"{caller.path}.") or _is_given(caller, reference)


async def _named_here(parts: RuntimeContext, frame: Frame, reference: str) -> str:
    """Return what this hub calls the session: a reference that came from a peer names one of the peer's."""
    root = frame.run.request
    peer = peer_of(root)
    if peer is None or root.handoff is None or root.handoff.history != reference:
        return reference
    asked = replace(root, session=here(reference, peer))
    return (await resumed(asked, parts.store)).session or reference
