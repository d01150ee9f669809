"""`remit validate` and tools that will get a token where they ask for a value; what a team file says of `sees`."""

from pathlib import Path

import pytest

from command_line import document, remit
from remit import RemitError
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team

CODE = """
async def clerk(brief): ...

async def find(email: str, phones: list[str], text: str, mobile: bool = False) -> str: ...
"""
TEAM = """
[agents.clerk]
run = "crm_agents:clerk"
tools = ["find"]
capabilities = ["SEND"]

[tools.find]
run = "crm_agents:find"
{sees}
[capabilities.SEND]
{send}
input_schema = {{ type = "object", properties = {{ to = {{ type = "string", format = "email" }} }} }}
{more}
"""


def written(folder: Path, sees: str = "", send: str = "", more: str = "") -> Path:
    (folder / "crm_agents.py").write_text(CODE, encoding="utf-8")
    file = folder / "remit.toml"
    file.write_text(TEAM.format(sees=sees, send=send, more=more), encoding="utf-8")
    return file


@pytest.mark.parametrize("code", [[], ["--code"]])
def test_a_field_that_asks_for_a_value_is_named_with_the_key_to_add(tmp_path: Path, code: list[str]) -> None:
    """Also without the code being imported: its source tells what the parameters are called."""
    file = written(tmp_path)
    done = remit("validate", *code, folder=tmp_path)
    assert done.returncode == 0
    line = file.read_text(encoding="utf-8").splitlines().index("[tools.find]") + 1
    output = [each for each in done.stdout.splitlines() if each.startswith("warning: ")]
    assert [each.partition(": `")[0] for each in output] == [
        f"warning: remit.toml:{line} tools.find",
        f"warning: remit.toml:{line} tools.find",
        f"warning: remit.toml:{line + 3} capabilities.SEND",
    ]
    assert "`email` asks for a value of the kind EMAIL" in output[0]
    assert output[0].endswith('tools.find.sees = ["EMAIL"]')
    assert "`phones`" in output[1]
    assert output[2].endswith('capabilities.SEND.sees = ["EMAIL"]')
    report = document("validate", *code, folder=tmp_path)
    assert (report["ok"], [each["key"] for each in report["warnings"]]) == (
        True,
        ["tools.find", "tools.find", "capabilities.SEND"],
    )


def test_of_code_that_is_not_in_the_folder_only_the_file_tells(tmp_path: Path) -> None:
    file = written(tmp_path)
    file.write_text(file.read_text(encoding="utf-8").replace("crm_agents:find", "os.path:join"), encoding="utf-8")
    output = document("validate", folder=tmp_path)
    assert [each["key"] for each in output["warnings"]] == ["capabilities.SEND"]


@pytest.mark.parametrize(
    ("sees", "send", "more"),
    [
        ('sees = ["EMAIL", "PHONE"]', "", ""),  # the capability's token can be used by the tool
        ('sees = { email = ["EMAIL"] }', 'sees = ["EMAIL"]', ""),
        ("", "", "[redaction]\nenabled = false"),
        ("", "", '[redaction]\nkinds = ["IBAN"]'),
    ],
)
def test_nothing_is_said_where_it_is_seen_to_or_nothing_is_redacted(
    tmp_path: Path, sees: str, send: str, more: str
) -> None:
    written(tmp_path, sees, send, more)
    assert document("validate", "--code", folder=tmp_path)["warnings"] == []


def test_a_tool_of_a_team_file_sees_what_the_file_says(tmp_path: Path) -> None:
    more = '[mcp.notes]\ncommand = "true"\nallow = ["find"]\n[mcp.notes.sees.find]\nemail = ["EMAIL"]'
    team = load_team(written(tmp_path, 'sees = { email = ["EMAIL"] }', more=more))
    cards = hub_of(team).tool_cards
    expected = {"email": frozenset({"EMAIL"})}
    assert (cards["find"].sees, cards["notes.find"].sees) == (expected, expected)


@pytest.mark.parametrize(
    ("sees", "more", "why"),
    [
        ('sees = ["EMIAL"]', "", "tools.find.sees: there is no kind of data `EMIAL`; did you mean `EMAIL`"),
        ('sees = { email = ["EMIAL"] }', "", "tools.find.sees.email: there is no kind of data `EMIAL`"),
        ('sees = "EMAIL"', "", "tools.find.sees: "),
        ('sees = ["email"]', "", "tools.find.sees: expected a kind of data in capitals"),
        (
            "",
            '[mcp.notes]\ncommand = "true"\nallow = ["find"]\nsees = { look = ["EMAIL"] }',
            "mcp.notes.sees.look: `look` is not in `allow`",
        ),
        (
            "",
            '[mcp.notes]\ncommand = "true"\nallow = ["find"]\nsees = { find = ["EMIAL"] }',
            "mcp.notes.sees.find: there is no kind of data `EMIAL`",
        ),
    ],
)
def test_what_is_wrong_with_sees_is_said_with_its_key(tmp_path: Path, sees: str, more: str, why: str) -> None:
    with pytest.raises(RemitError) as refused:
        load_team(written(tmp_path, sees, more=more), code=False)
    assert why in "\n".join(f"{each.path.partition(' ')[2]}: {each.message}" for each in refused.value.fault.problems)


def test_a_parameter_that_the_tool_does_not_have_is_refused(tmp_path: Path) -> None:
    written(tmp_path, 'sees = { emial = ["EMAIL"] }')
    done = remit("validate", "--code", folder=tmp_path)
    assert done.returncode == 3
    assert "sees names `emial`, which is not one of its parameters; did you mean `email`" in done.stdout
