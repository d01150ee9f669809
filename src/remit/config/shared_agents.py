"""Checks the profiles and shared agents of a team file."""

from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import urlsplit

from remit.config.checks import Names
from remit.config.sections.relay import NotifySection, ProfileSection
from remit.config.team import Team, TeamFile
from remit.config.values import duration_ms
from remit.protocol.problems import WrongPart, did_you_mean

KINDS = ("agent", "run", "acp")
_NEEDS = 'a profile needs `agent`, one of this team, or a program: `run` or `acp`, as in ["my-agent", "--quiet"]'
# The bridge's own limit, whatever a profile says.
_LONGEST_TURN_MS = 120_000
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def mistaken(said: dict[str, Any], team: TeamFile, names: Names) -> Iterator[WrongPart]:
    """Return profiles and shared agents that do not name exactly one existing agent."""
    callees = (*names["agents"], *names["workflows"], *([] if team.orchestrator is None else [team.orchestrator.name]))
    relay = team.relay
    if relay is not None and relay.certificate_authority is not None and not relay.gateway.startswith("wss:"):
        yield WrongPart(("relay", "certificate_authority"), "this is for a `gateway` that begins with wss://")
    if relay is not None and relay.notify is not None:
        yield from _unnotified(relay.notify)
    for name, profile in team.profiles.items():
        place, keys = ("profiles", name), said["profiles"][name]
        yield from _undecided(place, keys)
        yield from _empty(place, profile)
        yield from _nobody((*place, "agent"), profile.agent, callees)
    for name, shared in team.shared.items():
        if shared.agent is not None:
            yield from _nobody(("shared", name, "agent"), shared.agent, callees)
        elif "agent" not in said["shared"][name] and name not in callees:
            near = did_you_mean(name, callees)
            yield WrongPart(("shared", name), f"there is no agent `{name}`{near}; say which is meant with `agent`")


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


def gateway_name(team: Team) -> str:
    """Return the name that a team's gateway gives itself."""
    assert team.relay is not None, "a team without a gateway has none that could be named"
    return team.relay.name or host_of(team.relay.gateway)


def host_of(gateway: str) -> str:
    """Return the host of a gateway's address, which is its name unless another one is given."""
    return urlsplit(gateway).hostname or ""
