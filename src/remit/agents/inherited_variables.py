"""Environment variables that child processes inherit.

No variable that often holds a secret is among them: no key, no token, no proxy. Whatever else a process needs is
passed to it by name.
"""

from collections.abc import Mapping

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
