"""What a run gets from outside is recorded, and a replay answers with it, or says what has become different."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from remit import Ask, Brief, Code, Decision, Finding, Hub, Question, RemitError, Request, Response, Status
from remit.hub.recording.comparing import RecordedDifference, comparable, first_change, ordinal
from remit.hub.recording.files import read_recording
from remit.ports import Remote
from remit.ports.brief import RECORDED_TURN
from remit.protocol.card import AgentCard
from remit_testing import MemoryStore


def finds_names(text: str) -> list[Finding]:
    """Find the names of two people."""
    return [Finding(*match.span(), "NAME") for match in re.finditer("Anna Adams|Bob Brown", text)]


def echo(brief: Brief) -> str:
    return brief.text


def with_a_name(brief: Brief) -> str:
    return f"{brief.text} and Anna Adams"


class Peer(Remote):
    """A remote agent that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    async def send(self, request: Request, line: Any) -> Response:
        self.asked += 1
        return Response(
            version=request.version, id=request.id, target=request.target, status=Status.SUCCESS, run=request.run,
            result=f"{request.objective}: done by a peer",
        )  # fmt: skip


class Office:
    """A hub whose tools, people and peer say how often they were really used."""

    def __init__(self, key: str = "receipts", *, broken: bool = False, **options: Any) -> None:
        self.used: list[str] = []
        self.questions: list[str] = []
        self.peer = Peer()
        self.hub = Hub(store=MemoryStore(), approver=self.decide, redaction=finds_names, **options)

        @self.hub.tool("look_up")
        async def look_up(key: str) -> str:
            assert RECORDED_TURN.get() is None
            self.used.append(key)
            if broken:
                raise ValueError("no such shelf")
            return f"{key} of Anna Adams"

        @self.hub.agent("boss", tools=["look_up"], may_call=["clerk", "peer"])
        async def boss(brief: Brief) -> str:
            found = await brief.use("look_up", key=key)
            agreed = await brief.confirm("May it be filed?")
            replies = await asyncio.gather(*(brief.delegate("clerk", objective=f"{n} {found}") for n in range(3)))
            sent = await brief.delegate("peer", objective=f"Send {found}")
            return f"{agreed}, {[each.result for each in replies]}, {sent.result}, {await brief.once('day', self.day)}"

        @self.hub.agent("clerk", tools=["look_up"])
        async def clerk(brief: Brief) -> object:
            return await brief.use("look_up", key=brief.objective[:1])

        self.hub.register(AgentCard(name="peer"), self.peer)

    async def day(self) -> str:
        self.used.append("day")
        return "Monday"

    async def decide(self, question: Question) -> Decision:
        self.questions.append(question.text)
        return Decision(agreed=True, by="ann")


async def recorded(path: Path, text: str = "Sort for Bob Brown", **options: Any) -> Response:
    office = Office(**options)
    async with office.hub as hub, hub.record(path):
        return await hub.ask("boss", text, user="u")


async def test_a_replay_gives_the_same_answer_and_nobody_outside_is_asked(tmp_path: Path) -> None:
    first = await recorded(tmp_path / "r.jsonl")
    office = Office()
    async with office.hub as hub, hub.replay(tmp_path / "r.jsonl") as replay:
        second = await hub.ask("boss", "Sort for Bob Brown", user="someone else")
    replay.check()
    assert (office.used, office.questions, office.peer.asked) == ([], [], 0)
    assert second.status is Status.SUCCESS
    assert "done by a peer" in second.result
    # What a tool found of a person is a placeholder in the file, and so in the replay.
    assert second.result == first.result.replace("Anna Adams", "[NAME:bbbbbbbbbbbc]")


async def test_a_recording_holds_no_personal_values_and_is_the_same_if_it_is_made_again(tmp_path: Path) -> None:
    await recorded(tmp_path / "one.jsonl")
    await recorded(tmp_path / "two.jsonl")
    one, two = ((tmp_path / name).read_text() for name in ("one.jsonl", "two.jsonl"))
    assert one == two
    assert "Anna" not in one
    assert "Bob" not in one
    kinds = [(each.agent, each.at, each.kind) for each in read_recording(tmp_path / "one.jsonl").replies]
    assert kinds.count(("boss", "", "tool")) == 1
    assert ("peer", "6", "agent") in kinds or ("peer", "5", "agent") in kinds, kinds
    assert {kind for _, _, kind in kinds} == {"tool", "person", "agent", "value"}


async def test_a_hub_that_redacts_nothing_records_no_personal_values_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remit.hub.hub._installed_detector", lambda: finds_names)
    hub = Hub(store=MemoryStore(), redaction=False)
    hub.agent("a")(with_a_name)
    async with hub, hub.record(tmp_path / "r.jsonl"):
        assert (await hub.ask("a", "Bob Brown", user="u")).result == "Bob Brown and Anna Adams"
    assert "Anna" not in (text := (tmp_path / "r.jsonl").read_text())
    assert "Bob" not in text


async def test_the_first_difference_is_named_and_nothing_new_is_done(tmp_path: Path) -> None:
    await recorded(tmp_path / "r.jsonl")
    office = Office(key="letters")
    async with office.hub as hub, hub.replay(tmp_path / "r.jsonl") as replay:
        response = await hub.ask("boss", "Sort for Bob Brown", user="u")
    assert [str(each) for each in replay.differences] == [
        "boss's 1st use of a tool: `arguments.key`: 'receipts' became 'letters'"
    ]
    assert (office.used, response.fault is not None and response.fault.code) == ([], Code.NOT_RECORDED)
    with pytest.raises(RemitError, match="boss's 1st use of a tool"):
        replay.check()


async def test_what_is_new_can_be_done_for_real_from_the_first_difference_on(tmp_path: Path) -> None:
    await recorded(tmp_path / "r.jsonl")
    office = Office(key="letters")
    async with office.hub as hub, hub.replay(tmp_path / "r.jsonl", new="ask") as replay:
        response = await hub.ask("boss", "Sort for Bob Brown", user="u")
    assert response.ok
    # The clerks ask the same as before, and get the recorded replies.
    assert (office.used, office.questions, office.peer.asked) == (["letters", "day"], ["May it be filed?"], 1)
    assert (str(replay.differences[0]), replay.differences[0].at) == (
        "boss's 1st use of a tool: `arguments.key`: 'receipts' became 'letters'",
        "",
    )
    assert replay.asked == 4


async def test_a_request_that_no_recorded_run_made_is_a_difference(tmp_path: Path) -> None:
    await recorded(tmp_path / "r.jsonl")
    office = Office()
    async with office.hub as hub, hub.replay(tmp_path / "r.jsonl") as replay:
        await hub.ask("boss", "Order for Bob Brown", user="u")
        await hub.ask("boss", "Once more", user="u")
    assert str(replay.differences[0]) == (
        "the request of boss: `objective`: 'Sort for [NAME 1]' became 'Order for [NAME 1]'"
    )
    assert "the request of boss is not in the recording" in map(str, replay.differences)


def measure(key: str) -> int:
    return len(key)


async def test_a_call_that_is_made_no_more_and_another_answer_are_differences(tmp_path: Path) -> None:
    def team(answer: str, keys: str) -> Hub:
        hub = Hub(store=MemoryStore())
        hub.tool("count", safe_to_repeat=True)(measure)

        @hub.agent("a", tools=["count"])
        async def a(brief: Brief) -> str:
            for key in keys:
                await brief.use("count", key=key)
            return answer

        return hub

    async with team("x", "pq") as hub, hub.record(tmp_path / "r.jsonl"):
        await hub.ask("a", "go", user="u")
    texts: list[str] = []
    for answer, keys in (("x", "p"), ("y", "pq"), ("x", "pqr")):
        async with team(answer, keys) as hub, hub.replay(tmp_path / "r.jsonl") as replay:
            await hub.ask("a", "go", user="u")
        texts += [str(each) for each in replay.differences]
    assert texts == [
        "a's 2nd use of a tool is in the recording, and was not made",
        "the answer of a: `result`: 'x' became 'y'",
        "a's 3rd use of a tool is not in the recording",
    ]


async def test_a_tool_that_failed_fails_again(tmp_path: Path) -> None:
    first = await recorded(tmp_path / "r.jsonl", broken=True)
    office = Office()
    async with office.hub as hub, hub.replay(tmp_path / "r.jsonl") as replay:
        second = await hub.ask("boss", "Sort for Bob Brown", user="u")
    replay.check()
    assert first.fault is not None
    assert second.fault is not None
    assert (second.fault.code, second.fault.message) == (first.fault.code, first.fault.message)
    assert office.used == []


async def test_a_persons_answer_to_a_rule_about_the_first_call_is_recorded(tmp_path: Path) -> None:
    def team(decision: bool | None) -> Hub:
        async def decide(_: Question) -> bool | None:
            return decision

        def asks(request: Request, facts: Any) -> Any:
            return Ask("May it?") if "May it?" not in facts.approved else request and _allow()

        hub = Hub(store=MemoryStore(), approver=decide, guards=[asks])
        hub.agent("a")(echo)
        return hub

    for decision in (True, None):
        path = tmp_path / f"{decision}.jsonl"
        async with team(decision) as hub, hub.record(path):
            first = await hub.ask("a", "go", user="u")
        async with team(not decision) as hub, hub.replay(path) as replay:
            second = await hub.ask("a", "go", user="u")
        replay.check()
        assert first.status is second.status is (Status.SUCCESS if decision else Status.REFUSED)


def _allow() -> Any:
    from remit import ALLOW

    return ALLOW


async def test_turns_of_a_session_are_runs_of_one_recording(tmp_path: Path) -> None:
    hub = Hub(store=MemoryStore())
    hub.agent("a")(echo)
    async with hub, hub.record(tmp_path / "r.jsonl"):
        first = await hub.ask("a", "one", user="u", session="s-1")
        await hub.ask("a", "two", user="u", session=first.session)
        await hub.ask("a", "three", user="u")
    runs = read_recording(tmp_path / "r.jsonl").runs
    assert [(each.run, each.objective, each.continues) for each in runs] == [
        (1, "one", 0),
        (2, "two", 1),
        (3, "three", 0),
    ]


async def test_a_hub_is_recorded_or_replayed_once_at_a_time(tmp_path: Path) -> None:
    hub = Hub(store=MemoryStore())
    hub.agent("a")(echo)
    async with hub, hub.record(tmp_path / "r.jsonl"):
        with pytest.raises(RemitError, match="already"):
            async with hub.record(tmp_path / "other.jsonl"):
                pass


@pytest.mark.parametrize("text", ["", "{}\n", '{"line":"recording","version":9,"remit":"9","team":"x"}\n', "\xff"])
async def test_a_file_that_is_no_recording_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.jsonl").write_bytes(text.encode("latin-1"))
    hub = Hub(store=MemoryStore())
    async with hub:
        for name in ("r.jsonl", "missing.jsonl"):
            with pytest.raises(RemitError, match=name):
                async with hub.replay(tmp_path / name):
                    pass


def test_ids_and_limits_of_a_call_are_not_compared_and_what_is_asked_is() -> None:
    def body(text: str, call_id: str, **more: Any) -> dict[str, Any]:
        called = {"type": "function", "id": call_id, "function": {"name": "f", "arguments": '{"id": 1}'}}
        messages = [{"role": "assistant", "tool_calls": [called]}, {"role": "tool", "tool_call_id": call_id}]
        return {"body": {"model": "m", "messages": [*messages, {"role": "user", "content": text}], **more}}

    one = comparable("model", body("to [EMAIL:bbbbbbbbbbbb]", "call_1", max_tokens=5, user="u-1"))
    other = comparable("model", body("to [EMAIL:ccccccccccccc]"[:-2] + "]", "call_2", max_tokens=9))
    assert one.text == other.text
    assert (one.placeholders, other.placeholders) == (("[EMAIL:bbbbbbbbbbbb]",), ("[EMAIL:cccccccccccc]",))
    changed = comparable("model", body("for [EMAIL:bbbbbbbbbbbb]", "call_1", temperature=1))
    change = first_change(one.value, changed.value)
    assert change is not None
    assert change == ("body.messages[2].content", "to [EMAIL 1]", "for [EMAIL 1]")


def test_how_long_a_callee_took_is_not_compared() -> None:
    def prompt(seconds: float, output: str) -> dict[str, Any]:
        content = f'{{"output":"{output}","duration_seconds":{seconds}}}'
        return {"body": {"messages": [{"role": "tool", "content": content}], "duration_ms": seconds}}

    one, same, other = (comparable("model", prompt(*each)).text for each in ((0.4, "a"), (12.0, "a"), (0.4, "b")))
    assert one == same != other


def test_a_difference_is_a_sentence_of_one_line_and_short() -> None:
    before, after = ("x " * 100 + f"Sort {word}, please, " + "y " * 100 for word in ("all receipts", "all letters"))
    change = first_change({"a": [1, before]}, {"a": [1, after]})
    assert change is not None
    text = str(RecordedDifference("clerk", "2.1", "model", 12, *change))
    assert text.startswith("clerk's 12th call of its model (call 2.1): `a[1]`: '…")
    assert "all receipts" in text
    assert "all letters" in text
    assert len(text) < 240
    added, missing = first_change({"a": [1]}, {"a": [1, {"b": 2}]}), first_change({"a": 1, "b": None}, {"a": 1})
    assert added is not None
    assert missing is not None
    assert str(RecordedDifference("a", "", "tool", 1, *added)).endswith("`a[1]` was added: '{\"b\":2}'")
    assert str(RecordedDifference("a", "", "tool", 1, *missing)).endswith("`b` is missing: ''")


def test_numbers_are_counted_as_people_say_them() -> None:
    assert [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 102, 111)] == (
        ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th"]
    )


async def test_what_a_hub_does_for_an_agent_before_it_starts_is_not_recorded_as_its_own(tmp_path: Path) -> None:
    """Companions such as MCP servers connect then, also for a callee whose caller is at work."""
    turns: list[bool] = []
    office = Office()

    async def prepare(brief: Brief) -> None:
        turns.append(RECORDED_TURN.get() is not None)

    office.hub.before_agents(prepare)
    async with office.hub as hub, hub.record(tmp_path / "r.jsonl"):
        await hub.ask("boss", "Sort", user="u")
    assert turns == [False] * 4
