"""A run as it may be displayed: keys, passwords and tokens in its texts are replaced by their kind."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from remit.policy.verdict import Detector, Finding
from remit_relay.session.review import CREDENTIALS
from remit_relay.session.run import Overlay, TimelineEntry

# Each step displays the whole run again, and only its last texts are new.
_REMEMBERED = 1_000


class CredentialFilter:
    """Hides credentials in the texts of runs; what is sent, and what an agent is asked, is not changed by it."""

    def __init__(self, detect: Detector) -> None:
        self._detect = detect
        self._known: dict[str, str] = {}

    def run(self, run: Overlay) -> Overlay:
        """Return a run with all of its texts filtered."""
        hide, draft = self.text, run.pending
        return replace(
            run,
            objective=hide(run.objective),
            questions=tuple(
                replace(each, title=hide(each.title), details=hide(each.details)) for each in run.questions
            ),
            pending=None if draft is None else replace(draft, text=hide(draft.text), original=hide(draft.original)),
            timeline=_hidden(run.timeline, hide),
            kept=_hidden(run.kept, hide),
            rejected=tuple(replace(each, text=hide(each.text), reason=hide(each.reason)) for each in run.rejected),
            guidance=hide(run.guidance),
            failure=hide(run.failure),
            banner=hide(run.banner),
            result=hide(run.result),
        )

    def text(self, text: str) -> str:
        """Return a text with each credential replaced by its kind."""
        if not text:
            return text
        if (known := self._known.get(text)) is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            known = self._known[text] = self._without_credentials(text)
        return known

    def part(self, text: str) -> str:
        """Return a text that is still being written, up to its last whole word: half a key would not be recognised."""
        whole = text[: max(text.rfind(space) for space in " \n\t") + 1]
        begun = whole.rfind("-----BEGIN")
        if begun >= 0 and "-----END" not in whole[begun:]:
            whole = whole[:begun]
        return self._without_credentials(whole)

    def _without_credentials(self, text: str) -> str:
        return with_kinds(text, (found for found in self._detect(text) if found.kind in CREDENTIALS))


def with_kinds(text: str, findings: Iterable[Finding]) -> str:
    """Return a text in which each finding is replaced by its kind."""
    parts: list[str] = []
    end = 0
    for found in findings:
        if found.start >= end:
            parts += [text[end : found.start], f"[{found.kind}]"]
            end = found.end
    return "".join([*parts, text[end:]])


def _hidden(entries: tuple[TimelineEntry, ...], hide: Callable[[str], str]) -> tuple[TimelineEntry, ...]:
    return tuple(
        replace(each, text=hide(each.text), failed=hide(each.failed), original=hide(each.original)) for each in entries
    )
