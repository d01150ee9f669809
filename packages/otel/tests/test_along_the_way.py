"""What comes beside a request goes along with it: its place in a trace, and what others wrote for others."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from remit import Brief, Hub
from remit.policy.reception import Sender
from remit.protocol.trace import place_of
from remit.runtime.clock import LoopClock
from remit_server import connect, connect_a2a
from remit_server.a2a.routes import Exposure
from remit_server.app import Api
from remit_server.server import Server
from remit_server.transports.credentials.incoming import Authenticator, KnownSender
from serving import WEB, client_of, serving

PLACE = f"00-{'1' * 32}-{'2' * 16}"
BESIDE = {"traceparent": f"{PLACE}-01", "tracestate": "vendor=a:b", "baggage": "user%20id=7;secret, y=2"}


class Ajar(Authenticator):
    """A door that remembers what came beside the requests that it let in."""

    def __init__(self) -> None:
        known = KnownSender(name="south", is_hub=True, token="south", users=None, agents=None)
        super().__init__([known], wall_ms=LoopClock().wall_ms)
        self.seen: list[Mapping[str, str]] = []

    async def sender(
        self, headers: Mapping[str, str], method: str = "", path: str = "", *, submits: bool = False
    ) -> Sender:
        self.seen.append(headers)
        return await super().sender(headers, method, path, submits=submits)


@pytest.fixture
def make_hub(tmp_path: Path) -> Callable[..., Hub]:
    def make(name: str) -> Hub:
        return Hub(name=name, store=tmp_path / f"{name}.db", durability="process")

    return make


async def seen_at_the_second(
    make_hub: Callable[..., Hub], beside: Mapping[str, str], times: int = 1, *, by_a2a: bool = False
) -> list[Mapping[str, str]]:
    """Ask a hub that asks another, and return what came beside the requests there."""
    north, south, door = make_hub("north"), make_hub("south"), Ajar()
    exposure = Exposure() if by_a2a else None

    @north.agent("clerk")
    async def clerk(brief: Brief) -> str:
        return "found"

    @south.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> str:
        return (await brief.delegate("clerk", objective="x")).unwrap()

    async with north, Server(Api(north, door, a2a=exposure), port=0, drain_s=2) as far:
        if by_a2a:
            connect_a2a(south, "clerk", f"{far.address}/a2a/clerk", token="south")
        else:
            connect(south, "clerk", far.address, token="south")
        async with serving(south, WEB) as near, client_of(near) as client:
            for number in range(times):
                body = {"target": "boss", "user": "anna", "objective": "x", "id": f"the same {number // 2}"}
                async with client.post("/v1/delegations", json=body, headers=beside) as reply:
                    assert (await reply.json())["result"] == "found"
            # Nothing stays behind once it has ended.
            assert south._parts.passed_on == {}  # pyright: ignore[reportPrivateUsage]
    return [headers for headers in door.seen if "content-length" in headers]


@pytest.mark.parametrize("by_a2a", [False, True], ids=["over HTTP", "by A2A"])
async def test_trace_state_and_baggage_go_along_unchanged_to_the_next_hub(
    make_hub: Callable[..., Hub], by_a2a: bool
) -> None:
    (headers,) = await seen_at_the_second(make_hub, BESIDE, by_a2a=by_a2a)
    assert {name: headers[name] for name in ("tracestate", "baggage")} == {
        "tracestate": BESIDE["tracestate"],
        "baggage": BESIDE["baggage"],
    }
    place = place_of(headers["traceparent"])
    assert place is not None
    assert (place.trace, place.sampled, place.span != "2" * 16) == ("1" * 32, True, True)


async def test_a_trace_that_is_not_sampled_is_not_sampled_further_on(make_hub: Callable[..., Hub]) -> None:
    (headers,) = await seen_at_the_second(make_hub, {"traceparent": f"{PLACE}-00"})
    place = place_of(headers["traceparent"])
    assert place is not None
    assert (place.trace, place.sampled) == ("1" * 32, False)


@pytest.mark.parametrize(
    "beside",
    [
        {"baggage": "x" * 8_193},
        {"tracestate": "a=1"},
        {"traceparent": "nonsense", "tracestate": "a=1"},
        {"baggage": "caf\xe9=1"},
    ],
    ids=["too long", "without its trace", "with no trace", "not plain"],
)
async def test_what_is_too_long_or_says_nothing_stays_behind(
    make_hub: Callable[..., Hub], beside: dict[str, str]
) -> None:
    (headers,) = await seen_at_the_second(make_hub, beside)
    assert not {"baggage", "tracestate"} & headers.keys()
    assert place_of(headers["traceparent"]) is not None


async def test_of_a_request_that_is_sent_again_nothing_stays_behind(make_hub: Callable[..., Hub]) -> None:
    assert len(await seen_at_the_second(make_hub, BESIDE, times=4)) == 2


async def test_what_came_along_is_in_no_record(make_hub: Callable[..., Hub], tmp_path: Path) -> None:
    await seen_at_the_second(make_hub, BESIDE)
    for file in tmp_path.iterdir():
        assert b"user%20id" not in file.read_bytes(), file


async def test_an_agent_by_a2a_that_is_no_hubs_hears_only_its_place_in_the_trace(make_hub: Callable[..., Hub]) -> None:
    seen: list[Mapping[str, str]] = []

    async def card(request: web.Request) -> web.Response:
        interface = {"url": f"{request.url.origin()}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return web.json_response({"name": "stranger", "supportedInterfaces": [interface]})

    async def rpc(request: web.Request) -> web.Response:
        seen.append({name.lower(): value for name, value in request.headers.items()})
        message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "found"}]}
        number = (await request.json())["id"]
        return web.json_response({"jsonrpc": "2.0", "id": number, "result": {"message": message}})

    app, south = web.Application(), make_hub("south")
    app.add_routes([web.get("/.well-known/agent-card.json", card), web.post("/rpc", rpc)])

    @south.agent("boss", may_call=["stranger"])
    async def boss(brief: Brief) -> str:
        return (await brief.delegate("stranger", objective="x")).unwrap()

    async with TestServer(app) as far:
        connect_a2a(south, "stranger", str(far.make_url("")))
        async with serving(south, WEB) as near, client_of(near) as client:
            body = {"target": "boss", "user": "anna", "objective": "x"}
            async with client.post("/v1/delegations", json=body, headers=BESIDE) as reply:
                assert (await reply.json())["result"] == "found"
    (headers,) = seen
    assert not {"baggage", "tracestate"} & headers.keys()
    place = place_of(headers["traceparent"])
    assert place is not None
    assert (place.trace, place.sampled) == ("1" * 32, True)
