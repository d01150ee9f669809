"""Asking over HTTP: what comes back, when, and to whom."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import ClientSession

from remit import Ask, Brief, Facts, Hub, Request, Verdict
from remit.policy.verdict import ALLOW
from remit.protocol.codec import encode
from remit.protocol.records import Kind, Notice
from remit.stores.sqlite import SqliteStore
from samples import a_remit, a_request
from serving import Event, client_of, connected, events, got, parsed, posted, replied, serving
from waiting import PATIENCE_S, eventually


def echo(hub: Hub) -> list[str]:
    """Add an agent that says what it is asked, and return what it was asked."""
    texts: list[str] = []

    @hub.agent("echo")
    async def say(brief: Brief) -> str:
        texts.append(brief.text)
        brief.say("so ")
        brief.progress("at it")
        return f"{brief.user}: {brief.text}"

    assert say
    return texts


# ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_answers_a_client(hub: Hub) -> None:
    echo(hub)
    async with serving(hub) as server, client_of(server) as session:
        status, body = await posted(session, {"target": "echo", "user": "anna", "objective": "hello"})
    assert (status, body["status"], body["result"]) == (200, "success", "anna: hello")


async def test_personal_data_comes_back_to_the_client_that_sent_it_and_not_to_the_agent(hub: Hub) -> None:
    """X12: redacted before the delegate sees it, and restored for the caller."""
    asked = echo(hub)
    async with serving(hub) as server, client_of(server) as session:
        _, body = await posted(session, {"target": "echo", "user": "anna", "objective": "joe@example.com"})
        assert body["result"] == "anna: joe@example.com"
        async with session.get(f"/v1/delegations/{body['run']}") as reply:
            assert (await reply.json())["result"] == "anna: joe@example.com"
    assert "joe" not in asked[0]


async def test_every_wrong_field_is_named_at_once(hub: Hub) -> None:
    echo(hub)
    async with serving(hub) as server, client_of(server) as session:
        status, body = await posted(session, {"targt": "echo", "user": 7, "max_tokens": -1})
    paths = [each["path"] for each in body["fault"]["problems"]]
    assert (status, body["fault"]["code"]) == (400, "MALFORMED_ENVELOPE")
    assert sorted(paths) == ["$.max_tokens", "$.target", "$.targt", "$.user"]


async def test_a_refusal_has_its_code_and_its_status(hub: Hub) -> None:
    echo(hub)
    async with serving(hub) as server, client_of(server) as session:
        status, body = await posted(session, {"target": "nobody", "user": "anna", "objective": "hello"})
        assert (status, body["fault"]["code"]) == (404, "AGENT_NOT_FOUND")
        assert body["fault"]["message"] == "there is no agent `nobody` here that web may ask"
        _, body = await posted(session, {"target": "ehco", "user": "anna", "objective": "hello"})
        assert body["fault"]["message"].endswith("; did you mean `echo`?")
        _, body = await got(session, "/v1/agents/ehco")
        assert body["fault"]["message"].endswith("; did you mean `echo`?")
        status, body = await posted(session, {"target": "echo", "user": "anna", "capability": "SORT"})
        assert (status, body["status"], body["fault"]["code"]) == (404, "refused", "CAPABILITY_NOT_FOUND")
        assert body["summary"] == "This could not be done: nothing here can do it."


async def test_a_client_gets_a_sentence_for_its_user_however_it_asks(hub: Hub) -> None:
    """K6: the answer, the stream, the look afterwards, and what is refused before there is a run."""

    @hub.agent("broken")
    async def broken(brief: Brief) -> str:
        raise ValueError("secret cause")

    sentence = "This could not be done: something went wrong on the way. It can be tried again."
    asked = {"id": "r-1", "target": "broken", "user": "anna", "objective": "hello"}
    async with serving(hub) as server, client_of(server) as session, ClientSession(server.address) as stranger:
        _, body = await posted(session, asked)
        assert (body["fault"]["code"], body["summary"]) == ("DELEGATION_FAILED", sentence)
        _, body = await got(session, "/v1/delegations/r-1")
        assert (body["fault"]["code"], body["summary"]) == ("DELEGATION_FAILED", sentence)
        *_, last = await events(session, "/v1/delegations/r-1/events")
        assert last.record["body"]["summary"] == sentence
        _, body = await posted(session, asked | {"target": "nobody"})
        assert (body["fault"]["code"], body["summary"]) == (
            "AGENT_NOT_FOUND",
            "This could not be done: nothing here can do it.",
        )
        _, body = await posted(stranger, asked)
        assert (body["fault"]["code"], body["summary"]) == (
            "UNAUTHENTICATED",
            "This could not be done: it could not be verified who is asking.",
        )
        async with session.post("/dialects/employee", json={}) as reply:
            assert (await reply.json())["summary"].startswith("This could not be done: ")


async def test_whoever_proves_nothing_is_refused_and_learns_nothing(hub: Hub) -> None:
    echo(hub)
    async with serving(hub) as server:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic d2Vi"}):
            async with ClientSession(server.address, headers=headers) as session:
                status, body = await posted(session, {"target": "echo", "user": "anna"})
                assert (status, body["fault"]["code"]) == (401, "UNAUTHENTICATED")
                for path in ("/v1/agents", "/v1/runs", "/v1/audit", "/metrics", "/v1/delegations/x"):
                    async with session.get(path) as reply:
                        assert reply.status == 401, path


async def test_a_client_asks_only_for_its_own_users_and_sees_only_their_runs(hub: Hub) -> None:
    """X10: user isolation; the id of another's run tells nothing."""
    echo(hub)
    async with serving(hub) as server, client_of(server) as web, client_of(server, "anna-app") as anna:
        _, bobs = await posted(web, {"target": "echo", "user": "bob", "objective": "mine"})
        status, body = await posted(anna, {"target": "echo", "user": "bob", "objective": "whose"})
        assert (status, body["fault"]["code"]) == (403, "USER_MISMATCH")
        for path in (f"/v1/delegations/{bobs['run']}", f"/v1/runs/{bobs['run']}", "/v1/delegations/guess"):
            async with anna.get(path) as reply:
                assert reply.status == 404, path
        async with anna.post(f"/v1/delegations/{bobs['run']}/cancel") as reply:
            assert reply.status == 404
        _, own = await posted(anna, {"target": "echo", "objective": "mine"})
        async with anna.get("/v1/runs") as reply:
            assert [each["run"] for each in (await reply.json())["runs"]] == [own["run"]]


async def test_the_same_id_is_carried_out_once_however_often_it_is_sent(hub: Hub) -> None:
    """C2: retries with the same request id, at most one execution."""
    asked = echo(hub)
    body = {"target": "echo", "user": "anna", "objective": "once", "id": "mine-1"}
    async with serving(hub) as server, client_of(server) as session:
        answers = await asyncio.gather(*(posted(session, body) for _ in range(5)))
        again = await posted(session, body)
        status, other = await posted(session, body | {"objective": "another"})
    assert len(asked) == 1
    assert {answer[1]["run"] for answer in (*answers, again)} == {again[1]["run"]}
    assert (status, other["fault"]["code"]) == (409, "DUPLICATE_REQUEST")


async def test_headers_that_contradict_the_envelope_are_refused_by_name(hub: Hub) -> None:
    """X9: on receipt headers must agree with the envelope."""
    echo(hub)
    request = a_request(target="echo", id="r.1", origin="prime", remit=a_remit(depth=1, chain=("prime@north",)))
    async with serving(hub) as server, client_of(server, "north") as session:
        for name, value in {
            "X-Agent-Request-ID": "r.2",
            "X-Agent-Origin": "byte",
            "X-Agent-Depth": "0",
            "X-Agent-Parent-Session": "theirs",
        }.items():
            headers = {"content-type": "application/json", name: value}
            async with session.post("/v1/delegations", data=encode(request), headers=headers) as reply:
                body = await reply.json()
            assert (reply.status, body["fault"]["code"]) == (400, "MALFORMED_ENVELOPE")
            assert [each["path"] for each in body["fault"]["problems"]] == [name.lower()]


# ── streams ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_stream_has_every_event_and_ends_with_the_answer(hub: Hub) -> None:
    """X15: streamed responses."""
    echo(hub)
    async with serving(hub) as server, client_of(server) as session:
        body = {"target": "echo", "user": "anna", "objective": "joe@example.com"}
        async with session.post("/v1/delegations", json=body, headers={"accept": "text/event-stream"}) as reply:
            assert reply.content_type == "text/event-stream"
            found = parsed(await reply.text())
            run = reply.headers["location"].rpartition("/")[2]
        again = await events(session, f"/v1/delegations/{run}/events")
    kinds = [kind for _, kind, _ in found]
    assert kinds[0] == "started"
    assert kinds[-1] == "result"
    assert set(kinds) == {"started", "delta", "progress", "result"}
    assert found[-1][2]["body"]["result"] == "anna: joe@example.com"
    assert [number for number, kind, _ in found if kind == "delta"] == [None], "what is not kept has no number"
    assert again == [each for each in found if each[1] != "delta"]


async def test_a_stream_ends_with_the_answer_whatever_the_hub_notes_after_it(hub: Hub) -> None:
    echo(hub)
    async with serving(hub) as server, client_of(server) as session:
        _, body = await posted(session, {"target": "echo", "user": "anna", "objective": "x", "id": "i"})
        run = body["run"]
        late = Notice(delegation=run, agent="echo", text="it held up the others")
        hub.store.append(Kind.NOTICE, 0, run, run, late)
        await hub.store.flush()
        assert (await hub.store.records(run=run))[-1].body == late
        found = await events(session, "/v1/delegations/i/events")
    assert [each.kind for each in found] == ["started", "progress", "result"]


async def test_a_stream_goes_on_after_the_last_event_with_nothing_lost_or_repeated(hub: Hub) -> None:
    go_on = asyncio.Event()

    @hub.agent("steps")
    async def steps(brief: Brief) -> str:
        for step in range(5):
            brief.progress(f"step {step}")
        await go_on.wait()
        for step in range(5, 10):
            brief.progress(f"step {step}")
        return "done"

    assert steps
    async with serving(hub) as server, client_of(server) as session:
        body = {"target": "steps", "user": "anna", "objective": "go"}
        seen: list[Event] = []
        async with session.post("/v1/delegations", json=body, headers={"accept": "text/event-stream"}) as reply:
            run, text = reply.headers["location"].rpartition("/")[2], ""
            while "step 2" not in text:
                text += (await reply.content.readany()).decode()
            seen += parsed(text.rpartition("\n\n")[0])
        go_on.set()
        async with asyncio.timeout(PATIENCE_S):
            seen += await events(session, f"/v1/delegations/{run}/events", **{"Last-Event-ID": str(seen[-1][0])})
    said = [each["body"]["text"] for _, kind, each in seen if kind == "progress"]
    assert said == [f"step {step}" for step in range(10)]
    assert seen[-1][1] == "result"


async def test_a_number_that_is_none_is_refused(hub: Hub) -> None:
    echo(hub)
    async with serving(hub) as server, client_of(server) as session:
        _, body = await posted(session, {"target": "echo", "user": "anna", "objective": "x"})
        headers = {"Last-Event-ID": "abc"}
        async with session.get(f"/v1/delegations/{body['run']}/events", headers=headers) as reply:
            assert (reply.status, (await reply.json())["fault"]["problems"][0]["path"]) == (400, "Last-Event-ID")


# ── waiting and cancelling ────────────────────────────────────────────────────────────────────────────────────────────


def sleeper(hub: Hub) -> tuple[asyncio.Event, asyncio.Event]:
    """Add an agent that waits for ever; the events say that it began, and that it was cancelled."""
    began, cancelled = asyncio.Event(), asyncio.Event()

    @hub.agent("sleeper")
    async def sleep(_: Brief) -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    assert sleep
    return began, cancelled


async def test_a_delegation_can_be_started_looked_at_and_cancelled(hub: Hub) -> None:
    """X15: cancellation."""
    began, cancelled = sleeper(hub)
    async with serving(hub) as server, client_of(server) as session:
        body = {"target": "sleeper", "user": "anna", "objective": "sleep", "id": "nap"}
        status, handle = await posted(session, body, Prefer="respond-async")
        assert (status, handle["state"], handle["link"]) == (202, "running", f"/v1/delegations/{handle['run']}")
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        async with session.get("/v1/delegations/nap") as reply:
            assert (reply.status, await reply.json()) == (202, handle)
        async with session.post("/v1/delegations/nap/cancel", json={"reason": "changed my mind"}) as reply:
            ended = await reply.json()
        assert (ended["status"], ended["fault"]["code"]) == ("cancelled", "CANCELLED")
        assert cancelled.is_set()
        async with session.get(handle["link"]) as reply:
            assert (await reply.json())["status"] == "cancelled"


def cancelling(name: str, reason: bytes = b"{}") -> bytes:
    """Return a request to cancel a delegation, as it is sent in chunks."""
    head = f"POST /v1/delegations/{name}/cancel HTTP/1.1\r\nhost: x\r\nauthorization: Bearer web\r\n"
    more = "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    return f"{head}{more}{len(reason):x}\r\n".encode() + reason + b"\r\n0\r\n\r\n"


async def test_whoever_cancels_and_hangs_up_has_cancelled(hub: Hub) -> None:
    """X15: a hub that stood still finds it so, when whoever wanted something cancelled waits no longer."""
    began, cancelled = sleeper(hub)
    body = {"target": "sleeper", "user": "anna", "objective": "sleep", "id": "nap"}
    async with serving(hub) as server, client_of(server) as session, asyncio.timeout(PATIENCE_S):
        _, handle = await posted(session, body, Prefer="respond-async")
        await began.wait()
        _, writer = await connected(server)
        writer.write(cancelling("nap", b'{"reason": "in parts"}'))
        writer.close()
        await cancelled.wait()
        records = await events(session, handle["events"])
    assert "by web: in parts" in records[-1].record["body"]["fault"]["message"]


async def test_what_comes_a_moment_before_it_is_cancelled_is_cancelled(
    make_hub: Callable[..., Hub], tmp_path: Path
) -> None:
    """X15: it is on its way into the record when it is looked for there."""
    recording, recorded, slowly = threading.Event(), threading.Event(), False

    def commit() -> None:
        if slowly:
            recording.set()
            recorded.wait(PATIENCE_S)

    store = SqliteStore(tmp_path / "slow.db", durability="process", commit_hook=commit)
    hub = make_hub(store=store)
    sleeper(hub)
    body = {"target": "sleeper", "user": "anna", "objective": "sleep", "id": "nap"}
    async with serving(hub) as server, client_of(server) as session, asyncio.timeout(PATIENCE_S):
        slowly = True
        asking = asyncio.create_task(posted(session, body))
        await eventually(recording.is_set)
        reader, writer = await connected(server)
        writer.write(cancelling("nap"))
        cancel = asyncio.create_task(replied(reader))
        await eventually(lambda: cancel.done() or store._writer.queue)  # pyright: ignore[reportPrivateUsage]
        recorded.set()
        assert (await cancel).status == 200
        assert (await asking)[1]["status"] == "cancelled"
        writer.close()


async def test_whoever_hangs_up_cancels_what_nobody_could_ask_for_again(hub: Hub) -> None:
    began, cancelled = sleeper(hub)
    async with serving(hub) as server, client_of(server) as session:
        asking = asyncio.create_task(posted(session, {"target": "sleeper", "user": "anna", "objective": "sleep"}))
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        asking.cancel()
        await asyncio.wait_for(cancelled.wait(), PATIENCE_S)


async def test_what_was_sent_with_an_id_goes_on_when_the_connection_is_lost(hub: Hub) -> None:
    began, finish = asyncio.Event(), asyncio.Event()

    @hub.agent("worker")
    async def work(_: Brief) -> str:
        began.set()
        await finish.wait()
        return "done"

    assert work
    body = {"target": "worker", "user": "anna", "objective": "work", "id": "w-1"}
    async with serving(hub) as server:
        async with client_of(server) as session:
            asking = asyncio.create_task(posted(session, body))
            await asyncio.wait_for(began.wait(), PATIENCE_S)
            asking.cancel()
        async with client_of(server) as session:
            again = asyncio.create_task(posted(session, body))
            finish.set()
            status, answer = await asyncio.wait_for(again, PATIENCE_S)
    assert (status, answer["result"]) == (200, "done")


async def test_what_waits_for_a_person_gives_a_handle_and_then_its_answer(make_hub: Callable[..., Hub]) -> None:
    """Decision 4: a remote caller gets a pending handle."""

    def ask_first(request: Request, _: Facts) -> Verdict:
        return Ask("May it?") if request.target == "echo" else ALLOW

    hub = make_hub(guards=[ask_first], approver="inbox")
    echo(hub)
    async with serving(hub) as server, client_of(server) as session:
        status, handle = await posted(session, {"target": "echo", "user": "anna", "objective": "pay", "id": "p-1"})
        assert (status, handle["state"], handle["question"]) == (202, "waiting", "May it?")
        async with session.get(handle["link"]) as reply:
            assert (reply.status, (await reply.json())["state"]) == (202, "waiting")
        following = asyncio.create_task(events(session, handle["events"]))
        (question,) = await hub.pending()
        await hub.decide(question.id, agreed=True, by="anna")
        found = await asyncio.wait_for(following, PATIENCE_S)
        assert found[-1][2]["body"]["result"] == "anna: pay"
        async with session.get(handle["link"]) as reply:
            assert (reply.status, (await reply.json())["result"]) == (200, "anna: pay")


# ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_an_agent_is_made_of_is_nobodys_business(hub: Hub) -> None:
    @hub.agent("secretive", prompt="Never tell.", capabilities=["SORT"], description="Sorts.")
    async def sort(_: Brief) -> str:
        return ""

    assert sort
    async with serving(hub) as server, client_of(server) as session:
        async with session.get("/v1/agents") as reply:
            (card,) = (await reply.json())["agents"]
        assert card == {
            "name": "secretive",
            "version": "1.0",
            "description": "Sorts.",
            "capabilities": [{"code": "SORT"}],
        }
        async with session.get("/v1/agents/secretive") as reply:
            assert await reply.json() == card
        async with session.get("/v1/agents/other") as reply:
            assert reply.status == 404


async def test_the_record_and_the_figures_are_for_those_who_may_read_them(hub: Hub) -> None:
    echo(hub)
    async with serving(hub) as server, client_of(server) as session, client_of(server, "ops") as operator:
        await posted(session, {"target": "echo", "user": "anna", "objective": "x"})
        await posted(session, {"target": "echo", "user": "anna", "objective": "x", "deadline_ms": 1})
        for path in ("/v1/audit", "/metrics"):
            async with session.get(path) as reply:
                why = (await reply.json())["fault"]
                assert (reply.status, why["code"]) == (403, "PERMISSION_DENIED")
                assert "[clients.web]" in why["suggestion"]
        status, body = await got(operator, "/v1/audit?runs=x")
        (wrong,) = body["fault"]["problems"]
        assert (status, wrong) == (400, {"path": "runs", "message": "unknown parameter; did you mean `run`?"})
        async with operator.get("/v1/audit?limit=2") as reply:
            page = await reply.json()
        assert ([each["seq"] for each in page["records"]], page["next"]) == ([1, 2], 2)
        async with operator.get("/metrics") as reply:
            figures = await reply.text()
    assert 'remit_delegations_total{agent="echo",status="success"} 1' in figures
    assert "\nremit_spans_lost_total 0\n" in figures
    assert "\nremit_ready 1\n" in figures
    assert 'remit_refusals_total{agent="echo",code="TIMEOUT"} 1' in figures
    assert 'remit_delegation_seconds_count{agent="echo"} 1' in figures
    assert 'remit_breaker{agent="echo"} 0' in figures


@pytest.mark.parametrize("query", ["limit=-1", "limit=x", "limit=" + "9" * 30, "after=1e3"])
async def test_a_parameter_that_is_no_number_is_named(hub: Hub, query: str) -> None:
    async with serving(hub) as server, client_of(server, "ops") as session, session.get(f"/v1/audit?{query}") as reply:
        assert reply.status == 400
        assert (await reply.json())["fault"]["problems"][0]["path"] == query.partition("=")[0]


async def test_a_server_says_that_it_is_alive_and_ready_without_being_asked_who(hub: Hub) -> None:
    async with serving(hub) as server, ClientSession(server.address) as session:
        for path, said in (("/healthz", "alive\n"), ("/readyz", "ready\n")):
            async with session.get(path) as reply:
                assert (reply.status, await reply.text()) == (200, said)


async def test_no_answer_may_be_taken_for_anything_but_its_content_type(hub: Hub) -> None:
    echo(hub)
    async with serving(hub) as server, client_of(server) as session:
        ask = {"target": "echo", "user": "anna"}
        _, body = await posted(session, ask)
        asked = [session.post("/v1/delegations", json=ask), session.post("/v1/delegations", json={})]
        paths = (
            "/v1/agents",
            f"/v1/delegations/{body['run']}/events",
            "/nothing",
            "/openapi.json",
            "/healthz",
            "/metrics",
        )
        asked += [session.get(path) for path in (*paths, "/" + "x" * 70_000)]
        for each in asked:
            async with each as reply:
                assert reply.headers.getall("x-content-type-options") == ["nosniff"], (
                    reply.status,
                    reply.url.path[:50],
                )


async def test_what_is_not_there_is_said_as_json(hub: Hub) -> None:
    async with serving(hub) as server, client_of(server) as session:
        async with session.get("/v2/nothing") as reply:
            assert (reply.status, (await reply.json())["fault"]["code"]) == (404, "NOT_FOUND")
        async with session.get("/v1/delegations") as reply:
            assert (reply.status, reply.headers["allow"]) == (405, "POST")
            why = (await reply.json())["fault"]
            assert why["message"] == "method GET not allowed at /v1/delegations; allowed: POST"


async def test_what_cannot_be_read_as_a_whole_says_why_and_not_where(hub: Hub) -> None:
    echo(hub)
    async with serving(hub) as server, client_of(server) as session:
        for sent, told in ((b"", "the body is empty; send a JSON object"), (b"{", "not valid JSON: ")):
            headers = {"content-type": "application/json"}
            async with session.post("/v1/delegations", data=sent, headers=headers) as reply:
                assert reply.status == 400
                assert (await reply.json())["fault"]["message"].startswith(f"the envelope is wrong: {told}")
