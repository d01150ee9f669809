"""Lists and answers pending drafts of another process."""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from remit.ports.keys import HubKeys
from remit_cli.config.load import load_team
from remit_cli.config.team_search import find_team
from remit_cli.places import team_path
from remit_redaction.pipeline import detector_pipeline
from remit_relay.commands.shared import wording
from remit_relay.commands.shared.client import came_too_late
from remit_relay.device.peers import Peers
from remit_relay.device.state import DeviceFile, open_keys
from remit_relay.local_api.views import Surroundings, view
from remit_relay.session import repository
from remit_relay.session.moves import Approve, Reject
from remit_relay.session.repository import RemoteCommand
from remit_relay.session.run import CredentialFilter
from remit_relay.team.device import key_file, passphrase_of
from remit_relay.team.device_process import holder_of
from remit_server.documents.shared import SharedDraft

# A host checks for answers four times a second; if it is busy, nobody waits longer than this.
MOST_WAIT_S = 2.0
_LOOK_S = 0.05


def waiting(path: Path, team_file: Path | None, overrides: Sequence[str]) -> list[SharedDraft]:
    """Return the unanswered drafts in a device's file, oldest run first."""
    with _opened(path, team_file, overrides) as file:
        peers = {peer.device: peer.card.name for peer in Peers(file).list()}
        displayed = CredentialFilter(detector_pipeline()).run
        shown = [view(displayed(run), Surroundings(now_ms=0)) for run in repository.waiting(file)]
        documents = [wording.draft_document(run, peers.get(run.device, "")) for run in shown]
        return [draft for draft in documents if draft is not None]


def answer(
    path: Path,
    team_file: Path | None,
    overrides: Sequence[str],
    draft: SharedDraft,
    event: Approve | Reject,
    *,
    by: str,
) -> bool:
    """Leave an answer for the process that hosts the draft's run; return whether it was applied already.

    Raises a `RemitError` if it is too late: the draft was answered in the chat, or is gone.
    """
    with _opened(path, team_file, overrides) as file:
        name = repository.leave(file, RemoteCommand(run=draft.run, event=event, by=by))
        until = time.monotonic() + MOST_WAIT_S
        while (
            not draft.paused
            and holder_of(path.parent) is not None
            and time.monotonic() < until
            and repository.is_left(file, name)
        ):
            time.sleep(_LOOK_S)
        if (why := repository.refusal(file, name)) is not None:
            raise came_too_late(why)
        return not repository.is_left(file, name)


@contextmanager
def _opened(path: Path, team_file: Path | None, overrides: Sequence[str]) -> Generator[DeviceFile]:
    file = DeviceFile.open(path, _keys(key_file(path), _passphrase(team_file, overrides)))
    try:
        yield file
    finally:
        file.close()


@cache
def _keys(path: Path, passphrase: str) -> HubKeys:
    """Return the device's keys; cached, because deriving them from a passphrase takes half a second."""
    return open_keys(path, passphrase)


def _passphrase(team_file: Path | None, overrides: Sequence[str]) -> str:
    if find_team(team_file) is None:
        return ""
    return passphrase_of(load_team(team_path(team_file), overrides=overrides, secrets=False, code=False))
