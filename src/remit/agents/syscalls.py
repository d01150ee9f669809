"""Linux system calls for which Python has no function."""

import ctypes
import os
from functools import cache


@cache
def _libc() -> ctypes.CDLL:
    """Return the C library; loaded when it is needed, because not every system has it under this name."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def call(number: int, *arguments: object) -> int:
    """Make a system call, or raise an `OSError`."""
    # Integers would be passed as C's int, and the upper half of the register left as it was.
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return _checked(_libc().syscall(ctypes.c_long(number), *given))


def prctl(option: int, *arguments: object) -> int:
    """Call `prctl` for this process, or raise an `OSError`."""
    given = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    return _checked(_libc().prctl(ctypes.c_int(option), *given, *[ctypes.c_ulong(0)] * (4 - len(given))))


def unshare(flags: int) -> None:
    """Move this process to new namespaces, or raise an `OSError`."""
    _checked(_libc().unshare(ctypes.c_int(flags)))


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


_CAPABILITIES_3 = 0x20080522
_CAPBSET_DROP = 24


def drop_capabilities() -> None:
    """Permanently drop all capabilities of this process, those of root too."""
    last = 0
    try:
        while last < 64:
            prctl(_CAPBSET_DROP, last)
            last += 1
    except OSError:
        pass  # past the last one, or without the right to: then no-new-privileges keeps them from coming back
    header, none = _CapHeader(_CAPABILITIES_3, 0), (ctypes.c_uint32 * 6)()
    _checked(_libc().capset(ctypes.byref(header), ctypes.byref(none)))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
