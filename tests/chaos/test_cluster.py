"""A few faults on a small team: the short form of `make chaos`, which is in `chaos/__main__.py`.

`CHAOS_SEED` repeats the choices of another run.
"""

import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from chaos.cluster import SMALL
from chaos.run import ChaosPlan, storm

FAULTS = 8
# Draws faults of hubs, network, bus and database, and none that has to outlast a lease.
SEED = 286
# Only ends what hangs: a busy machine takes minutes.
BOUND_S = 900


@pytest.fixture
def folder() -> Generator[Path]:
    """A folder that the user who runs PostgreSQL may enter."""
    made = Path(tempfile.mkdtemp(prefix="remit-chaos-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.timeout(BOUND_S)
async def test_what_was_promised_holds_through_a_few_faults(folder: Path) -> None:
    # The same choices everywhere; when what is asked reaches whom, differs all the same.
    seed = int(os.environ.get("CHAOS_SEED") or SEED)
    print(f"CHAOS_SEED={seed}")
    plan = ChaosPlan(cluster=SMALL, faults=FAULTS, seed=seed, clients=6, pace_s=0.3, most_s=1.0)
    report = await storm(folder / "run", plan, print)
    print(report.faults, report.outcomes)
    assert report.violations == []
    assert report.faults.total() == FAULTS
    assert report.count("charged") > 0
