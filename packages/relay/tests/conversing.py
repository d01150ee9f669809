"""A device in a process of its own, which is killed at any moment: `python conversing.py share|ask FOLDER`.

It does what the team file in the folder says, until it is killed. As the one that shares, it prints a line once others
can reach it; as the one that asks, the address of its local API.
"""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from remit.runtime import root_runs
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team
from remit_relay.client import connection, delivery
from remit_relay.client.connection import ReconnectDelays
from remit_relay.local_api.serving import Changes, serve_shared
from remit_relay.team import device_service
from remit_server.console.hosts import TOKEN_FILE

# A gateway that was killed is there again in a moment.
connection.ReconnectDelays = lambda: ReconnectDelays(first_s=0.02, most_s=0.1)  # pyright: ignore[reportAttributeAccessIssue]
delivery.TELL_S = 0.02
delivery.AGAIN_S = 0.1
# What a killed hub was at work on is taken up again once its lease is over.
root_runs.LEASE_MS = 1_500


async def main(role: str, folder: Path) -> None:
    os.chdir(folder)
    team = load_team(folder / "remit.toml")
    async with AsyncExitStack() as stack:
        changes, hub = Changes(), None
        if role == "share":
            hub = await stack.enter_async_context(hub_of(team))
        up = await stack.enter_async_context(
            device_service.relaying(team, hub=hub, host=role == "ask", share=role == "share", changed=changes.changed)
        )
        line = "up"
        if up.host is not None:
            token = team.store_path.parent / TOKEN_FILE
            line = await stack.enter_async_context(serve_shared(up.host, changes, token=token))
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        await up.ended


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
