"""The state of each message that a run sends: from the outbox of this device to its answer.

    waiting ──▶ taken ──▶ delivered ──▶ read ──▶ answered
       └──────────┴─▶ failed

A message is `waiting` in the outbox of this device, `taken` once the gateway has stored it, `delivered` once the other
device has it, and `read` once the shared agent was given it. A later state implies the earlier ones, so states may be
skipped, and they never go back. A message that the gateway deleted has `failed`; this device still holds it, so it may
be delivered later. One that was refused, or whose agent failed, has `failed` for good.

Pure: no clock, file or task.
"""

from itertools import pairwise

from msgspec.structs import replace

from remit_relay.session.run import DeliveryState, MessageProgress, Overlay, TimelineEntry

_ORDER: dict[DeliveryState, int] = {
    state: place for place, state in enumerate(("waiting", "taken", "failed", "delivered", "read", "answered"))
}
_FOLLOWED = frozenset[DeliveryState]({"waiting", "taken", "failed"})


def released(run: Overlay, message: str, sealed: str, now_ms: int) -> Overlay:
    """Return the run after its message was sealed under the id *sealed*."""
    return _changed(run, message, MessageProgress(state="waiting", since_ms=now_ms, sealed=sealed))


def progressed(run: Overlay, message: str, state: DeliveryState, now_ms: int, why: str = "") -> Overlay:
    """Return the run after its message has reached a state; the same run if that is not news."""
    entry = _entry(run, message)
    was = None if entry is None else entry.delivery
    if was is None or _ORDER[state] <= _ORDER[was.state]:
        return run
    return _changed(run, message, replace(was, state=state, since_ms=now_ms, why=why))


def followed(run: Overlay) -> TimelineEntry | None:
    """Return the last message of a run, if it has no answer and the other device has not said that it has it.

    A run sends nothing more before the answer, so there is never a second one.
    """
    entry = None if run.asked is None else _entry(run, run.asked)
    if entry is None or entry.delivery is None or entry.delivery.state not in _FOLLOWED:
        return None
    return entry


def expired(run: Overlay, until_ms: int, why: str, now_ms: int) -> Overlay:
    """Return the run after the gateway deleted the messages that were released up to a time."""
    entry = followed(run)
    return run if entry is None or entry.at_ms > until_ms else progressed(run, entry.id, "failed", now_ms, why)


def delivery_of(run: Overlay, entry: TimelineEntry) -> MessageProgress | None:
    """Return the state of a message; None for replies, and for messages of earlier versions whose state is unknown."""
    if entry.role == "remote_agent":
        return None
    if entry.failed:
        since_ms = entry.at_ms if entry.delivery is None else entry.delivery.since_ms
        return MessageProgress(state="failed", since_ms=since_ms, why=entry.failed)
    if (reply := _reply(run, entry)) is not None:
        return MessageProgress(state="answered", since_ms=reply.at_ms)
    return entry.delivery


def last_delivery(run: Overlay) -> MessageProgress | None:
    """Return the state of the last message that was sent."""
    sent = next((entry for entry in reversed(run.timeline) if entry.role != "remote_agent"), None)
    return None if sent is None else delivery_of(run, sent)


def _entry(run: Overlay, message: str) -> TimelineEntry | None:
    """Return a message; if it was lost and sent again under the same id, the last one."""
    return next((entry for entry in reversed(run.timeline) if entry.id == message and not entry.failed), None)


def _changed(run: Overlay, message: str, progress: MessageProgress) -> Overlay:
    entry = _entry(run, message)
    timeline = tuple(replace(each, delivery=progress) if each is entry else each for each in run.timeline)
    return replace(run, timeline=timeline)


def _reply(run: Overlay, entry: TimelineEntry) -> TimelineEntry | None:
    """Return the first reply after a message, if one came before the next message."""
    said = (*run.timeline, *run.kept)
    after = next((later for each, later in pairwise(said) if each is entry), None)
    return after if after is not None and after.role == "remote_agent" else None
