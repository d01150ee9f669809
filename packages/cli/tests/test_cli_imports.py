"""Commands start quickly: none imports what it does not need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import make_team, remit
from remit_cli.main import groups

# What takes longest to import.
EVENT_LOOP = {"asyncio", "ssl", "concurrent.futures"}
HUB = {"remit.hub.hub", "remit.runtime.engine", "remit.ports.brief"}
TEAM_CHECKS = {"remit_cli.config.load", "remit_cli.config.team"}
SERVER = {"aiohttp", "starlette", "uvicorn", "remit_server.app"}
OTHERS = {"rich", "prompt_toolkit", "cryptography", "jsonschema_rs", "phonenumbers", "pydantic", "mcp", "opentelemetry"}
EVERYTHING = EVENT_LOOP | HUB | TEAM_CHECKS | SERVER | OTHERS


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("office")
    make_team(folder)
    assert remit("run", "counter", "One two", folder=folder).returncode == 0
    return folder


def imported(*command: str, folder: Path, **variables: str) -> set[str]:
    """Run a program of Python, and return the modules that it imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout or command[0] == "-c", done.stderr
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def completed(words: str, folder: Path) -> set[str]:
    """Complete the last word of a command line, and return the modules that this imports."""
    variables = {"_REMIT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    return imported("-c", "from remit_cli import main; main(prog_name='remit')", folder=folder, **variables)


@pytest.mark.parametrize("words", ["remit ", "remit run ", "remit agents show ", "remit chat ", "remit runs show "])
def test_completion_imports_neither_a_hub_nor_the_checks_of_team_files(office: Path, words: str) -> None:
    assert completed(words, office) & EVERYTHING == set()


def test_no_module_of_a_command_imports_them(tmp_path: Path) -> None:
    modules = ", ".join(each.address.partition(":")[0] for group in groups().values() for each in group.values())
    assert imported("-c", f"import {modules}", folder=tmp_path) & EVERYTHING == set()


def test_a_list_of_runs_needs_no_event_loop_no_hub_and_no_checked_team_file(office: Path) -> None:
    assert imported("-m", "remit_cli", "runs", "list", folder=office) & EVERYTHING == set()


def test_a_run_imports_no_server_and_no_libraries_that_its_team_does_not_use(office: Path) -> None:
    modules = imported("-m", "remit_cli", "run", "counter", "One two", folder=office)
    # cryptography signs the record.
    assert modules & (SERVER | OTHERS) <= {"cryptography", "rich"}


def test_the_name_of_the_hub_imports_no_store_and_no_detectors(tmp_path: Path) -> None:
    modules = imported("-c", "from remit import Hub", folder=tmp_path)
    assert modules & (SERVER | OTHERS | {"apsw", "remit.stores.sqlite", "remit_redaction.pipeline"}) == set()


def test_a_device_that_waits_loads_neither_the_api_of_its_hub_nor_tables_of_numbers(tmp_path: Path) -> None:
    """They take four megabytes, and most devices wait for months."""
    (tmp_path / "agents.py").write_text("async def helper(brief):\n    return brief.text\n")
    (tmp_path / "remit.toml").write_text(
        '[relay]\ngateway = "ws://127.0.0.1:8765"\n\n[agents.helper]\nrun = "agents:helper"\n'
    )
    load = "from pathlib import Path; from remit_cli.config.load import load_team; load_team(Path('remit.toml'))"
    modules = imported("-c", f"import remit_relay.commands.shared.up_run; {load}", folder=tmp_path)
    assert "remit_redaction.credentials" in modules
    unneeded = {
        "remit_server.app",
        "remit_server.mcp.endpoint",
        "remit_models.model",
        "remit_cli.processes.sandbox",
    }
    assert modules & {*unneeded, "remit_redaction.national", "remit_redaction.numbers", "phonenumbers"} == set()
