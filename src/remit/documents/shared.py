"""Documents of runs with shared agents, and of calls to the agents that this device shares."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from remit.documents.common import AtMs
from remit.documents.devices import DeviceId

SharedRunId = Annotated[str, Meta(description="The run of the two agents; `remit chat … --continue RUN` continues it.")]


class SharedReview(Struct, frozen=True, kw_only=True):
    """Why a person must review a draft."""

    rule: Annotated[str, Meta(description="The rule that asks: `manual`, `paused`, `lost`, or one of `semi_auto`.")]
    why: Annotated[str, Meta(description="The reason as a sentence.")]


class SharedDraft(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.shared-draft/1"):
    """A pending draft to a shared agent.

    Printed by `remit chat PROFILE DEVICE --jsonl`, and by `remit pending list --jsonl` and `pending show --json`.
    """

    draft: Annotated[str, Meta(description="The draft id; `remit pending approve ID` sends it.")]
    run: SharedRunId
    profile: Annotated[str, Meta(description="The profile whose agent wrote it.")]
    device: Annotated[str, Meta(description="Id of the receiving device.")]
    device_name: Annotated[str, Meta(description="Name of the receiving device.")] = ""
    objective: Annotated[str, Meta(description="The objective of the two agents.")]
    turn: Annotated[int, Meta(description="Its turn number, from 1.")]
    text: Annotated[str, Meta(description="The text to send.")]
    reviews: Annotated[tuple[SharedReview, ...], Meta(description="Why a person must review it.")]
    paused: Annotated[
        bool, Meta(description="Whether its run is paused. An answer takes effect when the run resumes.")
    ] = False


class SharedTurn(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.shared-turn/1"):
    """A message between two agents. Printed by `remit chat PROFILE DEVICE --jsonl` as it arrives."""

    run: SharedRunId
    turn: Annotated[int, Meta(description="The turn number, from 1; 0: before the first turn.")]
    speaker: Annotated[
        Literal["local_agent", "remote_agent", "user"],
        Meta(description="The speaker; `user` is the person on this device."),
    ]
    text: Annotated[str, Meta(description="The text.")]
    label: Annotated[
        Literal["auto_sent", "approved", "edited", "yours"] | None,
        Meta(description="How it was approved: automatically, by a person, edited, or written by you. Null: received."),
    ] = None
    at_ms: AtMs
    took_ms: Annotated[int, Meta(description="Time to write it; for a reply, time until it arrived.")] = 0
    failed: Annotated[str, Meta(description="Why there will be no reply.")] = ""


class _Shared(Struct, frozen=True, kw_only=True):
    run: SharedRunId
    profile: Annotated[str, Meta(description="The profile of the local agent.")]
    device: Annotated[str, Meta(description="Id of the device that shares the other agent.")]
    agent: Annotated[
        str, Meta(description="The shared name of that agent; empty: the only one that the device shares.")
    ] = ""
    objective: Annotated[str, Meta(description="The objective of the two agents.")]
    mode: Annotated[
        Literal["manual", "semi_auto", "full_auto"],
        Meta(description="Which drafts a person reviews before they are sent."),
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
        Meta(description="State of the run."),
    ]
    decides: Annotated[Literal["agent", "person"], Meta(description="Who writes the next message.")]
    connection: Annotated[
        Literal["connecting", "connected", "waiting", "ended"],
        Meta(description="State of the connection to the gateway."),
    ]
    turn: Annotated[int, Meta(description="Number of messages sent.")]
    max_turns: Annotated[int, Meta(description="Maximum number of messages.")]
    active_ms: Annotated[int, Meta(description="Time that agents have worked.")]
    max_duration_ms: Annotated[int, Meta(description="Maximum time that agents may work.")]
    tokens: Annotated[int, Meta(description="Tokens spent by the local agent.")]
    max_tokens: Annotated[int | None, Meta(description="Token budget of the local agent; null: no limit.")] = None
    failure: Annotated[str, Meta(description="The failure, if one stopped or ended the run.")] = ""
    ended: Annotated[
        Literal["done", "user", "max_turns", "max_duration_ms", "max_failures", "max_tokens_budget"] | None,
        Meta(description="Why the run ended: the agent finished, a person stopped it, or the limit that it reached."),
    ] = None
    banner: Annotated[str, Meta(description="The limit that it reached, as a sentence.")] = ""
    result: Annotated[str, Meta(description="The agent's final result.")] = ""


class SharedState(_Shared, frozen=True, kw_only=True, tag_field="schema", tag="remit.shared-state/1"):
    """The state of a run of two agents. Printed by `remit chat PROFILE DEVICE --jsonl`, first and after each change."""


class SharedRun(_Shared, frozen=True, kw_only=True, tag_field="schema", tag="remit.shared-run/1"):
    """A complete run of two agents. Printed by `remit chat PROFILE DEVICE --json`, at the end."""

    draft: Annotated[SharedDraft | None, Meta(description="The pending draft, or the one left unsent.")] = None
    turns: Annotated[tuple[SharedTurn, ...], Meta(description="The messages, in order.")]


class SharedAgent(Struct, frozen=True, kw_only=True):
    """An agent that other devices may call."""

    name: Annotated[str, Meta(description="The name it is shared under.")]
    agent: Annotated[str, Meta(description="The agent of the team.")]
    devices: Annotated[tuple[str, ...], Meta(description="Devices that may call it: names or ids, as configured.")]


class SharingUp(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.sharing/1"):
    """A device that shares agents. Printed by `remit share --json` when it is sharing."""

    device: DeviceId
    gateway: Annotated[str, Meta(description="The gateway.")]
    shared: Annotated[tuple[SharedAgent, ...], Meta(description="The shared agents.")]


class SharedQuestion(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.shared-question/1"):
    """A call to a shared agent, or its outcome, without its content. Printed by `remit share --jsonl`."""

    at_ms: AtMs
    device: DeviceId
    name: Annotated[str, Meta(description="The name of that device on this one.")]
    requester: Annotated[str, Meta(description="The user that the device names; empty: the device itself.")]
    shared: Annotated[
        str, Meta(description="The shared name of the agent; empty if it is unclear which one was meant.")
    ]
    event: Annotated[Literal["asked", "answered", "declined"], Meta(description="What happened.")]
    code: Annotated[str, Meta(description="The error code, if it was declined: `remit errors CODE` explains it.")] = ""
