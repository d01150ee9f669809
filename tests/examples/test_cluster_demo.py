"""`make demo-cluster`: hubs on PostgreSQL and NATS, one of which is killed."""

import os
import subprocess
import sys
from pathlib import Path

from programs import with_tests_on_path
from waiting import PATIENCE_S

DEMO = Path(__file__).resolve().parents[2] / "examples" / "cluster" / "demo.py"


def test_a_run_over_several_hubs_survives_the_death_of_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, DEMO],
        cwd=tmp_path,
        env={**with_tests_on_path(), "PATH": os.environ.get("PATH", os.defpath)},
        capture_output=True,
        text=True,
        check=False,
        timeout=3 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "812 ships" in done.stdout
    assert "340 passengers" in done.stdout
    assert "kill -9" in done.stdout
    assert "researcher  bus: 2 hubs" in done.stdout
    assert done.stdout.count("researcher  success") == 2, "the tree shows parts of all hubs"
    assert "the record is whole" in done.stdout
