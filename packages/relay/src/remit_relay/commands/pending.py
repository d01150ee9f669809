"""The drafts to shared agents, for `remit pending`."""

from collections.abc import Sequence
from pathlib import Path

from remit.ports import Decision
from remit_relay.device.state import DEVICE_FILE
from remit_server.documents.shared import SharedDraft

# The rest is imported where it is used: a shell that completes an id waits for this module.


def drafts_in(folder: Path, team_file: Path | None, overrides: Sequence[str]) -> "DeviceDrafts | None":
    """Return the drafts of the device in a folder; None if there is no device."""
    return DeviceDrafts(folder, team_file, overrides) if (folder / DEVICE_FILE).exists() else None


class DeviceDrafts:
    """The drafts of the device in a folder."""

    def __init__(self, folder: Path, team_file: Path | None, overrides: Sequence[str]) -> None:
        self._folder = folder
        self._device = (folder / DEVICE_FILE, team_file, overrides)

    def waiting(self) -> list[SharedDraft]:
        """Return the unanswered drafts, oldest run first."""
        from remit_relay.commands.shared import drafts

        return drafts.waiting(*self._device)

    def readable(self) -> list[tuple[str, str]]:
        """Return the ids and texts of the unanswered drafts; none if the device needs a passphrase."""
        from remit_relay.commands.completion_words import read_device
        from remit_relay.session.repository import waiting

        drafts = read_device(self._folder, lambda state: [run.pending for run in waiting(state)])
        return [(draft.id, draft.text) for draft in drafts]

    def answer(self, draft: SharedDraft, decision: Decision) -> bool:
        """Send a draft or reject it, and return whether that is done already."""
        from remit_relay.commands.shared import drafts
        from remit_relay.commands.shared.client import answer_draft
        from remit_relay.session.moves import Approve, Reject
        from remit_relay.team.device_process import find_process

        text = decision.edits.get("text")
        edited = None if text is None else str(text)
        event = Approve(draft.draft, edited) if decision.agreed else Reject(draft.draft, decision.reason)
        # An answer to a paused run waits in the device's file until the run goes on.
        process = None if draft.paused else find_process(self._folder)
        if process is None:
            return drafts.answer(*self._device, draft, event, by=decision.by)
        return answer_draft(self._folder, process, draft, event, by=decision.by)
