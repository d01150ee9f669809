"""What faces are shown of profiles, devices and runs with shared agents.

These are types of their own: what is not named here is not shown, whatever a run comes to hold. No key, token, sealed
message, control envelope or frame of a local agent has a place in them.
"""

from typing import Literal

from msgspec import Struct

from remit.relay.bridge.frames import Mode, Role
from remit.relay.device.peers import PeerDevice
from remit.relay.messages.catalog import shares
from remit.relay.messages.types import AgentOffer
from remit.relay.session.moves import Label, Reason, SessionState
from remit.relay.session.profile import Profile
from remit.relay.session.review import RULES, Review
from remit.relay.session.run import Overlay, PendingDraft, TimelineEntry
from remit.server.run_commands import ActName, possible

# ── profiles and devices ──────────────────────────────────────────────────────────────────────────────────────────────


class ProfileView(Struct, frozen=True, kw_only=True):
    """A local agent, and what it may do with shared ones."""

    id: str
    allowed: bool
    """Whether it may have dealings with shared agents at all."""
    devices: tuple[str, ...]
    """The ids of those that it may deal with."""
    mode: Mode
    """The mode of a run that is started without one."""
    max_turns: int
    max_duration_ms: int
    max_failures: int
    max_tokens: int | None
    max_concurrent: int
    rules: tuple[str, ...]
    """Those that have a person see a draft first in `semi_auto`."""


class OfferView(Struct, frozen=True, kw_only=True):
    """An agent that another device says it shares with this one."""

    name: str
    """What it is shared as: the `agent` of a run."""
    description: str


class DeviceView(Struct, frozen=True, kw_only=True):
    """A known device."""

    id: str
    name: str
    verified: bool
    """Whether its owner and this one compared codes."""
    shared: bool
    """Whether it shares an agent with this device, as far as is known here: "shared with me"."""
    offers: tuple[OfferView, ...] | None
    """What it says that it shares; None: it has said nothing yet."""
    allowed: bool
    """Whether it may reach this device of its own accord."""
    revoked: bool


class Profiles(Struct, frozen=True, kw_only=True):
    """All local agents."""

    profiles: tuple[ProfileView, ...]


class DeviceList(Struct, frozen=True, kw_only=True):
    """The known devices, by name."""

    devices: tuple[DeviceView, ...]


def profile_view(profile: Profile) -> ProfileView:
    """Return what is shown of a profile."""
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
    """Return what is shown of a device: of its card, the name alone."""
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
    """A rule that wanted a person to look, and why."""

    rule: str
    why: str


class TurnView(Struct, frozen=True, kw_only=True):
    """Something that was said: a line of the timeline."""

    role: Role
    text: str
    turn: int
    at_ms: int
    took_ms: int
    label: Label | None
    """Who let it go; None for what the remote agent said."""
    reviews: tuple[ReviewView, ...]
    sent: bool
    failed: str
    """Why it got no reply and will not get one; empty: it is not so."""


class DraftView(Struct, frozen=True, kw_only=True):
    """A draft that waits for a person; after the end, one that was left unsent."""

    id: str
    """What an answer to it has to name, so that no other is meant."""
    text: str
    reviews: tuple[ReviewView, ...]
    took_ms: int


class SharedRunView(Struct, frozen=True, kw_only=True):
    """A run, whole."""

    id: str
    profile: str
    device: str
    agent: str
    """What the device shares the other agent as; empty: the only one that it shares."""
    objective: str
    mode: Mode
    state: SessionState
    decides: Literal["agent", "person"]
    """Who says what is said next."""
    acts: tuple[ActName, ...]
    """What can be done with it now."""
    turn: int
    max_turns: int
    active_ms: int
    """The time that was spent on it until now."""
    is_active: bool
    """Whether more is being spent."""
    max_duration_ms: int
    failures: int
    max_failures: int
    tokens: int
    max_tokens: int | None
    timeline: tuple[TurnView, ...]
    kept: int
    """Replies that came and are worked on once it goes on."""
    draft: DraftView | None
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
    """What the device shares the other agent as; empty: the only one that it shares."""
    objective: str
    mode: Mode
    state: SessionState
    turn: int
    waits: bool
    """Whether a draft waits for a person."""
    ended: Reason | None


class SharedRunList(Struct, frozen=True, kw_only=True):
    """The newest runs first."""

    runs: tuple[SharedRunLine, ...]


def view(run: Overlay, now_ms: int) -> SharedRunView:
    """Return what is shown of a run at *now_ms*."""
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
        timeline=tuple(map(_turn, run.timeline)),
        kept=len(run.kept),
        draft=None if run.draft is None else _draft(run.draft),
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


def _turn(entry: TimelineEntry) -> TurnView:
    return TurnView(
        role=entry.role,
        text=entry.text,
        turn=entry.turn,
        at_ms=entry.at_ms,
        took_ms=entry.took_ms,
        label=entry.label,
        reviews=_reviews(entry.reviews),
        sent=entry.sent_ms is not None,
        failed=entry.failed,
    )


def _draft(pending: PendingDraft) -> DraftView:
    return DraftView(id=pending.id, text=pending.text, reviews=_reviews(pending.reviews), took_ms=pending.took_ms)


def _reviews(reviews: tuple[Review, ...]) -> tuple[ReviewView, ...]:
    return tuple(ReviewView(rule=each.rule, why=each.why) for each in reviews)
