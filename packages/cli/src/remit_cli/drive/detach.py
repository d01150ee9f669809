"""Starts a run in a background process, and returns once the run is recorded."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import msgspec

from remit.protocol.errors import Code, RemitError, fault
from remit.words.terminal import several_lines
from remit_cli.config.load import load_team
from remit_cli.drive.order import Order
from remit_cli.drive.running import Data
from remit_cli.places import relative_path
from remit_cli.show.runs import short
from remit_server.documents.common import Failure
from remit_server.documents.runs import Detached

# The last messages of a process that died are at the end.
LAST_WORDS = 2_000


def detach(order: Order, *, as_json: bool) -> int:
    """Start a background run and return when it is durable; earlier errors are raised here."""
    # Check the team file here; only the other process imports the agents' code.
    team = load_team(Path(order.team_file), overrides=order.overrides, serving=False, code=False)
    log = _make_log(team.store_path.parent / "runs")
    try:
        started = _started(order, log)
    except BaseException:
        log.unlink(missing_ok=True)
        raise
    data = Data(sys.stdout)
    if as_json:
        data.document(started)
    else:
        data.line(started.run)
    _advise(started)
    return 0


def _make_log(folder: Path) -> Path:
    try:
        for each in (folder.parent, folder):  # the first is the folder of the store
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, name = tempfile.mkstemp(prefix="starting-", suffix=".log", dir=folder)
    except OSError as error:
        raise RemitError(
            fault(
                Code.STORE_UNAVAILABLE,
                f"cannot write a log in {folder}: {error.strerror}",
                suggestion="Make the folder writable, or set another store in the team file.",
            )
        ) from error
    os.close(number)
    return Path(name)


def _started(order: Order, log: Path) -> Detached:
    read_end, write_end = os.pipe()
    # -P: files in the working directory cannot shadow modules. The agent's name is only for `ps`.
    command = [sys.executable, "-P", "-m", "remit_cli.drive.detached", order.agent, str(write_end), str(log)]
    with open(read_end, "rb") as answers, log.open("ab") as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=(write_end,),
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        try:
            assert process.stdin is not None
            with process.stdin:
                process.stdin.write(msgspec.json.encode(order))
            answer = answers.read()
        except BrokenPipeError:
            answer = b""
        except BaseException:
            process.terminate()
            raise
    if not answer:
        raise _died(process.wait(), log)
    report: Detached | Failure = msgspec.json.decode(answer, type=Detached | Failure)
    match report:
        case Detached() as started:
            process.returncode = 0  # it outlives this process; prevents Python's warning
            return started
        case Failure(code=code, message=message, suggestion=suggestion, problems=problems):
            process.wait()
            raise RemitError(fault(code, message, problems=problems, suggestion=suggestion))


def _died(code: int, log: Path) -> RemitError:
    words = several_lines(log.read_text(encoding="utf-8", errors="replace")[-LAST_WORDS:]).strip()
    return RemitError(
        fault(
            Code.DELEGATION_FAILED,
            f"the process of the run exited with code {code} before the run was recorded"
            + (f":\n{words}" if words else ""),
            suggestion="Nothing was started. Run it without --detach to see more.",
        )
    )


def _advise(started: Detached) -> None:
    run = short(started.run)
    if started.state == "waiting":
        click.echo("It waits for approval before it starts: remit pending list", err=True)
    else:
        click.echo(
            f"It runs in the background as process {started.pid}; its log is {relative_path(Path(started.log))}",
            err=True,
        )
    click.echo(f"→ remit runs watch {run}, or remit runs cancel {run}", err=True)
