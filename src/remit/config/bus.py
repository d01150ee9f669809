"""Checks the bus of a team, and joins its hub to it."""

import os
from collections.abc import Collection, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.config.checks import Names, secret_of, unknown
from remit.config.peers import key_of, unusable_key
from remit.config.sections.bus import BusSection
from remit.config.team import Team, TeamFile
from remit.config.values import duration_ms
from remit.protocol.problems import WrongPart
from remit.runtime.registry import team_invalid

if TYPE_CHECKING:  # most teams have no bus
    from remit.hub.hub import Hub
    from remit.protocol.card import AgentCard
    from remit.transports.nats.connection import BusSettings
    from remit.transports.nats.proofs import ProofSettings

_FILES = ("credentials", "authority", "certificate", "private_key")
# Below this, a hub that is busy for a moment would count as gone.
LEAST_PRESENCE_MS = 1_000


def mistaken(said: dict[str, Any], team: TeamFile, names: Names, folder: Path) -> Iterator[WrongPart]:
    """Return what is wrong with the bus: unknown agents, two proofs, missing files, a missing package."""
    section = team.bus
    if section is None:
        return
    yield from unknown(("bus", "hosts"), "agent", section.hosts - {"*"}, (*names["agents"], *names["workflows"]))
    proofs = [key for key in ("credentials", "token", "user") if key in said["bus"]]
    if len(proofs) > 1:
        yield WrongPart(("bus", proofs[1]), f"`{proofs[0]}` already says who connects; leave one of them out")
    for one, other in (("user", "password"), ("certificate", "private_key")):
        if (one in said["bus"]) != (other in said["bus"]):
            yield WrongPart(("bus",), f"`{one}` and `{other}` need each other")
    for key in _FILES:
        named = getattr(section, key)
        if named is not None and not (folder / named).is_file():
            yield WrongPart(("bus", key), f"{folder / named} does not exist")
    if duration_ms(section.presence) < LEAST_PRESENCE_MS:
        yield WrongPart(("bus", "presence"), "expected at least 1s")
    owners: dict[str, str] = {}
    for name, hub in section.hubs.items():
        place = ("bus", "hubs", name)
        yield from unknown((*place, "hosts"), "agent", hub.hosts - {"*"}, (*names["agents"], *names["workflows"]))
        for key in hub.keys:
            if (owner := owners.setdefault(key.lower(), name)) != name:
                yield WrongPart((*place, "keys", key), f"`{owner}` already has this key")
    if section.hubs:
        yield from unusable_key(("bus", "hubs"), folder / team.identity.key)
    if find_spec("nats") is None:
        yield WrongPart(("bus",), "the bus needs the extra `nats`: pip install 'remit[nats]'")


def settings_of(team: Team, environ: Mapping[str, str] = os.environ) -> "BusSettings":
    """Return how a hub reaches the bus, or raise a `RemitError` if a secret is missing or a file cannot be used."""
    from remit.transports.nats.access import encryption, read_credentials
    from remit.transports.nats.connection import BusSettings

    section = team.bus
    assert section is not None, "a team without a bus reaches none"

    def path(named: str | None) -> Path | None:
        return None if named is None else team.folder / named

    def secret(reference: str | None) -> str | None:
        return None if reference is None else secret_of(reference, environ)

    try:
        found = BusSettings(
            url=section.url,
            credentials=path(section.credentials),
            token=secret(section.token),
            user=section.user,
            password=secret(section.password),
            authority=path(section.authority),
            certificate=path(section.certificate),
            private_key=path(section.private_key),
            proofs=_proofs_of(team, section),
            patience_s=duration_ms(section.patience) / 1_000,
            presence_s=duration_ms(section.presence) / 1_000,
        )
        encryption(found)
        if found.credentials is not None:
            read_credentials(found.credentials)
    except ValueError as error:
        raise team_invalid(str(error)) from error
    return found


def _proofs_of(team: Team, section: BusSection) -> "ProofSettings | None":
    """Return whose messages a hub accepts; None: those of everyone on the bus."""
    from remit.transports.nats.proofs import ProofSettings, TrustedHub

    if not section.hubs:
        return None
    hubs = {
        name: TrustedHub(keys=frozenset(key.lower() for key in hub.keys), hosts=hub.hosts)
        for name, hub in section.hubs.items()
    }
    return ProofSettings(hubs=hubs, key=key_of(team))


def join(hub: "Hub", team: Team, calls: "Collection[AgentCard]", environ: Mapping[str, str], *, takes: bool) -> None:
    """Join a team's hub to its bus: it calls the agents in *calls* there, and hosts its own if it *takes* requests."""
    from remit.hub.joining import join_bus

    assert team.bus is not None, "a team without a bus has nothing to join"
    hosts = team.bus.hosts if takes else frozenset[str]()
    everyone = None if "*" in hosts else hosts
    join_bus(hub, settings_of(team, environ), name=team.name, hosts=everyone, calls=calls)
