"""`authority` in a team file: for an agent or for all, shown by `policy explain`, and taken over while the hub runs."""

from pathlib import Path

import pytest

from command_line import document, remit
from remit_cli.config.composition import hub_of, reload
from remit_cli.config.load import load_team

CODE = """
async def answer(brief): ...

async def delete(name: str) -> str: ...
"""
TEAM = """
{limits}
[agents.reader]
run = "{module}:answer"
may_call = ["janitor", "boss"]

[agents.boss]
run = "{module}:answer"
may_call = ["janitor", "archive"]
tools = ["delete"]

[agents.archive]
run = "{module}:answer"

[agents.janitor]
run = "{module}:answer"
tools = ["delete"]
may_call = ["archive"]
{janitor}

[tools.delete]
run = "{module}:delete"
"""


def written(folder: Path, *, limits: str = "", janitor: str = "", module: str = "cleaning") -> Path:
    (folder / f"{module}.py").write_text(CODE, encoding="utf-8")
    file = folder / "remit.toml"
    file.write_text(TEAM.format(limits=limits, janitor=janitor, module=module), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "sections",
    [{"janitor": 'authority = "caller"'}, {"limits": '[limits]\nauthority = "caller"'}],
    ids=["agent", "team"],
)
def test_explain_shows_what_a_callee_would_have(tmp_path: Path, sections: dict[str, str]) -> None:
    written(tmp_path, **sections)
    for caller, tools, targets in (
        ("reader", [], []),
        ("boss", ["delete"], ["archive"]),
        ("user", ["delete"], ["archive"]),
    ):
        output = document("policy", "explain", caller, "janitor", "Clean up", folder=tmp_path)
        assert (output["outcome"], output["authority"]) == ("allowed", "caller")
        assert (output["tools"], output["targets"]) == (tools, targets)
    shown = remit("policy", "explain", "reader", "janitor", "Clean up", folder=tmp_path).stdout
    assert "janitor has at most the permissions of reader (authority = caller): tools none; may call nobody." in shown
    done = remit("policy", "explain", "reader", "janitor", "Clean up", "--tools", "delete", folder=tmp_path)
    assert done.returncode == 4
    assert "reader does not have it, and janitor works with the authority of its caller" in done.stdout
    assert (
        "limited to the tools and targets of its caller" in remit("agents", "show", "janitor", folder=tmp_path).stdout
    )


def test_by_default_it_has_its_own(tmp_path: Path) -> None:
    written(tmp_path)
    output = document("policy", "explain", "reader", "janitor", "Clean up", folder=tmp_path)
    assert (output["authority"], output["tools"], output["targets"]) == ("own", ["delete"], ["archive"])
    shown = remit("policy", "explain", "reader", "janitor", "Clean up", folder=tmp_path).stdout
    assert "janitor has its own permissions (authority = own): tools delete; may call archive." in shown


def test_an_agents_own_word_counts_more(tmp_path: Path) -> None:
    written(tmp_path, limits='[limits]\nauthority = "caller"', janitor='authority = "own"')
    output = document("policy", "explain", "reader", "janitor", "Clean up", folder=tmp_path)
    assert (output["authority"], output["tools"]) == ("own", ["delete"])


def test_it_is_taken_over_by_a_hub_that_runs(tmp_path: Path) -> None:
    old = load_team(written(tmp_path, module="cleaning_reloaded"))
    hub = hub_of(old)
    file = written(
        tmp_path,
        module="cleaning_reloaded",
        limits='[limits]\nauthority = "caller"',
        janitor='authority = "own"',
    )
    done = reload(hub, old, load_team(file))
    assert sorted(done.applied) == ["agents.janitor.authority", "limits.authority"]
    assert done.needs_restart == ()
    assert hub.cards["janitor"].authority == "own"
