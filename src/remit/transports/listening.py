"""A socket that is listened at, or a sentence that says why it cannot be."""

import errno
import os
import socket

from remit.protocol.errors import Code, RemitError, fault

# So many may have come before they are taken: all the devices of a gateway that was restarted, nearly at once.
BACKLOG = 1_024
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EINVAL)


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
        reason = reason.partition(" (while")[0]
        why = f"cannot listen on {host} port {port}: {reason}"
        if number == errno.EADDRINUSE:
            why = f"{host} port {port} is in use"
        suggestion = "Choose another with --port, or 0 for any that is free."
        if number in _NOT_HERE or (number or 0) < 0:  # what is wrong with a name has numbers of its own
            suggestion = "Choose an address of this machine with --host: 127.0.0.1, or 0.0.0.0 for all that it has."
        elif number == errno.EACCES:
            suggestion = "Choose another with --port: those below 1024 may need more rights than this user has."
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=suggestion)) from error
