"""Devices in processes of their own that are killed, for tests of what is known of a message after that.

As a program: it forks a device for each order, so that one is there in some milliseconds, and kills it on demand. Anna
asks and writes down how far her message is known to have come; Bob shares an agent that waits for a file.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from devices import introduce, sealer
from gateways import NAME, QUICK
from pairs import NOW_MS, Local, polite, profile
from remit import Brief, Hub
from remit_redaction.pipeline import detector_pipeline
from remit_relay.client.connection import GatewayConnection
from remit_relay.client.delivery import MessageDelivery
from remit_relay.e2e.channel import MessageCipher
from remit_relay.router import route_messages
from remit_relay.serve_shared import Shared, Sharing
from remit_relay.session.run import Overlay, last_delivery
from remit_relay.session_service import SessionService
from remit_testing import MemoryStore
from waiting import PATIENCE_S, eventually

ANSWER = "answer"


class DeviceProcesses:
    """Anna's and Bob's devices, each in a process that can be killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def __aenter__(self) -> "DeviceProcesses":
        pipe = asyncio.subprocess.PIPE
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = (sys.executable, __file__, str(self._folder))
        self._parent = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environment)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._parent.stdin
        self._parent.stdin.close()
        await self._parent.wait()

    async def start(self, who: str, url: str) -> None:
        """Start a device: `anna`, `bob`, or `bob-away`, who receives and has nothing that answers."""
        await self._tell(f"start {who} {url}")

    async def signal(self, who: str, how: signal.Signals) -> None:
        await self._tell(f"{how.name} {who}")

    async def kill(self, *names: str) -> None:
        """Return once they are dead."""
        for who in names:
            await self._tell(f"SIGKILL {who}")

    async def again(self, who: str, url: str, state: str) -> None:
        """Kill a device and start it again; return once it has said that it knows the same state."""
        count = len(self.states())
        await self.kill(who)
        await self.start(who, url)
        await eventually(lambda: len(self.states()) > count)
        assert self.states()[-1] == state

    def answer(self) -> None:
        """Let Bob's agent answer."""
        (self._folder / ANSWER).touch()

    def states(self) -> list[str]:
        """How far Anna's device said that its message had come, over all of its lives."""
        path = self._folder / "states"
        return path.read_text(encoding="ascii").split() if path.exists() else []

    async def until(self, state: str) -> None:
        await eventually(lambda: self.states()[-1:] == [state], state)

    async def _tell(self, command: str) -> None:
        assert self._parent.stdin
        assert self._parent.stdout
        self._parent.stdin.write(f"{command}\n".encode())
        async with asyncio.timeout(PATIENCE_S):
            assert (await self._parent.stdout.readline()) == b"done\n"


@asynccontextmanager
async def there(device: MessageCipher, url: str) -> AsyncGenerator[MessageDelivery]:
    link = GatewayConnection(url, gateway=NAME, key=device.device, pauses=QUICK)
    async with MessageDelivery(device, link) as post:
        yield post


async def anna(folder: Path, url: str) -> None:
    device, bob = sealer(folder, "anna"), sealer(folder, "bob")

    def note(run: Overlay) -> None:
        if (delivery := last_delivery(run)) is not None:
            with (folder / "states").open("a", encoding="ascii") as file:
                file.write(f"{delivery.state}\n")

    async with there(device, url) as post:
        host = SessionService(
            device,
            post,
            profiles={"mine": profile(bob, mode="full_auto")},
            agent_of=lambda _profile, ask: Local(polite).of(ask),
            detect=detector_pipeline(),
            now_ms=NOW_MS,
            changed=note,
        )
        async with host:
            if host.runs:
                note(host.runs[0])
            else:
                await host.start("mine", bob.device.id, "review this API")
            await route_messages(post, host, None, sealer=device, now_ms=NOW_MS)


async def bob(folder: Path, url: str, *, shares: bool) -> None:
    device, other = sealer(folder, "bob"), sealer(folder, "anna")
    hub = Hub(store=MemoryStore())

    @hub.agent("helper")
    async def helper(brief: Brief) -> str:
        await eventually((folder / ANSWER).exists)
        return f"heard: {brief.text}"

    assert helper
    async with hub, there(device, url) as post:
        shared = {"helper": Shared(agent="helper", profile=profile(other, id="theirs"))}
        sharing = Sharing(hub, device, post, shared, now_ms=NOW_MS) if shares else None
        await eventually(lambda: post.one_time_left)
        (folder / "bob-is-there").touch()
        await route_messages(post, None, sharing, sealer=device, now_ms=NOW_MS)


def live(folder: Path, who: str, url: str) -> None:
    asyncio.run(anna(folder, url) if who == "anna" else bob(folder, url, shares=who == "bob"))


def obey(folder: Path) -> None:
    children: dict[str, int] = {}
    for line in sys.stdin:
        order, who, *url = line.split()
        if order == "start":
            children[who] = os.fork()
            if not children[who]:
                live(folder, who, url[0])
                os._exit(0)
        else:
            os.kill(children[who], signal.Signals[order])
            if order == "SIGKILL":
                os.waitpid(children.pop(who), 0)
        print("done", flush=True)
    for child in children.values():
        os.kill(child, signal.SIGKILL)


def prepare(folder: Path) -> tuple[str, str]:
    """Create both devices, which know each other; return their ids."""
    one, other = sealer(folder, "anna"), sealer(folder, "bob")
    introduce(one, other)
    for each in (one, other):
        each.device.state.close()
    return one.device.id, other.device.id


if __name__ == "__main__":
    obey(Path(sys.argv[1]))
