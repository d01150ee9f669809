"""`remit completion`: commands, agents, devices, runs, questions and drafts are completed."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from command_line import environment, make_team, remit
from remit import Brief, Hub
from remit_cli.config.rules import Rule, guard_of
from remit_relay.device.peers import Peers
from remit_relay.session.moves import SessionState
from remit_relay.session.run import Overlay, PendingDraft
from remit_relay.team.device import using_device
from shared_teams import device_of, introduce, make_annas, make_bobs, team_in
from waiting import PATIENCE_S

ASK = Rule(then="ask", say="May it?")


def completed(*words: str, folder: Path) -> list[str]:
    """Return what bash would offer for the last of the words."""
    done = remit(
        folder=folder,
        _REMIT_COMPLETE="bash_complete",
        COMP_WORDS=" ".join(["remit", *words]),
        COMP_CWORD=str(len(words)),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_for_the_shell(tmp_path: Path, shell: str) -> None:
    done = remit("completion", shell, folder=tmp_path)
    assert done.returncode == 0
    assert "_REMIT_COMPLETE" in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True, timeout=PATIENCE_S, env=environment())


def test_commands_are_completed(tmp_path: Path) -> None:
    assert completed("pol", folder=tmp_path) == ["policy"]
    assert completed("audit", "ta", folder=tmp_path) == ["tail"]


def test_agents_are_completed_from_the_team_file(tmp_path: Path) -> None:
    make_team(tmp_path)
    assert completed("agents", "show", "", folder=tmp_path) == ["assistant", "counter", "reader"]
    assert completed("policy", "explain", "u", folder=tmp_path) == ["user"]
    assert completed("policy", "explain", "user", "co", folder=tmp_path) == ["counter"]
    assert completed("run", "re", folder=tmp_path) == ["reader"]
    assert completed("chat", "re", folder=tmp_path) == ["reader"]


def test_capabilities_are_completed_from_the_team_file(tmp_path: Path) -> None:
    make_team(tmp_path, more="\n[capabilities.LOOK]\n[capabilities.LISTEN]\n[capabilities.PAY]\n")
    assert completed("agents", "show", "--capability", "L", folder=tmp_path) == ["LOOK", "LISTEN"]
    (tmp_path / "remit.toml").write_text("capabilities = 3", encoding="utf-8")
    assert completed("agents", "show", "--capability", "L", folder=tmp_path) == []


async def test_conversations_are_completed_from_the_store_those_with_the_agent_the_newest_first(tmp_path: Path) -> None:
    make_team(tmp_path)
    hub = Hub(store=tmp_path / ".remit" / "hub.db")

    async def answer(brief: Brief) -> str:
        return brief.text

    for name in ("reader", "counter"):
        hub.add(name, answer)
    async with hub:
        for agent, session in [("reader", "s-1"), ("reader", "s-2"), ("counter", "s-3"), ("reader", "s-1")]:
            await hub.ask(agent, "x", user="ann", session=session)
    assert await asyncio.to_thread(completed, "chat", "reader", "--session", "s", folder=tmp_path) == ["s-1", "s-2"]
    assert await asyncio.to_thread(completed, "run", "counter", "--session", "", folder=tmp_path) == ["s-3"]


@pytest.mark.parametrize("text", ["agents = 3", "[agents]\nx = 3", "[agents", "[store]\npath = 3", "store = 3", "\x00"])
def test_a_team_file_that_is_no_team_file_completes_nothing_and_disturbs_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "remit.toml").write_text(text, encoding="utf-8")
    assert completed("agents", "show", "", folder=tmp_path) == []
    assert completed("pending", "show", "", folder=tmp_path) == []
    assert completed("audit", "tail", "--run", "", folder=tmp_path) == []


async def test_runs_and_questions_are_completed_from_the_store(tmp_path: Path) -> None:
    hub = Hub(store=tmp_path / ".remit" / "hub.db", approver="inbox", guards=[guard_of([ASK])])

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
        return "done"

    async with hub:
        task = asyncio.create_task(hub.ask("clerk", "File it", user="ann"))
        while not (waiting := await hub.pending()):
            assert not task.done()
        (question,) = waiting
        offered = await asyncio.to_thread(completed, "pending", "approve", "", folder=tmp_path)
        assert offered == [question.id]
        run = question.request.run
        assert await asyncio.to_thread(completed, "audit", "tail", "--run", run[:4], folder=tmp_path) == [run]
        await hub.decide(question.id, agreed=True, by="ann")
        await task


def test_devices_drafts_and_shared_agents_are_completed(tmp_path: Path) -> None:
    annas, bobs = make_annas(tmp_path / "annas"), make_bobs(tmp_path / "bobs")
    introduce(annas, bobs)
    with using_device(team_in(annas)) as device:
        run = Overlay(
            id="r1",
            profile="mine",
            device=device_of(bobs),
            session="s1",
            objective="it",
            state=SessionState.READY_TO_SEND,
            pending=PendingDraft(id="r1.p1", text="shall I?"),
        )
        device.state.keep("run/r1", run)
    assert completed("chat", "m", folder=annas) == ["mine"]
    assert completed("chat", "mine", "", folder=annas) == ["bob"]
    assert completed("chat", "mine", "bob", "--continue", "r", folder=annas) == ["r1"]
    assert completed("devices", "allow", "", folder=annas) == ["bob"]
    assert completed("devices", "allow", "bob", "--profile", "", folder=annas) == ["mine"]
    assert completed("devices", "allow", "anna", "--agent", "h", folder=bobs) == ["helper"]
    assert completed("pair", "--use", "", folder=annas) == ["mine"]
    assert completed("pair", "--let-ask", "", folder=bobs) == ["helper"]
    assert completed("pair", "--let-ask", "", folder=annas) == [], "it shares nothing"
    with using_device(team_in(annas)) as device:
        Peers(device.state).group("reviewers", [device_of(bobs)])
    assert completed("chat", "mine", "", folder=annas) == ["bob", "reviewers"]
    assert completed("devices", "allow", "", folder=annas) == ["bob", "reviewers"]
    assert completed("devices", "own", "", folder=annas) == ["bob"], "one device is needed"
    assert completed("devices", "group", "", folder=annas) == ["reviewers"]
    assert completed("devices", "group", "reviewers", "b", folder=annas) == ["bob"]
    assert completed("devices", "revoke", "x", folder=annas) == []
    for verb in ("approve", "reject", "show"):
        assert completed("pending", verb, "", folder=annas) == ["r1.p1"]
    assert completed("share", "", folder=bobs) == ["helper"]
    assert completed("audit", "tail", "--profile", "", folder=annas) == ["mine"]
    assert completed("audit", "export", "--profile", "h", folder=bobs) == ["helper"]
    assert completed("share", "helper", "--device", "an", folder=bobs) == ["anna"]
    with using_device(team_in(bobs)) as device:
        Peers(device.state).revoke(device_of(annas))
    assert completed("devices", "revoke", "", folder=bobs) == [], "nothing more can be done with it"


def test_a_device_that_cannot_be_opened_completes_nothing(tmp_path: Path) -> None:
    annas = make_annas(tmp_path / "annas")
    (annas / ".remit" / "device.key").write_text("{}")
    assert completed("devices", "allow", "", folder=annas) == []
    (annas / ".remit" / "device.key").unlink()
    assert completed("pending", "show", "", folder=annas) == []
    assert not (annas / ".remit" / "device.key").exists()
