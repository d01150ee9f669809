"""Files over A2A, both ways: parts of a message, artifacts of a task, and references that nobody fetches."""

import base64
from pathlib import Path
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict

from a2a_sdk_server import sdk_agent
from a2a_serving import BINDINGS, Caller, Wrong, client_of, message, speaking
from remit import Answer, Artifact, Brief, File, Hub
from remit_server import connect_a2a
from remit_testing import MemoryStore

both = pytest.mark.parametrize("binding", BINDINGS)

PNG = b"\x89PNG\r\n\x00\xff"
PACKED = base64.b64encode(PNG).decode()
PICTURE = File(name="receipt.png", media_type="image/png", data=PNG)
LINK = File(name="scan.pdf", media_type="application/pdf", url="https://example.org/scan.pdf")
NOTES = File(name="notes.md", media_type="text/markdown", data=b"# Notes")


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(store=tmp_path / "hub.db", durability="process")


def keeper(hub: Hub) -> list[Any]:
    """Add an agent that returns the files that it is given."""
    seen: list[Any] = []

    @hub.agent("keeper")
    async def keep(brief: Brief) -> Answer:
        seen.append((brief.request.objective, brief.request.input, brief.files))
        return Answer("kept", files=brief.files)

    assert keep
    return seen


@both
async def test_raw_content_and_urls_of_a_client_are_files_and_come_back_as_artifacts(hub: Hub, binding: str) -> None:
    """14.1: an address of a client is never followed; it is passed on."""
    seen = keeper(hub)
    parts = [
        {"text": "Keep these"},
        {"raw": PACKED, "mediaType": "image/png", "filename": "receipt.png"},
        {"url": "https://example.org/scan.pdf", "mediaType": "application/pdf", "filename": "scan.pdf"},
        {"url": "http://169.254.169.254/latest/meta-data"},
        {"raw": "aGk"},
        {"raw": "aGk=", "filename": "../../etc/pass\u0007wd", "mediaType": "Image/PNG; x=1"},
    ]
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "keeper", binding)
        found = (await ask("SendMessage", message=message("") | {"parts": parts}))["task"]
        again = await ask("GetTask", id=found["id"])
    named = File(name="passwd", media_type="Image/PNG", data=b"hi")
    address = File(name="file-3", url="http://169.254.169.254/latest/meta-data")
    assert seen == [("Keep these", None, (PICTURE, LINK, address, File(name="file-4", data=b"hi"), named))]
    result, *files = found["artifacts"]
    assert result["parts"][0]["text"] == "kept"
    assert [(each["name"], each["parts"]) for each in files[:2]] == [
        ("receipt.png", [{"raw": PACKED, "mediaType": "image/png", "filename": "receipt.png"}]),
        ("scan.pdf", [{"url": LINK.url, "mediaType": "application/pdf", "filename": "scan.pdf"}]),
    ]
    assert len({each["artifactId"] for each in found["artifacts"]}) == 6
    assert again["artifacts"] == found["artifacts"]
    assert again["history"][0]["parts"][1] == parts[1]
    ParseDict(found, pb.Task())


@both
@pytest.mark.parametrize(
    ("parts", "field"),
    [
        ([{"raw": "?", "mediaType": "image/png"}], "message.parts[0].raw"),
        ([{"url": "https://example.org/a b"}], "message.parts[0].url"),
        ([{"url": ""}], "message.parts[0].url"),
        ([{"raw": PACKED}] * 17, "message.parts"),
    ],
    ids=["no base64", "no url", "empty url", "too many"],
)
async def test_a_file_that_cannot_be_taken_is_declined_by_name(
    hub: Hub, binding: str, parts: list[Any], field: str
) -> None:
    seen = keeper(hub)
    async with speaking(hub) as server, client_of(server) as session:
        with pytest.raises(Wrong) as caught:
            await Caller(session, "keeper", binding)("SendMessage", message=message("") | {"parts": parts})
    assert (caught.value.reason, list(caught.value.fields), seen) == ("INVALID_PARAMS", [field], [])


@both
async def test_a_client_gets_no_files_of_types_that_it_does_not_accept(hub: Hub, binding: str) -> None:
    keeper(hub)
    picture = {"raw": PACKED, "mediaType": "image/png"}
    pdf = {"raw": PACKED, "mediaType": "application/pdf"}
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "keeper", binding)

        async def got(*modes: str) -> list[str]:
            said = message("") | {"parts": [{"text": "x"}, picture, pdf]}
            answer = await ask("SendMessage", message=said, configuration={"acceptedOutputModes": list(modes)})
            return [part.get("mediaType") for each in answer["task"]["artifacts"] for part in each["parts"]]

        assert await got() == ["text/plain", "image/png", "application/pdf"]
        assert await got("text/plain", "image/*") == ["text/plain", "image/png"]
        assert await got("text/plain", "application/pdf") == ["text/plain", "application/pdf"]
        assert await got("text/plain") == ["text/plain"]


@both
async def test_an_artifact_that_is_a_file_is_a_raw_part(hub: Hub, binding: str) -> None:
    @hub.agent("old")
    async def old(brief: Brief) -> Answer:
        whole = {"raw": PACKED, "mediaType": "image/png", "filename": "a.png"}
        values = [whole, {"raw": 7}, {"raw": "aGk=", "text": "both"}, "a.png"]
        return Answer("old", artifacts=tuple(Artifact(type="file", value=each, label="a") for each in values))

    assert old
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "old", binding)
        _, *files = (await ask("SendMessage", message=message("x")))["task"]["artifacts"]
    assert [each["parts"][0] for each in files] == [
        {"raw": PACKED, "mediaType": "image/png", "filename": "a.png"},
        {"data": {"raw": 7}, "mediaType": "application/json"},
        {"data": {"raw": "aGk=", "text": "both"}, "mediaType": "application/json"},
        {"text": "a.png", "mediaType": "text/plain"},
    ]


async def test_files_travel_from_hub_to_hub_whatever_they_hold() -> None:
    """A text file is not taken for the objective: the extension says which parts are files."""
    there, here = Hub(name="there", store=MemoryStore()), Hub(name="here", store=MemoryStore())
    seen = keeper(there)
    async with speaking(there) as server:
        connect_a2a(here, "far", f"{server.address}/a2a/keeper", token="north")
        async with here:
            files = [PICTURE, LINK, NOTES]
            first = await here.ask("far", "Keep these", user="anna", files=files)
            second = await here.ask("far", "Keep these", user="anna", input="all of them", files=files)
    assert seen == [("Keep these", None, tuple(files)), ("Keep these", "all of them", tuple(files))]
    assert (first.files, second.files) == (tuple(files), tuple(files))


@both
async def test_a_message_of_files_alone_has_no_empty_text_beside_them(hub: Hub, binding: str) -> None:
    seen = keeper(hub)
    parts = [{"raw": PACKED, "mediaType": "image/png", "filename": "receipt.png"}]
    async with speaking(hub) as server, client_of(server) as session:
        found = (await Caller(session, "keeper", binding)("SendMessage", message=message("") | {"parts": parts}))[
            "task"
        ]
    assert seen == [("", None, (PICTURE,))]
    assert [each["parts"] for each in found["history"]] == [parts]


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
async def test_a_peer_gets_files_without_an_empty_text(binding: str) -> None:
    hub = Hub(name="near", store=MemoryStore())
    async with sdk_agent(binding) as (url, executor):
        connect_a2a(hub, "sdk", url)
        async with hub:
            await hub.ask("sdk", user="anna", files=[PICTURE])
    assert [part.filename for part in executor.messages[0].parts] == ["receipt.png"]
