"""How many rewrites are on the wrong side: faithful ones that are not given whole, and others that are."""

import tomllib
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from harness import Figure, at_most, main, sized
from remit.policy.aggregate import Blend
from remit.words.components import Component
from remit_orchestrator.text.faithfulness import Quotes, hold, nearest

REWRITES = Path(__file__).parent.parent / "packages/orchestrator/tests/judgement" / "rewrites.toml"


class Rewrite(NamedTuple):
    """A text that was made from results, and whether it says what they say."""

    part: str
    language: str
    domain: str
    components: tuple[Component, ...]
    text: str
    how: str
    """What is wrong with it; empty if it is faithful."""

    @property
    def blend(self) -> Blend:
        return Blend(components=self.components)


def rewrites(part: str | None = None, path: Path = REWRITES) -> list[Rewrite]:
    """Return the labelled rewrites, of one part or of all."""
    scenes: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["scene"]
    made: list[Rewrite] = []
    for scene in scenes[:: sized(1, 40)]:
        components = tuple(
            Component(f"agent-{place}", source.get("text", source.get("data")), None, source["title"])
            for place, source in enumerate(scene["sources"])
        )
        texts = [(text, "") for text in scene["faithful"]]
        texts += [(each["text"], each["how"]) for each in scene["adversarial"]]
        language = scene.get("language", "en")
        made += [Rewrite(scene["part"], language, scene["domain"], components, text, how) for text, how in texts]
    return [each for each in made if part is None or each.part == part]


Reader = Callable[[Rewrite], Quotes]
"""A second reader: for each sentence that has other words than the results, the passages that it quotes."""


def nobody(_: Rewrite) -> Quotes:
    """Quote nothing: without a second reader, only what repeats the words of the results is given."""
    return {}


def careless(rewrite: Rewrite) -> Quotes:
    """Quote the passages with the most words of each part of a sentence, whether or not they say the same."""
    return nearest(rewrite.text, rewrite.components)


def misjudged(part: str | None = None, path: Path = REWRITES, reader: Reader = nobody) -> list[Rewrite]:
    """Return the rewrites on the wrong side."""
    return [each for each in rewrites(part, path) if hold(each.text, each.blend, reader(each)).whole == bool(each.how)]


def measure() -> list[Figure]:
    figures: list[Figure] = []
    for part, reader in product(("develop", "held"), (nobody, careless)):
        of = Counter(bool(each.how) for each in rewrites(part))
        wrong = Counter(bool(each.how) for each in misjudged(part, reader=reader))
        title = f"rewrites, {part}, {reader.__name__} as second reader"
        figures += [
            # Of 40 each, 6 and 4 may be on the wrong side.
            Figure(
                name=f"{title}: faithful, not given whole",
                value=wrong[False] / of[False],
                unit="",
                bound=at_most(0.15),
            ),
            Figure(name=f"{title}: others, given", value=wrong[True] / of[True], unit="", bound=at_most(0.1)),
        ]
    return figures


if __name__ == "__main__":
    main(measure)
