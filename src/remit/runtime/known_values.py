"""The known secrets of a run, found again in later texts."""

from collections.abc import Iterable, Iterator

from remit.policy.verdict import Detector, Finding


class KnownValuesDetector:
    """A detector that also finds the known secrets of a run.

    A password is recognised by its field's name; repeated elsewhere, it is recognised by its value.
    """

    def __init__(self, detect: Detector, named: dict[str, str]) -> None:
        self._detect = detect
        self.named = named

    def __call__(self, text: str) -> Iterable[Finding]:
        findings = self._detect(text)
        # One by one, and not as one pattern: a pattern would be compiled for each value, and some are a hundred pages
        # long.
        known = [
            Finding(*place, kind) for raw, kind in self.named.items() if raw in text for place in _words(text, raw)
        ]
        return [*known, *findings] if known else findings


def _words(text: str, raw: str) -> Iterator[tuple[int, int]]:
    """Return where *raw* stands in a text as a whole word."""
    start = text.find(raw)
    while start >= 0:
        end = start + len(raw)
        alone = not _is_letter(text[start - 1 : start]) and not _is_letter(text[end : end + 1])
        if alone:
            yield start, end
        start = text.find(raw, end if alone else start + 1)


def _is_letter(char: str) -> bool:
    return char.isalnum() or char == "_"
