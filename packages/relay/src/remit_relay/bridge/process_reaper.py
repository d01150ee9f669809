"""Run one process, and kill everything that it started when it ends or when the host ends.

This is a program of its own, `python -I -S process_reaper.py LIFELINE COMMAND ARGUMENT…`. It imports nothing of Remit,
so that it starts in a few milliseconds. The host holds the other end of the pipe LIFELINE: end of file means that the
host is gone, a byte means that everything must end at once. The reaper leads its own process group, and exits with the
status of its process.
"""

import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from typing import NoReturn

# If the host was killed, the agent gets SIGTERM here and has this long to end.
GRACE_S = 1.0
# The exit code for a program that cannot be run, as in shells.
NOT_RUN = 127

_PR_SET_CHILD_SUBREAPER = 36


def main(lifeline: int, command: list[str]) -> NoReturn:
    """Run the command until it or the host ends."""
    os.set_inheritable(lifeline, False)
    adopts = _adopts()
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    # Handlers, not SIG_IGN, which the process would inherit: signals to the group are for it, not for the reaper.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, _pass)
    # The host blocks it, so that its own Ctrl-C during the start does not end this process.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    kept = os.fork()
    if kept == 0:
        _become(command)
    _let_go_of_streams()
    status: int | None = None
    while status is None:
        ready, _, _ = select.select([lifeline, woken], [], [])
        if woken in ready:
            os.read(woken, 65_536)
        status = _reaped(kept)
        if status is None and lifeline in ready:
            if not os.read(lifeline, 1):
                status = _asked_to_end(kept, woken)
            break
    _sweep(adopts, ended=status is not None)
    _end_as(status)


def _pass(number: int, frame: object) -> None:
    """Do nothing: the wakeup pipe ends the wait."""


def _become(command: list[str]) -> NoReturn:
    # Python ignores these two signals, and the new program would inherit that.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"cannot run {command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(NOT_RUN)


def _let_go_of_streams() -> None:
    """Close the standard streams here, so that the host sees when the process closes them."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _adopts() -> bool:
    """Become the parent of orphaned descendants; return whether that is possible."""
    if sys.platform != "linux":
        return False
    try:
        import ctypes

        return ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        return False


def _reaped(kept: int) -> int | None:
    """Reap ended children; return the status of the process if it was among them."""
    status = None
    with suppress(ChildProcessError):
        while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
            if reaped[0] == kept:
                status = reaped[1]
    return status


def _asked_to_end(kept: int, woken: int) -> int | None:
    os.killpg(0, signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    while (left_s := until - time.monotonic()) > 0 and select.select([woken], [], [], left_s)[0]:
        os.read(woken, 65_536)
        if (status := _reaped(kept)) is not None:
            return status
    return None


def _sweep(adopts: bool, *, ended: bool) -> None:
    """Kill all remaining children; their children become children of this process, until there are none."""
    if not adopts:
        if not ended:
            os.killpg(0, signal.SIGKILL)
        return  # the parent of this process kills the rest of its group
    while True:
        try:
            with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listed:
                children = [int(pid) for pid in listed.read().split()]
        except OSError:
            os.killpg(0, signal.SIGKILL)
            return
        if not children:
            return
        for pid in children:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _end_as(status: int | None) -> NoReturn:
    if status is None:
        os.kill(os.getpid(), signal.SIGKILL)
    elif os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # two signals cannot be handled, so they need no reset
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status or 0) & 0xFF)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
