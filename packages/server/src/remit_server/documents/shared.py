"""Documents of devices: runs with shared agents, calls to the agents that this device shares, pending questions."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from remit.ports import Decision, Question
from remit_server.documents.common import AtMs, RunId, State

DeviceId = Annotated[str, Meta(description="The device id, derived from its key.")]


class GatewayUp(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.gateway/1"):
    """A running gateway. Printed by `remit relay --json` when it accepts connections."""

    name: Annotated[str, Meta(description="Its own name for itself.")]
    address: Annotated[str, Meta(description="The address to reach it at.")]
    folder: Annotated[str, Meta(description="Folder for messages to offline devices; empty with a database.")] = ""
    store: Annotated[str, Meta(description="Address of the database that gateways share; empty with a folder.")] = ""


class DeviceShown(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.device/1"):
    """This device. Printed by `remit devices init --json` and `devices show --json`."""

    id: DeviceId
    name: Annotated[str, Meta(description="The name that others see.")]
    fingerprint: Annotated[str, Meta(description="Key fingerprint for two people to compare.")]
    gateway: Annotated[str, Meta(description="Gateway named in its card; empty: none.")]
    file: Annotated[str, Meta(description="The encrypted file with its identity.")]
    link: Annotated[str, Meta(description="Its card as a link, to pair with it. Contains no secret.")]


class OfferedAgent(Struct, frozen=True, kw_only=True):
    """An agent that another device shares with this one."""

    name: Annotated[str, Meta(description="The name it is shared under: `remit chat … --agent NAME`.")]
    description: Annotated[str, Meta(description="The owner's description.")] = ""


class KnownDevice(Struct, frozen=True, kw_only=True):
    """A paired device."""

    id: DeviceId
    name: Annotated[str, Meta(description="Its own name for itself.")]
    fingerprint: Annotated[str, Meta(description="Key fingerprint for two people to compare.")]
    verified: Annotated[bool, Meta(description="Whether the two owners compared codes.")]
    shared: Annotated[bool, Meta(description="Whether agents here may call agents that it shares.")]
    offers: Annotated[
        tuple[OfferedAgent, ...] | None,
        Meta(description="Agents that it shares with this device; null: not known yet."),
    ] = None
    allowed: Annotated[bool, Meta(description="Whether it may contact this device on its own.")]
    revoked: Annotated[bool, Meta(description="Whether it was revoked, permanently.")]
    revoked_there: Annotated[bool, Meta(description="Whether it says that its owner has revoked this device.")]
    agents: Annotated[tuple[str, ...], Meta(description="Shared agents that it was granted to ask.")] = ()
    profiles: Annotated[tuple[str, ...], Meta(description="Profiles that were granted to ask it.")] = ()
    groups: Annotated[tuple[str, ...], Meta(description="Groups that it is in.")] = ()
    own: Annotated[bool, Meta(description="Whether it is marked as another device of this owner.")] = False


class Devices(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.devices/1"):
    """The paired devices. Printed by `remit devices list --json`."""

    device: DeviceId
    devices: Annotated[tuple[KnownDevice, ...], Meta(description="The known devices, by name.")]


class DevicePaired(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.pairing/1"):
    """A newly paired device. Printed by `remit devices pair --json` and `remit pair --json`."""

    device: Annotated[KnownDevice, Meta(description="The device.")]
    code: Annotated[str, Meta(description="The code that both owners see if neither card was tampered with.")]
    words: Annotated[str, Meta(description="Four words for that code, after `remit pair`; else empty.")] = ""


class DeviceChanged(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.known-device/1"):
    """The new permissions of a device. Printed by `remit devices allow`, `own` and `revoke` with --json."""

    device: Annotated[KnownDevice, Meta(description="The device.")]


class DeviceGroup(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.device-group/1"):
    """The devices of a group. Printed by `remit devices group --json`, and by `devices allow --json` for a group."""

    group: Annotated[str, Meta(description="The name of the group.")]
    devices: Annotated[tuple[KnownDevice, ...], Meta(description="Its devices, by name; empty: it was removed.")]


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


MessageDeliveryState = Annotated[
    Literal["waiting", "taken", "delivered", "read", "answered", "failed"],
    Meta(
        description="`waiting` in the outbox of this device, `taken` by the gateway, `delivered` to the other device, "
        "`read` by the shared agent, `answered`, or `failed`."
    ),
]


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
    delivery: Annotated[
        MessageDeliveryState | None,
        Meta(description="How far it had come when this was printed. Null: received, or not known."),
    ] = None


class SharedDelivery(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.shared-delivery/1"):
    """The new state of a message that was sent. Printed by `remit chat PROFILE DEVICE --jsonl` when it changes."""

    run: SharedRunId
    turn: Annotated[int, Meta(description="The turn of the message.")]
    state: MessageDeliveryState
    since_ms: AtMs
    why: Annotated[str, Meta(description="Why it has failed.")] = ""


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
        Literal["connecting", "connected", "silent", "waiting", "ended"],
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
        Literal["done", "user", "max_turns", "max_duration_ms", "max_failures", "max_tokens_budget", "revoked"] | None,
        Meta(
            description="Why the run ended: the agent finished, a person stopped it, the limit that it reached, or one "
            "of the two devices has revoked the other."
        ),
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


class DeviceUp(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.device-up/1"):
    """A running device. Printed by `remit up --json` when it runs, and by `remit up --status --json`."""

    device: DeviceId
    name: Annotated[str, Meta(description="The name of the device.")]
    command: Annotated[Literal["up", "chat", "share", "dev"], Meta(description="The command that runs the device.")]
    pid: Annotated[int, Meta(description="Id of the process.")]
    version: Annotated[str, Meta(description="Its version of Remit.")]
    since_ms: Annotated[int, Meta(description="When it started, in milliseconds since 1970.")]
    address: Annotated[str, Meta(description="Address of its local API.")]
    gateway: Annotated[str, Meta(description="The gateway.")]
    connection: Annotated[
        Literal["connecting", "connected", "silent", "waiting", "ended"],
        Meta(description="State of the connection to the gateway."),
    ]
    shared: Annotated[tuple[SharedAgent, ...], Meta(description="The shared agents.")]
    open_runs: Annotated[int, Meta(description="Number of runs that have not ended.")]
    waiting_drafts: Annotated[int, Meta(description="Number of drafts that wait for a person.")]


class DeviceDown(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.device-down/1"):
    """A device without a local API. Printed by `remit up --status --json` and `remit up --stop --json`."""

    pid: Annotated[
        int | None, Meta(description="Id of a process that runs it without a local API; null: it does not run.")
    ] = None


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


class PendingQuestion(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.question/1"):
    """A pending question. Printed by `remit pending show --json`, and by `pending list --jsonl`."""

    question: Annotated[Question, Meta(description="The question and its request, redacted.")]
    run: RunId
    left_ms: Annotated[int, Meta(description="Time left to answer.")]


class Pending(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.pending/1"):
    """The pending questions and drafts. Printed by `remit pending list --json`."""

    questions: Annotated[tuple[PendingQuestion, ...], Meta(description="The questions, oldest first.")]
    drafts: Annotated[
        tuple[SharedDraft, ...], Meta(description="The pending drafts to shared agents, oldest run first.")
    ] = ()


class Decided(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.decision/1"):
    """The answer to a question. Printed by `remit pending approve --json` and `pending reject --json`."""

    question: Annotated[str, Meta(description="The question id.")]
    run: RunId
    state: State
    decision: Annotated[Decision, Meta(description="The answer, and who gave it.")]


class DraftAnswered(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.draft-answer/1"):
    """The answer to a draft. Printed by `remit pending approve --json` and `pending reject --json` for a draft."""

    draft: Annotated[SharedDraft, Meta(description="The draft before the answer.")]
    agreed: Annotated[bool, Meta(description="Whether it is sent.")]
    text: Annotated[str | None, Meta(description="The replacement text; null: sent unchanged, or not sent.")] = None
    reason: Annotated[str, Meta(description="Reason for rejecting it, as told to the agent.")] = ""
