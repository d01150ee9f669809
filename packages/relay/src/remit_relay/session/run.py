"""A run as a value: its messages and how far they have come, what may be displayed, and its history. Pure."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from remit.policy.verdict import Detector, Finding
from remit.words.components import cut, squeezed
from remit_relay.bridge.ports import ConversationTurn, Mode, PermissionRequest, PromptConstraints, PromptRequest, Role
from remit_relay.session.moves import ENDED, Effect, Label, Prompt, Reason, SessionState
from remit_relay.session.profile import Attachment, ProfileLimits
from remit_relay.session.review import CREDENTIALS, Review

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
    def unanswered_message(self) -> str | None:
        """The id of the last message, if it has no answer yet and was not lost."""
        entries = reversed((*self.timeline, *self.kept))
        last = next((entry for entry in entries if entry.role == "remote_agent" or entry.id), None)
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


class Transition(Struct, frozen=True):
    """The new run and the effects to carry out."""

    overlay: Overlay
    effects: tuple[Effect, ...] = ()


class MoveRefused(Struct, frozen=True):
    """The event is not possible now; nothing was changed."""

    why: str


# ── how far each message has come ─────────────────────────────────────────────────────────────────────────────────────

#     waiting ──▶ taken ──▶ delivered ──▶ read ──▶ answered
#        └──────────┴─▶ failed
#
# A message is `waiting` in the outbox of this device, `taken` once the gateway has stored it, `delivered` once the
# other device has it, and `read` once the shared agent was given it. A later state implies the earlier ones, so
# states may be skipped, and they never go back. A message that the gateway deleted has `failed`; this device still
# holds it, so it may be delivered later. One that was refused, or whose agent failed, has `failed` for good.

_ORDER: dict[DeliveryState, int] = {
    state: place for place, state in enumerate(("waiting", "taken", "failed", "delivered", "read", "answered"))
}
_FOLLOWED = frozenset[DeliveryState]({"waiting", "taken", "failed"})


def mark_released(run: Overlay, message: str, sealed: str, now_ms: int) -> Overlay:
    """Return the run after its message was sealed under the id *sealed*."""
    return _changed(run, message, MessageProgress(state="waiting", since_ms=now_ms, sealed=sealed))


def mark_progress(run: Overlay, message: str, state: DeliveryState, now_ms: int, why: str = "") -> Overlay:
    """Return the run after its message has reached a state; the same run if that is not news."""
    entry = _entry(run, message)
    was = None if entry is None else entry.delivery
    if was is None or _ORDER[state] <= _ORDER[was.state]:
        return run
    return _changed(run, message, replace(was, state=state, since_ms=now_ms, why=why))


def followed_message(run: Overlay) -> TimelineEntry | None:
    """Return the last message of a run, if it has no answer and the other device has not said that it has it.

    A run sends nothing more before the answer, so there is never a second one.
    """
    entry = None if run.unanswered_message is None else _entry(run, run.unanswered_message)
    if entry is None or entry.delivery is None or entry.delivery.state not in _FOLLOWED:
        return None
    return entry


def mark_expired(run: Overlay, until_ms: int, why: str, now_ms: int) -> Overlay:
    """Return the run after the gateway deleted the messages that were released up to a time."""
    entry = followed_message(run)
    return run if entry is None or entry.at_ms > until_ms else mark_progress(run, entry.id, "failed", now_ms, why)


def delivery_of(run: Overlay, entry: TimelineEntry) -> MessageProgress | None:
    """Return the state of a message; None for replies."""
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
    entries = (*run.timeline, *run.kept)
    after = next((later for each, later in pairwise(entries) if each is entry), None)
    return after if after is not None and after.role == "remote_agent" else None


# ── a run as it may be displayed ──────────────────────────────────────────────────────────────────────────────────────

# Each step displays the whole run again, and only its last texts are new.
_REMEMBERED = 1_000


class CredentialFilter:
    """Hides credentials in the texts of runs; what is sent, and what an agent is asked, is not changed by it."""

    def __init__(self, detect: Detector) -> None:
        self._detect = detect
        self._known: dict[str, str] = {}

    def run(self, run: Overlay) -> Overlay:
        """Return a run with all of its texts filtered."""
        hide, draft = self.text, run.pending
        return replace(
            run,
            objective=hide(run.objective),
            questions=tuple(
                replace(each, title=hide(each.title), details=hide(each.details)) for each in run.questions
            ),
            pending=None if draft is None else replace(draft, text=hide(draft.text), original=hide(draft.original)),
            timeline=_hidden(run.timeline, hide),
            kept=_hidden(run.kept, hide),
            rejected=tuple(replace(each, text=hide(each.text), reason=hide(each.reason)) for each in run.rejected),
            guidance=hide(run.guidance),
            failure=hide(run.failure),
            banner=hide(run.banner),
            result=hide(run.result),
        )

    def text(self, text: str) -> str:
        """Return a text with each credential replaced by its kind."""
        if not text:
            return text
        if (known := self._known.get(text)) is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[text] = self._without_credentials(text)
        return known

    def part(self, text: str) -> str:
        """Return a text that is still being written, up to its last whole word: half a key would not be recognised."""
        whole = text[: max(text.rfind(space) for space in " \n\t") + 1]
        begun = whole.rfind("-----BEGIN")
        if begun >= 0 and "-----END" not in whole[begun:]:
            whole = whole[:begun]
        return self._without_credentials(whole)

    def _without_credentials(self, text: str) -> str:
        return with_kinds(text, (finding for finding in self._detect(text) if finding.kind in CREDENTIALS))


def with_kinds(text: str, findings: Iterable[Finding]) -> str:
    """Return a text in which each finding is replaced by its kind."""
    parts: list[str] = []
    end = 0
    for finding in findings:
        if finding.start >= end:
            parts += [text[end : finding.start], f"[{finding.kind}]"]
            end = finding.end
    return "".join([*parts, text[end:]])


def _hidden(entries: tuple[TimelineEntry, ...], hide: Callable[[str], str]) -> tuple[TimelineEntry, ...]:
    return tuple(
        replace(each, text=hide(each.text), failed=hide(each.failed), original=hide(each.original)) for each in entries
    )


# ── the history for a prompt ──────────────────────────────────────────────────────────────────────────────────────────

# The summary line of one turn: shorter ones say nothing, longer ones are no summary.
_SHORTEST_LINE, _LONGEST_LINE = 80, 600


class Bounded(Struct, frozen=True, kw_only=True):
    """The turns of a run that fit into a prompt, named as in a `PromptRequest`.

    `history` has at most `max_history_turns` turns, and its texts together with `history_summary` at most
    `max_history_chars` characters (code points). `remote_message` is the message to answer: it is never shortened, not
    repeated elsewhere, and does not count.
    """

    remote_message: str = ""
    history: tuple[ConversationTurn, ...] = ()
    history_summary: str = ""


def bounded(turns: Sequence[ConversationTurn], constraints: PromptConstraints) -> Bounded:
    """Return the part of *turns* (oldest first) for the next prompt; deterministic.

    A turn is included completely or not at all. If some are left out, a quarter of the characters is for the summary.
    """
    latest = next((place for place in reversed(range(len(turns))) if turns[place].role == "remote_agent"), None)
    remote_message = "" if latest is None else turns[latest].text
    others = tuple(turn for place, turn in enumerate(turns) if place != latest)
    most, chars = max(0, constraints.max_history_turns), max(0, constraints.max_history_chars)
    if _fitting(others, most, chars) == len(others):
        return Bounded(remote_message=remote_message, history=others)
    room = chars // 4
    start = len(others) - _fitting(others, most, chars - room)
    return Bounded(
        remote_message=remote_message,
        history=others[start:],
        history_summary=_summary(others[:start], room),
    )


def request(prompt: Prompt, *, profile: str, session: str, constraints: PromptConstraints) -> PromptRequest:
    """Return the prompt request for the local agent of *profile*, with a bounded history."""
    shown = bounded(prompt.turns, constraints)
    return PromptRequest(
        request_id=prompt.id,
        profile_id=profile,
        session_id=session,
        turn_index=prompt.turn_index,
        mode=prompt.mode,
        objective=prompt.objective,
        remote_message=shown.remote_message,
        history=shown.history,
        history_summary=shown.history_summary or UNSET,
        constraints=constraints,
    )


def _fitting(turns: Sequence[ConversationTurn], most: int, chars: int) -> int:
    """Return how many of the newest turns fit within both limits."""
    for count, turn in enumerate(reversed(turns)):
        chars -= len(turn.text)
        if count == most or chars < 0:
            return count
    return len(turns)


def _summary(turns: Sequence[ConversationTurn], room: int) -> str:
    """Return a line for each of the newest of *turns*, in at most *room* characters."""
    if not room:
        return ""
    count = len(turns)
    length = min(max(room // count, _SHORTEST_LINE), _LONGEST_LINE)
    left = room - len(_title(count, count))
    lines: list[str] = []
    for turn in reversed(turns):
        line = _line(turn, length)
        left -= 1 + len(line)
        if left < 0:
            break
        lines.append(line)
    if not lines:
        return cut(f"Left out: {_earlier(count)}.", room)
    return "\n".join((_title(count, len(lines)), *reversed(lines)))


def _title(count: int, shown: int) -> str:
    return f"{_earlier(count)}, the last {shown} in short:"


def _earlier(count: int) -> str:
    return f"{count} earlier turn{'s' if count > 1 else ''}"


def _line(turn: ConversationTurn, length: int) -> str:
    """Return the beginning of a turn as one line, without reading more of a long text than needed."""
    head = turn.text[: 4 * length]
    text = squeezed(head) + ("…" if len(head) < len(turn.text) else "")
    return f"{turn.role}: {cut(text, length - len(turn.role) - 2)}"
