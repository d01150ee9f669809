"""`remit dev`: a team in the browser, with everything on this machine."""

from pathlib import Path
from typing import Any

import pytest

from command_line import make_team
from dev_command import dev
from remit_server.console.pages import is_built

pytestmark = pytest.mark.skipif(not is_built(), reason="NOT TESTED: remit dev, since the console is not built here")


def test_without_a_team_an_example_is_at_work_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    with dev(tmp_path, "example") as shown:
        assert shown.said["link"].startswith(f"{shown.said['address']}/v1/console/enter?code=")
        assert shown.get("/v1/console")["views"] == ["operator", "chat"]

        def is_whole(listing: Any) -> bool:
            kinds = {(each["user"], each.get("status", each["state"])) for each in listing["runs"]}
            return {("ada", "success"), ("ada", "partial"), ("ada", "running"), ("ben", "failed")} <= kinds

        shown.until("/v1/runs", is_whole)
        # The prices and the rules are those of the team file.
        spend = shown.get("/v1/spend")
        assert (spend["currency"], spend["totals"]["cost"] > 0) == ("EUR", True)
        assert shown.get("/v1/console")["currency"] == "EUR"
        assert "TAX_FILE" in shown.get("/v1/team")["file"]["text"]
        (chat,) = shown.until("/v1/shared/runs", lambda listing: listing["runs"] and listing["runs"][0]["waits"])[
            "runs"
        ]
        assert chat["profile"] == "reviewer"
        (device,) = shown.get("/v1/shared/devices")["devices"]
        assert (device["name"], [each["name"] for each in device["offers"]]) == ("bob-desktop", ["api-expert"])
    with dev(tmp_path, "example") as shown:
        runs = shown.until("/v1/runs", lambda listing: listing["runs"][0]["state"] == "running")["runs"]
        assert len({each["run"] for each in runs}) == len(runs)
        assert [each["id"] for each in shown.get("/v1/shared/runs")["runs"]] == [chat["id"]]
    assert {each.name for each in tmp_path.iterdir()} == {".remit"}


def test_the_team_of_the_folder_is_shown_and_its_store_is_not_touched(tmp_path: Path) -> None:
    make_team(tmp_path)
    with dev(tmp_path, "own", "--folder", "kept") as shown:
        assert (shown.said["team"], shown.said["folder"]) == ("office", str(tmp_path / "kept"))
        assert "assistant" in {each["name"] for each in shown.get("/v1/agents")["agents"]}
        assert shown.get("/v1/runs")["runs"] == []
        assert [each["id"] for each in shown.get("/v1/shared/profiles")["profiles"]] == ["reviewer"]
    assert not (tmp_path / ".remit").exists()
