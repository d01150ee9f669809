"""A process is killed just when a message that is refused was stored: nobody is told that it was sent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from device_processes import prepare, there
from devices import sealer
from pairs import NOW_MS, Local, polite, profile
from remit_redaction.pipeline import detector_pipeline
from remit_relay.session.moves import SessionState
from remit_relay.session.run import Overlay
from remit_relay.session_service import SessionService
from waiting import PATIENCE_S

VICTIM = Path(__file__).with_name("refusal_victim.py")


async def run_after(folder: Path, why: str, end: str) -> Overlay:
    """Return the run as the next process has it."""
    folder.mkdir()
    prepare(folder)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(VICTIM), str(folder), why, end]
    ended = subprocess.run(command, env=variables, timeout=PATIENCE_S, check=False)
    assert ended.returncode == (-9 if end == "DEAD" else 0)
    device, bob = sealer(folder, "anna"), sealer(folder, "bob")
    async with there(device, "ws://127.0.0.1:9") as post:
        host = SessionService(
            device,
            post,
            profiles={"mine": profile(bob)},
            agent_of=lambda _profile, ask: Local(polite).of(ask),
            detect=detector_pipeline(),
            now_ms=NOW_MS,
        )
        async with host:
            assert device.outbox(limit=10) == []
            return host.runs[0]


@pytest.mark.parametrize("why", ["profile", "revoked"])
async def test_a_refused_message_is_a_draft_again_also_after_a_kill(tmp_path: Path, why: str) -> None:
    lived = await run_after(tmp_path / "lived", why, "ALIVE")
    died = await run_after(tmp_path / "died", why, "DEAD")
    assert lived.pending is not None
    for run in (lived, died):
        assert run.state in {SessionState.PAUSED, SessionState.ERROR}, "nothing goes on without a person"
        assert run.back is SessionState.READY_TO_SEND
        assert (run.timeline, run.turn, run.sending, run.unsent) == ((), 0, None, None)
        assert run.pending is not None
        assert run.pending.text == lived.pending.text
        assert any(each.why.startswith("It was not sent: ") for each in run.pending.reviews), run.pending
