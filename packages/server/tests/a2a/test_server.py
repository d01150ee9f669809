"""Agents of a hub behind A2A, asked in both bindings, with nothing between a test and the wire."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict

from a2a_serving import BINDINGS, Caller, Wrong, client_of, message, speaking, state, text_of
from remit import Answer, Artifact, Ask, Brief, Capability, Facts, Hub, Limits, Rate, Request, Verdict
from remit.policy.verdict import ALLOW
from remit_server.dialects.a2a.errors import EXTENSION
from remit_testing import ManualClock
from waiting import PATIENCE_S, eventually

both = pytest.mark.parametrize("binding", BINDINGS)


@pytest.fixture
def make_hub(tmp_path: Path) -> Callable[..., Hub]:
    def make(**options: Any) -> Hub:
        return Hub(store=tmp_path / "hub.db", durability="process", **options)

    return make


@pytest.fixture
def hub(make_hub: Callable[..., Hub]) -> Hub:
    return make_hub()


def echo(hub: Hub) -> list[str]:
    texts: list[str] = []

    @hub.agent("echo", description="Says it again.")
    async def say(brief: Brief) -> str:
        texts.append(brief.text)
        brief.progress("at it")
        return f"{brief.user}: {brief.text}"

    assert say
    return texts


class Sleeper:
    """An agent that works until it is told to go on, or is cancelled."""

    def __init__(self, hub: Hub) -> None:
        self.began, self.go_on, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @hub.agent("sleeper")
        async def sleep(brief: Brief) -> str:
            self.began.set()
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            brief.progress("awake")
            return "slept"

        assert sleep


def asking(hub: Hub) -> None:
    """Add an agent that has to ask its user first."""

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> Answer:
        heard = [each.text for each in await brief.history()]
        if not heard:
            return Answer("Which month?", requires_followup=True)
        if brief.text == "again":
            return Answer("Which year?", requires_followup=True)
        return Answer(f"{heard[0]} for {brief.text}")

    assert clerk


async def all_of(stream: AsyncGenerator[Any, None]) -> list[Any]:
    return [event async for event in stream]


async def declined(call: Any) -> Wrong:
    with pytest.raises(Wrong) as wrong:
        await call
    return wrong.value


# ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@both
async def test_a_message_is_answered_with_its_task_at_the_end(hub: Hub, binding: str) -> None:
    echo(hub)
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "echo", binding)
        task = await ask.send("joe@example.com")
        again = await ask("GetTask", id=task["id"])
    assert (state(task), text_of(task)) == ("COMPLETED", "anna: joe@example.com")
    assert task["contextId"]
    assert task["history"][0]["parts"] == [{"text": "joe@example.com"}], "the user's own words come back"
    assert again | {"status": task["status"]} == task
    assert ParseDict(task, pb.Task()).status.state == pb.TASK_STATE_COMPLETED


@both
async def test_personal_data_does_not_reach_the_agent(hub: Hub, binding: str) -> None:
    """X12: redacted before the delegate sees it, and restored for the caller."""
    asked = echo(hub)
    async with speaking(hub) as server, client_of(server) as session:
        await Caller(session, "echo", binding).send("joe@example.com")
    assert "joe" not in asked[0]


@both
async def test_whoever_cannot_wait_gets_the_task_at_once_and_looks_again(hub: Hub, binding: str) -> None:
    sleeper = Sleeper(hub)
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "sleeper", binding)
        task = await ask.send("sleep", returnImmediately=True)
        assert state(task) == "WORKING"
        assert state(await ask("GetTask", id=task["id"])) == "WORKING"
        await asyncio.wait_for(sleeper.began.wait(), PATIENCE_S)
        sleeper.go_on.set()
        ended = await ask.until(task["id"], "COMPLETED", "FAILED")
    assert (state(ended), text_of(ended)) == ("COMPLETED", "slept")


@both
async def test_a_stream_begins_with_the_task_and_ends_with_its_end(hub: Hub, binding: str) -> None:
    @hub.agent("talker")
    async def talk(brief: Brief) -> Answer:
        brief.progress("thinking")
        brief.say("One. \n")
        brief.say("Two. \n")
        return Answer("One. Two.", artifacts=(Artifact(type="json", value={"n": 2}, label="figures"),))

    assert talk
    async with speaking(hub) as server, client_of(server) as session:
        events = await Caller(session, "talker", binding).events("SendStreamingMessage", message=message("talk"))
    assert state(events[0]["task"]) == "SUBMITTED"
    stands = [each["statusUpdate"]["status"] for each in events if "statusUpdate" in each]
    assert stands[0]["message"]["parts"] == [{"text": "thinking"}]
    updates = [each["artifactUpdate"] for each in events if "artifactUpdate" in each]
    pieces = [each for each in updates if not each.get("lastChunk")]
    assert [each.get("append", False) for each in pieces] == [False, True][: len(pieces)]
    assert "".join(each["artifact"]["parts"][0]["text"] for each in pieces) == "One. \nTwo. \n"
    assert [each["artifact"]["name"] for each in updates if each.get("lastChunk")] == ["result", "figures"]
    assert state(events[-1]["statusUpdate"]) == "COMPLETED"
    assert len({each["taskId"] for event in events for kind, each in event.items() if kind != "task"}) == 1
    for event in events:
        ParseDict(event, pb.StreamResponse())


@both
async def test_the_same_message_sent_again_is_answered_once(hub: Hub, binding: str) -> None:
    """C2: at most one execution for one message; another one under the same id is another task."""
    asked = echo(hub)
    said = message("once")
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "echo", binding)
        first = (await ask("SendMessage", message=said))["task"]
        again = (await ask("SendMessage", message=said))["task"]
        other = (await ask("SendMessage", message=said | {"parts": [{"text": "another"}]}))["task"]
        within = said | {"contextId": first["contextId"]}
        later = (await ask("SendMessage", message=within))["task"]
    assert (len(asked), first["id"]) == (3, again["id"])
    assert len({first["id"], other["id"], later["id"]}) == 3
    assert {each["history"][0]["messageId"] for each in (first, other, later)} == {said["messageId"]}


@both
async def test_the_same_message_to_another_agent_is_another_task(hub: Hub, binding: str) -> None:
    """A client may number its messages for each agent anew."""
    echo(hub)
    asking(hub)
    said = message("hello")
    async with speaking(hub) as server, client_of(server) as session:
        tasks = [
            (await Caller(session, name, binding)("SendMessage", message=said))["task"] for name in ("echo", "clerk")
        ]
    assert [state(each) for each in tasks] == ["COMPLETED", "INPUT_REQUIRED"]


@both
async def test_a_message_comes_anew_once_its_task_was_cancelled_or_continued(hub: Hub, binding: str) -> None:
    """Its sender has the answer then, so that it is no repetition of what got lost."""

    @hub.agent("asker")
    async def asker(brief: Brief) -> Answer:
        return Answer("Which one?", requires_followup=True) if brief.text == "book" else Answer("booked")

    assert asker
    said = message("book")
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "asker", binding)
        tasks = [(await ask("SendMessage", message=said))["task"]["id"] for _ in range(2)]
        await ask("CancelTask", id=tasks[0])
        tasks.append((await ask("SendMessage", message=said))["task"]["id"])
        answer = message("the first", taskId=tasks[-1])
        ended = [(await ask("SendMessage", message=answer))["task"] for _ in range(2)]
        tasks.append((await ask("SendMessage", message=said))["task"]["id"])
    first, again, second, third = tasks
    assert first == again
    assert len({first, second, third}) == 3
    assert [(each["id"], state(each)) for each in ended] == [(second, "COMPLETED")] * 2


async def test_a_subscription_stays_open_while_the_user_is_asked(hub: Hub) -> None:
    """It tells of the message that continues the task, and ends with it."""

    @hub.agent("asker")
    async def asker(brief: Brief) -> Answer:
        return Answer("Which one?", requires_followup=True) if brief.text == "book" else Answer("booked")

    assert asker
    async with speaking(hub) as server, client_of(server) as session, asyncio.TaskGroup() as group:
        ask = Caller(session, "asker", "JSONRPC")
        task = (await ask("SendMessage", message=message("book")))["task"]["id"]
        reading = group.create_task(all_of(ask.stream("SubscribeToTask", id=task)))
        cancelled = (await ask("SendMessage", message=message("book")))["task"]["id"]
        watching = group.create_task(all_of(ask.stream("SubscribeToTask", id=cancelled)))
        await eventually(lambda: len(server.api.delegations.streams) == 2, "two that read along")
        await ask("SendMessage", message=message("the first", taskId=task))
        await ask("CancelTask", id=cancelled)
        events, ended = await reading, await watching
    assert state(events[0]["task"]) == "INPUT_REQUIRED"
    assert state(events[-1]["statusUpdate"]) == "COMPLETED"
    assert [state(each["task"]) for each in ended] == ["INPUT_REQUIRED", "CANCELED"]


@both
async def test_an_agent_may_answer_with_a_message(hub: Hub, binding: str) -> None:
    """3.1.1: a message instead of a task, where its agent says so."""

    @hub.agent("greeter")
    async def greeter(_: Brief) -> Answer:
        return Answer("Good day", metadata={"a2a.message": True})

    assert greeter
    async with speaking(hub) as server, client_of(server) as session:
        given = await Caller(session, "greeter", binding)("SendMessage", message=message("hello"))
    assert given["message"]["parts"] == [{"text": "Good day", "mediaType": "text/plain"}]
    assert given["message"]["role"] == "ROLE_AGENT"
    assert "task" not in given


@pytest.mark.parametrize("given", [{}, {"accept": "application/a2a+json"}])
async def test_the_media_type_is_plain_json_unless_the_other_is_named(hub: Hub, given: dict[str, str]) -> None:
    echo(hub)
    async with speaking(hub) as server, client_of(server) as session:
        async with session.get("/a2a/echo/tasks", headers=given) as reply:
            await reply.read()
        assert reply.content_type == given.get("accept", "application/json")


@both
async def test_a_body_of_another_type_is_declined_by_its_code(hub: Hub, binding: str) -> None:
    echo(hub)
    path = "/a2a/echo" if binding == "JSONRPC" else "/a2a/echo/message:send"
    async with speaking(hub) as server, client_of(server) as session:
        async with session.post(path, data=b"hello", headers={"content-type": "text/plain"}) as reply:
            given = (await reply.json(content_type=None))["error"]
        assert (given["code"], reply.status) == ((-32005, 200) if binding == "JSONRPC" else (415, 415))


@both
async def test_data_is_the_input_and_text_the_objective(hub: Hub, binding: str) -> None:
    seen: list[Request] = []

    @hub.agent("reader")
    async def read(brief: Brief) -> dict[str, Any]:
        seen.append(brief.request)
        return {"sum": 3, "half": 1.5}

    assert read
    parts = [{"text": "Add"}, {"text": "them"}, {"data": {"n": [1.0, 2], "x": 0.5}}]
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "reader", binding)
        task = (await ask("SendMessage", message=message("") | {"parts": parts}))["task"]
        as_text = await ask.send("x", acceptedOutputModes=["text/plain"])
    assert (seen[0].objective, seen[0].input) == ("Add\n\nthem", {"n": [1, 2], "x": 0.5})
    assert type(seen[0].input["n"][0]) is int, "whoever speaks protobuf has no other numbers"
    assert task["artifacts"][0]["parts"] == [{"data": {"sum": 3, "half": 1.5}, "mediaType": "application/json"}]
    assert json.loads(text_of(as_text)) == {"sum": 3, "half": 1.5}


@both
async def test_a_file_that_is_a_text_or_json_is_read(hub: Hub, binding: str) -> None:
    seen: list[Request] = []

    @hub.agent("reader")
    async def read(brief: Brief) -> str:
        seen.append(brief.request)
        return "ok"

    assert read
    parts = [{"raw": "aGk", "mediaType": "text/markdown"}, {"raw": "eyJhIjogMX0=", "mediaType": "application/json"}]
    async with speaking(hub) as server, client_of(server) as session:
        await Caller(session, "reader", binding)("SendMessage", message=message("") | {"parts": parts})
    assert (seen[0].objective, seen[0].input) == ("hi", {"a": 1})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"parts": []}, "message.parts"),
    ({"parts": [{}]}, "message.parts[0]"),
    ({"parts": [{"text": "a", "url": "https://x"}]}, "message.parts[0]"),
    ({"parts": [{"raw": "?", "mediaType": "text/plain"}]}, "message.parts[0].raw"),
    ({"messageId": ""}, "message.messageId"),
    ({"role": "ROLE_AGENT"}, "message.role"),
    ({"role": "user"}, "message.role"),
]


@both
@pytest.mark.parametrize(("wrong", "field"), WRONG)
async def test_a_message_that_is_wrong_is_declined_by_field(
    hub: Hub, binding: str, wrong: dict[str, Any], field: str
) -> None:
    """3.3.2: all input is validated, and the field named."""
    asked = echo(hub)
    async with speaking(hub) as server, client_of(server) as session:
        error = await declined(Caller(session, "echo", binding)("SendMessage", message=message("x") | wrong))
    assert (error.reason, list(error.fields), asked) == ("INVALID_PARAMS", [field], [])
    assert error.status == (200 if binding == "JSONRPC" else 400)


@both
async def test_fields_of_later_versions_are_ignored(hub: Hub, binding: str) -> None:
    """5.7: unrecognised fields are no error."""
    echo(hub)
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "echo", binding)
        said = message("x", mood="good") | {"parts": [{"text": "x", "colour": "red"}]}
        task = (await ask("SendMessage", message=said, whim={"a": 1}, configuration={"speed": 3}))["task"]
    assert state(task) == "COMPLETED"


@both
async def test_an_agent_that_fails_fails_its_task_and_tells_no_secret(hub: Hub, binding: str) -> None:
    @hub.agent("broken")
    async def fail(_: Brief) -> str:
        raise RuntimeError("password=hunter2secret")

    assert fail
    async with speaking(hub) as server, client_of(server) as session:
        task = await Caller(session, "broken", binding).send("go")
    assert state(task) == "FAILED"
    assert task["status"]["message"]["role"] == "ROLE_AGENT"
    assert "hunter2secret" not in str(task)


@both
async def test_what_takes_too_long_fails_and_is_really_stopped(make_hub: Callable[..., Hub], binding: str) -> None:
    """X6: the delegate is really cancelled, not abandoned: a server has a deadline of its own."""
    hub = make_hub(limits=Limits(root_time_ms=300))
    sleeper = Sleeper(hub)
    async with speaking(hub) as server, client_of(server) as session:
        task = await Caller(session, "sleeper", binding).send("sleep")
    assert (state(task), sleeper.cancelled.is_set()) == ("FAILED", True)


@both
async def test_whoever_hangs_up_does_not_stop_the_work(hub: Hub, binding: str) -> None:
    """3.5.2: the life of a task is independent of any stream's."""
    sleeper = Sleeper(hub)
    said = message("sleep")
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "sleeper", binding)
        events = ask.stream("SendStreamingMessage", message=said)
        task = (await anext(events))["task"]["id"]
        await events.aclose()
        await asyncio.wait_for(sleeper.began.wait(), PATIENCE_S)
        sleeper.go_on.set()
        ended = (await ask("SendMessage", message=said))["task"]
    assert (ended["id"], state(ended)) == (task, "COMPLETED")
    assert not sleeper.cancelled.is_set()


@both
async def test_a_stream_that_nobody_reads_any_more_is_let_go_of(hub: Hub, binding: str) -> None:
    sleeper = Sleeper(hub)
    async with speaking(hub) as server, client_of(server) as session:
        events = Caller(session, "sleeper", binding).stream("SendStreamingMessage", message=message("sleep"))
        await anext(events)
        streams = server.api.delegations.streams
        assert len(streams) == 1
        await events.aclose()
        async with asyncio.timeout(PATIENCE_S):
            await eventually(lambda: not streams)
        sleeper.go_on.set()


# ── guards ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@both
async def test_what_the_guards_refuse_is_a_rejected_task(make_hub: Callable[..., Hub], binding: str) -> None:
    def never(request: Request, _: Facts) -> Verdict:
        from remit import Code, Refuse, fault

        return Refuse(fault(Code.PERMISSION_DENIED, "not on Sundays"))

    hub = make_hub(guards=[never])
    echo(hub)
    async with speaking(hub) as server, client_of(server) as session, client_of(server, "bert-app") as other:
        ask = Caller(session, "echo", binding)
        task = await ask.send("x")
        events = await ask.events("SendStreamingMessage", message=message("y"))
        again = await ask("GetTask", id=task["id"])
        hidden = await declined(Caller(other, "echo", binding)("GetTask", id=task["id"]))
        stuck = await declined(ask("CancelTask", id=task["id"]))
    told = task["status"]["message"]
    assert (state(task), told["parts"][0]["text"]) == ("REJECTED", "This could not be done: it is not permitted.")
    assert told["metadata"]["remit"] == {"code": "PERMISSION_DENIED", "message": "not on Sundays"}
    assert [state(each["task"]) for each in events] == ["REJECTED"]
    assert state(again) == "REJECTED"
    assert (hidden.reason, stuck.reason) == ("TASK_NOT_FOUND", "TASK_NOT_CANCELABLE")


@both
async def test_whoever_comes_too_often_is_told_when_to_come_back(hub: Hub, binding: str) -> None:
    @hub.agent("rare", rate=Rate(calls=1, seconds=60))
    async def rare(_: Brief) -> str:
        return "once"

    assert rare
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "rare", binding)
        await ask.send("x")
        for call in (ask.send("y"), ask.events("SendStreamingMessage", message=message("z"))):
            wrong = await declined(call)
            assert (wrong.status, wrong.reasons) == (429, {"remit": "RATE_LIMITED"})
            assert int(wrong.about["retryAfterMs"]) > 0


@both
async def test_an_input_that_does_not_fit_names_the_field(hub: Hub, binding: str) -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}

    @hub.agent("adder", capabilities=[Capability(code="ADD", input_schema=schema)])
    async def add(brief: Brief) -> int:
        return brief.input["n"] + 1

    assert add
    words = {EXTENSION: {"rest": json.dumps({"version": "1.0", "capability": "ADD"})}}
    async with speaking(hub) as server, client_of(server, extended=True) as session:
        ask = Caller(session, "adder", binding)
        good = message("") | {"parts": [{"data": {"n": 1}}], "metadata": words}
        bad = message("") | {"parts": [{"data": {"n": "x"}}], "metadata": words}
        task = (await ask("SendMessage", message=good))["task"]
        wrong = await declined(ask("SendMessage", message=bad))
    assert task["artifacts"][0]["parts"][0]["data"] == 2
    assert (wrong.reason, list(wrong.fields)) == ("INVALID_PARAMS", ["n"])


# ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@both
async def test_a_question_to_the_user_is_answered_in_the_same_task(hub: Hub, binding: str) -> None:
    """3.4: input-required, and a message with the task's id alone goes on with it."""
    asking(hub)
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "clerk", binding)
        task = await ask.send("Sort receipts")
        assert (state(task), task["status"]["message"]["parts"]) == ("INPUT_REQUIRED", [{"text": "Which month?"}])
        assert "artifacts" not in task
        more = await ask.send("again", taskId=task["id"])
        assert (more["id"], state(more)) == (task["id"], "INPUT_REQUIRED")
        done = await ask.send("May", taskId=task["id"], contextId=task["contextId"])
        found = await ask("GetTask", id=task["id"])
        listed = await ask("ListTasks")
        over = await declined(ask.send("June", taskId=task["id"]))
    assert (done["id"], done["contextId"], state(done)) == (task["id"], task["contextId"], "COMPLETED")
    assert text_of(done) == "Sort receipts for May"
    said = [(each["role"].removeprefix("ROLE_"), each["parts"][0]["text"]) for each in found["history"]]
    assert said == [
        ("USER", "Sort receipts"),
        ("AGENT", "Which month?"),
        ("USER", "again"),
        ("AGENT", "Which year?"),
        ("USER", "May"),
    ]
    assert [each["id"] for each in listed["tasks"]] == [task["id"]]
    assert over.reason == "UNSUPPORTED_OPERATION"


@both
async def test_an_answer_is_streamed_in_the_task_that_asked(hub: Hub, binding: str) -> None:
    asking(hub)
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "clerk", binding)
        first = await ask.events("SendStreamingMessage", message=message("Sort"))
        task = first[0]["task"]["id"]
        rest = await ask.events("SendStreamingMessage", message=message("May", taskId=task))
    assert state(first[-1]["statusUpdate"]) == "INPUT_REQUIRED"
    assert rest[0]["task"]["id"] == task
    assert state(rest[-1]["statusUpdate"]) == "COMPLETED"
    assert {each["taskId"] for event in rest for kind, each in event.items() if kind != "task"} == {task}


@both
async def test_an_answer_sent_again_is_answered_as_it_was(hub: Hub, binding: str) -> None:
    asking(hub)
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "clerk", binding)
        task = await ask.send("Sort")
        answer = message("May", taskId=task["id"])
        first = (await ask("SendMessage", message=answer))["task"]
        again = (await ask("SendMessage", message=answer))["task"]
    assert text_of(first) == text_of(again) == "Sort for May"


@both
async def test_of_two_answers_at_once_one_goes_on_with_the_task(hub: Hub, binding: str) -> None:
    asking(hub)
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "clerk", binding)
        task = await ask.send("Sort")
        both_of = (ask.send(month, taskId=task["id"]) for month in ("May", "June"))
        ended = await asyncio.gather(*both_of, return_exceptions=True)
    done = [each for each in ended if not isinstance(each, Wrong)]
    wrong = [each.reason for each in ended if isinstance(each, Wrong)]
    assert (len(done), wrong) == (1, ["UNSUPPORTED_OPERATION"])


@both
async def test_a_question_can_be_called_off(hub: Hub, binding: str) -> None:
    asking(hub)
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "clerk", binding)
        task = await ask.send("Sort")
        assert state(await ask("CancelTask", id=task["id"])) == "CANCELED"
        assert state(await ask("GetTask", id=task["id"])) == "CANCELED"
        listed = await ask("ListTasks", status="TASK_STATE_CANCELED")
        wrong = await declined(ask.send("May", taskId=task["id"]))
    assert [each["id"] for each in listed["tasks"]] == [task["id"]]
    assert wrong.reason == "UNSUPPORTED_OPERATION"


@both
async def test_a_task_that_waits_for_a_person_requires_authorization_until_that_has_agreed(
    make_hub: Callable[..., Hub], binding: str
) -> None:
    """7.6.1: auth-required, with what is asked; its streams stay open, and it goes on by itself."""

    def ask_first(request: Request, _: Facts) -> Verdict:
        return Ask("May it pay?") if request.target == "echo" else ALLOW

    hub = make_hub(guards=[ask_first], approver="inbox")
    echo(hub)
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "echo", binding)
        task = await ask.send("pay")
        assert (state(task), task["status"]["message"]["parts"]) == ("AUTH_REQUIRED", [{"text": "May it pay?"}])
        assert state(await ask("GetTask", id=task["id"])) == "AUTH_REQUIRED"
        listed = await ask("ListTasks", status="TASK_STATE_AUTH_REQUIRED")
        assert [each["id"] for each in listed["tasks"]] == [task["id"]]
        wrong = await declined(ask.send("yes", taskId=task["id"]))
        states: list[str] = []
        async for event in ask.stream("SubscribeToTask", id=task["id"]):
            states.append(state(event.get("task") or event.get("statusUpdate") or {"status": {"state": "artifact"}}))
            if len(states) == 1:
                (question,) = await hub.pending()
                await hub.decide(question.id, agreed=True, by="ann")
    assert wrong.reason == "UNSUPPORTED_OPERATION", "who asks does not agree in the same breath"
    assert states[0] == "AUTH_REQUIRED"
    assert states[-1] == "COMPLETED"


# ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@both
async def test_history_is_as_long_as_is_wanted(hub: Hub, binding: str) -> None:
    """3.2.4: history length."""
    asking(hub)
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "clerk", binding)
        task = await ask.send("Sort", historyLength=0)
        assert "history" not in task
        done = await ask.send("May", taskId=task["id"], historyLength=2)
        assert [each["parts"][0]["text"] for each in done["history"]] == ["Which month?", "May"]
        for length, texts in {
            0: [],
            1: ["May"],
            2: ["Which month?", "May"],
            9: ["Sort", "Which month?", "May"],
        }.items():
            found = await ask("GetTask", id=task["id"], historyLength=length)
            assert [each["parts"][0]["text"] for each in found.get("history", [])] == texts
        listed = await ask("ListTasks", historyLength=1)
        assert [len(each["history"]) for each in listed["tasks"]] == [1]


@both
async def test_tasks_are_listed_page_by_page_the_last_changed_first(hub: Hub, binding: str) -> None:
    """3.1.4: cursors, order, totals; artifacts only if they are wanted."""
    echo(hub)
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "echo", binding)
        made = [(await ask.send(str(number)))["id"] for number in range(5)]
        pages: list[Any] = [await ask("ListTasks", pageSize=2)]
        while pages[-1]["nextPageToken"]:
            pages.append(await ask("ListTasks", pageSize=2, pageToken=pages[-1]["nextPageToken"]))
        whole = await ask("ListTasks", includeArtifacts=True)
    assert [[each["id"] for each in page["tasks"]] for page in pages] == [made[:2:-1], made[2:0:-1], made[:1]]
    assert {(page["totalSize"], page["pageSize"]) for page in pages} == {(5, 2)}
    assert pages[-1]["nextPageToken"] == ""
    assert not any("artifacts" in each for page in pages for each in page["tasks"])
    times = [each["status"]["timestamp"] for each in whole["tasks"]]
    assert times == sorted(times, reverse=True)
    assert [text_of(each) for each in whole["tasks"]] == [f"anna: {number}" for number in range(4, -1, -1)]
    assert (whole["pageSize"], whole["totalSize"]) == (50, 5)


@both
async def test_tasks_are_listed_by_context_state_and_time(hub: Hub, binding: str) -> None:
    echo(hub)
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "echo", binding)
        first = await ask.send("one")
        second = await ask.send("two", contextId=first["contextId"])
        third = await ask.send("three")

        async def listed(**wanted: Any) -> list[str]:
            return [each["id"] for each in (await ask("ListTasks", **wanted))["tasks"]]

        assert await listed(contextId=first["contextId"]) == [second["id"], first["id"]]
        assert await listed(contextId="unknown") == []
        assert await listed(status="TASK_STATE_WORKING") == []
        assert len(await listed(status="TASK_STATE_COMPLETED")) == 3
        since = (await ask("GetTask", id=third["id"]))["status"]["timestamp"]
        assert third["id"] in await listed(statusTimestampAfter=since)
        assert await listed(statusTimestampAfter="2999-01-01T00:00:00Z") == []


@both
@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"pageSize": 0}, "pageSize"),
        ({"pageSize": 101}, "pageSize"),
        ({"pageToken": "nonsense"}, "pageToken"),
        ({"historyLength": -5}, "historyLength"),
        ({"status": "TASK_STATE_RUNNING"}, "status"),
        ({"statusTimestampAfter": "yesterday"}, "statusTimestampAfter"),
    ],
)
async def test_a_list_that_cannot_be_made_is_declined_by_field(
    hub: Hub, binding: str, wanted: dict[str, Any], field: str
) -> None:
    echo(hub)
    async with speaking(hub) as server, client_of(server) as session:
        wrong = await declined(Caller(session, "echo", binding)("ListTasks", **wanted))
    assert (wrong.reason, list(wrong.fields)) == ("INVALID_PARAMS", [field])


@both
async def test_times_are_written_in_utc_with_milliseconds(hub: Hub, binding: str) -> None:
    """5.6.1: timestamps."""
    echo(hub)
    async with speaking(hub) as server, client_of(server) as session:
        task = await Caller(session, "echo", binding).send("x")
    written = task["status"]["timestamp"]
    assert datetime.fromisoformat(written).tzinfo is not None
    assert len(written) == len("2026-01-31T12:00:00.000Z")


# ── reading along and cancelling ──────────────────────────────────────────────────────────────────────────────────────


@both
async def test_all_who_read_along_hear_the_same_in_the_same_order(hub: Hub, binding: str) -> None:
    """3.5.2: every stream of a task has the same events; closing one closes no other."""
    sleeper = Sleeper(hub)
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "sleeper", binding)
        task = (await ask.send("sleep", returnImmediately=True))["id"]
        heard: list[list[Any]] = [[], [], []]
        begun = asyncio.Semaphore(0)

        async def read(number: int, most: int) -> None:
            async for event in ask.stream("SubscribeToTask", id=task):
                heard[number].append(event)
                begun.release()
                if len(heard[number]) == most:
                    return

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for number, most in enumerate((99, 99, 1)):
                group.create_task(read(number, most))
            for _ in heard:
                await begun.acquire()
            sleeper.go_on.set()
    assert heard[0] == heard[1]
    assert heard[2] == heard[0][:1]
    assert "task" in heard[0][0]
    assert state(heard[0][-1]["statusUpdate"]) == "COMPLETED"


@both
async def test_a_task_at_work_shows_the_last_report(hub: Hub, binding: str) -> None:
    """Whoever comes later reads in the status what the others have heard before."""
    go_on = asyncio.Event()

    @hub.agent("reporter")
    async def report(brief: Brief) -> str:
        brief.progress("half of it")
        brief.progress("nearly all of it")
        await go_on.wait()
        return "done"

    assert report
    async with speaking(hub) as server, client_of(server) as session, asyncio.timeout(PATIENCE_S):
        ask = Caller(session, "reporter", binding)
        reports: list[Any] = []
        async for event in ask.stream("SendStreamingMessage", message=message("work")):
            reports += [event["statusUpdate"]] if "statusUpdate" in event else []
            if len(reports) == 2:
                break
        found = await ask("GetTask", id=reports[-1]["taskId"])
        again = await anext(ask.stream("SubscribeToTask", id=found["id"]))
        (listed,) = (await ask("ListTasks", status="TASK_STATE_WORKING"))["tasks"]
        go_on.set()
    assert found["status"] == again["task"]["status"] == listed["status"] == reports[-1]["status"]
    assert found["status"]["message"]["parts"] == [{"text": "nearly all of it"}]


@both
async def test_no_update_is_missed_by_a_subscription_however_late_it_is_committed(
    make_hub: Callable[..., Hub], binding: str
) -> None:
    """The records of this hub bear a time before the subscription, as those do that wait for their commit."""
    hub = make_hub(clock=ManualClock())
    sleeper = Sleeper(hub)
    async with speaking(hub) as server, client_of(server) as session, asyncio.timeout(PATIENCE_S):
        ask = Caller(session, "sleeper", binding)
        task = (await ask.send("sleep", returnImmediately=True))["id"]
        heard: list[Any] = []
        async for event in ask.stream("SubscribeToTask", id=task):
            heard.append(event)
            sleeper.go_on.set()
    said = [each["statusUpdate"]["status"].get("message") for each in heard if "statusUpdate" in each]
    assert [each["parts"] for each in said if each] == [[{"text": "awake"}]]


async def test_subscribing_works_with_get_and_with_post(hub: Hub) -> None:
    sleeper = Sleeper(hub)
    async with speaking(hub) as server, client_of(server) as session:
        task = (await Caller(session, "sleeper").send("sleep", returnImmediately=True))["id"]
        for method in ("GET", "POST"):
            async with session.request(method, f"/a2a/sleeper/tasks/{task}:subscribe") as reply:
                assert reply.content_type == "text/event-stream"
                assert (await reply.content.readline()).startswith(b'data: {"task":')
        sleeper.go_on.set()


@both
async def test_a_task_that_has_ended_cannot_be_subscribed_to(hub: Hub, binding: str) -> None:
    """3.1.6: unsupported for terminal tasks."""
    echo(hub)
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "echo", binding)
        task = await ask.send("x")
        wrong = await declined(ask.events("SubscribeToTask", id=task["id"]))
    assert (wrong.reason, wrong.about["taskId"]) == ("UNSUPPORTED_OPERATION", task["id"])


@both
async def test_a_task_is_cancelled_once(hub: Hub, binding: str) -> None:
    """X15: cancellation; 3.1.5: a task that has ended is not cancelable."""
    sleeper = Sleeper(hub)
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "sleeper", binding)
        task = (await ask.send("sleep", returnImmediately=True))["id"]
        await asyncio.wait_for(sleeper.began.wait(), PATIENCE_S)
        ended = await ask("CancelTask", id=task)
        wrong = await declined(ask("CancelTask", id=task))
    assert (state(ended), sleeper.cancelled.is_set()) == ("CANCELED", True)
    assert wrong.reason == "TASK_NOT_CANCELABLE"


# ── who may what ──────────────────────────────────────────────────────────────────────────────────────────────────────


@both
async def test_whoever_proves_nothing_is_challenged_whatever_it_asks(hub: Hub, binding: str) -> None:
    """7.4: every request is authenticated; 3.3.2: with a challenge."""
    echo(hub)
    async with speaking(hub) as server, client_of(server, headers={"authorization": "Bearer wrong"}) as session:
        ask = Caller(session, "echo", binding)
        for call in (
            ask.send("x"),
            ask.events("SendStreamingMessage", message=message("x")),
            ask("GetTask", id="x"),
            ask("ListTasks"),
            ask("CancelTask", id="x"),
            ask.events("SubscribeToTask", id="x"),
            ask("CreateTaskPushNotificationConfig", taskId="x", url="https://example.com"),
            ask("GetTaskPushNotificationConfig", taskId="x", id="y"),
            ask("ListTaskPushNotificationConfigs", taskId="x"),
            ask("DeleteTaskPushNotificationConfig", taskId="x", id="y"),
            ask("GetExtendedAgentCard"),
            Caller(session, "nobody", binding)("ListTasks"),
        ):
            wrong = await declined(call)
            assert (wrong.status, wrong.reasons) == (401, {"remit": "UNAUTHENTICATED"})
        async with session.post("/a2a/echo", json={}) as reply:
            assert reply.headers["www-authenticate"] == "Bearer"


@both
async def test_another_users_task_does_not_exist(hub: Hub, binding: str) -> None:
    """13.1: per-user scoping on every operation; X10: user isolation."""
    asking(hub)
    echo(hub)
    async with speaking(hub) as server, client_of(server) as anna, client_of(server, "bert-app") as bert:
        mine = await Caller(anna, "clerk", binding).send("Sort")
        ask = Caller(bert, "clerk", binding)
        own = await ask.send("Mine")
        for call in (
            ask("GetTask", id=mine["id"]),
            ask("CancelTask", id=mine["id"]),
            ask.events("SubscribeToTask", id=mine["id"]),
            ask.send("May", taskId=mine["id"]),
            ask.events("SendStreamingMessage", message=message("May", taskId=mine["id"])),
            ask("CreateTaskPushNotificationConfig", taskId=mine["id"], url="http://127.0.0.1:1/"),
            ask("GetTaskPushNotificationConfig", taskId=mine["id"], id="x"),
            ask("ListTaskPushNotificationConfigs", taskId=mine["id"]),
            ask("DeleteTaskPushNotificationConfig", taskId=mine["id"], id="x"),
            ask("GetTask", id="never-made"),
            Caller(anna, "echo", binding)("GetTask", id=mine["id"]),
        ):
            wrong = await declined(call)
            assert wrong.reason == "TASK_NOT_FOUND"
            assert wrong.status == (200 if binding == "JSONRPC" else 404)
        listed = await ask("ListTasks")
        assert ([each["id"] for each in listed["tasks"]], listed["totalSize"]) == ([own["id"]], 1)
        assert (await ask("ListTasks", contextId=mine["contextId"]))["tasks"] == []


@both
async def test_another_users_context_is_declined_and_no_other_is_made_up(hub: Hub, binding: str) -> None:
    """3.4.1: a context that cannot be accepted is an error."""
    asking(hub)
    echo(hub)
    async with speaking(hub) as server, client_of(server) as anna, client_of(server, "bert-app") as bert:
        mine = await Caller(anna, "clerk", binding).send("Sort")
        for session, agent in ((bert, "clerk"), (anna, "echo")):
            wrong = await declined(Caller(session, agent, binding).send("x", contextId=mine["contextId"]))
            assert (wrong.reason, list(wrong.fields)) == ("INVALID_PARAMS", ["message.contextId"])
        own = await Caller(anna, "clerk", binding).send("x", contextId="my own name")
        assert own["contextId"] == "my own name"


@both
async def test_a_task_and_a_context_that_do_not_belong_together_are_declined(hub: Hub, binding: str) -> None:
    """3.4.3: mismatching contextId and taskId."""
    asking(hub)
    async with speaking(hub) as server, client_of(server) as session:
        ask = Caller(session, "clerk", binding)
        task, other = await ask.send("Sort"), await ask.send("Sort")
        wrong = await declined(ask.send("May", taskId=task["id"], contextId=other["contextId"]))
    assert (wrong.reason, list(wrong.fields)) == ("INVALID_PARAMS", ["message.contextId"])


@both
async def test_a_client_asks_only_whom_and_for_whom_it_may(hub: Hub, binding: str) -> None:
    echo(hub)
    async with speaking(hub, agents=lambda: {"other"}) as server, client_of(server) as session:
        wrong = await declined(Caller(session, "echo", binding).send("x"))
        assert (wrong.status, wrong.reasons) == (404, {"remit": "AGENT_NOT_FOUND"})


@both
async def test_whoever_asks_for_many_says_for_whom(hub: Hub, binding: str) -> None:
    echo(hub)
    async with speaking(hub) as server:
        async with client_of(server, "many") as session:
            wrong = await declined(Caller(session, "echo", binding).send("x"))
            place = f"message.metadata.{EXTENSION}.user"
            assert (wrong.reason, list(wrong.fields)) == ("INVALID_PARAMS", [place])
        async with client_of(server, "many", extended=True) as session:
            ask = Caller(session, "echo", binding)
            task = await ask.send("x", metadata={EXTENSION: {"user": "carl"}})
        async with client_of(server, extended=True) as session:
            wrong = await declined(Caller(session, "echo", binding).send("x", metadata={EXTENSION: {"user": "carl"}}))
    assert text_of(task) == "carl: x"
    assert (wrong.status, wrong.reasons) == (403, {"remit": "USER_MISMATCH"})


# ── versions and extensions ───────────────────────────────────────────────────────────────────────────────────────────


@both
@pytest.mark.parametrize("version", ["", "0.3", "0.5", "1.1", "2.0", "x"])
async def test_another_version_is_not_spoken(hub: Hub, binding: str, version: str) -> None:
    """3.6.2: VersionNotSupportedError; an empty version is 0.3."""
    asked = echo(hub)
    async with speaking(hub) as server, client_of(server, headers={"a2a-version": version}) as session:
        ask = Caller(session, "echo", binding)
        for call in (ask.send("x"), ask.events("SendStreamingMessage", message=message("x")), ask("ListTasks")):
            wrong = await declined(call)
            assert (wrong.reason, wrong.about) == ("VERSION_NOT_SUPPORTED", {"supportedVersions": "1.0"})
    assert asked == []


@both
async def test_a_patch_makes_no_difference_and_the_version_may_be_a_parameter(hub: Hub, binding: str) -> None:
    """3.6: patch numbers are not considered; 3.6.1: a request parameter instead of the header."""
    echo(hub)
    async with speaking(hub) as server:
        async with client_of(server, headers={"a2a-version": "1.0.7"}) as session:
            assert state(await Caller(session, "echo", binding).send("x")) == "COMPLETED"
        async with client_of(server, headers={"a2a-version": ""}) as session:
            body: dict[str, Any] = {"message": message("x")}
            path = "/a2a/echo/message:send"
            if binding == "JSONRPC":
                path, body = "/a2a/echo", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": body}
            async with session.post(f"{path}?A2A-Version=1.0", json=body) as reply:
                assert "error" not in await reply.json(content_type=None)


@both
async def test_an_extension_that_is_required_has_to_be_used(hub: Hub, binding: str) -> None:
    """3.3.4: ExtensionSupportRequiredError, on every operation of every binding."""
    echo(hub)
    async with speaking(hub, required=True) as server:
        async with client_of(server) as session:
            ask = Caller(session, "echo", binding)
            for call in (ask.send("x"), ask.events("SendStreamingMessage", message=message("x")), ask("ListTasks")):
                wrong = await declined(call)
                assert (wrong.reason, wrong.about) == ("EXTENSION_SUPPORT_REQUIRED", {"extension": EXTENSION})
        async with client_of(server, extended=True) as session:
            assert state(await Caller(session, "echo", binding).send("x")) == "COMPLETED"


@both
async def test_an_extension_that_nobody_knows_is_ignored_and_ours_is_echoed(hub: Hub, binding: str) -> None:
    """4.6.3: unsupported extensions are ignored, and not fallen back from."""
    echo(hub)
    several = f"urn:remit:delegation:v2, {EXTENSION} ,https://example.com/x"
    async with speaking(hub) as server:
        for extensions, echoed in ((several, EXTENSION), ("urn:remit:delegation:v2", None)):
            async with client_of(server, headers={"a2a-extensions": extensions}) as session:
                said = message("x", metadata={"urn:remit:delegation:v2": {"user": "carl"}})
                body: dict[str, Any] = {"message": said}
                path = "/a2a/echo/message:send"
                if binding == "JSONRPC":
                    path, body = "/a2a/echo", {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": body}
                async with session.post(path, json=body) as reply:
                    assert reply.headers.get("a2a-extensions") == echoed
                    assert "anna: x" in await reply.text()


@both
async def test_the_remit_bounds_what_the_agent_may_do_and_usage_comes_back(hub: Hub, binding: str) -> None:
    seen: list[Request] = []

    @hub.agent("spender")
    async def spend(brief: Brief) -> str:
        seen.append(brief.request)
        brief.spend(prompt=70, completion=30)
        return "ok"

    assert spend
    words = {
        "depth": "2",
        "maxDepth": 3,
        "timeMs": "5000",
        "tokens": 300.0,
        "chain": ["a@x", "b@y"],
        "tools": [],
        "mayDelegate": False,
    }
    async with speaking(hub) as server, client_of(server, extended=True) as session:
        task = await Caller(session, "spender", binding).send("x", metadata={EXTENSION: words})
        wrong = await declined(
            Caller(session, "spender", binding).send("x", metadata={EXTENSION: {"tokens": "-1", "depth": 0.5}})
        )
    remit = seen[0].remit
    assert (remit.depth, remit.max_depth, remit.tokens, remit.tools) == (2, 3, 300, frozenset())
    assert (remit.chain, remit.may_delegate) == (("a@x", "b@y"), False)
    assert remit.time_ms <= 5_000
    usage = task["artifacts"][0]["metadata"][EXTENSION]["usage"]
    spent = {"prompt": "70", "completion": "30", "overrun": "0", "cost": "0", "priced": "0"}
    assert usage == {**spent, "cacheWrite": "0", "cacheRead": "0"}, "as texts: in metadata every number is a fraction"
    assert wrong.reason == "INVALID_PARAMS"


@both
async def test_a_remit_widens_nothing(make_hub: Callable[..., Hub], binding: str) -> None:
    seen: list[Request] = []
    hub = make_hub(limits=Limits(root_tokens=1_000, max_depth=2))

    @hub.agent("worker")
    async def work(brief: Brief) -> str:
        seen.append(brief.request)
        return "ok"

    assert work
    words = {"tokens": "999999", "maxDepth": "50", "timeMs": "99999999"}
    async with speaking(hub) as server, client_of(server, extended=True) as session:
        ask = Caller(session, "worker", binding)
        await ask.send("x", metadata={EXTENSION: words})
        rest = json.dumps({"version": "1.0", "origin": "prime"})
        await ask.send("x", metadata={EXTENSION: {"rest": rest}})
        rest = json.dumps({"version": "1.0", "max_tokens": 5, "objective": "another"})
        contradicts = await declined(ask.send("x", metadata={EXTENSION: {"rest": rest}}))
    remit = seen[0].remit
    assert (remit.tokens, remit.max_depth) == (1_000, 2)
    assert remit.time_ms <= Limits().root_time_ms
    assert seen[1].origin == "user", "only a hub speaks for agents"
    assert contradicts.reason == "INVALID_PARAMS"


# ── the bindings themselves ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b'{"jsonrpc": "2.0", "jsonrpc": "2.0"}', -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}]', -32600),
        (b'{"id": 1, "method": "ListTasks"}', -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ListTasks"}', -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ListTasks"}', -32600),
        (b'{"jsonrpc": "2.0", "method": "ListTasks"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 7}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/list"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": [1]}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {}}', -32602),
    ],
)
async def test_what_is_no_call_of_json_rpc_has_its_code(hub: Hub, body: bytes, code: int) -> None:
    """9.5: the errors of JSON-RPC."""
    echo(hub)
    kind = {"content-type": "application/json"}
    async with (
        speaking(hub) as server,
        client_of(server, headers=kind) as session,
        session.post("/a2a/echo", data=body) as reply,
    ):
        given = await reply.json()
    assert (reply.status, given["error"]["code"]) == (200, code)
    assert set(given) == {"jsonrpc", "id", "error"}
    assert given["id"] == (1 if b'"id": 1' in body and not body.startswith(b"[") else None)


@pytest.mark.parametrize("path", ["/a2a/echo", "/a2a/echo/"])
async def test_json_rpc_is_spoken_with_and_without_a_slash(hub: Hub, path: str) -> None:
    echo(hub)
    async with speaking(hub) as server, client_of(server) as session:
        body = {"jsonrpc": "2.0", "id": "a", "method": "ListTasks"}
        async with session.post(path, json=body) as reply:
            assert (await reply.json())["id"] == "a"
            assert reply.content_type == "application/json"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/a2a/echo"),
        ("DELETE", "/a2a/echo/tasks/x"),
        ("POST", "/a2a/echo/tasks"),
        ("GET", "/a2a/echo/message:send"),
        ("POST", "/a2a/echo/v1/message:send"),
        ("GET", "/a2a/echo/tasks/x/y/z"),
    ],
)
async def test_an_address_that_leads_nowhere_says_so(hub: Hub, method: str, path: str) -> None:
    echo(hub)
    async with speaking(hub) as server, client_of(server) as session, session.request(method, path) as reply:
        given = await reply.json(content_type=None)
    assert (reply.status, given["error"]["status"]) == (404, "NOT_FOUND")


async def test_errors_over_http_are_those_of_google_rpc(hub: Hub) -> None:
    """11.6: status, message, an ErrorInfo with reason and domain, and a sentence for users."""
    echo(hub)
    async with speaking(hub) as server, client_of(server) as session:
        async with session.get("/a2a/echo/tasks/never") as reply:
            given = await reply.json(content_type=None)
        assert reply.content_type == "application/json"
    assert given == {
        "error": {
            "code": 404,
            "status": "NOT_FOUND",
            "message": "the task `never` does not exist, or you may not see it",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "TASK_NOT_FOUND",
                    "domain": "a2a-protocol.org",
                    "metadata": {"taskId": "never"},
                },
                {
                    "@type": "type.googleapis.com/google.rpc.LocalizedMessage",
                    "locale": "en",
                    "message": "This could not be done: it does not exist, or you may not see it.",
                },
            ],
        }
    }


@both
async def test_a_body_that_is_too_large_or_of_another_type_is_not_read(hub: Hub, binding: str) -> None:
    echo(hub)
    path = "/a2a/echo" if binding == "JSONRPC" else "/a2a/echo/message:send"
    async with speaking(hub) as server:
        for data, kind, status in ((b" " * 5_000_000, "application/json", 413), (b"x", "text/plain", 415)):
            session = client_of(server, headers={"content-type": kind})
            async with session, session.post(path, data=BytesIO(data)) as reply:
                # JSON-RPC says what A2A has a word for in its own envelope.
                assert reply.status == (200 if (status, binding) == (415, "JSONRPC") else status)
                assert "error" in await reply.json(content_type=None)


@both
async def test_there_is_no_other_card_for_those_who_are_known(hub: Hub, binding: str) -> None:
    """3.3.4: the card says that there is none, and asking for one is unsupported."""
    echo(hub)
    async with speaking(hub) as server, client_of(server) as session:
        wrong = await declined(Caller(session, "echo", binding)("GetExtendedAgentCard"))
    assert wrong.reason == "UNSUPPORTED_OPERATION"
