"""Runs the cases of `remit eval`, each in a hub of its own, and adds up how they ended."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

from remit.protocol.envelope import Usage
from remit.protocol.submission import AskOptions
from remit_cli.config.code import code_at
from remit_cli.config.sections.cases import EvalCase, EvalFile
from remit_cli.config.team import Team
from remit_cli.drive.expectations import CaseRun, failures
from remit_cli.drive.replaying import answering, opened, records_of
from remit_server.documents.common import shown_as
from remit_server.documents.evaluation import EvaluatedCase, Evaluation, FailedRun
from remit_server.documents.runs import Spent


class EvalOrder(NamedTuple):
    """What `remit eval` was told besides the file."""

    cases: Sequence[str] = ()
    """The names of the cases to run; none: all."""
    runs: int | None = None
    threshold: float | None = None
    at_once: int = 4
    recordings: Path | None = None
    """The folder of the recordings."""
    record: bool = False
    """Whether the recordings are made, and not used."""


class _Outcome(NamedTuple):
    failures: tuple[str, ...]
    usage: Usage
    duration_ms: int


async def evaluate(
    team: Team, file: EvalFile, order: EvalOrder, tell: Callable[[str], None] = lambda _: None
) -> Evaluation:
    """Run the cases and return how they ended; *tell* is called with a line for each case that has ended."""
    cases = {name: case for name, case in file.cases.items() if not order.cases or name in order.cases}
    places, lines = asyncio.Semaphore(order.at_once), dict[str, EvaluatedCase]()

    async def run_case(name: str, case: EvalCase) -> None:
        recording = None if order.recordings is None else order.recordings / f"{name}.jsonl"

        async def run_once() -> _Outcome:
            async with places:
                return await _run(team, file, case, recording, record=order.record)

        # A recording gives the same replies each time, and holds one run.
        count = 1 if recording is not None else order.runs or case.runs or file.runs
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run_once()) for _ in range(count)]
        lines[name] = line = _line(name, case, file, [task.result() for task in tasks])
        tell(f"{len(lines)} of {len(cases)}: {name}: {line.passed} of {line.runs} passed")

    async with asyncio.TaskGroup() as group:
        for name, case in cases.items():
            group.create_task(run_case(name, case))
    threshold = file.threshold if order.threshold is None else order.threshold
    done = tuple(lines[name] for name in cases)
    runs, passed = sum(each.runs for each in done), sum(each.passed for each in done)
    share = passed / runs
    return Evaluation(
        runs=runs,
        passed=passed,
        share=share,
        threshold=threshold,
        ok=share >= threshold and all(each.ok for each in done),
        cases=done,
    )


def _line(name: str, case: EvalCase, file: EvalFile, outcomes: Sequence[_Outcome]) -> EvaluatedCase:
    passed = sum(not each.failures for each in outcomes)
    return EvaluatedCase(
        name=name,
        agent=case.agent or file.agent or "",
        runs=len(outcomes),
        passed=passed,
        ok=passed / len(outcomes) >= (case.threshold or 0),
        usage=shown_as(Spent, sum((each.usage for each in outcomes), Usage())),
        duration_ms=sum(each.duration_ms for each in outcomes),
        failed=tuple(
            FailedRun(run=number, failures=each.failures) for number, each in enumerate(outcomes, 1) if each.failures
        ),
    )


async def _run(team: Team, file: EvalFile, case: EvalCase, recording: Path | None, *, record: bool) -> _Outcome:
    agent, user = case.agent or file.agent, case.user or file.user
    assert agent is not None, "a file with a case that asks nobody is not loaded"
    check = None if case.expect.check is None else code_at(case.expect.check, team.folder)
    done, session, differences = CaseRun(), None, list[str]()
    async with AsyncExitStack() as stack:
        offline = recording is not None and not record
        hub = await stack.enter_async_context(opened(team, answering(agreed=case.approve), offline=offline))
        replay = None
        if recording is not None and record:
            await stack.enter_async_context(hub.record(recording))
        elif recording is not None:
            replay = await stack.enter_async_context(hub.replay(recording))
        for text in case.texts:
            options: AskOptions = {"input": case.input, "capability": case.capability, "session": session}
            response = await hub.ask(agent, text, user=user, **options)
            session = response.session
            done.add(response, await records_of(hub, response.run))
        if replay is not None and replay.differences:
            differences = [f"it differs from its recording: {replay.differences[0]}"]
    return _Outcome((*differences, *failures(case.expect, done, check)), done.usage, done.duration_ms)
