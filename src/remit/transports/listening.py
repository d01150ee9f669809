"""A socket that is listened at, or a sentence that says why it cannot be."""

import os
import socket

from remit.protocol.errors import Code, RemitError, fault

# So many may have come before they are taken: all the devices of a gateway that was restarted, nearly at once.
BACKLOG = 1_024


def listening(host: str, port: int) -> socket.socket:
    """Return the socket that is listened at, or raise a `RemitError` that says why it cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # Connections inherit it; asyncio sees to it only where it has made the socket. Without it, what follows the
        # headers waits for the client to acknowledge those, which takes 40 ms.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return bound
    except (OSError, OverflowError) as error:
        # What `create_server` says of it names the address once more.
        number = error.errno if isinstance(error, OSError) else None
        reason = os.strerror(number) if number and number > 0 else getattr(error, "strerror", None) or str(error)
        why = f"{host} port {port} cannot be listened at: {reason}"
        raise RemitError(
            fault(Code.TEAM_INVALID, why, suggestion="Choose another with --port, or 0 for any that is free.")
        ) from error
