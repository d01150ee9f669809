"""One of six specialists is broken and one caller in five is impatient: what everybody else still gets answered.

A real hub with a clock that the benchmark turns. A front agent passes each request on to the specialist that it needs,
and raises what fails below it. An impatient caller gives 50 ms to specialists that take 200, and is not served: that is
its own affair. Counted is what becomes of patient requests that do not need the broken specialist: the breakers of
the front agent and of the healthy specialists must not open for them.
"""

import asyncio
from collections import Counter
from random import Random

from harness import Figure, at_least, main, sized
from remit import Brief, Hub
from remit_testing.memory import MemoryStore
from remit_testing.samples import ManualClock

SPECIALISTS = ("billing", "booking", "returns", "stock", "tracking", "travel")
BROKEN = "tracking"
IMPATIENT = 0.2
IMPATIENT_MS = 50
WORK_S = 0.2
REQUESTS = sized(2_000, 60)
# Between two requests, so that breakers open, wait and probe as they do in a day.
PAUSE_S = 0.5
SEED = 15


def a_hub(clock: ManualClock) -> Hub:
    hub = Hub(store=MemoryStore(), clock=clock)

    def register(name: str) -> None:
        @hub.agent(name)
        async def work(brief: Brief) -> str:
            clock.advance(WORK_S)
            await asyncio.sleep(0)  # where it is stopped, if its time is over
            if name == BROKEN:
                raise ConnectionError("the carrier does not answer")
            return f"done by {name}: {brief.text}"

    for name in SPECIALISTS:
        register(name)

    @hub.agent("front", may_call=SPECIALISTS)
    async def front(brief: Brief) -> object:
        need, _, what = brief.text.partition(": ")
        return (await brief.delegate(need, objective=what)).unwrap()

    return hub


async def simulate() -> Counter[tuple[str, bool]]:
    """Return how many requests of each kind there were, by whether they were answered."""
    random, clock = Random(SEED), ManualClock()
    outcomes: Counter[tuple[str, bool]] = Counter()
    async with a_hub(clock) as hub:
        for number in range(REQUESTS):
            need, impatient = random.choice(SPECIALISTS), random.random() < IMPATIENT
            deadline_ms = IMPATIENT_MS if impatient else None
            response = await hub.ask("front", f"{need}: {number}", user=f"u-{number % 7}", deadline_ms=deadline_ms)
            kind = "impatient" if impatient else "broken" if need == BROKEN else "healthy"
            outcomes[kind, response.ok] += 1
            clock.advance(random.expovariate(1 / PAUSE_S))
    return outcomes


def share(outcomes: Counter[tuple[str, bool]], kind: str) -> float:
    return 100 * outcomes[kind, True] / (outcomes[kind, True] + outcomes[kind, False])


def measure() -> list[Figure]:
    outcomes = asyncio.run(simulate())
    return [
        Figure(name="breaker: answered, healthy", value=share(outcomes, "healthy"), unit="%", bound=at_least(100)),
        Figure(name="breaker: answered, broken", value=share(outcomes, "broken"), unit="%"),
        Figure(name="breaker: answered, impatient", value=share(outcomes, "impatient"), unit="%"),
    ]


if __name__ == "__main__":
    main(measure)
