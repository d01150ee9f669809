"""Reads what an answer tells in its metadata: its model, and how its request was handled."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from remit.protocol.envelope import HANDLING, MODEL, Json


class ModelUse(Struct, frozen=True, kw_only=True):
    """The model of an answer, and what its provider read from a cache."""

    name: str = ""
    cached: int = 0
    """Tokens of the prompt that were read from a cache."""
    beside: int = 0
    """Tokens that were read from a cache and are not part of the usage."""


def model_in(metadata: dict[str, Json]) -> ModelUse | None:
    """Return what an answer tells of its model in its metadata; None if it names none."""
    match metadata.get(MODEL):
        case {"name": str(name), **rest}:
            return ModelUse(name=name, cached=_count(rest.get("cached")), beside=_count(rest.get("beside")))
        case _:
            return None


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def handling_in(metadata: Mapping[str, Json]) -> str:
    """Return the decision in the metadata of a response as a sentence for operators; empty if there is none."""
    try:
        found = msgspec.convert(metadata.get(HANDLING), dict[str, str])
    except msgspec.ValidationError:
        return ""
    if found.get("decision") not in ("route", "local"):
        return ""
    who = "routed" if found["decision"] == "route" else "handled locally"
    return f"{who}: {found.get('why', '')}"
