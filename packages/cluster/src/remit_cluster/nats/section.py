"""The section `[bus]` of the team file: its keys, its checks, and how it joins a hub to the bus."""

import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from remit.installed import install_command, named
from remit.protocol.problems import WrongPart
from remit.runtime.registry import team_invalid
from remit_cli.config.checks import secret_of, unknown
from remit_cli.config.peers import key_of, unusable_key
from remit_cli.config.team import Composition, Inspection, Team, TeamFile, TeamSection, is_hosted
from remit_cli.config.values import AgentName, Callee, Duration, PublicKey, Secret, Section, duration_ms

if TYPE_CHECKING:  # most teams have no bus
    from remit_cluster.nats.connection import BusSettings
    from remit_cluster.nats.proofs import ProofSettings

_FILES = ("credentials", "authority", "certificate", "private_key")
# Below this, a hub that is busy for a moment would count as gone.
LEAST_PRESENCE_MS = 1_000

BusUrl = Annotated[
    str,
    Meta(
        title="address",
        pattern=r"^(nats|tls)://[^\s/@,]+(,\s*(nats|tls)://[^\s/@,]+)*\Z",
        max_length=2_000,
        extra={
            "rule": 'expected the address of a NATS server, such as "nats://bus.example.com:4222", or several with '
            "commas between them; who connects is said by `credentials`, `token`, or `user` and `password`"
        },
    ),
]


class BusHubSection(Section, frozen=True, kw_only=True):
    """A hub on the bus: the keys that it signs with, and the agents that it may host."""

    keys: Annotated[
        tuple[PublicKey, ...],
        Meta(min_length=1, description="The hub's public keys, as `remit keys show` prints them there, oldest first."),
    ]
    hosts: Annotated[
        frozenset[Callee],
        Meta(description='Agents that it may announce and answer for; `"*"` means all. Any of the hubs may call.'),
    ] = frozenset()


class BusSection(Section, frozen=True, kw_only=True):
    """The NATS server over which the hubs of a team call each other's agents; see `remit docs many-machines`.

    All of them have the same store, and the same `name` in their team files.
    """

    url: Annotated[BusUrl, Meta(description="The address of the server, or several of one cluster with commas.")]
    hosts: Annotated[
        frozenset[Callee],
        Meta(
            description='Agents that a hub with this file hosts itself; `"*"` means all. The others are called over '
            "the bus. `remit worker` overrides it."
        ),
    ] = frozenset({"*"})
    credentials: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="The file with the credentials of a NATS user, relative to the team file's folder."),
    ] = None
    token: Annotated[Secret | None, Meta(description="The token of the server.")] = None
    user: Annotated[Annotated[str, Meta(min_length=1)] | None, Meta(description="The user at the server.")] = None
    password: Annotated[Secret | None, Meta(description="The password of `user`.")] = None
    authority: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="A PEM file with the certificates to trust (default: those of the system)."),
    ] = None
    certificate: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="This hub's certificate, a PEM file, for a server that asks for one."),
    ] = None
    private_key: Annotated[
        Annotated[str, Meta(min_length=1)] | None, Meta(description="The private key of that certificate, a PEM file.")
    ] = None
    hubs: Annotated[
        dict[AgentName, BusHubSection],
        Meta(
            description="The hubs on the bus, by name. If there are any, every message there is signed with `key` of "
            "`[identity]`, and only those signed by one of these hubs are accepted."
        ),
    ] = {}
    patience: Annotated[
        Duration, Meta(description="How long a call waits for a hub that hosts its agent, if none is present.")
    ] = "5s"
    presence: Annotated[Duration, Meta(description="After how much silence a hub counts as gone.")] = "6s"


def _mistaken(file: Inspection) -> Iterator[WrongPart]:
    """Return what is wrong with the bus: unknown agents, two proofs, missing files, a missing package."""
    section = BUS.of(file.team)
    if section is None or not file.opens_files:
        return
    keys, names, folder = file.values["bus"], file.names, file.folder
    yield from unknown(("bus", "hosts"), "agent", section.hosts - {"*"}, (*names["agents"], *names["workflows"]))
    proofs = [key for key in ("credentials", "token", "user") if key in keys]
    if len(proofs) > 1:
        yield WrongPart(("bus", proofs[1]), f"`{proofs[0]}` already says who connects; leave one of them out")
    for one, other in (("user", "password"), ("certificate", "private_key")):
        if (one in keys) != (other in keys):
            yield WrongPart(("bus",), f"`{one}` and `{other}` need each other")
    for key in _FILES:
        path = getattr(section, key)
        if path is not None and not (folder / path).is_file():
            yield WrongPart(("bus", key), f"{folder / path} does not exist")
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
        yield from unusable_key(("bus", "hubs"), folder / file.team.identity.key)
    if find_spec("nats") is None:
        yield WrongPart(("bus",), f"the bus needs the extra `nats`: {install_command('nats')}")


def settings_of(team: Team, environ: Mapping[str, str] = os.environ) -> "BusSettings":
    """Return how a hub reaches the bus, or raise a `RemitError` if a secret is missing or a file cannot be used."""
    from remit_cluster.nats.access import encryption, read_credentials
    from remit_cluster.nats.connection import BusSettings

    section = BUS.of(team)
    assert section is not None, "a team without a bus reaches none"

    def path(named: str | None) -> Path | None:
        return None if named is None else team.folder / named

    def secret(reference: str | None) -> str | None:
        return None if reference is None else secret_of(reference, environ)

    try:
        settings = BusSettings(
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
        encryption(settings)
        if settings.credentials is not None:
            read_credentials(settings.credentials)
    except ValueError as error:
        raise team_invalid(str(error)) from error
    return settings


def _proofs_of(team: Team, section: BusSection) -> "ProofSettings | None":
    """Return whose messages a hub accepts; None: those of everyone on the bus."""
    from remit_cluster.nats.proofs import ProofSettings, TrustedHub

    if not section.hubs:
        return None
    hubs = {
        name: TrustedHub(keys=frozenset(key.lower() for key in hub.keys), hosts=hub.hosts)
        for name, hub in section.hubs.items()
    }
    return ProofSettings(hubs=hubs, key=key_of(team))


def _hosts(team: TeamFile, agent: str) -> bool:
    section = BUS.of(team)
    return section is None or bool(section.hosts & {agent, "*"})


def _join(made: Composition) -> None:
    """Join a team's hub to its bus: it calls agents of other hubs there, and hosts its own if it takes requests."""
    section = BUS.of(made.team)
    if section is None:
        return
    from remit.agents.cards import remote_card
    from remit_cli.config.composition import remote_options
    from remit_cluster.nats.bus import join_bus

    hosts = section.hosts if made.takes else frozenset[str]()
    calls = [
        remote_card(name, remote_options(made.team, agent))
        for name, agent in made.team.agents.items()
        if not is_hosted(made.team, name) and (agent.run is not None or agent.model is not None)
    ]
    everyone = None if "*" in hosts else hosts
    join_bus(made.hub, settings_of(made.team, made.environ), name=made.team.name, hosts=everyone, calls=calls)


BUS: TeamSection[BusSection | None] = TeamSection(
    key="bus",
    kind=Annotated[BusSection | None, Meta(description="The NATS server over which hubs call each other's agents.")],
    default=None,
    after="store",
    problems=_mistaken,
    hosts=_hosts,
    shares_store=lambda team: BUS.of(team) is not None,
    compose=_join,
    other_hubs=lambda team: BUS.of(team) and named("remit_cluster.nats.commands.bus_hubs:BusHubs")(team),
)
