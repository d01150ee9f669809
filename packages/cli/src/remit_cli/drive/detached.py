"""The background process of a run: `python -m remit_cli.drive.detached AGENT REPORT LOG`.

It reads its order from stdin, reports once in the file REPORT whether the run is durable, and writes everything else to
its log.
"""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import click
import msgspec

from remit.hub.hub import Hub
from remit.ports import RunSummary
from remit.protocol.envelope import Response
from remit.protocol.errors import TABLE, Fault, RemitError
from remit.protocol.records import Record, Refusal
from remit_cli.config.load import load_team
from remit_cli.drive import running
from remit_cli.drive.order import Order
from remit_cli.drive.run_order import ANNOUNCE_S, run_order
from remit_cli.show.runs import exit_code, summary
from remit_cli.show.screen import worded
from remit_server.documents.common import Failure, failure_of
from remit_server.documents.runs import Detached


class Report:
    """The single report to the process that started this one, which may have exited by then."""

    def __init__(self, number: int, log: Path) -> None:
        self._number: int | None = number
        self._log = log

    async def on_record(self, record: Record, hub: Hub) -> None:
        """Report the first record: the run is durable, or was refused."""
        if self._number is None:
            return
        match record.body:
            case Refusal(response=Response(fault=Fault() as why)) | Response(fault=Fault() as why):
                self.failed(why)
            case _:
                known = await _standing(hub, record.run)
                if known.response is not None and known.response.fault is not None:
                    self.failed(known.response.fault)
                    return
                log = self._log.rename(self._log.with_name(f"{record.run}.log"))
                self._tell(Detached(run=record.run, pid=os.getpid(), log=str(log), state=known.state))

    def failed(self, why: Fault) -> None:
        """Report why the run could not start."""
        self._tell(failure_of(why))

    def _tell(self, message: Detached | Failure) -> None:
        if self._number is not None:
            with suppress(BrokenPipeError), open(self._number, "wb") as file:
                file.write(msgspec.json.encode(message))
            self._number = None


async def _standing(hub: Hub, run: str) -> RunSummary:
    """Return the state of a run; if it waits for a person, after the team's own answers were applied."""
    (known,) = await hub.store.runs(run=run, limit=1)
    if known.state == "waiting":
        await asyncio.sleep(ANNOUNCE_S)
        (known,) = await hub.store.runs(run=run, limit=1)
    return known


def main() -> int:
    """Execute the order from stdin, and return the exit code."""
    _, _, number, log = sys.argv
    os.set_inheritable(int(number), False)  # otherwise an agent's process would keep it open
    report = Report(int(number), Path(log))
    for each in (signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        team = load_team(Path(order.team_file), overrides=order.overrides, serving=False)
        ended, stuck = running.run(run_order(order, team, report.on_record, verbose=False))
    except RemitError as error:
        click.echo(worded(error.fault), err=True)
        report.failed(error.fault)
        return TABLE[error.fault.code].exit_code
    for line in summary(ended.tree, ended.response):
        click.echo(line, err=True)
    if stuck:
        running.leave(exit_code(ended.response))
    return exit_code(ended.response)


if __name__ == "__main__":
    sys.exit(main())
