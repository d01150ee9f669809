"""A network that a process has for itself: a loopback with one door, at which the hub listens."""

import fcntl
import os
import socket
import struct
from pathlib import Path

from remit.agents.syscalls import unshare

_NEWUSER, _NEWNET = 0x1000_0000, 0x4000_0000
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_UP = 0x1


def enter() -> socket.socket:
    """Leave the machine's network for an empty one; return a listening socket on its loopback, or raise an `OSError`.

    Whoever holds that socket accepts connections from inside, also in a process that stayed outside. Nothing else leads
    out. Has to be called before the process has a second thread.
    """
    user, group = os.geteuid(), os.getegid()
    unshare(_NEWUSER | _NEWNET)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        flags = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0))
        (now,) = struct.unpack_from("H", flags, 16)
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", now | _UP))
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    door.bind(("127.0.0.1", 0))
    door.listen(64)
    return door
