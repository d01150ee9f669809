"""A device whose message is refused, in a process of its own: `python refusal_victim.py FOLDER WHY ALIVE|DEAD`.

WHY is `profile` (it may not use the other device any more) or `revoked`. If DEAD, the process kills itself as soon as
the refused message is stored.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from device_processes import there
from devices import sealer
from pairs import NOW_MS, Local, polite, profile
from remit_redaction.pipeline import detector_pipeline
from remit_relay.session import moves
from remit_relay.session_service import SessionService
from waiting import eventually

# Nobody is there: what is stored does not depend on it.
NOWHERE = "ws://127.0.0.1:9"


class Dying(SessionService):
    """Ends the process as soon as a step is stored, once `armed`."""

    armed = False

    async def _keep(self, *arguments: Any, **more: Any) -> Any:
        stored = await super()._keep(*arguments, **more)
        if self.armed:
            os.kill(os.getpid(), signal.SIGKILL)
        return stored


async def main(folder: Path, why: str, end: str) -> None:
    device, bob = sealer(folder, "anna"), sealer(folder, "bob")
    profiles = {"mine": profile(bob)}
    async with there(device, NOWHERE) as post:
        host = Dying(
            device,
            post,
            profiles=profiles,
            agent_of=lambda _profile, ask: Local(polite).of(ask),
            detect=detector_pipeline(),
            now_ms=NOW_MS,
        )
        async with host:
            run = await host.start("mine", bob.device.id, "review this API")
            run = await eventually(lambda: host.runs[0], when=lambda now: now.waits)
            assert run.pending is not None
            if why == "revoked":
                device.peers.revoke(bob.device.id)
            else:
                profiles["mine"] = profile(bob, allowed_shared_device_ids=frozenset[str]())
            host.armed = end == "DEAD"
            await host.act(run.id, moves.Approve(run.pending.id))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
