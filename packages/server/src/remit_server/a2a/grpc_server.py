"""The gRPC server of a hub: its port, its certificate, and its shutdown."""

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from remit.protocol.codec import MAX_BYTES
from remit.protocol.errors import Code, RemitError, fault
from remit_server.a2a.grpc_front import MOST_UNKNOWN, GrpcFront
from remit_server.a2a.grpc_service import GrpcService
from remit_server.connections import MOST_CONNECTIONS
from remit_server.streams import KEEP_ALIVE_S
from remit_server.transports.a2a.grpc_messages import require_grpc
from remit_server.transports.listening import listening

if TYPE_CHECKING:
    from grpc import ServerCredentials
    from grpc.aio import Server

# How long calls in progress may take to end at shutdown.
CLOSING_S = 5.0
# As much as the HTTP server takes in headers: a credential that went through many hubs has some kilobytes.
MOST_METADATA = 65_536
# How long a connection without calls is kept open. Clients connect again by themselves.
IDLE_MS = 300_000
# Each connection may have this many calls at once, as servers of HTTP/2 usually allow.
MOST_CALLS = 100


class GrpcListener(Struct, frozen=True, kw_only=True):
    """Where a hub serves A2A over gRPC."""

    host: str = "127.0.0.1"
    port: int = 0
    """The port to listen on; 0 means any free port."""
    address: str | None = None
    """`host:port` for clients; None: the host of the agent card, and the port that is listened on."""
    certificate: str | None = None
    """The certificate, a PEM file; None: no encryption."""
    key: str | None = None
    """The private key of that certificate, a PEM file."""
    connections: int = MOST_CONNECTIONS
    """Maximum connections, and maximum calls in progress."""
    shared: bool = False
    """Whether other worker processes listen on the same port."""


class GrpcServer:
    """Serves A2A over gRPC, in the event loop of the caller."""

    def __init__(self, listener: GrpcListener, service: GrpcService) -> None:
        require_grpc()
        self._listener = listener
        self._service = service
        self._server: Server | None = None
        self.port = listener.port
        """The port; if any free one is wanted, it is known once the server has started."""

    async def start(self) -> None:
        """Start listening; raise a `RemitError` if that is not possible."""
        from grpc import aio

        said = self._listener
        credentials = None if said.certificate is None else _credentials(said)
        try:
            bound = listening(said.host, said.port, shared=said.shared)
        except RemitError as error:
            how = "Choose another with `grpc_port` of `[a2a]`, or 0 for any that is free."
            raise RemitError(replace(error.fault, suggestion=how)) from error
        self.port = bound.getsockname()[1]
        self._front = front = GrpcFront(bound, said.connections)
        server = aio.server(options=_options(said.connections), maximum_concurrent_rpcs=said.connections)
        server.add_generic_rpc_handlers((self._service.handler(front),))
        if credentials is None:
            server.add_insecure_port(f"unix:{front.inner}")
        else:
            server.add_secure_port(f"unix:{front.inner}", credentials)
        await server.start()
        await front.start()
        self._server = server

    async def stop(self) -> None:
        """Accept nothing more, let calls in progress end, then close."""
        server, self._server = self._server, None
        if server is not None:
            self._front.stop()
            await server.stop(CLOSING_S)
            await self._service.idle()
            self._front.close()


def _options(connections: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", MAX_BYTES),
        ("grpc.max_send_message_length", -1),  # an answer is limited where it is made
        ("grpc.max_metadata_size", MOST_METADATA),
        ("grpc.absolute_max_metadata_size", MOST_METADATA),
        # No more than one user may have in progress: over one channel, calls wait instead of being refused.
        ("grpc.max_concurrent_streams", max(1, min(MOST_CALLS, connections // 2))),
        # Else gRPC resets calls of clients that keep to it, while it cleans up after earlier ones.
        ("grpc.http.overload_protection", 0),
        # A few bytes may decompress to gigabytes: only uncompressed messages are read (bit 0).
        ("grpc.compression_enabled_algorithms_bitset", 1),
        # Without it, gRPC would read ahead megabytes of a message that nobody waits for.
        ("grpc.http2.bdp_probe", 0),
        # It closes its end of a connection in its own time: meanwhile others must not add to those.
        ("grpc.max_allowed_incoming_connections", connections + MOST_UNKNOWN),
        ("grpc.max_connection_idle_ms", IDLE_MS),
        # Finds dead clients, and keeps silent streams open; clients may do the same.
        ("grpc.keepalive_time_ms", round(KEEP_ALIVE_S * 1_000)),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ]


def _credentials(said: GrpcListener) -> "ServerCredentials":
    from grpc import ssl_server_credentials

    try:
        certificate, key = (
            Path(said.certificate or "").read_bytes(),
            Path(said.key or said.certificate or "").read_bytes(),
        )
    except OSError as error:
        why = f"the certificate for gRPC cannot be read: {error.filename}: {error.strerror}"
        raise RemitError(fault(Code.TEAM_INVALID, why)) from error
    return ssl_server_credentials([(key, certificate)])
