"""Approvals over HTTP: what waits, the request as it is shown, answers that count once, several at once."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

import msgspec
import pytest
from aiohttp import ClientSession

from remit import Brief, File, Hub
from remit.policy.reception import Permission, Sender
from remit.protocol.records import Notice
from remit_cli import Rule, guard_of
from remit_server.server import Server
from serving import ANNA, OPERATOR, WEB, client_of, got, posted, serving
from waiting import PATIENCE_S

BOUND_S = PATIENCE_S
PERSON = Sender(name="anna-phone", users=frozenset({"anna"}), may_approve=True)
READER = Sender(name="reader", permissions=frozenset({Permission.READ}))
SUPPORT = Sender(name="support", permissions=frozenset({Permission.READ, Permission.REVEAL}))
REVEALER = Sender(name="revealer", users=frozenset({"ben"}), permissions=frozenset({Permission.REVEAL}))
ASK = {"target": "shop", "user": "anna", "objective": "Buy it for bob@example.org", "input": "5 euros"}


class Till(NamedTuple):
    """A server of a team in which a person has to agree before the cashier pays."""

    server: Server
    hub: Hub


@pytest.fixture
async def till(make_hub: Any) -> AsyncGenerator[Till]:
    rules = [Rule(then="ask", to="cashier", say="May the cashier pay?", edit=frozenset({"input"}))]
    hub: Hub = make_hub(guards=[guard_of(rules)], approver="inbox")

    @hub.agent("cashier")
    async def cashier(brief: Brief) -> str:
        return f"paid {brief.text}"

    @hub.agent("shop", may_call=["cashier"])
    async def shop(brief: Brief) -> str:
        found = await brief.delegate("cashier", objective=brief.objective, input=brief.input)
        return str(found.result or (found.fault and found.fault.message))

    assert all((cashier, shop))
    async with asyncio.timeout(BOUND_S), serving(hub, WEB, OPERATOR, ANNA, PERSON, READER, SUPPORT, REVEALER) as server:
        yield Till(server, hub)


async def asked(session: ClientSession, hub: Hub, **more: Any) -> str:
    """Ask for something that waits for a person, and return the run once the question is there."""
    before = len(await hub.pending())
    _, handle = await posted(session, {**ASK, **more}, Prefer="respond-async")
    while len(await hub.pending()) == before:
        await asyncio.sleep(0)
    return handle["run"]


async def waiting(session: ClientSession) -> list[Any]:
    status, found = await got(session, "/v1/approvals")
    assert status == 200
    return found["waiting"]


async def answered(session: ClientSession, path: str, body: Any) -> tuple[int, Any]:
    async with session.post(path, json=body) as reply:
        return reply.status, await reply.json()


async def reveals_of(hub: Hub, run: str) -> list[str]:
    """Return what the record says of who read personal values in a run."""
    records = await hub.store.records(run=run)
    return [each.body.text for each in records if isinstance(each.body, Notice) and " revealed " in each.body.text]


async def outcome(session: ClientSession, run: str) -> Any:
    """Return how a run ended, once it has."""
    async with session.get(f"/v1/delegations/{run}/events") as reply:
        await reply.read()
    return (await got(session, f"/v1/delegations/{run}"))[1]


async def test_a_question_shows_what_for_whom_and_what_may_be_edited(till: Till) -> None:
    async with client_of(till.server) as web, client_of(till.server, "ops") as ops:
        run = await asked(web, till.hub)
        (item,) = await waiting(ops)
        _, whole = await got(ops, f"/v1/approvals/{item['id']}")
    assert (item["question"], item["origin"], item["target"]) == ("May the cashier pay?", "shop", "cashier")
    assert (item["run"], item["delegation"], item["user"]) == (run, f"{run}.1", "anna")
    assert (item["editable"], item["may_answer"], item["rule"]) == (["input"], True, None)
    assert "bob@example.org" not in str(whole)
    assert (whole["state"], whole["request"]["input"]) == ("waiting", "5 euros")
    assert whole["request"]["objective"].startswith("Buy it for [EMAIL:")
    assert whole["waiting"] == item


async def test_what_is_shown_names_everything_that_is_sent_and_hides_nothing(till: Till) -> None:
    order = File(name="order.txt", media_type="text/plain", data="Pay 5000 to p\u0430ypal\u202e".encode())
    sent = {"target": "cashier", "objective": "Do as agreed", "files": [msgspec.to_builtins(order)]}
    async with client_of(till.server) as web, client_of(till.server, "ops") as ops:
        await asked(web, till.hub, **sent)
        (item,) = await waiting(ops)
        _, whole = await got(ops, f"/v1/approvals/{item['id']}")
    assert item["sentence"] == 'The user asks cashier: Do as agreed, with "5 euros", and order.txt'
    titles = {each["title"]: each["text"] for each in whole["view"]["parts"]}
    assert (titles["objective"], titles["input"]) == ("Do as agreed", "5 euros")
    (file,) = whole["view"]["files"]
    assert (file["size"], file["is_whole"]) == (order.size, True)
    assert file["preview"] == "Pay 5000 to p⟨\u0430 U+0430⟩ypal⟨U+202E⟩"


async def test_who_may_reveal_reads_the_values_of_a_question_and_each_time_is_on_record(till: Till) -> None:
    async with (
        client_of(till.server) as web,
        client_of(till.server, "ops") as ops,
        client_of(till.server, "reader") as reader,
        client_of(till.server, "revealer") as revealer,
        client_of(till.server, "support") as support,
    ):
        run = await asked(web, till.hub)
        (item,) = await waiting(ops)
        path = f"/v1/approvals/{item['id']}/reveal"
        status, why = await answered(reader, path, {})
        assert (status, why["fault"]["message"]) == (403, "reader lacks the permission `reveal`")
        assert (await answered(revealer, path, {}))[0] == 404, "the run is not one of its own"
        assert await reveals_of(till.hub, run) == []
        for body in ({}, {"by": "Carla"}):
            status, shown = await answered(support, path, body)
            sentence = 'shop asks cashier: Buy it for bob@example.org, with "5 euros"'
            assert (status, shown["view"]["sentence"]) == (200, sentence)
            assert {"title": "objective", "text": "Buy it for bob@example.org"} in shown["view"]["parts"]
        _, whole = await got(support, f"/v1/approvals/{item['id']}")
        token = whole["request"]["objective"].removeprefix("Buy it for ")
        which = f"revealed {token} of anna in question {item['id']}"
        assert await reveals_of(till.hub, run) == [f"support {which}", f"Carla via support {which}"]
        # What was revealed is the content that the digest stands for, and an answer ends it.
        body = {"agree": True, "digest": item["digest"]}
        assert (await answered(ops, f"/v1/approvals/{item['id']}", body))[0] == 200
        assert (await outcome(web, run))["result"] == "paid 5 euros"
        assert (await answered(support, path, {}))[0] == 409


async def test_an_answer_with_an_edit_is_what_the_agent_gets_and_who_gave_it_is_on_record(till: Till) -> None:
    async with client_of(till.server) as web, client_of(till.server, "ops") as ops:
        run = await asked(web, till.hub)
        (item,) = await waiting(ops)
        body = {"agree": True, "digest": item["digest"], "edits": {"input": "4 euros"}, "by": "Carla", "reason": "ok"}
        status, given = await answered(ops, f"/v1/approvals/{item['id']}", body)
        assert (status, given["by"], given["edited"]) == (200, "Carla via ops", ["input"])
        assert (await outcome(web, run))["result"] == "paid 4 euros"
        _, found = await got(ops, "/v1/approvals")
        _, whole = await got(ops, f"/v1/approvals/{item['id']}")
    assert found["waiting"] == []
    (done,) = found["answered"]
    assert (done["agreed"], done["by"], done["reason"], done["edited"]) == (True, "Carla via ops", "ok", ["input"])
    assert (whole["state"], whole["answered"], whole["request"]["input"]) == ("answered", done, "4 euros")


async def test_the_first_answer_counts_and_the_second_is_told_who_was_faster(till: Till) -> None:
    async with client_of(till.server) as web, client_of(till.server, "ops") as ops:
        run = await asked(web, till.hub)
        (item,) = await waiting(ops)
        body = {"agree": False, "digest": item["digest"], "reason": "too much"}
        path = f"/v1/approvals/{item['id']}"
        assert (await answered(ops, path, body))[0] == 200
        status, why = await answered(ops, path, {**body, "agree": True})
        assert status == 409
        assert why["fault"]["message"] == f"ops answered question {item['id']} before: no (too much)"
        assert "too much" in (await outcome(web, run))["result"]
        assert (await answered(ops, path, body))[0] == 409  # also once the run has read the answer


async def test_an_answer_to_other_content_than_was_shown_is_refused(till: Till) -> None:
    async with client_of(till.server) as web, client_of(till.server, "ops") as ops:
        await asked(web, till.hub)
        (item,) = await waiting(ops)
        path, good = f"/v1/approvals/{item['id']}", {"agree": True, "digest": item["digest"]}
        status, why = await answered(ops, path, {**good, "digest": "0" * 32})
        assert (status, why["fault"]["code"]) == (409, "STATE_CONFLICT")
        status, why = await answered(ops, path, {**good, "edits": {"objective": "Buy all of it"}})
        assert (status, why["fault"]["problems"][0]["path"]) == (400, "objective")
        status, why = await answered(ops, path, {**good, "agree": False, "edits": {"input": "1 euro"}})
        assert (status, why["fault"]["problems"][0]["path"]) == (400, "edits")
        status, why = await answered(ops, path, {"agree": True})
        assert (status, "digest" in str(why["fault"]["problems"])) == (400, True)
        assert len(await waiting(ops)) == 1


async def test_several_are_answered_at_once_each_with_its_own_outcome(till: Till) -> None:
    async with client_of(till.server) as web, client_of(till.server, "ops") as ops:
        runs = [await asked(web, till.hub, input=f"{number} euros") for number in range(3)]
        items = await waiting(ops)
        answers = [{"id": each["id"], "agree": True, "digest": each["digest"]} for each in items]
        answers[1]["digest"] = "stale"
        answers.append({"id": f"{runs[0]}.9-deadbeef", "agree": True, "digest": "x"})
        status, found = await answered(ops, "/v1/approvals", {"answers": answers})
        codes = [each["fault"] and each["fault"]["code"] for each in found["outcomes"]]
        assert (status, codes) == (200, [None, "STATE_CONFLICT", None, "NOT_FOUND"])
        ends = [(await outcome(web, run))["result"] for run in (runs[0], runs[2])]
        assert ends == ["paid 0 euros", "paid 2 euros"]
        assert [each["run"] for each in await waiting(ops)] == [runs[1]]


async def test_who_may_see_and_answer_what(till: Till) -> None:
    async with (
        client_of(till.server) as web,
        client_of(till.server, "anna-app") as anna,
        client_of(till.server, "anna-phone") as phone,
        client_of(till.server, "reader") as reader,
    ):
        await asked(web, till.hub, user="bob")
        own = await asked(web, till.hub)
        assert len(await waiting(reader)) == 2
        for session, may in ((anna, False), (phone, True)):
            (item,) = await waiting(session)
            assert (item["run"], item["may_answer"]) == (own, may)
        (others,) = [each for each in await waiting(reader) if each["user"] == "bob"]
        yes = {"agree": True, "digest": others["digest"]}
        assert (await answered(phone, f"/v1/approvals/{others['id']}", yes))[0] == 404
        assert (await got(phone, f"/v1/approvals/{others['id']}"))[0] == 404
        assert (await answered(reader, f"/v1/approvals/{others['id']}", yes))[0] == 403
        mine = {"agree": True, "digest": item["digest"]}
        status, why = await answered(anna, f"/v1/approvals/{item['id']}", mine)
        assert (status, "may_approve" in why["fault"]["suggestion"]) == (403, True)
        assert (await answered(phone, f"/v1/approvals/{item['id']}", mine))[0] == 200
        assert (await outcome(web, own))["result"] == "paid 5 euros"


async def test_a_question_of_a_cancelled_run_is_over(till: Till) -> None:
    async with client_of(till.server) as web, client_of(till.server, "ops") as ops:
        run = await asked(web, till.hub)
        (item,) = await waiting(ops)
        async with ops.post(f"/v1/delegations/{run}/cancel", json={}) as reply:
            assert reply.status == 200
        status, why = await answered(ops, f"/v1/approvals/{item['id']}", {"agree": True, "digest": item["digest"]})
        assert (status, "withdrawn" in why["fault"]["message"]) == (409, True)
        assert (await got(ops, f"/v1/approvals/{item['id']}"))[1]["state"] == "over"


async def test_a_call_that_waits_is_shown_as_one_delegation(till: Till) -> None:
    async with client_of(till.server) as web, client_of(till.server, "ops") as ops:
        run = await asked(web, till.hub)
        status, found = await got(ops, f"/v1/runs/{run}/delegations/{run}.1")
        assert (status, found["state"], found["target"]) == (200, "asking", "cashier")
        assert [each["agreed"] for each in found["approvals"]] == [None]
        (rule,) = [each for each in found["verdicts"] if each["guard"] == "team_rules"]
        assert (rule["verdict"], rule["says"]) == ("ask", "May the cashier pay?")
