"""A span: one operation in a trace."""

from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct

Value = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, Value]


class SpanKind(IntEnum):
    """The side of a call that a span describes, with OpenTelemetry's numbers."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3


class SpanEvent(NamedTuple):
    """Something that happened during a span."""

    name: str
    at_ns: int
    attributes: Attributes


class SpanLink(NamedTuple):
    """A reference to a related span."""

    trace: str
    span: str


class Span(Struct, frozen=True, kw_only=True):
    """One finished operation in a trace."""

    trace: str
    span: str
    parent: str | None
    parent_elsewhere: bool = False
    """Whether the parent span belongs to another process."""
    name: str
    kind: SpanKind = SpanKind.INTERNAL
    start_ns: int
    end_ns: int
    attributes: Attributes
    error: str | None = None
    """Why the operation failed; None if it did not."""
    events: tuple[SpanEvent, ...] = ()
    lost_events: int = 0
    links: tuple[SpanLink, ...] = ()
