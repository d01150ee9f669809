"""`/mcp`: a hub's agents as tools, for hosts that come over HTTP."""

import asyncio
import io
import subprocess
import sys
from collections.abc import Callable

import mcp_types as types
import pytest
from aiohttp import ClientSession
from mcp import MCPError

from hosts import ERAS, Absent, Person, Progress, data, host_at, text
from remit import Ask, Brief, Facts, Hub, Request, Verdict
from remit.installed import install_command
from remit.policy.reception import Permission, Sender
from remit.policy.verdict import ALLOW
from remit.protocol.codec import MAX_BYTES
from remit.protocol.records import Approval
from remit_server.mcp import host_delegations
from serving import serving
from waiting import PATIENCE_S

ANNA = Sender(name="anna-desk", users=frozenset({"anna"}), may_approve=True)
BOB = Sender(name="bob-desk", users=frozenset({"bob"}), may_approve=True)
MANY = Sender(name="office")
STRICT = Sender(name="strict", users=frozenset({"anna"}))
NORTH = Sender(name="north", is_hub=True)
OPERATOR = Sender(name="ops", permissions=frozenset(Permission))
ALL = (ANNA, BOB, MANY, STRICT, NORTH, OPERATOR)

era = pytest.mark.parametrize("era", ERAS)


def asks_before_paying(request: Request, facts: Facts) -> Verdict:
    if request.target == "pay" and "May this be paid?" not in facts.approved:
        return Ask("May this be paid?", editable=frozenset({"objective"}))
    return ALLOW


@pytest.fixture
def hub(make_hub: Callable[..., Hub]) -> Hub:
    hub = make_hub(approver="inbox", guards=[asks_before_paying])

    @hub.agent("echo", description="Says it\nagain.")
    async def echo(brief: Brief) -> str:
        brief.progress("half of it")
        return f"{brief.user}: {brief.objective}"

    @hub.agent("pay")
    async def pay(brief: Brief) -> str:
        return f"paid: {brief.objective}"

    @hub.agent("broken")
    async def broken(brief: Brief) -> str:
        raise ValueError("no")

    assert {echo, pay, broken}
    return hub


class Slow:
    """An agent that works until it is told to go on, or cancelled."""

    def __init__(self, hub: Hub) -> None:
        self.begun, self.go, self.stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()
        hub.agent("slow")(self.work)

    async def work(self, brief: Brief) -> str:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise
        return "done at last"


# ── the tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@era
async def test_a_host_finds_the_four_tools_and_the_agents(hub: Hub, era: str) -> None:
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era) as host:
        tools = {tool.name: tool for tool in (await host.list_tools()).tools}
        assert set(tools) == {"delegate_task", "list_agents", "delegation_status", "delegation_cancel"}
        assert tools["delegate_task"].input_schema["required"] == ["agent", "task"]
        agents = await host.call_tool("list_agents")
    assert text(agents).splitlines() == ["- echo: Says it again.", "- pay", "- broken"]
    assert [each["name"] for each in data(agents)["agents"]] == ["echo", "pay", "broken"]


@era
async def test_a_task_is_done_and_every_progress_record_is_told(hub: Hub, era: str) -> None:
    progress = Progress()
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era) as host:
        done = await host.call_tool("delegate_task", {"agent": "echo", "task": "hello"}, progress_callback=progress)
    assert (text(done), done.is_error) == ("anna: hello", False)
    assert {"state": "finished", "status": "success", "result": "anna: hello"}.items() <= data(done).items()
    assert progress.messages == [f"delegated to echo; id {data(done)['id']}", "echo: half of it"]
    assert progress.numbers == [1, 2]


@era
async def test_while_an_agent_is_silent_the_host_hears_that_it_is_at_work(
    hub: Hub, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_delegations, "BEAT_S", 0.05)
    slow, progress = Slow(hub), Progress()
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era) as host:
        call = asyncio.create_task(
            host.call_tool("delegate_task", {"agent": "slow", "task": "x"}, progress_callback=progress)
        )
        await progress.until(lambda said: sum(each.startswith("still running, ") for each in said) >= 2)
        slow.go.set()
        assert text(await call) == "done at last"
    assert progress.numbers == sorted(set(progress.numbers)), "each is more than the one before"


def test_hosts_hear_something_at_least_every_fifteen_seconds() -> None:
    assert host_delegations.BEAT_S <= 15


@era
async def test_a_failure_is_an_error_with_a_code_and_what_to_do(hub: Hub, era: str) -> None:
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era) as host:
        failed = await host.call_tool("delegate_task", {"agent": "broken", "task": "x"})
        nobody = await host.call_tool("delegate_task", {"agent": "nobody", "task": "x"})
        wrong = await host.call_tool("delegate_task", {"agent": 3, "tsk": "x"})
        unknown = await host.call_tool("delegate", {})
    assert [each.is_error for each in (failed, nobody, wrong, unknown)] == [True] * 4
    assert text(failed).startswith("DELEGATION_FAILED: broken failed; the reason is on record at its hub\nRetry")
    assert "Traceback" not in text(failed)
    assert data(nobody)["fault"]["code"] == "AGENT_NOT_FOUND"
    assert [each["path"] for each in data(wrong)["fault"]["problems"]] == ["$.tsk", "$.agent", "$.task"]
    assert text(unknown).startswith("NOT_FOUND: unknown tool `delegate`\nUse one of delegate_task")


async def test_what_fails_in_the_server_itself_shows_no_traceback(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(host_delegations.HostDelegations, "agents", fail)
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk") as host:
        failed = await host.call_tool("list_agents")
    assert failed.is_error
    assert text(failed).startswith("DELEGATION_FAILED: the server failed (ZeroDivisionError)\n")


# ── waiting, coming back, cancelling ──────────────────────────────────────────────────────────────────────────────────


@era
async def test_a_host_that_waits_no_longer_picks_the_result_up(hub: Hub, era: str) -> None:
    slow = Slow(hub)
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era) as host:
        begun = await host.call_tool(
            "delegate_task", {"agent": "slow", "task": "x", "wait_seconds": 0, "request_id": "mine"}
        )
        assert data(begun)["state"] == "running"
        looked = await host.call_tool("delegation_status", {"id": data(begun)["id"]})
        assert data(looked) == data(begun)
        slow.go.set()
        ended = await host.call_tool("delegation_status", {"id": "mine", "wait_seconds": 60})
        again = await host.call_tool("delegation_status", {"id": "mine"})
        listed = await host.call_tool("delegation_status", {})
    assert text(ended) == text(again) == "done at last"
    assert [(each["id"], each["status"]) for each in data(listed)["delegations"]] == [(data(begun)["id"], "success")]


@era
async def test_a_host_that_times_out_does_not_stop_the_work_it_can_ask_for_again(hub: Hub, era: str) -> None:
    slow = Slow(hub)
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era) as host:
        with pytest.raises(MCPError, match="timed out"):
            await host.call_tool(
                "delegate_task", {"agent": "slow", "task": "x", "request_id": "mine"}, read_timeout_seconds=0.5
            )
        await asyncio.wait_for(slow.begun.wait(), PATIENCE_S)
        slow.go.set()
        ended = await host.call_tool("delegation_status", {"id": "mine", "wait_seconds": 60})
    assert text(ended) == "done at last"
    assert not slow.stopped.is_set()


@era
async def test_a_call_that_its_host_cancels_is_cancelled_down_to_the_agent(hub: Hub, era: str) -> None:
    slow = Slow(hub)
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era) as host:
        call = asyncio.create_task(host.call_tool("delegate_task", {"agent": "slow", "task": "x"}))
        await asyncio.wait_for(slow.begun.wait(), PATIENCE_S)
        call.cancel()
        await asyncio.wait_for(slow.stopped.wait(), PATIENCE_S)
        listed = await host.call_tool("delegation_status", {})
        run = data(listed)["delegations"][0]["id"]
        ended = await host.call_tool("delegation_status", {"id": run, "wait_seconds": 60})
    assert (data(ended)["status"], ended.is_error) == ("cancelled", True)
    assert "by anna" in text(ended)


@era
async def test_a_delegation_is_cancelled_by_the_tool_for_it(hub: Hub, era: str) -> None:
    slow = Slow(hub)
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era) as host:
        await host.call_tool("delegate_task", {"agent": "slow", "task": "x", "wait_seconds": 0, "request_id": "mine"})
        stopped = await host.call_tool("delegation_cancel", {"id": "mine", "reason": "not needed any more"})
    assert (data(stopped)["status"], stopped.is_error) == ("cancelled", False)
    assert "by anna: not needed any more" in text(stopped)
    assert slow.stopped.is_set()


@era
async def test_the_same_request_id_is_carried_out_once(hub: Hub, era: str) -> None:
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era) as host:
        given = {"agent": "echo", "task": "once", "request_id": "mine"}
        first, second = await host.call_tool("delegate_task", given), await host.call_tool("delegate_task", given)
        other = await host.call_tool("delegate_task", {**given, "task": "something else"})
    assert data(first)["id"] == data(second)["id"]
    assert data(other)["fault"]["code"] == "DUPLICATE_REQUEST"


# ── asking a person ───────────────────────────────────────────────────────────────────────────────────────────────────


@era
async def test_a_person_who_accepts_lets_it_go_on(hub: Hub, era: str) -> None:
    person = Person("accept", reason="it is due")
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era, person=person) as host:
        done = await host.call_tool("delegate_task", {"agent": "pay", "task": "the rent"})
        records = [record.body for record in await hub.store.records(run=data(done)["id"])]
    assert text(done) == "paid: the rent"
    [shown] = person.questions
    assert shown.startswith("May this be paid?\n\nThe user asks pay: the rent\nobjective: the rent\n")
    assert '"user": "anna"' in shown
    said = [(each.agreed, each.by, each.reason) for each in records if isinstance(each, Approval)]
    assert said == [(None, "", ""), (True, "anna", "it is due")]


@era
async def test_a_person_may_change_what_the_guard_lets_them_change(hub: Hub, era: str) -> None:
    person = Person("accept", objective="half the rent")
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era, person=person) as host:
        done = await host.call_tool("delegate_task", {"agent": "pay", "task": "the rent"})
    assert text(done) == "paid: half the rent"
    assert person.forms[0]["properties"]["objective"]["default"] == "the rent"


@era
async def test_a_person_sees_what_hides_and_is_not_asked_in_the_host_about_more_than_it_shows(
    hub: Hub, era: str
) -> None:
    person, note = Person("accept"), {"to": "p\u0430ypal", "note": "ok\u202e\U000e0045\U000e0056\U000e0045"}
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era, person=person) as host:
        await host.call_tool("delegate_task", {"agent": "pay", "task": "as agreed", "input": note})
        long = {"agent": "pay", "task": "as agreed", "input": "x" * 20_000 + "pay Eve"}
        waits = await host.call_tool("delegate_task", long)
        (question,) = await hub.pending()
        if era == ERAS[1]:
            forged = await host.session.call_tool(
                "delegate_task",
                long,
                input_responses={question.id: types.ElicitResult(action="accept", content={})},
                request_state=data(waits)["id"],
            )
            assert data(forged)["state"] == "waiting", "nobody has seen it"
    [shown] = person.questions
    assert "p⟨\u0430 U+0430⟩ypal" in shown
    assert "ok⟨U+202E⟩⟨hidden: EVE⟩" in shown
    assert data(waits)["state"] == "waiting"
    assert f"remit pending approve {question.id}" in text(waits)


@era
async def test_a_person_who_declines_ends_it(hub: Hub, era: str) -> None:
    person = Person("decline")
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era, person=person) as host:
        done = await host.call_tool("delegate_task", {"agent": "pay", "task": "the rent"})
    assert done.is_error
    assert text(done).startswith("APPROVAL_DECLINED: declined by anna")


@era
async def test_a_person_who_does_not_say_leaves_it_waiting(hub: Hub, era: str) -> None:
    person = Person("cancel")
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era, person=person) as host:
        waits = await host.call_tool("delegate_task", {"agent": "pay", "task": "the rent"})
        assert (data(waits)["state"], waits.is_error) == ("waiting", False)
        (question,) = await hub.pending()
        assert data(waits)["question"]["id"] == question.id
        assert f"remit pending approve {question.id}" in text(waits)
        await hub.decide(question.id, agreed=True, by="the boss")
        done = await host.call_tool("delegation_status", {"id": data(waits)["id"], "wait_seconds": 60})
    assert text(done) == "paid: the rent"


@era
async def test_a_host_that_cannot_ask_is_told_that_it_waits_and_how_to_answer(hub: Hub, era: str) -> None:
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era) as host:
        waits = await host.call_tool("delegate_task", {"agent": "pay", "task": "the rent"})
        looked = await host.call_tool("delegation_status", {"id": data(waits)["id"]})
    assert data(waits) == data(looked)
    assert data(waits)["state"] == "waiting"
    assert data(waits)["question"]["text"] == "May this be paid?"
    assert "remit pending approve" in text(waits)
    assert "You cannot answer it yourself" in text(waits)


@era
async def test_the_list_of_delegations_says_what_a_person_is_asked(hub: Hub, era: str) -> None:
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era) as host:
        waits = await host.call_tool("delegate_task", {"agent": "pay", "task": "to ann@example.com"})
        await host.call_tool("delegate_task", {"agent": "echo", "task": "hello"})
        listed = await host.call_tool("delegation_status", {})
        async with host_at(server.address, "bob-desk", era) as other:
            assert data(await other.call_tool("delegation_status", {}))["delegations"] == []
    echo, pay = data(listed)["delegations"]
    assert ("question" in echo, pay["state"]) == (False, "waiting")
    assert pay["question"] == data(waits)["question"]
    assert "A person is asked: May this be paid?  remit pending approve" in text(listed)
    assert "ann@example.com" not in pay["question"]["objective"]


async def test_the_status_says_that_a_person_is_asked_while_the_host_asks_them(hub: Hub) -> None:
    person = Absent()
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", person=person) as host:
        given = {"agent": "pay", "task": "the rent", "request_id": "mine"}
        call = asyncio.create_task(host.call_tool("delegate_task", given))
        await asyncio.wait_for(person.called.wait(), PATIENCE_S)
        looked = await host.call_tool("delegation_status", {"id": "mine"})
        assert (data(looked)["state"], data(looked)["question"]["text"]) == ("waiting", "May this be paid?")
        await hub.decide(data(looked)["question"]["id"], agreed=True, by="the boss")
        assert text(await asyncio.wait_for(call, PATIENCE_S)) == "paid: the rent"


@era
async def test_a_host_whose_team_does_not_trust_its_answers_is_not_asked(hub: Hub, era: str) -> None:
    person = Person("accept")
    async with serving(hub, *ALL) as server, host_at(server.address, "strict", era, person=person) as host:
        waits = await host.call_tool("delegate_task", {"agent": "pay", "task": "the rent"})
    assert (data(waits)["state"], person.questions) == ("waiting", [])


async def test_an_answer_that_comes_from_elsewhere_takes_the_question_back(hub: Hub) -> None:
    person = Absent()
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", person=person) as host:
        call = asyncio.create_task(host.call_tool("delegate_task", {"agent": "pay", "task": "the rent"}))
        await asyncio.wait_for(person.called.wait(), PATIENCE_S)
        (question,) = await hub.pending()
        await hub.decide(question.id, agreed=True, by="the boss")
        assert text(await asyncio.wait_for(call, PATIENCE_S)) == "paid: the rent"


async def test_a_host_cannot_answer_questions_about_the_runs_of_others(hub: Hub) -> None:
    modern = ERAS[1]
    async with (
        serving(hub, *ALL) as server,
        host_at(server.address, "bob-desk") as bob,
        host_at(server.address, "anna-desk", modern, person=Person("accept")) as anna,
    ):
        waits = await bob.call_tool("delegate_task", {"agent": "pay", "task": "the rent"})
        (question,) = await hub.pending()
        forged = await anna.session.call_tool(
            "delegate_task",
            {"agent": "pay", "task": "the rent"},
            input_responses={question.id: types.ElicitResult(action="accept", content={})},
            request_state=data(waits)["id"],
        )
        assert data(forged)["fault"]["code"] == "NOT_FOUND"
        assert await hub.pending() == [question]


async def test_what_a_host_sends_back_must_fit_the_question(hub: Hub) -> None:
    async with (
        serving(hub, *ALL) as server,
        host_at(server.address, "strict") as strict,
        host_at(server.address, "strict", ERAS[1], person=Person("accept")) as forging,
    ):
        waits = await strict.call_tool("delegate_task", {"agent": "pay", "task": "the rent"})
        (question,) = await hub.pending()
        forged = await forging.session.call_tool(
            "delegate_task",
            {"agent": "pay", "task": "the rent"},
            input_responses={question.id: types.ElicitResult(action="accept", content={})},
            request_state=data(waits)["id"],
        )
        assert data(forged)["state"] == "waiting", "whose answers do not count cannot make them count"
        assert await hub.pending() == [question]


# ── for whom ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@era
async def test_users_do_not_see_each_others_delegations(hub: Hub, era: str) -> None:
    slow = Slow(hub)
    async with (
        serving(hub, *ALL) as server,
        host_at(server.address, "anna-desk", era) as anna,
        host_at(server.address, "bob-desk", era) as bob,
    ):
        mine = await anna.call_tool(
            "delegate_task", {"agent": "slow", "task": "x", "wait_seconds": 0, "request_id": "mine"}
        )
        for name in (data(mine)["id"], "mine"):
            for tool in ("delegation_status", "delegation_cancel"):
                hidden = await bob.call_tool(tool, {"id": name})
                assert data(hidden)["fault"]["code"] == "NOT_FOUND"
        assert data(await bob.call_tool("delegation_status", {}))["delegations"] == []
        assert not slow.stopped.is_set()


async def test_a_client_for_several_users_says_for_whom_in_a_header(hub: Hub) -> None:
    async with serving(hub, *ALL) as server:
        async with host_at(server.address, "office") as host:
            nobody = await host.call_tool("delegate_task", {"agent": "echo", "task": "x"})
            assert data(nobody)["fault"]["problems"][0]["path"] == "X-Remit-User"
        async with host_at(server.address, "office", user="Zo%C3%AB") as zoe:
            assert text(await zoe.call_tool("delegate_task", {"agent": "echo", "task": "x"})) == "Zoë: x"
        async with host_at(server.address, "office", user="bob") as bob:
            assert data(await bob.call_tool("delegation_status", {}))["delegations"] == []
        async with host_at(server.address, "anna-desk", user="bob") as anna:
            refused = await anna.call_tool("delegate_task", {"agent": "echo", "task": "x"})
            assert data(refused)["fault"]["code"] == "USER_MISMATCH"
        async with host_at(server.address, "office", user="a%00b") as odd:
            refused = await odd.call_tool("delegate_task", {"agent": "echo", "task": "x"})
            assert data(refused)["fault"]["code"] == "MALFORMED_ENVELOPE"


async def test_an_operators_host_sees_what_its_user_sees_and_no_more(hub: Hub) -> None:
    async with serving(hub, *ALL) as server:
        async with host_at(server.address, "anna-desk") as anna:
            await anna.call_tool("delegate_task", {"agent": "echo", "task": "x"})
        async with host_at(server.address, "ops", user="root") as ops:
            assert data(await ops.call_tool("delegation_status", {}))["delegations"] == []


async def test_a_session_is_of_use_to_nobody_else(hub: Hub) -> None:
    greeting = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
    accept = {"accept": "application/json, text/event-stream"}
    async with serving(hub, *ALL) as server, ClientSession(server.address) as http:

        async def post(token: str, body: object, **more: str) -> tuple[int, str | None]:
            headers = {**accept, "authorization": f"Bearer {token}", **more}
            async with http.post("/mcp", json=body, headers=headers) as reply:
                await reply.read()
                return reply.status, reply.headers.get("mcp-session-id")

        status, session = await post("anna-desk", greeting)
        assert status == 200
        assert session is not None
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        assert (await post("anna-desk", ping, **{"mcp-session-id": session}))[0] == 200
        assert (await post("bob-desk", ping, **{"mcp-session-id": session}))[0] == 404


async def test_who_is_not_known_is_not_let_in_and_hubs_are_sent_elsewhere(hub: Hub) -> None:
    async with serving(hub, *ALL) as server, ClientSession(server.address) as http:
        async with http.post("/mcp", json={}) as reply:
            assert reply.status == 401
        async with http.get("/mcp", headers={"authorization": "Bearer nobody"}) as reply:
            assert reply.status == 401
        async with http.post("/mcp", json={}, headers={"authorization": "Bearer north"}) as reply:
            assert reply.status == 403
        async with http.put("/mcp", json={}, headers={"authorization": "Bearer anna-desk"}) as reply:
            assert reply.status == 405


async def test_bodies_are_bounded_as_everywhere(hub: Hub) -> None:
    token = {"authorization": "Bearer anna-desk"}
    async with serving(hub, *ALL) as server, ClientSession(server.address, headers=token) as http:
        async with http.post("/mcp", data=b"x", headers={"content-type": "text/plain"}) as reply:
            assert reply.status == 415
        async with http.post(
            "/mcp", data=io.BytesIO(b"[" * (MAX_BYTES + 1)), headers={"content-type": "application/json"}
        ) as reply:
            assert reply.status == 413
        async with http.post("/mcp", data=b"[" * 100_000, headers={"content-type": "application/json"}) as reply:
            assert reply.status in (400, 406)


# ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@era
async def test_a_server_that_goes_down_answers_what_is_under_way_and_takes_nothing_more(hub: Hub, era: str) -> None:
    slow = Slow(hub)
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era) as host:
        await host.list_tools()  # else the SDK does so after the answer, of which nothing more can be asked then
        call = asyncio.create_task(host.call_tool("delegate_task", {"agent": "slow", "task": "x"}))
        await asyncio.wait_for(slow.begun.wait(), PATIENCE_S)
        down = asyncio.create_task(server.api.drain(PATIENCE_S))
        await asyncio.sleep(0)
        refused = await host.call_tool("delegate_task", {"agent": "echo", "task": "x"})
        assert data(refused)["fault"]["code"] == "OVERLOADED"
        slow.go.set()
        assert text(await call) == "done at last"
        await asyncio.wait_for(down, PATIENCE_S)


def test_a_server_that_nobody_asks_over_mcp_does_not_load_the_sdk() -> None:
    script = "import sys, remit_server.app, remit_cli.main; print('mcp' in sys.modules, 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


async def test_without_the_extra_the_address_says_what_to_install(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    token = {"authorization": "Bearer anna-desk"}
    async with (
        serving(hub, *ALL) as server,
        ClientSession(server.address, headers=token) as http,
        http.post("/mcp", json={}) as reply,
    ):
        assert reply.status == 404
        assert install_command("mcp") in (await reply.json())["fault"]["suggestion"]
