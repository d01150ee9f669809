"""The audit log over HTTP: newest first, filtered, verified, one row with its digest, and exported."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any, cast

import apsw
import pytest
from aiohttp import ClientSession

from remit import Brief, Hub
from remit.policy.reception import Permission, Sender
from remit.protocol.records import Kind
from remit.stores.connection import SqliteConnection
from remit.stores.sqlite import SqliteStore
from remit_server.audit_endpoints import AuditVerifier
from remit_testing.memory import MemoryStore
from remit_testing.samples import progress
from serving import ANNA, OPERATOR, WEB, client_of, got, posted, serving
from waiting import PATIENCE_S

READER = Sender(name="reader", permissions=frozenset({Permission.READ}))


def add_agents(hub: Hub) -> None:
    @hub.agent("prime", may_call=["tag"])
    async def prime(brief: Brief) -> str:
        return str((await brief.delegate("tag", objective="Name the colours")).result)

    @hub.agent("tag")
    async def tag(_: Brief) -> str:
        return "red"

    assert prime
    assert tag


async def verified(session: ClientSession) -> Any:
    """Return the verification once it is not running any more."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status, told = await got(session, "/v1/audit/verification")
            assert status == 200
            if told["state"] != "running":
                return told
            assert told["progress"]["row"] <= told["progress"]["of"]


async def test_rows_are_read_backwards_and_filtered(hub: Hub) -> None:
    add_agents(hub)
    async with serving(hub, WEB, READER) as server, client_of(server) as web, client_of(server, "reader") as reader:
        _, anna = await posted(web, {"target": "prime", "user": "anna", "objective": "Sort"})
        _, bob = await posted(web, {"target": "tag", "user": "bob", "objective": "Sort"})

        async def found(query: str) -> list[int]:
            _, page = await got(reader, f"/v1/audit/search?{query}")
            return [each["seq"] for each in page["records"]]

        assert await found("") == [6, 5, 4, 3, 2, 1]
        assert await found("kind=started,delegation") == [5, 2, 1]
        assert await found("user=bob") == [6, 5]
        assert await found("agent=prime") == [4, 1]
        assert await found(f"run={anna['run']}&kind=result") == [4, 3]
        assert await found(f"session={bob['run']}") == [6, 5]
        assert await found("until=1") == []
        assert await found("since=1&limit=2") == [6, 5]
        _, page = await got(reader, "/v1/audit/search?limit=4")
        assert (page["next"], await found("before=3")) == (3, [2, 1])
        assert await found("limit=0") == [6], "a page has one record at least"
        async with reader.get(f"/v1/audit/export?run={anna['run']}") as reply:
            lines = [json.loads(line) for line in (await reply.text()).splitlines()]
            assert "attachment" in reply.headers["content-disposition"]
        assert [each["seq"] for each in lines] == [4, 3, 2, 1]
        assert lines[0]["body"]["result"] == "red"


@pytest.mark.parametrize(
    ("query", "name", "why"),
    [
        ("kind=resilt", "kind", "did you mean `result`"),
        ("kind=result,delta", "kind", "known: started"),
        ("since=soon", "since", "is not a number"),
        ("agnt=tag", "agnt", "did you mean `agent`"),
        ("after=3", "after", "unknown parameter"),
    ],
)
async def test_a_wrong_filter_is_named(hub: Hub, query: str, name: str, why: str) -> None:
    async with serving(hub, READER) as server, client_of(server, "reader") as reader:
        status, body = await got(reader, f"/v1/audit/search?{query}")
        [problem] = body["fault"]["problems"]
        assert (status, problem["path"]) == (400, name)
        assert why in problem["message"]


async def test_a_row_has_the_digest_that_follows_from_the_row_before(hub: Hub) -> None:
    add_agents(hub)
    async with serving(hub, WEB, READER) as server, client_of(server) as web, client_of(server, "reader") as reader:
        await posted(web, {"target": "prime", "user": "anna", "objective": "Sort"})
        _, first = await got(reader, "/v1/audit/1")
        _, second = await got(reader, "/v1/audit/2")
        assert (first["previous"], second["previous"]) == ("0" * 64, first["digest"])
        assert len(bytes.fromhex(second["digest"])) == hashlib.sha256().digest_size
        assert (second["record"]["seq"], second["record"]["kind"]) == (2, "delegation")
        assert second["is_signed"] is (second["checkpoint"] is not None)
        for seq in ("0", "99", "x", "9" * 20):
            assert (await got(reader, f"/v1/audit/{seq}"))[0] == 404, seq


async def test_a_record_is_verified_in_the_background_and_again_where_it_has_grown(tmp_path: Path) -> None:
    hub = Hub(store=SqliteStore(tmp_path / "hub.db", durability="process", checkpoint_every=2))
    add_agents(hub)
    async with serving(hub, WEB, READER) as server, client_of(server) as web, client_of(server, "reader") as reader:
        await posted(web, {"target": "prime", "user": "anna", "objective": "Sort"})
        told = await verified(reader)
        result = told["result"]
        assert (told["state"], result["ok"], result["rows"], result["since"]) == ("done", True, 4, 0)
        assert (result["findings"], len(result["keys"])) == ([], 1)
        assert "the record is whole: 4 rows" in result["text"]
        assert told["whole_ms"] == result["at_ms"]
        # The record has not grown: nothing is verified again.
        assert await verified(reader) == told
        async with reader.post("/v1/audit/verification") as reply:
            assert (reply.status, (await reply.json())["state"]) == (200, "running")
        assert (await verified(reader))["result"]["at_ms"] >= result["at_ms"]


async def test_a_row_that_was_changed_is_found(tmp_path: Path) -> None:
    path = tmp_path / "hub.db"
    hub = Hub(store=SqliteStore(path, durability="process"))
    add_agents(hub)
    async with hub:
        await hub.ask("prime", "Sort", user="anna")
    connection = cast("SqliteConnection", apsw.Connection(str(path)))
    connection.execute("UPDATE record SET body = replace(CAST(body AS TEXT), 'red', 'blue') WHERE seq = 3")
    connection.close()
    again = Hub(store=SqliteStore(path, durability="process"))
    async with serving(again, READER) as server, client_of(server, "reader") as reader:
        result = (await verified(reader))["result"]
        assert (result["ok"], result["announced"]) == (False, False)
        [finding] = result["findings"]
        assert (finding["tampering"], finding["first"], finding["last"]) == ("edited", 3, 3)
        assert "tampered with" in result["text"]


async def test_nobody_without_read_gets_anything_of_it(hub: Hub) -> None:
    add_agents(hub)
    others = Sender(name="others", permissions=frozenset(Permission) - {Permission.READ})
    async with serving(hub, WEB, ANNA, others, OPERATOR) as server, client_of(server) as web:
        await posted(web, {"target": "prime", "user": "anna", "objective": "Sort"})
        for name in (ANNA.name, "others"):
            async with client_of(server, name) as session:
                for path in ("", "/1", "/export", "/verification", "/search"):
                    async with session.get(f"/v1/audit{path}") as reply:
                        assert (reply.status, "Sort" in await reply.text()) == (403, False), path
                async with session.post("/v1/audit/verification") as reply:
                    assert reply.status == 403


async def test_an_operator_of_one_team_sees_the_rows_of_that_team(hub: Hub) -> None:
    add_agents(hub)
    team = Sender(name="team", targets=frozenset({"tag"}), permissions=frozenset({Permission.READ}))
    async with serving(hub, WEB, team) as server, client_of(server) as web, client_of(server, "team") as ops:
        await posted(web, {"target": "prime", "user": "anna", "objective": "Sort"})
        await posted(web, {"target": "tag", "user": "anna", "objective": "Sort"})
        for path in ("/v1/audit", "/v1/audit/search"):
            _, page = await got(ops, path)
            assert sorted(each["seq"] for each in page["records"]) == [5, 6], path
        async with ops.get("/v1/audit/export") as reply:
            assert [json.loads(line)["seq"] for line in (await reply.text()).splitlines()] == [6, 5]
        assert [(await got(ops, f"/v1/audit/{seq}"))[0] for seq in (1, 4, 5)] == [404, 404, 200]


# ── the verifier ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Clock:
    """A clock that a test turns."""

    now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


async def done(verifier: AuditVerifier) -> Any:
    """Return what the verifier tells once nothing is running."""
    async with asyncio.timeout(PATIENCE_S):
        while (told := await verifier.look()).state == "running":
            await asyncio.sleep(0)
    return told


async def test_only_what_came_since_a_checkpoint_is_verified_and_after_an_hour_everything(tmp_path: Path) -> None:
    store, clock = SqliteStore(tmp_path / "hub.db", durability="process", checkpoint_every=10), Clock()
    await store.open()
    verifier = AuditVerifier(store, clock)

    async def grown(rows: int) -> Any:
        for number in range(rows):
            store.append(Kind.PROGRESS, number, "run", "session", progress("half"))
        await store.flush()
        await store.flush()
        return await done(verifier)

    first = await grown(25)
    assert (first.result.rows, first.result.since, first.result.checkpoints) == (25, 0, 1)
    # A reader who looks at once gets the same.
    assert await grown(10) == first
    clock.now_ms += 11_000
    second = await done(verifier)
    assert (second.result.rows, second.result.since, second.whole_ms) == (35, 25, 1_000)
    assert (second.result.checkpoints, second.result.keys) == (2, first.result.keys)
    clock.now_ms += 3_600_000
    third = await grown(10)
    assert (third.result.rows, third.result.since, third.whole_ms) == (45, 0, clock.now_ms)
    await verifier.close()
    await store.close()


async def test_a_verification_ends_when_its_server_stops_and_a_failure_is_told(tmp_path: Path) -> None:
    store, clock = SqliteStore(tmp_path / "hub.db", durability="process"), Clock()
    await store.open()
    for number in range(1_000):
        store.append(Kind.PROGRESS, number, "run", "session", progress("half"))
    await store.flush()
    stopped = AuditVerifier(store, clock)
    assert (await stopped.look()).state == "running"
    await stopped.close()
    assert (await stopped.look()).result is None
    await stopped.close()

    verifier = AuditVerifier(store, clock)
    (tmp_path / "hub.db").rename(tmp_path / "elsewhere.db")
    told = await done(verifier)
    assert told.state == "failed"
    assert "hub.db" in told.failure
    (tmp_path / "elsewhere.db").rename(tmp_path / "hub.db")
    clock.now_ms += 11_000
    assert (await done(verifier)).result.ok
    await verifier.close()
    await store.close()


async def test_a_store_without_a_chain_says_so() -> None:
    store = MemoryStore()
    del store.chain
    hub = Hub(store=store)
    async with serving(hub, READER) as server, client_of(server, "reader") as reader:
        status, body = await got(reader, "/v1/audit/verification")
        assert (status, body["fault"]["code"]) == (503, "STORE_UNAVAILABLE")
