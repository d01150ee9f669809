"""What a local profile may do with shared agents, and what those may ask of it (S10, S11).

Nothing is allowed until it is switched on. Each message carries a `ControlEnvelope` beside its text, inside the
encryption: where it began, on which trace, over how many hops. What it says is a peer's claim; the session proves who
sent it.
"""

from typing import Annotated

from msgspec import Meta, Struct

from remit.policy.rate import Window, count, wait_ms
from remit.protocol.card import Rate
from remit.protocol.errors import Code, Fault, duration, fault
from remit.protocol.remit import MAX_INTEGER
from remit.relay.bridge.frames import Mode, PromptConstraints
from remit.relay.session.review import ReviewRules

MAX_ID = 256
Id = Annotated[str, Meta(min_length=1, max_length=MAX_ID)]
"""What devices, traces, profiles, questions and conversations are called between devices."""


class ProfileLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a run ends whatever its agents say (S7)."""

    max_turns: Annotated[int, Meta(ge=1)] = 8
    max_duration_ms: Annotated[int, Meta(ge=1)] = 600_000
    max_failures: Annotated[int, Meta(ge=1)] = 3
    """In a row, of the local agent or of the way to the remote one."""
    max_tokens_budget: Annotated[int, Meta(ge=1)] | None = None
    """What the local agent may spend in a run; None: as much as the other limits let it."""


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A local agent and what it may do with shared ones."""

    id: Id
    allow_shared_agent_calls: bool = False
    allowed_shared_device_ids: frozenset[Id] = frozenset()
    """The devices it may call and hear; empty: none."""
    max_concurrent_shared_calls: Annotated[int, Meta(ge=1)] = 3
    max_hop_count: Annotated[int, Meta(ge=0)] = 2
    # One message in two seconds, all day: agents that answer each other faster are talking in circles.
    rate: Rate = Rate(calls=30, seconds=60)
    """How often it may call each device, and each device it."""
    mode: Mode = "manual"
    limits: ProfileLimits = ProfileLimits()
    rules: ReviewRules = ReviewRules()
    constraints: PromptConstraints = PromptConstraints()


class ControlEnvelope(Struct, frozen=True, kw_only=True):
    """What travels beside a message and is shown to nobody: where it began, and how far it has come."""

    origin_agent_device_id: Id
    """The device of the person whose run this is; the same on every hop."""
    trace_id: Id
    """The same on every hop, and on every turn of a run."""
    hop_count: Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
    """1 from the origin to the first shared agent; each agent that passes a task on adds one."""
    orchestrator_profile_id: Id
    """The profile that sends this message."""

    def onward(self, profile: Profile) -> "ControlEnvelope":
        """Return the control of what *profile* asks of others on the way of doing what this message asked of it."""
        return ControlEnvelope(
            origin_agent_device_id=self.origin_agent_device_id,
            trace_id=self.trace_id,
            hop_count=self.hop_count + 1,
            orchestrator_profile_id=profile.id,
        )


def origin(profile: Profile, *, device: str, trace_id: str) -> ControlEnvelope:
    """Return the control of a run that a person starts on *device*."""
    return ControlEnvelope(
        origin_agent_device_id=device, trace_id=trace_id, hop_count=1, orchestrator_profile_id=profile.id
    )


class ProfileActivity(Struct, frozen=True, kw_only=True):
    """What else is going on, at the moment of judging."""

    in_flight: int = 0
    """Messages of other sessions that wait for their answer: of the profile's own, or to it."""
    window: Window = Window()
    """What was counted for this profile with this device, by `counted`."""
    traces: frozenset[str] = frozenset()
    """The traces of what is being worked on here in other sessions."""


def counted(window: Window, profile: Profile, now_ms: int) -> Window:
    """Return the window with one more message; the host keeps one for each (profile, device) and way."""
    return count(window, profile.rate, now_ms / 1_000)


def judge_outgoing(
    profile: Profile, control: ControlEnvelope, *, target: str, device: str, standing: ProfileActivity, now_ms: int
) -> Fault | None:
    """Say why *profile* on *device* may not send this to the device *target*; None: it may."""
    if target in (control.origin_agent_device_id, device):
        return fault(Code.LOOP_DETECTED, f"the message would come back to the device {target}, where it comes from")
    return (
        _kept_in(profile, target)
        or _too_far(profile, control)
        or _too_often(profile, target, standing, now_ms)
        or _too_many(profile, standing, Code.FAN_OUT_EXCEEDED)
    )


def judge_incoming(
    profile: Profile, control: ControlEnvelope, *, sender: str, device: str, standing: ProfileActivity, now_ms: int
) -> Fault | None:
    """Say why what the device *sender* asks is not given to *profile* on *device*; None: it is.

    *sender* is the device that the sealed session proves, not one that the message names. This is for what asks; an
    answer to what was asked from here needs no judge but its session.
    """
    begun_at, hops = control.origin_agent_device_id, control.hop_count
    if not profile.allow_shared_agent_calls or sender not in profile.allowed_shared_device_ids:
        # Read by whoever asked: nothing is said of how it is set here.
        return fault(
            Code.PERMISSION_DENIED,
            f"no agent `{profile.id}` is shared with the device {sender}",
            suggestion="Ask the owner of the device that was asked to share it with yours.",
        )
    if hops == 1 and begun_at != sender:
        return fault(
            Code.PERMISSION_DENIED,
            f"the device {sender} sends a first message in the name of {begun_at}",
            suggestion="Send it with your own device as `origin_agent_device_id`, or count the hops.",
        )
    if begun_at == device or (hops > 1 and begun_at == sender) or control.trace_id in standing.traces:
        return fault(Code.LOOP_DETECTED, f"the task of trace {control.trace_id} has come by the same device before")
    return (
        _too_far(profile, control)
        or _too_often(profile, sender, standing, now_ms)
        or _too_many(profile, standing, Code.OVERLOADED)
    )


def _kept_in(profile: Profile, device: str) -> Fault | None:
    if not profile.allow_shared_agent_calls:
        return fault(
            Code.PERMISSION_DENIED,
            f"the profile {profile.id} has no dealings with shared agents",
            suggestion=f"Set `allow_shared_agent_calls = true` in [profiles.{profile.id}] of the team file, if it may.",
        )
    if device not in profile.allowed_shared_device_ids:
        return fault(
            Code.PERMISSION_DENIED,
            f"the device {device} is not one that the profile {profile.id} may deal with",
            suggestion=f"Add the device's name to `devices` in [profiles.{profile.id}] of the team file, if it may.",
        )
    return None


def _too_far(profile: Profile, control: ControlEnvelope) -> Fault | None:
    if control.hop_count <= profile.max_hop_count:
        return None
    return fault(
        Code.MAX_DEPTH_EXCEEDED,
        f"the message is on its hop {control.hop_count}, and the profile {profile.id} takes part in at most "
        f"{profile.max_hop_count}",
    )


def _too_often(profile: Profile, device: str, standing: ProfileActivity, now_ms: int) -> Fault | None:
    wait = wait_ms(standing.window, profile.rate, now_ms / 1_000)
    if not wait:
        return None
    message = (
        f"too many messages between the profile {profile.id} and the device {device}; try again in {duration(wait)}"
    )
    return fault(Code.RATE_LIMITED, message, retry_after_ms=wait, suggestion="")


def _too_many(profile: Profile, standing: ProfileActivity, code: Code) -> Fault | None:
    most = profile.max_concurrent_shared_calls
    if standing.in_flight < most:
        return None
    return fault(code, f"the profile {profile.id} has {standing.in_flight} calls under way, and may have {most}")
