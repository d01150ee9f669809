"""`remit runs`: what a store tells of runs, with no agent imported."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from click.testing import CliRunner, Result

from remit import Answer, Brief, Call, Hub, Limits, Usage
from remit.protocol.records import read_body
from remit_cli.main import main
from remit_cli.show.tree_lines import cost_text
from remit_server.documents.common import Failure
from remit_server.documents.runs import Cancellation, Records, RunAnswer, RunDetails, Runs, RunTree


class Recorded(NamedTuple):
    """A store, and the runs in it, the oldest first."""

    store: Path
    runs: list[str]


def crew(store: Path) -> Hub:
    hub = Hub(store=store, durability="process")

    @hub.agent("tag", tools=["look"])
    async def tag(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        await brief.use("look")
        brief.spend(prompt=40)
        return f"tagged {brief.text}"

    @hub.agent("lead", may_call=["tag", "lead"])
    async def lead(brief: Brief) -> Answer:  # pyright: ignore[reportUnusedFunction]
        if brief.text == "fail":
            raise ValueError("no idea\x1b[31m")
        replies = await brief.fan_out([Call(target="tag", objective="one"), Call(target="tag", objective="two")])
        await brief.delegate("lead", objective="again")
        return Answer([reply.result for reply in replies], confidence=0.9, unfinished=("three",))

    @hub.tool(safe_to_repeat=True)
    def look() -> int:  # pyright: ignore[reportUnusedFunction]
        return 1

    return hub


@pytest.fixture
async def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.chdir(tmp_path)
    store = tmp_path / ".remit" / "hub.db"
    async with crew(store) as hub:
        responses = [
            await hub.ask("lead", "Sort", user="ana", input={"month": 3}),
            await hub.ask("lead", "fail", user="bo"),
            await hub.ask("tag", "it", user="ana"),
        ]
        await hub.ask("nobody", "x", user="ana", request_id="refused")
    return Recorded(store, [response.run for response in responses])


def runs(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["runs", *arguments])


def decoded(done: Result, kind: type[Any]) -> Any:
    assert done.exit_code == 0, done.output
    return msgspec.json.decode(done.stdout, type=kind)


async def test_what_a_run_cost_stands_beside_its_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    limits = Limits(root_cost=500_000)
    store = tmp_path / ".remit" / "hub.db"
    async with Hub(store=store, durability="process", limits=limits, prices=lambda agent, model, usage: 420_000) as hub:

        @hub.agent("tag")
        def tag(brief: Brief) -> int:  # pyright: ignore[reportUnusedFunction]
            return brief.spend(prompt=40)

        run = (await hub.ask("tag", "it", user="ana")).run
    output = await asyncio.to_thread(lambda: decoded(runs("show", run, "--json"), RunDetails))
    assert (output.usage.cost, output.usage.unpriced) == (420_000, 0)
    shown = await asyncio.to_thread(lambda: [runs(each, run).stdout for each in ("show", "tree")])
    assert re.search(r"cost +0\.42 of 0\.50\n", shown[0])
    assert "40 (0.42)" in shown[1]


def test_a_cost_says_whether_it_is_all() -> None:
    assert cost_text(Usage(prompt=9)) == ""
    assert cost_text(Usage(prompt=9, cost=420_000, priced=5)) == "0.42+"
    assert cost_text(Usage(prompt=9, priced=9), 500_000) == "0.00 of 0.50"


# ── list ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_newest_runs_come_first(recorded: Recorded) -> None:
    listed = decoded(runs("list", "--json"), Runs)
    assert [each.run for each in listed.runs] == recorded.runs[::-1]
    assert [(each.user, each.agent, each.status, each.code) for each in listed.runs] == [
        ("ana", "tag", "success", None),
        ("bo", "lead", "failed", "DELEGATION_FAILED"),
        ("ana", "lead", "partial", None),
    ]
    lines = runs("list").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [run[:16] for run in recorded.runs[::-1]]


@pytest.mark.parametrize(
    ("arguments", "expected"), [(["--user", "bo"], [1]), (["--state", "failed"], [1]), (["--limit", "2"], [2, 1])]
)
def test_a_list_can_be_narrowed(recorded: Recorded, arguments: list[str], expected: list[int]) -> None:
    lines = runs("list", "--jsonl", *arguments).stdout.splitlines()
    assert [json.loads(line)["run"] for line in lines] == [recorded.runs[place] for place in expected]


def test_an_empty_list_says_so_on_stderr(recorded: Recorded) -> None:
    done = runs("list", "--user", "nobody")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "→" in done.stderr


# ── show, tree ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_is_shown_with_all_that_is_known_of_it(recorded: Recorded) -> None:
    output = decoded(runs("show", recorded.runs[0], "--json"), RunDetails)
    assert (output.run, output.user, output.agent) == (recorded.runs[0], "ana", "lead")
    assert (output.objective, output.input) == ("Sort", {"month": 3})
    assert (output.status, output.exit_code, output.state) == ("partial", 0, "finished")
    assert (output.result, output.unfinished, output.confidence) == (["tagged one", "tagged two"], ("three",), 0.9)
    assert (output.usage.total, output.store) == (80, ".remit/hub.db")
    assert [(each.agent, each.state) for each in output.delegations] == [
        ("lead", "partial"),
        ("tag", "success"),
        ("tag", "success"),
        ("lead", "refused"),
    ]
    text = runs("show", recorded.runs[0]).stdout
    for phrase in ("task    ", "Sort", '{"month":3}', "not finished", "three", "90%", '["tagged one","tagged two"]'):
        assert phrase in text
    assert "└─ lead  refused" in text
    assert re.search(r"\[lead -> tag\] OK  .*  40 tokens  tools: look\n    task one\n    gave tagged one\n", text)
    assert "[lead -> lead] FAILED (refused)\n    task again\n    why  LOOP_DETECTED: " in text
    called = output.delegations[1]
    assert (called.origin, called.objective, called.tools, called.preview) == ("lead", "one", {"look": 1}, "tagged one")


def test_a_run_that_failed_says_why_and_steers_no_terminal(recorded: Recorded) -> None:
    text = runs("show", recorded.runs[1]).stdout
    assert "DELEGATION_FAILED: lead raised ValueError: no idea" in text
    assert "\x1b" not in text


def test_the_tree_says_who_asked_whom(recorded: Recorded) -> None:
    lines = runs("tree", recorded.runs[0]).stdout.splitlines()
    assert [line.split()[:3] for line in lines[2:]] == [
        ["├─", "tag", "success"],
        ["├─", "tag", "success"],
        ["└─", "lead", "refused"],
    ]
    root = decoded(runs("tree", recorded.runs[0], "--json"), RunTree).root
    assert root.delegation.agent == "lead"
    assert [each.delegation.state for each in root.children] == ["success", "success", "refused"]


# ── which run ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_is_named_by_its_beginning_or_as_the_last(recorded: Recorded) -> None:
    assert decoded(runs("show", "last", "--json"), RunDetails).run == recorded.runs[2]
    assert decoded(runs("show", recorded.runs[1][:20], "--json"), RunDetails).run == recorded.runs[1]


def test_a_name_that_could_be_several_lists_them(recorded: Recorded) -> None:
    # They begin with the time, of which the first digits are the same for years.
    done = runs("show", recorded.runs[0][:4])
    assert done.exit_code == 2
    assert all(run in done.stderr for run in recorded.runs)
    assert "→ Type more characters." in done.stderr


def test_a_name_that_is_none_says_where_to_look(recorded: Recorded) -> None:
    done = runs("show", "zzz", "--json")
    assert done.exit_code == 2
    assert "→ List them with `remit runs list`." in done.stderr
    assert msgspec.json.decode(done.stdout, type=Failure).exit_code == 2


@pytest.mark.parametrize("command", ["show", "tree", "watch", "cancel", "answer"])
async def test_an_empty_name_means_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """What a script left out must not be taken for the only run there is."""
    monkeypatch.chdir(tmp_path)
    async with crew(tmp_path / ".remit" / "hub.db") as hub:
        await hub.ask("tag", "it", user="ana")
    done = await asyncio.to_thread(runs, command, "")
    assert done.exit_code != 0
    assert done.stdout == ""


def test_a_request_that_was_refused_before_it_began_can_be_shown_by_its_id(recorded: Recorded) -> None:
    last = [json.loads(line) for line in runs("export", "--all").stdout.splitlines()][-1]
    output = decoded(runs("show", last["run"], "--json"), RunDetails)
    assert (output.status, output.fault and output.fault.code) == ("refused", "AGENT_NOT_FOUND")
    assert runs("cancel", last["run"]).exit_code == 1


# ── which store ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_store_it_says_what_to_do_and_makes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (
        ["list"],
        ["show", "last"],
        ["tree", "last"],
        ["watch", "last"],
        ["cancel", "x"],
        ["export", "--all"],
    ):
        done = runs(*command)
        assert (done.exit_code, done.stdout) == (7, "")
        assert "→ The first run creates it: remit run AGENT TASK." in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_store_can_be_named_and_a_team_file_names_one(recorded: Recorded, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere.db"
    recorded.store.rename(moved)
    assert len(decoded(runs("list", "--json", "--store", str(moved)), Runs).runs) == 3
    (tmp_path / "remit.toml").write_text(
        '[store]\npath = "elsewhere.db"\n[agents.a]\nrun = "not_imported:a"\n', encoding="utf-8"
    )
    assert len(decoded(runs("list", "--json"), Runs).runs) == 3


# ── watch, cancel, export ─────────────────────────────────────────────────────────────────────────────────────────────


def test_watching_a_run_that_has_ended_gives_its_answer_and_exit_code(recorded: Recorded) -> None:
    done = runs("watch", recorded.runs[0])
    assert (done.exit_code, done.stdout) == (0, '["tagged one","tagged two"]\n')
    assert "ana asks lead: Sort" in done.stderr
    assert runs("watch", recorded.runs[1]).exit_code == 1
    assert decoded(runs("watch", recorded.runs[2], "--json"), RunDetails).result == "tagged it"


async def test_the_answer_of_a_run_comes_back_as_whoever_asked_gets_it(recorded: Recorded) -> None:
    """X12: what every other command shows as a token, and only with the store's key."""
    async with crew(recorded.store) as hub:
        response = await hub.ask("tag", "ada@example.org", user="ana")
    assert response.result == "tagged ada@example.org"
    assert "ada@example.org" not in runs("show", "last", "--json").stdout
    done = await asyncio.to_thread(runs, "answer", "last")
    assert (done.exit_code, done.stdout) == (0, "tagged ada@example.org\n")
    answer = decoded(await asyncio.to_thread(runs, "answer", "last", "--json"), RunAnswer)
    assert (answer.run, answer.result, answer.exit_code) == (response.run, response.result, 0)
    key = recorded.store.with_name("hub.db.key")
    key.unlink()
    done = await asyncio.to_thread(runs, "answer", "last")
    assert (done.exit_code, done.stdout, key.exists()) == (7, "", False)
    assert "Put it back from a backup" in done.stderr


def test_the_answer_of_a_run_that_failed_is_why(recorded: Recorded) -> None:
    done = runs("answer", recorded.runs[1])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "DELEGATION_FAILED: lead raised ValueError: no idea" in done.stderr


async def test_a_run_that_has_not_ended_has_no_answer_yet(recorded: Recorded) -> None:
    hub = crew(recorded.store)
    begun, may_end = asyncio.Event(), asyncio.Event()

    @hub.agent("slow")
    async def slow(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        begun.set()
        await may_end.wait()
        return "at last"

    async with hub, asyncio.TaskGroup() as group:
        asking = group.create_task(hub.ask("slow", user="ana"))
        await begun.wait()
        done = await asyncio.to_thread(runs, "answer", "last")
        assert (done.exit_code, done.stdout) == (6, "")
        assert "has not ended yet" in done.stderr
        waiting = group.create_task(asyncio.to_thread(runs, "answer", "last", "--wait"))
        may_end.set()
        await asking
    assert waiting.result().stdout == "at last\n"


def test_a_run_that_has_ended_cannot_be_cancelled(recorded: Recorded) -> None:
    done = runs("cancel", recorded.runs[0], "--json")
    assert done.exit_code == 1
    assert msgspec.json.decode(done.stdout, type=Cancellation).outcome == "over"
    assert "had already ended: partial" in done.stderr


def test_records_are_exported_as_they_are(recorded: Recorded) -> None:
    lines = [json.loads(line) for line in runs("export", recorded.runs[2]).stdout.splitlines()]
    assert [line["kind"] for line in lines] == ["started", "tool", "result"]
    assert read_body(lines[-1]["kind"], msgspec.json.encode(lines[-1]["body"]))
    everything = decoded(runs("export", "--all", "--format", "json"), Records)
    assert [record.seq for record in everything.records] == list(range(1, len(everything.records) + 1))


def test_an_export_to_a_file_is_whole_and_its_owners_alone(recorded: Recorded, tmp_path: Path) -> None:
    done = runs("export", "--all", "-o", "out.jsonl")
    assert (done.exit_code, done.stdout) == (0, "")
    file = tmp_path / "out.jsonl"
    count = len(file.read_text(encoding="utf-8").splitlines())
    assert f"Wrote {count} records to out.jsonl." in done.stderr
    assert file.read_text(encoding="utf-8") == runs("export", "--all").stdout
    assert file.stat().st_mode & 0o077 == 0
    assert runs("export", "--all", "-o", "no/such/folder.jsonl").exit_code == 2


@pytest.mark.parametrize("arguments", [["export"], ["export", "last", "--all"], ["watch", "last", "--json", "--jsonl"]])
def test_a_command_that_cannot_be_meant_is_explained(recorded: Recorded, arguments: list[str]) -> None:
    done = runs(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")


@pytest.mark.parametrize("command", ["list", "show", "tree", "watch", "cancel", "export"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    assert "Example:" in runs(command, "--help").stdout
