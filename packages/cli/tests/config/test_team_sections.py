"""A section of the team file that a plugin brings: nobody here knows it, and it is one as any other."""

from pathlib import Path

from plugins import install_plugin, run_python

PLUGIN = '''
from typing import Annotated

from msgspec import Meta

from remit_cli import Secret, Section, TeamSection, WrongPart, secret_of

def sections():
    return ["weather:WEATHER"]

class WeatherSection(Section, frozen=True, kw_only=True):
    """The weather."""

    place: Annotated[str, Meta(description="Where it is forecast.")]
    token: Annotated[Secret | None, Meta(description="The token of the service.")] = None

def nowhere(file):
    section = WEATHER.of(file.team)
    if section is not None and section.place == "nowhere":
        yield WrongPart(("weather", "place"), "there is no weather")

def add_forecast(made):
    section = WEATHER.of(made.team)
    if section is None:
        return

    async def forecast(brief):
        token = section.token and secret_of(section.token, made.environ)
        return f"sun in {section.place} by {token}"

    made.hub.add("forecast", forecast)

WEATHER = TeamSection(
    key="weather",
    kind=Annotated[WeatherSection | None, Meta(description="The weather.")],
    default=None,
    after="store",
    problems=nowhere,
    compose=add_forecast,
)
'''
TEAM = """
[weather]
place = "Rome"
token = "$WEATHER_TOKEN"
"""
ASK = """
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team

team = load_team("remit.toml")
print(hub_of(team).ask_sync("forecast", "Tomorrow?", user="u-1").result)
"""


def validate(folder: Path, **variables: str) -> str:
    return run_python(folder, "-m", "remit_cli", "validate", **variables).stdout


def test_a_section_of_a_plugin_is_checked_as_those_of_remit(tmp_path: Path) -> None:
    install_plugin(tmp_path, "weather", PLUGIN)
    team = tmp_path / "remit.toml"
    team.write_text(TEAM)
    assert validate(tmp_path, WEATHER_TOKEN="t-1").startswith("ok: ")
    assert "remit.toml:4 weather.token: the environment variable WEATHER_TOKEN is not set" in validate(tmp_path)
    team.write_text(TEAM.replace("Rome", "nowhere"))
    assert "remit.toml:3 weather.place: there is no weather" in validate(tmp_path)
    team.write_text(TEAM.replace("place", "plaec"))
    wrong = validate(tmp_path)
    assert "remit.toml:3 weather.plaec: unknown key; did you mean `place`?" in wrong
    assert "remit.toml:2 weather.place: required key is missing. Where it is forecast." in wrong
    team.write_text(TEAM.replace("[weather]", "[wether]"))
    assert "remit.toml:2 wether: unknown key; did you mean `weather`?" in validate(tmp_path)


def test_a_section_of_a_plugin_changes_the_hub(tmp_path: Path) -> None:
    install_plugin(tmp_path, "weather", PLUGIN)
    (tmp_path / "remit.toml").write_text(TEAM)
    done = run_python(tmp_path, "-c", ASK, WEATHER_TOKEN="t-1", REMIT_WEATHER__PLACE="Oslo")
    assert done.stdout == "sun in Oslo by t-1\n"


def test_a_section_of_a_plugin_is_in_the_schema_for_editors(tmp_path: Path) -> None:
    install_plugin(tmp_path, "weather", PLUGIN)
    schema = run_python(tmp_path, "-m", "remit_cli", "schema").stdout
    assert schema.index('"store"') < schema.index('"weather"') < schema.index('"limits"')


def test_two_plugins_cannot_bring_the_same_section(tmp_path: Path) -> None:
    install_plugin(tmp_path, "weather", PLUGIN.replace('key="weather"', 'key="agents"'))
    (tmp_path / "remit.toml").write_text("")
    wrong = validate(tmp_path)
    assert "an installed plugin brings a section that there is already: agents" in wrong


def test_without_its_plugin_a_section_is_an_unknown_key(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text(TEAM)
    wrong = validate(tmp_path)
    assert "remit.toml:2 weather: unknown key; known keys: a2a, agents, approvals," in wrong
