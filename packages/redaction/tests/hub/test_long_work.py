"""What takes long is done beside the event loop: whoever asks for little does not wait for whoever asks for much."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from remit import (
    Answer,
    Brief,
    Call,
    Capability,
    Code,
    Delta,
    Finding,
    Hub,
    Kind,
    Limits,
    Rate,
    Refusal,
    Request,
    Response,
    Status,
)
from remit.policy.verdict import MAX_FINDINGS
from remit.policy.weight import LIGHT
from remit.protocol.codec import MAX_VALUES
from remit_redaction import detector_pipeline
from remit_testing import ManualClock
from waiting import PATIENCE_S

BOUND_S = 50
MAIL = "ada@example.org"
MUCH = [f"{number} {MAIL}" for number in range(200)]
"""Too much to be looked through in the event loop."""

MakeHub = Callable[..., Hub]


class Watched:
    """A detector that notes in which thread it looks at what, and may be made to wait there."""

    def __init__(self, *, waits: bool = False) -> None:
        self._find = detector_pipeline()
        self.threads: dict[str, set[int]] = {}
        self.at_it = threading.Event()
        self.go_on = threading.Event()
        if not waits:
            self.go_on.set()

    def __call__(self, text: str) -> Iterable[Finding]:
        self.threads.setdefault(text, set()).add(threading.get_ident())
        if text.removeprefix("rows: ").startswith(f"7 {MAIL}"):
            self.at_it.set()
            assert self.go_on.wait(BOUND_S)
        return self._find(text)

    async def begun(self) -> None:
        assert await asyncio.to_thread(self.at_it.wait, BOUND_S)


def agents(hub: Hub) -> list[Any]:
    seen: list[Any] = []

    @hub.agent("echo")
    async def echo(brief: Brief) -> Any:
        seen.append(brief.input)
        return brief.input or brief.text

    @hub.agent("boss", may_call=["echo", "finder"])
    async def boss(brief: Brief) -> Any:
        response = await brief.delegate("echo", objective="Say it again", input=brief.input, max_tokens=20_000)
        seen.append(response.result)
        return response.result

    @hub.agent("finder")
    async def finder(_: Brief) -> Any:
        return MUCH

    assert all((echo, boss, finder))
    return seen


async def test_much_is_redacted_in_another_thread_and_little_in_the_loop(make_hub: MakeHub) -> None:
    detect = Watched()
    hub = make_hub(redaction=detect)
    seen, here = agents(hub), threading.get_ident()
    async with hub, asyncio.timeout(BOUND_S):
        response = await hub.ask("boss", user="u", input=MUCH)
        assert response.result == MUCH, "the user gets back what is theirs"
        assert (await hub.ask("echo", f"hello {MAIL}", user="u")).result == f"hello {MAIL}"
    assert all(MAIL not in str(each) and "[EMAIL:" in str(each) for each in seen[:2])
    assert all(here not in detect.threads[text] for text in MUCH)
    assert detect.threads[f"hello {MAIL}"] == {here}


async def test_others_are_answered_while_much_is_looked_through(make_hub: MakeHub) -> None:
    detect = Watched(waits=True)
    hub = make_hub(redaction=detect)
    agents(hub)
    async with hub, asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
        asking = group.create_task(hub.ask("echo", user="u", input=MUCH))
        await detect.begun()
        assert (await hub.ask("echo", f"hello {MAIL}", user="u")).ok
        assert not asking.done()
        detect.go_on.set()
        assert (await asking).result == MUCH


async def test_others_are_answered_while_a_large_answer_is_looked_through(make_hub: MakeHub) -> None:
    detect = Watched(waits=True)
    hub = make_hub(redaction=detect)
    agents(hub)
    async with hub, asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
        asking = group.create_task(hub.ask("finder", "look", user="u"))
        await detect.begun()
        assert (await hub.ask("echo", f"hello {MAIL}", user="u")).ok
        assert not asking.done()
        detect.go_on.set()
        assert (await asking).result == MUCH
        records = await hub.store.records(run=(await asking).run)
    assert MAIL not in str(records)


async def test_an_agent_gets_back_of_a_large_answer_what_it_sent_itself(make_hub: MakeHub) -> None:
    hub = make_hub(redaction=detector_pipeline(patterns={"STAFF": r"\bST-[0-9]{6}\b"}))
    given: list[Any] = []
    mine = [f"ST-{number:06d}" for number in range(200)]

    @hub.agent("keeper")
    async def keeper(brief: Brief) -> Any:
        return [*brief.input, *MUCH]

    @hub.agent("owner", may_call=["keeper"])
    async def owner(brief: Brief) -> str:
        given.append((await brief.delegate("keeper", objective="keep", input=mine, max_tokens=20_000)).result)
        return brief.text

    assert keeper
    assert owner
    async with hub, asyncio.timeout(BOUND_S):
        assert (await hub.ask("owner", "go", user="u")).ok
    assert given[0][: len(mine)] == mine
    assert all("[EMAIL:" in each for each in given[0][len(mine) :])


async def test_what_changed_while_it_was_looked_through_counts(make_hub: MakeHub) -> None:
    """Two large requests are looked through while one is allowed: what was allowed then is judged again."""
    detect = Watched(waits=True)
    hub = make_hub(redaction=detect)

    @hub.agent("once", rate=Rate(1, 3_600))
    async def once(_: Brief) -> str:
        return "done"

    assert once
    async with hub, asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
        requests = [group.create_task(hub.ask("once", user="u", input=[*MUCH, each])) for each in ("a", "b")]
        await detect.begun()
        detect.go_on.set()
        ended = [await each for each in requests]
    assert sorted(each.status for each in ended) == [Status.REFUSED, Status.SUCCESS]
    assert [each.fault.code for each in ended if each.fault is not None] == [Code.RATE_LIMITED]


async def test_what_is_cancelled_while_it_is_looked_through_never_begins(make_hub: MakeHub) -> None:
    detect = Watched(waits=True)
    hub = make_hub(redaction=detect)
    seen = agents(hub)
    async with hub, asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
        asking = group.create_task(hub.ask("echo", user="u", input=MUCH, request_id="mine"))
        await detect.begun()
        assert hub.cancel("mine")
        detect.go_on.set()
        assert (await asking).fault.code is Code.CANCELLED  # pyright: ignore[reportOptionalMemberAccess]
    assert seen == []


async def test_what_is_refused_for_its_tokens_is_not_redacted(make_hub: MakeHub) -> None:
    detect = Watched()
    hub = make_hub(redaction=detect)
    agents(hub)
    async with hub, asyncio.timeout(BOUND_S):
        response = await hub.ask("echo", user="u", input=MUCH, max_tokens=100)
        records = await hub.store.records(run=response.run)
    assert response.fault is not None
    assert response.fault.code is Code.TOKEN_BUDGET_EXCEEDED
    assert not any(text in detect.threads for text in MUCH)
    (refusal,) = [record.body for record in records if isinstance(record.body, Refusal)]
    assert (refusal.request.target, refusal.request.input) == ("echo", None), "who was asked is kept, and not what"
    assert "not stored" in refusal.request.objective


async def test_an_agent_that_may_not_be_asked_is_not_even_looked_up_for_much(make_hub: MakeHub) -> None:
    detect = Watched()
    hub = make_hub(redaction=detect)
    agents(hub)
    async with hub, asyncio.timeout(BOUND_S):
        response = await hub.ask("nobody", user="u", input=MUCH)
    assert response.fault is not None
    assert response.fault.code is Code.AGENT_NOT_FOUND
    assert not any(text in detect.threads for text in MUCH)


async def test_too_much_personal_data_is_refused_and_too_much_of_it_in_an_answer_is_no_answer(
    make_hub: MakeHub,
) -> None:
    hub = make_hub(limits=Limits(root_tokens=1_000_000, root_time_ms=240_000, delegation_time_ms=240_000))
    mails = [f"u{number}@b.example" for number in range(MAX_FINDINGS + 1)]

    @hub.agent("finder")
    async def finder(brief: Brief) -> Any:
        return mails if brief.text == "all" else mails[:3]

    assert finder
    async with hub, asyncio.timeout(PATIENCE_S):
        refused = await hub.ask("finder", user="u", input=mails)
        flooded = await hub.ask("finder", "all", user="u")
        few = await hub.ask("finder", "few", user="u")
    assert refused.fault is not None
    assert (refused.status, refused.fault.code) == (Status.REFUSED, Code.TOO_LARGE)
    assert flooded.fault is not None
    assert (flooded.result, flooded.fault.code) == (None, Code.RESULT_VALIDATION_FAILED)
    assert str(MAX_FINDINGS) in flooded.fault.message
    assert few.result == mails[:3]


async def test_an_answer_of_too_many_values_is_no_answer(hub: Hub) -> None:
    @hub.agent("counter")
    async def counter(_: Brief) -> Any:
        return [1] * (MAX_VALUES + 1)

    assert counter
    async with hub, asyncio.timeout(BOUND_S):
        response = await hub.ask("counter", "count", user="u")
    assert response.fault is not None
    assert (response.fault.code, str(MAX_VALUES) in response.fault.message) == (Code.RESULT_VALIDATION_FAILED, True)


async def test_what_a_large_input_lacks_is_told_in_few_words(make_hub: MakeHub) -> None:
    schema = {"type": "object", "properties": {"rows": {"type": "array", "items": {"type": "integer"}}}}
    hub = make_hub()

    @hub.agent("counter", capabilities=[Capability(code="COUNT", input_schema=schema)])
    async def counter(_: Brief) -> str:
        return "done"

    assert counter
    async with hub, asyncio.timeout(BOUND_S):
        many = await hub.ask("counter", user="u", capability="COUNT", input={"rows": MUCH})
        long = await hub.ask("counter", user="u", capability="COUNT", input={"rows": "x" * 50_000})
    for response in (many, long):
        assert response.fault is not None
        assert response.fault.code is Code.INPUT_VALIDATION_FAILED
        assert 0 < len(response.fault.problems) <= 20
        assert len(str(response.fault)) < LIGHT


async def test_a_large_part_that_was_finished_is_kept_when_the_time_is_over(make_hub: MakeHub) -> None:
    clock = ManualClock()
    hub = make_hub(clock=clock)
    waiting = asyncio.Event()

    @hub.agent("slow")
    async def slow(brief: Brief) -> str:
        brief.progress("some", partial=Answer(MUCH, finished=("some",)))
        waiting.set()
        await asyncio.Event().wait()
        return "never"

    assert slow
    async with hub, asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
        asking = group.create_task(hub.ask("slow", "work", user="u", deadline_ms=1_000))
        await waiting.wait()
        clock.advance(1.05)
        response = await asking
    assert (response.status, response.result, response.finished) == (Status.TIMEOUT, MUCH, ("some",))


async def test_much_that_an_agent_says_at_once_reaches_who_listens_redacted(make_hub: MakeHub) -> None:
    detect = Watched()
    hub = make_hub(redaction=detect)
    text = "\n".join([*MUCH, *MUCH])

    @hub.agent("talker")
    async def talker(brief: Brief) -> str:
        brief.say(text)
        return "done"

    assert talker
    texts: list[str] = []
    async with hub, asyncio.timeout(BOUND_S):
        with hub.events() as events:
            response = await hub.ask("talker", "talk", user="u")
            assert response.ok
            texts += [record.body.text for record in events.ready(1_000) if isinstance(record.body, Delta)]
    assert "".join(texts).count("[EMAIL:") == 2 * len(MUCH)
    assert threading.get_ident() not in detect.threads[text]


async def test_an_agent_that_blocks_the_loop_past_its_deadline_ends_as_a_time_out(make_hub: MakeHub) -> None:
    class Stopped(ManualClock):
        """Time that passes without anyone being told, as it does while the loop is blocked."""

        passed = 0.0

        def now(self) -> float:
            return super().now() + self.passed

    clock = Stopped()
    hub = make_hub(clock=clock)

    @hub.agent("blocker")
    async def blocker(_: Brief) -> str:
        clock.passed += 5
        return "too late"

    assert blocker
    async with hub, asyncio.timeout(BOUND_S):
        response = await hub.ask("blocker", "block", user="u", deadline_ms=1_000)
        in_time = await hub.ask("blocker", "block", user="u", deadline_ms=60_000)
    assert response.fault is not None
    assert (response.status, response.fault.code, response.result) == (Status.TIMEOUT, Code.TIMEOUT, None)
    assert in_time.result == "too late"


async def test_a_large_call_of_an_agent_is_asked_of_a_person_and_goes_on(make_hub: MakeHub) -> None:
    from remit import Ask, Facts, Verdict
    from remit.policy.verdict import ALLOW
    from remit.ports import Question

    shown: list[Question] = []

    def asks(request: Request, facts: Facts) -> Verdict:
        return Ask("May it?") if request.target == "echo" and facts.caller is not None else ALLOW

    async def agree(question: Question) -> bool:
        shown.append(question)
        return True

    hub = make_hub(guards=[asks], approver=agree)
    agents(hub)
    async with hub, asyncio.timeout(BOUND_S):
        assert (await hub.ask("boss", user="u", input=MUCH)).result == MUCH
    assert len(shown) == 1
    assert MAIL not in str(shown[0])


async def test_several_large_answers_become_one(make_hub: MakeHub) -> None:
    hub = make_hub()
    agents(hub)

    @hub.agent("editor", may_call=["finder", "echo"])
    async def editor(brief: Brief) -> Response:
        combined = await brief.combine([Call(target="finder", objective="a"), Call(target="echo", objective="b")])
        assert combined.answer is not None
        return combined.answer  # pyright: ignore[reportReturnType]

    assert editor
    async with hub, asyncio.timeout(BOUND_S):
        assert (await hub.ask("editor", "both", user="u")).ok


@pytest.mark.parametrize("capability", [None, "KEEP"])
async def test_what_an_agent_keeps_may_be_large(make_hub: MakeHub, capability: str | None) -> None:
    detect = Watched()
    hub = make_hub(redaction=detect)

    @hub.agent("keeper", capabilities=["KEEP"])
    async def keeper(brief: Brief) -> Any:
        await brief.update_state(rows=brief.input)
        return len((await brief.state())["rows"])  # pyright: ignore[reportArgumentType]

    assert keeper
    async with hub, asyncio.timeout(BOUND_S):
        kept = await hub.ask("keeper", user="u", input=MUCH, session="s", capability=capability)
    assert kept.result == len(MUCH)
    assert all(threading.get_ident() not in threads for text, threads in detect.threads.items() if MAIL in text)


# ── arguments of tools ────────────────────────────────────────────────────────────────────────────────────────────────


def with_a_tool(hub: Hub) -> None:
    @hub.tool("store", safe_to_repeat=True)
    async def store(rows: list[str]) -> int:
        return len(rows)

    @hub.agent("keeper", tools=["store"])
    async def keeper(brief: Brief) -> Any:
        return await brief.use("store", rows=MUCH)

    assert all((store, keeper))


async def test_long_arguments_of_a_tool_are_redacted_in_another_thread(make_hub: MakeHub) -> None:
    detect = Watched()
    hub = make_hub(redaction=detect)
    with_a_tool(hub)
    async with hub, asyncio.timeout(BOUND_S):
        response = await hub.ask("keeper", "keep", user="u")
        records = await hub.store.records(run=response.run)
    assert response.result == len(MUCH)
    (use,) = (record for record in records if record.kind == Kind.TOOL)
    assert "[EMAIL:" in str(use.body)
    assert MAIL not in str(records)
    assert all(threading.get_ident() not in detect.threads[f"rows: {text}"] for text in MUCH)


async def test_a_tool_that_was_used_is_on_record_though_its_run_is_cancelled_meanwhile(make_hub: MakeHub) -> None:
    detect = Watched(waits=True)
    hub = make_hub(redaction=detect)
    with_a_tool(hub)
    async with hub, asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
        asking = group.create_task(hub.ask("keeper", "keep", user="u", request_id="kept"))
        await detect.begun()
        assert hub.cancel("kept", "enough")
        detect.go_on.set()
        response = await asking
        records = await hub.store.records(run=response.run)
    assert response.status == Status.CANCELLED
    assert len([record for record in records if record.kind == Kind.TOOL]) == 1
    assert MAIL not in str(records)


# ── ending while something is loaded ──────────────────────────────────────────────────────────────────────────────────

ENDS_AT_ONCE = """
import time
from remit.runtime.redactor import Redactor

def detect(text):
    return ()

def warm():
    time.sleep(0.5)
    print("loaded")

detect.warm = warm
Redactor(detect, bytes(32)).warm()
print("at its end")
"""


def test_a_process_that_ends_lets_detectors_finish_loading() -> None:
    """Python cuts off the threads that it does not wait for; cut off inside RE2, the whole process aborts."""
    done = subprocess.run([sys.executable, "-c", ENDS_AT_ONCE], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["at its end", "loaded", ""]
