"""A device in a process of its own, with the team's store beside it, which is killed in the middle of whatever it does.

Reads one order a line on stdin, and forks for each: the child opens device and store. As the side that asks it goes on
with the run that is there or begins one, has its draft approved and ends it; as the one that shares it answers what is
in its inbox. It kills itself with SIGKILL before the statement with the given number, of either file, be it the one
that commits, or lives. What is noted it writes down once that is done.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from devices import sealer
from remit import Brief, Hub
from remit.protocol.card import Rate
from remit.protocol.records import SharedStep
from remit.runtime.clock import LoopClock
from remit.stores.connection import SqliteConnection
from remit.stores.sqlite import SqliteStore
from remit_redaction.pipeline import detector_pipeline
from remit_relay.bridge.ports import Draft, PromptRequest
from remit_relay.client.connection import GatewayConnection
from remit_relay.client.delivery import MessageDelivery
from remit_relay.e2e.channel import MessageCipher
from remit_relay.messages.audit import Recording
from remit_relay.router import route_messages
from remit_relay.serve_shared import Shared, Sharing, SharingEvent
from remit_relay.session import moves
from remit_relay.session.moves import ENDED, SessionState
from remit_relay.session.profile import Profile
from remit_relay.session.run import Person
from remit_relay.session_service import SessionService
from remit_testing import MemoryStore

BOUND_S = 20


class Dying:
    """A connection that ends the process at one of its statements; those of several are counted together."""

    left = 0

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection

    def execute(self, *arguments: Any) -> Any:
        Dying.left -= 1
        if Dying.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._connection.execute(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class Local:
    async def prompt(self, request: PromptRequest) -> Draft:
        return Draft(text=f"{request.objective} {request.turn_index}", confidence=1.0)

    async def close(self) -> None: ...


@asynccontextmanager
async def mortal(
    home: Path, name: str, die_at: int
) -> AsyncGenerator[tuple[MessageCipher, MessageDelivery, Recording]]:
    """Open a device and its team's store, and count their statements from then on."""
    device = sealer(home, name)
    store = SqliteStore(home / f"{name}s-hub.db", durability="process")
    await store.open()
    Dying.left = die_at
    state, writer = device.device.state, store._writer  # pyright: ignore[reportPrivateUsage]
    state._connection = cast(SqliteConnection, Dying(state._connection))  # pyright: ignore[reportPrivateUsage]
    writer._connection = cast(SqliteConnection, Dying(writer._connection))  # pyright: ignore[reportPrivateUsage]
    async with (
        Recording(state, store, device=device.device.id) as recording,
        MessageDelivery(device, GatewayConnection("ws://127.0.0.1:9", gateway="g", key=device.device)) as post,
        asyncio.timeout(BOUND_S),
    ):
        yield device, post, recording
    await store.close()
    state.close()


async def ask(home: Path, objective: str, die_at: int, log: int) -> None:
    async with mortal(home, "anna", die_at) as (anna, post, recording):
        bob = anna.peers.list()[0].device
        profile = Profile(id="mine", allow_shared_agent_calls=True, allowed_shared_device_ids=frozenset({bob}))

        def noted(step: SharedStep) -> None:
            os.write(log, json.dumps([step.event, step.state]).encode() + b"\n")
            recording.wake()

        async with SessionService(
            anna,
            post,
            profiles={"mine": profile},
            agent_of=lambda _profile, _ask: Local(),
            detect=detector_pipeline(),
            now_ms=LoopClock().wall_ms,
            recorded=noted,
        ) as host:
            await go_on(host, bob, objective)


async def share(home: Path, _: str, die_at: int, log: int) -> None:
    hub = Hub(store=MemoryStore())

    @hub.agent("helper")
    async def helper(brief: Brief) -> str:
        return f"heard: {brief.text}"

    assert helper
    async with hub, mortal(home, "bob", die_at) as (bob, post, recording):
        anna = bob.peers.list()[0].device
        profile = Profile(
            id="helper",
            allow_shared_agent_calls=True,
            allowed_shared_device_ids=frozenset({anna}),
            max_concurrent_shared_calls=100,
            rate=Rate(calls=1_000, seconds=60),
        )

        def report(what: SharingEvent) -> None:
            os.write(log, json.dumps([what.event, what.shared]).encode() + b"\n")
            recording.wake()

        shared = {"helper": Shared(agent="helper", profile=profile)}
        sharing = Sharing(hub, bob, post, shared, now_ms=LoopClock().wall_ms, reported=report)
        reading = asyncio.create_task(route_messages(post, None, sharing, sealer=bob, now_ms=LoopClock().wall_ms))
        while await post.do(bob.inbox):
            await asyncio.sleep(0.001)
        reading.cancel()
        await asyncio.wait([reading])
        await sharing.close()


async def go_on(host: SessionService, bob: str, objective: str) -> None:
    eve = Person("eve", "chat")
    run = next((each for each in host.runs if each.state not in ENDED), None)
    if run is None:
        run = await host.start("mine", bob, objective, by=eve)
    else:
        run = await host.act(run.id, moves.Resume(), by=eve)
    while run.pending is None and run.state is not SessionState.WAITING_REMOTE:
        await asyncio.sleep(0.001)
        run = next(each for each in host.runs if each.id == run.id)
    if run.pending is not None:
        await host.act(run.id, moves.Approve(run.pending.id), by=eve)
    await host.act(run.id, moves.Stop(), by=eve)


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            work = ask if order["side"] == "asks" else share
            asyncio.run(work(Path(order["home"]), order["objective"], order["die_at"], log))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
