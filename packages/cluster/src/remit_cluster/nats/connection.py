"""The connection of a hub to NATS: it is made in the background, and made again for as long as the hub is open."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import nats
import nats.errors
from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.errors import APIError, NoStreamResponseError, ServiceUnavailableError

from remit.runtime.clock import end_tasks
from remit_cluster.nats.access import EncryptedClient, denied, encryption, explained, proof_options
from remit_cluster.nats.proofs import ProofSettings

log = logging.getLogger("remit")

# Soon after a restart of the server: what is queued there in the meantime waits in the store.
RECONNECT_S = 0.5
CONNECT_S = 2
# A server that is gone without closing the connection is noticed after two of these.
PING_S = 5

_NO_JETSTREAM = (ServiceUnavailableError, NoStreamResponseError, nats.errors.NoRespondersError)

# Subjects have ids of runs in them: a user without any rights must not fill the log.
MOST_LACKING = 20
MOST_REASONS = 5

# The server's code for a stream that is there with other settings, such as the number of replicas.
_MADE_OTHERWISE = 10058

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
    def replicas(self) -> int:
        """How many servers keep the queue and who is present: with three or more, one of them may be lost."""
        return 3 if len(self.servers) >= 3 else 1

    @property
    def shown(self) -> str:
        """The addresses without what is secret in them."""
        return ", ".join(
            each if "@" not in each else f"{each.partition('//')[0]}//{each.rpartition('@')[2]}"
            for each in self.servers
        )


class Connection:
    """A connection that may be down at any time; whoever uses it goes on without it."""

    def __init__(self, settings: BusSettings, name: str) -> None:
        self.settings = settings
        self._name = name
        self._client: Client | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._down = False
        self._reasons: set[str] = set()
        """Why the server was not reached since it was last, each of which is logged once."""
        self._closing = False
        self._subscribed: dict[str, Subscription] = {}
        self._lacking: set[str] = set()
        """Permissions that the server denied, each of which is logged once."""
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
            if not self._down:  # else the reason is known
                self._say_down("no answer")

    async def close(self) -> None:
        """Close the connection; messages that were published are sent before."""
        self._closing = True
        if self._connecting is not None:
            await end_tasks([self._connecting])
        client, self._client = self._client, None
        if client is not None and not client.is_closed:
            if client.is_connected:
                with suppress(*LOST):  # the store has what was to be said
                    await client.flush(timeout=1)
            await client.close()

    async def _connect(self) -> None:
        settings = self.settings
        try:
            tls = await asyncio.to_thread(encryption, settings)
        except ValueError as error:
            self._say_down(str(error))
            return
        client = Client() if tls is None else EncryptedClient()
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
            "closed_cb": self._closed,
            **proof_options(settings),
        }
        if tls is not None:
            options["tls"] = tls
        try:
            await client.connect(**options)  # pyright: ignore[reportArgumentType]
        except asyncio.CancelledError:
            await client.close()
            raise
        except Exception as error:  # noqa: BLE001 - logged; the hub goes on without its bus
            log.error("the bus at %s cannot be used: %s", settings.shown, _safe(error))
            self._connect_again()
            return
        self._client = client
        await self._connected()
        self._ready.set()

    async def _connected(self) -> None:
        if self._down:
            self._down = False
            self._reasons.clear()
            log.warning("connected to the bus at %s", self.settings.shown)
        for act in self.on_connected:
            try:
                await act()
            except LOST as error:  # it is called again after the next connection
                why = "is JetStream enabled there?" if isinstance(error, _NO_JETSTREAM) else in_words(error)
                log.warning("the bus at %s cannot be used fully: %s", self.settings.shown, why)

    async def _closed(self) -> None:
        """Connect anew: the client gives up when the server ends a connection, as it does when credentials expire."""
        if not self._closing and self._client is not None:
            self._client = None
            self._connect_again()

    def _connect_again(self) -> None:
        async def later() -> None:
            await asyncio.sleep(RECONNECT_S)
            await self._connect()

        self._subscribed.clear()
        self._connecting = asyncio.get_running_loop().create_task(later())

    async def _disconnected(self) -> None:
        self._say_down("the connection was lost")

    async def _failed(self, error: Exception) -> None:
        if isinstance(error, nats.errors.SlowConsumerError):
            log.warning("this hub is too slow for its bus: messages were dropped, and are read from the store")
        elif (lacking := denied(error)) is not None:
            if lacking not in self._lacking and len(self._lacking) < MOST_LACKING:
                self._lacking.add(lacking)
                log.error("the bus at %s cannot be used fully: %s", self.settings.shown, lacking)
        elif not self.connected:
            self._say_down(explained(error, self.settings))

    def _say_down(self, why: str) -> None:
        if self._closing or why in self._reasons:
            return
        if self._down:
            if len(self._reasons) < MOST_REASONS:
                self._reasons.add(why)
                log.warning("the bus at %s still cannot be reached: %s", self.settings.shown, why)
        else:
            self._down = True
            self._reasons.add(why)
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

    async def subscribe(self, subject: str, handler: Callable[[Msg], Awaitable[None]], group: str = "") -> None:
        """Call *handler* with each message, one after another; of the members of a *group*, one gets each.

        A second time for the same subject changes nothing.
        """
        if subject not in self._subscribed:  # the client itself renews subscriptions after a reconnection
            made = await self.client.subscribe(subject, group, handler)  # pyright: ignore[reportUnknownMemberType]
            self._subscribed[subject] = made

    async def unsubscribe(self, subject: str) -> None:
        """Hear nothing more of a subject."""
        if (made := self._subscribed.pop(subject, None)) is not None:
            with suppress(*LOST):  # a subscription ends with its connection
                await made.unsubscribe()

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
        task = asyncio.current_task()
        stopping = 0 if task is None else task.cancelling()
        try:
            return await self.client.request(subject, payload, timeout=timeout, old_style=alone)
        finally:
            if task is not None and task.cancelling() > stopping:
                # The client waits by `asyncio.wait_for`, which drops a cancellation that comes together with the reply,
                # also if the reply says that nobody is there.
                raise asyncio.CancelledError

    async def make(self, what: Awaitable[object]) -> None:
        """Make a stream or a bucket that may be there, also if another hub made it with other settings."""
        try:
            await what
        except APIError as error:
            if error.err_code != _MADE_OTHERWISE:
                raise
            log.debug("not changed on the bus: %s", in_words(error))

    async def settle(self) -> None:
        """Return once new subscriptions are known to the server.

        The first reply may overtake a subscription that is still in the buffer: with one flush, 12 to 18 of 300
        messages were lost, with two none.
        """
        await self.client.flush(timeout=CONNECT_S)
        await self.client.flush(timeout=CONNECT_S)


def _safe(error: Exception) -> str:
    """Describe an error that nobody expected: its text may quote a secret."""
    return str(error) if isinstance(error, ValueError) and str(error).startswith("`") else type(error).__name__


def in_words(error: BaseException) -> str:
    """Describe an error of NATS."""
    text = str(error).removeprefix("nats: ")
    return text or type(error).__name__
