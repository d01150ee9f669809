"""After a restart a resumable run is taken up again, and what it had finished is not done twice.

Run as a program, this file is a hub in a process of its own, which the tests kill where they like.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from commands import popen
from programs import with_tests_on_path
from remit import Answer, Ask, Brief, Call, Hub, Kind, Notice, RemitError, Response, Status, ToolUse, Usage
from remit.ports import StoreError
from remit.ports.store import ANYONES, Submitted
from remit.protocol.envelope import Request
from remit.protocol.errors import Code, fault
from remit.runtime import root_runs
from remit.stores.sqlite import SqliteStore
from remit_testing.memory import MemoryStore
from remit_testing.samples import OVER_MS, a_request, a_response
from sweeps import SweptStore
from waiting import PATIENCE_S, eventually

LEASE_MS = 300
BUDGET = 4_000

Reach = Callable[[str], Awaitable[None]]


def shown(response: Response) -> str:
    return str(response.fault.code if response.fault else response.result)


class Journey:
    """A hub whose agents and tools write a line each time they are really executed, and stop where they are told to."""

    def __init__(self, folder: Path, reach: Reach | None = None, *, diverges: bool = False) -> None:
        self.store = SqliteStore(folder / "hub.db", durability="process")
        self.hub = Hub(store=self.store)
        self._log = folder / "executed.log"
        self._reach = reach
        self._diverges = diverges
        self._add_agents()

    async def ask(self, agent: str = "root", **options: Any) -> Response:
        return await self.hub.ask(agent, "travel", user="u", request_id="1", max_tokens=BUDGET, **options)

    def executed(self) -> Counter[str]:
        return Counter(self._log.read_text().split()) if self._log.exists() else Counter()

    async def do(self, step: str) -> str:
        """Leave a trace of having been executed."""
        handle = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, f"{step}\n".encode())
        os.close(handle)
        await self.reach(f"in {step}")
        return f"{step} done"

    async def reach(self, point: str) -> None:
        if self._reach is not None:
            await self._reach(point)

    async def use(self, brief: Brief, tool: str, **arguments: Any) -> str:
        try:
            return await brief.use(tool, **arguments)
        except RemitError as error:
            return str(error.fault.code)

    def _add_agents(self) -> None:
        hub = self.hub

        @hub.tool(safe_to_repeat=True)
        async def look(at: str) -> str:
            return await self.do("look")

        @hub.tool()
        async def pay(amount: int) -> str:
            return await self.do("pay")

        @hub.tool()
        async def fail() -> str:
            await self.do("fail")
            raise ZeroDivisionError

        @hub.agent("steady", resumable=True, may_call=["once"])
        async def steady(brief: Brief) -> str:
            done = await self.do("steady")
            if brief.text == "with help":
                done += ", " + shown(await brief.delegate("once", objective="help"))
                await self.reach("steady was helped")
            return done

        @hub.agent("once")
        async def once(brief: Brief) -> str:
            return await self.do("once")

        @hub.agent("shaky", resumable=True)
        async def shaky(brief: Brief) -> str:
            await self.do("shaky")
            raise ZeroDivisionError

        @hub.agent("root", resumable=True, may_call=["*"], tools=["look", "pay"])
        async def root(brief: Brief) -> list[str]:
            await self.do("root")
            first = "another way" if self._diverges else "one"
            seen = [
                shown(await brief.delegate("steady", objective=first)),
                shown(await brief.delegate("once", objective="two")),
                await self.use(brief, "look", at="three"),
                await self.use(brief, "pay", amount=4),
            ]
            await self.reach("at the end")
            return seen

        @hub.agent("nested", resumable=True, may_call=["*"])
        async def nested(brief: Brief) -> str:
            await self.do("nested")
            return shown(await brief.delegate("steady", objective="with help"))

        @hub.agent("spread", resumable=True, may_call=["*"])
        async def spread(brief: Brief) -> list[str]:
            await self.do("spread")
            calls = [Call(target=name, objective="x") for name in ("steady", "once", "shaky")]
            return [shown(each) for each in await brief.fan_out(calls)]

        @hub.agent("unlucky", resumable=True, tools=["fail"], may_call=["*"])
        async def unlucky(brief: Brief) -> list[str]:
            await self.do("unlucky")
            seen = [await self.use(brief, "fail"), shown(await brief.delegate("shaky", objective="x"))]
            await self.reach("at the end")
            return seen

        @hub.agent("greedy")
        async def greedy(brief: Brief) -> Answer:
            return Answer(await self.do("greedy"), usage=Usage(prompt=1_000))

        @hub.agent("wasteful", resumable=True, may_call=["*"])
        async def wasteful(brief: Brief) -> list[str]:
            await self.do("wasteful")
            seen = [shown(await brief.delegate("greedy", objective="x", max_tokens=10))]
            await self.reach("all is spent")
            return [*seen, shown(await brief.delegate("steady", objective="one"))]

        @hub.agent("purse")
        async def purse(brief: Brief) -> Answer:
            spent = {"first": 1_000, "second": 2_000}.get(brief.objective, brief.tokens_left())
            await self.do(f"{brief.objective}:{spent}")
            return Answer(f"{brief.objective} done", usage=Usage(prompt=spent))

        hub.add("savings", purse, resumable=True)

        async def planner(brief: Brief, *, last: str) -> list[str]:
            """Ask two at once, of which the first is granted all, and then one for all that is left."""
            calls = [
                Call(target="purse", objective="first", max_tokens=4_000),
                Call(target="purse", objective="second", max_tokens=2_000),
            ]
            seen = [shown(each) for each in await brief.fan_out(calls[::-1] if self._diverges else calls)]
            seen.append(shown(await brief.delegate(last, objective="last", max_tokens=brief.tokens_left())))
            await self.reach("at the end")
            return seen

        hub.add("planner", partial(planner, last="purse"), resumable=True, may_call=["*"])
        hub.add("saver", partial(planner, last="savings"), resumable=True, may_call=["*"])

        @hub.agent("director", resumable=True, may_call=["*"])
        async def director(brief: Brief) -> object:
            return (await brief.delegate("saver", objective="travel", max_tokens=4_000)).result

        @hub.agent("solo", may_call=["*"])
        async def solo(brief: Brief) -> str:
            await self.do("solo")
            return shown(await brief.delegate("steady", objective="one"))


DONE = ["steady done", "once done", "look done", "pay done"]
UNKNOWN = "OUTCOME_UNKNOWN"


# ── one process, two hubs: the first goes silent, the second takes its run up ─────────────────────────────────────────


class Silence:
    """Stops a hub at one point, as if its process had been stopped there, once *failed* failures are on record."""

    def __init__(self, point: str, failed: int = 0) -> None:
        self._point = point
        self._failed = failed
        self.reached = asyncio.Event()
        self.over = asyncio.Event()
        self.journey: Journey | None = None

    async def __call__(self, point: str) -> None:
        if point == self._point and not self.over.is_set():
            assert self.journey is not None
            # A failure is worded beside the event loop, so it may come after what succeeds at the same time.
            await eventually(self._failures, when=lambda failures: failures >= self._failed)
            await self.journey.store.flush()
            self.reached.set()
            await self.over.wait()

    async def _failures(self) -> int:
        assert self.journey is not None
        records = await self.journey.store.records()
        return sum(isinstance(record.body, Response) and record.body.fault is not None for record in records)


def fall_silent(hub: Hub) -> None:
    """Keep a hub from telling the others that it is alive, and from looking at what they left behind."""
    heartbeat, keeper, _ = hub._engine.leases._attendants  # pyright: ignore[reportPrivateUsage]
    for task in (heartbeat, keeper):
        task.cancel()


def take_lease(folder: Path) -> None:
    """Make the worker that has the run look dead."""
    connection = apsw.Connection(str(folder / "hub.db"))
    connection.set_busy_timeout(5_000)
    connection.execute(  # pyright: ignore[reportUnknownMemberType]
        "UPDATE request SET worker = 'dead', lease_until_ms = 0 WHERE state = 0"
    )
    connection.close()


@asynccontextmanager
async def silenced(
    folder: Path, point: str, agent: str, failed: int = 0
) -> AsyncGenerator[tuple[asyncio.Task[Response], Silence]]:
    """Run *agent* until *point* in a hub that then loses its lease; it wakes up again at the end."""
    silence = Silence(point, failed)
    silence.journey = journey = Journey(folder, silence)
    async with asyncio.timeout(PATIENCE_S), journey.hub:
        task = asyncio.create_task(journey.ask(agent))
        await silence.reached.wait()
        fall_silent(journey.hub)
        take_lease(folder)
        try:
            yield task, silence
        finally:
            silence.over.set()
            await asyncio.wait({task})


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_runs, "LEASE_MS", LEASE_MS)


async def taken_up(
    folder: Path, point: str, agent: str = "root", *, failed: int = 0, **options: Any
) -> tuple[Response, Counter[str]]:
    """Let a hub fall silent at *point*; return how another one ended the run, and what was executed in all."""
    async with silenced(folder, point, agent, failed):
        journey = Journey(folder, **options)
        async with journey.hub:
            response = await journey.ask(agent)
            executed = journey.executed()
    return response, executed


@pytest.mark.parametrize(
    ("point", "result", "twice"),
    [
        ("in root", DONE, {"root"}),
        ("in steady", DONE, {"root", "steady"}),
        ("in once", ["steady done", UNKNOWN, "look done", "pay done"], {"root"}),
        ("in look", DONE, {"root", "look"}),
        ("in pay", ["steady done", "once done", "look done", UNKNOWN], {"root"}),
        ("at the end", DONE, {"root"}),
    ],
)
async def test_a_run_goes_on_where_its_hub_fell_silent(
    tmp_path: Path, point: str, result: list[str], twice: set[str]
) -> None:
    """Decision 4: finished steps are answered from the journal, those in flight repeated only where that is safe."""
    response, executed = await taken_up(tmp_path, point)
    assert (response.status, response.result) == (Status.SUCCESS, result)
    assert executed == {step: 1 + (step in twice) for step in ("root", "steady", "once", "look", "pay")}


async def test_what_a_callee_had_finished_is_not_done_again_when_the_callee_is(tmp_path: Path) -> None:
    response, executed = await taken_up(tmp_path, "steady was helped", "nested")
    assert response.result == "steady done, once done"
    assert executed == {"nested": 2, "steady": 2, "once": 1}


async def test_of_several_at_once_each_is_repeated_known_or_unknown_for_itself(tmp_path: Path) -> None:
    """C11: one of several at once does not take the others down, here either."""
    response, executed = await taken_up(tmp_path, "in once", "spread", failed=1)
    assert response.result == ["steady done", UNKNOWN, "DELEGATION_FAILED"]
    assert executed == {"spread": 2, "steady": 1, "once": 1, "shaky": 1}


async def test_failures_of_callees_and_tools_are_finished_steps_too(tmp_path: Path) -> None:
    """Decision 4: an agent that is run again meets the failures that it met before, so it takes the same way."""
    response, executed = await taken_up(tmp_path, "at the end", "unlucky")
    assert response.result == ["DELEGATION_FAILED", "DELEGATION_FAILED"]
    assert executed == {"unlucky": 2, "fail": 1, "shaky": 1}


async def test_a_run_that_was_overrun_before_its_hub_fell_silent_is_overrun_after_that_too(tmp_path: Path) -> None:
    """Decision 12: an overrun stops the run, also the part of it that another hub carries out."""
    response, executed = await taken_up(tmp_path, "all is spent", "wasteful")
    assert response.result == ["TOKEN_BUDGET_EXCEEDED", "TOKEN_BUDGET_EXCEEDED"]
    assert (response.usage.total, executed) == (1_000, {"wasteful": 2, "greedy": 1})


SHORT = "TOKEN_BUDGET_EXCEEDED"


@pytest.mark.parametrize(
    ("agent", "point", "diverges", "result", "executed"),
    [
        ("planner", "in last:3000", False, ["first done", SHORT, UNKNOWN], {"first:1000": 1, "last:3000": 1}),
        ("planner", "at the end", False, ["first done", SHORT, "last done"], {"first:1000": 1, "last:3000": 1}),
        # Repeated with what it was granted before.
        ("saver", "in last:3000", False, ["first done", SHORT, "last done"], {"first:1000": 1, "last:3000": 2}),
        ("director", "in last:3000", False, ["first done", SHORT, "last done"], {"first:1000": 1, "last:3000": 2}),
        # In another order: what was recorded at their paths counts, and not what they would be granted.
        ("planner", "in last:3000", True, [UNKNOWN, SHORT, UNKNOWN], {"first:1000": 1, "last:3000": 1}),
        ("planner", "at the end", True, [UNKNOWN, SHORT, "last done"], {"first:1000": 1, "last:3000": 1}),
    ],
)
async def test_a_call_that_was_refused_before_gets_no_tokens_of_the_calls_that_came_after_it(
    tmp_path: Path, agent: str, point: str, diverges: bool, result: list[str], executed: dict[str, int]
) -> None:
    """What later calls were granted or spent is kept for them until the code makes them again."""
    response, executions = await taken_up(tmp_path, point, agent, diverges=diverges)
    assert (response.result, executions) == (result, executed)
    assert response.usage.total == BUDGET


async def test_a_run_whose_agent_is_not_resumable_ends_as_unknown_and_is_not_executed_again(tmp_path: Path) -> None:
    """Decision 4: never a silent second execution."""
    response, executed = await taken_up(tmp_path, "in solo", "solo")
    assert (response.status, shown(response)) == (Status.FAILED, UNKNOWN)
    assert executed == {"solo": 1}


async def test_a_step_that_is_not_the_one_recorded_is_unknown_and_the_others_stand(tmp_path: Path) -> None:
    """Decision 4: path, index and digest; an agent whose code takes another way is not given the old way's results."""
    response, executed = await taken_up(tmp_path, "at the end", diverges=True)
    assert response.result == [UNKNOWN, "once done", "look done", "pay done"]
    assert executed == {"root": 2, "steady": 1, "once": 1, "look": 1, "pay": 1}


async def test_what_was_answered_from_the_journal_is_told_in_the_record(tmp_path: Path) -> None:
    """X13: every delegation is in the audit log, those that were not done again as well."""
    async with silenced(tmp_path, "at the end", "root"):
        journey = Journey(tmp_path)
        async with journey.hub:
            response = await journey.ask()
            records = await journey.store.records(run=response.run)
    notices = [
        record.body.agent for record in records if isinstance(record.body, Notice) and "journal" in record.body.text
    ]
    tools = [record.body.tool for record in records if isinstance(record.body, ToolUse) and record.body.replayed]
    assert (notices, tools) == (["steady", "once"], ["look", "pay"])
    assert [record.kind for record in records].count(Kind.DELEGATION) == 2


async def test_a_hub_that_lost_its_lease_cannot_finish(tmp_path: Path) -> None:
    """Decision 4, the store's promise: a stale epoch is fenced off, and its asker gets the outcome that counts."""
    async with silenced(tmp_path, "at the end", "root") as (first, silence):
        journey = Journey(tmp_path)
        async with journey.hub:
            second = await journey.ask()
            silence.over.set()
            late = await first
            assert await journey.ask() == second
            runs_listed = await journey.store.runs()
    assert (second.status, second.result) == (Status.SUCCESS, DONE)
    assert (late.status, late.result) == (second.status, second.result)
    assert [run.response for run in runs_listed] == [second]


async def test_a_hub_that_lost_its_lease_writes_no_more_into_the_journal_and_begins_nothing(tmp_path: Path) -> None:
    """Decision 4: of two hubs that both believe to have a run, one does what must not be done twice."""
    async with silenced(tmp_path, "in steady", "root") as (first, silence):
        gate = Silence("in steady")
        gate.journey = journey = Journey(tmp_path, gate)
        async with journey.hub:
            second = asyncio.create_task(journey.ask())
            await gate.reached.wait()
            silence.over.set()  # the first goes on through all of its steps, each of which it believes to be its own
            await eventually(lambda: journey.executed().get("look"))
            gate.over.set()
            assert (await second).result == DONE
            assert (await first).result == DONE
    # Nothing of what the first did without a lease stands for what the second does.
    assert journey.executed() == {"root": 2, "steady": 2, "once": 1, "look": 2, "pay": 1}


async def test_the_askers_that_come_while_a_run_is_taken_up_all_get_its_outcome(tmp_path: Path) -> None:
    async with silenced(tmp_path, "in look", "root"):
        journey = Journey(tmp_path)
        async with journey.hub, asyncio.TaskGroup() as group:
            tasks = [group.create_task(journey.ask()) for _ in range(3)]
            tasks.append(group.create_task(journey.ask(deadline_ms=100_000)))
    assert [task.result().result for task in tasks] == [DONE] * 4


async def test_an_asker_that_gives_up_does_not_make_closing_forget_the_run(tmp_path: Path) -> None:
    """A run that was taken up is handed back when the hub closes, whoever asked for it and left."""
    async with silenced(tmp_path, "in root", "root"):
        gate = Silence("in root")
        gate.journey = journey = Journey(tmp_path, gate)
        async with asyncio.timeout(PATIENCE_S), journey.hub:
            hasty = asyncio.create_task(journey.ask(deadline_ms=1_000))
            await gate.reached.wait()
            assert shown(await hasty) == UNKNOWN, "it goes on"
        after = Journey(tmp_path)
        async with after.hub:
            response = await after.ask()
    assert response.result == DONE
    assert after.executed()["root"] == 3


@pytest.mark.parametrize("agent", ["root", "once"])
async def test_hubs_that_close_while_they_take_a_run_up_are_no_attempts_at_it(tmp_path: Path, agent: str) -> None:
    """A command that runs for a moment beside a dead one must not use up the attempts that it has."""
    async with silenced(tmp_path, "in root" if agent == "root" else "in once", agent):
        for _ in range(4):
            passing = Journey(tmp_path)
            claim, claimed = passing.store.claim, asyncio.Event()

            async def watched(
                *given: Any, claim: Any = claim, claimed: asyncio.Event = claimed, **options: Any
            ) -> int | None:
                epoch = await claim(*given, **options)
                claimed.set()
                return epoch

            passing.store.claim = watched
            async with passing.hub:
                if agent == "once" and (await passing.hub.store.runs())[0].response is not None:
                    break
                await claimed.wait()
        after = Journey(tmp_path)
        async with after.hub:
            response = await after.ask(agent)
    if agent == "root":
        assert response.result == DONE
    else:
        assert response.fault is not None
        assert "was at work" in response.fault.message


async def test_a_run_that_fell_silent_three_times_is_given_up(tmp_path: Path) -> None:
    """What keeps failing is set aside: it may be what kills its hub."""
    async with silenced(tmp_path, "in root", "root"):
        store = SqliteStore(tmp_path / "hub.db", durability="process")
        await store.open()
        (run,) = await store.runs()
        for epoch in (2, 3):
            assert await store.claim(run.run, "dead", 0) == epoch
        await store.close()
        journey = Journey(tmp_path)
        async with journey.hub:
            response = await journey.ask()
            assert (shown(response), journey.executed()) == (UNKNOWN, {"root": 1})


async def test_a_run_whose_agent_is_not_here_is_left_for_a_hub_that_has_it(tmp_path: Path) -> None:
    async with silenced(tmp_path, "in look", "root"):
        store = SweptStore(tmp_path / "hub.db", durability="process")
        stranger = Hub(store=store)
        async with stranger:
            await store.looked_twice()
            (run,) = await stranger.store.runs()
            assert run.response is None
        journey = Journey(tmp_path)
        async with journey.hub:
            assert (await journey.ask()).result == DONE


async def test_the_journal_is_forgotten_once_the_run_has_ended(tmp_path: Path) -> None:
    journey = Journey(tmp_path)
    async with journey.hub:
        response = await journey.ask()
        assert await journey.store.load(response.run) == {}


# ── processes that are killed ─────────────────────────────────────────────────────────────────────────────────────────


class Child:
    """This file as a program: a hub in a process of its own."""

    def __init__(self, folder: Path, agent: str, point: str = "", *, diverges: bool = False) -> None:
        command = [sys.executable, __file__, str(folder), agent, point, "diverges" if diverges else ""]
        self.process = popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=with_tests_on_path()
        )

    def line(self) -> str:
        """Return the next line that it prints; the test's own time limit bounds the wait."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def child(folder: Path, agent: str, point: str = "", *, diverges: bool = False) -> Generator[Child]:
    process = Child(folder, agent, point, diverges=diverges)
    try:
        yield process
    finally:
        process.end()


def killed_and_restarted(folder: Path, agent: str, point: str, *, diverges: bool = False) -> tuple[str, Any]:
    """Kill a hub with -9 when it reaches *point*, start another, and return how that one ended the run."""
    with child(folder, agent, point) as first:
        assert first.line() == point
        first.process.send_signal(signal.SIGKILL)
        assert first.process.wait() == -signal.SIGKILL
    with child(folder, agent, diverges=diverges) as second:
        status, outcome = json.loads(second.line())
        assert second.process.wait(PATIENCE_S) == 0
    return status, outcome


@pytest.mark.processes
@pytest.mark.parametrize(
    ("agent", "point", "outcome", "executed"),
    [
        ("root", "in once", ["steady done", UNKNOWN, "look done", "pay done"], "root 2 steady 1 once 1 look 1 pay 1"),
        ("root", "in look", DONE, "root 2 steady 1 once 1 look 2 pay 1"),
        ("root", "in pay", ["steady done", "once done", "look done", UNKNOWN], "root 2 steady 1 once 1 look 1 pay 1"),
        ("nested", "steady was helped", "steady done, once done", "nested 2 steady 2 once 1"),
        ("solo", "in steady", UNKNOWN, "solo 1 steady 1"),
    ],
)
def test_a_hub_that_is_killed_is_followed_by_one_that_takes_its_run_up(
    tmp_path: Path, agent: str, point: str, outcome: object, executed: str
) -> None:
    """Decision 4, with kill -9: finished steps are not done again, and what cannot be known is said so."""
    _, executions = killed_and_restarted(tmp_path, agent, point)
    words = executed.split()
    counts = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    assert (executions, Journey(tmp_path).executed()) == (outcome, counts)


@pytest.mark.processes
def test_a_hub_whose_code_was_changed_before_the_restart_does_not_use_the_old_results(tmp_path: Path) -> None:
    """Decision 4: path, index, digest."""
    _, executions = killed_and_restarted(tmp_path, "root", "at the end", diverges=True)
    assert executions == [UNKNOWN, "once done", "look done", "pay done"]
    assert Journey(tmp_path).executed()["steady"] == 1


@pytest.mark.processes
def test_a_hub_that_slept_while_another_took_its_run_over_is_fenced_off(tmp_path: Path) -> None:
    """The store's promise, with a process that is stopped and goes on: its outcome is not the one that counts."""
    with child(tmp_path, "root", "at the end") as sleeper:
        assert sleeper.line() == "at the end"
        sleeper.process.send_signal(signal.SIGSTOP)
        with child(tmp_path, "root") as successor:
            assert json.loads(successor.line()) == ["success", DONE]
        sleeper.process.send_signal(signal.SIGCONT)
        sleeper.tell("go on")
        assert json.loads(sleeper.line()) == ["success", DONE]
    with child(tmp_path, "root") as later:
        assert json.loads(later.line()) == ["success", DONE]


async def live(folder: Path, agent: str, stop_at: str, diverges: bool) -> None:
    """Ask once and print how it ended; say when *stop_at* is reached, and go on only when told to."""

    async def reach(point: str) -> None:
        if point == stop_at:
            await journey.store.flush()
            print(point, flush=True)
            await asyncio.to_thread(sys.stdin.readline)

    journey = Journey(folder, reach, diverges=diverges)
    async with journey.hub:
        response = await journey.ask(agent)
        print(json.dumps([response.status, shown(response) if response.fault else response.result]), flush=True)


if __name__ == "__main__":
    root_runs.LEASE_MS = LEASE_MS
    asyncio.run(live(Path(sys.argv[1]), sys.argv[2], sys.argv[3], bool(sys.argv[4])))


# ── claims ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class FailingStore(MemoryStore):
    """A store that claims, and then says that it cannot be reached: once in the claim, once right after it."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0

    async def claim(self, run: str, worker: str, lease_ms: int) -> int | None:
        epoch = await super().claim(run, worker, lease_ms)
        if self.failures == 0:
            self._fail()
        return epoch

    async def load(self, run: str) -> dict[str, bytes]:
        if self.failures == 1:
            self._fail()
        return await super().load(run)

    def _fail(self) -> None:
        self.failures += 1
        raise StoreError(fault(Code.STORE_UNAVAILABLE, "the connection was lost"))


async def test_a_run_whose_claim_was_lost_with_the_store_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_runs, "LEASE_MS", 300)
    store = FailingStore()
    hub = Hub(store=store)
    request = a_request()

    @hub.agent(request.target, resumable=True)
    async def answer(_: Brief) -> str:
        return "done"

    assert answer
    await store.open()
    await store.submit(request, b"digest", worker="dead", lease_ms=OVER_MS)
    async with hub, asyncio.timeout(PATIENCE_S):
        assert (await store.wait(request.run)).result == "done"
    assert store.failures == 2


class SlowHeartStore(MemoryStore):
    """A store that no heartbeat reaches, as if the hub stood still; and it fails once while an outcome is awaited."""

    failed = False

    async def heartbeat(self, worker: str, lease_ms: int) -> None: ...

    async def wait(self, run: str) -> Response:
        if not self.failed:
            self.failed = True
            raise StoreError(fault(Code.STORE_UNAVAILABLE, "the connection was lost"))
        return await super().wait(run)


async def test_a_hub_stops_a_run_that_another_one_has_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other hub executes or was told to stop does not go on here; whoever waits gets the outcome there."""
    monkeypatch.setattr(root_runs, "LEASE_MS", 300)
    store, stopped = SlowHeartStore(), asyncio.Event()
    begun: asyncio.Future[Brief] = asyncio.get_running_loop().create_future()
    hub = Hub(store=store)

    @hub.agent("wait", resumable=True)
    async def wait(brief: Brief) -> str:
        begun.set_result(brief)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    assert wait
    async with hub, asyncio.timeout(PATIENCE_S):
        asking = asyncio.create_task(hub.ask("wait", "Wait.", user="u"))
        brief = await begun
        request = brief.request
        while (epoch := await store.claim(request.run, "another", 60_000)) is None:
            await asyncio.sleep(0)
        await stopped.wait()
        assert await store.finish(request.run, epoch, a_response(request, "done there"), time.time_ns() // 1_000_000)
        assert (await asking).result == "done there"
        # Code of the agent that goes on after all writes nothing to the record of a run that is another hub's.
        assert (await brief.delegate("wait")).status is Status.REFUSED
        await store.flush()
        kinds = [record.kind for record in await store.records(run=request.run)]
    assert store.failed
    assert Kind.REFUSED not in kinds


class LateStore(MemoryStore):
    """A store that begins a request so late that another hub has taken it, and its user has cancelled it here."""

    hub: Hub

    async def begin(self, run: str, epoch: int, request: Request) -> bool:
        await self.release(run, epoch, begun=False)
        taken = await self.take(run, "another", 60_000)
        assert taken is not None
        assert self.hub.cancel(run, "it takes too long")
        began = await super().begin(run, epoch, request)
        assert await self.finish(run, taken.epoch, a_response(request, "done there"), 0)
        return began


async def test_a_cancel_is_not_recorded_in_a_run_that_another_hub_took_before_it_began() -> None:
    store = LateStore()
    store.hub = hub = Hub(store=store, guards=[lambda request, facts: Ask("Pay?")], approver="inbox")

    @hub.agent("pay")
    async def pay(_: Brief) -> str:
        return "never"

    assert pay
    async with hub, asyncio.timeout(PATIENCE_S):
        asking = asyncio.create_task(hub.ask("pay", "Pay bob.", user="u"))
        (question,) = await eventually(hub.pending)
        await hub.decide(question.id, agreed=True, by="ann")
        assert (await asking).result == "done there"
        await store.flush()
        kinds = [record.kind for record in await store.records(run=question.request.run)]
    assert Kind.NOTICE not in kinds
    assert kinds[-1] is Kind.RESULT


class AwayStore(MemoryStore):
    """A store that cannot take the first request, whose user cancels it meanwhile."""

    hub: Hub
    away = True

    async def submit(self, request: Request, digest: bytes, **options: Any) -> Submitted:
        if self.away:
            self.away = False
            assert self.hub.cancel(request.id, "not any more")
            raise StoreError(fault(Code.STORE_UNAVAILABLE, "the connection was lost"))
        return await super().submit(request, digest, **options)


async def test_a_request_that_was_cancelled_while_the_store_was_away_stays_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(root_runs, "LEASE_MS", 300)
    store = AwayStore()
    store.hub = hub = Hub(store=store)
    began: list[str] = []

    @hub.agent("pay")
    async def pay(brief: Brief) -> str:
        began.append(brief.text)
        return "paid"

    assert pay
    async with hub, asyncio.timeout(PATIENCE_S):
        first = await hub.ask("pay", "Pay bob.", user="u", request_id="1")
        while not await store.named("1", ANYONES):
            await asyncio.sleep(0.01)
        again = await hub.ask("pay", "Pay bob.", user="u", request_id="1")
    assert (first.fault and first.fault.code, again.status) == (Code.STORE_UNAVAILABLE, Status.CANCELLED)
    assert began == []
