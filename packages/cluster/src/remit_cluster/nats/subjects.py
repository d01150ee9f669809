"""The subjects of one team in NATS, and what is said there."""

from typing import Literal

import msgspec
from msgspec import Struct

from remit.protocol.card import AgentCard
from remit.protocol.records import Kind
from remit.protocol.remit import Priority

EVERY_HUB = "all"
"""The home of a request whose host does not know which hub submitted it."""


def token(name: str) -> str:
    """Return a name as one token of a subject: agents and hubs may have dots in their names, tokens may not."""
    return name.replace(".", "=")


class Subjects:
    """The names that a team uses in NATS; nothing else of the account is touched."""

    def __init__(self, team: str) -> None:
        self._team = token(team)
        self.stream = f"remit-{self._team}-queue"
        """The stream with the requests that found every host busy."""
        self.hosts = f"remit-{self._team}-hosts"
        """The key-value bucket with the heartbeat of each hub that hosts agents, by hub."""
        self.agents = f"remit-{self._team}-agents"
        """The key-value bucket with the cards of hosted agents, by agent and hub."""
        self.gone = f"remit.{self._team}.gone"
        """Where all hubs hear that the leases of a dead one were ended."""
        self.queues = f"remit.{self._team}.queue.>"

    def offer(self, agent: str) -> str:
        """Return where a request for an agent is offered; one of its hosts replies at once."""
        return f"remit.{self._team}.offer.{token(agent)}"

    def queued(self, agent: str) -> str:
        """Return where all hosts of an agent hear that a request was queued for it."""
        return f"remit.{self._team}.queued.{token(agent)}"

    def queue(self, agent: str, priority: Priority | Literal["*"]) -> str:
        """Return where requests for an agent are queued."""
        return f"remit.{self._team}.queue.{token(agent)}.{priority}"

    def consumer(self, agent: str, priority: Priority) -> str:
        """Return the name of the consumer that the hosts of an agent share."""
        return f"{token(agent)}-{priority}"

    def cancel(self, agent: str | None = None) -> str:
        """Return where the hosts of an agent hear which of its requests to cancel; None: where all hubs hear it."""
        return f"remit.{self._team}.cancel" + ("" if agent is None else f".{token(agent)}")

    def news(self, home: str, run: str) -> str:
        """Return where the hub *home* hears how far a run is."""
        return f"remit.{self._team}.news.{token(home)}.{token(run)}"

    def alive(self, hub: str) -> str:
        """Return where a hub answers for as long as it is connected."""
        return f"remit.{self._team}.alive.{token(hub)}"

    def heartbeat(self, hub: str) -> str:
        """Return where a hub says that it is present; `*` is every hub."""
        return f"$KV.{self.hosts}.{token(hub)}"

    def hosted(self, agent: str, hub: str) -> str:
        """Return where a hub publishes the card of an agent that it hosts; `*` is every agent, or every hub."""
        return f"$KV.{self.agents}.{token(agent)}.{token(hub)}"


class Offer(Struct, frozen=True, omit_defaults=True):
    """A request that any host of its agent may take: the rest is in the store."""

    run: str
    home: str = EVERY_HUB
    """The hub that submitted it."""
    live: bool = False
    """Whether anybody listens to the progress and the text of the run."""


class News(Struct, frozen=True):
    """Something that happened in a run: a record that its caller hears of, or its end."""

    kind: Kind | None = None
    """None: it has ended, and its outcome is in the store."""
    body: msgspec.Raw = msgspec.Raw(b"{}")
    outcome: bytes = b""
    """How it has ended, sealed for the hubs of the team; without it, the caller reads the store."""


class Heartbeat(Struct, frozen=True, omit_defaults=True):
    """What a hub that hosts agents says again and again: once it is silent, it is gone."""

    hub: str
    """Its name in the team; hubs with the same team file have the same name."""
    free: dict[str, int] = {}
    """How many more requests it could start, by agent."""
    draining: bool = False
    """Whether it takes nothing new."""


class PublishedCard(Struct, frozen=True):
    """The card of an agent, as one of its hosts publishes it."""

    card: AgentCard
    since_ms: int
    """When its host was opened: of several cards of an agent, that of the newest host counts."""


class HostedAgent(Struct, frozen=True):
    """An agent that a hub hosts, and how many more requests it could start."""

    card: AgentCard
    free: int


class PresentHub(Struct, frozen=True):
    """A hub that hosts agents, and those of them that are known here."""

    hub: str
    """Its name in the team."""
    agents: tuple[HostedAgent, ...] = ()
    draining: bool = False
    """Whether it takes nothing new."""
    since_ms: int = 0
    """When it was opened."""


TAKEN, BUSY = b"+", b"-"

encode = msgspec.json.Encoder().encode
read_offer = msgspec.json.Decoder(Offer).decode
read_news = msgspec.json.Decoder(News).decode
read_heartbeat = msgspec.json.Decoder(Heartbeat).decode
read_card = msgspec.json.Decoder(PublishedCard).decode
