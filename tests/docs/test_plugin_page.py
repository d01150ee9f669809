"""The plugin on the page "Write a plugin" does what the page says, installed beside Remit and unknown to it."""

import json
import re
import tomllib
from importlib import import_module
from inspect import isfunction
from pathlib import Path

import pytest

from doc_pages import blocks, page_path, page_text
from plugins import install_plugin, private_imports, run_python
from remit import plugin
from remit.installed import installed_plugins

HOOKS = {name: value for name, value in vars(plugin.Hooks).items() if isfunction(value) and not name.startswith("_")}
REMIT = "from remit_cli.main import main; main(prog_name='remit')"
SERVED = """
import asyncio
from aiohttp import ClientSession
from remit_cli import hub_of, load_team
from remit_server import serve

async def main():
    hub = hub_of(load_team("remit.toml"))
    async with hub, serve(hub, clients={"ops": "ops", "web": "web"}, permissions={"ops": ["read"]}) as address:
        async with ClientSession(address) as http:
            for token in ("ops", "web"):
                async with http.get("/v1/weather/Bern", headers={"authorization": f"Bearer {token}"}) as reply:
                    print(reply.status, (await reply.json()).get("place"))
            async with http.get("/openapi.json") as reply:
                print("/v1/weather/{place}" in (await reply.json())["paths"])

asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the files of the page, in which its plugin counts as installed."""
    files = {block.file: block.text for block in blocks(page_path("plugins")) if block.file is not None}
    declared = tomllib.loads(files.pop("pyproject.toml"))["project"]["entry-points"]["remit.plugins"]
    (module,) = declared.values()
    install_plugin(tmp_path, module, files.pop(f"{module}.py"))
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def python(folder: Path, code: str, *arguments: str) -> str:
    """Return what a program prints in the folder."""
    done = run_python(folder, "-c", code, *arguments)
    assert done.stdout, done.stderr
    return done.stdout


def test_its_plugin_imports_what_the_page_names_and_no_other_module_of_remit(folder: Path) -> None:
    imported = {path.name: private_imports(path.read_text(encoding="utf-8")) for path in folder.glob("*.py")}
    assert imported == {"remit_weather.py": set(), "weather_parts.py": set(), "weather_hub.py": set()}
    assert private_imports("import remit.hub.hub\nfrom remit_server.bodies import send_value") == {
        "remit.hub.hub",
        "remit_server.bodies",
    }


def test_every_name_for_plugins_on_the_page_is_there() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (.*) \|$", page_text("plugins"), re.MULTILINE)
    assert {"remit", "remit.plugin", "remit.ports"} < {module for module, _ in rows}
    named = [(module, name) for module, names in rows for name in re.findall(r"`(\w+)`", names)]
    assert [(module, name) for module, name in named if not hasattr(import_module(module), name)] == []


def test_the_hooks_name_types_that_plugins_may_use_and_each_has_an_example() -> None:
    assert private_imports(Path(plugin.__file__).read_text(encoding="utf-8")) == set()
    assert [name for name, hook in HOOKS.items() if f"\n\n        def {name}(" not in (hook.__doc__ or "")] == []


@pytest.mark.parametrize(("name", "module"), sorted(installed_plugins()))
def test_every_function_of_a_plugin_of_remit_is_a_hook(name: str, module: str) -> None:
    brought = vars(import_module(module)).values()
    functions = {each.__name__ for each in brought if isfunction(each) and each.__module__ == module}
    assert set() < functions <= HOOKS.keys(), name


def test_the_commands_of_the_page_print_what_it_shows(folder: Path) -> None:
    (shown,) = (block for block in blocks(page_path("plugins")) if block.language == "console")
    lines = shown.text.splitlines()
    assert python(folder, REMIT, "validate") == f"{lines[1]}\n"
    assert python(folder, REMIT, "weather", "Bern") == f"{lines[3]}\n"
    assert "weather     Show the weather of a place." in python(folder, REMIT, "--help")


def test_its_agent_is_given_a_token_and_its_user_the_words(folder: Path) -> None:
    answer = json.loads(python(folder, REMIT, "run", "forecast", "What of station W-17?", "--json").splitlines()[-1])
    assert answer["result"] == "It rains in Bern. You asked: What of station W-17?"
    assert "W-17" not in python(folder, REMIT, "audit", "export")


def test_its_station_is_reached_by_its_address(folder: Path) -> None:
    answer = json.loads(python(folder, REMIT, "run", "station", "How is it?", "--json").splitlines()[-1])
    assert answer["result"] == "weather://bern/7 says: sunny"
    assert "weather://bern/7" in python(folder, REMIT, "agents", "show", "station")
    (folder / "remit.toml").write_text('[agents.station]\naddress = "snow://bern"\n')
    why = "no installed plugin reaches agents at `snow:`; there are some for `weather:`"
    assert f"remit.toml:2 agents.station.address: {why}" in python(folder, REMIT, "validate")


def test_its_guard_judges_in_every_hub(folder: Path) -> None:
    answer = json.loads(python(folder, REMIT, "run", "station", "Send a storm", "--json").splitlines()[-1])
    assert (answer["status"], answer["fault"]["code"]) == ("refused", "PERMISSION_DENIED")
    assert "Nobody asks for a storm." in python(folder, REMIT, "policy", "guards")


def test_its_companion_reads_the_record_while_the_hub_is_open(folder: Path) -> None:
    python(folder, REMIT, "run", "station", "How is it?", "--json")
    assert (folder / "runs.txt").read_text() == "1"


def test_its_section_is_checked(folder: Path) -> None:
    (folder / "remit.toml").write_text('[weather]\nplace = "nowhere"\n')
    assert "remit.toml:2 weather.place: there is no weather" in python(folder, REMIT, "validate")


def test_its_endpoint_is_for_those_who_may_read(folder: Path) -> None:
    assert python(folder, SERVED) == "200 Bern\n403 None\nTrue\n"
