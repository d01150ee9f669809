"""Reads the store path and key from an invalid team file."""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from remit.config.overrides import Override, apply, from_environment, from_flags
from remit.config.team import Team, TeamFile
from remit.protocol.codec import wrong_fields

# The sections that are needed to read the records.
_SECTIONS = ("store", "redaction")
_HEADER = re.compile(r"^(?=\[)", re.MULTILINE)


def salvaged(path: Path, *, overrides: Sequence[str] = (), environ: Mapping[str, str] = os.environ) -> Team | None:
    """Return a team with only the sections about its store; None if those are invalid."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError:
        return None
    said = _sections(text)
    for override in (*from_environment(environ, said), *from_flags(overrides)):
        if isinstance(override, Override) and override.place[0] in _SECTIONS:
            apply(override, said)
    if any(wrong_fields(said, TeamFile)):
        return None
    team = msgspec.convert(said, TeamFile)
    return Team(store=team.store, redaction=team.redaction, file=path.absolute())


def _sections(text: str) -> dict[str, Any]:
    """Return the needed sections, each parsed separately, because another may be invalid TOML."""
    said: dict[str, Any] = {}
    for part in _HEADER.split(text):
        try:
            read = tomllib.loads(part)
        except tomllib.TOMLDecodeError:
            continue
        for name in _SECTIONS:
            if isinstance(read.get(name), dict):
                said.setdefault(name, {}).update(cast("dict[str, Any]", read[name]))
    return said
