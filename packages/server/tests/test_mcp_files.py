"""Files of an answer over MCP: content blocks of the tool's result, by their media type."""

import base64

import mcp_types as types
import pytest

from hosts import ERAS, data, host_at, text
from remit import Answer, Brief, File, Hub
from remit.policy.reception import Sender
from serving import serving

ANNA = Sender(name="anna-desk", users=frozenset({"anna"}))
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
