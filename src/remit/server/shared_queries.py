"""The queries of the local API: which runs and which entries of a run a client asks for."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

from remit.protocol.problems import did_you_mean
from remit.relay.session.moves import SessionState
from remit.relay.session.run import Overlay
from remit.server.bodies import Scope
from remit.server.parameters import parameter, refuse_unknown, wrong_parameter

PER_PAGE = 100
MOST_PER_PAGE = 1_000
# While texts are searched, others get their turn after this many runs.
_TOGETHER = 50


class RunQuery(Struct, frozen=True, kw_only=True):
    """Which runs are asked for."""

    limit: int = PER_PAGE
    before: str = ""
    """The run after which the page begins; empty: it begins with the newest."""
    q: str = ""
    """A text that occurs in the objective or in an entry; upper and lower case are the same."""
    profile: str = ""
    device: str = ""
    states: frozenset[SessionState] = frozenset(SessionState)


def run_query(scope: Scope) -> RunQuery:
    """Return the query of a request, or raise a `RemitError` that names the wrong parameter."""
    refuse_unknown(scope, "limit", "before", "q", "profile", "device", "state")
    return RunQuery(
        limit=_limit(scope),
        before=parameter(scope, "before", ""),
        q=parameter(scope, "q", "").casefold(),
        profile=parameter(scope, "profile", ""),
        device=parameter(scope, "device", ""),
        states=_states(parameter(scope, "state", "")),
    )


class EntryQuery(Struct, frozen=True, kw_only=True):
    """Which entries of a run are asked for."""

    limit: int = PER_PAGE
    before: int | None = None
    """Only entries with a lower number."""


def entry_query(scope: Scope, run: Overlay) -> EntryQuery:
    """Return the query of a request, or raise a `RemitError` that names the wrong parameter."""
    refuse_unknown(scope, "limit", "before")
    before = parameter(scope, "before", "")
    return EntryQuery(limit=_limit(scope), before=entry_number(run, before, "before") if before else None)


def entry_number(run: Overlay, entry: str, name: str) -> int:
    """Return the number in the id of an entry of a run, or raise a `RemitError` about the field *name*."""
    of_run, _, number = entry.rpartition(".e")
    if of_run == run.id and number.isascii() and number.isdecimal() and len(number) < 16:
        found = int(number)
        if 1 <= found <= run.entries:
            return found
    raise wrong_parameter(name, f"{entry[:100]!r} is not the id of an entry of this run")


async def find_runs(
    runs: Sequence[Overlay], query: RunQuery, displayed: Callable[[Overlay], Overlay]
) -> tuple[list[Overlay], str | None]:
    """Return a page of *runs* (oldest first) as they are displayed, newest first, and the `before` of the next page."""
    newest = runs[::-1]
    if query.before:
        place = next((place for place, run in enumerate(newest) if run.id == query.before), None)
        if place is None:
            raise wrong_parameter("before", f"no run {query.before[:100]!r} on this device")
        newest = newest[place + 1 :]
    found: list[Overlay] = []
    for count, run in enumerate(newest, 1):
        if query.q and count % _TOGETHER == 0:
            await asyncio.sleep(0)
        if not _is_meant(run, query):
            continue
        shown = displayed(run)
        # What is not displayed must not be found either: a search could guess it letter by letter.
        if query.q and not _holds(shown, query.q):
            continue
        if len(found) == query.limit:
            return found, found[-1].id
        found.append(shown)
    return found, None


def _is_meant(run: Overlay, query: RunQuery) -> bool:
    return (
        run.state in query.states
        and query.profile in ("", run.profile)
        and query.device in ("", run.device)
        and (not query.q or _holds(run, query.q))
    )


def _holds(run: Overlay, text: str) -> bool:
    if text in run.objective.casefold() or text in run.result.casefold():
        return True
    return any(text in each.text.casefold() or text in each.original.casefold() for each in run.timeline) or any(
        text in each.text.casefold() or text in each.reason.casefold() for each in run.rejected
    )


def _limit(scope: Scope) -> int:
    limit = parameter(scope, "limit", PER_PAGE)
    if not 1 <= limit <= MOST_PER_PAGE:
        raise wrong_parameter("limit", f"{limit} is not a number from 1 to {MOST_PER_PAGE}")
    return limit


def _states(given: str) -> frozenset[SessionState]:
    if not given:
        return frozenset(SessionState)
    known = {str(state): state for state in SessionState}
    names = given.split(",")
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"; known states: {', '.join(known)}"
            raise wrong_parameter("state", f"unknown state {name[:100]!r}{hint}")
    return frozenset(known[name] for name in names)
