"""How much of a labelled set the built-in detectors find, how much they find that is not there, and what it costs.

The set is a list in the format of presidio-research: `full_text`, and `spans` with `entity_type`, `start_position` and
`end_position`. It is not part of the project; without one, only what long and hostile texts cost is measured.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from harness import Figure, at_least, at_most, best_of, best_of_each, sized, table
from remit.policy.verdict import Finding
from remit_redaction.pipeline import detector_pipeline

# The labels that are of our kinds. The others are names, places, dates and the like, for which we do not look.
STRUCTURED = {
    "PHONE_NUMBER": "PHONE",
    "EMAIL_ADDRESS": "EMAIL",
    "CREDIT_CARD": "CREDIT_CARD",
    "IBAN_CODE": "IBAN",
    "US_SSN": "SSN",
    "US_ITIN": "ITIN",
    "US_DRIVER_LICENSE": "DRIVER_LICENSE",
    "IP_ADDRESS": "IP",
    "CRYPTO": "BTC_ADDRESS",
    "CA_SIN": "SIN",
    "UK_NHS": "NHS_NUMBER",
    "API_KEY": "API_KEY",
    "PASSWORD": "PASSWORD",
}
# Presidio without a model, measured on the same kind of set: 0.89.
RECALL = at_least(0.89)
PRECISION = at_least(0.95)
MS_PER_KB = at_most(2)
# A text that is made to be slow may be slower; it must not grow faster.
HOSTILE_MS_PER_KB = at_most(5)
# Twice the text in twice the time, and a little for what else the machine does.
GROWTH = at_most(2.6)

HOSTILE = {
    "@": "@",
    "a@a@": "a@",
    "digits": "4",
    "'1 '": "1 ",
    "'4 '": "4 ",
    "dots": ".",
    "(((": "(",
    "+": "+",
    "colons": "a:",
    "://a:": "://a:",
    "token starts": "eyJ0",
    "key starts": "sk-AKIA",
    "assignments": "password:",
    "BEGIN": "-----BEGIN PRIVATE KEY-----\n",
    "numbers": "012 345 6789 ",
    "cards in lines": "4111111111111111\n",
    "zero-width": "4\u200b",
    "escapes": "%34",
    "entities": "&#52;",
    "two vendors' starts": "sk-ghp_",
    "keys that are told": "the key is a1 ",
    "passwords that are told": "password x1y2z3 ",
    "named numbers": "pesel 4405140135",
    "names of numbers": "pesel nip dni ",
    "cookies": "cookie: sid=a1b2c3d4;",
    "cookies in cookies": "cookie:sid=a1b2c3d4;",
    "listed": "4111,1111,",
    "papers": "passport number ",
    "homoglyphs": "\u0430\u0435",
    "base64": "QUtJQTEyMzQ1Njc4OTBhYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5ejAxMjM0NTY3ODk+/w",
}
HOSTILE_LENGTH = sized(250_000, 2_000)


class Span(msgspec.Struct):
    """What somebody marked in a text."""

    entity_type: str
    start_position: int
    end_position: int


class Sample(msgspec.Struct):
    """A text and what is marked in it."""

    full_text: str
    spans: list[Span]


class Tally(NamedTuple):
    """What was found of what was there: a label is found if all of it is covered."""

    labelled: Counter[str]
    covered: Counter[str]
    right: int
    elsewhere: Counter[tuple[str, str]]
    wrong: list[tuple[str, str]]


def tally(samples: Sequence[Sample], results: Sequence[Sequence[Finding]]) -> Tally:
    """Count each structured label that is wholly covered, and each finding by what it lies on."""
    labelled: Counter[str] = Counter()
    covered: Counter[str] = Counter()
    elsewhere: Counter[tuple[str, str]] = Counter()
    wrong: list[tuple[str, str]] = []
    right = 0
    for sample, findings in zip(samples, results, strict=True):
        for span in sample.spans:
            kind = STRUCTURED.get(span.entity_type)
            if kind:
                labelled[kind] += 1
                covered[kind] += any(covers(finding, span) for finding in findings)
        for finding in findings:
            under = [span.entity_type for span in sample.spans if overlaps(finding, span)]
            if not under:
                wrong.append((finding.kind, sample.full_text[finding.start : finding.end]))
            elif finding.kind in map(STRUCTURED.get, under):
                right += 1
            else:
                elsewhere[finding.kind, under[0]] += 1
    return Tally(labelled, covered, right, elsewhere, wrong)


def covers(finding: Finding, span: Span) -> bool:
    return finding.start <= span.start_position and span.end_position <= finding.end


def overlaps(finding: Finding, span: Span) -> bool:
    return finding.start < span.end_position and span.start_position < finding.end


def measure_set(path: Path) -> Iterator[Figure]:
    samples = msgspec.json.decode(path.read_bytes(), type=list[Sample])
    texts = [sample.full_text for sample in samples]
    detect = detector_pipeline()
    results = [list(detect(text)) for text in texts]
    counts = tally(samples, results)

    for kind, labelled in sorted(counts.labelled.items()):
        yield Figure(name=f"recall: {kind} ({labelled})", value=counts.covered[kind] / labelled, unit="")
    everything = counts.labelled.total()
    recall = counts.covered.total() / everything if everything else 0
    yield Figure(name=f"recall ({everything} of {len(texts)} texts)", value=recall, unit="", bound=RECALL)
    of_labels = counts.right + counts.elsewhere.total()
    total = of_labels + len(counts.wrong)
    yield Figure(
        name=f"precision ({total} findings)", value=of_labels / total if total else 1, unit="", bound=PRECISION
    )

    kilobytes = sum(len(text.encode(errors="surrogatepass")) for text in texts) / 1024
    best = best_of_each(5, {"detect": over(texts, detect), "floor": over(texts, re.compile(r"\d+").findall)})
    per_kb = best["detect"] * 1e3 / kilobytes
    yield Figure(name="cost", value=per_kb, unit="ms/KB", bound=MS_PER_KB)
    yield Figure(
        name="cost against one pass of \\d+", value=per_kb, floor=best["floor"] * 1e3 / kilobytes, unit="ms/KB"
    )

    for (kind, label), count in counts.elsewhere.most_common():
        print(f"found as {kind}, labelled {label}: {count}", file=sys.stderr)
    for kind, value in counts.wrong:
        print(f"found as {kind}, not labelled: {value!r}", file=sys.stderr)


def over(texts: Sequence[str], run: Callable[[str], object]) -> Callable[[], object]:
    return lambda: [run(text) for text in texts]


def measure_hostile() -> Iterator[Figure]:
    """What twice the length costs: linear work doubles."""
    detect = detector_pipeline()
    for name, unit in HOSTILE.items():
        once = unit * (HOSTILE_LENGTH // len(unit))
        detect(once[:1000])
        single, double = (best_of(3, over([text], detect)) for text in (once, once * 2))
        yield Figure(
            name=f"hostile: {name}", value=single * 1e3 / (len(once) / 1024), unit="ms/KB", bound=HOSTILE_MS_PER_KB
        )
        # Too little work tells nothing but noise.
        if single > 0.03:
            yield Figure(name=f"hostile: {name}, twice as long", value=double, floor=single, unit="s", bound=GROWTH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, help="a labelled set; never committed")
    parser.add_argument("--json", type=Path, help="write the figures to this file instead of printing them")
    arguments = parser.parse_args()
    figures = [*(measure_set(arguments.data) if arguments.data else ()), *measure_hostile()]
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.encode(figures))
        return
    print(table(figures))
    sys.exit(any(figure.ok is False for figure in figures))


if __name__ == "__main__":
    main()
