"""The sections `[relay]`, `[profiles]` and `[shared]` of the team file: their checks, and what they give a hub."""

from collections.abc import Collection, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from remit.installed import named
from remit.protocol.card import Rate
from remit.protocol.orchestration import Share
from remit.protocol.problems import WrongPart, did_you_mean
from remit.protocol.remit import Count
from remit_cli.config.sections.agents import AgentSection
from remit_cli.config.team import Composition, Inspection, Team, TeamFile, TeamSection
from remit_cli.config.values import (
    AgentName,
    DeviceName,
    Duration,
    GatewayUrl,
    MediaTypes,
    Positive,
    Secret,
    Section,
    Url,
    Variable,
    duration,
    duration_ms,
)
from remit_relay.bridge.ports import Mode, PromptConstraints, ReviewRule

# ── the structs ───────────────────────────────────────────────────────────────────────────────────────────────────────

_CONSTRAINTS = PromptConstraints()


class NotifySection(Section, frozen=True, kw_only=True):
    """How you are told that a run needs you: a draft waits, a permission is asked for, it failed, or it has ended."""

    desktop: Annotated[bool, Meta(description="Whether to show notifications on this desktop.")] = False
    command: Annotated[
        tuple[str, ...] | None,
        Meta(description="A program, with its arguments, that reads each notification as JSON from its stdin."),
    ] = None
    webhook: Annotated[
        Url | None,
        Meta(description="The address to which each notification is posted as JSON: `https`, or on this machine."),
    ] = None
    secret: Annotated[
        Secret | None,
        Meta(description="Signs what is posted to `webhook`, with HMAC-SHA-256 in the header `X-Remit-Signature`."),
    ] = None
    texts: Annotated[
        bool,
        Meta(description="Whether notifications hold the draft, question, failure or result; else only who and when."),
    ] = False


class RelaySection(Section, frozen=True, kw_only=True):
    """The gateway that connects this device with others; see `remit docs shared-agents`."""

    gateway: Annotated[GatewayUrl, Meta(description="The URL of the gateway, as `remit relay` prints it.")]
    name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=255)] | None,
        Meta(
            description="The name that the gateway gives itself (default: the host in `gateway`). A gateway "
            "with another name gets no signature."
        ),
    ] = None
    user: Annotated[
        Annotated[str, Meta(max_length=200)],
        Meta(
            description="User on whose behalf this device asks, shown to the other side. If empty, only the "
            "device is named."
        ),
    ] = ""
    certificate_authority: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The certificate authority for `wss`, a PEM file (default: those that this machine trusts)."),
    ] = None
    passphrase: Annotated[
        Secret | None,
        Meta(
            description="An additional passphrase for the device's key file; it must be set when the file is created."
        ),
    ] = None
    notify: Annotated[
        NotifySection | None, Meta(description="How you are told that a run needs you (default: not at all).")
    ] = None


_RATE = Rate(30, 60)


class ProfileLimitsSection(Section, frozen=True, kw_only=True):
    """When a session of a profile ends, whatever its agents say."""

    max_turns: Annotated[Positive, Meta(description="Maximum messages to the shared agent.")] = 8
    max_duration: Annotated[Duration, Meta(description="Maximum active time; pauses do not count.")] = "10m"
    max_failures: Annotated[Positive, Meta(description="Maximum failures in a row.")] = 3
    max_tokens: Annotated[
        Positive | None, Meta(description="Maximum tokens of the local agent (default: no limit).")
    ] = None


class ProfileRulesSection(Section, frozen=True, kw_only=True):
    """When a person reviews a draft, in mode `semi_auto`."""

    disabled: Annotated[frozenset[ReviewRule], Meta(description="Rules that are disabled.")] = frozenset()
    min_confidence: Annotated[Share, Meta(description="Minimum confidence of the local agent in its draft.")] = 0.7
    max_chars: Annotated[Positive, Meta(description="Maximum length of a draft, in characters.")] = 4_000
    min_shared_words: Annotated[
        Share, Meta(description="Minimum share of a draft's words that occur in the objective or the last reply.")
    ] = 0.1


class ProfileConstraintsSection(Section, frozen=True, kw_only=True):
    """Limits of the local agent in each turn."""

    max_output_chars: Annotated[Positive, Meta(description="Maximum characters of a draft.")] = (
        _CONSTRAINTS.max_output_chars
    )
    allow_tool_use: Annotated[bool, Meta(description="Whether the agent may use tools.")] = _CONSTRAINTS.allow_tool_use
    max_history_turns: Annotated[Count, Meta(description="Maximum earlier turns that the agent is shown in full.")] = (
        _CONSTRAINTS.max_history_turns
    )
    max_history_chars: Annotated[Count, Meta(description="Maximum characters of those turns.")] = (
        _CONSTRAINTS.max_history_chars
    )
    max_tool_rounds: Annotated[Count, Meta(description="Maximum rounds of tool calls.")] = _CONSTRAINTS.max_tool_rounds
    turn_timeout: Annotated[Duration, Meta(description="Time for a turn: at most 120 s, or 60 s without tools.")] = (
        duration(_CONSTRAINTS.local_turn_timeout_ms)
    )


class AttachmentsSection(Section, frozen=True, kw_only=True):
    """Which files may travel with messages. Without `types`, none may."""

    types: Annotated[
        tuple[MediaTypes, ...],
        Meta(description='Allowed media types: `"image/png"`, `"text/*"` or `"*/*"` (default: no files).'),
    ] = ()
    max_size: Annotated[
        Annotated[int, Meta(ge=1, le=8 * 1024 * 1024)], Meta(description="Maximum bytes of one file.")
    ] = 1_000_000
    max_count: Annotated[Annotated[int, Meta(ge=1, le=64)], Meta(description="Maximum files of one message.")] = 4


class ProfileAttachmentsSection(AttachmentsSection, frozen=True, kw_only=True):
    """Which files may travel with messages of a profile and with their answers. Without `types`, none may."""

    keep: Annotated[Duration, Meta(description="How long files are kept after their run has ended.")] = "30d"


class ProfileSection(Section, frozen=True, kw_only=True):
    """A local agent that may work with shared agents, and its limits. It has `agent`, `run` or `acp`."""

    agent: Annotated[AgentName | None, Meta(description="An agent of this team.")] = None
    run: Annotated[
        tuple[str, ...] | None,
        Meta(
            description="A program, with its arguments, that reads and writes lines of JSON; "
            "see `remit docs local-agents`."
        ),
    ] = None
    acp: Annotated[
        tuple[str, ...] | None,
        Meta(
            description="A program, with its arguments, that speaks the Agent Client Protocol; needs the extra `acp`."
        ),
    ] = None
    env: Annotated[
        dict[str, Variable],
        Meta(
            description="Environment of the program, besides `PATH`, `HOME` and the like: plain texts, or "
            '`"$NAME"` for the value of that variable here.'
        ),
    ] = {}
    files: Annotated[
        Literal["none", "read"],
        Meta(
            description="Whether an ACP program may `read` files of the team file's folder through Remit; see "
            "`remit docs acp-agents`."
        ),
    ] = "none"
    allow_shared_agent_calls: Annotated[
        bool | None,
        Meta(
            description="Whether the profile may call shared agents: `true` for `devices` and what `remit devices "
            "allow` granted, `false` for none (default: only what was granted)."
        ),
    ] = None
    devices: Annotated[
        frozenset[DeviceName], Meta(description="Devices that the profile may call, by name or id (default: none).")
    ] = frozenset()
    max_concurrent_shared_calls: Annotated[Positive, Meta(description="Maximum calls in progress at once.")] = 3
    max_hop_count: Annotated[Count, Meta(description="Maximum agents that a task may have passed through.")] = 2
    rate: Annotated[Rate, Meta(description="How often it may call each device: `{ calls = 30, seconds = 60 }`.")] = (
        _RATE
    )
    mode: Annotated[
        Mode,
        Meta(
            description="Whether a person approves each message (`manual`), those that a rule selects "
            "(`semi_auto`), or none (`full_auto`), unless a session sets it."
        ),
    ] = "manual"
    limits: Annotated[ProfileLimitsSection, Meta(description="When a session ends.")] = ProfileLimitsSection()
    rules: Annotated[ProfileRulesSection, Meta(description="When a person reviews a draft.")] = ProfileRulesSection()
    constraints: Annotated[ProfileConstraintsSection, Meta(description="Limits of a turn.")] = (
        ProfileConstraintsSection()
    )
    attachments: Annotated[
        ProfileAttachmentsSection, Meta(description="Which files its messages and their answers may carry.")
    ] = ProfileAttachmentsSection()


class SharedSection(Section, frozen=True, kw_only=True):
    """An agent of this team that other devices may call: `remit share`; see `remit docs shared-agents`."""

    agent: Annotated[AgentName | None, Meta(description="The agent (default: the one with the section's name).")] = None
    description: Annotated[
        str | None, Meta(description="The description that callers see (default: the agent's own).")
    ] = None
    devices: Annotated[
        frozenset[DeviceName], Meta(description="Devices that may call the agent, by name or id (default: none).")
    ] = frozenset()
    max_concurrent_shared_calls: Annotated[Positive, Meta(description="Maximum calls in progress at once.")] = 3
    max_hop_count: Annotated[Count, Meta(description="Maximum agents that a task may have passed through.")] = 2
    rate: Annotated[Rate, Meta(description="How often each device may call: `{ calls = 30, seconds = 60 }`.")] = _RATE
    attachments: Annotated[
        AttachmentsSection, Meta(description="Which files questions and their answers may carry.")
    ] = AttachmentsSection()


# ── sections ──────────────────────────────────────────────────────────────────────────────────────────────────────────


KINDS = ("agent", "run", "acp")
_NEEDS = 'a profile needs `agent`, one of this team, or a program: `run` or `acp`, as in ["my-agent", "--quiet"]'
# The bridge's own limit, whatever a profile says.
_LONGEST_TURN_MS = 120_000
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _unreachable(file: Inspection) -> Iterator[WrongPart]:
    """Return what does not go with the gateway."""
    relay = RELAY.of(file.team)
    if relay is not None and relay.certificate_authority is not None and not relay.gateway.startswith("wss:"):
        yield WrongPart(("relay", "certificate_authority"), "this is for a `gateway` that begins with wss://")
    if relay is not None and relay.notify is not None:
        yield from _unnotified(relay.notify)


def _wrong_profiles(file: Inspection) -> Iterator[WrongPart]:
    """Return profiles that do not have exactly one existing agent."""
    for name, profile in PROFILES.of(file.team).items():
        place, keys = ("profiles", name), file.values["profiles"][name]
        yield from _undecided(place, keys)
        yield from _empty(place, profile)
        yield from _nobody((*place, "agent"), profile.agent, _callees(file))


def _wrong_shared(file: Inspection) -> Iterator[WrongPart]:
    """Return shared agents that do not exist."""
    callees = _callees(file)
    for name, shared in SHARED.of(file.team).items():
        if shared.agent is not None:
            yield from _nobody(("shared", name, "agent"), shared.agent, callees)
        elif "agent" not in file.values["shared"][name] and name not in callees:
            near = did_you_mean(name, callees)
            yield WrongPart(("shared", name), f"there is no agent `{name}`{near}; say which is meant with `agent`")


def _callees(file: Inspection) -> tuple[str, ...]:
    section = file.team.orchestrator
    return (*file.names["agents"], *file.names["workflows"], *([] if section is None else [section.name]))


def _unnotified(notify: NotifySection) -> Iterator[WrongPart]:
    place = ("relay", "notify")
    if notify.command is not None and not (notify.command and notify.command[0]):
        yield WrongPart((*place, "command"), 'expected a program and its arguments, as in ["my-notifier", "--quiet"]')
    if notify.webhook is not None:
        parts = urlsplit(notify.webhook)
        if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
            yield WrongPart((*place, "webhook"), "expected an address that begins with https://, or on this machine")
    elif notify.secret is not None:
        yield WrongPart((*place, "secret"), "`secret` is for a `webhook`")


def _undecided(place: tuple[str, ...], keys: Collection[str]) -> Iterator[WrongPart]:
    kinds = [kind for kind in KINDS if kind in keys]
    if not kinds:
        yield WrongPart(place, _NEEDS)
    elif len(kinds) > 1:
        why = "a profile is one agent; describe the other as a profile of its own"
        yield WrongPart((*place, kinds[1]), f"a profile has `{kinds[0]}` or `{kinds[1]}`, not both: {why}")
    else:
        if kinds == ["agent"] and "env" in keys:
            yield WrongPart((*place, "env"), "`env` is for a profile that has `run` or `acp`")
        if kinds != ["acp"] and "files" in keys:
            yield WrongPart((*place, "files"), "`files` is for a profile that has `acp`")


def _empty(place: tuple[str, ...], profile: ProfileSection) -> Iterator[WrongPart]:
    for kind in ("run", "acp"):
        command: tuple[str, ...] | None = getattr(profile, kind)
        if command is not None and not (command and command[0]):
            yield WrongPart((*place, kind), 'expected a program and its arguments, as in ["my-agent", "--quiet"]')
    if duration_ms(profile.limits.max_duration) < 1:
        yield WrongPart((*place, "limits", "max_duration"), "expected a duration above 0")
    if not 0 < duration_ms(profile.constraints.turn_timeout) <= _LONGEST_TURN_MS:
        yield WrongPart((*place, "constraints", "turn_timeout"), "expected a duration above 0 and at most 120 s")


def _nobody(place: tuple[str, ...], name: str | None, known: Collection[str]) -> Iterator[WrongPart]:
    if name is not None and name not in known:
        others = f"; there are: {', '.join(sorted(known))}" if known else ""
        yield WrongPart(place, f"there is no agent `{name}`{did_you_mean(name, known) or others}")


def _connect(made: Composition, name: str, agent: AgentSection) -> bool:
    if agent.device is not None:
        named("remit_relay.team.device_agents:connect_device")(made, name, agent, agent.device)
    return agent.device is not None


def _beside(made: Composition) -> AbstractAsyncContextManager[None]:
    return named("remit_relay.team.device_agents:device_beside")(made) if _calls_devices(made.team) else nullcontext()


def _calls_devices(team: TeamFile) -> bool:
    return any(agent.device is not None for agent in team.agents.values())


RELAY: TeamSection[RelaySection | None] = TeamSection(
    key="relay",
    kind=Annotated[RelaySection | None, Meta(description="The gateway between this device and others.")],
    default=None,
    after="a2a",
    problems=_unreachable,
    needs_secrets=_calls_devices,
    connect=_connect,
    beside=_beside,
)
PROFILES: TeamSection[dict[str, ProfileSection]] = TeamSection(
    key="profiles",
    kind=Annotated[
        dict[AgentName, ProfileSection], Meta(description="Local agents that work with shared ones, by name.")
    ],
    default={},
    after="relay",
    one_of=KINDS,
    problems=_wrong_profiles,
    needs_secrets=lambda _: False,
)
SHARED: TeamSection[dict[str, SharedSection]] = TeamSection(
    key="shared",
    kind=Annotated[dict[AgentName, SharedSection], Meta(description="Agents that other devices may call, by name.")],
    default={},
    after="profiles",
    problems=_wrong_shared,
)


def relay_of(team: Team) -> RelaySection:
    """Return what a team with a gateway says of it."""
    relay = RELAY.of(team)
    assert relay is not None, "a device that runs has a gateway"
    return relay


def gateway_name(team: Team) -> str:
    """Return the name that a team's gateway gives itself."""
    relay = relay_of(team)
    return relay.name or host_of(relay.gateway)


def host_of(gateway: str) -> str:
    """Return the host of a gateway's address, which is its name unless another one is given."""
    return urlsplit(gateway).hostname or ""
