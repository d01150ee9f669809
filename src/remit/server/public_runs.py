"""What the local API shows of profiles, devices and runs with shared agents.

These are separate types: a field that is not named here is never shown, whatever a run may hold later. They have no
place for keys, tokens, encrypted messages, control envelopes or frames of a local agent.
"""

from typing import Literal

from msgspec import Struct

from remit.relay.bridge.ports import Mode, PermissionRequest, Role
from remit.relay.device.peers import PeerDevice
from remit.relay.messages.catalog import shares
from remit.relay.messages.types import AgentOffer
from remit.relay.session.moves import Label, Reason, SessionState
from remit.relay.session.profile import Profile
from remit.relay.session.review import RULES, Review
from remit.relay.session.run import Overlay, PendingDraft, Person, RejectedDraft, TimelineEntry
from remit.server.run_commands import ActName, possible
from remit.server.shared_files import FileView, file_view

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


class Profiles(Struct, frozen=True, kw_only=True):
    """All local agents."""

    profiles: tuple[ProfileView, ...]


class DeviceList(Struct, frozen=True, kw_only=True):
    """The known devices, by name."""

    devices: tuple[DeviceView, ...]


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


def device_view(peer: PeerDevice, offer: tuple[AgentOffer, ...] | None) -> DeviceView:
    """Return the view of a device; its card contributes only the name."""
    return DeviceView(
        id=peer.device,
        name=peer.card.name,
        verified=peer.verified,
        shared=shares(peer, offer),
        offers=None
        if offer is None
        else tuple(OfferView(name=each.name, description=each.description) for each in offer),
        allowed=peer.allowed,
        revoked=peer.revoked,
    )


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


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


class SharedRunView(Struct, frozen=True, kw_only=True):
    """The whole view of a run."""

    id: str
    profile: str
    device: str
    agent: str
    """The name under which the device shares the other agent; empty: the only one that it shares."""
    objective: str
    mode: Mode
    state: SessionState
    decides: Literal["agent", "person"]
    """Who speaks next."""
    acts: tuple[ActName, ...]
    """The actions that are possible now."""
    turn: int
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
    timeline: tuple[EntryView, ...]
    rejected: tuple[EntryView, ...]
    """The drafts that a person rejected. Ids order them among the entries of the timeline."""
    kept: int
    """Replies that arrived while it is paused."""
    draft: DraftView | None
    attached: tuple[FileView, ...]
    """The files that the next message will carry."""
    questions: tuple[QuestionView, ...]
    """What the local agent asks its user; each is answered with `answer`."""
    failure: str
    ended: Reason | None
    banner: str
    result: str


class SharedRunLine(Struct, frozen=True, kw_only=True):
    """A run in one line."""

    id: str
    profile: str
    device: str
    agent: str
    """The name under which the device shares the other agent; empty: the only one that it shares."""
    objective: str
    mode: Mode
    state: SessionState
    turn: int
    waits: bool
    """Whether a draft waits for approval."""
    ended: Reason | None


class SharedRunList(Struct, frozen=True, kw_only=True):
    """The newest runs first."""

    runs: tuple[SharedRunLine, ...]


def view(run: Overlay, now_ms: int) -> SharedRunView:
    """Return the view of a run at *now_ms*."""
    limits = run.limits
    return SharedRunView(
        id=run.id,
        profile=run.profile,
        device=run.device,
        agent=run.agent,
        objective=run.objective,
        mode=run.mode,
        state=run.state,
        decides=run.decides,
        acts=possible(run),
        turn=run.turn,
        max_turns=limits.max_turns,
        active_ms=run.spent_ms(now_ms),
        is_active=run.since_ms is not None,
        max_duration_ms=limits.max_duration_ms,
        failures=run.failures,
        max_failures=limits.max_failures,
        tokens=run.tokens,
        max_tokens=limits.max_tokens_budget,
        timeline=tuple(_entry(run, each) for each in run.timeline),
        rejected=tuple(_rejected(run, each) for each in run.rejected),
        kept=len(run.kept),
        draft=None if run.draft is None else _draft(run.draft),
        attached=tuple(map(file_view, run.attached)),
        questions=tuple(map(_question, run.questions)),
        failure=run.failure,
        ended=run.ended,
        banner=run.banner,
        result=run.result,
    )


def line(run: Overlay) -> SharedRunLine:
    """Return a run in one line."""
    return SharedRunLine(
        id=run.id,
        profile=run.profile,
        device=run.device,
        agent=run.agent,
        objective=run.objective,
        mode=run.mode,
        state=run.state,
        turn=run.turn,
        waits=run.waits,
        ended=run.ended,
    )


def _question(asks: PermissionRequest) -> QuestionView:
    choices = tuple(ChoiceView(id=each.id, name=each.name, kind=each.kind) for each in asks.choices)
    return QuestionView(id=asks.id, title=asks.title, kind=asks.kind, details=asks.details, choices=choices)


def entry_id(run: Overlay, number: int) -> str:
    """Return the id of the entry with this number."""
    return f"{run.id}.e{number}"


def _entry(run: Overlay, entry: TimelineEntry) -> EntryView:
    return EntryView(
        id=entry_id(run, entry.number),
        role=entry.role,
        text=entry.text,
        turn=entry.turn,
        at_ms=entry.at_ms,
        took_ms=entry.took_ms,
        label=entry.label,
        reviews=_reviews(entry.reviews),
        original=entry.original,
        written_by=_author(run, entry),
        edited_by=_person(entry.edited_by),
        approved_by=_person(entry.released_by) if entry.label in ("approved", "edited") else None,
        rejected_by=None,
        reason="",
        sent=entry.sent_ms is not None,
        failed=entry.failed,
        files=tuple(map(file_view, entry.files)),
    )


def _rejected(run: Overlay, draft: RejectedDraft) -> EntryView:
    return EntryView(
        id=entry_id(run, draft.number),
        role="local_agent",
        text=draft.text,
        turn=draft.turn,
        at_ms=draft.at_ms,
        took_ms=draft.took_ms,
        label="rejected",
        reviews=_reviews(draft.reviews),
        original="",
        written_by=AuthorView(role="local_agent", name=run.profile, via=""),
        edited_by=None,
        approved_by=None,
        rejected_by=_person(draft.rejected_by),
        reason=draft.reason,
        sent=False,
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


def _draft(pending: PendingDraft) -> DraftView:
    return DraftView(id=pending.id, text=pending.text, reviews=_reviews(pending.reviews), took_ms=pending.took_ms)


def _reviews(reviews: tuple[Review, ...]) -> tuple[ReviewView, ...]:
    return tuple(ReviewView(rule=each.rule, why=each.why) for each in reviews)
