"""The runs as the HTTP API lists them: one line for each, and the search for them."""

from msgspec import Struct

from remit.protocol.codec import text_of
from remit.protocol.envelope import PREVIEW_LENGTH, Response
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit.protocol.records import Refusal
from remit.runtime.ports import RunScope, RunSummary, Store
from remit_server.documents.api_runs import PublicRun

# How many runs a request reads at most to find those that fit: some hundred milliseconds.
MOST_SEARCHED = 2_000
# As many are read at once: enough that a search is quick, and few enough that their answers fit into memory.
PAGE = 200


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


def run_line(summary: RunSummary, questions: int = 0) -> PublicRun:
    """Return a run in one line."""
    response = summary.response
    return PublicRun(
        run=summary.run,
        user=summary.user,
        agent=summary.agent,
        objective=summary.objective,
        started_ms=summary.started_ms,
        state=summary.state,
        status=response.status if response else None,
        code=response.fault.code if response and response.fault else None,
        preview=preview_of(response) if response else "",
        tokens=response.usage.total if response else None,
        duration_ms=response.duration_ms if response else None,
        changed_ms=summary.changed_ms,
        questions=questions,
        session=summary.session,
        via=summary.via,
        correlation=summary.correlation,
    )


class FoundRuns(Struct, frozen=True, kw_only=True):
    """The runs that a search found, how many it has read, and where it goes on."""

    runs: list[RunSummary]
    searched: int
    next: str | None


async def search(
    store: Store, wanted: RunFilter, of: RunScope, limit: int, *, user: str | None, correlation: str | None
) -> FoundRuns:
    """Return at most *limit* of the newest runs that fit.

    The store selects by user, agent, time and correlation. Everything else is looked for in what it returns.
    """
    found: list[RunSummary] = []
    searched, size = 0, limit + 1 if wanted.is_empty else PAGE
    while True:
        some = await store.runs(user=user, correlation=correlation, of=of, limit=size)
        for place, summary in enumerate(some):
            if len(found) == limit:
                return FoundRuns(runs=found, searched=searched, next=some[place - 1].run if place else of.before)
            searched += 1
            if wanted.fits(summary):
                found.append(summary)
        if len(some) < size:
            return FoundRuns(runs=found, searched=searched, next=None)
        of = of._replace(before=some[-1].run)
        if searched >= MOST_SEARCHED:
            return FoundRuns(runs=found, searched=searched, next=of.before)


async def summary_of(store: Store, run: str) -> RunSummary | None:
    """Return the summary of a run, also of one that was refused before it started; None if there is no such run."""
    for summary in await store.runs(run=run, limit=1):
        if summary.run == run:
            return summary
    for record in await store.records(run=run, limit=1):
        match record.body:
            case Refusal(request=request, response=response) if request.parent is None:
                return RunSummary(
                    run,
                    request.remit.user,
                    request.target,
                    request.objective,
                    record.at_ms,
                    response,
                    "finished",
                    request.via or "",
                    record.session,
                    record.at_ms,
                    request.correlation or run,
                )
            case _:
                pass
    return None
