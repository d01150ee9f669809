"""Shared agents: the gateway, the local agents that work with them, and those that others may ask."""

from typing import Annotated, Literal

from msgspec import Meta

from remit.config.sections.base import Section
from remit.config.values import AgentName, DeviceName, Duration, GatewayUrl, Positive, Secret, Variable, duration
from remit.policy.plan import Share
from remit.protocol.card import Rate
from remit.protocol.remit import Count
from remit.relay.bridge.frames import Mode, PromptConstraints

_CONSTRAINTS = PromptConstraints()


class RelaySection(Section, frozen=True, kw_only=True):
    """The gateway over which this device reaches others, and they it; see [relay.md](relay.md)."""

    gateway: Annotated[GatewayUrl, Meta(description="Where the gateway is, as `remit relay` prints it.")]
    name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255)] | None,
        Meta(description="What the gateway calls itself; else the host in `gateway`. Another gets no signature."),
    ] = None
    user: Annotated[
        Annotated[str, Meta(max_length=200)],
        Meta(description="In whose name this device asks; who is asked reads it. Empty: in that of the device alone."),
    ] = ""
    authority: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="Whose certificates count for `wss`, a PEM file; else those that this machine trusts."),
    ] = None
    passphrase: Annotated[
        Secret | None,
        Meta(description="A passphrase that the device's key file needs besides; made with it, if at all."),
    ] = None


# As `relay.session.profile` and `relay.session.review` have them; those take longer to load than most commands may.
ReviewRule = Literal[
    "low_confidence",
    "first_contact",
    "money",
    "credentials",
    "personal_data",
    "links",
    "large_edit",
    "off_objective",
]
_RATE = Rate(30, 60)


class ProfileLimitsSection(Section, frozen=True, kw_only=True):
    """Where a run of a profile ends, whatever its agents say."""

    max_turns: Annotated[Positive, Meta(description="So many messages to the shared agent.")] = 8
    max_duration: Annotated[Duration, Meta(description="So long at work; while it is paused, no time passes.")] = "10m"
    max_failures: Annotated[Positive, Meta(description="So many failures in a row.")] = 3
    max_tokens: Annotated[
        Positive | None, Meta(description="So many tokens of the local agent; else no such limit.")
    ] = None


class ProfileRulesSection(Section, frozen=True, kw_only=True):
    """When a person looks at a draft first, in mode `semi_auto`."""

    off: Annotated[frozenset[ReviewRule], Meta(description="Rules that never ask.")] = frozenset()
    min_confidence: Annotated[Share, Meta(description="How sure of its draft the local agent has to be.")] = 0.7
    max_chars: Annotated[Positive, Meta(description="How long a draft may be.")] = 4_000
    min_shared_words: Annotated[
        Share, Meta(description="What share of its words the objective or the last reply has to hold.")
    ] = 0.1


class ProfileConstraintsSection(Section, frozen=True, kw_only=True):
    """What the local agent is held to in each turn."""

    max_output_chars: Annotated[Positive, Meta(description="Characters of a draft.")] = _CONSTRAINTS.max_output_chars
    allow_tool_use: Annotated[bool, Meta(description="Whether it may use tools.")] = _CONSTRAINTS.allow_tool_use
    max_history_turns: Annotated[Count, Meta(description="Turns that it is shown as they were said.")] = (
        _CONSTRAINTS.max_history_turns
    )
    max_history_chars: Annotated[Count, Meta(description="Characters of them.")] = _CONSTRAINTS.max_history_chars
    max_tool_rounds: Annotated[Count, Meta(description="How often it may use tools.")] = _CONSTRAINTS.max_tool_rounds
    turn_timeout: Annotated[Duration, Meta(description="Time for a turn: at most 120 s, without tools 60 s.")] = (
        duration(_CONSTRAINTS.local_turn_timeout_ms)
    )


class ProfileSection(Section, frozen=True, kw_only=True):
    """A local agent that may work with shared ones, and within what. It has `agent`, `run` or `acp`."""

    agent: Annotated[AgentName | None, Meta(description="An agent of this team.")] = None
    run: Annotated[
        tuple[str, ...] | None,
        Meta(
            description="Or a program that takes and gives lines of JSON, with its arguments; see [relay.md](relay.md)."
        ),
    ] = None
    acp: Annotated[
        tuple[str, ...] | None,
        Meta(description="Or a program that speaks the Agent Client Protocol; needs the extra `acp`."),
    ] = None
    env: Annotated[
        dict[str, Variable],
        Meta(
            description="The environment of that program, besides `PATH`, `HOME` and the like: plain texts, or "
            '`"$NAME"` for the value of that variable here.'
        ),
    ] = {}
    files: Annotated[
        Literal["none", "read"],
        Meta(
            description="Whether a program that speaks ACP may `read` files of the team file's folder through Remit; "
            "see [local-agents.md](local-agents.md)."
        ),
    ] = "none"
    allow_shared_agent_calls: Annotated[
        bool, Meta(description="Whether it may have to do with shared agents at all.")
    ] = False
    devices: Annotated[
        frozenset[DeviceName], Meta(description="The devices that it may call, by name or id; none if it is not given.")
    ] = frozenset()
    max_concurrent_shared_calls: Annotated[Positive, Meta(description="How many calls may be under way at once.")] = 3
    max_hop_count: Annotated[Count, Meta(description="How many agents a task may have passed on its way.")] = 2
    rate: Annotated[Rate, Meta(description="How often it may call each device: `{ calls = 30, seconds = 60 }`.")] = (
        _RATE
    )
    mode: Annotated[
        Mode,
        Meta(
            description="Whether a person agrees to each message (`manual`), to those that a rule asks about "
            "(`semi_auto`), or to none (`full_auto`); where a run does not say."
        ),
    ] = "manual"
    limits: Annotated[ProfileLimitsSection, Meta(description="Where a run ends.")] = ProfileLimitsSection()
    rules: Annotated[ProfileRulesSection, Meta(description="When a person looks first.")] = ProfileRulesSection()
    constraints: Annotated[ProfileConstraintsSection, Meta(description="What a turn may take.")] = (
        ProfileConstraintsSection()
    )


class SharedSection(Section, frozen=True, kw_only=True):
    """An agent of this team that other devices may ask: `remit share`; see [relay.md](relay.md)."""

    agent: Annotated[AgentName | None, Meta(description="The agent; else the one of the section's name.")] = None
    description: Annotated[
        str | None, Meta(description="What those who may ask it are told that it is; else what the agent's own says.")
    ] = None
    devices: Annotated[
        frozenset[DeviceName], Meta(description="The devices that may ask it, by name or id; none if it is not given.")
    ] = frozenset()
    max_concurrent_shared_calls: Annotated[
        Positive, Meta(description="How many of their questions are worked on at once.")
    ] = 3
    max_hop_count: Annotated[Count, Meta(description="How many agents a task may have passed on its way.")] = 2
    rate: Annotated[Rate, Meta(description="How often each device may ask: `{ calls = 30, seconds = 60 }`.")] = _RATE
