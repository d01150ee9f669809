"""What every store must do with lists: records and conversations, newest first, filtered, in pages."""

from msgspec.structs import replace

from remit.protocol.envelope import Request
from remit.protocol.records import Kind, Notice
from remit.runtime.ports import RecordFilter, RunScope, SessionFilter, SessionSummary, Store
from remit_testing.samples import LONG_MS, StoreCase, a_request, a_response, progress


async def listed(store: Store, *, before: int | None = None, limit: int = 100, **wanted: object) -> list[int]:
    """Return the numbers of the records that a filter selects."""
    page = await store.listings.records(RecordFilter(**wanted), before=before, limit=limit)  # pyright: ignore[reportArgumentType]
    return [record.seq for record in page.records]


async def asked(store: Store, request: Request, *, at_ms: int | None = None) -> None:
    """Submit a request, and finish it if *at_ms* is given."""
    await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
    if at_ms is not None:
        await store.finish(request.run, 1, a_response(request), at_ms)


def in_session(session: str, name: str, *, at_ms: int, **changes: object) -> Request:
    """Return a request in a conversation."""
    return replace(a_request(name), session=session, created_ms=at_ms, **changes)  # pyright: ignore[reportArgumentType]


async def sessions(store: Store, *, before: int | None = None, limit: int = 50, **wanted: object) -> list[str]:
    """Return the conversations that a filter selects."""
    page = await store.listings.sessions(SessionFilter(**wanted), before=before, limit=limit)  # pyright: ignore[reportArgumentType]
    return [each.session for each in page.sessions]


class ListingConformance(StoreCase):
    """The promises of `Listings`."""

    async def test_records_are_listed_newest_first_in_pages(self) -> None:
        async with self.opened() as store:
            for number in range(1, 251):
                store.append(Kind.PROGRESS, number, "run-one", "session-one", progress(f"{number}"))
            await store.flush()
            page = await store.listings.records(RecordFilter(), limit=120)
            assert [record.seq for record in page.records] == list(range(250, 130, -1))
            assert page.next == 131
            page = await store.listings.records(RecordFilter(), before=131, limit=200)
            assert [record.seq for record in page.records] == list(range(130, 0, -1))
            assert page.next is None
            assert (await store.listings.records(RecordFilter(), before=1)).next is None

    async def test_records_are_filtered_by_run_session_kind_user_agent_and_time(self) -> None:
        async with self.opened() as store:
            await asked(store, a_request(), at_ms=2_000)
            await asked(store, replace(a_request("two", user="u-2"), target="tag"), at_ms=4_000)
            store.append(Kind.NOTICE, 5_000, "run-two", "below", Notice(delegation="d", agent="sorter", text="late"))
            await store.flush()
            assert await listed(store) == [5, 4, 3, 2, 1]
            assert await listed(store, run="run-two") == [5, 4, 3]
            assert await listed(store, run="run-two", before=5) == [4, 3]
            assert await listed(store, session="session-two") == [4, 3]
            assert await listed(store, kinds=frozenset({Kind.RESULT, Kind.NOTICE})) == [5, 4, 2]
            assert await listed(store, kinds=frozenset({Kind.DELTA})) == []
            assert await listed(store, user="u-2") == [5, 4, 3]
            assert await listed(store, user="u-3") == []
            assert await listed(store, agent="prime") == [2, 1]
            assert await listed(store, agent="sorter") == [5]
            assert await listed(store, since_ms=2_000, until_ms=4_000) == [4, 2]
            assert await listed(store, run="run-two", agent="tag", limit=1) == [4]
            assert await listed(store, user="u-2", kinds=frozenset({Kind.STARTED}), agent="tag") == [3]

    async def test_conversations_are_listed_with_the_newest_request_first(self) -> None:
        async with self.opened() as store:
            await asked(store, in_session("a", "one", at_ms=1_000), at_ms=2_000)
            await asked(store, in_session("b", "two", at_ms=3_000), at_ms=4_000)
            await asked(store, in_session("a", "three", at_ms=5_000, objective="And the rest?"))
            store.append(Kind.PROGRESS, 5_500, "run-three", "a", progress("half"))
            await store.flush()
            page = await store.listings.sessions(SessionFilter())
            assert page.sessions == [
                SessionSummary("a", "u-1", "prime", "And the rest?", 1_000, 5_000, 2, 3, "run-three"),
                SessionSummary("b", "u-1", "prime", "Sort receipts", 3_000, 4_000, 1, 2, "run-two"),
            ]
            assert page.next is None
            page = await store.listings.sessions(SessionFilter(), limit=1)
            assert [each.session for each in page.sessions] == ["a"]
            assert await sessions(store, before=page.next) == ["b"]

    async def test_conversations_are_filtered_by_user_agent_text_and_time(self) -> None:
        async with self.opened() as store:
            await asked(store, in_session("a", "one", at_ms=1_000), at_ms=2_000)
            other = a_request("two", user="u-2")
            await asked(store, replace(other, target="tag", objective="Name the COLOURS", via="lab"), at_ms=4_000)
            assert await sessions(store, user="u-2") == ["session-two"]
            assert await sessions(store, agent="tag") == ["session-two"]
            assert await sessions(store, text="colours") == ["session-two"]
            assert await sessions(store, text="SESSION-t") == ["session-two"]
            assert await sessions(store, text="receipts") == ["a"]
            assert await sessions(store, session="a") == ["a"]
            assert await sessions(store, session="absent") == []
            assert await sessions(store, since_ms=3_000) == ["session-two"]
            assert await sessions(store, until_ms=3_000) == ["a"]
            assert await sessions(store, of=RunScope(users=("u-1",))) == ["a"]
            assert await sessions(store, of=RunScope(agents=("tag",))) == ["session-two"]
            assert await sessions(store, of=RunScope(via="lab")) == ["session-two"]
            assert await sessions(store, of=RunScope(users=())) == []

    async def test_a_run_without_a_conversation_is_one_by_itself_and_an_edited_request_counts_once(self) -> None:
        request = replace(a_request(), session=None, created_ms=1_000)
        async with self.opened() as store:
            await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS, waiting=True)
            await store.begin("run-one", 1, replace(request, objective="Sort one receipt"))
            page = await store.listings.sessions(SessionFilter())
            assert [(each.session, each.objective, each.runs, each.messages) for each in page.sessions] == [
                ("run-one", "Sort one receipt", 1, 1)
            ]
