"""Commands for a run in another process reach it through the device's file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pairs import Pair, together
from remit.ports.keys import HubKeys
from remit_relay.device.state import DeviceFile
from remit_relay.session import moves, repository
from remit_relay.session.moves import SessionState
from remit_relay.session.repository import RemoteCommand
from remit_relay.session.run import Overlay
from waiting import eventually, no_longer


def beside(path: Path) -> DeviceFile:
    """Open Anna's file a second time, as another process does."""
    return DeviceFile.open(path / "anna.db", HubKeys(b"anna" * 8), "process")


async def until_forgotten(file: DeviceFile) -> None:
    await no_longer(lambda: repository.left(file))


async def shows(pair: Pair, what: Callable[[Overlay], bool]) -> Overlay:
    """Return the one run once it is so."""
    await eventually(lambda: what(pair.host.runs[0]))
    return pair.host.runs[0]


async def pending(pair: Pair) -> str:
    run = await pair.until(await pair.start(), SessionState.READY_TO_SEND)
    assert run.pending is not None
    return run.pending.id


async def test_a_draft_is_approved_and_rejected_from_another_process(tmp_path: Path) -> None:
    async with together(tmp_path) as pair:
        draft, file = await pending(pair), beside(tmp_path)
        (run,) = repository.waiting(file)
        assert run.pending is not None
        assert (run.pending.id, run.pending.text) == (draft, "turn 1: review this API")
        repository.leave(file, RemoteCommand(run=run.id, event=moves.Reject(draft, "be brief")))
        assert not repository.waiting(file), "it is answered, and is not to be answered twice"
        run = await shows(pair, lambda run: run.pending is not None and run.pending.id != draft)
        assert run.pending is not None
        assert "be brief" in pair.local.prompts[-1].history[-1].text
        repository.leave(file, RemoteCommand(run=run.id, event=moves.Approve(run.pending.id, "other words")))
        run = await shows(pair, lambda run: bool(run.timeline))
        assert (run.timeline[0].text, run.timeline[0].label) == ("other words", "edited")
        assert not repository.left(file), "it was forgotten in the same commit"
        file.close()


async def test_commands_are_done_in_the_order_in_which_they_were_left(tmp_path: Path) -> None:
    async with together(tmp_path) as pair:
        await pending(pair)
        file, (run,) = beside(tmp_path), pair.host.runs
        for event in (moves.Pause(), moves.Resume(), moves.Pause(), moves.Stop()):
            repository.leave(file, RemoteCommand(run=run.id, event=event))
        await pair.until(run, SessionState.STOPPED)
        assert [each.event for each in pair.notes][-4:] == ["Pause", "Resume", "Pause", "Stop"]
        file.close()


@pytest.mark.parametrize("where", ["in no run", "in another draft"])
async def test_a_wish_that_cannot_be_is_forgotten_and_changes_nothing(tmp_path: Path, where: str) -> None:
    async with together(tmp_path) as pair:
        draft, file = await pending(pair), beside(tmp_path)
        (run,) = pair.host.runs
        wish = RemoteCommand(run="none", event=moves.Stop())
        if where == "in another draft":
            wish = RemoteCommand(run=run.id, event=moves.Approve(f"{draft}0"))
        name = repository.leave(file, wish)
        assert repository.is_left(file, name)
        assert repository.refusal(file, name) is None
        await until_forgotten(file)
        assert pair.host.runs == (run,)
        assert not repository.is_left(file, name)
        why = repository.refusal(file, name)
        assert why == "run not found on this device" if where == "in no run" else draft in (why or "")
    async with together(tmp_path):
        assert repository.refusal(file, name) is None, "whoever waited to hear it is gone"
    file.close()


async def test_an_approval_waits_while_its_run_is_paused_and_while_no_host_is_there(tmp_path: Path) -> None:
    """S8: nothing but a person who resumes the run ends its pause."""
    async with together(tmp_path) as pair:
        draft = await pending(pair)
        (run,) = pair.host.runs
    file = beside(tmp_path)
    repository.leave(file, RemoteCommand(run=run.id, event=moves.Approve(draft)))
    async with together(tmp_path) as pair:
        # What is left after it is done before it, so it was looked at and let be.
        repository.leave(file, RemoteCommand(run="none", event=moves.Stop()))
        await no_longer(lambda: len(repository.left(file)) > 1)
        assert [each.state for each in pair.host.runs] == [SessionState.PAUSED]
        await pair.host.act(run.id, moves.Resume())
        run = await shows(pair, lambda run: bool(run.timeline))
        assert run.timeline[0].label == "approved"
    file.close()
