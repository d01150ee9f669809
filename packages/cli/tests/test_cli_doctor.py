"""`remit doctor`: how this machine and this folder are, and what to do."""

import asyncio
import json
import sqlite3
import time
from datetime import UTC, date, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from command_line import document, make_team, remit
from remit import Brief, Hub
from remit.installed import install_command
from remit.stores.schema import APPLICATION_ID
from remit.stores.sqlite import SqliteStore
from remit_cli import doctor_checks
from remit_cli.config.rules import Rule, guard_of
from remit_cli.doctor_checks import NETWORK
from remit_server import serve
from remit_server.documents.team import Check
from remit_testing import MemoryStore
from remit_testing.samples import a_request

ASK = Rule(then="ask", say="May it?")


def checks(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what was found, by what it is about."""
    return {each["about"]: each for each in document("doctor", folder=folder)["checks"]}


async def run_once(folder: Path) -> None:
    done = await asyncio.to_thread(remit, "run", "assistant", "Look at this", folder=folder)
    assert done.returncode == 0, done.stderr


async def test_a_folder_in_order_has_no_problem(tmp_path: Path) -> None:
    make_team(tmp_path)
    assert remit("doctor", folder=tmp_path).returncode == 0, "before the first run"
    await run_once(tmp_path)
    done = remit("doctor", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("0 problems, ")
    by_name = checks(tmp_path)
    assert by_name.pop("console")["state"] in ("ok", "warning"), "in a checkout, it may not be built"
    assert {each["state"] for each in by_name.values()} == {"ok"}
    assert {"Python", "remit", "packages", "team file", "disk", "durability", "store", "locks", "key"} <= by_name.keys()
    assert {"clock", "audit", "questions", "runs", "terminal"} <= by_name.keys()


def test_what_needs_doing_comes_first_and_the_rest_is_one_line_for_each_group(tmp_path: Path) -> None:
    folded = remit("doctor", folder=tmp_path).stdout.splitlines()
    first, todo, *others = folded[folded.index(next(line for line in folded if "team file" in line)) :]
    assert first.split() == ["warning", "team", "file", "not", "found", "here", "or", "in", "a", "parent", "folder"]
    assert todo.strip() == "→ Create one with `remit init`."
    fine = [line.split()[1] for line in others if line.startswith("ok ")]
    assert fine == ["program", "store"]
    assert others[-1].endswith("Every check: remit doctor --all")
    whole = remit("doctor", "--all", folder=tmp_path).stdout
    assert "\nok       Python " in whole
    assert "\nok       extra llm " in whole


PEER = """
name = "office"
[peers.far]
url = "{}"
token = "$FAR_TOKEN"
"""
TOKEN = "a-token-that-is-long-enough"


async def test_a_hub_that_a_team_asks_is_looked_for(tmp_path: Path) -> None:
    async def looked_for(url: str) -> dict[str, Any]:
        (tmp_path / "remit.toml").write_text(PEER.format(url))
        done = await asyncio.to_thread(remit, "doctor", "--json", folder=tmp_path, FAR_TOKEN=TOKEN)
        output = {each["about"]: each for each in json.loads(done.stdout)["checks"]}
        assert output["peers.far.token"]["state"] == "ok"
        return output["peers.far"]

    async with Hub(store=MemoryStore()) as hub, serve(hub, hubs={"office": TOKEN}) as address:
        assert (await looked_for(address))["says"] == f"{address} answers"
        no_hub = await looked_for(f"{address}/elsewhere")
        assert (no_hub["state"], "is not a hub (status 404)" in no_hub["says"]) == ("warning", True)
    gone = await looked_for(address)
    assert (gone["state"], gone["says"]) == ("warning", f"{address}: cannot connect: Connection refused")
    assert "`url` in `[peers.far]`" in gone["todo"]


def test_what_keeps_a_hub_from_starting_is_a_problem(tmp_path: Path) -> None:
    """`remit validate` and `remit doctor` must not say two things."""
    make_team(tmp_path, more='\n[identity]\nkey = "mine.key"\n')
    assert remit("validate", folder=tmp_path).returncode == 3
    assert remit("doctor", folder=tmp_path).returncode == 3
    key = checks(tmp_path)["identity.key"]
    assert (key["state"], "no hub key found" in key["says"]) == ("problem", True)


def test_an_extra_that_is_not_installed_is_no_problem_and_says_how_to_get_it(tmp_path: Path) -> None:
    extra = checks(tmp_path)["extra presidio"]
    assert extra["state"] == "ok"
    assert "not installed" not in extra["says"] or extra["todo"] == install_command("presidio")


def test_without_a_team_file_there_is_a_warning_and_what_to_type(tmp_path: Path) -> None:
    team = checks(tmp_path)["team file"]
    assert (team["state"], "remit init" in team["todo"]) == ("warning", True)
    assert remit("doctor", folder=tmp_path).returncode == 0


def test_a_wrong_team_file_is_a_problem(tmp_path: Path) -> None:
    make_team(tmp_path, more="\n[limts]\n")
    assert remit("doctor", folder=tmp_path).returncode == 3
    team = checks(tmp_path)["team file"]
    assert (team["state"], "remit validate" in team["todo"]) == ("problem", True)


async def test_a_key_that_others_can_read_is_a_problem(tmp_path: Path) -> None:
    make_team(tmp_path)
    await run_once(tmp_path)
    key = tmp_path / ".remit" / "hub.db.key"
    key.chmod(0o644)
    check = checks(tmp_path)["key"]
    assert (check["state"], check["todo"]) == ("problem", "chmod 600 .remit/hub.db.key")
    key.chmod(0o600)
    key.write_text("nonsense", encoding="ascii")
    assert checks(tmp_path)["key"]["state"] == "problem"
    key.unlink()
    assert checks(tmp_path)["key"]["state"] == "problem"
    assert not key.exists(), "looking does not make one"


async def test_a_secret_that_is_not_set_is_a_problem(tmp_path: Path) -> None:
    make_team(tmp_path, more='\n[redaction]\nkey = "$OFFICE_KEY"\n')
    assert checks(tmp_path)["redaction key"]["state"] == "problem"


async def test_a_record_that_was_tampered_with_or_comes_from_the_future_shows(tmp_path: Path) -> None:
    make_team(tmp_path)
    await run_once(tmp_path)
    database = sqlite3.connect(tmp_path / ".remit" / "hub.db")
    database.execute("UPDATE record SET at_ms = ?", ((time.time_ns() // 1_000_000) + 10_800_000,))
    database.commit()
    database.close()
    by_name = checks(tmp_path)
    assert by_name["audit"]["state"] == "problem"
    assert (by_name["clock"]["state"], "3 h ahead" in by_name["clock"]["says"]) == ("warning", True)


async def test_a_store_that_is_none_is_a_problem(tmp_path: Path) -> None:
    make_team(tmp_path)
    (tmp_path / ".remit").mkdir()
    (tmp_path / ".remit" / "hub.db").write_text("this is no database, and longer than a header " * 5, encoding="ascii")
    check = checks(tmp_path)["store"]
    assert check["state"] == "problem"
    assert check["todo"]


async def test_what_waits_for_a_person_is_a_warning(tmp_path: Path) -> None:
    hub = Hub(store=tmp_path / ".remit" / "hub.db", approver="inbox", guards=[guard_of([ASK])])

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        return "done"

    async with hub:
        task = asyncio.create_task(hub.ask("clerk", "File it", user="ann"))
        while not (waiting := await hub.pending()):
            assert not task.done()
        by_name = await asyncio.to_thread(checks, tmp_path)
        assert (by_name["questions"]["state"], by_name["questions"]["todo"]) == (
            "warning",
            "`remit pending list` shows them.",
        )
        await hub.decide(waiting[0].id, agreed=True, by="ann")
        await task


async def test_a_run_whose_hub_went_silent_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / ".remit" / "hub.db"
    # A worker that claimed a request at the beginning of 1970, and was not heard of since.
    store = SqliteStore(path, wall_ms=lambda: 0)
    await store.open()
    await store.submit(a_request("r-1"), b"digest", worker="gone", lease_ms=1)
    await store.close()
    check = checks(tmp_path)["runs"]
    assert check["state"] == "warning"
    assert check["says"] == "1 run in state `silent`: the hub stopped during the run"


async def test_of_a_large_record_the_newest_rows_are_checked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_team(folder)
    await run_once(folder)
    monkeypatch.setattr(doctor_checks, "QUICK_ROWS", 3)
    monkeypatch.chdir(folder)

    def audit() -> Check:
        return next(each for each in doctor_checks.examine(Path(".remit/hub.db"), None, ()) if each.about == "audit")

    assert (audit().state, audit().says) == ("ok", "the newest 3 of 6 rows are intact")
    database = sqlite3.connect(folder / ".remit" / "hub.db")
    database.execute("UPDATE record SET body = replace(body, 'success', 'failure') WHERE seq = 5")
    database.commit()
    database.close()
    assert (audit().state, audit().says) == ("problem", "row 5 was changed")


def test_a_store_of_an_older_version_is_brought_up_to_date_by_the_next_run(tmp_path: Path) -> None:
    make_team(tmp_path)
    (tmp_path / ".remit").mkdir()
    database = sqlite3.connect(tmp_path / ".remit" / "hub.db")
    database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    database.close()
    check = checks(tmp_path)["store"]
    assert (check["state"], "has schema version 0 of an older remit" in check["says"]) == ("warning", True)
    assert remit("run", "counter", "one", folder=tmp_path).returncode == 0
    assert checks(tmp_path)["store"]["state"] == "ok"


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph"])
def test_a_network_is_known_by_its_file_system(kind: str) -> None:
    assert NETWORK.fullmatch(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "apfs"])
def test_a_disk_of_this_machine_is_no_network(kind: str) -> None:
    assert not NETWORK.fullmatch(kind)


PRICED = """
[prices.llama]
input = 0
output = 0

[agents.local]
model = "ollama:llama"

[agents.writer]
model = "openai:gpt-5-mini"

[agents.new]
model = "acme:unheard-of"
"""


def priced_from(folder: Path, team: str) -> dict[str, list[str]]:
    """Return what doctor says of prices, by state."""
    (folder / "remit.toml").write_text(team, encoding="utf-8")
    shown: dict[str, list[str]] = {}
    for each in document("doctor", folder=folder)["checks"]:
        if each["about"] == "prices":
            shown.setdefault(each["state"], []).append(each["says"])
    return shown


def test_the_source_and_the_day_of_each_price_are_shown(tmp_path: Path) -> None:
    package = metadata.version("genai-prices")
    own, packaged, unknown = priced_from(tmp_path, PRICED)["ok"]
    assert own == "ollama:llama: from your team file"
    day = packaged.removeprefix(f"openai:gpt-5-mini: from genai-prices {package}, whose newest price is of ")
    assert date(2026, 1, 1) < date.fromisoformat(day) <= datetime.now(UTC).date()
    assert unknown == "acme:unheard-of: not known; does not count as free"


def test_a_model_without_a_price_is_a_warning_where_money_is_limited(tmp_path: Path) -> None:
    shown = priced_from(tmp_path, f'[budgets]\nrun_cost = "5 USD"\n{PRICED}')
    assert shown["warning"] == ["acme:unheard-of: not known, and calls are refused where money is limited"]


CLEAR = """
[tools.compare]
run = "crm:compare"
clear = true

[tools.other]
run = "crm:compare"

[mcp.crm]
url = "https://crm.example/mcp"
allow = ["search", "update"]
clear = ["search"]

[agents.registrar]
model = "openai:gpt-5-mini"
clear = true
"""


def test_whatever_lets_models_read_values_in_clear_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "crm.py").write_text("def compare(one: str) -> str:\n    return one\n", encoding="utf-8")
    (tmp_path / "remit.toml").write_text(CLEAR, encoding="utf-8")
    warnings = {about: each["says"] for about, each in checks(tmp_path).items() if "unredacted" in each["says"]}
    assert warnings == {
        "tools.compare": "models get its results unredacted",
        "mcp.crm": "models get the results of search unredacted",
        "agents.registrar": "its model gets results unredacted",
    }
