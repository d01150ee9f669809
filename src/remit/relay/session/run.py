"""A run as a value: what was said in it, where it is, and what it has spent."""

from typing import Literal

from msgspec import Struct

from remit.relay.bridge.frames import Mode, Role
from remit.relay.session.moves import ENDED, Effect, Label, Reason, SessionState
from remit.relay.session.profile import ProfileLimits
from remit.relay.session.review import Review


class TimelineEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something that was said: a line of the timeline."""

    role: Role
    text: str
    turn: int
    """The turn it belongs to, from 1; 0 for what the remote agent said before anything was sent."""
    at_ms: int
    """When it was given to be sent, or arrived."""
    took_ms: int = 0
    """How long it was drafted; for a reply, how long after the message it came."""
    id: str = ""
    label: Label | None = None
    """None for what the remote agent said."""
    reviews: tuple[Review, ...] = ()
    """Why a person saw it first."""
    sent_ms: int | None = None
    failed: str = ""
    """Why it got no reply and will not get one."""


class PendingDraft(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A draft that was not sent, or not yet."""

    id: str
    text: str
    reviews: tuple[Review, ...] = ()
    took_ms: int = 0
    done: bool = False
    """Whether the agent is done with it, so that it is not to be sent."""


class Overlay(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A run, whole: what a host commits after each step, and all that it needs to go on."""

    id: str
    profile: str
    device: str
    session: str
    objective: str
    agent: str = ""
    """What the device shares the other agent as; empty: the only one that it shares."""
    mode: Mode = "manual"
    limits: ProfileLimits = ProfileLimits()
    state: SessionState = SessionState.IDLE
    back: SessionState | None = None
    """Where a run that is paused or in error goes on."""
    decides: Literal["agent", "person"] = "agent"
    """Who says what is said next."""
    turn: int = 0
    """Messages sent."""
    failures: int = 0
    """In a row."""
    tokens: int = 0
    active_ms: int = 0
    since_ms: int | None = None
    """Since when time is spent that is not in `active_ms` yet; None: none is."""
    prompts: int = 0
    prompt: str | None = None
    """The prompt that is due or in flight."""
    pending: PendingDraft | None = None
    """The draft that a person is asked about; after the end, what was left unsent."""
    sending: str | None = None
    """The message of which it is not known yet that it is on its way."""
    kept: tuple[TimelineEntry, ...] = ()
    """Replies that came while they could not be worked on."""
    guidance: str = ""
    """What the agent is told of the draft that a person rejected."""
    timeline: tuple[TimelineEntry, ...] = ()
    failure: str = ""
    """What failed last, while the run is in error or after failures ended it."""
    ended: Reason | None = None
    banner: str = ""
    """What is shown if a limit ended the run."""
    result: str = ""
    """What the agent said when it was done."""

    def spent_ms(self, now_ms: int) -> int:
        """Return how long the run has been at work by *now_ms*; on a clock that was set back, no time has passed."""
        return self.active_ms + (0 if self.since_ms is None else max(0, now_ms - self.since_ms))

    @property
    def asked(self) -> str | None:
        """The last message, if it has no answer yet and was not lost."""
        said = reversed((*self.timeline, *self.kept))
        last = next((entry for entry in said if entry.role == "remote_agent" or entry.id), None)
        return None if last is None or last.role == "remote_agent" or last.failed else last.id

    @property
    def draft(self) -> PendingDraft | None:
        """The draft that waits for a person, or was left unsent at the end; none, if the agent is done with it."""
        return None if self.pending is None or self.pending.done else self.pending

    @property
    def waits(self) -> bool:
        """Whether a draft waits for a person."""
        return self.draft is not None and self.state not in ENDED


class Transition(Struct, frozen=True):
    """Where a run is now, and what is to be done."""

    overlay: Overlay
    effects: tuple[Effect, ...] = ()


class MoveRefused(Struct, frozen=True):
    """It cannot happen to this run now; nothing has changed."""

    why: str
