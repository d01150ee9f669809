"""`remit reload`: running hubs are told to take over the team file."""

import asyncio
from pathlib import Path

from click.testing import CliRunner

from command_line import make_team, remit
from remit import Events, Notice
from remit.ports import ControlCommand
from remit_cli.config import composition
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team
from remit_cli.serve import reload
from waiting import PATIENCE_S

TEAM = """
[store]
durability = "process"

[agents.boss]
run = "patience:boss"
may_call = {callees}

[agents.clerk]
run = "patience:clerk"
tools = {tools}
"""
CODE = """
import asyncio

begun, may_go_on = asyncio.Event(), asyncio.Event()

async def boss(brief):
    begun.set()
    await may_go_on.wait()
    reply = await brief.delegate("clerk", objective="Help")
    return reply.fault.code if reply.fault else reply.result

async def clerk(brief):
    return "helped"
"""


async def test_a_hub_in_another_process_is_told(folder: Path) -> None:
    file = make_team(folder)
    hub, commands = hub_of(load_team(file)), asyncio.Queue[ControlCommand]()
    hub.on_reload(commands.put)
    async with hub:
        done = await asyncio.to_thread(remit, "reload", folder=folder)
        assert done.returncode == 0, done.stderr
        assert "remit.toml is valid" in done.stdout
        assert (await commands.get()).action == "reload"


async def test_a_run_under_way_goes_on_under_the_changed_rules(folder: Path) -> None:
    """Hot parts of the policy are taken over without dropping a run, and the run's record says so."""
    (folder / "patience.py").write_text(CODE, encoding="utf-8")
    file = folder / "remit.toml"
    file.write_text(TEAM.format(callees='["clerk"]', tools="[]"), encoding="utf-8")
    async with hub_of(load_team(file)) as hub, asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        asking = group.create_task(hub.ask("boss", "Wait", user="u-1"))
        with hub.events() as events:
            import patience  # pyright: ignore[reportMissingImports]

            await patience.begun.wait()  # pyright: ignore[reportUnknownMemberType]
            file.write_text(TEAM.format(callees="[]", tools='["none"]'), encoding="utf-8")
            assert (await asyncio.to_thread(remit, "reload", folder=folder)).returncode == 3
            file.write_text(TEAM.format(callees="[]", tools="[]"), encoding="utf-8")
            assert (await asyncio.to_thread(remit, "reload", folder=folder)).returncode == 0
            notice = await _notice(events)
            patience.may_go_on.set()  # pyright: ignore[reportUnknownMemberType]
        assert (await asking).result == "PERMISSION_DENIED"
    assert "applied agents.boss.may_call" in notice


async def _notice(events: Events) -> str:
    async for record in events:
        if isinstance(record.body, Notice):
            return record.body.text
    raise AssertionError("nothing was said")


async def test_nobody_is_told_of_a_team_file_that_is_wrong(folder: Path) -> None:
    file = make_team(folder)
    async with hub_of(load_team(file)) as hub:
        with file.open("a", encoding="utf-8") as more:
            more.write("\n[limts]\n")
        done = await asyncio.to_thread(remit, "reload", folder=folder)
        assert (done.returncode, done.stdout) == (3, "")
        assert "did you mean `limits`?" in done.stderr
        assert await hub.store.controls(0) == []


def test_where_no_hub_ever_ran_there_is_nobody_to_tell(tmp_path: Path) -> None:
    make_team(tmp_path)
    done = remit("reload", folder=tmp_path)
    assert done.returncode == 7
    assert not (tmp_path / ".remit").exists()


def test_its_help_names_all_that_is_taken_over() -> None:
    output = CliRunner().invoke(reload, ["--help"]).output
    taken_over = (*composition.RELOADED_SECTIONS, *composition.RELOADED_OF_AGENTS)
    assert [name for name in taken_over if name not in output] == []
