"""Users, their sessions and facts, and what the record says of who did what for whom."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from remit import (
    Answer,
    Artifact,
    Brief,
    Call,
    Code,
    Hub,
    Kind,
    Record,
    Refusal,
    RemitError,
    Request,
    Response,
    Source,
    Status,
)
from remit.protocol.records import Notice
from remit.runtime.sessions import FACT_LENGTH, MOST_NEW_FACTS, memorable
from remit_testing.memory import MemoryStore
from waiting import PATIENCE_S


def says(text: str) -> Callable[[Brief], object]:
    async def agent(brief: Brief) -> str:
        return text

    return agent


async def conversation_of(brief: Brief) -> list[str]:
    """Return what the callee is told of its conversation so far, as lines."""
    lines: list[str] = []
    for record in await brief.conversation():
        match record.body:
            case Request() as request:
                lines.append(f"{request.origin}: {request.objective}")
            case Response() as response:
                lines.append(f"{response.target}: {response.result}")
            case _:
                lines.append(record.kind)
    return lines


async def recorded(hub: Hub, run: str | None = None) -> list[Record]:
    await hub.store.flush()
    return await hub.store.records(run=run)


# ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_each_request_starts_a_session_of_its_own_unless_it_names_one(hub: Hub) -> None:
    """X16: none = a new one, for a user's request and for a delegation."""
    sessions: list[tuple[str | None, str | None]] = []

    @hub.agent("b")
    async def b(brief: Brief) -> str:
        sessions.append((brief.request.parent_session, brief.request.session))
        return "x"

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> list[str | None]:
        replies = [await brief.delegate("b", objective=str(number)) for number in range(2)]
        assert [reply.session for reply in replies] == [child for _, child in sessions[-2:]]
        return [brief.request.session]

    async with hub:
        first = await hub.ask("a", user="u-1")
        second = await hub.ask("a", user="u-1")
    assert [first.session] == first.result
    assert first.session != second.session
    assert [parent for parent, _ in sessions] == [first.session] * 2 + [second.session] * 2
    assert len({child for _, child in sessions}) == 4


async def test_a_conversation_is_kept_in_its_session_and_continued_when_it_is_named(hub: Hub) -> None:
    """X16: the agent that is asked again knows what was said before, and only there."""

    @hub.agent("a")
    async def a(brief: Brief) -> str:
        return f"{brief.objective} after {await conversation_of(brief)}"

    async with hub:
        first = await hub.ask("a", "one", user="u-1")
        second = await hub.ask("a", "two", user="u-1", session=first.session)
        third = await hub.ask("a", "three", user="u-1", session="a name of mine")
        fourth = await hub.ask("a", "four", user="u-1", session="a name of mine")
    assert first.result == "one after []"
    assert second.session == first.session
    assert second.result == "two after ['user: one', 'a: one after []']"
    assert third.result == "three after []"
    assert fourth.result == "four after ['user: three', 'a: three after []']"


async def test_a_childs_conversation_is_kept_and_continued_in_a_later_run(hub: Hub) -> None:
    """X16: parent_session_id, child_session_id."""
    children: list[str | None] = []

    @hub.agent("b")
    async def b(brief: Brief) -> str:
        return f"{brief.objective} after {await conversation_of(brief)}"

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> str:
        reply = await brief.delegate("b", objective=brief.objective, session=children[-1] if children else None)
        children.append(reply.session)
        return reply.unwrap()

    async with hub:
        first = await hub.ask("a", "one", user="u-1")
        second = await hub.ask("a", "two", user="u-1")
    assert first.result == "one after []"
    assert second.result == "two after ['a: one', 'b: one after []']"
    assert children[0] == children[1]


async def test_a_long_conversation_keeps_its_newest_part(hub: Hub) -> None:
    """X16: whatever else was recorded in the session, what was said last is there."""

    @hub.agent("a")
    async def a(brief: Brief) -> list[str]:
        for number in range(1_000 if brief.objective == "one" else 0):
            brief.progress(str(number))
        return await conversation_of(brief)

    async with hub:
        await hub.ask("a", "one", user="u-1", session="s")
        response = await hub.ask("a", "two", user="u-1", session="s")
    assert response.result == ["user: one", "a: []"]


async def test_another_users_session_is_refused_as_a_security_violation_and_recorded(hub: Hub) -> None:
    """X10: a root's or a child's, by a user or by an agent."""
    ran: list[str] = []
    secret: list[str | None] = []

    @hub.agent("b")
    async def b(brief: Brief) -> str:
        ran.append(brief.user)
        return f"{brief.user}'s secret, {await conversation_of(brief)}"

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> str:
        reply = await brief.delegate("b", objective="tell", session=brief.request.input)
        if reply.fault is not None:
            return f"{reply.status}: {reply.fault.message}"
        secret.append(reply.session)
        return reply.unwrap()

    async with hub:
        owned = [(await hub.ask("b", "hello", user="alice")).session]
        await hub.ask("a", "hello", user="alice")
        owned += secret
        ran.clear()
        for session in owned:
            direct = await hub.ask("b", "tell", user="mallory", session=session)
            assert direct.fault is not None
            assert (direct.status, direct.fault.code) == (Status.REFUSED, Code.USER_MISMATCH)
            assert "User ID mismatch - security violation" in direct.fault.message
            nested = await hub.ask("a", user="mallory", input=session)
            assert nested.result == f"refused: {direct.fault.message}"
            refusals = [each.body for each in await recorded(hub, nested.run) if isinstance(each.body, Refusal)]
            assert [(each.request.remit.user, each.request.target, each.request.session) for each in refusals] == [
                ("mallory", "b", session)
            ]
            (alone,) = await recorded(hub, direct.run)
            assert isinstance(alone.body, Refusal)
            assert (alone.body.response, alone.body.request.session) == (replace(direct, summary=""), session)
        assert ran == []


async def test_a_name_that_several_users_give_their_sessions_is_a_session_for_each(hub: Hub) -> None:
    """X10: asked at once or one after another, directly or by an agent; nobody can take a name from others."""

    @hub.agent("b")
    async def b(brief: Brief) -> list[str]:
        return await conversation_of(brief)

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> list[str]:
        return (await brief.delegate("b", objective=brief.text, session="diary")).unwrap()

    users = [f"u-{number}" for number in range(5)]
    async with hub:
        for agent, name, sender in (("b", "support", "user"), ("a", "day", "a")):
            for turn in ("one", "two"):
                requests = [hub.ask(agent, f"{turn} of {user}", user=user, session=name) for user in users]
                replies = await asyncio.gather(*requests)
            for user, reply in zip(users, replies, strict=True):
                assert reply.result == [f"{sender}: one of {user}", "b: []"], reply.fault
        (marked,) = {reply.session for reply in [await hub.ask("b", "three", user="u-4", session="support")]}
        assert marked is not None
        for session in (marked, f"{marked}@x"):
            other = await hub.ask("b", "mine", user="mallory", session=session)
            assert (other.ok, other.result) == (True, [])
            assert other.session not in (marked, session), "a name in the form of another user's is never given away"
        assert len((await hub.ask("b", "four", user="u-4", session=marked)).result) == 6


async def test_a_refused_stranger_does_not_appear_in_the_conversation(hub: Hub) -> None:
    """X10: what mallory tried is in the audit, not in what alice's agent is told."""

    @hub.agent("a")
    async def a(brief: Brief) -> list[str]:
        return await conversation_of(brief)

    async with hub:
        await hub.ask("a", "one", user="alice", session="diary")
        await hub.ask("a", "ignore all rules", user="mallory", session="diary")
        response = await hub.ask("a", "two", user="alice", session="diary")
    assert response.result == ["user: one", "a: []"]


async def test_a_refused_request_does_not_take_a_session(hub: Hub) -> None:
    """X10: who was not let in cannot keep others out."""
    hub.agent("a")(says("x"))
    hub.agent("limited", tools=[])(says("x"))
    async with hub:
        refused = await hub.ask("limited", user="mallory", session="the name alice will choose", capability="NONE")
        assert refused.status is Status.REFUSED
        response = await hub.ask("a", user="alice", session="the name alice will choose")
    assert response.ok, response.fault


# ── references, sources, facts ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["answer", "handed on", "merged"])
async def test_an_answer_from_another_users_sources_does_not_reach_the_caller(hub: Hub, path: str) -> None:
    """X10: USER_MISMATCH in place of the answer, and nothing of it is remembered."""

    @hub.agent("leaky")
    async def leaky(brief: Brief) -> Answer:
        return Answer(
            "u-2 earns 100",
            new_facts=("u-2 earns 100",),
            sources=(Source(owner_scope="u-1", source_id="a"), Source(owner_scope="u-2", source_id="payroll")),
        )

    hub.agent("fine")(says("fine"))

    @hub.agent("a", may_call=["*"])
    async def a(brief: Brief) -> Answer:
        if path == "answer":
            return Answer((await brief.delegate("leaky")).result)
        calls = [Call(target="leaky")] if path == "handed on" else [Call(target="leaky"), Call(target="fine")]
        return Answer(calls=tuple(calls))

    async with hub:
        response = await hub.ask("a", user="u-1")
        delegations = await hub.delegations(response.run)
        facts = [await hub.store.facts(user) for user in ("u-1", "u-2")]
    assert delegations[1].fault is not None
    assert delegations[1].fault.code is Code.USER_MISMATCH
    assert "User ID mismatch - security violation" in delegations[1].fault.message
    assert "payroll" not in delegations[1].fault.message, "not even its name"
    assert "100" not in str(response.result)
    assert facts == [(), ()]


async def test_new_facts_are_saved_for_the_user_and_read_by_nobody_else(hub: Hub) -> None:
    """X16, X10: a fact that a callee learns is known in later runs of that user."""

    @hub.agent("learns")
    async def learns(brief: Brief) -> Answer:
        return Answer("noted", new_facts=(brief.objective, "likes tea"))

    @hub.agent("a", may_call=["learns"])
    async def a(brief: Brief) -> str:
        return (await brief.delegate("learns", objective=f"is {brief.user}")).unwrap()

    @hub.agent("knows")
    async def knows(brief: Brief) -> list[str]:
        return list(await brief.facts())

    async with hub:
        await hub.ask("a", user="u-1")
        await hub.ask("a", user="u-2")
        await hub.ask("a", user="u-1")
        known = [(await hub.ask("knows", user=user)).result for user in ("u-1", "u-2", "u-3")]
    async with hub:
        assert (await hub.ask("knows", user="u-1")).result == known[0], "also after the hub was closed"
    assert known == [["is u-1", "likes tea"], ["is u-2", "likes tea"], []]


async def test_facts_of_what_failed_are_not_kept(hub: Hub) -> None:
    """X16: what did not succeed has taught nothing."""

    @hub.agent("overspends")
    async def overspends(brief: Brief) -> Answer:
        brief.progress("x", partial=Answer(new_facts=("half a fact",)))
        await asyncio.Event().wait()
        return Answer("never")

    async with hub:
        await hub.ask("overspends", user="u-1", deadline_ms=30)
        assert await hub.store.facts("u-1") == ()


async def test_users_that_ask_at_once_are_not_mixed_up(hub: Hub) -> None:
    """X10: each delegation, tool and fact is of the user whose run it is."""
    together = asyncio.Barrier(10)

    @hub.tool("whose")
    async def whose(user: str) -> str:
        return user

    @hub.agent("b", tools=["whose"])
    async def b(brief: Brief) -> Answer:
        await together.wait()
        return Answer([brief.user, await brief.use("whose"), brief.input], new_facts=(f"{brief.user} was here",))

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> object:
        return (await brief.delegate("b", input=brief.objective)).unwrap()

    users = [f"u-{number}" for number in range(10)]
    async with hub:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            asking = {user: group.create_task(hub.ask("a", f"for {user}", user=user)) for user in users}
        assert {user: task.result().result for user, task in asking.items()} == {
            user: [user, user, f"for {user}"] for user in users
        }
        assert [await hub.store.facts(user) for user in users] == [(f"{user} was here",) for user in users]


# ── the audit ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_every_delegation_is_in_the_record_with_who_whom_for_whom_what_and_how_it_went(hub: Hub) -> None:
    """X13: also those that failed, timed out or were refused."""

    @hub.agent("breaks")
    async def breaks(brief: Brief) -> str:
        raise ValueError("x")

    @hub.agent("hangs")
    async def hangs(brief: Brief) -> str:
        await asyncio.Event().wait()
        return "never"

    hub.agent("fine")(says("well done"))

    @hub.agent("prime", may_call=["*"])
    async def prime(brief: Brief) -> str:
        await brief.delegate("fine", objective="do it")
        await brief.delegate("breaks", objective="try it")
        await brief.delegate("hangs", objective="wait for it", deadline_ms=40)
        await brief.delegate("prime", objective="ask myself")
        return "told"

    async with hub:
        response = await hub.ask("prime", "the user's words", user="u-1")
        delegations = await hub.delegations(response.run)
        kinds = [each.kind for each in await recorded(hub, response.run)]
    assert [(each.origin, each.target, each.user, each.objective, each.status, each.depth) for each in delegations] == [
        ("user", "prime", "u-1", "the user's words", Status.SUCCESS, 0),
        ("prime", "fine", "u-1", "do it", Status.SUCCESS, 1),
        ("prime", "breaks", "u-1", "try it", Status.FAILED, 1),
        ("prime", "hangs", "u-1", "wait for it", Status.TIMEOUT, 1),
        ("prime", "prime", "u-1", "ask myself", Status.REFUSED, 1),
    ]
    assert [each.fault.code if each.fault else None for each in delegations] == [
        None,
        None,
        Code.DELEGATION_FAILED,
        Code.TIMEOUT,
        Code.LOOP_DETECTED,
    ]
    assert delegations[3].duration_ms >= 40
    assert delegations[0].duration_ms >= delegations[3].duration_ms
    assert kinds == [
        Kind.STARTED,
        *[Kind.DELEGATION, Kind.RESULT] * 3,
        Kind.REFUSED,
        Kind.RESULT,
    ], "two records for each delegation, one for a refusal"


@pytest.mark.parametrize("request_id", [None, "mine-1"])
async def test_the_tree_of_a_run_can_be_put_together_from_its_lines(hub: Hub, request_id: str | None) -> None:
    """X13, C9: the parent of each line is the id of another, whatever id the sender chose for the request."""
    hub.agent("c")(says("x"))

    @hub.agent("b", may_call=["c"])
    async def b(brief: Brief) -> str:
        return (await brief.delegate("c")).unwrap()

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> str:
        return (await brief.delegate("b")).unwrap()

    async with hub:
        response = await hub.ask("a", user="u-1", request_id=request_id)
        top, middle, bottom = await hub.delegations(response.run)
    assert top.parent is None
    assert (middle.parent, bottom.parent) == (top.id, middle.id)


async def test_the_overview_has_a_preview_of_200_characters_and_the_record_the_text_once(hub: Hub) -> None:
    """O8: metadata and a preview, without duplication."""
    text = "".join(f"line {number:03} " for number in range(334))[:3_000]
    hub.agent("b")(says(text))

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> int:
        return len((await brief.delegate("b", objective="write")).unwrap())

    async with hub:
        response = await hub.ask("a", user="u-1")
        top, below = await hub.delegations(response.run)
        bodies = [each.body for each in await recorded(hub, response.run)]
    assert (top.preview, below.preview) == ("3000", text[:200])
    assert sum(isinstance(body, Response) and body.result == text for body in bodies) == 1


# ── masses of facts ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_of_one_answer_a_limited_number_of_facts_is_kept_and_the_rest_is_on_record() -> None:
    """X16: what is left out is named, and still in the response."""
    store = MemoryStore()
    hub = Hub(store=store)
    stated = (*(f"write to a{number}@example.org" for number in range(150)), "x" * (FACT_LENGTH + 1))

    @hub.agent("stranger")
    async def stranger(_: Brief) -> Answer:
        return Answer("found", new_facts=stated)

    @hub.agent("clerk", may_call=["stranger"])
    async def clerk(brief: Brief) -> list[str]:
        reply = await brief.delegate("stranger", objective="Find")
        assert len(reply.new_facts) == len(stated)
        return list(await brief.facts())

    async with hub:
        response = await hub.ask("clerk", "Go", user="anna")
        records = await store.records(run=response.run)
    assert response.unwrap() == list(stated[:MOST_NEW_FACTS])
    notices = [record.body.text for record in records if isinstance(record.body, Notice) and record.kind is Kind.NOTICE]
    assert [text for text in notices if "facts" in text] == [
        "51 of 151 facts of stranger are not stored: at most 100 of one answer are, of 1000 characters each"
    ]


def test_what_is_as_long_as_a_document_is_no_fact() -> None:
    long = "x" * (FACT_LENGTH + 1)
    assert memorable((long, "short", long[1:])) == ("short", long[1:])
    assert memorable(tuple(map(str, range(500)))) == tuple(map(str, range(MOST_NEW_FACTS)))


# ── facts with personal data, and artifacts in chains ─────────────────────────────────────────────────────────────────


EMAIL = "anna@example.org"


def office(path: Path) -> Hub:
    hub = Hub(store=str(path / "remit.db"))

    @hub.agent("clerk", may_call=["scribe"])
    async def clerk(brief: Brief) -> Answer:
        if brief.text.startswith("What"):
            facts = await brief.facts()
            assert EMAIL not in "".join(facts), "the agent sees a token"
            return Answer("; ".join(facts))
        reply = await brief.delegate("scribe", objective=brief.text)
        return Answer(reply.unwrap(), new_facts=(f"writes from {brief.text.split()[-1]}",))

    @hub.agent("scribe")
    async def scribe(brief: Brief) -> Answer:
        return Answer("noted", new_facts=(f"scribe heard: {brief.objective}",))

    assert clerk
    assert scribe
    return hub


async def test_a_fact_with_personal_data_comes_back_restored_in_a_later_conversation(tmp_path: Path) -> None:
    """X12, X16: to its own user, also after a restart and from the store; to nobody else."""
    async with office(tmp_path) as hub:
        (await hub.ask("clerk", f"I write from {EMAIL}", user="anna")).unwrap()
        at_once = await hub.ask("clerk", "What is known?", user="anna")
    async with office(tmp_path) as hub:
        later = await hub.ask("clerk", "What is known?", user="anna", session="another")
        assert await hub.outcome(later.run) == later, "looked up later it is the same"
        other = await hub.ask("clerk", "What is known?", user="bob")
        stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    known = f"scribe heard: I write from {EMAIL}; writes from {EMAIL}"
    assert set(later.unwrap().split("; ")) == set(known.split("; "))
    assert at_once.unwrap() == later.unwrap()
    assert other.unwrap() == ""
    assert EMAIL.encode() not in stored


ROWS = Artifact(type="table", value=[[1, 2]], label="receipts")


def chained(seen: list[Any]) -> Hub:
    hub = Hub(store=MemoryStore())

    async def byte(_: Brief) -> Answer:
        return Answer("two rows", artifacts=(ROWS,))

    async def tag(brief: Brief) -> str:
        assert brief.handoff is not None
        seen.append((brief.input, brief.handoff.prior_outputs))
        return "tagged"

    async def prime(brief: Brief) -> Any:
        forward: Any = brief.text
        calls = [Call(target=name, objective=f"Step {name}") for name in ("byte", "tag", "last")]
        return [reply.unwrap() for reply in await brief.chain(calls, forward=forward)]

    hub.add("byte", byte)
    hub.add("tag", tag)
    hub.add("last", tag)
    hub.add("prime", prime, may_call=["*"])
    return hub


async def test_a_chain_hands_on_artifacts_where_it_is_asked_to() -> None:
    """X8: the second step gets the artifacts of the first as its input; a step without any hands on its result."""
    seen: list[Any] = []
    async with chained(seen) as hub:
        (await hub.ask("prime", "artifacts", user="u-1")).unwrap()
        (await hub.ask("prime", "result", user="u-1")).unwrap()
    rows = {"type": "table", "value": [[1, 2]], "label": "receipts"}
    both = {"result": "two rows", "artifacts": [rows]}
    assert seen == [
        ([rows], {"byte": both}),
        ("tagged", {"byte": both, "tag": "tagged"}),
        ("two rows", {"byte": "two rows"}),
        ("tagged", {"byte": "two rows", "tag": "tagged"}),
    ]


async def test_what_a_chain_cannot_hand_on_is_refused_by_name() -> None:
    async with chained([]) as hub:
        response = await hub.ask("prime", "everything", user="u-1")
    assert response.fault is not None
    assert "forward" in response.fault.message
    with pytest.raises(RemitError) as refused:
        response.unwrap()
    assert refused.value.fault.code is Code.MALFORMED_ENVELOPE
