"""What a client is told that sent the wrong thing: what is wrong in one sentence, and what to do in another."""

import pytest

from remit import Brief, Hub
from serving import client_of, serving


def echo(hub: Hub) -> None:
    @hub.agent("echo")
    async def say(brief: Brief) -> str:
        return brief.text

    assert say


@pytest.mark.parametrize(
    ("headers", "message", "suggestion"),
    [
        (
            {"content-type": "text/plain"},
            "content type text/plain is not supported",
            "Send plain JSON, with the header `Content-Type: application/json`.",
        ),
        (
            {"content-type": "application/json", "content-encoding": "br"},
            "compressed bodies are not supported",
            "Send the body without a Content-Encoding.",
        ),
    ],
)
async def test_a_body_that_cannot_be_read_is_told_once(
    hub: Hub, headers: dict[str, str], message: str, suggestion: str
) -> None:
    echo(hub)
    async with (
        serving(hub) as server,
        client_of(server) as session,
        session.post("/v1/delegations", data=b"{}", headers=headers) as reply,
    ):
        why = (await reply.json())["fault"]
    assert (reply.status, why["message"], why["suggestion"]) == (415, message, suggestion)


async def test_an_unknown_dialect_leads_to_those_there_are_and_not_to_runs(hub: Hub) -> None:
    echo(hub)
    async with (
        serving(hub) as server,
        client_of(server) as session,
        session.post("/dialects/klingon", json={}) as reply,
    ):
        why = (await reply.json())["fault"]
    assert (why["code"], why["message"]) == ("NOT_FOUND", "unknown dialect `klingon`")
    assert why["suggestion"] == "Use one of employee, librarian, contract, subagent."
