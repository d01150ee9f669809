"""What the built-in detectors find of each family of labelled texts, and what they find where nothing is.

The labelled texts are made by `packages/redaction/tests/labelled_texts.py`, the same on every run. Code and prose are
the standard library, the installed packages, their licences, and the pages of this project.
"""

import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from harness import Figure, at_least, at_most, best_of, main, sized
from remit.policy.verdict import Finding
from remit_redaction.pipeline import detector_pipeline

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "packages/redaction/tests"))

import labelled_texts as labelled  # noqa: E402

GOALS = {"keys of vendors": 0.95, "named values": 0.95, "prose": 0.8}
OTHER_GOAL = 0.95
FALSE_ALARMS = at_most(1)
# Addresses in code and licences are those of their authors, and of examples: what they seem to be.
TRUE = frozenset({"EMAIL", "IP", "URL_CREDENTIALS"})
# Tests of others are full of what looks like keys, and is meant to; so is what knows of telephone numbers.
LEFT_OUT = frozenset({"test", "tests", "testing", "idlelib", "phonenumbers", "stdnum", "site-packages", "remit"})
LARGEST = 400_000


def covered(case: labelled.Case, findings: Iterable[Finding]) -> bool:
    start = case.text.index(case.value)
    return any(one.start <= start and start + len(case.value) <= one.end for one in findings)


def measure_labelled() -> Iterator[Figure]:
    detect = detector_pipeline()
    countries: dict[str, list[bool]] = {}
    for family in labelled.FAMILIES:
        cases = islice(labelled.cases(family), sized(None, 5))
        hits = [(case, covered(case, detect(case.text))) for case in cases]
        share = sum(hit for _, hit in hits) / len(hits)
        goal = at_least(GOALS.get(family, OTHER_GOAL))
        yield Figure(name=f"found: {family} ({len(hits)})", value=share, unit="", bound=goal)
        for case, hit in hits:
            if case.family.startswith("national: "):
                countries.setdefault(case.family, []).append(hit)
    for country, hits in sorted(countries.items()):
        yield Figure(name=f"found: {country} ({len(hits)})", value=sum(hits) / len(hits), unit="")
    harmless = list(islice(labelled.harmless(), sized(None, 5)))
    wrong = [text for text in harmless if detect(text)]
    yield Figure(
        name=f"wrong: invoices, versions, hashes ({len(harmless)})", value=len(wrong), unit="", bound=at_most(0)
    )


def sources(folder: Path, pattern: str) -> Iterator[Path]:
    for path in sorted(folder.rglob(pattern)):
        if path.is_file() and not LEFT_OUT & set(path.relative_to(folder).parts):
            yield path


def corpora() -> Iterator[tuple[str, list[str]]]:
    library, packages = Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))
    yield "standard library", read(sources(library, "*.py"))
    yield "installed packages", read(list(sources(packages, "*.py"))[::10])
    yield (
        "licences",
        read(path for path in sources(packages, "*") if path.name.upper().startswith(("LICEN", "COPYING"))),
    )
    # The page on redaction shows values that are to be found.
    yield "pages", read(path for path in (ROOT / "docs").glob("*/*.md") if path.name != "redaction.md")


def read(paths: Iterable[Path]) -> list[str]:
    texts = (path.read_text(encoding="utf-8", errors="replace") for path in paths if path.stat().st_size < LARGEST)
    return list(islice(texts, sized(None, 5)))


def measure_false_alarms() -> Iterator[Figure]:
    detect = detector_pipeline()
    for name, texts in corpora():
        hundreds = sum(len(text.encode()) for text in texts) / 102_400
        kinds: Counter[str] = Counter()

        def run(texts: list[str] = texts, kinds: Counter[str] = kinds) -> None:
            for text in texts:
                kinds.update(finding.kind for finding in detect(text) if finding.kind not in TRUE)

        spent = best_of(1, run)
        print(f"{name}: {dict(kinds)}", file=sys.stderr)
        alarms = kinds.total() / hundreds
        size = f"{hundreds / 10:.1f} MB"
        yield Figure(name=f"false alarms: {name} ({size})", value=alarms, unit="per 100 KB", bound=FALSE_ALARMS)
        yield Figure(name=f"cost: {name}", value=spent * 1e3 / (hundreds * 100), unit="ms/KB")


def measure() -> list[Figure]:
    return [*measure_labelled(), *measure_false_alarms()]


if __name__ == "__main__":
    main(measure)
