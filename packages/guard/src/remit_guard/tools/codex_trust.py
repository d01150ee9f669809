"""Whether the user of Codex has trusted hooks: it runs no others, and says nothing about those that it leaves out."""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from remit_guard.tools.json_lines import table


def hook_hashes(settings: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Return for each hook of a file its command, its place there, and the hash that Codex trusts.

    Codex hashes what it understood of a hook, as JSON without spaces and with sorted keys.
    """
    for event, groups in cast("dict[str, list[Any]]", settings.get("hooks", {})).items():
        label = re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()
        for number, group in enumerate(map(table, groups)):
            for place, hook in enumerate(map(table, group.get("hooks", []))):
                known = {"async": False, **hook}
                identity: dict[str, Any] = {"event_name": label, "hooks": [known]}
                if "matcher" in group:
                    identity["matcher"] = group["matcher"]
                text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
                digest = hashlib.sha256(text.encode()).hexdigest()
                yield str(hook.get("command", "")), f"{label}:{number}:{place}", f"sha256:{digest}"


def trusted_hashes(settings: Path) -> dict[str, str]:
    """Return the hashes that the user trusts, by file and place in it, without those of hooks that are turned off."""
    state = table(table(_read(settings).get("hooks")).get("state"))
    return {
        key: str(table(about).get("trusted_hash"))
        for key, about in state.items()
        if table(about).get("enabled") is not False
    }


def are_off(settings: Path) -> bool:
    """Return whether the user has switched all hooks off."""
    return table(_read(settings).get("features")).get("hooks") is False


def is_trusted(project: Path, settings: Path) -> bool:
    """Return whether the user trusts a project, or a folder above it: Codex reads no hooks of others."""
    projects = table(_read(settings).get("projects"))
    folders = (str(each) for each in (project, *project.parents))
    return any(table(projects.get(each)).get("trust_level") == "trusted" for each in folders)


def _read(settings: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(settings.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
