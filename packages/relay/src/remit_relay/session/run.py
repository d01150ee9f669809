"""A run as a value: its messages, its state, and what it has spent."""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from remit_relay.bridge.ports import Mode, PermissionRequest, Role
from remit_relay.session.file_rules import Attachment
from remit_relay.session.moves import ENDED, Effect, Label, Reason, SessionState
from remit_relay.session.profile import ProfileLimits
from remit_relay.session.review import Review

DeliveryState = Literal["waiting", "taken", "delivered", "read", "answered", "failed"]
"""How far a message has come; see `delivery_states`."""


class MessageProgress(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The state of a message that was sent."""

    state: DeliveryState
    since_ms: int
    """When it reached this state, as far as this device knows."""
    why: str = ""
    """Why it has failed."""
    sealed: str = ""
    """The id of its encrypted message, by which it is followed."""


class Person(Struct, frozen=True):
    """The person who acts on a run, and the interface used."""

    name: str
    via: Literal["chat", "pending", "api", "console"]


class TimelineEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A message of the timeline."""

    role: Role
    text: str
    turn: int
    """Its turn, from 1; 0 for messages of the remote agent before anything was sent."""
    at_ms: int
    """When it was released for sending, or arrived."""
    took_ms: int = 0
    """How long drafting took; for a reply, the time since the message."""
    id: str = ""
    label: Label | None = None
    """None for messages of the remote agent."""
    reviews: tuple[Review, ...] = ()
    """Why a person reviewed it."""
    sent_ms: int | None = None
    delivery: MessageProgress | None = None
    """How far it has come, until there is a reply: see `delivery_states.delivery_of`."""
    failed: str = ""
    """Why it will get no reply."""
    files: tuple[Attachment, ...] = ()
    """The files that came with it or were sent with it."""
    number: int = 0
    """Its number among the entries of the run, from 1; rejected drafts are numbered with them."""
    original: str = ""
    """The draft of the agent, if a person edited it."""
    edited_by: Person | None = None
    released_by: Person | None = None
    """The person who approved or wrote it; None: it was sent automatically, or came from the remote agent."""


class PendingDraft(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A draft that was not sent, or not yet."""

    id: str
    text: str
    reviews: tuple[Review, ...] = ()
    took_ms: int = 0
    done: bool = False
    """Whether the agent says that the objective is met, so that it is not sent."""
    original: str = ""
    """The draft of the agent, if a person edited it and it was not delivered."""
    edited_by: Person | None = None


class RejectedDraft(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A draft that a person rejected."""

    number: int
    id: str
    text: str
    turn: int
    """The turn that it was written for."""
    at_ms: int
    took_ms: int = 0
    reviews: tuple[Review, ...] = ()
    reason: str = ""
    rejected_by: Person | None = None


class Overlay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The complete run: what is committed after each step, and all that is needed to continue."""

    id: str
    profile: str
    device: str
    session: str
    objective: str
    agent: str = ""
    """The shared name of the other agent; empty: the only one that the device shares."""
    mode: Mode = "manual"
    limits: ProfileLimits = ProfileLimits()
    state: SessionState = SessionState.IDLE
    back: SessionState | None = None
    """The state in which a paused or failed run continues."""
    decides: Literal["agent", "person"] = "agent"
    """Who writes the next message."""
    turn: int = 0
    """Messages sent."""
    typed_before: int = 0
    """Those of them that a person typed before the agent was asked anything; no limit counts them."""
    failures: int = 0
    """In a row."""
    tokens: int = 0
    active_ms: int = 0
    since_ms: int | None = None
    """Since when the clock runs (not included in `active_ms`); None: it does not run."""
    prompts: int = 0
    prompt: str | None = None
    """The current prompt, due or in progress."""
    questions: tuple[PermissionRequest, ...] = ()
    """The permission requests of the local agent that wait for an answer."""
    pending: PendingDraft | None = None
    """The draft that a person reviews; after the end, the unsent draft."""
    sending: str | None = None
    """The message that is not confirmed to be in the outbox yet."""
    unsent: str | None = None
    """Why that message was refused here. It is not in the outbox then, also if the process ends now."""
    kept: tuple[TimelineEntry, ...] = ()
    """Replies that arrived while the run could not handle them."""
    attached: tuple[Attachment, ...] = ()
    """The files that the next message will carry."""
    guidance: str = ""
    """What the agent is told about its rejected draft."""
    timeline: tuple[TimelineEntry, ...] = ()
    rejected: tuple[RejectedDraft, ...] = ()
    entries: int = 0
    """The number of the newest entry: a message or a rejected draft."""
    failure: str = ""
    """The last failure, while the run is in error or after failures ended it."""
    recorded_failure: str = ""
    """The same for the record, without words of the agents."""
    ended: Reason | None = None
    banner: str = ""
    """The text that is shown if a limit ended the run."""
    result: str = ""
    """The last message of the agent when the objective was met."""

    def spent_ms(self, now_ms: int) -> int:
        """Return the active time of the run at *now_ms*; if the clock was set back, no time has passed."""
        return self.active_ms + (0 if self.since_ms is None else max(0, now_ms - self.since_ms))

    @property
    def counted_turns(self) -> int:
        """The messages that count towards `max_turns`."""
        return self.turn - self.typed_before

    @property
    def is_plain_chat(self) -> bool:
        """Whether a person types, and the agent has not been asked anything yet."""
        return self.decides == "person" and not self.prompts

    @property
    def asked(self) -> str | None:
        """The id of the last message, if it has no answer yet and was not lost."""
        said = reversed((*self.timeline, *self.kept))
        last = next((entry for entry in said if entry.role == "remote_agent" or entry.id), None)
        return None if last is None or last.role == "remote_agent" or last.failed else last.id

    @property
    def draft(self) -> PendingDraft | None:
        """The draft that waits for a person, or was unsent at the end; None if the agent met the objective with it."""
        return None if self.pending is None or self.pending.done else self.pending

    @property
    def waits(self) -> bool:
        """Whether a draft waits for a person."""
        return self.draft is not None and self.state not in ENDED


def calls_besides(run: Overlay, runs: Iterable[Overlay]) -> int:
    """Return how many other runs of the same profile wait for a reply."""
    return sum(
        each.profile == run.profile and each.id != run.id and SessionState.WAITING_REMOTE in (each.state, each.back)
        for each in runs
    )


def has_met(run: Overlay, runs: Iterable[Overlay]) -> bool:
    """Return whether the profile of a run has sent anything to its device before, in any run."""
    return any(
        entry.sent_ms is not None
        for each in runs
        if each.profile == run.profile and each.device == run.device
        for entry in each.timeline
    )


def numbered(run: Overlay) -> Overlay:
    """Return a run with a number for each entry; earlier versions stored none."""
    said = (*run.timeline, *run.kept)
    if all(entry.number for entry in said):
        return run
    said = tuple(replace(entry, number=number) for number, entry in enumerate(said, 1))
    timeline, kept = said[: len(run.timeline)], said[len(run.timeline) :]
    return replace(run, timeline=timeline, kept=kept, entries=len(said))


class Transition(Struct, frozen=True):
    """The new run and the effects to carry out."""

    overlay: Overlay
    effects: tuple[Effect, ...] = ()


class MoveRefused(Struct, frozen=True):
    """The event is not possible now; nothing was changed."""

    why: str
