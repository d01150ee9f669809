"""A command that is forked is the same as one that is started: what tests run with `commands.run` is what users run."""

import json
import subprocess
from pathlib import Path

import pytest

from command_line import environment, make_team
from commands import REMIT, run
from waiting import PATIENCE_S

SENSES = '''
"""Says what its process is like."""

import json
import os
import signal
import sys


def sense(brief):
    ignored = [int(each) for each in signal.valid_signals() if signal.getsignal(each) is signal.SIG_IGN]
    streams = [(each.encoding, each.errors, each.line_buffering) for each in (sys.stdin, sys.stdout, sys.stderr)]
    return [os.getcwd(), sorted(os.environ), sys.argv[1:], sys.path, sys.warnoptions, ignored, streams]
'''


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "senses", "x", "--json", "--set", "agents.senses.run=senses:sense"],
        ["run", "nobody", "x"],
        ["nonsense"],
    ],
    ids=" ".join,
)
def test_a_forked_command_does_what_a_started_one_does(tmp_path: Path, arguments: list[str]) -> None:
    make_team(tmp_path, more='\n[agents.senses]\nrun = "senses:sense"\n')
    (tmp_path / "senses.py").write_text(SENSES, encoding="utf-8")
    given = {**environment(), "REMIT_USER": "anna"}
    forked = run(arguments, folder=tmp_path, variables=given)
    started = subprocess.run(
        [REMIT, *arguments],
        cwd=tmp_path,
        env=given,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert forked.returncode == started.returncode
    if arguments[:2] == ["run", "senses"]:
        assert json.loads(forked.stdout)["result"] == json.loads(started.stdout)["result"]
    else:
        assert (forked.stdout, forked.stderr) == (started.stdout, started.stderr)
