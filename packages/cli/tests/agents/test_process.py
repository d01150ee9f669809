"""Agents in processes of their own (K12, decision 11)."""

import asyncio
import os
import select
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

import isolated_agents as agents
from programs import is_there
from remit import (
    Answer,
    Brief,
    Call,
    Code,
    Combined,
    ContextFilter,
    Fault,
    Handoff,
    Kind,
    Message,
    Note,
    Problem,
    Progress,
    Record,
    RemitError,
    Response,
    Strategy,
    ToolCard,
    Usage,
    fault,
)
from remit.policy.aggregate import Blend
from remit.ports import AgentFunction
from remit.ports.brief import AvailableAgent, OwnTool, Work
from remit.ports.text_reader import text_reader
from remit.protocol.envelope import Forwarded, Json
from remit.protocol.records import StepPlan
from remit_cli.processes.process import ProcessAgent
from samples import a_request, a_response
from waiting import PATIENCE_S

T = TypeVar("T")

# A callee that is told to stop has three seconds to be gone.
GRACE = 3.0


class Desk:
    """A hub's side of one delegation: notes what it is asked for and answers as the test says."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.cancelled: list[Call] = []
        self.spent: list[Usage] = []
        self.models: list[str] = []
        self.money: int | None = None
        self.partials: list[Answer | None] = []
        self.uses: list[tuple[str, Json, int, str | None]] = []
        self.notes: list[Note] = []
        self.reported_texts: asyncio.Queue[str] = asyncio.Queue()
        self.delegated = asyncio.Event()
        self.left = 1_000
        self.kept_back = 0
        self.once_results: dict[str, Json] = {}
        """Results of work that is done once."""
        self.together = asyncio.Barrier(1)

    async def delegate(self, call: Call) -> Response:
        self.calls.append(call)
        self.delegated.set()
        if call.target == "nobody-answers":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled.append(call)
                raise
        await self.together.wait()
        self.left -= 10
        return a_response(target=call.target, result=f"{call.target} did", usage=Usage(prompt=10))

    async def fan_out(self, calls: Sequence[Call]) -> list[Response]:
        return [await self.delegate(call) for call in calls]

    def blended(self, merged: Answer, text: str, blend: Blend) -> Answer:
        return text_reader().blended(merged, text, blend)

    async def combine(self, calls: Sequence[Call], strategy: Strategy) -> Combined:
        responses = await self.fan_out(calls)
        return Combined(answer=Answer(f"by {strategy}"), responses=tuple(responses), places=(0,))

    async def chain(self, calls: Sequence[Call], forward: Forwarded) -> list[Response]:
        assert forward == "result"
        return [await self.delegate(call) for call in calls]

    async def use(self, tool: str, arguments: dict[str, Json]) -> Json:
        if tool == "add":
            return arguments["one"] + arguments["two"]
        if tool == "flood":
            return "x" * (17 * 1024 * 1024)
        if tool == "wait-for-delegation":
            await self.delegated.wait()
            return None
        raise RemitError(fault(Code.TOOL_NOT_ALLOWED, f"{tool} is not for you"))

    async def use_own(
        self, tool: str, arguments: dict[str, Json], run: OwnTool, question: str, repeatable: bool
    ) -> Json:
        return await run(arguments)

    async def for_model(self, value: Json, tool: str) -> Json:
        return value

    def progress(self, text: str, partial: Answer | Callable[[], Answer] | None, plan: StepPlan | None = None) -> None:
        self.reported_texts.put_nowait(text)
        self.partials.append(partial() if callable(partial) else partial)

    def spend(self, usage: Usage, model: str, uncounted: int) -> int:
        self.spent.append(usage)
        self.models.append(model)
        self.left -= usage.total - uncounted
        return self.left

    def cost_left(self) -> int | None:
        return self.money

    async def allow_unpriced(self, model: str) -> None:
        raise AssertionError("money is not limited")

    def affordable(self, model: str, prompt: int, most: int) -> int:
        raise AssertionError("its process asks no further")

    def time_left_ms(self) -> int:
        return 5_000

    def tokens_left(self, wanted: int = 0) -> int:
        return self.left

    def keep_back(self, tokens: int) -> None:
        self.left += self.kept_back - tokens
        self.kept_back = tokens

    async def more_tokens(self, wanted: int) -> int:
        self.left = max(self.left, wanted)
        return self.left

    def original_request(self) -> str:
        return "Sort my receipts"

    def traceparent(self) -> str:
        return f"00-{'a' * 32}-{'b' * 16}-01"

    def say(self, text: str) -> None:
        self.reported_texts.put_nowait(text)

    def used(self, tool: str, arguments: Json, duration_ms: int, error: str | None) -> None:
        self.uses.append((tool, arguments, duration_ms, error))

    def note(self, note: Note) -> None:
        self.notes.append(note)

    def delegates(self) -> tuple[AvailableAgent, ...]:
        return (AvailableAgent(name="tag", description="sorts", capabilities=("TAG",)), AvailableAgent(name="tax"))

    async def confirm(self, question: str) -> bool:
        return question == "Sure?"

    async def fill(self, question: str, form: dict[str, Any]) -> dict[str, Json] | None:
        assert form == {"type": "object", "properties": {"n": {"type": "integer"}}}
        return {"n": 3} if question == "How many?" else None

    async def sample(self, prompt: str, system: str, max_tokens: int) -> str:
        return f"{prompt} {system} {max_tokens}"

    async def state(self) -> dict[str, Json]:
        return {"n": 1}

    async def change(self, changes: dict[str, Json]) -> dict[str, Json]:
        return {"n": 1, **changes}

    async def once(self, name: str, work: Work) -> Json:
        if name not in self.once_results:
            self.once_results[name] = await work()
        return self.once_results[name]

    def result_schema(self) -> dict[str, Any] | None:
        return None

    def tool_cards(self) -> tuple[ToolCard, ...]:
        return (ToolCard(name="look", input_schema={"type": "object"}),)

    async def history(self, wanted: ContextFilter, tokens: int, of: str | None) -> list[Message]:
        assert of is None
        return [Message(role="user", text=f"{wanted.last_messages} in {tokens}", seq=7)]

    async def conversation(self) -> list[Record]:
        bodies = {
            Kind.STARTED: a_request(),
            Kind.RESULT: a_response(),
            Kind.PROGRESS: Progress(delegation="r-1", agent="tag", text="half"),
        }
        return [
            Record(seq=seq, kind=kind, at_ms=1, run="run-0", session="s", body=body)
            for seq, (kind, body) in enumerate(bodies.items())
        ]

    async def facts(self) -> tuple[str, ...]:
        return ("likes tea",)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        raise AssertionError("only threads of the agent's own process wait")


@asynccontextmanager
async def process_of(function: AgentFunction, **options: Any) -> AsyncGenerator[ProcessAgent]:
    """An agent that is closed at the end of the test, with no process left."""
    agent = ProcessAgent(function, **options)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield agent
    finally:
        await agent.close()


def a_brief(desk: Desk | None = None, **changes: Any) -> Brief:
    return Brief(a_request(**changes), frozenset({"clock", "add"}), desk or Desk())


async def result_of(function: AgentFunction, desk: Desk | None = None) -> Json:
    """Return what a function answers when it is run in a process once."""
    async with process_of(function) as agent:
        return (await agent(a_brief(desk))).result


async def fault_of(function: AgentFunction) -> Fault:
    """Return why a function, run in a process once, gave no answer, without the place in its code."""
    async with process_of(function) as agent:
        with pytest.raises(RemitError) as raised:
            await agent(a_brief())
    return replace(raised.value.fault, origin=None)


def ends(pid: int) -> bool:
    """Wait until a process that may be another's child has ended, and say whether it has."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], PATIENCE_S)[0])
    finally:
        os.close(handle)


def children() -> set[int]:
    """Return the processes that this one has started and not reaped; other tests may keep some."""
    pids: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it is gone
            stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            if int(stat.rpartition(")")[2].split()[1]) == os.getpid():
                pids.add(int(entry.name))
    return pids


def open_descriptors() -> set[str]:
    return {
        f"{name} {os.readlink(path)}"
        for name in os.listdir("/proc/self/fd")
        if os.path.lexists(path := f"/proc/self/fd/{name}")
    }


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task, and return once it is; well within the grace time, or not at all."""
    task.cancel()
    async with asyncio.timeout(GRACE / 2):
        with pytest.raises(asyncio.CancelledError):
            await task


# ── answering ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("function", [agents.tell_pid, agents.tell_pid_async])
async def test_the_code_runs_in_another_process(function: AgentFunction) -> None:
    """K12: isolation of an agent's execution."""
    assert await result_of(function) != os.getpid()


async def test_a_method_that_can_be_imported_by_name_is_as_good_as_a_function() -> None:
    assert await result_of(agents.Clinic.treat) == "treated"


async def test_an_answer_arrives_whole() -> None:
    async with process_of(agents.answer_in_full) as agent:
        answer = await agent(a_brief())
    assert answer == Answer({"n": 1}, summary="one", confidence=0.5, unfinished=("two",))


async def test_an_agent_may_name_who_should_answer_instead() -> None:
    async with process_of(agents.forward) as agent:
        answer = await agent(a_brief())
    assert answer == Answer(calls=(Call(target="left"), Call(target="right", max_tokens=7)))


async def test_the_brief_says_in_the_process_what_it_says_in_the_hub() -> None:
    """Decision 8: time crosses as milliseconds left."""
    handoff = Handoff(original_request="Sort my receipts", prior_outputs={"tag": [1]})
    desk = Desk()
    async with process_of(agents.tell_brief) as agent:
        answer = (await agent(a_brief(desk, handoff=handoff, input={"é": [None, 1.5]}))).result
    assert 0 < answer.pop("time_left_ms") <= desk.time_left_ms()
    assert answer.pop("request")["handoff"] == {"original_request": "Sort my receipts", "prior_outputs": {"tag": [1]}}
    assert answer == {
        "tools": ["add", "clock"],
        "original_request": "Sort my receipts",
        "traceparent": desk.traceparent(),
        "available_delegates": ["tag", "tax"],
        "tokens_left": 1_000,
    }


async def test_an_agent_in_a_process_speaks_remembers_and_reads_back_like_any_other() -> None:
    desk = Desk()
    desk.once_results["known"] = "kept"
    async with process_of(agents.speak) as agent:
        answer = (await agent(a_brief(desk))).result
    assert answer == {
        "delegates": [["tag", "sorts", ["TAG"]], ["tax", "", []]],
        "tools": ["look"],
        "history": [[7, "3 in 500"]],
        "state": [{"n": 1}, {"n": 1, "m": [2]}],
        "once": ["kept", "found"],
        "sure": True,
        "sampled": "Say it. Be brief. 9",
        "more_tokens": [1_000, 2_000],
        "kept_back": [1_500, 1_500, 2_000],
        "filled": [{"n": 3}, None],
    }
    assert (desk.reported_texts.get_nowait(), desk.notes) == ("It is", [Note("decision", "tea")])
    assert desk.uses == [("grep", {"for": "x"}, 12, None), ("odd", None, 0, "no")]
    assert desk.once_results == {"known": "kept", "new": "found"}


async def test_a_large_input_comes_back_unchanged() -> None:
    given = {"rows": [[n, "ü" * 50] for n in range(20_000)]}
    async with process_of(agents.echo) as agent:
        assert (await agent(a_brief(input=given))).result == given


async def test_what_an_agent_prints_does_no_harm_and_stays_out_of_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    assert await result_of(agents.shout) == "hoarse"
    printed = capfd.readouterr()
    assert printed.out == ""
    assert (printed.err.count("x"), printed.err.count("y")) == (1_000_000, 1_000_000)


# ── asking for something ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_delegates_from_its_process() -> None:
    """K12: an isolated agent has the same brief as any other."""
    desk = Desk()
    assert await result_of(agents.delegate, desk) == ["success", "tag did", 10, 990]
    assert desk.calls == [
        Call(target="tag", objective="Categorize", input={"n": [1]}, max_tokens=40, tools=frozenset({"clock"}))
    ]


async def test_a_plain_function_delegates_and_waits() -> None:
    assert await result_of(agents.delegate_and_wait) == "tag did"


async def test_calls_made_at_once_are_under_way_at_once() -> None:
    desk = Desk()
    desk.together = asyncio.Barrier(2)
    assert await result_of(agents.delegate_two_at_once, desk) == ["one did", "two did"]


async def test_an_agent_asks_several_from_its_process() -> None:
    several = await result_of(agents.delegate_several)
    assert several == ["one did", "two did", "three did", "four did", "five did"]


async def test_a_call_that_cannot_be_said_is_refused_and_a_mistyped_one_left_to_the_hub() -> None:
    desk = Desk()
    assert await result_of(agents.delegate_nonsense, desk) == ["refused", "INPUT_VALIDATION_FAILED", "tag did"]
    assert desk.calls == [Call(target="tag", max_tokens="many")]  # pyright: ignore[reportArgumentType]


async def test_an_agent_that_gives_up_on_a_call_goes_on_and_its_process_is_kept() -> None:
    desk = Desk()
    async with process_of(agents.delegate_and_give_up) as agent:
        for _ in range(2):
            assert (await agent(a_brief(desk))).result == ["gave up", "gave up"]
    assert len(desk.cancelled) == len(desk.calls)


async def test_a_call_that_nobody_waits_for_ends_with_the_answer_and_the_process_with_it() -> None:
    desk = Desk()
    async with process_of(agents.answer_without_waiting) as agent:
        pid = (await agent(a_brief(desk))).result
        assert desk.cancelled == [Call(target="nobody-answers")]
        assert not is_there(pid)


async def test_an_agent_uses_a_tool() -> None:
    assert await result_of(agents.use) == 3


async def test_more_wishes_than_are_carried_out_at_once_are_all_answered() -> None:
    assert await result_of(agents.use_hundreds_at_once) == sum(range(1_000))


async def test_a_fault_keeps_its_code_on_the_way_in() -> None:
    assert await result_of(agents.use_what_is_forbidden) == Code.TOOL_NOT_ALLOWED


async def test_what_is_too_large_for_a_process_is_refused_both_ways() -> None:
    assert await result_of(agents.use_what_gives_too_much) == Code.TOO_LARGE
    async with process_of(agents.echo) as agent:
        with pytest.raises(RemitError, match="TOO_LARGE"):
            await agent(a_brief(input="x" * (17 * 1024 * 1024)))


async def test_an_agent_reads_facts_and_conversation() -> None:
    records = [[0, "started", "Request"], [1, "result", "Response"], [2, "progress", "Progress"]]
    assert await result_of(agents.recall) == [["likes tea"], records]


async def test_progress_and_spending_reach_the_hub_and_the_account_agrees() -> None:
    desk = Desk()
    assert await result_of(agents.report, desk) == [958, 958]
    assert (desk.reported_texts.get_nowait(), desk.partials) == ("half", [Answer("a half", unfinished=("the rest",))])
    assert desk.spent == [Usage(prompt=30, completion=12, cache_write=4, cache_read=5)]
    assert desk.models == ["acme:small"]


async def test_spending_more_than_was_granted_is_refused_on_the_spot() -> None:
    assert (await fault_of(agents.overspend)).code is Code.TOKEN_BUDGET_EXCEEDED


async def test_a_brief_is_of_no_use_after_its_answer() -> None:
    async with process_of(agents.use_an_old_brief) as agent:
        assert (await agent(a_brief())).result == "first"
        assert (await agent(a_brief())).result == Code.CANCELLED


# ── failing ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("function", [agents.fail, agents.fail_async])
async def test_an_exception_is_told_by_type_and_text(function: AgentFunction) -> None:
    assert await fault_of(function) == fault(Code.DELEGATION_FAILED, "tag raised ValueError: the sums do not add up")


@pytest.mark.parametrize(
    ("function", "text"),
    [(agents.leave, "SystemExit: enough"), (agents.cancel_oneself, "CancelledError: of my own accord")],
)
async def test_an_agent_that_wants_to_end_its_process_has_failed(function: AgentFunction, text: str) -> None:
    assert await fault_of(function) == fault(Code.DELEGATION_FAILED, f"tag raised {text}")


async def test_a_fault_keeps_its_code_on_the_way_out() -> None:
    assert await fault_of(agents.refuse) == fault(Code.RATE_LIMITED, "not now", retry_after_ms=70)


async def test_an_answer_that_is_not_json_is_refused() -> None:
    why = await fault_of(agents.answer_with_an_object)
    assert (why.code, "not JSON" in why.message) == (Code.RESULT_VALIDATION_FAILED, True)


async def test_an_answer_with_a_wrong_field_is_refused_and_the_field_named() -> None:
    why = await fault_of(agents.answer_mistyped)
    assert why.code is Code.RESULT_VALIDATION_FAILED
    assert why.problems == (Problem("$.confidence", "Expected `float` <= 1.0"),)


async def test_an_answer_beyond_all_bounds_is_refused() -> None:
    assert (await fault_of(agents.flood)).code is Code.RESULT_VALIDATION_FAILED


@pytest.mark.parametrize(
    ("function", "how"),
    [
        (agents.die, "signal 9"),
        (agents.die_but_leave_a_fork_that_holds_the_channel, "signal 9"),
        (agents.exit_at_once, "exit code 3"),
    ],
)
async def test_a_process_that_dies_is_reported_with_how(function: AgentFunction, how: str) -> None:
    """K12: an agent's death is its own."""
    why = await fault_of(function)
    assert (why.code, why.message.partition(":")[2].partition(":")[2]) == (
        Code.DELEGATION_FAILED,
        f" its process died ({how})",
    )


async def test_a_process_that_is_killed_takes_no_sibling_along() -> None:
    """K12: an agent in its own process that is killed."""
    desk, sibling_desk = Desk(), Desk()
    sibling_desk.together = asyncio.Barrier(2)
    async with process_of(agents.sleep) as agent, process_of(agents.delegate) as sibling, asyncio.TaskGroup() as group:
        going_on = group.create_task(sibling(a_brief(sibling_desk)))
        killed = asyncio.ensure_future(agent(a_brief(desk)))
        os.kill(int(await desk.reported_texts.get()), 9)
        with pytest.raises(RemitError, match=r"its process died \(signal 9\)"):
            await killed
        await sibling_desk.together.wait()
        assert (await going_on).result[1] == "tag did"


@pytest.mark.parametrize(
    ("function", "code"),
    [(agents.say_garbage, Code.DELEGATION_FAILED), (agents.say_too_much, Code.RESULT_VALIDATION_FAILED)],
)
async def test_a_process_that_does_not_keep_to_the_protocol_is_ended(function: AgentFunction, code: Code) -> None:
    assert (await fault_of(function)).code is code


async def test_code_that_cannot_be_imported_is_reported_with_why() -> None:
    def stray(brief: Brief) -> None: ...

    stray.__module__, stray.__qualname__ = "no_such_module", "stray"
    why = await fault_of(stray)
    assert why.code is Code.DELEGATION_FAILED
    assert why.message == (
        "no_such_module:stray cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"
    )


async def test_a_process_that_cannot_be_started_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = open_descriptors()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    why = await fault_of(agents.tell_pid)
    assert (why.code, "no process can be started" in why.message) == (Code.DELEGATION_FAILED, True)
    assert open_descriptors() == before


class Doctor:
    def __call__(self, brief: Brief) -> None: ...

    def method(self, brief: Brief) -> None: ...


def main_function(brief: Brief) -> None: ...


def local_function() -> AgentFunction:
    def inner(brief: Brief) -> None: ...

    return inner


main_function.__module__ = "__main__"
nameless: AgentFunction = lambda brief: None  # noqa: E731 - what is refused


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (nameless, "make it a function at the top of a module"),
        (local_function(), "make it a function at the top of a module"),
        (Doctor(), "make it a function at the top of a module"),
        (Doctor().method, "make it a function at the top of a module"),
        (main_function, "move it to a module and import it from there"),
    ],
)
def test_a_function_that_no_other_process_can_import_is_refused_with_what_to_do(
    function: AgentFunction, advice: str
) -> None:
    with pytest.raises(RemitError) as raised:
        ProcessAgent(function)
    assert raised.value.fault.code is Code.TEAM_INVALID
    assert raised.value.fault.message.endswith(advice)


# ── stopping ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("function", [agents.sleep, agents.spin, agents.ignore_signals])
async def test_a_process_is_gone_once_its_delegation_is_cancelled(function: AgentFunction) -> None:
    """K12: whatever it is doing."""
    desk = Desk()
    async with process_of(function) as agent:
        task = asyncio.ensure_future(agent(a_brief(desk)))
        pid = int(await desk.reported_texts.get())
        await cancelled(task)
        assert not is_there(pid)


async def test_what_a_process_has_started_goes_with_it() -> None:
    desk = Desk()
    async with process_of(agents.sleep_with_a_helper) as agent:
        task = asyncio.ensure_future(agent(a_brief(desk)))
        helper = int(await desk.reported_texts.get())
        await cancelled(task)
        assert ends(helper)


async def test_cancellation_reaches_the_calls_that_a_process_waits_for() -> None:
    """Decision 8: cancellation crosses every hop, including processes."""
    desk = Desk()
    async with process_of(agents.wait_for_others) as agent:
        task = asyncio.ensure_future(agent(a_brief(desk)))
        pid = int(await desk.reported_texts.get())
        await desk.delegated.wait()
        await cancelled(task)
        assert len(desk.cancelled) == len(desk.calls) > 0
        assert not is_there(pid)


async def test_a_process_that_is_still_starting_can_be_cancelled() -> None:
    others = children()
    async with process_of(agents.tell_pid) as agent:
        task = asyncio.ensure_future(agent(a_brief()))
        await asyncio.sleep(0)
        await cancelled(task)
    assert children() == others


async def test_closing_ends_what_is_running() -> None:
    desk = Desk()
    async with process_of(agents.sleep) as agent:
        task = asyncio.ensure_future(agent(a_brief(desk)))
        pid = int(await desk.reported_texts.get())
        await agent.close()
        assert not is_there(pid)
        with pytest.raises(RemitError, match="its process died"):
            await task


@pytest.mark.parametrize("name", ["sleep", "spin"])
def test_a_process_does_not_outlive_its_hub(name: str, tmp_path: Path) -> None:
    """Even if the hub is killed, and the agent is busy."""
    program = f"""
import asyncio, sys
sys.path[:] = {sys.path!r}
import isolated_agents as agents
from remit import Hub

hub = Hub(store={str(tmp_path / "hub.db")!r})
hub.agent("busy", isolation="process")(agents.{name})

async def main():
    async with hub:
        async for record in hub.stream("busy", user="u-1"):
            if record.kind == "progress":
                print(record.body.text, flush=True)

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as hub:
        assert hub.stdout is not None
        pid = int(hub.stdout.readline())
        hub.kill()
    assert ends(pid)


# ── using a process again ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("function", [agents.tell_pid, agents.tell_pid_async])
async def test_a_process_is_used_again(function: AgentFunction) -> None:
    async with process_of(function) as agent:
        assert (await agent(a_brief())).result == (await agent(a_brief())).result


async def test_a_process_is_used_again_after_an_orderly_failure() -> None:
    async with process_of(agents.fail_by_pid) as agent:
        messages: set[str] = set()
        for _ in range(2):
            with pytest.raises(RemitError, match="raised ValueError: by ") as raised:
                await agent(a_brief())
            messages.add(raised.value.fault.message)
    assert len(messages) == 1


async def test_a_process_is_not_used_again_after_a_cancellation() -> None:
    desk = Desk()
    async with process_of(agents.first_sleep_then_answer) as agent:
        first = (await agent(a_brief())).result
        task = asyncio.ensure_future(agent(a_brief(desk, input="sleep")))
        assert int(await desk.reported_texts.get()) == first
        await cancelled(task)
        assert (await agent(a_brief())).result != first


async def test_delegations_at_once_have_a_process_each_and_only_a_few_are_kept() -> None:
    desk = Desk()
    desk.together = asyncio.Barrier(3)
    async with process_of(agents.delegate_and_tell_pid, max_idle=1) as agent:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(agent(a_brief(desk))) for _ in range(3)]
        pids = {task.result().result for task in tasks}
        assert (len(pids), sum(map(is_there, pids))) == (3, 1)


async def test_a_process_that_nobody_needs_is_ended() -> None:
    async with process_of(agents.tell_pid, idle_s=0) as agent:
        assert await asyncio.to_thread(ends, (await agent(a_brief())).result)


async def test_a_process_that_dies_while_it_is_idle_is_replaced() -> None:
    async with process_of(agents.tell_pid) as agent:
        first = (await agent(a_brief())).result
        os.kill(first, 9)
        for watcher in [each for each in threading.enumerate() if each.name == f"remit-process-{first}"]:
            watcher.join(PATIENCE_S)  # blocking, so that the loop has not heard of it yet
        assert (await agent(a_brief())).result != first


async def test_closing_leaves_no_process_no_descriptor_and_no_task() -> None:
    """K12: nothing of an isolated agent stays behind."""
    before, others = open_descriptors(), children()
    async with (
        process_of(agents.tell_pid) as answering,
        process_of(agents.die) as dying,
        process_of(agents.spin) as busy,
    ):
        desk = Desk()
        spinning = asyncio.ensure_future(busy(a_brief(desk)))
        await answering(a_brief())
        with pytest.raises(RemitError):
            await dying(a_brief())
        await desk.reported_texts.get()
        await cancelled(spinning)
    assert open_descriptors() == before
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert children() == others
