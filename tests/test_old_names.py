"""Old names of the public API, of the team file and of the command line still work, and say the new name."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import remit
import remit.testing
from remit import Brief, Hub, Problem, RemitError
from remit.cli.options import CommandWithOldOptions
from remit.config.load import load_team, located
from remit.config.overrides import kind_at
from remit.config.renamed_keys import RENAMED, current
from remit.protocol.deprecation import Renamed
from remit.testing import ManualClock


@pytest.mark.parametrize(("old", "new"), [("Said", "ReportedValue"), ("pipeline", "detector_pipeline")])
def test_an_old_name_of_the_package_is_the_new_one(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"`remit.{old}` is deprecated: use `remit.{new}`"):
        assert getattr(remit, old) is getattr(remit, new)
    assert old not in remit.__all__


def test_an_old_name_of_the_testing_tools_is_the_new_one() -> None:
    with pytest.warns(DeprecationWarning, match=r"use `remit.testing.ManualClock`"):
        assert getattr(remit.testing, "TurnedClock") is ManualClock  # noqa: B009 - it is not there for type checkers
    with pytest.raises(AttributeError, match=r"'remit\.testing' has no attribute 'Clock'"):
        getattr(remit.testing, "Clock")  # noqa: B009 - as a program that misspells it would


@pytest.mark.parametrize("owner", [Hub, Brief, ManualClock])
def test_every_old_name_of_a_class_leads_to_a_member_of_it(owner: type) -> None:
    members = [each for base in owner.__mro__ for each in vars(base).items()]
    old = {name for name, member in members if isinstance(member, Renamed)}
    assert old
    for name in old:
        with pytest.warns(DeprecationWarning, match=f"`{owner.__name__}.{name}` is deprecated"):
            assert getattr(owner, name) is not None


def test_every_old_key_of_the_team_file_has_a_key_of_the_new_name() -> None:
    for old, new in RENAMED.items():
        place = tuple("x" if step == "*" else step for step in old)
        assert (current(place), kind_at(place)) == ((*place[:-1], new), Any)
        assert kind_at(current(place)) is not Any


OLD_TEAM = """
[agents.a]
run = "office:tag"

[clients.web]
token = "$WEB_TOKEN"
agents = ["*"]
users = ["*"]
may = ["read"]
"""


def test_an_old_key_of_the_team_file_is_read_and_named_by_validate(tmp_path: Path) -> None:
    file = tmp_path / "remit.toml"
    file.write_text(OLD_TEAM)
    team = load_team(file, secrets=False, code=False)
    assert team.clients["web"].permissions == {"read"}
    assert located(team, []) == [Problem("remit.toml:9 clients.web.may", "`may` is deprecated: use `permissions`")]


def test_an_error_in_the_value_of_an_old_key_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "remit.toml"
    file.write_text(OLD_TEAM.replace('"read"', '"write"'))
    with pytest.raises(RemitError) as found:
        load_team(file, secrets=False, code=False)
    assert [each.path for each in found.value.fault.problems] == ["remit.toml:9 clients.web.permissions"]


def test_a_key_under_both_names_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "remit.toml"
    file.write_text(OLD_TEAM + "permissions = []\n")
    with pytest.raises(RemitError) as found:
        load_team(file, secrets=False, code=False)
    assert [each.path for each in found.value.fault.problems] == ["remit.toml:9 clients.web.may"]


def test_an_old_key_can_be_overridden_by_a_variable_and_by_a_flag(tmp_path: Path) -> None:
    file = tmp_path / "remit.toml"
    file.write_text(OLD_TEAM)
    options: dict[str, Any] = {"secrets": False, "code": False}
    team = load_team(file, environ={"REMIT_CLIENTS__WEB__MAY": '["control"]'}, **options)
    assert team.clients["web"].permissions == {"control"}
    team = load_team(file, overrides=["context.tokens=estimate", 'clients.web.may=["metrics"]'], environ={}, **options)
    assert (team.clients["web"].permissions, team.context.tokenizer) == ({"metrics"}, "estimate")


def test_an_old_option_of_the_command_line_works_with_a_note() -> None:
    @click.command(cls=CommandWithOldOptions, renamed={"--keep": "--message-retention"})
    @click.option("--message-retention")
    def relay(message_retention: str) -> None:
        click.echo(message_retention)

    for arguments in (["--keep", "14d"], ["--keep=14d"]):
        done = CliRunner().invoke(relay, arguments)
        assert (done.stdout, done.stderr) == ("14d\n", "--keep is deprecated: use --message-retention\n")
    assert "--keep" not in CliRunner().invoke(relay, ["--help"]).output
