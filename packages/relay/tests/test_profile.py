"""A profile deals with shared agents only as far as its owner has said, and tasks do not go round in circles."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.policy.budget import Window
from remit.protocol.card import Rate
from remit.protocol.errors import Code, Fault
from remit_relay.bridge.ports import PromptConstraints
from remit_relay.session.profile import (
    ControlEnvelope,
    Profile,
    ProfileActivity,
    ProfileLimits,
    counted,
    judge_incoming,
    judge_outgoing,
    origin,
)
from remit_relay.session.review import ReviewRules

MINE, THEIRS, OTHER = "device-mine", "device-theirs", "device-other"


def a_profile(**fields: Any) -> Profile:
    known = Profile(id="p", allow_shared_agent_calls=True, allowed_shared_device_ids=frozenset({THEIRS}))
    return replace(known, **fields)


def a_control(**fields: Any) -> ControlEnvelope:
    known = ControlEnvelope(origin_agent_device_id=MINE, trace_id="t", hop_count=1, orchestrator_profile_id="p")
    return replace(known, **fields)


def outgoing(
    profile: Profile | None = None,
    control: ControlEnvelope | None = None,
    target: str = THEIRS,
    standing: ProfileActivity = ProfileActivity(),  # noqa: B008 (it is frozen)
    now_ms: int = 0,
) -> Fault | None:
    return judge_outgoing(
        profile or a_profile(), control or a_control(), target=target, device=MINE, standing=standing, now_ms=now_ms
    )


def incoming(
    profile: Profile | None = None,
    control: ControlEnvelope | None = None,
    sender: str = THEIRS,
    standing: ProfileActivity = ProfileActivity(),  # noqa: B008 (it is frozen)
    now_ms: int = 0,
) -> Fault | None:
    control = control or a_control(origin_agent_device_id=THEIRS)
    return judge_incoming(profile or a_profile(), control, sender=sender, device=MINE, standing=standing, now_ms=now_ms)


def code(problem: Fault | None) -> Code | None:
    return problem.code if problem else None


LOOP = (Code.LOOP_DETECTED, "", None)
BUSY = "the profile p has 3 calls in progress; the limit is 3"


# ── defaults ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_defaults_are_those_of_the_document() -> None:
    """S10: deny by default, 3 concurrent calls, 2 hops; S6: manual; S7: the limits."""
    assert Profile(id="p") == Profile(
        id="p",
        allow_shared_agent_calls=False,
        allowed_shared_device_ids=frozenset(),
        max_concurrent_shared_calls=3,
        max_hop_count=2,
        rate=Rate(calls=30, seconds=60),
        mode="manual",
        limits=ProfileLimits(max_turns=8, max_duration_ms=600_000, max_failures=3, max_tokens_budget=None),
        rules=ReviewRules(),
        constraints=PromptConstraints(),
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("allowSharedAgentCalls", True),
        ("id", ""),
        ("max_concurrent_shared_calls", 0),
        ("max_hop_count", -1),
        ("mode", "auto"),
        ("limits", {"max_turns": 0}),
        ("limits", {"max_tokens_budget": 0}),
        ("rules", {"off": ["nothing"]}),
    ],
)
def test_a_setting_that_cannot_be_is_named(field: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=next(iter(value)) if isinstance(value, dict) else field):  # pyright: ignore
        msgspec.convert({"id": "p", field: value}, Profile)


def test_a_profile_and_a_control_survive_being_written_and_read() -> None:
    for value in (a_profile(rules=ReviewRules(off=frozenset({"links"}))), a_control()):
        assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value


@pytest.mark.parametrize("hops", [0, -1])
def test_a_control_that_counts_no_hop_is_not_read(hops: int) -> None:
    content = msgspec.json.encode({**msgspec.to_builtins(a_control()), "hop_count": hops})
    with pytest.raises(msgspec.ValidationError, match="hop_count"):
        msgspec.json.decode(content, type=ControlEnvelope)


# ── who may ───────────────────────────────────────────────────────────────────────────────────────────────────────────


FAR = a_control(origin_agent_device_id=OTHER, hop_count=2)
"""A task that began on another device."""
BACK = a_control(origin_agent_device_id=THEIRS, hop_count=2)
"""A task that would return to the other device."""


@pytest.mark.parametrize(
    ("fault", "code", "message", "suggestion"),
    [
        # S10: deny by default, also for a device that is named already.
        (outgoing(), None, "", ""),
        (incoming(), None, "", ""),
        (
            outgoing(a_profile(allow_shared_agent_calls=False)),
            Code.PERMISSION_DENIED,
            "the profile p may not use shared agents",
            "Allow the device: remit devices allow device-theirs --profile p",
        ),
        (
            incoming(a_profile(allow_shared_agent_calls=False)),
            Code.PERMISSION_DENIED,
            "no agent `p` is shared with the device device-theirs",
            "Ask its owner to share it with your device.",
        ),
        # S10, S14: policy blocks a disallowed target. Who asks reads the second.
        (
            outgoing(target=OTHER),
            Code.PERMISSION_DENIED,
            "the profile p may not use the device device-other",
            "Allow it: remit devices allow device-other --profile p",
        ),
        (
            incoming(sender=OTHER, control=a_control(origin_agent_device_id=OTHER)),
            Code.PERMISSION_DENIED,
            "no agent `p` is shared with the device device-other",
            "Ask its owner to share it with your device.",
        ),
        (
            incoming(control=a_control(origin_agent_device_id=OTHER)),
            Code.PERMISSION_DENIED,
            "the device device-theirs sent a first message with device-other as its origin",
            "Send it with your own device as `origin_agent_device_id`, or count the hops.",
        ),
        # S11: self-loops, back to where a task began, and tasks that are worked on here already.
        *(
            (outgoing(a_profile(allowed_shared_device_ids=frozenset({MINE, THEIRS})), control, target=MINE), *LOOP)
            for control in (None, FAR)
        ),
        *((fault, *LOOP) for fault in (outgoing(control=BACK), incoming(control=BACK))),
        (incoming(control=a_control(hop_count=2)), *LOOP),
        (incoming(control=FAR, standing=ProfileActivity(traces=frozenset({"t"}))), *LOOP),
        (incoming(control=FAR, standing=ProfileActivity(traces=frozenset({"u"}))), None, "", ""),
        # S10: 3 concurrent calls.
        (outgoing(standing=ProfileActivity(in_flight=2)), None, "", ""),
        (incoming(standing=ProfileActivity(in_flight=2)), None, "", ""),
        (outgoing(standing=ProfileActivity(in_flight=3)), Code.FAN_OUT_EXCEEDED, BUSY, None),
        (incoming(standing=ProfileActivity(in_flight=3)), Code.OVERLOADED, BUSY, None),
    ],
)
def test_who_may_call_whom_and_how_often_at_once(
    fault: Fault | None, code: Code | None, message: str, suggestion: str | None
) -> None:
    if fault is None:
        assert code is None
        return
    assert fault.code is code
    assert message in fault.message
    assert suggestion in (None, fault.suggestion)


@given(st.sets(st.sampled_from([THEIRS, OTHER, "x"])), st.sampled_from([THEIRS, OTHER, "x"]), st.booleans())
def test_no_device_is_called_that_is_not_allowed(allowed: set[str], target: str, on: bool) -> None:
    profile = a_profile(allowed_shared_device_ids=frozenset(allowed), allow_shared_agent_calls=on)
    assert (outgoing(profile, target=target) is None) == (on and target in allowed)


# ── how far ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("hops", "most", "refused"), [(1, 2, False), (2, 2, False), (3, 2, True), (1, 0, True)])
def test_too_many_hops_are_refused_on_both_sides(hops: int, most: int, refused: bool) -> None:
    """S11: refused if `hop_count` > `max_hop_count`."""
    expected = Code.MAX_DEPTH_EXCEEDED if refused else None
    profile = a_profile(max_hop_count=most)
    control = a_control(hop_count=hops, origin_agent_device_id=OTHER if hops > 1 else MINE)
    assert code(outgoing(profile, control)) is expected
    control = a_control(hop_count=hops, origin_agent_device_id=OTHER if hops > 1 else THEIRS)
    assert code(incoming(profile, control)) is expected


def test_what_is_passed_on_keeps_its_origin_and_trace_and_counts_a_hop() -> None:
    first = origin(a_profile(), device=MINE, trace_id="t")
    assert first == a_control()
    assert first.onward(a_profile(id="q")) == a_control(hop_count=2, orchestrator_profile_id="q")


# ── circles ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=2, max_size=6))
def test_no_chain_of_honest_devices_comes_by_the_same_device_twice(route: list[str]) -> None:
    """S11: whatever the way, as long as each device says what it works on."""
    everyone = frozenset(route)
    profile = a_profile(allowed_shared_device_ids=everyone, max_hop_count=9)
    control, working = origin(profile, device=route[0], trace_id="t"), {route[0]}
    for sender, target in pairwise(route):
        traces = frozenset({"t"}) if target in working else frozenset[str]()
        refused = judge_outgoing(
            profile, control, target=target, device=sender, standing=ProfileActivity(), now_ms=0
        ) or judge_incoming(
            profile, control, sender=sender, device=target, standing=ProfileActivity(traces=traces), now_ms=0
        )
        assert (refused is not None) == (target in working)
        if refused:
            assert refused.code is Code.LOOP_DETECTED
            return
        working.add(target)
        control = control.onward(profile)


# ── how much ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_messages_between_a_profile_and_a_device_are_counted() -> None:
    """S11: rate-limited per (profile, target)."""
    profile = a_profile(rate=Rate(calls=2, seconds=10))
    window = Window()
    for now_ms in (0, 1_000):
        assert outgoing(profile, standing=ProfileActivity(window=window), now_ms=now_ms) is None
        window = counted(window, profile, now_ms)
    refused = outgoing(profile, standing=ProfileActivity(window=window), now_ms=4_000)
    assert refused is not None
    assert (refused.code, refused.retry_after_ms) == (Code.RATE_LIMITED, 6_000)
    assert refused.message == ("too many messages between the profile p and the device device-theirs; try again in 6 s")
    assert code(incoming(profile, standing=ProfileActivity(window=window), now_ms=4_000)) is Code.RATE_LIMITED
    assert outgoing(profile, standing=ProfileActivity(window=window), now_ms=10_000) is None
