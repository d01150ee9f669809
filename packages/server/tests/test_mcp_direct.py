"""MCP: agents as tools of their own, files, and under which host names a server is asked."""

import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import mcp_types as types
import pytest
from aiohttp import ClientSession
from msgspec import Meta, Struct

from hosts import ERAS, Person, Progress, data, host_at, text
from remit import Answer, Ask, Brief, Capability, Facts, File, Hub, Request, Verdict
from remit.policy.reception import Sender
from remit.policy.verdict import ALLOW
from remit_cli.config.load import load_team
from remit_cli.config.serving import serving as serving_team
from remit_server import serve
from remit_server.mcp.host_delegations import McpOffer
from remit_server.server import Server
from serving import client_of, serving

ANNA = Sender(name="anna-desk", users=frozenset({"anna"}), may_approve=True)
STRICT = Sender(name="strict", users=frozenset({"anna"}), targets=frozenset({"echo"}))
OFFICE = Sender(name="office")
ALL = (ANNA, STRICT, OFFICE)
FOUR = ["delegate_task", "list_agents", "delegation_status", "delegation_cancel"]
ADDRESS: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "required": ["name"],
    "additionalProperties": False,
}

era = pytest.mark.parametrize("era", ERAS)


def asks_before_paying(request: Request, facts: Facts) -> Verdict:
    return Ask("May this be paid?") if request.capability == "PAY" and not facts.approved else ALLOW


@pytest.fixture
def hub(make_hub: Callable[..., Hub]) -> Hub:
    hub = make_hub(approver="inbox", guards=[asks_before_paying])

    @hub.agent("echo", description="Says it again.")
    async def echo(brief: Brief) -> str:
        brief.progress("half of it")
        return f"{brief.user}: {brief.objective}"

    @hub.agent("post", capabilities=[Capability(code="SEND", description="Sends a parcel.", input_schema=ADDRESS)])
    async def post(brief: Brief) -> object:
        return {"objective": brief.objective, "sent": brief.input}

    @hub.agent(
        "till.north",
        description="Handles money.",
        capabilities=[
            Capability(code="PAY", input_schema={"type": "object", "properties": {"sum": {"type": "integer"}}}),
            Capability(code="COUNT", input_schema={"type": "array"}, read_only=True),
        ],
    )
    async def till(brief: Brief) -> object:
        return [brief.request.capability, brief.objective, brief.input]

    @hub.agent("list_agents")
    async def shadow(_: Brief) -> str:
        return "not this one"

    assert {echo, post, till, shadow}
    return hub


def offering(*tools: str) -> McpOffer:
    return McpOffer(tools=frozenset(tools))


@era
async def test_chosen_agents_are_listed_with_the_schema_of_their_capability_unchanged(hub: Hub, era: str) -> None:
    async with (
        serving(hub, *ALL, mcp=offering("*")) as server,
        host_at(server.address, "anna-desk", era) as host,
        host_at(server.address, "strict", era) as strict,
        host_at(server.address, "office", era) as nobody,
    ):
        listed = {each.name: each for each in (await host.list_tools()).tools}
        narrow, unknown = [[each.name for each in (await one.list_tools()).tools] for one in (strict, nobody)]
    assert list(listed) == [*FOUR, "echo", "post", "till_north_PAY", "till_north_COUNT"]
    assert listed["post"].input_schema == ADDRESS
    assert listed["post"].description == "Sends a parcel."
    assert list(listed["echo"].input_schema["properties"]) == ["task", "input", "session"]
    hints = [each.annotations.read_only_hint for each in list(listed.values())[4:] if each.annotations]
    assert hints == [False, False, False, True]
    assert narrow == [*FOUR, "echo"], "a client sees the agents that it may ask"
    assert unknown == FOUR, "there is no user yet, so no agents"


@era
async def test_a_direct_tool_takes_the_input_and_gives_what_the_agent_answers(hub: Hub, era: str) -> None:
    progress = Progress()
    async with (
        serving(hub, *ALL, mcp=offering("post", "echo", "till.north")) as server,
        host_at(server.address, "anna-desk", era) as host,
    ):
        said = await host.call_tool("echo", {"task": "good day"}, progress_callback=progress)
        sent = await host.call_tool("post", {"name": "Bo", "address": {"city": "Oslo"}})
        counted = await host.call_tool("till_north_COUNT", {"task": "count", "input": [1, 2]})
        wrong = await host.call_tool("post", {"address": {"city": 1}, "more": True})
        nothing = await host.call_tool("echo", {})
        missing = await host.call_tool("post_SEND", {"name": "Bo"})
        again = await host.call_tool("delegation_status", {"id": data(sent)["id"]})
    assert text(said) == "anna: good day"
    assert "echo: half of it" in progress.messages
    given = {"name": "Bo", "address": {"city": "Oslo"}}
    assert data(sent)["result"] == {"objective": "Sends a parcel.", "sent": given}
    assert data(counted)["result"] == ["COUNT", "count", [1, 2]]
    assert wrong.is_error
    assert data(wrong)["fault"]["code"] == "INPUT_VALIDATION_FAILED"
    assert {each["path"] for each in data(wrong)["fault"]["problems"]} >= {"$.name", "$.address.city"}
    assert [each["path"] for each in data(nothing)["fault"]["problems"]] == ["$.task"]
    assert "Use one of" in text(missing)
    assert "post" in text(missing)
    assert data(again) == data(sent)


@era
async def test_a_person_is_asked_before_a_direct_tool_does_what_needs_it(hub: Hub, era: str) -> None:
    person = Person("accept", sum=5)
    async with (
        serving(hub, *ALL, mcp=offering("till.north")) as server,
        host_at(server.address, "anna-desk", era, person=person) as host,
    ):
        paid = await host.call_tool("till_north_PAY", {"sum": 5})
    assert data(paid)["result"] == ["PAY", "Handles money.", {"sum": 5}]
    assert "May this be paid?" in person.questions[0]


class Booking(Struct):
    name: Annotated[str, Meta(description="Who travels")]
    seat: Literal["aisle", "window"] = "aisle"
    extras: list[Literal["bag", "bike"]] = []


@era
async def test_a_form_of_an_agent_is_a_form_of_the_host_with_defaults_and_choices(hub: Hub, era: str) -> None:
    @hub.agent("travel")
    async def travel(brief: Brief) -> object:
        return await brief.fill("Which seat?", Booking)

    assert travel
    person, careless = Person("accept", name="Bo", seat="window", extras=["bike"]), Person("accept", seat="roof")
    async with serving(hub, *ALL, mcp=offering("travel")) as server:
        async with host_at(server.address, "anna-desk", era, person=person) as host:
            booked = await host.call_tool("travel", {"task": "book"})
        async with host_at(server.address, "anna-desk", era, person=careless) as host:
            open_ = await host.call_tool("travel", {"task": "book"})
    assert data(booked)["result"] == {"name": "Bo", "seat": "window", "extras": ["bike"]}
    (form,) = person.forms
    assert form["required"] == ["name"]
    assert form["properties"] == {
        "name": {"type": "string", "title": "Name", "description": "Who travels"},
        "seat": {"type": "string", "title": "Seat", "enum": ["aisle", "window"], "default": "aisle"},
        "extras": {
            "type": "array",
            "title": "Extras",
            "items": {"type": "string", "enum": ["bag", "bike"]},
            "default": [],
        },
        "reason": {"type": "string", "title": "Reason", "description": "Optional; it is recorded."},
    }
    assert data(open_)["state"] == "waiting", "a wrong choice leaves the question open"


@era
async def test_a_field_that_a_person_empties_is_left_out_of_the_form(hub: Hub, era: str) -> None:
    @hub.agent("travel")
    async def travel(brief: Brief) -> object:
        return await brief.fill("Which seat?", Booking)

    assert travel
    person = Person("accept", name="Bo", seat=None)
    async with (
        serving(hub, *ALL, mcp=offering("travel")) as server,
        host_at(server.address, "anna-desk", era, person=person) as host,
    ):
        booked = await host.call_tool("travel", {"task": "book"})
    assert data(booked)["result"] == {"name": "Bo", "extras": []}


async def test_without_a_choice_there_are_four_tools_and_agents_are_none(hub: Hub) -> None:
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk") as host:
        listed = [each.name for each in (await host.list_tools()).tools]
        refused = await host.call_tool("echo", {"task": "hi"})
    assert listed == FOUR
    assert data(refused)["fault"]["code"] == "NOT_FOUND"


async def test_a_program_chooses_the_tools_where_it_serves(hub: Hub) -> None:
    async with (
        hub,
        serve(hub, clients={"desk": "secret"}, users={"desk": ["anna"]}, mcp_tools=["echo"]) as address,
        host_at(address, "secret") as host,
    ):
        assert text(await host.call_tool("echo", {"task": "hi"})) == "anna: hi"


async def test_an_agent_whose_name_needs_no_change_has_its_name_before_others(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub()
    for name in ("pay.now", "pay_now", "pay.later"):
        hub.agent(name)(_name_of(name))
    async with (
        serving(hub, ANNA, mcp=offering("*")) as server,
        host_at(server.address, "anna-desk") as host,
    ):
        listed = [each.name for each in (await host.list_tools()).tools]
        said = await host.call_tool("pay_now", {"task": "pay"})
    assert listed == [*FOUR, "pay_now", "pay_later"]
    assert text(said) == "pay_now"


def _name_of(name: str) -> Callable[[Brief], Awaitable[str]]:
    async def answer(_: Brief) -> str:
        return name

    return answer


FILES = (
    File(name="a.png", media_type="image/png", data=b"\x89PNG"),
    File(name="b.wav", media_type="audio/wav", data=b"RIFF"),
    File(name="c d.bin", data=b"\x00\xff"),
    File(name="e.csv", media_type="text/csv", data=b"coffee,4.20"),
    File(name="f.svg", media_type="image/svg+xml", data=b"<svg/>"),
    File(name="g.pdf", media_type="application/pdf", url="https://example.org/g.pdf"),
)


def packed(file: File) -> str:
    return base64.b64encode(file.data or b"").decode()


@pytest.mark.parametrize("era", ERAS)
async def test_files_are_content_blocks(hub: Hub, era: str) -> None:
    @hub.agent("painter")
    async def paint(brief: Brief) -> Answer:
        return Answer("painted", files=FILES)

    assert paint
    async with serving(hub, ANNA) as server, host_at(server.address, "anna-desk", era) as host:
        done = await host.call_tool("delegate_task", {"agent": "painter", "task": "paint"})
        again = await host.call_tool("delegation_status", {"id": data(done)["id"]})
    assert again.content == done.content
    image, audio, *_ = FILES
    assert isinstance(done.content[0], types.TextContent)
    assert done.content[0].text.startswith("painted\n\nFiles: a.png (image/png), b.wav (audio/wav), ")
    assert done.content[1:3] == [
        types.ImageContent(type="image", data=packed(image), mime_type="image/png"),
        types.AudioContent(type="audio", data=packed(audio), mime_type="audio/wav"),
    ]
    blob, table, picture = (each for each in done.content[3:6] if isinstance(each, types.EmbeddedResource))
    assert isinstance(blob.resource, types.BlobResourceContents)
    assert (blob.resource.uri, blob.resource.blob) == ("file:///c%20d.bin", packed(FILES[2]))
    assert isinstance(table.resource, types.TextResourceContents)
    assert (table.resource.text, table.resource.mime_type) == ("coffee,4.20", "text/csv")
    assert isinstance(picture.resource, types.TextResourceContents)
    link = done.content[6]
    assert isinstance(link, types.ResourceLink)
    assert (link.name, str(link.uri)) == ("g.pdf", "https://example.org/g.pdf")
    assert data(done)["files"][0] == {"name": "a.png", "media_type": "image/png", "size": 4}
    assert data(done)["files"][-1] == {"name": "g.pdf", "media_type": "application/pdf", "url": FILES[-1].url}


async def test_an_answer_without_files_is_one_text(hub: Hub) -> None:
    @hub.agent("plain")
    async def plain(brief: Brief) -> str:
        return "plain"

    assert plain
    async with serving(hub, ANNA) as server, host_at(server.address, "anna-desk", ERAS[0]) as host:
        done = await host.call_tool("delegate_task", {"agent": "plain", "task": "x"})
    assert (text(done), len(done.content), "files" in data(done)) == ("plain", 1, False)


GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "host", "version": "1"},
    },
}


def port_of(server: Server) -> int:
    return int(server.address.rpartition(":")[2])


async def greeted(session: ClientSession, **headers: str) -> tuple[int, Any]:
    """Send the first message of a host, and return the status and the fault."""
    accept = {"accept": "application/json, text/event-stream"}
    async with session.post("/mcp", json=GREETING, headers={**accept, **headers}) as reply:
        is_json = reply.content_type == "application/json"
        return reply.status, (await reply.json()).get("fault") if is_json else None


async def test_a_host_name_that_is_not_of_the_server_is_refused(make_hub: Callable[..., Hub]) -> None:
    async with serving(make_hub(), ANNA) as server, client_of(server, "anna-desk") as host:
        for name in ("evil.example", f"evil.example:{port_of(server)}", "127.0.0.1.evil.example", "192.168.1.5", ""):
            status, why = await greeted(host, host=name)
            assert (status, why["code"]) == (403, "PERMISSION_DENIED"), name
            assert why["message"] == "this host name is not one of this server"


async def test_loopback_names_are_accepted_with_every_port(make_hub: Callable[..., Hub]) -> None:
    async with serving(make_hub(), ANNA) as server, client_of(server, "anna-desk") as host:
        for name in ("localhost", "LOCALHOST:9000", f"127.0.0.1:{port_of(server)}", "[::1]:1"):
            assert (await greeted(host, host=name))[0] == 200, name


async def test_a_page_of_another_origin_is_refused(make_hub: Callable[..., Hub]) -> None:
    async with serving(make_hub(), ANNA) as server, client_of(server, "anna-desk") as host:
        here = f"localhost:{port_of(server)}"
        for origin in ("http://evil.example", "null", "http://localhost:1", f"http://127.0.0.1:{port_of(server)}"):
            status, why = await greeted(host, host=here, origin=origin)
            assert (status, why["message"]) == (403, "cross-origin requests are not allowed"), origin
        assert (await greeted(host, host=here, **{"sec-fetch-site": "cross-site"}))[0] == 403
        assert (await greeted(host, host=here, origin=f"http://{here}"))[0] == 200


async def test_hosts_are_refused_before_anyone_is_authenticated(make_hub: Callable[..., Hub]) -> None:
    async with serving(make_hub(), ANNA) as server, client_of(server, "nobody") as host:
        assert (await greeted(host, host="evil.example"))[0] == 403
        assert (await greeted(host))[0] == 401
        async with host.get("/mcp", headers={"host": "evil.example"}) as reply:
            assert (reply.status, reply.headers["connection"]) == (403, "close"), "its body is not read"
        async with host.delete("/mcp", headers={"origin": "http://evil.example"}) as reply:
            assert reply.status == 403


TEAM = """
name = "office"

[serve]
console_hosts = ["office.example"]

[a2a]
url = "https://a2a.example:8443"

[clients.desk]
token = "$DESK_TOKEN"
users = ["ada"]
agents = ["*"]
"""


async def test_the_names_that_a_team_is_served_under_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "a-token-of-the-desk-that-is-long"
    monkeypatch.setenv("DESK_TOKEN", token)
    (tmp_path / "remit.toml").write_text(TEAM)
    team = load_team(tmp_path / "remit.toml")
    async with serving_team(team, port=0) as served, served.server as server, client_of(server, token) as host:
        assert (await greeted(host, host="office.example", origin="https://office.example"))[0] == 200
        assert (await greeted(host, host="a2a.example:8443"))[0] == 200
        status, why = await greeted(host, host="other.example")
    assert status == 403
    assert "`console_hosts` of `[serve]`" in why["suggestion"]


async def test_a_program_names_further_hosts(make_hub: Callable[..., Hub]) -> None:
    token = "t" * 32
    async with (
        make_hub() as hub,
        serve(hub, clients={"desk": token}, users={"desk": ["ada"]}, hosts=["office.example"]) as address,
        ClientSession(address, headers={"authorization": f"Bearer {token}"}) as host,
    ):
        assert (await greeted(host, host="office.example"))[0] == 200
        status, why = await greeted(host, host="other.example")
    assert status == 403
    assert "`hosts` of `serve`" in why["suggestion"]
