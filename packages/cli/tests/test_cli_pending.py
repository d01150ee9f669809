"""`remit pending`: a person answers in one process what a hub asks in another."""

import asyncio
import getpass
import json
import re
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from command_line import REMIT, document, environment, remit
from commands import start_program
from remit import Brief, Hub, Response
from remit.stores.checkpoints import key_path
from remit_cli.config.rules import Rule, guard_of

RULE = Rule(then="ask", to="cashier", say="May the shop pay?", edit=frozenset({"objective", "input"}))


def make_hub(folder: Path) -> Hub:
    """Return a hub on the store that is the default in *folder*, in which payments need a person."""
    hub = Hub(store=folder / ".remit" / "hub.db", approver="inbox", guards=[guard_of([RULE])])

    @hub.agent("cashier")
    async def cashier(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        return f"paid {brief.objective} {brief.request.input or ''}".strip()

    @hub.agent("shop", may_call=["cashier"])
    async def shop(brief: Brief) -> object:  # pyright: ignore[reportUnusedFunction]
        reply = await brief.delegate("cashier", objective=brief.objective)
        return reply.result if reply.ok else reply.fault and reply.fault.message

    return hub


@asynccontextmanager
async def watching(folder: Path) -> AsyncGenerator[asyncio.StreamReader]:
    """Watch for questions in another process; what is yielded has a line for each."""
    process = await start_program([REMIT, "pending", "list", "--watch", "--jsonl"], cwd=folder, env=environment())
    try:
        yield process.stdout
    finally:
        process.kill()
        await process.wait()


async def in_another_process(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(remit, *arguments, folder=folder)


async def ask_shop(hub: Hub, text: str, folder: Path) -> tuple["asyncio.Task[Response]", dict[str, Any]]:
    """Ask the shop in a task, and return it with the question once another process sees that."""
    async with watching(folder) as lines:
        task = asyncio.create_task(hub.ask("shop", text, user="ann"))
        return task, json.loads(await lines.readline())


async def test_what_is_approved_in_another_process_goes_on(tmp_path: Path) -> None:
    async with make_hub(tmp_path) as hub:
        task, seen = await ask_shop(hub, "5 euros", tmp_path)
        listed = await in_another_process("pending", "list", folder=tmp_path)
        assert "shop → cashier" in listed.stdout
        assert "May the shop pay?" in listed.stdout
        name = listed.stdout.splitlines()[1].split()[0]
        approved = await in_another_process("pending", "approve", name, "--reason", "fine", folder=tmp_path)
        assert approved.returncode == 0, approved.stderr
        assert f"Approved by {getpass.getuser()}: May the shop pay?" in approved.stdout
        assert (
            f"Run {seen['run']} continues when its hub, or the next hub on this store, reads the answer."
            in approved.stdout
        )
        assert (await task).result == "paid 5 euros"
    output = remit("audit", "tail", folder=tmp_path).stdout
    assert f"{getpass.getuser()} agreed (fine)" in output


async def test_what_is_rejected_is_told_to_the_agent_with_the_reason(tmp_path: Path) -> None:
    async with make_hub(tmp_path) as hub:
        task, seen = await ask_shop(hub, "5000 euros", tmp_path)
        command = ["pending", "reject", seen["question"]["id"], "--reason", "too much", "--as", "Bea"]
        rejected = await in_another_process(*command, "--json", folder=tmp_path)
        output = json.loads(rejected.stdout)
        assert output["decision"] == {"agreed": False, "by": "Bea", "reason": "too much"}
        assert (output["schema"], output["run"]) == ("remit.decision/1", seen["run"])
        assert "declined by Bea (too much)" in str((await task).result)


async def test_a_person_may_change_what_the_rule_lets_them(tmp_path: Path) -> None:
    async with make_hub(tmp_path) as hub:
        task, seen = await ask_shop(hub, "500 euros", tmp_path)
        approve = ["pending", "approve", seen["question"]["id"]]
        wrong = await in_another_process(*approve, "--edit", "input=no JSON", folder=tmp_path)
        assert (wrong.returncode, "not JSON" in wrong.stderr) == (2, True)
        unknown = await in_another_process(*approve, "--edit", "target=thief", folder=tmp_path)
        assert (unknown.returncode, "may not be changed" in unknown.stderr) == (2, True)
        done = await in_another_process(
            *approve, "--edit", "objective=20 euros", "--edit", 'input=["cash"]', folder=tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert (await task).result == "paid 20 euros ['cash']"


async def test_a_question_is_shown_with_tokens_and_without_what_steers_a_terminal(tmp_path: Path) -> None:
    async with make_hub(tmp_path) as hub:
        task, seen = await ask_shop(hub, "Pay ann@example.org\x1b[2J\x9b2J\u202e", tmp_path)
        for form in ([], ["--json"]):
            shown = await in_another_process("pending", "show", seen["question"]["id"], *form, folder=tmp_path)
            assert shown.returncode == 0, shown.stderr
            assert "[EMAIL:" in shown.stdout
            assert not any(text in shown.stdout for text in ("@example.org", "\x1b", "\x9b", "\u202e"))
        # A token that the person keeps stands for what it stood for.
        kept = seen["question"]["request"]["objective"].partition("]")[0] + "]"
        done = await in_another_process(
            "pending", "approve", seen["question"]["id"], "--edit", f"objective={kept}", folder=tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert (await task).result == "paid Pay ann@example.org"


async def test_values_are_revealed_to_whoever_has_the_key_and_that_is_on_record(tmp_path: Path) -> None:
    async with make_hub(tmp_path) as hub:
        task, seen = await ask_shop(hub, "Pay ann@example.org, for bob@example.org", tmp_path)
        show = ("pending", "show", seen["question"]["id"])
        key = key_path(tmp_path / ".remit" / "hub.db")
        away = key.rename(key.with_name("away"))
        refused = await in_another_process(*show, "--reveal", folder=tmp_path)
        assert (refused.returncode, "key" in refused.stderr) != (0, False), refused.stderr
        assert "@example.org" not in refused.stdout + refused.stderr
        away.rename(key)
        shown = await in_another_process(*show, "--reveal", "--as", "carla", folder=tmp_path)
        assert "shop asks cashier: Pay ann@example.org, for bob@example.org" in " ".join(shown.stdout.split())
        plain = await in_another_process(*show, folder=tmp_path)
        tokens = sorted(re.findall(r"\[EMAIL:\w+\]", seen["question"]["request"]["objective"]))
        assert all(token in plain.stdout for token in tokens)
        record = await in_another_process("audit", "tail", "--jsonl", folder=tmp_path)
        rows = map(json.loads, record.stdout.splitlines())
        assert [each["body"]["text"] for each in rows if each["kind"] == "notice"] == [
            f"carla revealed {', '.join(tokens)} of ann in question {seen['question']['id']}"
        ]
        await hub.decide(seen["question"]["id"], agreed=True, by="carla")
        assert (await task).ok


async def test_the_same_question_of_two_runs_has_two_names(tmp_path: Path) -> None:
    async with make_hub(tmp_path) as hub:
        first, seen = await ask_shop(hub, "5 euros", tmp_path)
        second = asyncio.create_task(hub.ask("shop", "6 euros", user="ann"))
        async with watching(tmp_path) as lines:
            await lines.readline()
            await lines.readline()
        listed = (await in_another_process("pending", "list", folder=tmp_path)).stdout.splitlines()[1:]
        names = [line.split()[0] for line in listed]
        assert len(set(names)) == 2
        unclear = await in_another_process("pending", "approve", seen["run"][:4], folder=tmp_path)
        assert (unclear.returncode, "ambiguous id" in unclear.stderr) == (2, True)
        await in_another_process("pending", "approve", names[1], folder=tmp_path)
        assert (await second).result == "paid 6 euros"
        assert not first.done()
        await in_another_process("pending", "reject", names[0], folder=tmp_path)
        await first


def test_where_nothing_is_pending_nothing_is_listed_and_nothing_is_made(tmp_path: Path) -> None:
    done = remit("pending", "list", folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "Nothing is pending.\n")
    assert document("pending", "list", folder=tmp_path) == {"schema": "remit.pending/1", "questions": [], "drafts": []}
    assert remit("pending", "approve", "x", folder=tmp_path).returncode == 7
    assert list(tmp_path.iterdir()) == []


async def test_a_question_that_is_not_there_cannot_be_answered(tmp_path: Path) -> None:
    async with make_hub(tmp_path):
        done = await in_another_process("pending", "reject", "nothing", folder=tmp_path)
    assert done.returncode == 2
    assert "no question `nothing` is pending" in done.stderr
    assert "→" in done.stderr
