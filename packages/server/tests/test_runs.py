"""Runs over HTTP: searched, shown as a table of delegations, cancelled in part, retried and resumed."""

import asyncio
import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import ClientSession

from remit import Answer, Brief, Hub, Usage
from remit.policy.reception import Sender
from remit_server.run_trees import MOST_SEARCHED, PAGE
from serving import ANNA, OPERATOR, WEB, client_of, got, posted, serving

BOUND_S = 60


def answering(hub: Hub) -> Hub:
    @hub.agent("echo")
    async def echo(brief: Brief) -> Answer:
        return Answer(f"heard {brief.text}", usage=Usage(prompt=7, completion=3))

    @hub.agent("careless")
    async def careless(_: Brief) -> str:
        raise ValueError("a secret detail")

    @hub.agent("boss", may_call=["echo", "careless"])
    async def boss(brief: Brief) -> Answer:
        await brief.delegate("echo", objective="first")
        await brief.delegate("careless", objective="second")
        await brief.delegate("nobody", objective="third")
        return Answer("all done", usage=Usage(prompt=100, completion=50))

    assert echo
    assert careless
    assert boss
    return hub


async def listed(session: ClientSession, query: str = "") -> Any:
    status, found = await got(session, f"/v1/runs{query}")
    assert status == 200, found
    return found


async def asked(session: ClientSession, target: str, objective: str, user: str = "anna", **more: Any) -> str:
    _, answer = await posted(session, {"target": target, "user": user, "objective": objective, **more})
    return answer["run"]


# ── the search ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_runs_are_found_by_text_user_agent_outcome_and_what_links_them(hub: Hub) -> None:
    async with asyncio.timeout(BOUND_S), serving(answering(hub)) as server, client_of(server, "ops") as ops:
        tea = await asked(ops, "echo", "Buy Tea", user="ben", correlation="order-17")
        failed = await asked(ops, "careless", "Lose the papers")
        whole = await asked(ops, "boss", "Everything")
        for query, expected in (
            ("", [whole, failed, tea]),
            ("?q=tEA", [tea]),
            ("?q=HEARD", [tea]),
            (f"?q={failed[:20]}", [whole, failed, tea] if whole[:20] == failed[:20] else [failed]),
            ("?q=careless+failed", [failed]),
            ("?q=secret+detail", []),
            ("?user=ben", [tea]),
            ("?agent=boss", [whole]),
            ("?status=failed", [failed]),
            ("?status=failed,success", [whole, failed, tea]),
            ("?state=running,silent", []),
            ("?state=finished&user=anna", [whole, failed]),
            ("?code=DELEGATION_FAILED", [failed]),
            ("?correlation=order-17", [tea]),
            ("?q=nothing+like+it", []),
            ("?since_ms=1&until_ms=2", []),
            ("?since_ms=1", [whole, failed, tea]),
        ):
            found = await listed(ops, query)
            assert [each["run"] for each in found["runs"]] == expected, query
        line = (await listed(ops, "?q=tea"))["runs"][0]
        del line["started_ms"], line["changed_ms"], line["duration_ms"]
        assert line == {
            "run": tea,
            "user": "ben",
            "agent": "echo",
            "objective": "Buy Tea",
            "state": "finished",
            "status": "success",
            "preview": "heard Buy Tea",
            "tokens": 10,
            "cost": 0,
            "session": tea,
            "via": "ops",
            "correlation": "order-17",
        }


async def test_a_list_is_read_page_by_page_also_while_it_is_searched(hub: Hub) -> None:
    async with asyncio.timeout(BOUND_S), serving(answering(hub)) as server, client_of(server) as web:
        runs = [await asked(web, "echo", f"{'odd' if n % 2 else 'even'} {n}") for n in range(7)]
        for query, wanted in (("?limit=2", runs), ("?limit=2&q=odd", runs[1::2])):
            found: list[str] = []
            page = await listed(web, query)
            while True:
                found += [each["run"] for each in page["runs"]]
                if "next" not in page:
                    break
                page = await listed(web, f"{query}&before={page['next']}")
            assert found == wanted[::-1], query


async def test_a_search_reads_so_many_runs_and_says_where_it_goes_on(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit_server.run_trees.MOST_SEARCHED", 4)
    monkeypatch.setattr("remit_server.run_trees.PAGE", 2)
    assert MOST_SEARCHED % PAGE == 0
    async with asyncio.timeout(BOUND_S), serving(answering(hub)) as server, client_of(server) as web:
        first = await asked(web, "echo", "the needle")
        for n in range(6):
            await asked(web, "echo", f"hay {n}")
        page = await listed(web, "?q=needle")
        assert (page["runs"], page["searched"]) == ([], 4)
        page = await listed(web, f"?q=needle&before={page['next']}")
        assert [each["run"] for each in page["runs"]] == [first]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("?statsu=failed", "did you mean `status`"),
        ("?status=failled", "did you mean `failed`"),
        ("?state=gone", "known: waiting, running, silent, finished"),
        ("?code=TIMEOUTS", "did you mean `TIMEOUT`"),
        ("?since_ms=yesterday", "is not a number"),
        ("?limit=-1", "is not a number"),
    ],
)
async def test_a_wrong_filter_is_named(hub: Hub, query: str, told: str) -> None:
    async with asyncio.timeout(BOUND_S), serving(answering(hub)) as server, client_of(server) as web:
        status, failure = await got(web, f"/v1/runs{query}")
        assert (status, told in str(failure["fault"]["problems"])) == (400, True), failure


async def test_a_sender_finds_its_own_runs_alone(hub: Hub) -> None:
    bound = Sender(name="bound", users=frozenset({"anna"}), targets=frozenset({"echo"}))
    async with asyncio.timeout(BOUND_S), serving(answering(hub), WEB, ANNA, bound) as server:
        async with client_of(server) as web:
            own = await asked(web, "echo", "mine")
            boss = await asked(web, "boss", "also mine")
            await asked(web, "echo", "another's", user="ben")
        async with client_of(server, "anna-app") as anna:
            assert [each["run"] for each in (await listed(anna))["runs"]] == [boss, own]
            assert (await listed(anna, "?user=ben"))["runs"] == []
        async with client_of(server, "bound") as reader:
            assert [each["run"] for each in (await listed(reader))["runs"]] == [own]
            assert (await listed(reader, "?agent=boss"))["runs"] == []
            assert (await got(reader, f"/v1/runs/{boss}/tree"))[0] == 404


# ── the table of delegations ──────────────────────────────────────────────────────────────────────────────────────────


def rows(table: Any) -> list[dict[str, Any]]:
    """Return the delegations of a table as objects."""
    columns = table["delegations"]
    names = columns.pop("names")
    parents = columns.pop("parents", {})
    assert parents == {}
    found = [dict(zip(columns, each, strict=True)) for each in zip(*columns.values(), strict=True)]
    for row in found:
        for name in ("agent", "origin", "capability", "state", "code"):
            row[name] = None if row[name] < 0 else names[row[name]]
    return found


async def test_a_run_is_shown_with_all_its_delegations(hub: Hub) -> None:
    async with asyncio.timeout(BOUND_S), serving(answering(hub)) as server, client_of(server) as web:
        run = await asked(web, "boss", "Everything")
        status, table = await got(web, f"/v1/runs/{run}/tree")
        assert (status, table["run"]["run"], table["count"]) == (200, run, 4)
        found = rows(table)
        shown = [
            tuple(
                row[name] for name in ("path", "origin", "agent", "objective", "state", "code", "tokens", "own_tokens")
            )
            for row in found
        ]
        assert shown == [
            ("", "user", "boss", "Everything", "success", None, 160, 150),
            ("1", "boss", "echo", "first", "success", None, 10, 10),
            ("2", "boss", "careless", "second", "failed", "DELEGATION_FAILED", 0, 0),
            ("3", "boss", "nobody", "third", "refused", "AGENT_NOT_FOUND", 0, 0),
        ]
        assert "secret detail" not in str(found)
        assert all(0 <= row["own"] <= row["took"] for row in found)
        status, same = await got(web, f"/v1/runs/{run}/tree?after={table['seq']}")
        assert (status, same["count"], rows(same)) == (200, 4, [])
        assert (await got(web, "/v1/runs/no-such-run/tree"))[0] == 404


async def test_a_large_table_is_compressed_for_whoever_can_read_that(hub: Hub) -> None:
    async with asyncio.timeout(BOUND_S), serving(answering(hub)) as server:
        async with client_of(server) as web:
            run = await asked(web, "echo", "x" * 100)
        for accepted, coding in (("gzip, br", "gzip"), ("identity", None), ("gzip;q=0", None)):
            headers = {"authorization": "Bearer web", "accept-encoding": accepted}
            async with ClientSession(server.address, headers=headers, auto_decompress=False) as raw:
                for _ in range(30):
                    await posted(raw, {"target": "echo", "user": "anna", "objective": "y"})
                async with raw.get("/v1/runs") as reply:
                    body = await reply.read()
                assert reply.headers.get("content-encoding") == coding
                plain = gzip.decompress(body) if coding else body
                assert run in str(json.loads(plain)) or len(json.loads(plain)["runs"]) == 50


class Gate:
    """Agents that wait until they are let go."""

    def __init__(self, hub: Hub) -> None:
        self.go = asyncio.Event()
        self.begun: asyncio.Queue[str] = asyncio.Queue()

        @hub.agent("waiter", concurrency=10)
        async def waiter(brief: Brief) -> str:
            self.begun.put_nowait(brief.text)
            await self.go.wait()
            return f"waited {brief.text}"

        @hub.agent("lead", may_call=["waiter"])
        async def lead(brief: Brief) -> str:
            async with asyncio.TaskGroup() as group:
                both = [group.create_task(brief.delegate("waiter", objective=f"{n}")) for n in (1, 2)]
            return ", ".join(each.result().status for each in both)

        assert waiter
        assert lead

    async def ready(self, count: int) -> None:
        for _ in range(count):
            await self.begun.get()


async def test_what_changed_since_is_told_and_nothing_else(hub: Hub) -> None:
    gate = Gate(hub)
    async with asyncio.timeout(BOUND_S), serving(hub) as server, client_of(server) as web:
        ask = {"target": "lead", "user": "anna", "objective": "both", "id": "r-1"}
        _, begun = await posted(web, ask, Prefer="respond-async")
        await gate.ready(2)
        await hub.store.flush()
        path = f"/v1/runs/{begun['run']}/tree"
        _, first = await got(web, path)
        assert first["run"]["state"] == "running"
        assert [(row["path"], row["state"]) for row in rows(first)] == [
            ("", "waiting"),
            ("1", "running"),
            ("2", "running"),
        ]
        async with web.post(f"/v1/runs/{begun['run']}/cancel", json={"delegation": f"{begun['run']}.2"}) as reply:
            assert (reply.status, (await reply.json())["outcome"]) == (200, "cancelled")
        await settled(web, path, {"", "2"}, first["seq"])
        gate.go.set()
        await posted(web, ask)
        _, last = await got(web, f"{path}?after={first['seq']}")
        assert [(row["path"], row["state"]) for row in rows(last)] == [
            ("", "success"),
            ("1", "success"),
            ("2", "cancelled"),
        ]


async def settled(session: ClientSession, path: str, wanted: set[str], after: int) -> None:
    """Wait until a delegation has ended; only those that changed are told."""
    while True:
        _, table = await got(session, f"{path}?after={after}")
        found = rows(table)
        assert {row["path"] for row in found} <= wanted
        if any(row["state"] == "cancelled" for row in found):
            return
        await asyncio.sleep(0.01)


# ── the acts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def acted(session: ClientSession, run: str, act: str, **body: Any) -> tuple[int, Any]:
    async with session.post(f"/v1/runs/{run}/{act}", json=body) as reply:
        return reply.status, await reply.json()


async def test_a_part_of_a_run_is_cancelled_through_any_server_on_its_store(make_hub: Callable[..., Hub]) -> None:
    """The rest of the run goes on, and who cancelled it is on record."""
    executing, looking = make_hub(), make_hub()
    gate = Gate(executing)
    async with (
        asyncio.timeout(BOUND_S),
        serving(executing) as one,
        serving(looking) as other,
        client_of(one) as web,
        client_of(other, "ops") as ops,
    ):
        ask = {"target": "lead", "user": "anna", "objective": "both", "id": "r-1"}
        _, begun = await posted(web, ask, Prefer="respond-async")
        run = begun["run"]
        await gate.ready(2)
        await executing.store.flush()
        assert await acted(ops, run, "cancel", delegation=f"{run}.1", reason="not needed") == (
            202,
            {"run": run, "outcome": "asked", "delegation": f"{run}.1"},
        )
        await settled(ops, f"/v1/runs/{run}/tree", {"", "1", "2"}, 0)
        gate.go.set()
        _, answer = await posted(web, ask)
        assert answer["result"] == "cancelled, success"
        _, audit = await got(ops, f"/v1/audit?run={run}")
        notices = [each["body"] for each in audit["records"] if each["kind"] == "notice"]
        assert [(each["delegation"], each["text"]) for each in notices] == [
            (f"{run}.1", "cancelled: by ops, not needed")
        ]
        assert (await acted(ops, run, "cancel", delegation=f"{run}.1"))[1]["outcome"] == "over"


@pytest.mark.parametrize("path", ["{run}.9", "1", "another.1", "{run}."])
async def test_a_delegation_that_is_not_there_cannot_be_cancelled(hub: Hub, path: str) -> None:
    async with asyncio.timeout(BOUND_S), serving(answering(hub)) as server, client_of(server) as web:
        run = await asked(web, "boss", "Everything")
        status, failure = await acted(web, run, "cancel", delegation=path.format(run=run))
        assert (status, failure["fault"]["problems"][0]["path"]) == (404, "delegation")


async def test_a_whole_run_is_cancelled_by_who_may(hub: Hub) -> None:
    gate = Gate(hub)
    async with asyncio.timeout(BOUND_S), serving(hub, WEB, OPERATOR, ANNA) as server, client_of(server) as web:
        ask = {"target": "lead", "user": "ben", "objective": "both", "id": "r-1"}
        _, begun = await posted(web, ask, Prefer="respond-async")
        await gate.ready(2)
        async with client_of(server, "anna-app") as anna:
            for act in ("cancel", "retry", "resume"):
                assert (await acted(anna, begun["run"], act))[0] == 404
        assert (await acted(web, begun["run"], "resume"))[1]["outcome"] == "running"
        assert (await acted(web, begun["run"], "retry"))[1]["fault"]["code"] == "STATE_CONFLICT"
        async with client_of(server, "ops") as ops:
            status, told = await acted(ops, begun["run"], "cancel", reason="too long")
        assert (status, told["outcome"], told["status"], told["code"]) == (200, "cancelled", "cancelled", "CANCELLED")
        assert (await acted(web, begun["run"], "resume"))[1] == {
            "run": begun["run"],
            "outcome": "over",
            "status": "cancelled",
        }


async def test_a_run_that_failed_is_retried_as_a_new_run_of_its_user(hub: Hub) -> None:
    """What it was asked for, by whom, and who retried it is on record; a run that succeeded is not repeated."""
    tries: list[str] = []

    @hub.agent("moody")
    async def moody(brief: Brief) -> str:
        tries.append(brief.text)
        if len(tries) == 1:
            raise ValueError
        return f"done for {brief.user}"

    assert moody
    async with asyncio.timeout(BOUND_S), serving(hub) as server, client_of(server) as web:
        run = await asked(web, "moody", "Write to ada@example.com")
        async with client_of(server, "ops") as ops:
            status, told = await acted(ops, run, "retry", deadline_ms=60_000)
            assert (status, told["outcome"]) == (200, "retried")
            again = told["run"]
            _, ended = await got(web, f"/v1/delegations/{again}")
            while "status" not in ended:
                _, ended = await got(web, f"/v1/delegations/{again}")
            assert (ended["status"], ended["result"]) == ("success", "done for anna")
            assert [each.partition(":")[0] for each in tries] == ["Write to [EMAIL"] * 2
            _, audit = await got(ops, f"/v1/audit?run={again}")
            request = audit["records"][0]["body"]
            assert (request["retry_of"], request["remit"]["time_ms"], request["via"]) == (run, 60_000, "web")
            _, old = await got(ops, f"/v1/audit?run={run}")
            texts = [each["body"]["text"] for each in (*audit["records"], *old["records"]) if each["kind"] == "notice"]
            assert texts == [f"started by ops, as a retry of run {run}", f"retried by ops, as run {again}"]
            status, refused = await acted(ops, again, "retry")
            assert (status, refused["fault"]["code"]) == (409, "STATE_CONFLICT")
