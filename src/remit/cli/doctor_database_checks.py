"""Checks of `remit doctor` for a store in a database."""

from collections.abc import Iterator

from remit.cli.doctor_store_checks import ok, problem, warning
from remit.cli.places import reading
from remit.cli.show.screen import many
from remit.cli.store_view import DatabasePlace, StoreView
from remit.config.team import Team
from remit.documents.team import Check
from remit.protocol.errors import RemitError
from remit.stores.checkpoints import key_path

# Verifying more rows than this takes longer than a check may.
QUICK_ROWS = 10_000
# How many of the newest runs are searched for silent ones.
RUNS = 1_000


def database(team: Team) -> Iterator[Check]:
    """Check the database of a team and its content without writing to it."""
    place = DatabasePlace(team)
    try:
        with reading(place) as view:
            rows = view.before_newest(0)
            yield ok("store", f"{place} can be read; {many(rows, 'row')}")
            yield _key(team)
            yield _audit(view, rows)
            yield from _runs(view)
    except RemitError as error:
        yield problem("store", error.fault.message, error.fault.suggestion)


def _key(team: Team) -> Check:
    path = key_path(team.store_path)
    if path.exists():
        return ok("store key", f"{path}; keep a copy elsewhere, because all hubs need it")
    return problem("store key", f"there is no {path}", "Copy it from a hub that uses this store, or from a backup.")


def _audit(view: StoreView, rows: int) -> Check:
    todo = "`remit audit verify` lists each place."
    if rows > QUICK_ROWS:
        return ok("audit", f"not verified: {many(rows, 'row')} take a while", "remit audit verify")
    verdict = view.verify((), ())
    if verdict.announced:
        return warning("audit", f"a hub reported a break in the record: {verdict.findings[0]}", todo)
    if not verdict.ok:
        return problem("audit", f"the record was tampered with: {verdict.findings[0]}", todo)
    return ok("audit", f"the record is intact; {many(verdict.unprotected, 'row')} after the last checkpoint")


def _runs(view: StoreView) -> Iterator[Check]:
    if questions := view.pending():
        yield warning("questions", f"{many(len(questions), 'question')} pending", "Answer them: remit pending")
    silent = [each for each in view.runs(limit=RUNS) if each.state == "silent"]
    if silent:
        says = f"{many(len(silent), 'run')} without a hub that responds"
        yield warning("runs", says, "Resume them: remit runs resume. Or end them: remit runs cancel RUN")
