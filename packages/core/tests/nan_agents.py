"""An agent that says NaN, in a module that a process of its own can import."""

import math
from typing import Any

from remit import Brief, RemitError


async def not_a_number(brief: Brief) -> list[Any]:
    """Say NaN wherever an agent can, and return what is said of it."""
    outcomes: list[Any] = []

    async def nan() -> float:
        return math.nan

    async def inf() -> dict[str, float]:
        return {"x": math.inf}

    for attempt in (
        lambda: brief.use("weigh", grams=math.nan),
        lambda: brief.use("weigh", grams=[1.0, math.inf]),
        lambda: brief.update_state(grams=math.nan, fine=1),
        lambda: brief.once("nan", nan),
        lambda: brief.once("inf", inf),
    ):
        try:
            outcomes.append([await attempt()])
        except RemitError as error:
            outcomes.append([error.fault.code, *(f"{each.path}: {each.message}" for each in error.fault.problems)])
    outcomes.append(await brief.state())
    return outcomes
