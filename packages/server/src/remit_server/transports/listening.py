"""Listening sockets, and the files that a server may open for their connections."""

import errno
import os
import socket

from remit.protocol.errors import Code, RemitError, fault

# The backlog: all the devices of a gateway may reconnect nearly at once after a restart.
BACKLOG = 1_024
# asyncio takes its backlog for how many connections it accepts before other tasks of the event loop get their turn.
ACCEPTED_AT_ONCE = 16
# What else a server opens: its store and log, processes of agents, connections to others. With 900 connections these
# are the 1,024 files that a process may open by default.
OTHER_FILES = 124
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EINVAL)


def listening(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a listening socket, or raise a `RemitError` that says why there is none.

    With *shared* other processes may listen on the same port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=shared)
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


def open_files(wanted: int) -> int:
    """Raise the limit of open files of this process to *wanted*, as far as allowed, and return how many it may open."""
    try:
        import resource
    except ImportError:  # not available on other systems
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def connections_within_files(connections: int, files_each: int) -> int:
    """Return how many of so many connections a server can have, once it may open as many files as allowed."""
    # A burst is accepted before the first of it is refused, on two ports.
    allowed = open_files(connections * files_each + OTHER_FILES + 2 * BACKLOG)
    return min(connections, max(1, (allowed - OTHER_FILES) // files_each))
