"""Whether a command prints colours: by the environment, or as its output allows."""

import os


def wants_colour() -> bool | None:
    """Return whether the user wants colours; None: in a terminal only.

    `NO_COLOR` (https://no-color.org) and terminals without colours come before `FORCE_COLOR`
    (https://force-color.org), which is for pipes.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM", "unknown") in ("", "dumb"):
        return False
    return True if os.environ.get("FORCE_COLOR", "0") not in ("", "0") else None
