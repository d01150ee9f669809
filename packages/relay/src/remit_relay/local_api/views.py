"""What the local API shows of runs with shared agents, of profiles and of devices.

These are separate types: a field that is not named here is never shown, whatever a run may hold later. They have no
place for keys, tokens, cards, encrypted messages, control envelopes or frames of a local agent.
"""

from typing import Any, Literal, TypeVar

from msgspec import Struct, convert

from remit_relay.bridge.ports import Mode, Role
from remit_relay.client.connection import DevicePresence, State
from remit_relay.device.peers import PeerDevice
from remit_relay.local_api.run_commands import ActName, possible
from remit_relay.messages.types import AgentOffer, shares
from remit_relay.session.moves import Label, Reason, SessionState
from remit_relay.session.profile import Attachment, Profile, ProfileActivity
from remit_relay.session.review import RULES
from remit_relay.session.run import (
    DeliveryState,
    Overlay,
    Person,
    RejectedDraft,
    TimelineEntry,
    delivery_of,
)

S = TypeVar("S", bound=Struct)


def shown_as(kind: type[S], source: object, **more: Any) -> S:
    """Return a view with the fields that *source* has under the same names, and *more*: only what *kind* declares."""
    same = {
        name: getattr(source, name) for name in kind.__struct_fields__ if name not in more and hasattr(source, name)
    }
    return convert({**same, **more}, kind, from_attributes=True)


# ── profiles and devices ──────────────────────────────────────────────────────────────────────────────────────────────


class ProfileView(Struct, frozen=True, kw_only=True):
    """A local agent, and what it may do with shared agents."""

    id: str
    allowed: bool
    """Whether it may work with shared agents at all."""
    devices: tuple[str, ...]
    """The ids of the devices that it may work with."""
    mode: Mode
    """The default mode of its runs."""
    max_turns: int
    max_duration_ms: int
    max_failures: int
    max_tokens: int | None
    max_concurrent: int
    rules: tuple[str, ...]
    """The rules that require approval of a draft in `semi_auto`."""


class OfferView(Struct, frozen=True, kw_only=True):
    """An agent that another device shares with this one."""

    name: str
    """The name under which it is shared: the `agent` of a run."""
    description: str


class DeviceView(Struct, frozen=True, kw_only=True):
    """A known device."""

    id: str
    name: str
    verified: bool
    """Whether both owners compared codes."""
    shared: bool
    """Whether it shares an agent with this device, as far as this device knows: "shared with me"."""
    offers: tuple[OfferView, ...] | None
    """The agents that it shares; None: it has not said yet."""
    allowed: bool
    """Whether it may contact this device on its own."""
    revoked: bool
    revoked_there: bool
    """Whether it says that its owner has revoked this device."""
    groups: tuple[str, ...]
    """The groups that it is in; a group can be the `device` of a new run."""
    own: bool
    """Whether it is marked as another device of this owner."""
    present: bool | None
    """Whether it is connected to its gateway; None: not known."""
    last_heard_ms: int | None
    """When something was heard of it last; None: not known."""


class Profiles(Struct, frozen=True, kw_only=True):
    """All local agents."""

    profiles: tuple[ProfileView, ...]


class DeviceList(Struct, frozen=True, kw_only=True):
    """The known devices, by name."""

    devices: tuple[DeviceView, ...]


class ConnectionView(Struct, frozen=True, kw_only=True):
    """The connection of this device to its gateway."""

    state: State
    since_ms: int
    """When it got into this state."""
    why: str
    """The reason, in a sentence for people; may be empty."""


class SharedAgentView(Struct, frozen=True, kw_only=True):
    """An agent that this device shares."""

    name: str
    """The name that other devices use."""
    description: str
    devices: tuple[str, ...]
    """The ids of the devices that may call it."""


class Counts(Struct, frozen=True, kw_only=True):
    """How many of each there are on this device."""

    runs: int
    open_runs: int
    drafts: int
    """Drafts that wait for approval."""
    questions: int
    """Permission requests of local agents that wait for an answer."""
    unread: int
    devices: int
    profiles: int


class SharedStatus(Struct, frozen=True, kw_only=True):
    """This device in short."""

    version: str
    device: str
    """Its id."""
    name: str
    started_ms: int
    """Since when this process serves it."""
    connection: ConnectionView | None
    """None: not known."""
    shared: tuple[SharedAgentView, ...]
    counts: Counts


def profile_view(profile: Profile) -> ProfileView:
    """Return the view of a profile."""
    limits = profile.limits
    return ProfileView(
        id=profile.id,
        allowed=profile.allow_shared_agent_calls,
        devices=tuple(sorted(profile.allowed_shared_device_ids)),
        mode=profile.mode,
        max_turns=limits.max_turns,
        max_duration_ms=limits.max_duration_ms,
        max_failures=limits.max_failures,
        max_tokens=limits.max_tokens_budget,
        max_concurrent=profile.max_concurrent_shared_calls,
        rules=tuple(rule for rule in RULES if rule not in profile.rules.off),
    )


def device_view(
    peer: PeerDevice, offer: tuple[AgentOffer, ...] | None, presence: DevicePresence | None = None
) -> DeviceView:
    """Return the view of a device; its card contributes only the name."""
    return shown_as(
        DeviceView,
        peer,
        id=peer.device,
        name=peer.card.name,
        shared=shares(peer, offer),
        offers=offer,
        groups=sorted(peer.groups),
        present=None if presence is None else presence.present,
        last_heard_ms=None if presence is None else presence.last_heard_ms,
    )


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

# A longer run is read in pages: each event of the stream holds a whole view.
MOST_SHOWN = 200


class FileView(Struct, frozen=True, kw_only=True):
    """A file of a run."""

    id: str
    """Empty if it was refused."""
    name: str
    media_type: str
    size: int
    refused: str
    """Why it was not taken from the other device; empty if it was."""


class FileList(Struct, frozen=True, kw_only=True):
    """The files that the next message will carry, and those of the messages before, oldest first."""

    attached: tuple[FileView, ...]
    received: tuple[FileView, ...]
    sent: tuple[FileView, ...]


def file_view(file: Attachment) -> FileView:
    """Return the view of a file."""
    return shown_as(FileView, file)


class ReviewView(Struct, frozen=True, kw_only=True):
    """A rule that required a review, and why."""

    rule: str
    why: str


class AuthorView(Struct, frozen=True, kw_only=True):
    """An agent or a person."""

    role: Role
    name: str
    """The profile of a local agent, the shared name of a remote one, or the name of a person."""
    via: str
    """The client that a person used; empty for agents."""


class DeliveryView(Struct, frozen=True, kw_only=True):
    """How far a message has come."""

    state: DeliveryState
    since_ms: int
    why: str
    """Why it has failed; else empty."""


class EntryView(Struct, frozen=True, kw_only=True):
    """One entry of a run: a message, or a rejected draft."""

    id: str
    role: Role
    text: str
    turn: int
    at_ms: int
    took_ms: int
    label: Label | Literal["rejected"] | None
    """How it was released, or that it was not; None for messages of the remote agent."""
    reviews: tuple[ReviewView, ...]
    """The rules that asked for a review."""
    original: str
    """The draft of the agent, if a person edited it; else empty."""
    written_by: AuthorView
    edited_by: AuthorView | None
    approved_by: AuthorView | None
    rejected_by: AuthorView | None
    reason: str
    """Why it was rejected, as the person said it; may be empty."""
    sent: bool
    delivery: DeliveryView | None
    """How far it has come; None for replies, rejected drafts, and messages whose state is not known."""
    failed: str
    """Why it will never get a reply; empty if it may."""
    files: tuple[FileView, ...]


class ChoiceView(Struct, frozen=True, kw_only=True):
    """A possible answer to a permission request."""

    id: str
    name: str
    kind: str
    """`allow_once`, `allow_always`, `reject_once` or `reject_always`."""


class QuestionView(Struct, frozen=True, kw_only=True):
    """A permission request of the local agent, in its words."""

    id: str
    title: str
    kind: str
    """The kind of tool, as the agent says; may be empty."""
    details: str
    choices: tuple[ChoiceView, ...]


class DraftView(Struct, frozen=True, kw_only=True):
    """A draft that waits for approval; after the end of the run, one that was not sent."""

    id: str
    """The id that an answer must name, so that it cannot mean another draft."""
    text: str
    reviews: tuple[ReviewView, ...]
    took_ms: int


class Quantity(Struct, frozen=True, kw_only=True):
    """A limit, and what is used of it."""

    used: int
    most: int | None
    """None: there is no limit."""


class RateView(Struct, frozen=True, kw_only=True):
    """How many messages the profile may send to the device in a time."""

    used: int
    most: int
    window_ms: int
    """The time in which the messages are counted."""
    ends_ms: int | None
    """When the current window ends and counting starts anew; None: no window is open."""


class LimitsView(Struct, frozen=True, kw_only=True):
    """All limits of a run, and what is used of them."""

    turns: Quantity
    active_ms: Quantity
    tokens: Quantity
    failures: Quantity
    calls: Quantity
    """Messages of the profile, in all of its runs, that wait for a reply."""
    rate: RateView


class SharedRunHead(Struct, frozen=True, kw_only=True):
    """What a line and the whole view of a run have in common."""

    id: str
    profile: str
    device: str
    agent: str
    """The name under which the device shares the other agent; empty: the only one that it shares."""
    objective: str
    mode: Mode
    state: SessionState
    turn: int
    ended: Reason | None
    unread: int
    """Entries that the user has not read; `read` changes it."""


class SharedRunView(SharedRunHead, frozen=True, kw_only=True):
    """The whole view of a run."""

    decides: Literal["agent", "person"]
    """Who speaks next."""
    acts: tuple[ActName, ...]
    """The actions that are possible now."""
    max_turns: int
    active_ms: int
    """The time spent on it so far."""
    is_active: bool
    """Whether the clock is running."""
    max_duration_ms: int
    failures: int
    max_failures: int
    tokens: int
    max_tokens: int | None
    limits: LimitsView | None
    """The same limits and those of the profile; None: the profile does not exist any more."""
    earlier: int
    """Entries before those shown here; `GET /v1/shared/runs/{run}/entries` has them."""
    timeline: tuple[EntryView, ...]
    rejected: tuple[EntryView, ...]
    """The drafts that a person rejected. Ids order them among the entries of the timeline."""
    kept: int
    """Replies that arrived while it is paused."""
    kept_replies: tuple[EntryView, ...]
    """Those replies; each joins the timeline when the run goes on."""
    draft: DraftView | None
    attached: tuple[FileView, ...]
    """The files that the next message will carry."""
    questions: tuple[QuestionView, ...]
    """What the local agent asks its user; each is answered with `answer`."""
    failure: str
    banner: str
    result: str


class UnreadView(Struct, frozen=True, kw_only=True):
    """How many entries the user has not read."""

    total: int
    devices: dict[str, int]
    """By the id of the device; devices without unread entries are left out."""
    runs: dict[str, int]
    """By the id of the run; runs without unread entries are left out."""


class SharedRunLine(SharedRunHead, frozen=True, kw_only=True):
    """A run in one line."""

    waits: bool
    """Whether a draft waits for approval."""
    questions: int
    """Permission requests of the local agent that wait for an answer."""
    at_ms: int | None
    """When its newest message was sent or arrived; None: there is none."""


class SharedRunList(Struct, frozen=True, kw_only=True):
    """A page of runs, the newest first."""

    runs: tuple[SharedRunLine, ...]
    next: str | None
    """The `before` of the next page; None: this is the last one."""


class EntryList(Struct, frozen=True, kw_only=True):
    """A page of the entries of a run: messages and rejected drafts, the oldest first."""

    entries: tuple[EntryView, ...]
    next: str | None
    """The `before` of the page with earlier entries; None: there are none."""


class Surroundings(Struct, frozen=True, kw_only=True):
    """What a view shows of a run besides the run itself."""

    now_ms: int
    unread: int = 0
    profile: Profile | None = None
    activity: ProfileActivity = ProfileActivity()


def view(run: Overlay, around: Surroundings) -> SharedRunView:
    """Return the view of a run, with its newest entries."""
    limits, now_ms = run.limits, around.now_ms
    entries, earlier = entries_of(run, MOST_SHOWN)
    return shown_as(
        SharedRunView,
        run,
        unread=around.unread,
        acts=possible(run),
        max_turns=limits.max_turns,
        active_ms=run.spent_ms(now_ms),
        is_active=run.since_ms is not None,
        max_duration_ms=limits.max_duration_ms,
        max_failures=limits.max_failures,
        max_tokens=limits.max_tokens_budget,
        limits=None if around.profile is None else _limits(run, around.profile, around),
        earlier=earlier,
        timeline=[each for each in entries if each.label != "rejected"],
        rejected=[each for each in entries if each.label == "rejected"],
        kept=len(run.kept),
        kept_replies=[_entry(run, each) for each in run.kept],
    )


def entries_of(run: Overlay, limit: int, before: int | None = None) -> tuple[tuple[EntryView, ...], int]:
    """Return the newest entries before a number, the oldest first, and the number of entries before those."""
    everything: list[TimelineEntry | RejectedDraft] = [*run.timeline, *run.rejected]
    if run.rejected:
        everything.sort(key=lambda each: each.number)
    if before is not None:
        everything = [each for each in everything if each.number < before]
    shown = everything[-limit:]
    views = (_rejected(run, each) if isinstance(each, RejectedDraft) else _entry(run, each) for each in shown)
    return tuple(views), len(everything) - len(shown)


def _limits(run: Overlay, profile: Profile, around: Surroundings) -> LimitsView:
    limits, window = run.limits, around.activity.window
    ends_ms = None
    if window.calls and (end := round((window.start + profile.rate.seconds) * 1_000)) > around.now_ms:
        ends_ms = end
    waits = SessionState.WAITING_REMOTE in (run.state, run.back)
    return LimitsView(
        turns=Quantity(used=run.counted_turns, most=limits.max_turns),
        active_ms=Quantity(used=run.spent_ms(around.now_ms), most=limits.max_duration_ms),
        tokens=Quantity(used=run.tokens, most=limits.max_tokens_budget),
        failures=Quantity(used=run.failures, most=limits.max_failures),
        calls=Quantity(used=around.activity.in_flight + waits, most=profile.max_concurrent_shared_calls),
        rate=RateView(
            used=0 if ends_ms is None else window.calls,
            most=profile.rate.calls,
            window_ms=round(profile.rate.seconds * 1_000),
            ends_ms=ends_ms,
        ),
    )


def line(run: Overlay, unread: int = 0) -> SharedRunLine:
    """Return a run in one line."""
    at_ms = run.timeline[-1].at_ms if run.timeline else None
    return shown_as(SharedRunLine, run, unread=unread, questions=len(run.questions), at_ms=at_ms)


def entry_id(run: Overlay, number: int) -> str:
    """Return the id of the entry with this number."""
    return f"{run.id}.e{number}"


def _entry(run: Overlay, entry: TimelineEntry) -> EntryView:
    return shown_as(
        EntryView,
        entry,
        id=entry_id(run, entry.number),
        written_by=_author(run, entry),
        edited_by=_person(entry.edited_by),
        approved_by=_person(entry.released_by) if entry.label in ("approved", "edited") else None,
        rejected_by=None,
        reason="",
        sent=entry.sent_ms is not None,
        delivery=delivery_of(run, entry),
    )


def _rejected(run: Overlay, draft: RejectedDraft) -> EntryView:
    return shown_as(
        EntryView,
        draft,
        id=entry_id(run, draft.number),
        role="local_agent",
        label="rejected",
        original="",
        written_by=AuthorView(role="local_agent", name=run.profile, via=""),
        edited_by=None,
        approved_by=None,
        rejected_by=_person(draft.rejected_by),
        sent=False,
        delivery=None,
        files=(),
        failed="",
    )


def _author(run: Overlay, entry: TimelineEntry) -> AuthorView:
    match entry.role:
        case "user":
            return _person(entry.released_by) or AuthorView(role="user", name="", via="")
        case "local_agent":
            return AuthorView(role="local_agent", name=run.profile, via="")
        case "remote_agent":
            return AuthorView(role="remote_agent", name=run.agent, via="")


def _person(person: Person | None) -> AuthorView | None:
    return None if person is None else AuthorView(role="user", name=person.name, via=person.via)
