"""What every store must do with what stays: the journal, counters, sessions, and lists in pages."""

import asyncio

from msgspec.structs import replace

from remit.ports import (
    MOST_FACTS,
    RecordFilter,
    RunScope,
    RunState,
    RunSummary,
    SessionFilter,
    SessionOwner,
    SessionSummary,
    Store,
)
from remit.protocol.envelope import Request
from remit.protocol.errors import Code
from remit.protocol.lifecycle import Status
from remit.protocol.records import Kind, Notice
from remit_testing.samples import (
    LONG_MS,
    OVER_MS,
    StoreCase,
    a_request,
    a_response,
    progress,
    texts,
)


class ArchiveConformance(StoreCase):
    """The promises of a store about journal, counters and archive."""

    # ── journal ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_a_later_value_of_a_step_replaces_the_earlier(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.journal("run-one", 1, "a", b"begun")
            store.journal("run-one", 1, "b", b"\x00\xff")
            store.journal("run-one", 1, "a", b"done")
            await store.flush()
            assert await store.load("run-one") == {"a": b"done", "b": b"\x00\xff"}
            assert await store.load("run-other") == {}

    async def test_a_step_that_is_noted_before_its_effects_is_durable_with_what_was_appended_before(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.append(Kind.PROGRESS, 1, "run-one", "session-one", progress("half"))
            assert await store.journal_durably("run-one", 1, "a", b"begun")
            assert await store.load("run-one") == {"a": b"begun"}
            assert texts(await store.records()) == ["half"]
            store.journal("run-one", 1, "a", b"done")
            await store.flush()
            assert await store.load("run-one") == {"a": b"done"}

    async def test_whoever_lost_a_run_is_told_before_it_begins_anything_more(self) -> None:
        """Decision 4: two hubs that both believe to own a run do not both execute its next step."""
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="slow", lease_ms=OVER_MS)
            await store.claim("run-one", "quick", LONG_MS)
            assert not await store.journal_durably("run-one", 1, "a", b"stale")
            assert await store.journal_durably("run-one", 2, "a", b"fresh")
            assert not await store.journal_durably("run-other", 1, "a", b"nobody's")
            await store.finish("run-one", 2, replace(a_response(a_request()), status=Status.PARTIAL), 1)
            assert not await store.journal_durably("run-one", 2, "b", b"late")
            assert await store.load("run-one") == {"a": b"fresh"}

    async def test_the_journal_of_a_run_that_did_not_succeed_is_known_until_its_outcome_is_forgotten(self) -> None:
        """A retry need not repeat finished work."""
        failed = replace(a_response(a_request()), status=Status.PARTIAL)
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.journal("run-one", 1, "a", b"done")
            await store.finish("run-one", 1, failed, 1)
            store.journal("run-one", 1, "b", b"late")
            await store.flush()
            assert await store.load("run-one") == {"a": b"done"}
            await store.sweep(max_attempts=3, keep_ms=LONG_MS)
            assert await store.load("run-one") == {}

    async def test_the_journal_of_a_finished_run_is_gone_and_stays_gone(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.journal("run-one", 1, "a", b"done")
            await store.finish("run-one", 1, a_response(a_request()), 1)
            store.journal("run-one", 1, "b", b"late")
            await store.flush()
            assert await store.load("run-one") == {}

    # ── counters ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_a_counter_adds_up_within_its_window(self) -> None:
        async with self.opened() as store:
            assert [await store.incr("key", n, LONG_MS) for n in (1, 2, 3)] == [1, 3, 6]
            assert await store.incr("other", 1, LONG_MS) == 1

    async def test_a_value_is_written_only_at_the_revision_that_its_writer_has_seen(self) -> None:
        async with self.opened() as store:
            assert await store.get("key") is None
            assert await store.cas("key", 1, b"too early") is None
            assert await store.cas("key", 0, b"first") == 1
            assert await store.cas("key", 0, b"too late") is None
            assert await store.get("key") == (1, b"first")
            assert await store.cas("key", 1, b"second") == 2
            assert await store.get("key") == (2, b"second")

    async def test_of_many_that_write_at_once_one_gets_through(self) -> None:
        async with self.opened() as store, asyncio.TaskGroup() as group:
            writes = [group.create_task(store.cas("key", 0, bytes([n]))) for n in range(10)]
        assert sorted(write.result() or 0 for write in writes) == [0] * 9 + [1]

    # ── archive ───────────────────────────────────────────────────────────────────────────────────────────────────────

    async def test_a_session_belongs_to_the_first_who_asks_for_it(self) -> None:
        async with self.opened() as store:
            assert await store.session("s", "u-1", "prime") == SessionOwner("u-1", "prime")
            assert await store.session("s", "u-2", "tag") == SessionOwner("u-1", "prime")

    async def test_a_session_in_use_belongs_to_the_user_and_agent_of_its_first_request(self) -> None:
        """X16: a child session is the callee's conversation with that user."""
        async with self.opened() as store:
            store.append(Kind.DELEGATION, 1, "run", "session-one", a_request())
            assert await store.session("session-one", "u-2", "tag") == SessionOwner("u-1", "prime")

    async def test_runs_are_listed_newest_first_and_by_user(self) -> None:
        async with self.opened() as store:
            for name, user in (("one", "u-1"), ("two", "u-2"), ("three", "u-1")):
                await store.submit(a_request(name, user=user), b"digest", worker="w", lease_ms=LONG_MS)
            response = a_response(a_request("one"))
            await store.finish("run-one", 1, response, 1)
            runs = await store.runs(user="u-1")
            assert [run.run for run in await store.runs(limit=2)] == ["run-three", "run-two"]
        one, three = "session-one", "session-three"
        assert runs == [
            RunSummary(
                "run-three", "u-1", "prime", "Sort receipts", 1_000, None, "running", "", three, 1_000, "run-three"
            ),
            RunSummary("run-one", "u-1", "prime", "Sort receipts", 1_000, response, "finished", "", one, 1, "run-one"),
        ]

    async def test_runs_are_found_by_what_links_them(self) -> None:
        """K1: by the correlation id; a run without one is found by its own id."""
        async with self.opened() as store:
            for name, user, correlation in (("one", "u-1", "c"), ("two", "u-2", "c"), ("three", "u-1", None)):
                request = replace(a_request(name, user=user), correlation=correlation)
                await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
            runs = await store.runs(correlation="c")
            assert [(run.run, run.correlation) for run in runs] == [("run-two", "c"), ("run-one", "c")]
            assert [run.run for run in await store.runs(correlation="c", user="u-1")] == ["run-one"]
            assert [run.run for run in await store.runs(correlation="run-three")] == ["run-three"]
            assert await store.runs(correlation="run-one") == []

    async def test_where_an_agents_runs_stand_is_told_by_what_changed_last(self) -> None:
        asking = replace(a_request("two", user="u-2"), correlation="c", via="north", created_ms=2_000)
        async with self.opened() as store:
            for request in (a_request(), asking, replace(a_request("three"), target="tag", created_ms=3_000)):
                await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
            one = RunState("run-one", "id-one", "u-1", "", "session-one", "", 1_000, 1, None, False, False)
            two = RunState("run-two", "id-two", "u-2", "north", "session-two", "c", 2_000, 2, None, False, False)
            assert await store.states(agent="prime") == [two, one]
            await store.finish("run-one", 1, a_response(a_request()), 4_000)
            question = replace(a_response(asking, "Which?"), requires_followup=True)
            await store.finish("run-two", 1, question, 3_000)
            one = one._replace(changed_ms=4_000, seq=4, status=Status.SUCCESS)
            two = two._replace(changed_ms=3_000, seq=5, status=Status.SUCCESS, asks_back=True)
            assert await store.states(agent="prime") == [one, two]
            assert await store.states(agent="prime", limit=1) == [one]
            assert await store.states(agent="prime", users=["u-2", "u-3"]) == [two]
            assert await store.states(agent="prime", session="session-one") == [one]
            assert await store.states(agent="prime", session="session-one", users=["u-2"]) == []
            for run in ("run-one", "run-two"):
                body = Notice(delegation=run, agent="prime", text="cancelled", code=Code.CANCELLED)
                store.append(Kind.NOTICE, 5_000, run, "session", body)
            await store.flush()
            assert await store.states(agent="prime") == [two._replace(changed_ms=5_000, called_off=True), one]

    async def test_runs_are_found_by_how_their_id_begins(self) -> None:
        names = ("a-1", "a-2", "b-1", "a%2", "A-1", "a_3")
        async with self.opened() as store:
            for name in names:
                await store.submit(a_request(name, user=f"u-{name[-1]}"), b"digest", worker="w", lease_ms=LONG_MS)
            runs = {
                prefix: [run.run for run in await store.runs(run=prefix)]
                for prefix in ("run-a-", "run-b-1", "run-a%", "run-a_", "run-c", "run-b-1-", "")
            }
            assert runs == {
                "run-a-": ["run-a-2", "run-a-1"],
                "run-b-1": ["run-b-1"],
                "run-a%": ["run-a%2"],
                "run-a_": ["run-a_3"],
                "run-c": [],
                "run-b-1-": [],
                "": [f"run-{name}" for name in reversed(names)],
            }
            assert [run.run for run in await store.runs(run="run-a", user="u-2")] == ["run-a%2", "run-a-2"]
            assert [run.run for run in await store.runs(run="run-a", limit=1)] == ["run-a_3"]

    async def test_only_those_runs_are_found_that_somebody_may_see(self) -> None:
        async with self.opened() as store:
            for name, user, agent, via in (
                ("one", "u-1", "prime", None),
                ("two", "u-2", "prime", "web"),
                ("three", "u-4", "tag", "web"),
                ("four", "u-3", "tag", "app"),
            ):
                request = replace(a_request(name, id="same", user=user), target=agent, via=via)
                await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
            runs = {
                of: ([run.run[4:] for run in await store.runs(of=of, limit=2)], await store.named("same", of))
                for of in (
                    RunScope(),
                    RunScope(users=("u-1", "u-3")),
                    RunScope(agents=("prime",)),
                    RunScope(via="web"),
                    RunScope(users=("u-4",), agents=("tag",), via="web"),
                    RunScope(users=()),
                )
            }
            assert await store.runs(user="u-1", of=RunScope(users=("u-2",))) == []
            assert await store.named("other", RunScope()) == []
            await store.finish("run-one", 1, a_response(a_request()), 1, keep=False)
            assert await store.named("same", RunScope(users=("u-1",))) == []
        all_runs = ["run-four", "run-three", "run-two", "run-one"]
        assert runs == {
            RunScope(): (["four", "three"], all_runs),
            RunScope(users=("u-1", "u-3")): (["four", "one"], ["run-four", "run-one"]),
            RunScope(agents=("prime",)): (["two", "one"], ["run-two", "run-one"]),
            RunScope(via="web"): (["three", "two"], ["run-three", "run-two"]),
            RunScope(users=("u-4",), agents=("tag",), via="web"): (["three"], ["run-three"]),
            RunScope(users=()): ([], []),
        }

    async def test_a_list_of_runs_is_read_page_by_page_and_within_times(self) -> None:
        async with self.opened() as store:
            for place, name in enumerate(("one", "two", "three", "four"), start=1):
                request = replace(a_request(name), created_ms=place * 1_000)
                await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
            runs = {
                of: [run.run[4:] for run in await store.runs(of=of, limit=2)]
                for of in (
                    RunScope(before="run-three"),
                    RunScope(before="run-one"),
                    RunScope(before="run-unknown"),
                    RunScope(since_ms=3_000),
                    RunScope(until_ms=3_000),
                    RunScope(since_ms=2_000, until_ms=4_000, before="run-three"),
                )
            }
        assert runs == {
            RunScope(before="run-three"): ["two", "one"],
            RunScope(before="run-one"): [],
            RunScope(before="run-unknown"): [],
            RunScope(since_ms=3_000): ["four", "three"],
            RunScope(until_ms=3_000): ["two", "one"],
            RunScope(since_ms=2_000, until_ms=4_000, before="run-three"): ["two"],
        }

    async def test_the_number_of_the_newest_record_is_known(self) -> None:
        async with self.opened() as store:
            assert await store.newest() == 0
            await store.submit(a_request(), b"digest", worker="w", lease_ms=LONG_MS)
            store.append(Kind.PROGRESS, 1, "run-one", "session-one", progress("half"))
            await store.flush()
            assert await store.newest() == 2

    async def test_the_parts_of_a_run_at_other_hubs_of_the_team_are_found(self) -> None:
        """A call over the bus is a run of its own: its id is that of the delegation, and its sender a hub."""
        async with self.opened() as store:
            await store.submit(a_request("one"), b"digest", worker="w", lease_ms=LONG_MS)
            for name, id, origin, via in (
                ("part", "run-one.1", "prime@team", "team"),
                ("deeper", "run-one.1.2", "prime@team", "team"),
                ("other", "run-other.1", "prime@team", "team"),
                ("client", "run-one.3", "user", "web"),
            ):
                request = replace(a_request(name, id=id), origin=origin, via=via)
                await store.submit(request, b"digest", worker="w", lease_ms=LONG_MS)
            parts = await store.handed_over("run-one", "u-1")
            assert parts == [("run-one.1", "run-part"), ("run-one.1.2", "run-deeper")]
            assert await store.handed_over("run-one", "u-2") == []

    async def test_a_run_whose_outcome_is_forgotten_is_still_found_by_its_id(self) -> None:
        async with self.opened() as store:
            for name in ("old", "older"):
                await store.submit(a_request(name), b"digest", worker="w", lease_ms=LONG_MS)
                await store.finish(f"run-{name}", 1, a_response(a_request(name)), 1)
            await store.sweep(max_attempts=3, keep_ms=LONG_MS)
            await store.submit(a_request("old", id="another"), b"digest", worker="w", lease_ms=LONG_MS)
            runs = [(run.run, run.state) for run in await store.runs(run="run-old")]
        assert runs == [("run-old", "running"), ("run-older", "finished"), ("run-old", "finished")]

    async def test_a_run_says_how_far_it_is(self) -> None:
        async with self.opened() as store:
            await store.submit(a_request("asks"), b"digest", worker="w", lease_ms=OVER_MS, waiting=True)
            await store.submit(a_request("silent"), b"digest", worker="w", lease_ms=OVER_MS)
            await store.submit(a_request("works"), b"digest", worker="w", lease_ms=LONG_MS)
            await store.submit(a_request("done"), b"digest", worker="w", lease_ms=OVER_MS)
            await store.finish("run-done", 1, a_response(a_request("done")), 1)
            runs = {run.run: run.state for run in await store.runs()}
        assert runs == {
            "run-asks": "waiting",
            "run-silent": "silent",
            "run-works": "running",
            "run-done": "finished",
        }

    async def test_facts_are_kept_once_per_user_oldest_first(self) -> None:
        """X16: new facts are saved for the user, and for no other."""
        async with self.opened() as store:
            store.remember("u-1", "run-one", ("likes tea", "is 40"))
            store.remember("u-1", "run-two", ("likes tea", "has a dog"))
            store.remember("u-2", "run-three", ("likes coffee",))
            await store.flush()
            assert await store.facts("u-1") == ("likes tea", "is 40", "has a dog")
            assert await store.facts("u-2") == ("likes coffee",)
            assert await store.facts("u-3") == ()
            many = tuple(str(number) for number in range(MOST_FACTS + 1))
            store.remember("u-4", "run", many)
            await store.flush()
            assert await store.facts("u-4") == many[1:]


async def listed(store: Store, *, before: int | None = None, limit: int = 100, **wanted: object) -> list[int]:
    """Return the numbers of the records that a filter selects."""
    page = await store.listings.records(RecordFilter(**wanted), before=before, limit=limit)  # pyright: ignore[reportArgumentType]
    return [record.seq for record in page.records]


async def submit(store: Store, request: Request, *, at_ms: int | None = None) -> None:
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
            await submit(store, a_request(), at_ms=2_000)
            await submit(store, replace(a_request("two", user="u-2"), target="tag"), at_ms=4_000)
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
            await submit(store, in_session("a", "one", at_ms=1_000), at_ms=2_000)
            await submit(store, in_session("b", "two", at_ms=3_000), at_ms=4_000)
            await submit(store, in_session("a", "three", at_ms=5_000, objective="And the rest?"))
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
            await submit(store, in_session("a", "one", at_ms=1_000), at_ms=2_000)
            other = a_request("two", user="u-2")
            await submit(store, replace(other, target="tag", objective="Name the COLOURS", via="lab"), at_ms=4_000)
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
