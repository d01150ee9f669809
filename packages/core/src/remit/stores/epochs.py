"""The newest epoch of each run: what a hub still writes of a run that another one has claimed since is refused."""

import json
import logging
from collections.abc import Collection, Iterable

from remit.runtime.ports import FIRST_EPOCH, RunEpoch
from remit.stores.connection import SqliteConnection

# A hub has fewer runs in flight. Each takes about 150 bytes.
MOST_KNOWN = 10_000

_log = logging.getLogger("remit.store")


class ReplacedRuns:
    """The runs that other hubs have claimed since this one did; each is logged once."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._known: set[str] = set()

    def report(self, runs: Iterable[str]) -> None:
        """Log runs of which something was refused."""
        new = sorted(set(runs) - self._known)
        if not new:
            return
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        self._known.update(new)
        which = f"run {new[0]} was" if len(new) == 1 else f"{len(new)} runs were ({', '.join(new[:5])})"
        _log.warning("%s: %s taken over by another hub; nothing more is recorded of it here", self._store, which)


class RunEpochs:
    """The epochs in a SQLite file, as far as one process knows them: it looks again once others have written."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._version = -1

    def submitted(self, run: str) -> None:
        """Note a new run."""
        self._newest[run] = FIRST_EPOCH

    def changed(self, run: str) -> None:
        """Note that a run was claimed or released, or has ended."""
        self._newest.pop(run, None)

    def forget(self) -> None:
        """Forget everything: a transaction was rolled back."""
        self._newest.clear()

    def look_again(self, connection: SqliteConnection) -> None:
        """Forget everything if another process has written since; called once in each transaction that needs it."""
        version: int = connection.pragma("data_version")
        if version != self._version or len(self._newest) > MOST_KNOWN:
            self._newest.clear()
            self._version = version

    def replaced(self, connection: SqliteConnection, claims: Collection[RunEpoch]) -> set[RunEpoch]:
        """Return those of these claims that are followed by a newer one."""
        newest = self._newest
        if unknown := {run for run, _ in claims if run not in newest}:
            sql = "SELECT run, epoch FROM json_each(?) JOIN request ON run = value AND state < 2"
            newest.update(dict.fromkeys(unknown, 0))  # one that was forgotten, or is not submitted yet
            newest.update(connection.execute(sql, (json.dumps(sorted(unknown)),)))
        return {claim for claim in claims if claim.epoch < newest[claim.run]}
