"""What a sandboxed agent can access: decided in the hub, enforced by the Linux kernel in the agent's process.

Files: Landlock. Network, other processes, file permissions: a filter of system calls. If hosts are named: a separate
network with a proxy as the only way out. Nothing is enforced by Python, so no code can bypass it.
"""

import os
import site
import socket
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

import msgspec

from remit.agents.cards import Sandbox
from remit.runtime.registry import team_invalid
from remit_cli.processes import linux_sandbox


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
        rights[str(folder / each)] = linux_sandbox.READ
    for each in sandbox.writes:
        rights[str(folder / each)] = linux_sandbox.WRITE
    rights[str(own)] = rights["/dev/null"] = linux_sandbox.WRITE
    for named in (*sandbox.reads, *sandbox.writes):
        if not (folder / named).exists():
            raise team_invalid(f"an agent in a sandbox is to reach {folder / named}, which does not exist")
    for each, right in rights.items():
        if right != linux_sandbox.LIST and (inside := _within(Path(each), hidden)) is not None:
            raise team_invalid(
                f"an agent in a sandbox would reach {inside}, because it may read {each}: "
                "keep the store and its keys in a folder of their own, or name less"
            )
    return SandboxRights(rights=rights, network=bool(sandbox.network))


def _within(path: Path, hidden: Collection[Path]) -> Path | None:
    real = path.resolve()
    return next((each for each in hidden if each.resolve().is_relative_to(real)), None)


def _needed(path: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Return the paths needed to run Python and to import from the folders of *path*."""
    installed = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, str(Path(sys.executable).parent)}
    installed |= {str(Path(sys.executable).resolve().parent), *sysconfig.get_paths().values(), *site.getsitepackages()}
    for each in (*_SYSTEM, *sorted(installed)):
        if each != "/":
            yield each, linux_sandbox.READ
    for each in path:
        entry = Path(each)
        if any(entry.is_relative_to(prefix) for prefix in installed if prefix != "/"):
            continue
        if entry.is_file() or entry.name in ("site-packages", "dist-packages"):
            yield each, linux_sandbox.READ
        elif entry.is_dir():
            # Not the whole folder: a team's store, its keys and other project files may be next to its code.
            yield each, linux_sandbox.LIST
            for part in _code_in(entry):
                yield str(part), linux_sandbox.READ


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
    if linux_sandbox.version() == 0:
        return "this system has no Landlock: it needs Linux 5.13 or newer, with Landlock turned on"
    if not linux_sandbox.is_known():
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
    linux_sandbox.unshare(_NEWUSER | _NEWNET)
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
        linux_sandbox.drop_capabilities()
        linux_sandbox.restrict(rules.rights, tcp=rules.network)
        linux_sandbox.install(network=rules.network, truncate=linux_sandbox.version() < 3)
    except OSError as error:
        raise team_invalid(f"the sandbox cannot be set up: {os.strerror(error.errno or 0)}") from error
