"""Runs with shared agents, and what is asked of those that this device shares."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from remit.documents.common import AtMs
from remit.documents.devices import DeviceId

SharedRunId = Annotated[
    str, Meta(description="The run of the two agents; `remit chat … --continue RUN` goes on with it.")
]


class SharedReview(Struct, frozen=True, kw_only=True):
    """Why a person sees a draft before it is sent."""

    rule: Annotated[str, Meta(description="Which rule asks: `manual`, `paused`, `lost`, or one of `semi_auto`.")]
    why: Annotated[str, Meta(description="What it found, as a sentence.")]


class SharedDraft(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.shared-draft/1"):
    """A draft to a shared agent that waits for a person.

    Printed by `remit chat PROFILE DEVICE --jsonl`, and by `remit pending list --jsonl` and `pending show --json`.
    """

    draft: Annotated[str, Meta(description="Its id; `remit pending approve ID` sends it.")]
    run: SharedRunId
    profile: Annotated[str, Meta(description="The profile whose agent wrote it.")]
    device: Annotated[str, Meta(description="The id of the device to whose agent it would go.")]
    device_name: Annotated[str, Meta(description="The name of that device.")] = ""
    objective: Annotated[str, Meta(description="What the two agents work on.")]
    turn: Annotated[int, Meta(description="The turn that it would be, from 1.")]
    text: Annotated[str, Meta(description="What would be sent.")]
    reviews: Annotated[tuple[SharedReview, ...], Meta(description="Why a person is asked.")]
    paused: Annotated[bool, Meta(description="Whether its run is paused: an answer counts once that goes on.")] = False


class SharedTurn(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.shared-turn/1"):
    """Something that was said between two agents. Printed by `remit chat PROFILE DEVICE --jsonl`, as it comes."""

    run: SharedRunId
    turn: Annotated[int, Meta(description="The turn it belongs to, from 1; 0: it was said before the first.")]
    speaker: Annotated[
        Literal["local_agent", "remote_agent", "user"], Meta(description="Who said it; `user` is the person here.")
    ]
    text: Annotated[str, Meta(description="What was said.")]
    label: Annotated[
        Literal["auto_sent", "approved", "edited", "yours"] | None,
        Meta(description="Who let it go: nobody, a person as it was or changed; or a person wrote it. Null: it came."),
    ] = None
    at_ms: AtMs
    took_ms: Annotated[int, Meta(description="How long it was drafted; for a reply, how long it was waited for.")] = 0
    failed: Annotated[str, Meta(description="Why it got no reply and will not get one.")] = ""


class _Shared(Struct, frozen=True, kw_only=True):
    run: SharedRunId
    profile: Annotated[str, Meta(description="The profile whose agent speaks here.")]
    device: Annotated[str, Meta(description="The id of the device that shares the other agent.")]
    agent: Annotated[str, Meta(description="What it shares that agent as; empty: the only one that it shares.")] = ""
    objective: Annotated[str, Meta(description="What the two work on.")]
    mode: Annotated[
        Literal["manual", "semi_auto", "full_auto"],
        Meta(description="Which drafts a person sees before they are sent."),
    ]
    state: Annotated[
        Literal[
            "idle",
            "planning",
            "waiting_local",
            "ready_to_send",
            "waiting_remote",
            "processing_remote",
            "completed",
            "paused",
            "error",
            "stopped",
        ],
        Meta(description="Where the run is."),
    ]
    decides: Annotated[Literal["agent", "person"], Meta(description="Who writes what is said next.")]
    connection: Annotated[
        Literal["connecting", "connected", "waiting", "ended"], Meta(description="How the way to the gateway stands.")
    ]
    turn: Annotated[int, Meta(description="How many messages were sent.")]
    max_turns: Annotated[int, Meta(description="How many may be.")]
    active_ms: Annotated[int, Meta(description="How long agents were at work.")]
    max_duration_ms: Annotated[int, Meta(description="How long they may be.")]
    tokens: Annotated[int, Meta(description="How many tokens the local agent took.")]
    max_tokens: Annotated[int | None, Meta(description="How many it may take; null: there is no such limit.")] = None
    failure: Annotated[str, Meta(description="What failed, if the run is in error or failures ended it.")] = ""
    ended: Annotated[
        Literal["done", "user", "max_turns", "max_duration_ms", "max_failures", "max_tokens_budget"] | None,
        Meta(description="Why the run ended: its agent was done, a person stopped it, or at which limit."),
    ] = None
    banner: Annotated[str, Meta(description="The limit at which it ended, as a sentence.")] = ""
    result: Annotated[str, Meta(description="What its agent said when it was done.")] = ""


class SharedState(_Shared, frozen=True, kw_only=True, tag_field="schema", tag="remit.shared-state/1"):
    """Where a run of two agents is now. Printed by `remit chat PROFILE DEVICE --jsonl`, first and after each change."""


class SharedRun(_Shared, frozen=True, kw_only=True, tag_field="schema", tag="remit.shared-run/1"):
    """A run of two agents, whole. Printed by `remit chat PROFILE DEVICE --json`, at the end."""

    draft: Annotated[SharedDraft | None, Meta(description="The draft that waits, or was left unsent.")] = None
    turns: Annotated[tuple[SharedTurn, ...], Meta(description="What was said, in order.")]


class SharedAgent(Struct, frozen=True, kw_only=True):
    """An agent that others may ask."""

    name: Annotated[str, Meta(description="What it is shared as.")]
    agent: Annotated[str, Meta(description="Which agent of the team it is.")]
    devices: Annotated[tuple[str, ...], Meta(description="Who may ask it, as it was said: names or ids.")]


class SharingUp(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.sharing/1"):
    """A device that shares agents. Printed by `remit share --json` once it does."""

    device: DeviceId
    gateway: Annotated[str, Meta(description="Over which gateway.")]
    shared: Annotated[tuple[SharedAgent, ...], Meta(description="What it shares.")]


class SharedQuestion(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.shared-question/1"):
    """That somebody asked a shared agent, or what came of it; never what was said. Printed by `remit share --jsonl`."""

    at_ms: AtMs
    device: DeviceId
    name: Annotated[str, Meta(description="What that device is called here.")]
    requester: Annotated[str, Meta(description="In whose name it asks, as it says; empty: in its own.")]
    shared: Annotated[str, Meta(description="What the agent is shared as; empty if it is not clear which was meant.")]
    event: Annotated[Literal["asked", "answered", "declined"], Meta(description="What happened.")]
    code: Annotated[str, Meta(description="Why it was declined: `remit errors CODE` explains it; else empty.")] = ""
