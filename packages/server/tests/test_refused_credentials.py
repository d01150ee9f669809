"""A request whose credential is used up is refused, and leaves nothing in memory."""

from collections.abc import Mapping

from remit import Brief, Code, Hub, RemitError, fault
from remit.policy.reception import Sender
from remit.protocol.envelope import Request
from remit.protocol.remit import Grant
from remit.protocol.submission import Submission
from remit.runtime.clock import LoopClock
from remit_server.app import Api
from remit_server.server import Server
from remit_server.transports.credentials.incoming import Authenticator, KnownSender
from remit_testing.memory import MemoryStore
from serving import client_of, posted


class UsedUp(Authenticator):
    """Lets a hub in whose credential has nothing left."""

    async def grant(self, headers: Mapping[str, str], sender: Sender, sent: Submission) -> Grant | None:
        return Grant(user="anna", depth=0, chain=(), tokens=100, time_ms=1_000, max_depth=3)

    async def received(self, request: Request) -> Request:
        raise RemitError(fault(Code.TOKEN_BUDGET_EXCEEDED, "nothing is left of the credential"))


async def test_what_is_refused_for_its_credential_leaves_nothing_behind() -> None:
    hub = Hub(store=MemoryStore())

    @hub.agent("desk")
    async def desk(_: Brief) -> str:
        return "done"

    door = UsedUp([KnownSender(name="north", is_hub=True, token="north")], wall_ms=LoopClock().wall_ms)
    ask = {"user": "anna", "target": "desk", "objective": "Go", "origin": "boss", "context": {"last_messages": 3}}
    async with hub, Server(Api(hub, door), port=0, drain_s=2) as server, client_of(server, "north") as north:
        for _ in range(3):
            _, told = await posted(north, ask)
            assert told["fault"]["code"] == Code.TOKEN_BUDGET_EXCEEDED
        assert hub._parts.remarks == {}  # pyright: ignore[reportPrivateUsage]
