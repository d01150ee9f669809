"""`remit reload`: running hubs are told to take over the team file."""

import asyncio
from pathlib import Path

from click.testing import CliRunner

from command_line import make_team, remit
from remit.faces import composition
from remit.faces.cli.reload import reload
from remit.faces.composition import hub_of
from remit.faces.team.file import load_team
from remit.runtime.ports import Control


async def test_a_hub_in_another_process_is_told(folder: Path) -> None:
    file = make_team(folder)
    hub, told = hub_of(load_team(file)), asyncio.Queue[Control]()
    hub.on_reload(told.put)
    async with hub:
        done = await asyncio.to_thread(remit, "reload", folder=folder)
        assert done.returncode == 0, done.stderr
        assert "remit.toml is in order" in done.stdout
        assert (await told.get()).action == "reload"


async def test_nobody_is_told_of_a_team_file_that_is_wrong(folder: Path) -> None:
    file = make_team(folder)
    async with hub_of(load_team(file)) as hub:
        with file.open("a", encoding="utf-8") as more:
            more.write("\n[limts]\n")
        done = await asyncio.to_thread(remit, "reload", folder=folder)
        assert (done.returncode, done.stdout) == (3, "")
        assert "did you mean `limits`?" in done.stderr
        assert await hub.store.last_control() == 0


def test_where_no_hub_ever_ran_there_is_nobody_to_tell(tmp_path: Path) -> None:
    make_team(tmp_path)
    done = remit("reload", folder=tmp_path)
    assert done.returncode == 7
    assert not (tmp_path / ".remit").exists()


def test_its_help_names_all_that_is_taken_over() -> None:
    said = CliRunner().invoke(reload, ["--help"]).output
    taken_over = (*composition._SECTIONS, *composition._OF_AGENTS)  # pyright: ignore[reportPrivateUsage]
    assert [name for name in taken_over if name not in said] == []
