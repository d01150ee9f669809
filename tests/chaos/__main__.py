"""`make chaos`: seven hubs, three NATS servers and two PostgreSQL servers, 1,000 faults, and a verdict.

`python -m chaos --help` lists the options, with `tests` on PYTHONPATH.
"""

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from msgspec.structs import replace

from chaos.cluster import LARGE, SMALL
from chaos.run import ChaosPlan, Report, lose_tail, storm


def main() -> int:
    """Run, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="make chaos", description="Break a cluster of hubs, and check what it promised."
    )
    parser.add_argument("--faults", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("CHAOS_SEED") or random.randrange(10**9)))
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--pace", type=float, default=0.8, help="seconds between faults, about")
    parser.add_argument("--small", action="store_true", help="three hubs, one server each: the form of make test")
    parser.add_argument("--folder", type=Path, default=None, help="where logs and ledgers go (default: a new folder)")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="remit-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    cluster = SMALL if given.small else replace(LARGE, small_disks=os.getuid() == 0)
    plan = ChaosPlan(
        cluster=cluster, faults=given.faults, seed=given.seed, clients=given.clients, pace_s=given.pace, most_s=3.0
    )
    print(f"seed {plan.seed}: {plan.faults} faults, {len(cluster.hubs)} hubs; logs in {folder}", flush=True)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True)

    report = asyncio.run(storm(folder / "run", plan, say))
    show(report, plan.seed, time.monotonic() - began)
    lost, named = asyncio.run(lose_tail(folder / "tail", replace(cluster, small_disks=False), plan.seed))
    print(f"  failover to a standby that lagged: {len(lost)} hubs lost acknowledged records, {len(named)} said so")
    if report.violations or not lost or not lost <= named:
        print(f"logs and ledgers are kept in {folder}; repeat the choices with CHAOS_SEED={plan.seed}")
        return 1
    if given.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def show(report: Report, seed: int, took_s: float) -> None:
    """Print the table of a run."""
    rows = [(kind, str(count)) for kind, count in report.faults.most_common()]
    rows += [("faults in all", str(report.faults.total()))]
    rows += [(f"not tried here: {kind}", "-") for kind in report.untried]
    rows += [("", ""), ("requests", str(report.count("asked")))]
    rows += [(f"  {outcome}", str(count)) for outcome, count in report.outcomes.most_common()]
    rows += [
        ("", ""),
        ("executions", str(report.count("began"))),
        ("charges", str(report.count("charged"))),
        ("tokens spent", str(sum(line.tokens for line in report.lines if line.kind == "spent"))),
        ("questions", str(report.count("question"))),
        ("answers to questions", str(report.count("decided"))),
        ("cancels", str(report.count("cancelled"))),
        ("records in the chain", str(report.records)),
        ("hub processes started", str(report.starts)),
        ("slowest stop in seconds", f"{report.slowest_stop_s:.1f}"),
        ("seconds", f"{took_s:.0f}"),
        ("seed", str(seed)),
        ("verdict", "nothing was violated" if not report.violations else f"{len(report.violations)} VIOLATIONS"),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"  {name:<{width}}  {value:>10}".rstrip())
    for exit, count in report.exits.most_common():
        print(f"  hub ended by itself: {exit} ({count} times)")
    for violation in report.violations[:50]:
        print(f"  {violation}")


if __name__ == "__main__":
    sys.exit(main())
