"""The contract to the letter, at a server: ids of refusals, correlation, and versions."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from click.testing import CliRunner

from remit import Brief, Capability, Hub
from remit_cli.main import main
from serving import client_of, got, posted, serving

REQUEST: dict[str, Any] = {
    "source_agent": "CST",
    "target_agent": "ANL",
    "capability_code": "ANL_NPV",
    "request_id": "sess-789-20250118-143022",
    "inputs_json": {"discount_rate": 0.12},
    "context": {"user_id": "anna"},
}


@pytest.fixture
def platform(tmp_path: Path) -> Hub:
    hub = Hub(store=str(tmp_path / "remit.db"))
    schema = {"type": "object", "required": ["discount_rate"]}

    @hub.agent(
        "ANL",
        version="2.7",
        capabilities=[Capability(code="ANL_NPV", version="1.3", input_schema=schema)],
        may_call=["DOC"],
    )
    async def analyst(brief: Brief) -> Any:
        reply = await brief.delegate("DOC", objective="Write it down")
        return {"mine": brief.request.correlation, "below": reply.result}

    @hub.agent("DOC")
    async def scribe(brief: Brief) -> Any:
        return brief.request.correlation

    assert analyst
    assert scribe
    return hub


async def asked(session: ClientSession, body: Any) -> tuple[int, Any]:
    async with session.post("/dialects/contract", json=body) as reply:
        return reply.status, await reply.json()


async def test_a_malformed_request_is_answered_under_its_id(platform: Hub) -> None:
    """K2: echo back the request_id."""
    async with serving(platform) as server, client_of(server, "north") as north:
        status, body = await asked(north, REQUEST | {"surprise": 1})
    assert (status, body["status"], body["request_id"]) == (400, "ERROR", REQUEST["request_id"])


@pytest.mark.parametrize(
    "change",
    [
        {"inputs_json": {}},
        {"capability_code": "ANL_OTHER"},
        {"context": {"user_id": "anna", "remit": {"version": "1.0", "depth": 99}}},
    ],
)
async def test_a_refusal_carries_the_version_of_the_agent(platform: Hub, change: Any) -> None:
    """K2: `source_version`, as in an answer."""
    async with serving(platform) as server, client_of(server, "north") as north:
        _, body = await asked(north, REQUEST | change)
    assert (body["status"], body["metadata"]["source_version"]) == ("ERROR", "2.7"), body


async def test_a_correlation_id_is_generated_where_there_is_none_and_all_below_has_it(platform: Hub) -> None:
    """K1."""
    async with serving(platform) as server, client_of(server, "north") as north:
        _, named = await asked(north, REQUEST | {"correlation_id": "order-17"})
        _, unnamed = await asked(north, REQUEST | {"request_id": "2"})
    assert named["result_json"] == {"mine": "order-17", "below": "order-17"}
    made = unnamed["result_json"]["mine"]
    assert made
    assert unnamed["result_json"]["below"] == made


async def test_runs_are_found_by_their_correlation_id(platform: Hub, tmp_path: Path) -> None:
    """K1: for debugging and audit, over HTTP and on the command line."""
    async with serving(platform) as server, client_of(server, "north") as north, client_of(server) as web:
        for number in ("1", "2"):
            await asked(north, REQUEST | {"request_id": number, "correlation_id": "order-17"})
        _, other = await posted(web, {"target": "DOC", "user": "anna", "objective": "x"})
        _, found = await got(north, "/v1/runs?correlation=order-17")
        _, alone = await got(web, f"/v1/runs?correlation={other['result']}")
        _, hidden = await got(north, f"/v1/runs?correlation={other['run']}")
        status, _ = await got(north, "/v1/runs?corelation=x")
    assert [each["correlation"] for each in found["runs"]] == ["order-17", "order-17"]
    assert [each["run"] for each in alone["runs"]] == [other["run"]] == [other["result"]]
    assert (hidden["runs"], status) == ([], 400)
    listed = ["runs", "list", "--store", str(tmp_path / "remit.db"), "--json", "--correlation"]
    told = CliRunner().invoke(main, [*listed, "order-17"])
    assert told.stdout.count('"correlation":') == told.stdout.count("order-17") == 2, told.output
    assert CliRunner().invoke(main, [*listed, "nothing"]).stdout.count('"run":') == 0
