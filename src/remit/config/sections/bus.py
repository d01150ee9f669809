"""The section for the bus between the hubs of a team."""

from typing import Annotated

from msgspec import Meta

from remit.config.values import AgentName, Callee, Duration, PublicKey, Secret, Section

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
