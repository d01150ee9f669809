"""A span: one piece of work in a trace, as it is delivered."""

from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct

Value = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, Value]


class SpanKind(IntEnum):
    """Which side of a call a span is, with OpenTelemetry's numbers."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


class Event(NamedTuple):
    """Something that happened while a span was under way."""

    name: str
    at_ns: int
    attributes: Attributes


class Link(NamedTuple):
    """Another span that this one has to do with."""

    trace: str
    span: str


class Span(Struct, frozen=True, kw_only=True):
    """One piece of work in a trace."""

    trace: str
    span: str
    parent: str | None
    parent_elsewhere: bool = False
    """Whether the span above is another process's."""
    name: str
    kind: SpanKind = SpanKind.INTERNAL
    start_ns: int
    end_ns: int
    attributes: Attributes
    error: str | None = None
    """Why it failed; None: it did not."""
    events: tuple[Event, ...] = ()
    lost_events: int = 0
    links: tuple[Link, ...] = ()
