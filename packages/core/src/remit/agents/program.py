"""A program that is started as a child process, and the environment variables that it inherits.

No variable that often holds a secret is among these: no key, no token, no proxy. Whatever else a process needs is
passed to it by name.
"""

import os
import shutil
from collections.abc import Mapping

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
