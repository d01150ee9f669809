"""A plugin that nobody here knows extends the command."""

import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from command_line import make_team
from plugins import install_plugin, run_python
from remit.installed import GROUP, installed_plugins

COMMANDS = """
from remit.plugin import CommandSpec

def commands():
    return {"Look": {"weather": CommandSpec("weather_cli:weather", "Show the weather.")}}
"""
WEATHER = """
import click

@click.command()
@click.argument("place")
def weather(place):
    click.echo(f"It rains in {place}.")
"""
CHECKS = """
def checks():
    return ["weather_checks:check"]
"""
CHECK = """
from remit_cli import Check

def check(team):
    yield Check(state="problem", about="weather", says=f"it rains on {team.name}", todo="Take an umbrella.")
"""
HUBS = """
def sections():
    return ["weather_hubs:WEATHER"]
"""
STATION = """
from remit import AgentCard
from remit_cli import TeamSection

class Hubs:
    def __init__(self, team):
        self.team = team

    def hosted(self):
        return {"station": f"on the roof of {self.team.name}"}, {"station": AgentCard(name="station")}

WEATHER = TeamSection(key="weather", kind=bool, default=False, other_hubs=lambda team: team.weather and Hubs(team))
"""
PROGRAM = "from remit_cli.main import main; main(prog_name='remit')"


def remit(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder with a plugin."""
    return run_python(folder, "-c", PROGRAM, *arguments, **variables)


def test_plugins_are_found_as_python_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_plugin(tmp_path, "weather", COMMANDS)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    plugins = sorted(installed_plugins())
    assert plugins == sorted((each.name, each.value) for each in entry_points(group=GROUP))
    assert ("weather", "weather") in plugins


def test_a_command_of_a_plugin_is_listed_in_its_group_runs_and_is_completed(tmp_path: Path) -> None:
    install_plugin(tmp_path, "weather", COMMANDS)
    (tmp_path / "weather_cli.py").write_text(WEATHER)
    listed = remit("--help", folder=tmp_path).stdout
    assert "or list them all.\n  weather     Show the weather.\n\nDecide:\n" in listed
    assert remit("weather", "Bern", folder=tmp_path).stdout == "It rains in Bern.\n"
    words = {"_REMIT_COMPLETE": "bash_complete", "COMP_WORDS": "remit we", "COMP_CWORD": "1"}
    assert remit(folder=tmp_path, **words).stdout == "plain,weather\n"


def test_a_command_of_a_plugin_does_not_replace_another_one(tmp_path: Path) -> None:
    install_plugin(tmp_path, "weather", COMMANDS.replace('"weather"', '"errors"'))
    done = remit("--help", folder=tmp_path)
    both = "remit_cli.docs:errors and weather_cli:weather"
    assert (done.returncode, done.stderr) == (
        1,
        f"Error: two commands have the name `errors`: {both}; uninstall a plugin\n",
    )
    assert remit("errors", "TIMEOUT", folder=tmp_path).returncode == 0


def test_doctor_asks_the_checks_of_a_plugin(tmp_path: Path) -> None:
    make_team(tmp_path)
    install_plugin(tmp_path, "weather", CHECKS)
    (tmp_path / "weather_checks.py").write_text(CHECK)
    done = remit("doctor", folder=tmp_path)
    assert done.returncode == 3
    assert "it rains on office" in done.stdout
    assert "Take an umbrella." in done.stdout


def test_agents_that_other_hubs_host_are_listed_as_a_plugin_finds_them(tmp_path: Path) -> None:
    file = make_team(tmp_path)
    file.write_text(f"weather = true\n{file.read_text()}")
    install_plugin(tmp_path, "weather", HUBS)
    (tmp_path / "weather_hubs.py").write_text(STATION)
    output = json.loads(remit("agents", "list", "--json", folder=tmp_path).stdout)["agents"][-1]
    assert (output["name"], output["lives_at"]) == ("station", "on the roof of office")
