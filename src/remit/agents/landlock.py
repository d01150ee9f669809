"""Landlock: a process gives up access to all files it does not name, for good. Linux 5.13 and newer.

Needs no privilege and holds for root as well. https://docs.kernel.org/userspace-api/landlock.html
"""

import ctypes
import os
import sys
from collections.abc import Iterable, Mapping

from remit.agents.syscalls import call, prctl

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every processor
_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG, _MAKE_FIFO, _MAKE_SYM = (1 << bit for bit in (4, 5, 7, 8, 10, 12))
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_ALL_OF = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All rights over files that a version of Landlock knows, by the version that brought the newest of them."""

LIST = _READ_DIR
"""See the names in a folder and below, and no content."""
READ = _EXECUTE | _READ_FILE | _READ_DIR
_MAKE = _MAKE_DIR | _MAKE_REG | _MAKE_FIFO | _MAKE_SYM
WRITE = READ | _WRITE_FILE | _TRUNCATE | _REFER | _REMOVE_DIR | _REMOVE_FILE | _MAKE
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE

_ALL_TCP = 0b11
_ALL_SCOPES = 0b11  # abstract Unix sockets, signals
_WITH_TCP, _WITH_SCOPES = 4, 6


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """Return the version of Landlock that this kernel has; 0 if it has none, or it is turned off."""
    if sys.platform != "linux":
        return 0
    try:
        return call(_CREATE_RULESET, None, 0, _VERSION)
    except OSError:
        return 0


def restrict(rights: Mapping[str, int], *, tcp: bool) -> None:
    """Keep this thread and all that it starts from every file but those below the paths that *rights* names.

    Without *tcp* it can open no TCP connection either, where the kernel knows how (6.7). Signals and abstract sockets
    reach nobody outside, where the kernel knows how (6.12). A path that does not exist is left out.
    """
    found = version()
    handled = _ALL_OF[max(each for each in _ALL_OF if each <= found)]
    ruleset = _Ruleset(handled, 0, 0)
    size = 8
    if found >= _WITH_TCP:
        ruleset.net, size = (0 if tcp else _ALL_TCP), 16
    if found >= _WITH_SCOPES:
        ruleset.scoped, size = _ALL_SCOPES, 24
    rules = call(_CREATE_RULESET, ctypes.byref(ruleset), size, 0)
    try:
        _allow(rules, rights.items(), handled)
        prctl(_NO_NEW_PRIVS, 1)
        call(_RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _allow(rules: int, rights: Iterable[tuple[str, int]], handled: int) -> None:
    for path, access in rights:
        try:
            folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if not os.path.isdir(path):
                access &= _OF_FILES
            beneath = _PathBeneath(access & handled, folder)
            call(_ADD_RULE, rules, _PATH_BENEATH, ctypes.byref(beneath), 0)
        finally:
            os.close(folder)
