"""No name, however long its parts are, makes a record that cannot be read again."""

from pathlib import Path
from typing import Any

import pytest

from remit import Brief, Code, Hub, RemitError
from remit_testing.memory import MemoryStore
from serving import client_of, got, posted, serving

ASK: dict[str, Any] = {"user": "anna", "target": "desk", "objective": "Go", "origin": "boss"}


def office(path: Path) -> Hub:
    hub = Hub(store=str(path / "remit.db"))

    @hub.agent("desk")
    async def desk(_: Brief) -> str:
        return "done"

    return hub


@pytest.mark.parametrize("field", ["session", "parent_session", "origin"])
async def test_a_peers_name_that_is_too_long_to_be_kept_is_refused_by_its_field(tmp_path: Path, field: str) -> None:
    """X16: here it ends with the peer's name, and a record with a longer one could never be read again."""
    async with (
        serving(office(tmp_path)) as server,
        client_of(server, "north") as north,
        client_of(server, "ops") as ops,
    ):
        status, refused = await posted(north, ASK | {field: "n" * 195})
        assert (status, refused["fault"]["problems"][0]["path"]) == (400, f"$.{field}")
        assert "at most 194 characters" in refused["fault"]["problems"][0]["message"]
        _, done = await posted(north, ASK | {field: "n" * 194})
        assert done["result"] == "done"
        assert (await got(ops, "/v1/runs"))[0] == (await got(ops, "/v1/audit"))[0] == 200


async def test_calls_that_are_named_can_be_nested_as_deep_as_others(tmp_path: Path) -> None:
    hub = Hub(store=str(tmp_path / "remit.db"))
    paths: list[str] = []

    def level(number: int) -> None:
        @hub.agent(f"level{number}", may_call=["*"], resumable=number == 0)
        async def work(brief: Brief) -> str:
            paths.append(brief.request.path)
            if number == 4:
                return "deep"
            names = ["a" * 100, "b" * 100] if number == 0 else ["c" * 100]
            calls = [await brief.delegate(f"level{number + 1}", objective=name, step=name) for name in names]
            return calls[-1].unwrap()

    for number in range(5):
        level(number)
    async with hub:
        response = await hub.ask("level0", "Go", user="anna")
        records = await hub.store.records(run=response.run)
    assert response.unwrap() == "deep"
    assert len(set(paths)) == len(paths) == 9
    assert max(map(len, paths)) <= 200
    assert len(records) == 18


def test_names_of_agent_and_hub_that_are_too_long_together_are_refused() -> None:
    hub = Hub(name="h" * 100, store=MemoryStore())

    async def work(_: Brief) -> str:
        return "done"

    with pytest.raises(RemitError) as refused:
        hub.add("a" * 100, work)
    assert refused.value.fault.code is Code.TEAM_INVALID
    assert "at most 200 characters" in refused.value.fault.message
    hub.add("a" * 99, work)
