"""What it costs to make one answer of ten results of 10 KB, and to find where they differ, against decoding them."""

import random
from collections.abc import Callable

import msgspec

from harness import Figure, at_most, best_of_each, main, sized
from remit.policy.aggregate import start
from remit.protocol.envelope import VERSION, Json, Response
from remit.protocol.lifecycle import Status
from remit.words.components import Component
from remit_orchestrator.text.conflicts import find
from remit_orchestrator.text.narration import NarrativeSection, narrate

ROUNDS = 25
RESULTS, SIZE = sized((10, 10_000), (3, 1_000))
# Each source has another opinion on one thing in ten.
WRONG = 0.1

NOUNS = (
    "market",
    "office",
    "train",
    "budget",
    "supplier",
    "contract",
    "warehouse",
    "team",
    "region",
    "invoice",
    "store",
)
KINDS = ("northern", "annual", "digital", "local", "foreign", "primary", "central", "eastern", "internal", "new", "old")
CLAIMS = (
    *(
        "costs ${}",
        "has {} employees",
        "takes {} days",
        "starts at 9:{}",
        "was approved on {} May",
        "is not profitable",
    ),
    *("was seen by everybody who works there", "goes on as it did before", "is what most of the others rely on"),
)


def text(source: int, size: int, *, alike: bool = True) -> str:
    """Prose of which one sentence in two has a figure; alike, each source differs from the others in some."""
    shared, own = random.Random(0 if alike else -source), random.Random(source + 1)
    prose = ""
    while len(prose) < size:
        thing = f"{shared.choice(KINDS)} {shared.choice(KINDS)} {shared.choice(NOUNS)}"
        number, claim = shared.randrange(10, 28), shared.choice(CLAIMS)
        if own.random() < WRONG:
            number += 1
        prose += f"The {thing} {claim.format(number)}. "
    return prose


def fields(source: int, size: int) -> dict[str, Json]:
    """Objects with money, shares, times, names and truths; each source differs from the others in some."""
    shared, own = random.Random(0), random.Random(source + 1)
    items: list[Json] = []
    while len(msgspec.json.encode(items)) < size:
        price = shared.randrange(1_000, 99_999) / 100
        if own.random() < WRONG:
            price *= 1.3
        items.append(
            {
                "id": f"item-{len(items)}",
                "price": price,
                "growthRate": f"{shared.randrange(1, 99)} %",
                "departure": f"{shared.randrange(24)}:{shared.randrange(10, 59)}",
                "region": shared.choice(NOUNS),
                "approved": shared.random() < 0.5,
            }
        )
    return {"items": items}


def mixed(source: int) -> Json:
    return {"summary": text(source, SIZE // 2), **fields(source, SIZE // 2)}


def merged(responses: list[Response]) -> Callable[[], object]:
    def run() -> object:
        aggregation = start("merge-all", len(responses))
        for place, response in enumerate(responses):
            aggregation = aggregation.add(response, place)
        return aggregation.finish()

    return run


def measure() -> list[Figure]:
    results = {
        "fields and text": [mixed(source) for source in range(RESULTS)],
        "fields": [fields(source, SIZE) for source in range(RESULTS)],
        "text": [text(source, SIZE) for source in range(RESULTS)],
        "texts that share nothing": [text(source, SIZE, alike=False) for source in range(RESULTS)],
    }
    runs: dict[str, Callable[[], object]] = {}
    for kind, several in results.items():
        raw = [msgspec.json.encode(result) for result in several]
        components = [Component(f"agent{place}", result, place / RESULTS) for place, result in enumerate(several)]
        runs[f"decode {kind}"] = lambda raw=raw: [msgspec.json.decode(each) for each in raw]
        runs[f"find {kind}"] = lambda components=components: find(components)
    several = results["fields and text"]
    sections = [NarrativeSection(f"agent{place}", each, 0.5, f"Part {place}") for place, each in enumerate(several)]
    findings = find(sections)
    names = [section.name for section in sections]
    runs["narrate"] = lambda: narrate(sections, findings, glossary={"supplier": "vendor"}, forbidden=names)
    runs["merge"] = merged(
        [
            Response(version=VERSION, id=f"r.{place}", target=name, status=Status.SUCCESS, result=each, confidence=0.5)
            for place, (name, each) in enumerate(zip(names, several, strict=True))
        ]
    )
    best = best_of_each(ROUNDS, runs)
    # Decoding a text is copying it, so what is said in sentences can have no goal.
    goals = {"fields and text": at_most(60), "fields": at_most(25), "text": None, "texts that share nothing": None}
    figures = [
        Figure(
            name=f"conflicts of {RESULTS} results of {SIZE // 1000} KB: {kind}",
            value=best[f"find {kind}"] * 1e6,
            floor=best[f"decode {kind}"] * 1e6,
            unit="µs",
            bound=goal,
        )
        for kind, goal in goals.items()
    ]
    floor = best["decode fields and text"] * 1e6
    return [
        *figures,
        Figure(name="the same merged", value=best["merge"] * 1e6, floor=floor, unit="µs", bound=at_most(3)),
        Figure(name="the same told to a user", value=best["narrate"] * 1e6, floor=floor, unit="µs"),
    ]


if __name__ == "__main__":
    main(measure)
