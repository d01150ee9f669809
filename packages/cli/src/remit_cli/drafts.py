"""Drafts that wait for a person in `remit pending`; a plugin brings them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from remit.plugin import brought, named
from remit.runtime.ports import Decision
from remit_server.documents.shared import SharedDraft


class DraftBox(Protocol):
    """The drafts in the folder of a store."""

    def waiting(self) -> Sequence[SharedDraft]:
        """Return the unanswered drafts; raise a `RemitError` if they cannot be read."""
        ...

    def readable(self) -> list[tuple[str, str]]:
        """Return the ids and texts of the unanswered drafts that can be read at once, for a shell that completes."""
        ...

    def answer(self, draft: SharedDraft, decision: Decision) -> bool:
        """Send a draft or reject it, and return whether that is done already; raise a `RemitError` if it is late."""
        ...


def drafts_in(folder: Path, team_file: Path | None, overrides: Sequence[str]) -> DraftBox | None:
    """Return the drafts in the folder of a store; None if there can be none."""
    for bring in brought("drafts"):
        if (address := bring(folder)) is not None:
            return named(address)(folder, team_file, overrides)
    return None
