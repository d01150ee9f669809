"""The connection of a hub to NATS: it is made in the background, and made again for as long as the hub is open."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import nats
import nats.errors
from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.errors import NoStreamResponseError, ServiceUnavailableError

from remit.transports.nats.proofs import ProofSettings

log = logging.getLogger("remit")

# Soon after a restart of the server: what is queued there in the meantime waits in the store.
RECONNECT_S = 0.5
CONNECT_S = 2
# A server that is gone without closing the connection is noticed after two of these.
PING_S = 5

_NO_JETSTREAM = (ServiceUnavailableError, NoStreamResponseError, nats.errors.NoRespondersError)

LOST = (nats.errors.Error, OSError, TimeoutError, asyncio.TimeoutError)
"""What NATS raises when it does not answer; the store makes good what is lost."""


class BusSettings(Struct, frozen=True, kw_only=True):
    """Where the bus of a team is, and how a hub proves there who it is."""

    url: str
    """One address, or several of one cluster with commas between them."""
    credentials: Path | None = None
    """A file with the user's JWT and seed."""
    token: str | None = None
    user: str | None = None
    password: str | None = None
    authority: Path | None = None
    """The certificates that the server's is checked against; None: those of the system."""
    certificate: Path | None = None
    """This hub's own certificate, for servers that ask for one, with its key."""
    private_key: Path | None = None
    proofs: ProofSettings | None = None
    """Whose messages are accepted; None: those of everyone on the bus."""
    patience_s: float = 5.0
    """How long a call waits for a host of its agent to appear."""
    presence_s: float = 6.0
    """After how much silence a hub counts as gone."""

    @property
    def servers(self) -> list[str]:
        """The addresses of the servers."""
        return [each.strip() for each in self.url.split(",")]

    @property
    def shown(self) -> str:
        """The addresses without what is secret in them."""
        return ", ".join(
            each if "@" not in each else f"{each.partition('//')[0]}//{each.rpartition('@')[2]}"
            for each in self.servers
        )

    def tls(self) -> ssl.SSLContext | None:
        """Return the settings of an encrypted connection; None: as the address says."""
        if self.authority is None and self.certificate is None:
            return None
        context = ssl.create_default_context(cafile=None if self.authority is None else str(self.authority))
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.private_key)
        return context


class Connection:
    """A connection that may be down at any time; whoever uses it goes on without it."""

    def __init__(self, settings: BusSettings, name: str) -> None:
        self.settings = settings
        self._name = name
        self._client: Client | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._down = False
        self._closing = False
        self._subscribed: set[str] = set()
        self.on_connected: list[Callable[[], Awaitable[None]]] = []
        """Called after each connection is made: what the server held may be gone."""

    @property
    def connected(self) -> bool:
        """Whether messages reach the server at the moment, as far as is known."""
        return self._client is not None and self._client.is_connected

    async def open(self) -> None:
        """Connect; if that takes long, go on trying in the background."""
        self._connecting = asyncio.get_running_loop().create_task(self._connect())
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._ready.wait()
        except TimeoutError:
            self._say_down("no answer")

    async def close(self) -> None:
        """Close the connection; messages that were published are sent before."""
        self._closing = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        client, self._client = self._client, None
        if client is not None and not client.is_closed:
            if client.is_connected:
                with suppress(*LOST):  # the store has what was to be said
                    await client.flush(timeout=1)
            await client.close()

    async def _connect(self) -> None:
        settings, client = self.settings, Client()
        tls = await asyncio.to_thread(settings.tls)
        options: dict[str, object] = {
            "servers": settings.servers,
            "name": self._name,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": RECONNECT_S,
            "connect_timeout": CONNECT_S,
            "ping_interval": PING_S,
            "error_cb": self._failed,
            "disconnected_cb": self._disconnected,
            "reconnected_cb": self._connected,
        }
        given = {
            "user_credentials": None if settings.credentials is None else str(settings.credentials),
            "token": settings.token,
            "user": settings.user,
            "password": settings.password,
            "tls": tls,
        }
        options |= {name: value for name, value in given.items() if value is not None}
        try:
            await client.connect(**options)  # pyright: ignore[reportArgumentType]
        except asyncio.CancelledError:
            await client.close()
            raise
        except Exception as error:  # noqa: BLE001 - logged; the hub goes on without its bus
            log.error("the bus at %s cannot be used: %s", settings.shown, type(error).__name__)
            return
        self._client = client
        await self._connected()
        self._ready.set()

    async def _connected(self) -> None:
        if self._down:
            self._down = False
            log.warning("connected to the bus at %s", self.settings.shown)
        for act in self.on_connected:
            try:
                await act()
            except LOST as error:  # it is called again after the next connection
                why = "is JetStream enabled there?" if isinstance(error, _NO_JETSTREAM) else in_words(error)
                log.warning("the bus at %s cannot be used fully: %s", self.settings.shown, why)

    async def _disconnected(self) -> None:
        self._say_down("the connection was lost")

    async def _failed(self, error: Exception) -> None:
        if isinstance(error, nats.errors.SlowConsumerError):
            log.warning("this hub is too slow for its bus: messages were dropped, and are read from the store")
        elif not self.connected:
            self._say_down(in_words(error))

    def _say_down(self, why: str) -> None:
        if not self._down and not self._closing:
            self._down = True
            log.warning(
                "the bus at %s cannot be reached (%s): this hub answers what it hosts; other agents are reached "
                "through the store alone",
                self.settings.shown,
                why,
            )

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def client(self) -> Client:
        """The connected client, or an error as if the connection had just been lost."""
        if self._client is None:
            raise nats.errors.ConnectionClosedError
        return self._client

    @property
    def jetstream(self) -> JetStreamContext:
        """The streams and buckets of the server."""
        return self.client.jetstream(timeout=CONNECT_S)  # pyright: ignore[reportUnknownMemberType]

    async def subscribe(self, subject: str, heard: Callable[[Msg], Awaitable[None]], group: str = "") -> None:
        """Call *heard* with each message, one after another; of the members of a *group*, one hears each.

        A second time for the same subject changes nothing.
        """
        if subject not in self._subscribed:  # the client itself renews subscriptions after a reconnection
            await self.client.subscribe(subject, group, heard)  # pyright: ignore[reportUnknownMemberType]
            self._subscribed.add(subject)

    async def publish(self, subject: str, payload: bytes) -> None:
        """Publish a message that may be lost."""
        if self.connected:
            try:
                await self.client.publish(subject, payload)
            except LOST as error:
                log.debug("not published on %s: %s", subject, in_words(error))

    async def request(self, subject: str, payload: bytes, timeout: float, *, alone: bool = False) -> Msg:
        """Return the reply; raise one of `LOST`, at once if the server is not connected.

        A message that is pulled from a stream keeps the subject that it was published on. The client finds its
        request only if that has a subscription of its own (*alone*).
        """
        if not self.connected:  # else it would wait for the reconnection
            raise nats.errors.ConnectionReconnectingError
        return await self.client.request(subject, payload, timeout=timeout, old_style=alone)

    async def settle(self) -> None:
        """Return once new subscriptions are known to the server.

        The first reply may overtake a subscription that is still in the buffer: with one flush, 12 to 18 of 300
        messages were lost, with two none.
        """
        await self.client.flush(timeout=CONNECT_S)
        await self.client.flush(timeout=CONNECT_S)


def in_words(error: BaseException) -> str:
    """Describe an error of NATS."""
    said = str(error).removeprefix("nats: ")
    return said or type(error).__name__
