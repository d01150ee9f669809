"""What every store must do with records: keep them in order, and report them to listeners."""

import asyncio

from msgspec.structs import replace

from remit.protocol.errors import Code
from remit.protocol.records import Approval, ChainBreak, Kind, Notice, Record, Refusal, Removal, ToolUse
from remit.runtime.ports import (
    DuplicateRequest,
    NumberedRecord,
    SessionOwner,
)
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
            found = await store.records(run="run-one")
        assert texts(found) == [f"step {number}" for number in range(250)]
        assert [record.at_ms for record in found] == list(range(250))

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
            found = await store.records()
        assert {record.kind: record.body for record in found} == bodies

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
        heard: list[Record] = []
        async with self.opened() as store:
            leave = store.listen(heard.extend)
            await store.transfer("one", [NumberedRecord(1, Kind.SHARED, 4, "run", "session", a_step())])
            await store.flush()
            await asyncio.sleep(0)
            leave()
        assert heard == [Record(seq=1, kind=Kind.SHARED, at_ms=4, run="run", session="session", body=a_step())]

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
        asked = replace(a_request(), input={"much": ["more"]}, capability="SORT")
        ended = a_response(asked, "x" * 1_000)
        async with self.opened() as store:
            for number in range(250):
                store.append(Kind.DELEGATION, number, f"run-{number}", "session-one", asked)
                store.append(Kind.PROGRESS, number, f"run-{number}", "session-one", progress("half"))
                store.append(Kind.RESULT, number, f"run-{number}", "session-one", ended)
            await store.flush()
            everything, some = await store.recent(10_000), await store.recent(4)
            assert await store.recent(0) == []
        silent = replace(asked, objective="", input=None), replace(ended, result=None)
        assert [(each.at_ms, each.body) for each in everything] == [(at, body) for at in range(250) for body in silent]
        assert some == everything[-3:]

    async def test_listeners_get_every_committed_record_in_order_until_they_leave(self) -> None:
        heard: list[Record] = []
        enough = asyncio.Event()

        def listener(records: list[Record]) -> None:
            heard.extend(records)
            if len(heard) >= 3:
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
            assert heard == (await store.records())[:3]

    async def test_a_listener_hears_of_a_record_though_nobody_flushes(self) -> None:
        heard = asyncio.Event()
        async with self.opened() as store:
            store.listen(lambda _: heard.set())
            store.append(Kind.PROGRESS, 1, "run-one", "session-one", progress("half"))
            async with asyncio.timeout(PATIENCE):
                await heard.wait()

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
