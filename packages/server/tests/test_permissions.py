"""What each address needs: every route, with and without each permission."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection
from itertools import product
from typing import Any, NamedTuple

import pytest
from aiohttp import ClientSession
from starlette.routing import Route

from doc_pages import page_path
from remit import Answer, Brief, Code, Hub, RemitError
from remit.policy.reception import Permission, Sender
from remit_cli import Rule, guard_of
from remit_server import serve
from remit_server.a2a.routes import Exposure
from remit_server.all_operations import OPERATIONS, PROTOCOLS
from remit_server.app import Api
from remit_server.documents.api import ApiOperation
from remit_server.openapi import document
from remit_server.refusals import Guarded
from remit_server.server import Server
from serving import client_of, console_of, gate_of, got, posted, serving
from waiting import PATIENCE_S

BOUND_S = PATIENCE_S
PAGE = page_path("http")
TABLE = {(each.method, each.path): each for each in (*OPERATIONS, *PROTOCOLS)}
SETS = [frozenset[Permission](), *(frozenset({each}) for each in Permission), frozenset(Permission)]
# Nothing here is its own: it may ask for nobody who asked.
VISITOR = Sender(name="visitor", users=frozenset({"nobody"}))
# A2A and MCP answer in their own ways; what they show is tested below. Sessions have tests of their own.
OWN_WAYS = ("/a2a/", "/mcp", "/v1/console/")


# What somebody else's run leaves in a list.
LISTS: dict[str, Callable[["House"], str]] = {
    "/v1/runs": lambda house: house.run,
    "/v1/sessions": lambda house: house.run,
    "/v1/spend": lambda _: '"key":"echo"',
    "/v1/series": lambda _: ",1]",
    "/v1/budgets": lambda _: '"user":"anna"',
}


class House(NamedTuple):
    """A server with somebody else's run that has ended."""

    server: Server
    run: str
    question: str
    """A question about somebody else's run that waits for a person."""


def name_of(may: Collection[Permission]) -> str:
    return "-".join(["visitor", *sorted(may)])


@pytest.fixture
async def house(make_hub: Any) -> AsyncGenerator[House]:
    hub: Hub = make_hub(approver="inbox")

    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        return f"secret {brief.text}"

    @hub.agent("slow")
    async def slow(_: Brief) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    @hub.agent("careful")
    async def careful(_: Brief) -> str:
        return "secret plan"

    assert echo
    assert slow
    assert careful
    hub.reconfigure(guards=[guard_of([Rule(then="ask", to="careful", say="May it?")])])
    visitors = [
        Sender(name=name_of(may), users=VISITOR.users, targets=VISITOR.targets, permissions=may) for may in SETS
    ]
    async with asyncio.timeout(BOUND_S), hub:
        gate = gate_of(Sender(name="web"), *visitors)
        api = Api(hub, gate, a2a=Exposure(default="echo"), console=console_of(hub, gate))
        async with Server(api, port=0, drain_s=1) as server, client_of(server) as web:
            _, answer = await posted(web, {"target": "echo", "user": "anna", "objective": "plan"})
            await posted(web, {"target": "careful", "user": "ben", "objective": "plan"})
            (question,) = await hub.pending()
            yield House(server, answer["run"], question.id)


def routes(hub: Hub) -> list[tuple[str, str, Guarded]]:
    """Return every address of the server, with what serves it."""
    api = Api(hub, gate_of(), a2a=Exposure(default="echo"), console=console_of(hub, gate_of()))
    found = [route for route in api.routes if isinstance(route, Route)]
    assert len(found) == len(api.routes)
    return [
        (method, route.path, route.app)  # pyright: ignore[reportReturnType]
        for route in found
        for method in sorted((route.methods or {"*"}) - {"HEAD"})
    ]


async def test_every_route_is_a_declared_operation_and_every_operation_has_a_route(hub: Hub) -> None:
    async with hub:
        served = routes(hub)
    assert {(method, path) for method, path, _ in served} == TABLE.keys()
    for method, path, app in served:
        assert app.operation is TABLE[method, path], path


def plain() -> list[tuple[str, str]]:
    return [(method, path) for method, path in TABLE if not path.startswith(OWN_WAYS)]


BODIES: dict[str, Any] = {
    "/v1/delegations": {"target": "echo", "user": "nobody", "objective": "x"},
    "/v1/approvals/{id}": {"agree": False, "digest": "of something else"},
    "/v1/policy/explain": {"to": "echo"},
}


async def asked(session: ClientSession, method: str, path: str, house: House) -> tuple[int, str]:
    """Ask for something at an address that may be a pattern; return the status and what is told."""
    run, id = house.run, house.question if path.startswith("/v1/approvals") else house.run
    address = (
        path.format_map({"id": id, "run": run, "path": run, "name": "echo", "user": "nobody", "seq": 1})
        if "{rest" not in path
        else "/dialects/echo/x"
    )
    body: Any = BODIES.get(path, {})
    if path == "/v1/approvals":
        body = {"answers": [{"id": id, **BODIES["/v1/approvals/{id}"]}]}
    async with session.request(method, address, json=body if method == "POST" else None) as reply:
        endless = reply.status == 200 and path == "/v1/events"
        return reply.status, (await reply.content.readany()).decode() if endless else await reply.text()


def expected(access: ApiOperation, may: Collection[Permission]) -> tuple[int, ...]:
    """Return what somebody is answered of whose own nothing is."""
    if access.needs is not None and access.needs not in may:
        return (403,)
    if access.needs is not None and access.others is None:
        return (200,)
    if access.others is not None:
        return (200, 202, 409) if access.others in may else (404,)
    return (200, 404)


@pytest.mark.parametrize(("method", "path"), plain())
async def test_an_address_gives_what_its_row_says_for_every_permission(house: House, method: str, path: str) -> None:
    access = TABLE[method, path]
    async with ClientSession(house.server.address) as stranger:
        status, _ = await asked(stranger, method, path, house)
    assert (status == 200) is access.anyone
    assert access.anyone or status in (401, 404)
    for may in SETS:
        async with client_of(house.server, name_of(may)) as session:
            status, text = await asked(session, method, path, house)
        if path in LISTS:  # a list is there, and may be empty
            assert (status, LISTS[path](house) in text) == (200, Permission.READ in may)
        elif path == "/v1/events":  # a stream is there, and may have no events
            assert status == 200
        elif (method, path) == ("GET", "/v1/approvals"):
            assert (status, house.question in text) == (200, Permission.READ in may)
        elif (method, path) == ("POST", "/v1/approvals"):  # each answer has an outcome of its own
            assert (status, "NOT_FOUND" in text) == (200, Permission.CONTROL not in may)
        elif (method, path) == ("POST", "/v1/approvals/{id}"):  # who may answer is told that it has changed
            assert status == (409 if Permission.CONTROL in may else 404)
        else:
            assert status in expected(access, may), (may, text)
        reads = Permission.READ in may and (access.needs or access.others) is not None
        assert "secret plan" not in text or reads, may


async def test_an_operator_of_some_agents_sees_their_runs_alone(hub: Hub) -> None:
    """For all users; the record and the acts as well."""

    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        return f"secret {brief.text}"

    @hub.agent("other")
    async def other(brief: Brief) -> str:
        return f"hidden {brief.text}"

    assert echo
    assert other
    may = frozenset({Permission.READ, Permission.CONTROL})
    ops = Sender(name="ops", users=frozenset(), targets=frozenset({"echo"}), permissions=may)
    async with (
        serving(hub, Sender(name="web"), ops) as server,
        client_of(server) as web,
        client_of(server, "ops") as own,
    ):
        _, seen = await posted(web, {"target": "echo", "user": "anna", "objective": "one"})
        _, kept = await posted(web, {"target": "other", "user": "anna", "objective": "two"})
        assert [each["run"] for each in (await got(own, "/v1/runs"))[1]["runs"]] == [seen["run"]]
        assert (await got(own, f"/v1/runs/{seen['run']}"))[0] == 200
        for path in (f"/v1/runs/{kept['run']}", f"/v1/delegations/{kept['run']}"):
            assert (await got(own, path))[0] == 404
        async with own.post(f"/v1/delegations/{kept['run']}/cancel", json={}) as reply:
            assert reply.status == 404
        pages: list[Any] = []
        after: int | None = 0
        while after is not None:
            status, page = await got(own, f"/v1/audit?limit=1&after={after}")
            assert status == 200
            pages += page["records"]
            after = page.get("next")
        assert {each["run"] for each in pages} == {seen["run"]}
        assert (await got(own, f"/v1/audit?run={kept['run']}"))[1]["records"] == []


async def test_to_cancel_anyones_run_is_not_to_read_it(house: House) -> None:
    """Also one that is under way: what it had to say is not told."""
    ask = {"target": "slow", "user": "anna", "objective": "plan", "id": "r-1"}
    async with client_of(house.server) as web, client_of(house.server, "visitor-control") as ops:
        _, begun = await posted(web, ask, Prefer="respond-async")
        path = f"/v1/delegations/{begun['run']}"
        for may in ((), ("metrics",), ("read",)):
            name = "-".join(("visitor", *may))
            async with client_of(house.server, name) as other, other.post(f"{path}/cancel", json={}) as reply:
                assert reply.status == 404, name
        assert (await got(web, path))[1]["state"] == "running"
        async with ops.post(f"{path}/cancel", json={"reason": "too long"}) as reply:
            assert (reply.status, (await reply.json())["status"]) == (200, "cancelled")
        async with ops.post(f"/v1/delegations/{house.run}/cancel", json={}) as reply:
            ended = await reply.json()
        assert (ended["status"], ended.get("result")) == ("success", None)
        assert (await got(ops, path))[0] == 404


async def test_by_a2a_everybody_has_its_own_whatever_else_it_may(house: House) -> None:
    for name in (name_of(may) for may in SETS):
        async with client_of(house.server, name) as session:
            headers = {"A2A-Version": "1.0"}
            async with session.get(f"/a2a/echo/tasks/{house.run}", headers=headers) as reply:
                assert (reply.status, "secret" in await reply.text()) == (404, False)
            async with session.post(f"/a2a/echo/tasks/{house.run}:cancel", json={}, headers=headers) as reply:
                assert reply.status == 404


# ── what is said of it ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_document_says_what_each_operation_needs() -> None:
    made = document()
    for path, operations in made["paths"].items():
        for method, operation in operations.items():
            access = TABLE[method.upper(), path.replace("{rest}", "{rest:path}")]
            assert operation.get("security") == ([] if access.anyone else None), path
            needs = None if access.needs is None else str(access.needs)
            assert operation.get("x-remit-permission") == needs, path
            assert needs is None or f"`{needs}`" in operation["description"]
            others = None if access.others is None else str(access.others)
            assert operation.get("x-remit-others") == others, path
            assert others is None or f"`{others}`" in operation["description"]


def test_the_page_says_what_each_address_needs() -> None:
    rows = re.findall(
        r"^\| `([A-Z*]+) (/[^`]*)` \| [^|]* \| ([^|]*) \| ([^|]*) \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    told = {(method, path): (own.strip(), others.strip()) for method, path, own, others in rows}
    for (method, path), access in TABLE.items():
        own = "anyone" if access.anyone else f"`{access.needs}`" if access.needs else "known"
        others = f"`{access.others}`" if access.others else ""
        assert told[method, path.replace(":path", "")] == (own, others), path
    assert len(told) == len(TABLE)


# ── who gets them ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("may", "path"), list(product(SETS, ("/metrics", "/v1/audit"))))
async def test_a_hub_served_from_python_gives_what_it_is_told(hub: Hub, may: frozenset[Permission], path: str) -> None:
    headers = {"authorization": f"Bearer {'t' * 20}"}
    async with (
        hub,
        serve(hub, clients={"web": "t" * 20}, permissions={"web": sorted(may)}) as address,
        ClientSession(address, headers=headers) as session,
        session.get(path) as reply,
    ):
        assert reply.status in expected(TABLE["GET", path], may)


async def test_a_permission_that_there_is_not_is_named(hub: Hub) -> None:
    async with hub:
        with pytest.raises(RemitError, match="did you mean `metrics`") as raised:
            async with serve(hub, clients={"web": "t" * 20}, permissions={"web": ["metric"]}):
                pass
    assert raised.value.fault.code is Code.TEAM_INVALID


async def test_who_may_erase_erases_a_user_and_nobody_else_does(house: House) -> None:
    """Y16: an operator erases a user over HTTP, and it is on record."""
    async with client_of(house.server, "visitor-control") as ops, ops.delete("/v1/users/anna") as reply:
        assert reply.status == 403
    async with client_of(house.server, "visitor-erase") as ops, ops.delete("/v1/users/anna") as reply:
        assert reply.status == 200
        body = await reply.json()
        assert (body["records"], body["facts"]) == (2, 0)
    async with client_of(house.server, "visitor-read") as reader:
        assert house.run not in str(await got(reader, "/v1/runs"))
        assert body["subject"] in str(await got(reader, "/v1/audit"))
