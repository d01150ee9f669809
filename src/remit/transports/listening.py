"""Opening a listening socket, or saying why it cannot be opened."""

import errno
import os
import socket

from remit.protocol.errors import Code, RemitError, fault

# The backlog: all the devices of a gateway may reconnect nearly at once after a restart.
BACKLOG = 1_024
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EINVAL)


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket, or raise a `RemitError` that says why there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
        # Connections inherit TCP_NODELAY; asyncio sets it only on sockets that it created. Without it, the body waits
        # until the client acknowledges the headers, which takes 40 ms.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return bound
    except (OSError, OverflowError) as error:
        # The message of `create_server` repeats the address.
        number = error.errno if isinstance(error, OSError) else None
        reason = os.strerror(number) if number and number > 0 else getattr(error, "strerror", None) or str(error)
        reason = reason.partition(" (while")[0]
        why = f"cannot listen on {host} port {port}: {reason}"
        if number == errno.EADDRINUSE:
            why = f"{host} port {port} is in use"
        suggestion = "Choose another with --port, or 0 for any that is free."
        if number in _NOT_HERE or (number or 0) < 0:  # name resolution errors have numbers of their own
            suggestion = "Choose an address of this machine with --host: 127.0.0.1, or 0.0.0.0 for all that it has."
        elif number == errno.EACCES:
            suggestion = "Choose another with --port: those below 1024 may need more rights than this user has."
        raise RemitError(fault(Code.TEAM_INVALID, why, suggestion=suggestion)) from error
