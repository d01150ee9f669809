"""Nothing that stands in a file or was sent by a peer gets on a command line as more than one plain word."""

from pathlib import Path

import pytest

from command_line import remit

HOSTILE = [
    "x; touch hit",
    "$(touch hit)",
    "`touch hit`",
    "a\\nb",
    "--team=/tmp/x",
    "\\u001b[2J",
    "a b",
    "a|b",
    "~root",
    "!1",
    "'",
    "*",
]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("section", "words"),
    [("agents", "remit run "), ("profiles", "remit chat "), ("capabilities", "remit agents show --capability ")],
)
def test_a_name_that_a_shell_would_act_on_is_not_offered(tmp_path: Path, shell: str, section: str, words: str) -> None:
    tables = "".join(f'[{section}."{name}"]\ndescription = "d"\n' for name in [*HOSTILE, "plain-1.b"])
    tables += f'[{section}.told]\ndescription = "one\\u001b[2J\\nplain,touch\\nvalue"\n'
    (tmp_path / "remit.toml").write_text(tables, encoding="utf-8")
    count = str(len(words.split()))
    variables = {
        "_REMIT_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": "" if shell == "fish" else count,
    }
    offered = remit(folder=tmp_path, **variables).stdout
    assert "plain-1.b" in offered
    assert "told" in offered
    assert "\x1b" not in offered
    for name in ("touch hit", "--team", "a b", "a|b", "~root", "!1"):
        assert name not in offered
    if shell == "bash":
        assert sorted(line.partition(",")[2] for line in offered.splitlines()) == ["plain-1.b", "told"]


def test_a_name_cannot_end_in_a_line_break(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def a(brief): ...", encoding="utf-8")
    (tmp_path / "remit.toml").write_text('[agents."good\\n"]\nrun = "a:a"\n', encoding="utf-8")
    done = remit("validate", folder=tmp_path)
    assert (done.returncode, 'agents."good\\n": expected a name' in done.stdout) == (3, True)


def test_no_name_of_a_team_file_reaches_the_terminal_as_it_is(tmp_path: Path) -> None:
    hostile = "x\\u001b[2J\\nok: all is well"
    (tmp_path / "a.py").write_text("def a(brief): ...", encoding="utf-8")
    sections = "".join(f'[{section}."{hostile}"]\nrun = "a:a"\n' for section in ("agents", "tools"))
    more = f'[agents.good]\nrun = "a:a"\nmay_call = ["{hostile}"]\n[capabilities."{hostile}"]\n'
    (tmp_path / "remit.toml").write_text(sections + more, encoding="utf-8")
    for command in (["validate"], ["doctor"], ["agents", "list"], ["run", "good", "x"]):
        done = remit(*command, folder=tmp_path)
        stderr = done.stdout + done.stderr
        assert done.returncode == 3
        assert "\x1b" not in stderr
        assert not any(line.startswith("ok: all") for line in stderr.splitlines())
