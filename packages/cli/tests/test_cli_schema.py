"""`remit schema`: what may stand in a team file, and what `--json` prints."""

import json
from pathlib import Path

import jsonschema_rs
import pytest

from command_line import document, make_team, remit


def test_the_team_file_that_init_writes_fits_the_schema(tmp_path: Path) -> None:
    import tomllib

    file = make_team(tmp_path, "receipts")
    schema = json.loads(remit("schema", folder=tmp_path).stdout)
    jsonschema_rs.validate(schema, tomllib.loads(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "command",
    [
        ["validate"],
        ["doctor"],
        ["agents", "list"],
        ["agents", "show", "tax"],
        ["policy", "guards"],
        ["policy", "explain", "bookkeeper", "tax", "Write to ann@example.org"],
        ["pending", "list"],
        ["run", "assistant", "Sort my receipts"],
        ["audit", "verify", "nowhere.db"],
    ],
    ids=" ".join,
)
def test_what_commands_print_fits_the_schema_of_outputs(tmp_path: Path, command: list[str]) -> None:
    make_team(tmp_path, "receipts")
    schema = json.loads(remit("schema", "outputs", folder=tmp_path).stdout)
    printed = document(*command, folder=tmp_path)
    assert printed["schema"].startswith("remit.")
    jsonschema_rs.validate(schema, printed)


def test_it_is_written_to_a_file_if_asked(tmp_path: Path) -> None:
    done = remit("schema", "outputs", "--out", "outputs.json", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert json.loads((tmp_path / "outputs.json").read_text(encoding="utf-8"))["$defs"]
    lost = remit("schema", "--out", "no/where.json", folder=tmp_path)
    assert lost.returncode == 2
    assert "Traceback" not in lost.stderr
