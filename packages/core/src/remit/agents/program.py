"""A program of the user's that runs beside the hub: what it inherits, and when it may start again after it failed."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

# What every program needs: to be found and loaded, and the user's name, language, time zone and certificates.
FOR_EVERY_PROCESS = (
    "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME", "LD_LIBRARY_PATH", "LOGNAME",
    "PATH", "SSL_CERT_DIR", "SSL_CERT_FILE", "TZ", "USER",
)  # fmt: skip

# What a program of the user's own needs besides, such as an MCP server or a coding agent: it works with the user's
# files, logs in with what it keeps there, and is often written for Node. An agent in a process of its own does not
# get these: its home is an empty folder.
FOR_USER_PROGRAMS = (
    *FOR_EVERY_PROCESS, "HOME", "NODE_EXTRA_CA_CERTS", "SHELL", "TERM", "TMPDIR",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME",
)  # fmt: skip


def user_program_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of *environ* that a program of the user's own inherits."""
    return {name: environ[name] for name in FOR_USER_PROGRAMS if name in environ}


class Program(Struct, frozen=True, kw_only=True):
    """A program that runs as a child process, over stdin and stdout."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    """Its environment variables besides those that every program needs; no others of the hub are passed on."""
    folder: str | None = None

    def __repr__(self) -> str:
        return f"Program({self.command!r})"  # tracebacks must not show secrets

    def exists(self) -> bool:
        """Return whether the program exists."""
        if os.sep in self.command:
            return os.access(os.path.join(self.folder or os.curdir, self.command), os.X_OK)
        return shutil.which(self.command, path=self.env.get("PATH")) is not None


class RestartPause:
    """Counts failures in a row. After each, the next start waits for the next of *pauses_s*, at the end for the
    last one.
    """

    def __init__(self, pauses_s: Sequence[float], now: Callable[[], float]) -> None:
        self._pauses_s = pauses_s
        self._now = now
        self.failures = 0
        self._not_before = float("-inf")

    def left_s(self) -> float:
        """Return how many seconds are left until the next start; 0 if it need not wait."""
        return max(0.0, self._not_before - self._now())

    def fail(self) -> None:
        """Count a failure, and begin the pause after it."""
        self._not_before = self._now() + self._pauses_s[min(self.failures, len(self._pauses_s) - 1)]
        self.failures += 1

    def succeed(self) -> None:
        """Count from zero again; a pause that has begun goes on."""
        self.failures = 0

    def reset(self) -> None:
        """Forget all failures, and the pause."""
        self.failures, self._not_before = 0, float("-inf")
