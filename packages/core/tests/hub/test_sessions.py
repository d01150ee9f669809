"""What a callee is shown of a conversation: chosen by its caller, never twice, and never more than that."""

import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import pytest

from remit import (
    Answer,
    Brief,
    Call,
    Code,
    ContextFilter,
    Handoff,
    Hub,
    Note,
    Refuse,
    RemitError,
    Request,
    Response,
    Status,
    View,
    fault,
)
from remit.policy.verdict import ALLOW, Facts, Verdict
from remit_testing import MemoryStore
from samples import code_of

MakeHub = Callable[..., Hub]
Shown = list[Brief]

MAIL = "alice@example.org"


def texts(brief: Brief) -> list[str]:
    return [f"{message.role}: {message.text}" for message in brief.messages]


def team(hub: Hub, wanted: ContextFilter | None, **options: object) -> Shown:
    """A planner that asks a coder under a filter, and what the coder was shown each time."""
    shown: Shown = []

    @hub.tool(safe_to_repeat=True)
    def look(what: str) -> str:
        return f"SECRET RESULT of {what}"

    @hub.agent("planner", may_call=["coder"], tools=["look"], prompt="SECRET PROMPT")
    async def planner(brief: Brief) -> str:
        await brief.use("look", what="SECRET ARGUMENT")
        brief.progress("SECRET REASONING")
        brief.say("SECRET THOUGHT")
        response = await brief.delegate("coder", objective=f"code {brief.text}", context=wanted, **options)  # pyright: ignore[reportArgumentType]
        return f"planned {brief.text}: {response.result or response.fault}"

    @hub.agent("coder")
    async def coder(brief: Brief) -> str:
        shown.append(brief)
        return "coded"

    return shown


async def test_a_callee_sees_the_last_messages_of_its_callers_conversation(hub: Hub) -> None:
    """O2, O4: what was said between user and caller, and nothing of how the caller came to what it said."""
    shown = team(hub, ContextFilter(last_messages=3))
    async with hub:
        for text in ("one", "two", "three"):
            await hub.ask("planner", text, user="u", session="s")
    assert texts(shown[0]) == ["user: one"]
    assert texts(shown[2]) == ["user: two", "assistant: planned two: coded", "user: three"]
    assert "SECRET" not in repr(shown[2].request)
    assert {message.name for message in shown[2].messages} == {"user", "planner"}


async def test_without_a_filter_a_callee_sees_no_messages(hub: Hub) -> None:
    shown = team(hub, None)
    async with hub:
        await hub.ask("planner", "one", user="u", session="s")
        await hub.ask("planner", "two", user="u", session="s")
    assert shown[1].request.view is None
    assert (shown[1].view, shown[1].messages, shown[1].known) == (View(), (), ())


@pytest.mark.parametrize(("role", "message"), [("tool", "never passed on"), ("asistant", "assistant")])
async def test_a_filter_for_roles_that_cannot_be_shown_is_refused_before_anything_starts(
    hub: Hub, role: str, message: str
) -> None:
    shown = team(hub, ContextFilter(roles=frozenset({role})))
    async with hub:
        response = await hub.ask("planner", "one", user="u", session="s")
        refused = (await hub.delegations(response.run))[1]
    assert (shown, refused.status) == ([], Status.REFUSED)
    assert refused.fault is not None
    assert refused.fault.code is Code.INPUT_VALIDATION_FAILED
    assert message in refused.fault.problems[0].message


async def test_a_name_for_a_callees_conversation_stands_for_one_within_the_callers_own(make_hub: MakeHub) -> None:
    """It goes on after a restart; neither another session nor another user nor another caller gets it."""
    asked: list[str | None] = []

    def team_of(hub: Hub) -> Hub:
        @hub.agent("clerk")
        async def clerk(brief: Brief) -> list[str]:
            return [message.text for message in await brief.history() if message.role == "user"]

        @hub.agent("desk", may_call=["clerk", "other"])
        async def desk(brief: Brief) -> list[str]:
            if brief.text == "by another":
                return (await brief.delegate("other", objective=brief.text)).unwrap()
            reply = await brief.delegate("clerk", objective=brief.text, session="papers")
            asked.append(reply.session)
            return reply.unwrap()

        @hub.agent("other", may_call=["clerk"])
        async def other(brief: Brief) -> list[str]:
            return (await brief.delegate("clerk", objective=brief.text, session="papers")).unwrap()

        return hub

    async with team_of(make_hub()) as hub:
        assert (await hub.ask("desk", "one", user="u", session="s")).result == []
    async with team_of(make_hub()) as hub:
        assert (await hub.ask("desk", "two", user="u", session="s")).result == ["one"]
        for user, session, text in (("u", "t", "three"), ("v", "s", "four"), ("u", "s", "by another")):
            assert (await hub.ask("desk", text, user=user, session=session)).result == []
        assert (await hub.ask("desk", "five", user="u", session="s")).result == ["one", "two"]
    assert asked[0] is not None
    assert asked[0].startswith("s/papers")
    assert asked[0] == asked[1]


# ── nothing twice ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_no_message_is_sent_twice_to_the_same_callee_session(hub: Hub) -> None:
    """K14: what the callee's session has been shown is referred to, and found in its history."""
    shown = team(hub, ContextFilter(), session="coder-s")
    async with hub:
        await hub.ask("planner", "one", user="u", session="s")
        await hub.ask("planner", "two", user="u", session="s")
    assert texts(shown[0]) == ["user: one"]
    assert texts(shown[1]) == ["assistant: planned one: coded", "user: two"]
    assert shown[1].view.seen == tuple(message.seq for message in shown[0].messages)


async def test_a_callee_finds_in_its_history_what_it_was_shown_before(hub: Hub) -> None:
    histories: list[list[str]] = []

    @hub.agent("planner", may_call=["coder"])
    async def planner(brief: Brief) -> str:
        await brief.delegate("coder", objective=f"code {brief.text}", context=ContextFilter(), session="c")
        return f"planned {brief.text}"

    @hub.agent("coder")
    async def coder(brief: Brief) -> str:
        histories.append([message.text for message in await brief.history()])
        return f"coded {brief.text}"

    async with hub:
        for text in ("one", "two"):
            await hub.ask("planner", text, user="u", session="s")
    assert histories == [[], ["one", "code one", "coded code one"]]


async def test_the_record_holds_no_message_twice(hub: Hub, tmp_path: Path) -> None:
    """O8: which messages were shown is recorded; their text is where it was."""
    shown = team(hub, ContextFilter(include_summary=True))
    async with hub:
        await hub.ask("planner", "a very peculiar sentence", user="u", session="s")
        response = await hub.ask("planner", "another", user="u", session="s")
        recorded = [
            record.body for record in await hub.store.records(run=response.run) if isinstance(record.body, Request)
        ]
    assert any("peculiar" in text for text in texts(shown[1]))
    view = recorded[1].view
    assert view is not None
    assert [(message.role, message.text) for message in view.messages] == [
        ("user", ""),
        ("assistant", ""),
        ("user", ""),
    ]
    assert [message.seq for message in view.messages] == [message.seq for message in shown[1].messages]
    connection = apsw.Connection(str(tmp_path / "hub.db"))
    bodies = [str(row[0]) for row in connection.execute("SELECT CAST(body AS TEXT) FROM record")]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    # The user said it, the planner passed it on as a task, the planner answered with it; the summary is a preview.
    assert sum('"a very peculiar sentence"' in text for text in bodies) == 1


# ── the root ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_user_can_have_an_agent_shown_what_was_said_before(hub: Hub) -> None:
    shown: Shown = []

    @hub.agent("a")
    async def a(brief: Brief) -> str:
        shown.append(brief)
        return f"heard {brief.text}"

    async with hub:
        await hub.ask("a", "one", user="u", session="s")
        await hub.ask("a", "two", user="u", session="s", context=ContextFilter(last_messages=2))
    assert texts(shown[1]) == ["user: one", "assistant: heard one"]


async def test_of_another_users_conversation_nothing_is_read(hub: Hub) -> None:
    shown = team(hub, ContextFilter())
    async with hub:
        await hub.ask("planner", "my secret plan", user="u", session="s")
        response = await hub.ask("planner", "show me", user="other", session="s", context=ContextFilter())
        records = await hub.store.records(run=response.run)
    assert (response.status, len(shown)) == (Status.SUCCESS, 2)
    assert "secret plan" not in repr(shown[1])
    assert "secret plan" not in repr(records)


async def test_a_guard_sees_the_messages_too(make_hub: MakeHub) -> None:
    """DESIGN: guards judge the request and its messages."""

    def no_plans(request: Request, facts: Facts) -> Verdict:
        if request.view is not None and any("plan" in message.text for message in request.view.messages):
            return Refuse(fault(Code.PERMISSION_DENIED, "no plans leave here"))
        return ALLOW

    hub = make_hub(guards=[no_plans])
    shown = team(hub, ContextFilter())
    async with hub:
        await hub.ask("planner", "my plan", user="u", session="s")
    assert shown == []


# ── what is known (K14) ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_one_callee_finds_out_the_next_one_knows(hub: Hub) -> None:
    """K14: facts, decisions and constraints are handed on, within the run and in later ones of the session."""
    known: list[tuple[Note, ...]] = []

    @hub.agent("lead", may_call=["*"])
    async def lead(brief: Brief) -> str:
        known.append(brief.known)
        handoff = Handoff(decisions=("Use PostgreSQL",), constraints={"budget": "500 EUR"})
        await brief.delegate("finder", objective=f"find {brief.text}", handoff=handoff)
        await brief.delegate("user-of-it", objective="use it", context=ContextFilter(last_messages=0, known="all"))
        return "done"

    @hub.agent("finder")
    async def finder(brief: Brief) -> Answer:
        brief.note("decision", "Blue is the colour")
        return Answer("found", new_facts=("The server is in Oslo",))

    @hub.agent("user-of-it")
    async def user_of_it(brief: Brief) -> str:
        known.append(brief.known)
        return "used"

    expected = {
        Note("decision", "Use PostgreSQL", "lead"),
        Note("constraint", "budget: 500 EUR", "lead"),
        Note("decision", "Blue is the colour", "finder"),
        Note("fact", "The server is in Oslo", "finder"),
    }
    async with hub:
        await hub.ask("lead", "one", user="u", session="s")
        await hub.ask("lead", "two", user="u", session="s")
        await hub.ask("lead", "three", user="u", session="another")
    assert known[0] == ()
    assert set(known[1]) == expected
    assert set(known[2]) == expected
    assert known[4] == ()


async def test_no_agent_can_say_what_the_user_answered(hub: Hub) -> None:
    """Decision 9: what an agent says is told as what it says."""
    known: list[tuple[Note, ...]] = []

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> str:
        with pytest.raises(RemitError, match="only the hub notes"):
            brief.note("answer", "May I pay? → yes")  # pyright: ignore[reportArgumentType]
        brief.note("decision", "The user wants to pay")
        await brief.delegate("b", objective="go on", context=ContextFilter(last_messages=0, known="all"))
        return "x"

    @hub.agent("b")
    async def b(brief: Brief) -> str:
        known.append(brief.known)
        return "x"

    async with hub:
        await hub.ask("a", "hello", user="u")
    assert known == [(Note("decision", "The user wants to pay", "a"),)]


async def test_a_limit_that_returns_to_an_earlier_value_is_the_newest_again(hub: Hub) -> None:
    known: list[list[str]] = []
    notes = iter([("constraint", "at most 800"), ("fact", "two rooms"), ("constraint", "at most 600")] * 2)

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:
        known.append([note.text for note in brief.known])
        for kind, text in islice(notes, 1):
            brief.note(kind, text)  # pyright: ignore[reportArgumentType]
        return "noted"

    async with hub:
        for _ in range(7):
            await hub.ask("clerk", "hello", user="u", session="s")
    assert known[3:] == [
        ["at most 800", "two rooms", "at most 600"],
        ["two rooms", "at most 600", "at most 800"],
        ["two rooms", "at most 600", "at most 800"],
        ["two rooms", "at most 800", "at most 600"],
    ]


async def test_what_the_user_answered_is_not_asked_again(hub: Hub) -> None:
    """K14."""
    known: list[tuple[Note, ...]] = []

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:
        known.append(brief.known)
        return "Which account should it be?"

    async with hub:
        for text in ("Pay the rent. It must not cost a fee.", "The savings account", "go on"):
            await hub.ask("clerk", text, user="u", session="s")
    assert [note.kind for note in known[2]] == ["constraint", "answer"]
    assert "must not cost a fee" in known[2][0].text
    assert "Which account" in known[2][1].text
    assert "savings" in known[2][1].text


async def test_the_event_loop_reads_no_texts(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads texts takes a third of a second to load: other requests go on meanwhile."""
    readers: list[threading.Thread] = []

    def read(_: str) -> list[Note]:
        readers.append(threading.current_thread())
        return [Note("decision", "by train")]

    monkeypatch.setattr("remit_orchestrator.summaries.notes_of", read)
    shown = team(hub, ContextFilter(known="all"))
    async with hub:
        await hub.ask("planner", "We go by train", user="u", session="s")
    assert [each.known for each in shown] == [(Note("decision", "by train"),)]
    assert threading.current_thread() not in readers


async def test_notes_hold_tokens_and_come_back_to_their_user(hub: Hub, tmp_path: Path) -> None:
    """Decision 13: sessions hold tokens, and what they stand for lives as long as they do."""
    seen: list[str] = []

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:
        seen.append(" ".join(note.text for note in brief.known))
        brief.note("fact", f"write to {MAIL}")
        return seen[-1]

    async with hub:
        await hub.ask("clerk", "one", user="u", session="s")
        second = await hub.ask("clerk", "two", user="u", session="s")
    assert MAIL not in seen[1]
    assert "write to [EMAIL:" in seen[1]
    assert second.result == f"write to {MAIL}"
    for file in tmp_path.iterdir():
        assert MAIL.encode() not in file.read_bytes()


async def test_what_was_redacted_in_an_earlier_run_is_restored_in_a_later_one_of_its_session(
    make_hub: MakeHub,
) -> None:
    """Decision 13; and no other session, though of the same user, gets it."""

    def quoting(hub: Hub) -> Hub:
        @hub.agent("clerk")
        async def clerk(brief: Brief) -> str:
            before = await brief.history()
            return before[0].text if before else brief.text

        return hub

    async with quoting(make_hub()) as hub:
        first = await hub.ask("clerk", f"Mail {MAIL}", user="u", session="s")
    async with quoting(make_hub()) as hub:
        again = await hub.ask("clerk", "what did I say?", user="u", session="s")
        (stored, *_) = [
            record.body.objective for record in await hub.store.records(session="s") if isinstance(record.body, Request)
        ]
        foreign = await hub.ask("clerk", stored, user="u", session="other")
    assert first.result == again.result == f"Mail {MAIL}"
    assert MAIL not in stored
    assert foreign.result == stored


# ── workspace and summary ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_callee_is_told_of_the_workspace_and_of_the_files_that_are_named(
    make_hub: MakeHub, tmp_path: Path
) -> None:
    """O3."""
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    (work / "pyproject.toml").write_text('[project]\nname = "shop"\n')
    (work / "src" / "auth.py").write_text("def login(): ...\n")
    hub = make_hub(workspace=work)
    shown = team(hub, ContextFilter(include_workspace=True, workspace_files=("src/auth.py",), include_contents=True))
    async with hub:
        await hub.ask("planner", "one", user="u")
    assert "shop" in shown[0].view.workspace
    assert "src/auth.py" in shown[0].view.workspace
    assert "def login" in shown[0].view.workspace


@pytest.mark.parametrize("path", ["../secret.txt", "/etc/passwd", "src/../../secret.txt", "link.txt"])
async def test_a_path_out_of_the_workspace_is_refused_and_nothing_starts(
    make_hub: MakeHub, tmp_path: Path, path: str
) -> None:
    """O3."""
    work = tmp_path / "work"
    (work / "src").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("SECRET")
    (work / "link.txt").symlink_to(tmp_path / "secret.txt")
    hub = make_hub(workspace=work)
    shown = team(hub, ContextFilter(include_workspace=True, workspace_files=(path,), include_contents=True))
    async with hub:
        response = await hub.ask("planner", "one", user="u")
        refused = (await hub.delegations(response.run))[1]
    assert shown == []
    assert code_of(refused) is Code.PATH_NOT_ALLOWED


async def test_a_summary_says_what_the_conversation_came_to(hub: Hub) -> None:
    """O2."""
    shown = team(hub, ContextFilter(last_messages=1, include_summary=True))
    async with hub:
        await hub.ask("planner", "We decided to use SQLite. It must fit into 64 MB.", user="u", session="s")
        await hub.ask("planner", "Write the store", user="u", session="s")
    assert "SQLite" in shown[1].view.summary
    assert "64 MB" in shown[1].view.summary


@pytest.mark.parametrize(
    ("text", "taken"),
    [("They chose SQLite and 64 MB.", True), ("They chose Oracle and 64 MB.", False), ("They chose 65 MB.", False)],
)
async def test_a_models_summary_counts_only_if_all_it_says_was_said(make_hub: MakeHub, text: str, taken: bool) -> None:
    from remit import Usage

    async def summarize(source: str, tokens: int) -> tuple[str, Usage]:
        assert "SQLite" in source
        return text, Usage(prompt=100, completion=10)

    hub = make_hub(summarizer=summarize)
    shown = team(hub, ContextFilter(last_messages=1, include_summary=True))
    async with hub:
        response = await hub.ask("planner", "We decided to use SQLite in 64 MB.", user="u", session="s")
    assert (shown[0].view.summary == text) is taken
    assert response.usage.total == 110


async def test_a_summarizer_that_fails_costs_only_its_summary(make_hub: MakeHub) -> None:
    async def summarize(source: str, tokens: int) -> tuple[str, object]:
        raise RuntimeError("no model")

    hub = make_hub(summarizer=summarize)
    shown = team(hub, ContextFilter(include_summary=True))
    async with hub:
        await hub.ask("planner", "We decided to use SQLite.", user="u", session="s")
    assert "SQLite" in shown[0].view.summary


# ── after a restart ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_that_is_taken_up_again_is_shown_the_same(make_hub: MakeHub) -> None:
    """Decision 4: what was shown is found again, since only references to it were kept."""
    from asyncio import Event, create_task

    seen: list[list[str]] = []
    working, go = Event(), Event()

    def make() -> Hub:
        hub = make_hub()

        @hub.agent("a", resumable=True)
        async def a(brief: Brief) -> str:
            seen.append([message.text for message in brief.messages])
            if brief.text == "two":
                working.set()
                await go.wait()
            return "heard"

        return hub

    async with make() as hub:
        await hub.ask("a", "one", user="u", session="s")
        task = create_task(hub.ask("a", "two", user="u", session="s", request_id="r2", context=ContextFilter()))
        await working.wait()
    with pytest.raises(BaseException):  # noqa: B017, PT011 - the hub closed: whoever asked hears so in its own way
        (await task).unwrap()
    go.set()
    async with make() as hub:
        response: Response = await hub.ask("a", "two", user="u", session="s", request_id="r2", context=ContextFilter())
    assert response.result == "heard"
    assert seen[1] == seen[2] == ["one", "heard"]


# ── A delegation that asks for more context than there may be gets less, and is told so ───────────────────────────────


async def test_a_delegation_that_asks_for_more_context_than_there_may_be_is_told_so() -> None:
    """O5: cut, and said."""
    hub = Hub(store=MemoryStore())
    warnings: list[tuple[str, ...]] = []

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> int:
        return brief.remit.context_tokens

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> list[Any]:
        for tokens in (9_000, 4_000, None):
            reply = await brief.delegate("clerk", objective=f"go {tokens}", context_tokens=tokens)
            warnings.append(reply.warnings)
        (one,) = await brief.fan_out([Call(target="clerk", objective="x", context_tokens=5_000)])
        warnings.append(one.warnings)
        return []

    assert clerk
    assert boss
    async with hub:
        response = await hub.ask("boss", user="u-1")
    assert response.ok
    cut = "At most 4,000 tokens of context are passed on here, not {} as `context_tokens` asks for."
    assert [len(each) for each in warnings] == [1, 0, 0, 1]
    assert warnings[0][0].startswith(cut.format("9,000"))
    assert warnings[3][0].startswith(cut.format("5,000"))
    assert response.warnings == ()


async def test_saved_facts_reach_an_agent_in_a_new_session_where_a_filter_says_so(hub: Hub) -> None:
    """X2, X16: of that user alone, once each, with tokens that come back to the user."""
    known: list[list[str]] = []

    @hub.agent("desk", may_call=["clerk"])
    async def desk(brief: Brief) -> Answer:
        known.append([note.text for note in brief.known])
        if brief.text == "learn":
            return Answer("noted", new_facts=("drinks tea", f"writes as {MAIL}"))
        reply = await brief.delegate("clerk", objective=brief.text, context=ContextFilter(include_facts=True))
        return Answer(reply.result)

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:
        known.append([note.text for note in brief.known])
        return " / ".join(note.text for note in brief.known)

    facts = ContextFilter(include_facts=True)
    async with hub:
        await hub.ask("desk", "learn", user="u", session="s")
        told = await hub.ask("desk", "what?", user="u", session="t", context=facts)
        await hub.ask("desk", "what?", user="v", context=facts)
        await hub.ask("desk", "what?", user="u", session="s", context=facts)
    assert told.result == f"drinks tea / writes as {MAIL}"
    assert [len(each) for each in known] == [0, 2, 2, 0, 0, 2, 2]
    assert MAIL not in repr(known)
