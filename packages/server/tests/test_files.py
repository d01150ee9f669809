"""Files over HTTP: sent with a delegation, in its response, in its stream, and between hubs."""

import base64
from typing import Any

from remit import Answer, Brief, File, Hub
from remit_server import connect
from remit_testing import MemoryStore
from serving import client_of, parsed, posted, serving

MAIL = "joe@example.com"
PNG = b"\x89PNG\r\n\x00\xff"
PICTURE = {"name": "a.png", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
LINK = {"name": "b.pdf", "media_type": "application/pdf", "url": "http://169.254.169.254/latest/meta-data"}
LETTER = {"name": "c.txt", "media_type": "text/plain", "data": base64.b64encode(f"To {MAIL}".encode()).decode()}


def keeper(hub: Hub) -> list[tuple[File, ...]]:
    """Add an agent that returns the files that it is given."""
    seen: list[tuple[File, ...]] = []

    @hub.agent("keeper")
    async def keep(brief: Brief) -> Answer:
        seen.append(brief.files)
        return Answer("kept", files=brief.files)

    assert keep
    return seen


def asked(*files: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"target": "keeper", "user": "anna", "objective": "Keep these", "files": list(files), **more}


async def test_files_are_sent_and_come_back(hub: Hub) -> None:
    seen = keeper(hub)
    async with serving(hub) as server, client_of(server) as session:
        status, body = await posted(session, asked(PICTURE, LINK, LETTER))
        async with session.get(f"/v1/delegations/{body['run']}") as reply:
            again = await reply.json()
    assert (status, body["result"], body["files"]) == (200, "kept", [PICTURE, LINK, LETTER])
    assert again["files"] == body["files"]
    ((picture, link, letter),) = seen
    assert picture == File(name="a.png", media_type="image/png", data=PNG)
    assert link.url == LINK["url"], "a reference, which nobody fetches"
    assert MAIL not in (letter.text or MAIL)


async def test_a_response_without_files_does_not_name_them(hub: Hub) -> None:
    keeper(hub)
    async with serving(hub) as server, client_of(server) as session:
        _, body = await posted(session, asked())
    assert "files" not in body


async def test_a_stream_ends_with_the_files(hub: Hub) -> None:
    keeper(hub)
    async with serving(hub) as server, client_of(server) as session:
        headers = {"accept": "text/event-stream"}
        async with session.post("/v1/delegations", json=asked(PICTURE, LETTER), headers=headers) as reply:
            heard = parsed(await reply.text())
    assert heard[-1].record["body"]["files"] == [PICTURE, LETTER]


async def test_every_wrong_file_is_named(hub: Hub) -> None:
    seen = keeper(hub)
    wrong = [{**PICTURE, "name": "../a"}, PICTURE, {**PICTURE, "data": "?"}, {**PICTURE, "url": "https://x"}]
    async with serving(hub) as server, client_of(server) as session:
        status, body = await posted(session, asked(*wrong))
        many, why = await posted(session, asked(*[PICTURE] * 17))
    paths = [each["path"] for each in body["fault"]["problems"]]
    assert (status, body["fault"]["code"]) == (400, "MALFORMED_ENVELOPE")
    assert paths == ["$.files[0].name", "$.files[2].data", "$.files[3]"]
    assert (many, [each["path"] for each in why["fault"]["problems"]], seen) == (400, ["$.files"], [])


async def test_files_travel_from_hub_to_hub_up_to_the_limit() -> None:
    """The files of an answer do not count as its text, which has at most 1 MiB."""
    there, here = Hub(name="there", store=MemoryStore()), Hub(name="here", store=MemoryStore())
    seen = keeper(there)
    large = File(name="large.bin", data=bytes(900_000))
    async with serving(there) as server:
        connect(here, "keeper", server.address, token="north")

        @here.agent("boss", may_call=["keeper"])
        async def boss(brief: Brief) -> Answer:
            reply = await brief.delegate("keeper", objective="Keep", files=brief.files)
            return Answer(reply.unwrap(), files=reply.files)

        assert boss
        async with here:
            response = await here.ask("boss", "Keep", user="anna", files=[large, large])
    assert response.files == (large, large)
    assert seen == [(large, large)]
