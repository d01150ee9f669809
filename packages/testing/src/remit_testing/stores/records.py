"""What every store must do with records, and with the conversations that they make up."""

import asyncio
from typing import Any

from msgspec.structs import replace

from remit.ports import MOST_NOTES, DuplicateRequest, NumberedRecord, SessionOwner, Store
from remit.protocol.envelope import ContextFilter, Message, Note, Request, View
from remit.protocol.errors import Code
from remit.protocol.records import Approval, ChainBreak, Kind, Notice, Record, Refusal, Removal, ToolUse
from remit_testing.samples import (
    LONG_MS,
    PATIENCE,
    StoreCase,
    a_request,
    a_response,
    a_step,
    code_of,
    progress,
    texts,
)


class RecordConformance(StoreCase):
    """The promises of a store about its records."""

    async def test_what_was_appended_and_flushed_can_be_read_in_order(self) -> None:
        async with self.opened() as store:
            for number in range(250):
                store.append(Kind.PROGRESS, number, "run-one", "session-one", progress(f"step {number}"))
            await store.flush()
            records = await store.records(run="run-one")
        assert texts(records) == [f"step {number}" for number in range(250)]
        assert [record.at_ms for record in records] == list(range(250))

    async def test_records_are_numbered_without_gaps_from_one(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.append(Kind.PROGRESS, 1, "run-one", "session-one", progress("half"))
            await store.finish("run-one", 1, a_response(a_request()), 2)
            assert [record.seq for record in await store.records()] == [1, 2, 3]

    async def test_every_kind_of_body_comes_back_as_it_was_appended(self) -> None:
        request = a_request()
        bodies = {
            Kind.STARTED: request,
            Kind.DELEGATION: request,
            Kind.PROGRESS: progress("“half” \x00\\ 半 \U0001f600"),
            Kind.TOOL: ToolUse(
                delegation="d", agent="a", tool="t", input={"n": [1, -2.5, 1e300, 2**53 - 1, None, True]}
            ),
            Kind.NOTICE: Notice(delegation="d", agent="a", text="late", code=Code.TIMEOUT),
            Kind.RESULT: a_response(request, {"deep": [{"x": ""}], "ö": 0.1}),
            Kind.REFUSED: Refusal(request=request, response=a_response(request)),
            Kind.APPROVAL: Approval(delegation="d", agent="a", id="q", question="May it?", agreed=True, by="ann"),
            Kind.SHARED: a_step(),
            Kind.BREAK: ChainBreak(finding="key changed", text="a new key", old_key="aa", new_key="bb"),
            Kind.REMOVED: Removal(
                why="pruned",
                rule="messages 90d",
                first=1,
                last=9,
                before="00",
                after="aa",
                gone=(2, 4),
                at_ms=5,
                key="b",
            ),
        }
        async with self.opened() as store:
            for kind, body in bodies.items():
                store.append(kind, 5, "run", "session", body)
            await store.flush()
            records = await store.records()
        assert {record.kind: record.body for record in records} == bodies

    async def test_what_stands_in_another_log_is_recorded_once(self) -> None:
        entries = [
            NumberedRecord(number, Kind.SHARED, number, "run", "session", a_step(turn=number)) for number in range(1, 8)
        ]
        async with self.opened() as store:
            assert await store.transfer("one", ()) == 0
            assert await store.transfer("one", entries[:3]) == 3
            assert await store.transfer("one", entries[1:5]) == 5
            assert await store.transfer("one", entries[:2]) == 5
            assert await store.transfer("other", entries[6:]) == 7
            assert await store.transfer("one", ()) == 5
            assert [(record.seq, record.body) for record in await store.records(run="run")] == [
                (seq, a_step(turn=turn)) for seq, turn in enumerate((1, 2, 3, 4, 5, 7), start=1)
            ]

    async def test_how_far_another_log_was_recorded_is_known_after_a_restart(self) -> None:
        entries = [NumberedRecord(number, Kind.SHARED, 4, "run", "session", a_step()) for number in (3, 8)]
        async with self.opened() as store:
            await store.transfer("one", entries)
        async with self.opened(await self.reopen(store)) as store:
            assert await store.transfer("one", entries) == 8
            assert len(await store.records()) == 2

    async def test_what_comes_of_another_log_is_heard_like_any_record(self) -> None:
        records: list[Record] = []
        async with self.opened() as store:
            leave = store.listen(records.extend)
            await store.transfer("one", [NumberedRecord(1, Kind.SHARED, 4, "run", "session", a_step())])
            await store.flush()
            await asyncio.sleep(0)
            leave()
        assert records == [Record(seq=1, kind=Kind.SHARED, at_ms=4, run="run", session="session", body=a_step())]

    async def test_records_of_one_run_or_session_are_found_page_by_page(self) -> None:
        async with self.opened() as store:
            for number in range(30):
                run, session = f"run-{number % 3}", f"session-{number % 2}"
                store.append(Kind.PROGRESS, number, run, session, progress(str(number)))
            await store.flush()
            assert texts(await store.records(run="run-1", limit=3)) == ["1", "4", "7"]
            assert texts(await store.records(run="run-1", after=8, limit=2)) == ["10", "13"]
            assert texts(await store.records(session="session-1", after=26)) == ["27", "29"]
            assert texts(await store.records(run="run-0", session="session-1")) == ["3", "9", "15", "21", "27"]
            assert await store.records(run="nobody's") == []

    async def test_of_the_newest_records_it_is_known_who_was_asked_and_how_it_ended_but_not_what_was_said(self) -> None:
        request = replace(a_request(), input={"much": ["more"]}, capability="SORT")
        ended = a_response(request, "x" * 1_000)
        async with self.opened() as store:
            for number in range(250):
                store.append(Kind.DELEGATION, number, f"run-{number}", "session-one", request)
                store.append(Kind.PROGRESS, number, f"run-{number}", "session-one", progress("half"))
                store.append(Kind.RESULT, number, f"run-{number}", "session-one", ended)
            await store.flush()
            everything, some = await store.recent(10_000), await store.recent(4)
            assert await store.recent(0) == []
        silent = replace(request, objective="", input=None), replace(ended, result=None)
        assert [(each.at_ms, each.body) for each in everything] == [(at, body) for at in range(250) for body in silent]
        assert some == everything[-3:]

    async def test_listeners_get_every_committed_record_in_order_until_they_leave(self) -> None:
        received: list[Record] = []
        enough = asyncio.Event()

        def listener(records: list[Record]) -> None:
            received.extend(records)
            if len(received) >= 3:
                enough.set()

        async with self.opened() as store:
            leave = store.listen(listener)
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.append(Kind.PROGRESS, 1, "run-one", "session-one", progress("half"))
            await store.finish("run-one", 1, a_response(a_request()), 2)
            async with asyncio.timeout(PATIENCE):
                await enough.wait()
            leave()
            store.append(Kind.PROGRESS, 3, "run-one", "session-one", progress("unheard"))
            await store.flush()
            assert received == (await store.records())[:3]

    async def test_a_listener_hears_of_a_record_though_nobody_flushes(self) -> None:
        delivered = asyncio.Event()
        async with self.opened() as store:
            store.listen(lambda _: delivered.set())
            store.append(Kind.PROGRESS, 1, "run-one", "session-one", progress("half"))
            async with asyncio.timeout(PATIENCE):
                await delivered.wait()

    async def test_there_is_room_again_after_a_flood(self) -> None:
        async with self.opened() as store:
            for number in range(10_000):
                if store.full:
                    async with asyncio.timeout(PATIENCE):
                        await store.room()
                store.append(Kind.PROGRESS, number, "run-one", "session-one", progress("x"))
            await store.flush()
            assert not store.full
            assert len(await store.records(limit=20_000)) == 10_000

    async def test_closing_keeps_everything_that_was_appended(self) -> None:
        """K13: session state survives a restart."""
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.append(Kind.PROGRESS, 1, "run-one", "session-one", progress("half"))
            store.journal("run-one", 1, "step", b"value")
            store.remember("u-1", "run-one", ("likes tea",))
            await store.session("given", "u-2", "tag")
            await store.cas("key", 0, b"value")
        async with self.opened(await self.reopen(store)) as store:
            assert texts(await store.records()) == ["half"]
            assert await store.load("run-one") == {"step": b"value"}
            assert await store.facts("u-1") == ("likes tea",)
            assert await store.session("given", "u-1", "prime") == SessionOwner("u-2", "tag")
            assert await store.get("key") == (1, b"value")
            assert await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS) == DuplicateRequest(
                "run-one", True, None
            )

    async def test_a_closed_store_says_so(self) -> None:
        store = await self.make()
        await store.open()
        await store.close()
        for attempt in (store.flush(), store.records(), store.submit(a_request(), b"", worker="w", lease_ms=1)):
            assert await code_of(attempt) is Code.STORE_UNAVAILABLE

    async def test_closing_twice_is_closing_once(self) -> None:
        async with self.opened() as store:
            await store.close()


PLENTY = 1_000_000
NOW_MS = 100_000


async def say(store: Store, session: str, *texts: str, at_ms: int = NOW_MS) -> None:
    """Record texts in a session, asked and answered in turns."""
    for start in range(0, len(texts), 2):
        question, *answers = texts[start : start + 2]
        request = replace(a_request(f"{session} {question}"), session=session, objective=question)
        store.append(Kind.STARTED, at_ms, request.run, session, request)
        for answer in answers:
            store.append(Kind.RESULT, at_ms, request.run, session, a_response(request, answer))
    await store.flush()


def showing(session: str, text: str, *messages: Message) -> Request:
    """Return a request in a session whose callee is shown messages of another."""
    return replace(
        a_request(f"{session} {text}"),
        parent="above",
        session=session,
        objective=text,
        view=View(messages=messages).recorded(),
    )


async def filtered(store: Store, session: str, tokens: int = PLENTY, **wanted: Any) -> list[str]:
    """Return the texts that a filter lets pass."""
    messages = await store.messages(session, ContextFilter(**wanted), now_ms=NOW_MS, tokens=tokens)
    return [message.text for message in messages]


class ConversationConformance(StoreCase):
    """The promises of `Conversations`."""

    async def test_what_was_asked_and_answered_in_a_session_is_found_oldest_first(self) -> None:
        request = a_request()
        async with self.opened() as store:
            await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
            store.append(Kind.PROGRESS, 2, request.run, "session-one", progress("half"))
            await store.finish("run-one", 1, a_response(request, {"n": 1}), 3)
            messages = await store.messages("session-one", ContextFilter(), now_ms=NOW_MS, tokens=PLENTY)
        counted = [replace(message, tokens=0) for message in messages]
        assert counted == [
            Message(role="user", text="Sort receipts", name="user", at_ms=1_000, seq=1, delegation="run-one"),
            Message(role="assistant", text='{"n":1}', name="prime", at_ms=3, seq=3, delegation="id-one"),
        ]
        assert all(message.tokens > 0 for message in messages)

    async def test_nobody_finds_what_an_agent_did_with_its_tools(self) -> None:
        """O4: never the caller's tool calls, their results or its reasoning."""
        use = ToolUse(delegation="run-one", agent="prime", tool="search", input="secret")
        async with self.opened() as store:
            await say(store, "s", "question", "answer")
            store.append(Kind.TOOL, 1, "run-one", "s", use)
            store.append(Kind.PROGRESS, 1, "run-one", "s", progress("secret"))
            await store.flush()
            assert await filtered(store, "s") == ["question", "answer"]
            assert await filtered(store, "s", keywords=("secret",)) == []

    async def test_messages_are_filtered_by_role_keyword_age_and_number(self) -> None:
        """O2: in the document's order."""
        async with self.opened() as store:
            await say(store, "s", "old apple", "old pear", at_ms=NOW_MS - 10_000)
            await say(store, "s", "an APPLE", "a pear", "a plum", "no apple")
            assert await filtered(store, "s", last_messages=2) == ["a plum", "no apple"]
            assert await filtered(store, "s", last_messages=0) == []
            assert await filtered(store, "s", roles=frozenset({"assistant"})) == ["old pear", "a pear", "no apple"]
            assert await filtered(store, "s", roles=frozenset({"system"})) == []
            assert await filtered(store, "s", keywords=("Apple",)) == ["old apple", "an APPLE", "no apple"]
            assert await filtered(store, "s", keywords=("PL", "old pe")) == [
                "old apple",
                "old pear",
                "an APPLE",
                "a plum",
                "no apple",
            ]
            assert await filtered(store, "s", keywords=()) == []
            assert await filtered(store, "s", max_age_seconds=10) == ["an APPLE", "a pear", "a plum", "no apple"]
            assert await filtered(
                store, "s", last_messages=1, roles=frozenset({"user"}), keywords=("apple",), max_age_seconds=10
            ) == ["an APPLE"]

    async def test_the_newest_messages_that_fit_are_found(self) -> None:
        async with self.opened() as store:
            await say(store, "s", "the first of all", "the second", "the third of all", "the fourth")
            messages = await store.messages("s", ContextFilter(), now_ms=NOW_MS, tokens=PLENTY)
            room = sum(message.tokens for message in messages[1:])
            assert await filtered(store, "s", room) == ["the second", "the third of all", "the fourth"]
            assert await filtered(store, "s", room - 1) == ["the third of all", "the fourth"]
            assert await filtered(store, "s", 0) == []

    async def test_each_session_has_its_own_messages(self) -> None:
        async with self.opened() as store:
            for session in ("one", "two"):
                await say(store, session, f"said in {session}", "an answer")
            assert await filtered(store, "one", keywords=("said in",)) == ["said in one"]
            assert await filtered(store, "two") == ["said in two", "an answer"]
            assert await filtered(store, "three") == []

    async def test_what_is_said_later_is_found_too(self) -> None:
        async with self.opened() as store:
            for number in range(3):
                await say(store, "s", f"question {number}", f"answer {number}")
                assert await filtered(store, "s", last_messages=1) == [f"answer {number}"]
                assert await filtered(store, "s", keywords=("question",)) == [
                    f"question {each}" for each in range(number + 1)
                ]

    async def test_a_long_conversation_is_searched_to_its_beginning(self) -> None:
        async with self.opened() as store:
            for number in range(150):
                await say(store, "s", f"question {number}", f"answer {number}" + " with a needle" * (number % 50 == 7))
            needles = [f"answer {number} with a needle" for number in (7, 57, 107)]
            assert await filtered(store, "s", keywords=("A NEEDLE",)) == needles
            assert await filtered(store, "s", keywords=("A NEEDLE",), last_messages=2) == needles[1:]
            await say(store, "s", "where is the needle", "here")
            assert await filtered(store, "s", keywords=("needle",)) == [*needles, "where is the needle"]
            assert len(await filtered(store, "s")) == 302
            assert len(await filtered(store, "s", last_messages=299)) == 299

    async def test_what_a_callee_was_shown_belongs_to_its_conversation(self) -> None:
        async with self.opened() as store:
            await say(store, "above", "question", "answer")
            shown = await store.messages("above", ContextFilter(), now_ms=NOW_MS, tokens=PLENTY)
            for request in (showing("below", "first", *shown[:1]), showing("below", "second", *shown)):
                store.append(Kind.DELEGATION, NOW_MS, request.run, "below", request)
            await store.flush()
            assert await filtered(store, "below") == ["question", "first", "answer", "second"]
            assert await filtered(store, "below", keywords=("question", "second")) == ["question", "second"]
            assert await filtered(store, "above") == ["question", "answer"]
            again = await store.messages("below", ContextFilter(), now_ms=NOW_MS, tokens=PLENTY)
            assert [message for message in again if message.seq < 3] == shown

    async def test_a_session_says_which_messages_stand_in_it(self) -> None:
        async with self.opened() as store:
            await say(store, "above", "question", "answer")
            shown = await store.messages("above", ContextFilter(), now_ms=NOW_MS, tokens=PLENTY)
            assert await store.seen("below", [1, 2]) == frozenset()
            request = showing("below", "first", *shown[:1])
            store.append(Kind.DELEGATION, NOW_MS, request.run, "below", request)
            await store.flush()
            assert await store.seen("below", [1, 2, 3, 99]) == {1, 3}
            assert await store.seen("above", (1, 2, 3)) == {1, 2}
            assert await store.seen("below", ()) == frozenset()
            assert await store.seen("nobody's", [1]) == frozenset()

    async def test_a_request_that_began_in_another_form_stands_there_in_that_form(self) -> None:
        first = a_request()
        begun = replace(first, objective="Sort one receipt")
        async with self.opened() as store:
            await store.submit(first, b"digest", worker="w", lease_ms=LONG_MS, waiting=True)
            assert await filtered(store, "session-one") == ["Sort receipts"]
            await store.begin("run-one", 1, begun)
            await store.finish("run-one", 1, a_response(begun), 1)
            assert await filtered(store, "session-one") == ["Sort one receipt", "sorted"]
            assert await filtered(store, "session-one", keywords=("sort",), last_messages=2) == [
                "Sort one receipt",
                "sorted",
            ]
            assert await store.seen("session-one", [1, 2, 3]) == {2, 3}

    async def test_what_is_known_in_a_conversation_is_kept_once_where_it_came_last(self) -> None:
        first, second, third = (
            Note("fact", "likes tea"),
            Note("decision", "likes tea"),
            Note("answer", "at nine", "clerk"),
        )
        async with self.opened() as store:
            store.note("one", [first, second, first])
            store.note("two", [third])
            store.note("one", [second, third])
            await store.flush()
            assert await store.notes("one") == [first, second, third]
            store.note("one", [Note("fact", "likes tea", "clerk")])
            await store.flush()
            assert await store.notes("one") == [second, third, Note("fact", "likes tea", "clerk")]
            assert await store.notes("two") == [third]
            assert await store.notes("three") == []
            store.note("three", [Note("fact", f"number {number}") for number in range(MOST_NOTES + 1)])
            await store.flush()
            assert [note.text for note in await store.notes("three")] == [f"number {n + 1}" for n in range(MOST_NOTES)]

    async def test_closing_keeps_conversations_and_what_is_known_in_them(self) -> None:
        async with self.opened() as store:
            await say(store, "s", "question", "answer")
            assert await filtered(store, "s", keywords=("answer",)) == ["answer"]
            store.note("s", [Note("fact", "likes tea")])
        async with self.opened(await self.reopen(store)) as store:
            assert await filtered(store, "s") == ["question", "answer"]
            assert await filtered(store, "s", keywords=("answer",)) == ["answer"]
            assert await store.notes("s") == [Note("fact", "likes tea")]

    async def test_a_closed_store_knows_no_conversation(self) -> None:
        store = await self.make()
        await store.open()
        await store.close()
        attempts = (
            store.messages("s", ContextFilter(), now_ms=0, tokens=1),
            store.seen("s", [1]),
            store.notes("s"),
        )
        for attempt in attempts:
            assert await code_of(attempt) is Code.STORE_UNAVAILABLE
