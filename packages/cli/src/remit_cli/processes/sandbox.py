"""What a sandboxed agent can access: decided in the hub, enforced by the Linux kernel in the agent's process.

Files: Landlock, with which a process permanently gives up access to all files that it does not name (Linux 5.13 and
newer). It needs no privilege and holds for root as well: https://docs.kernel.org/userspace-api/landlock.html. Network,
other processes, file permissions: a filter of system calls, which closes the ways around it, such as sockets and
io_uring: https://docs.kernel.org/userspace-api/seccomp_filter.html. If hosts are named: a separate network with a proxy
as the only way out. Nothing is enforced by Python, so no code can bypass it. Numbers: asm/unistd_64.h and
asm-generic/unistd.h of Linux.
"""

import ctypes
import errno
import os
import platform
import site
import socket
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from remit.agents.cards import Sandbox
from remit.runtime.registry import team_invalid


@cache
def _libc() -> ctypes.CDLL:
    """Return the C library; loaded when it is needed, because not every system has it under this name."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def call(number: int, *arguments: object) -> int:
    """Make a system call, or raise an `OSError`."""
    # Python integers would be passed as C int, which leaves the upper half of the register undefined.
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
        pass  # past the last one, or not permitted: then no-new-privileges keeps them from coming back
    header, none = _CapHeader(_CAPABILITIES_3, 0), (ctypes.c_uint32 * 6)()
    _checked(_libc().capset(ctypes.byref(header), ctypes.byref(none)))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


_SET_NO_NEW_PRIVS, _GET_SECCOMP, _SET_SECCOMP, _FILTER = 38, 21, 22, 2

# From 424 on, numbers are the same on every processor.
_IO_URING = (425, 426, 427)
_CLONE3 = 435
_NEW_EVERYWHERE = {
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_getfd": 438, "mount_setattr": 442, "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466,
}  # fmt: skip
# Landlock does not control owners, permissions and attributes: with these, the store could be made unreadable.
# The others are ways into other processes, into the kernel, to its keyrings, or out of a namespace.
_REFUSED = {
    "x86_64": {
        "chmod": 90, "chown": 92, "lchown": 94, "fchownat": 260, "fchmodat": 268, "setxattr": 188, "lsetxattr": 189,
        "removexattr": 197, "lremovexattr": 198,
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
        "add_key": 248, "request_key": 249, "keyctl": 250, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323,
        "unshare": 272, "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161,
        "open_by_handle_at": 304, "kexec_load": 246, "init_module": 175, "finit_module": 313, "delete_module": 176,
    },
    "aarch64": {
        "fchownat": 54, "fchmodat": 53, "setxattr": 5, "lsetxattr": 6, "removexattr": 14, "lremovexattr": 15,
        "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272,
        "add_key": 217, "request_key": 218, "keyctl": 219, "bpf": 280, "perf_event_open": 241, "userfaultfd": 282,
        "unshare": 97, "setns": 268, "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51,
        "open_by_handle_at": 265, "kexec_load": 104, "init_module": 105, "finit_module": 273, "delete_module": 106,
    },
}  # fmt: skip
# Controlled by Landlock only from version 3 on.
_TRUNCATE = {"x86_64": 76, "aarch64": 45}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_CLONE = {"x86_64": 56, "aarch64": 220}
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x4000_0000
_NEW_NAMESPACES = 0x7E02_0000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF_0000, 0x0005_0000, 0x8000_0000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


class BpfInstruction(NamedTuple):
    """One BPF instruction: operation, jump distances if true and false, and operand."""

    code: int
    yes: int
    no: int
    number: int


def is_known() -> bool:
    """Return whether this kernel has seccomp and the system call numbers of this processor are known."""
    if sys.platform != "linux" or platform.machine() not in _REFUSED:
        return False
    try:
        return prctl(_GET_SECCOMP) >= 0
    except OSError:
        return False


def install(*, network: bool, truncate: bool) -> None:
    """Deny to this process and its descendants the system calls that a sandboxed agent must not use.

    With *network*, it may create internet sockets, for its own separate network; otherwise none. With *truncate*, this
    version of Landlock does not control truncation, so it is denied here.
    """
    steps = program(platform.machine(), network=network, truncate=truncate)
    packed = b"".join(struct.pack("=HBBI", *each) for each in steps)
    prctl(_SET_NO_NEW_PRIVS, 1)
    prctl(_SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(steps), packed)))


def program(machine: str, *, network: bool, truncate: bool) -> list[BpfInstruction]:
    """Return the filter for a processor, as the kernel runs it for each system call."""
    domains = {socket.AF_INET, socket.AF_INET6} if network else set[int]()
    refused = {*_REFUSED[machine].values(), *_NEW_EVERYWHERE.values(), *({_TRUNCATE[machine]} if truncate else ())}
    return list(_steps(machine, refused, domains))


def _steps(machine: str, refused: Collection[int], domains: Collection[int]) -> Iterator[BpfInstruction]:
    yield BpfInstruction(_LOAD, 0, 0, _ARCH)
    yield BpfInstruction(_EQUAL, 1, 0, _AUDIT_ARCH[machine])
    yield BpfInstruction(_RETURN, 0, 0, _KILL)  # a program of another processor type, whose numbers mean other things
    yield BpfInstruction(_LOAD, 0, 0, _NUMBER)
    if machine == "x86_64":
        yield BpfInstruction(_AT_LEAST, 0, 1, _X32_BIT)
        yield _failing(errno.ENOSYS)
    # As if the kernel were older, so that libraries use the older call, whose arguments the filter can inspect.
    for number in (*_IO_URING, _CLONE3):
        yield BpfInstruction(_EQUAL, 0, 1, number)
        yield _failing(errno.ENOSYS)
    for number in sorted(refused):
        yield BpfInstruction(_EQUAL, 0, 1, number)
        yield _failing(errno.EPERM)
    yield BpfInstruction(_EQUAL, 0, 4, _CLONE[machine])
    yield BpfInstruction(_LOAD, 0, 0, _ARGUMENTS)
    yield BpfInstruction(_ANY_BIT, 0, 1, _NEW_NAMESPACES)
    yield _failing(errno.EPERM)
    yield BpfInstruction(_RETURN, 0, 0, _ALLOW)
    yield BpfInstruction(_EQUAL, 0, 2 + 2 * len(domains), _SOCKET[machine])
    yield BpfInstruction(_LOAD, 0, 0, _ARGUMENTS)
    for domain in sorted(domains):
        yield BpfInstruction(_EQUAL, 0, 1, domain)
        yield BpfInstruction(_RETURN, 0, 0, _ALLOW)
    yield _failing(errno.EACCES)
    yield BpfInstruction(_RETURN, 0, 0, _ALLOW)


def _failing(number: int) -> BpfInstruction:
    return BpfInstruction(_RETURN, 0, 0, _ERRNO | number)


_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every processor
_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG, _MAKE_FIFO, _MAKE_SYM = (1 << bit for bit in (4, 5, 7, 8, 10, 12))
_REFER, _TRUNCATE_FILE = 1 << 13, 1 << 14
_ALL_OF = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""All file rights that each version of Landlock knows."""

LIST = _READ_DIR
"""The right to list the names in a folder and below, without reading files."""
READ = _EXECUTE | _READ_FILE | _READ_DIR
_MAKE = _MAKE_DIR | _MAKE_REG | _MAKE_FIFO | _MAKE_SYM
WRITE = READ | _WRITE_FILE | _TRUNCATE_FILE | _REFER | _REMOVE_DIR | _REMOVE_FILE | _MAKE
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE_FILE

_ALL_TCP = 0b11
_ALL_SCOPES = 0b11  # abstract Unix sockets, signals
_WITH_TCP, _WITH_SCOPES = 4, 6


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("folder", ctypes.c_int32))


def version() -> int:
    """Return the version of Landlock in this kernel; 0 if it is missing or turned off."""
    if sys.platform != "linux":
        return 0
    try:
        return call(_CREATE_RULESET, None, 0, _VERSION)
    except OSError:
        return 0


def restrict(rights: Mapping[str, int], *, tcp: bool) -> None:
    """Deny this thread and everything it starts access to all files except those below the paths in *rights*.

    Without *tcp* it cannot open TCP connections either, where the kernel supports that (6.7). Signals and abstract
    sockets reach no process outside, where the kernel supports that (6.12). Missing paths are skipped.
    """
    abi = version()
    handled = _ALL_OF[max(each for each in _ALL_OF if each <= abi)]
    ruleset = _Ruleset(handled, 0, 0)
    size = 8
    if abi >= _WITH_TCP:
        ruleset.net, size = (0 if tcp else _ALL_TCP), 16
    if abi >= _WITH_SCOPES:
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


class SandboxRights(msgspec.Struct, frozen=True, kw_only=True):
    """The rights that a sandboxed process keeps."""

    rights: dict[str, int]
    """Landlock rights by path; they hold for everything below it."""
    network: bool
    """Whether it gets a separate network with the proxy as its only way out."""


# Files that programs and Python's standard library read: libraries, certificates, names, time zones. No configuration
# of services, which may hold secrets, and only the process's own part of /proc.
_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store",
    "/etc/alternatives", "/etc/ca-certificates", "/etc/group", "/etc/hosts", "/etc/ld.so.cache", "/etc/ld.so.conf",
    "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/passwd", "/etc/pki/tls/certs",
    "/etc/pki/ca-trust", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/timezone",
    "/dev/random", "/dev/urandom", "/dev/zero",
    "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu",
)  # fmt: skip
_CODE = (".py", ".pyc", ".so")


def rules_of(
    sandbox: Sandbox, *, own: Path, path: Sequence[str], folder: Path, hidden: Collection[Path]
) -> SandboxRights:
    """Return the rights of a process, or raise a `RemitError` if they would expose a *hidden* path.

    *own* is its working folder, *path* its import path; relative paths start at *folder*.
    """
    rights: dict[str, int] = {}
    for each, right in _needed(path):
        rights[each] = rights.get(each, 0) | right
    for each in sandbox.reads:
        rights[str(folder / each)] = READ
    for each in sandbox.writes:
        rights[str(folder / each)] = WRITE
    rights[str(own)] = rights["/dev/null"] = WRITE
    for named in (*sandbox.reads, *sandbox.writes):
        if not (folder / named).exists():
            raise team_invalid(f"an agent in a sandbox is to reach {folder / named}, which does not exist")
    inside_of = _folders_of(hidden)
    for each, right in rights.items():
        if right != LIST and (inside := inside_of.get(os.path.realpath(each))) is not None:
            raise team_invalid(
                f"an agent in a sandbox would reach {inside}, because it may read {each}: "
                "keep the store and its keys in a folder of their own, or name less"
            )
    return SandboxRights(rights=rights, network=bool(sandbox.network))


def _folders_of(paths: Collection[Path]) -> dict[str, Path]:
    """Return the paths by themselves and by each folder that they are in, without symbolic links."""
    found: dict[str, Path] = {}
    for each in paths:
        real = each.resolve()
        for place in (real, *real.parents):
            found.setdefault(str(place), each)
    return found


def _needed(path: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Return the paths needed to run Python and to import from the folders of *path*."""
    installed = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, str(Path(sys.executable).parent)}
    installed |= {str(Path(sys.executable).resolve().parent), *sysconfig.get_paths().values(), *site.getsitepackages()}
    for each in (*_SYSTEM, *sorted(installed)):
        if each != "/":
            yield each, READ
    for each in path:
        entry = Path(each)
        if any(entry.is_relative_to(prefix) for prefix in installed if prefix != "/"):
            continue
        if entry.is_file() or entry.name in ("site-packages", "dist-packages"):
            yield each, READ
        elif entry.is_dir():
            # Not the whole folder: a team's store, its keys and other project files may be next to its code.
            yield each, LIST
            for part in _code_in(entry):
                yield str(part), READ


def _code_in(folder: Path) -> Iterator[Path]:
    """Return the modules and packages of a folder; other files have to be named to be readable."""
    try:
        parts = sorted(folder.iterdir())
    except OSError:
        return
    for part in parts:
        if part.name == "__pycache__" or part.suffix in _CODE or (part / "__init__.py").is_file():
            yield part


# ── availability ──────────────────────────────────────────────────────────────────────────────────────────────────────

_TRIED = "import sys; sys.path[:] = {path!r}; from remit_cli.processes.sandbox import enter_own_network as f; f()"


def missing(sandbox: Sandbox) -> str | None:
    """Return why this system cannot provide the sandbox; None if it can."""
    if version() == 0:
        return "this system has no Landlock: it needs Linux 5.13 or newer, with Landlock turned on"
    if not is_known():
        return "system calls cannot be filtered here: it needs Linux with seccomp, on x86_64 or aarch64"
    if sandbox.network and not has_own_network():
        return (
            "hosts are named, and this system lets a process have no network of its own: it needs user namespaces, "
            "which some distributions and containers turn off (kernel.apparmor_restrict_unprivileged_userns, "
            "user.max_user_namespaces, the container's seccomp profile)"
        )
    return None


def demand(sandbox: Sandbox, agent: str) -> None:
    """Raise a `RemitError` unless this system can provide the sandbox: the agent does not run without it."""
    for named in sandbox.network:
        if destination(named) is None:
            raise team_invalid(f'agent `{agent}`: network: "{named}" is not a host and a port, as in "example.com:443"')
    if (why := missing(sandbox)) is not None:
        raise team_invalid(f"agent `{agent}` wants a sandbox, and {why}; it does not run without one")


@cache
def has_own_network() -> bool:
    """Return whether a process can create its own network here; tried in a child process."""
    if sys.platform != "linux":
        return False
    command = [sys.executable, "-P", "-c", _TRIED.format(path=sys.path)]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False, timeout=60).returncode == 0


def destination(named: str) -> tuple[str, int] | None:
    """Parse `host:port` or `[v6]:port`; None if it is neither."""
    host, colon, port = named.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        return None
    return host.lower().rstrip("."), int(port)


# ── in the agent's process ────────────────────────────────────────────────────────────────────────────────────────────

_NEWUSER, _NEWNET = 0x1000_0000, 0x4000_0000
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_UP = 0x1


def enter_own_network() -> socket.socket:
    """Move to an empty network and return a listening socket on its loopback, or raise an `OSError`.

    The holder of that socket accepts connections from inside, also in a process outside. There is no other way out.
    Call it before the process has a second thread.
    """
    import fcntl  # missing on Windows

    user, group = os.geteuid(), os.getegid()
    unshare(_NEWUSER | _NEWNET)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        flags = fcntl.ioctl(control, _SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0))
        (now,) = struct.unpack_from("H", flags, 16)
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", now | _UP))
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    return listener


def enforce(rules: SandboxRights) -> None:
    """Permanently drop every right that *rules* does not name in this process, or raise a `RemitError`."""
    try:
        drop_capabilities()
        restrict(rules.rights, tcp=rules.network)
        install(network=rules.network, truncate=version() < 3)
    except OSError as error:
        raise team_invalid(f"the sandbox cannot be set up: {os.strerror(error.errno or 0)}") from error
