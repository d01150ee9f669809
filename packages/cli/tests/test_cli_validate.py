"""`remit validate`: everything that is wrong with a team file, at once."""

from pathlib import Path

from command_line import document, make_team, remit
from shared_teams import make_annas, make_bobs


def test_a_team_in_order_is_counted(tmp_path: Path) -> None:
    make_team(tmp_path, "receipts")
    done = remit("validate", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ok: 3 agents, 1 tool, 2 capabilities in remit.toml\n")


def test_what_a_team_does_with_shared_agents_is_counted(tmp_path: Path) -> None:
    for folder, counted in (
        (make_annas(tmp_path / "a"), "1 profile"),
        (make_bobs(tmp_path / "b"), "1 agent, 1 shared agent"),
    ):
        assert remit("validate", folder=folder).stdout == f"ok: {counted} in remit.toml\n"


def test_every_problem_is_said_with_line_and_key_and_what_was_expected(tmp_path: Path) -> None:
    file = make_team(tmp_path)
    line = file.read_text(encoding="utf-8").count("\n") + 1
    with file.open("a", encoding="utf-8") as more:
        more.write('[agents.x]\nrun = "agents:nope"\nmay_cal = ["reader"]\n')
    done = remit("validate", "--set", "limits.max_depth=deep", folder=tmp_path)
    assert done.returncode == 3
    assert "--set limits.max_depth" in done.stdout
    assert f"remit.toml:{line + 1} agents.x.run: `agents` has no `nope`" in done.stdout
    assert f"remit.toml:{line + 2} agents.x.may_cal: unknown key; did you mean `may_call`?" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("→")


def test_programs_get_line_and_key_apart(tmp_path: Path) -> None:
    make_team(tmp_path, more="\n[limits]\nmax_deep = 3\n".replace("[limits]", "[store]"))
    output = document("validate", folder=tmp_path)
    assert (output["schema"], output["ok"], output["file"]) == ("remit.validation/1", False, "remit.toml")
    (problem,) = output["problems"]
    assert problem["key"] == "store.max_deep"
    assert (tmp_path / "remit.toml").read_text(encoding="utf-8").splitlines()[problem["line"] - 1] == "max_deep = 3"


def test_the_code_is_imported_only_if_asked_for(tmp_path: Path) -> None:
    make_team(tmp_path)
    with (tmp_path / "agents.py").open("a", encoding="utf-8") as code:
        code.write("import nowhere\n")
    done = remit("validate", "--code", folder=tmp_path)
    assert (done.returncode, "No module named 'nowhere'" in done.stdout) == (3, True)
    done = remit("validate", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ok: 3 agents in remit.toml\n")


def test_what_the_code_prints_when_it_is_imported_does_not_get_into_the_document(tmp_path: Path) -> None:
    make_team(tmp_path)
    with (tmp_path / "agents.py").open("a", encoding="utf-8") as code:
        code.write('\nprint("loading the model")\n')
    output = document("validate", "--code", folder=tmp_path)
    assert (output["ok"], output["imported"]) == (True, True)


def test_without_a_team_file_it_says_how_to_make_one(tmp_path: Path) -> None:
    done = remit("validate", folder=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "remit init" in done.stderr
    other = remit("validate", "--team", "other.toml", folder=tmp_path)
    assert other.returncode == 3
    assert "other.toml" in other.stderr
    assert "→" in other.stderr
