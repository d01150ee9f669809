"""Replays recorded runs with the team's code, in a hub on a store of its own."""

import os
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from remit.hub.hub import Hub
from remit.hub.recording.files import NewCalls, RecordedRun
from remit.hub.recording.http import without_keys
from remit.hub.recording.recorder import Replay
from remit.ports import Approver, Decision, Question
from remit.protocol.envelope import Response
from remit.protocol.files import File
from remit.protocol.records import Record
from remit.runtime.registry import team_invalid
from remit_cli.config.checks import secrets_of
from remit_cli.config.composition import hub_of
from remit_cli.config.load import load_team
from remit_cli.config.team import Team
from remit_cli.drive import running
from remit_cli.places import current_user
from remit_server.documents.common import shown_as
from remit_server.documents.runs import ReplayDifference, ReplayedRun, ReplayReport, Spent

# A value for each secret: the right length for a key, and no secret.
_NO_SECRET = "0" * 64


@asynccontextmanager
async def opened(team: Team, approver: Approver, *, offline: bool = False) -> AsyncGenerator[Hub]:
    """Open a hub of a team on a store of its own that is deleted at the end; *offline* it needs no secrets."""
    environ: Mapping[str, str] = os.environ
    if offline:
        environ = {reference.removeprefix("$"): _NO_SECRET for _, reference in secrets_of(team)} | dict(os.environ)
    own = replace(
        team,
        store=replace(team.store, url=None, durability="process"),
        approvals=replace(team.approvals, otherwise="terminal"),
    )
    with tempfile.TemporaryDirectory(prefix="remit-", ignore_cleanup_errors=True) as folder:
        async with hub_of(own, approver=approver, store=Path(folder) / "hub.db", environ=environ) as hub:
            yield hub


def answering(*, agreed: bool) -> Approver:
    """Return an approver that gives one answer to all questions."""

    async def answer(_: Question) -> Decision:
        return Decision(agreed=agreed, by="remit", reason="" if agreed else "nobody is asked here")

    return answer


async def records_of(hub: Hub, run: str) -> list[Record]:
    """Return all records of a run."""
    await hub.store.flush()
    records: list[Record] = []
    while page := await hub.store.records(run=run, after=records[-1].seq if records else 0):
        records += page
    return records


def recorded_team(path: Path, overrides: Sequence[str], *, offline: bool) -> Team:
    """Return a team whose runs are recorded or replayed; *offline* it needs no secrets."""
    with without_keys() if offline else nullcontext():
        team = load_team(path, overrides=overrides, serving=False, secrets=not offline)
    isolated = [name for name, agent in team.agents.items() if agent.isolation == "process"]
    if isolated:
        why = f'what `{isolated[0]}` asks cannot be recorded: it has isolation = "process"'
        raise team_invalid(f"{why}; run it in the hub for this: --set agents.{isolated[0]}.isolation=task")
    return team


def carry_out(team: Team, path: Path, new: NewCalls, *, verbose: bool) -> ReplayReport:
    """Replay a recording, with log messages on stderr."""
    with running.data_only(), running.logging_to(lambda line: click.echo(line, err=True), verbose=verbose):
        report, _ = running.run(replay(team, path, new))
    return report


async def replay(team: Team, path: Path, new: NewCalls) -> ReplayReport:
    """Run the runs of a recording again, and report where they differ from it."""
    responses: dict[int, Response] = {}
    offline = new == "refuse"
    # Agents of frameworks may make their clients when their module is imported.
    with without_keys() if offline else nullcontext():
        async with opened(team, answering(agreed=False), offline=offline) as hub, hub.replay(path, new=new) as replayed:
            for run in replayed.recording.runs:
                responses[run.run] = await _ask(hub, run, responses)
    return _report(replayed, responses)


async def _ask(hub: Hub, run: RecordedRun, earlier: Mapping[int, Response]) -> Response:
    session = earlier[run.continues].session if run.continues in earlier else None
    return await hub.ask(
        run.agent,
        run.objective,
        user=current_user(),
        input=run.input,
        capability=run.capability,
        files=msgspec.convert(run.files or (), tuple[File, ...]),
        session=session,
        max_tokens=run.tokens,
        max_cost=run.cost,
    )


def _report(done: Replay, responses: Mapping[int, Response]) -> ReplayReport:
    return ReplayReport(
        recording=str(done.path),
        same=not done.differences,
        replies=len(done.recording.replies),
        asked=done.asked,
        differences=tuple(ReplayDifference(**each._asdict(), text=str(each)) for each in done.differences),
        runs=tuple(
            ReplayedRun(
                run=number,
                agent=each.target,
                status=each.status,
                result=each.result,
                fault=each.fault,
                usage=shown_as(Spent, each.usage),
            )
            for number, each in responses.items()
        ),
    )
