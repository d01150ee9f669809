"""A key that was lost, or mixed up with another, is not told as a record that somebody tampered with."""

import shutil
from pathlib import Path

from command_line import make_team, remit


def test_a_key_that_was_mixed_up_is_named_as_such(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_team(tmp_path / name)
        assert remit("run", "counter", "One two", folder=tmp_path / name).returncode == 0
    shutil.copy(tmp_path / "two/.remit/hub.db.key", tmp_path / "one/.remit/hub.db.key")
    done = remit("audit", "verify", folder=tmp_path / "one")
    assert done.returncode == 1
    assert "the record is consistent, but the known key did not sign it" in done.stdout + done.stderr
    doctor = remit("doctor", folder=tmp_path / "one")
    assert "hub.db.key is not the key that signed the record" in doctor.stdout
    assert "tampered" not in done.stdout + done.stderr + doctor.stdout


def test_a_key_that_was_lost_and_made_anew_is_a_break_that_was_announced(tmp_path: Path) -> None:
    make_team(tmp_path)
    assert remit("run", "counter", "One two", folder=tmp_path).returncode == 0
    (tmp_path / ".remit/hub.db.key").unlink()
    assert remit("run", "counter", "Three", folder=tmp_path).returncode == 0
    done = remit("audit", "verify", folder=tmp_path)
    assert "the hub announced a break in the record" in done.stdout + done.stderr
    assert "tampered" not in done.stdout + done.stderr
