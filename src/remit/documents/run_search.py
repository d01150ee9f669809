"""What a list of runs is searched for, beyond what a store can select."""

from typing import Literal, get_args

from msgspec import Struct

from remit.protocol.codec import text_of
from remit.protocol.envelope import PREVIEW_LENGTH, Response
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit.runtime.ports import RunSummary

RunStanding = Literal["waiting", "running", "silent", "finished"]
STANDINGS: tuple[str, ...] = get_args(RunStanding)

# How much of an answer is searched: what a person would find again by a few words stands at its beginning.
SEARCHED_LENGTH = 4_000


class RunFilter(Struct, frozen=True, kw_only=True):
    """The texts, states and outcomes that a run must have; an empty field selects every run."""

    text: str = ""
    """A part of its id, objective, answer or error message, in small or capital letters."""
    states: frozenset[str] = frozenset()
    statuses: frozenset[Status] = frozenset()
    codes: frozenset[Code] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether every run fits."""
        return self == RunFilter()

    def fits(self, summary: RunSummary) -> bool:
        """Return whether a run is searched for."""
        response = summary.response
        if self.states and summary.state not in self.states:
            return False
        if self.statuses and (response is None or response.status not in self.statuses):
            return False
        if self.codes and (response is None or response.fault is None or response.fault.code not in self.codes):
            return False
        return not self.text or self._says(summary)

    def _says(self, summary: RunSummary) -> bool:
        wanted, response = self.text.casefold(), summary.response
        if summary.run.startswith(wanted) or wanted in summary.objective.casefold():
            return True
        if response is None:
            return False
        # What is not shown to a reader cannot be found by it either.
        why = response.fault.outward().message if response.fault is not None else ""
        answer = text_of(response.result)[:SEARCHED_LENGTH]
        return any(wanted in each.casefold() for each in (why, response.summary, answer))


def preview_of(response: Response) -> str:
    """Return the beginning of an answer: its summary, or its result as text."""
    return (response.summary or text_of(response.result))[:PREVIEW_LENGTH]
