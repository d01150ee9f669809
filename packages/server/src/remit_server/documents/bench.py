"""What `remit bench` measures."""

from typing import Annotated

from msgspec import Meta, Struct


class BenchFigure(Struct, frozen=True, kw_only=True):
    """The time of an operation, and of the floor that it is compared with."""

    operation: Annotated[str, Meta(description="What was measured.")]
    us: Annotated[float, Meta(description="Its least time, in microseconds.")]
    floor: Annotated[str, Meta(description="What has to be done anyway, measured in the same run.")]
    floor_us: Annotated[float, Meta(description="The least time of that, in microseconds.")]
    ratio: Annotated[float, Meta(description="The time of the operation, divided by that of its floor.")]


class BenchReport(Struct, frozen=True, kw_only=True, tag_field="schema", tag="remit.bench/1"):
    """How fast Remit is on this machine. Printed by `remit bench --json`."""

    figures: Annotated[tuple[BenchFigure, ...], Meta(description="The figures.")]
