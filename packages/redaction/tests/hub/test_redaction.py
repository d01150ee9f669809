"""Personal data on its way through a hub: callees and the record get tokens, and each caller gets back what it held."""

import asyncio
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from isolated_agents import echo
from remit import (
    ALLOW,
    Answer,
    Artifact,
    Ask,
    Brief,
    Call,
    Capability,
    Code,
    Facts,
    Handoff,
    Hub,
    Kind,
    Progress,
    Record,
    RemitError,
    Request,
    Response,
    Rewrite,
    Status,
    ToolUse,
    Verdict,
    fault,
)
from remit.policy.limits import Limits
from remit.policy.redaction import TOKEN
from remit.policy.verdict import Finding
from remit.ports import Decision, Question
from remit.protocol.codec import encode
from remit.runtime import leases, root_runs
from remit.stores.sqlite import SqliteStore
from remit_redaction.pipeline import detector_pipeline
from waiting import PATIENCE_S, eventually

MAIL, OTHER, IBAN, CARD = "alice@example.org", "bob@example.org", "DE89370400440532013000", 4111111111111111
EMAIL = re.compile(r"\[EMAIL:[a-z]{12}\]")

MakeHub = Callable[..., Hub]


def is_token(value: object, kind: str = "EMAIL") -> bool:
    return isinstance(value, str) and re.fullmatch(rf"\[{kind}:[a-z]{{12}}\]", value) is not None


def texts_of(records: Iterable[Record]) -> str:
    return "\n".join(encode(record).decode() for record in records)


async def everything(hub: Hub) -> str:
    """Return all that the record holds."""
    await hub.store.flush()
    return texts_of(await hub.store.records(limit=10_000))


async def ask(hub: Hub, agent: str, text: str = "", **options: Any) -> Response:
    options.setdefault("user", "u-1")
    async with asyncio.timeout(PATIENCE_S):
        return await hub.ask(agent, text, **options)


class Seen:
    """What the agents of a hub were given, by name: each keeps its input and answers with it."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.of: dict[str, Any] = {}
        self.requests: dict[str, Request] = {}

    def echo(self, name: str, **options: Any) -> None:
        async def answer(brief: Brief) -> Any:
            self.of[name] = brief.input
            self.requests[name] = brief.request
            return brief.input

        self.hub.agent(name, **options)(answer)

    def relay(self, name: str, target: str, **options: Any) -> None:
        """Add an agent that hands its input on, and answers with the answer; it keeps both."""

        async def answer(brief: Brief) -> Any:
            self.of[name] = brief.input
            reply = await brief.delegate(target, input=brief.input)
            self.of[f"{name} is told"] = reply.result
            return reply.result

        self.hub.agent(name, may_call=[target], **options)(answer)


@pytest.fixture
def seen(hub: Hub) -> Seen:
    return Seen(hub)


# ── who gets what ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_first_agent_gets_tokens_and_the_user_gets_back_what_they_sent(seen: Seen) -> None:
    """X12: the user's own message is redacted before the first agent."""
    seen.echo("a")
    async with seen.hub as hub:
        response = await ask(hub, "a", f"write to {MAIL}", input={"to": MAIL, "card": CARD, MAIL: [IBAN]})
        record = await everything(hub)
    token = seen.of["a"]["to"]
    assert is_token(token)
    assert is_token(seen.of["a"]["card"], "CREDIT_CARD")
    assert is_token(seen.of["a"][token][0], "IBAN")
    assert seen.requests["a"].objective == f"write to {token}"
    assert response.result == {"to": MAIL, "card": CARD, MAIL: [IBAN]}
    assert not any(raw in record for raw in (MAIL, IBAN, str(CARD)))


async def test_an_agent_gets_back_raw_what_it_sent_raw_and_nothing_else(hub: Hub) -> None:
    """X12: the caller has its own values back; what its callee found is for the user."""
    replies: list[Response] = []

    @hub.agent("b")
    async def b(brief: Brief) -> Any:
        return [brief.input, brief.handoff.data, OTHER]

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> Any:
        replies.append(await brief.delegate("b", input=f"from {MAIL}", handoff=Handoff(data={"iban": IBAN})))
        return replies[0].result

    async with hub:
        response = await ask(hub, "a")
        record = await everything(hub)
    mine, data, token = replies[0].result
    assert (mine, data) == (f"from {MAIL}", {"iban": IBAN})
    assert is_token(token)
    assert response.result == [f"from {MAIL}", {"iban": IBAN}, OTHER]
    assert not any(raw in record for raw in (MAIL, OTHER, IBAN))


async def test_three_deep_the_same_value_has_the_same_token_and_no_one_in_between_learns_it(seen: Seen) -> None:
    """X12: tokens are deterministic within a run."""
    seen.echo("c")
    seen.relay("b", "c")
    seen.relay("a", "b")
    async with seen.hub as hub:
        response = await ask(hub, "a", input=MAIL)
    assert len(set(seen.of.values())) == 1
    assert is_token(seen.of["c"])
    assert response.result == MAIL


async def test_tokens_of_two_runs_have_nothing_in_common(seen: Seen) -> None:
    seen.echo("a")
    async with seen.hub as hub:
        tokens = set[str]()
        for _ in range(3):
            await ask(hub, "a", input=MAIL)
            tokens.add(seen.of["a"])
    assert len(tokens) == 3


async def test_several_at_once_and_one_after_another_get_tokens_and_their_caller_its_values(seen: Seen) -> None:
    """X12: fan-out and chain are delegations like any other."""
    hub = seen.hub
    for name in ("b", "c", "d", "e"):
        seen.echo(name)
    got: list[Any] = []

    @hub.agent("a", may_call=["*"])
    async def a(brief: Brief) -> Any:
        fan = await brief.fan_out([Call(target="b", input=MAIL), Call(target="c", input=[OTHER])])
        chain = await brief.chain([Call(target="d", input=MAIL), Call(target="e", objective="go on")])
        got.extend(each.result for each in (*fan, *chain))
        return got

    async with hub:
        response = await ask(hub, "a")
        record = await everything(hub)
    assert got == [MAIL, [OTHER], MAIL, MAIL] == response.result
    assert is_token(seen.of["b"])
    assert seen.of["b"] == seen.of["d"] == seen.of["e"] == seen.requests["e"].handoff.prior_outputs["d"]  # pyright: ignore[reportOptionalMemberAccess]
    assert not any(raw in record for raw in (MAIL, OTHER))


async def test_who_is_handed_the_request_instead_gets_tokens(seen: Seen) -> None:
    """X12: an answer that names who should do it instead is a delegation."""
    hub = seen.hub
    seen.echo("b")
    seen.echo("c")

    @hub.agent("one", may_call=["b"])
    async def one(brief: Brief) -> Call:
        return Call(target="b", input=[brief.input, OTHER])

    @hub.agent("both", may_call=["b", "c"])
    async def both(brief: Brief) -> Answer:
        return Answer(calls=(Call(target="b", input=brief.input), Call(target="c", input=OTHER)))

    async with hub:
        first = await ask(hub, "one", input=MAIL)
        assert [is_token(each) for each in seen.of["b"]] == [True, True]
        second = await ask(hub, "both", input=MAIL)
        record = await everything(hub)
    assert first.result == [MAIL, OTHER]
    assert MAIL in str(second.result)
    assert OTHER in str(second.result)
    assert (is_token(seen.of["b"]), is_token(seen.of["c"])) == (True, True)
    assert not any(raw in record for raw in (MAIL, OTHER))


async def test_an_agent_in_a_process_of_its_own_gets_tokens(hub: Hub) -> None:
    """X12: isolation changes nothing of it."""
    got: list[Any] = []
    hub.agent("apart", isolation="process")(echo)

    @hub.agent("a", may_call=["apart"])
    async def a(brief: Brief) -> Any:
        got.append((await brief.delegate("apart", input={"given": brief.input, "own": OTHER})).result)
        return got[0]

    async with hub:
        response = await ask(hub, "a", input=MAIL)
        alone = await ask(hub, "apart", input=MAIL)
        record = await everything(hub)
    assert (is_token(got[0]["given"]), got[0]["own"]) == (True, OTHER)
    assert (response.result, alone.result) == ({"given": MAIL, "own": OTHER}, MAIL)
    assert not any(raw in record for raw in (MAIL, OTHER))


async def test_a_plain_function_gets_tokens_and_waits_for_others_like_any_agent(seen: Seen) -> None:
    hub = seen.hub
    seen.echo("b")
    got: list[Any] = []

    @hub.agent("a", may_call=["b"])
    def a(brief: Brief) -> Any:
        got.extend([brief.input, brief.wait(brief.delegate("b", input=[brief.input, OTHER])).result])
        return got[1]

    async with hub:
        response = await ask(hub, "a", input=MAIL)
    assert is_token(got[0])
    assert got[1] == [got[0], OTHER]
    assert response.result == [MAIL, OTHER]


async def test_a_tool_gets_what_its_agent_has_and_the_record_gets_tokens(hub: Hub) -> None:
    """X12: an agent that has only a token can give a tool no more than that; results of tools are not recorded."""
    given: list[str] = []

    @hub.tool()
    async def send(to: str, text: str) -> str:
        given.extend([to, text])
        return f"sent to {OTHER}"

    @hub.agent("a", tools=["send"])
    async def a(brief: Brief) -> Any:
        return await brief.use("send", to=brief.input, text=IBAN)

    async with hub:
        response = await ask(hub, "a", input=MAIL)
        record = await everything(hub)
        tools = [each.body for each in await hub.store.records() if isinstance(each.body, ToolUse)]
    assert (is_token(given[0]), given[1]) == (True, IBAN)
    assert response.result == f"sent to {OTHER}"
    assert not any(raw in record for raw in (MAIL, OTHER, IBAN))
    assert [each.input for each in tools if each.begun] == [{"to": given[0], "text": tools[0].input["text"]}]


# ── who may see more ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_sees_the_kinds_that_its_card_names_in_questions_and_answers(seen: Seen) -> None:
    """X12: said by the team alone; the record has tokens all the same."""
    hub = seen.hub
    seen.echo("clerk", sees=["EMAIL"])
    seen.relay("head", "clerk", sees=["IBAN"])
    async with hub:
        response = await ask(hub, "head", input=[MAIL, IBAN])
        record = await everything(hub)
    mail, iban = seen.of["head"]
    assert (is_token(mail), iban) == (True, IBAN)
    assert (seen.of["clerk"][0], is_token(seen.of["clerk"][1], "IBAN")) == (MAIL, True)
    assert seen.of["head is told"] == [mail, IBAN]
    assert response.result == [MAIL, IBAN]
    assert not any(raw in record for raw in (MAIL, IBAN))


async def test_a_capability_sees_its_kinds_and_its_fields_and_the_others_do_not(seen: Seen) -> None:
    hub = seen.hub
    pay = Capability(code="PAY", sees=frozenset({"IBAN"}), sees_fields=frozenset({"to.mail"}))
    seen.echo("bank", capabilities=[pay, "LOOK"])
    given = {"to": {"mail": MAIL, "name": MAIL}, "iban": IBAN}
    async with hub:
        response = await ask(hub, "bank", capability="PAY", input=given)
        paying = seen.of["bank"]
        await ask(hub, "bank", capability="LOOK", input=given)
        record = await everything(hub)
    assert (paying["to"]["mail"], is_token(paying["to"]["name"]), paying["iban"]) == (MAIL, True, IBAN)
    assert not any(raw in str(seen.of["bank"]) for raw in (MAIL, IBAN))
    assert response.result == given
    assert not any(raw in record for raw in (MAIL, IBAN))


async def test_what_an_agent_may_see_reaches_it_also_through_one_that_may_not(seen: Seen) -> None:
    """X12: the orchestrator hands a token on; the bank gets the number."""
    hub = seen.hub
    seen.echo("bank", sees=["IBAN"])
    seen.relay("a", "bank")
    async with hub:
        await ask(hub, "a", input=IBAN)
    assert (is_token(seen.of["a"], "IBAN"), seen.of["bank"]) == (True, IBAN)
    assert seen.of["a is told"] == seen.of["a"]


async def test_redaction_can_be_switched_off(make_hub: MakeHub) -> None:
    seen = Seen(make_hub(redaction=False))
    seen.echo("a")
    async with seen.hub as hub:
        response = await ask(hub, "a", input=MAIL)
        record = await everything(hub)
    assert (seen.of["a"], response.result, MAIL in record) == (MAIL, MAIL, True)


def words(text: str) -> list[Finding]:
    return [Finding(*match.span(), "secret word") for match in re.finditer("xyzzy|[A-Z]{4,}", text)]


def words_one_by_one(text: str) -> Iterable[Finding]:
    yield from words(text)


@pytest.mark.parametrize("detector", [words, words_one_by_one, detector_pipeline(extra=[words])])
async def test_a_team_may_have_a_detector_of_its_own(make_hub: MakeHub, detector: Any) -> None:
    """X12: one that knows nothing of tokens, and gives its findings one by one, does no less."""
    seen = Seen(make_hub(redaction=detector))
    seen.echo("b", sees=["SECRET_WORD"])
    seen.relay("a", "b")
    async with seen.hub as hub:
        response = await ask(hub, "a", input="say xyzzy to PLUGH")
        record = await everything(hub)
    assert TOKEN.sub("_", seen.of["a"]) == "say _ to _"
    assert seen.of["b"] == "say xyzzy to PLUGH"
    assert response.result == "say xyzzy to PLUGH"
    assert not any(raw in record for raw in ("xyzzy", "PLUGH"))


# ── schemas ───────────────────────────────────────────────────────────────────────────────────────────────────────────

MAIL_SCHEMA = {"properties": {"to": {"type": "string", "format": "email", "pattern": "@example[.]org$"}}}


async def test_a_schema_judges_what_was_said_and_not_the_tokens(seen: Seen) -> None:
    """Decision 13: schemas are checked before redaction, also where a caller has only a token to send."""
    hub = seen.hub
    seen.echo("b", capabilities=[Capability(code="SEND", input_schema=MAIL_SCHEMA, result_schema=MAIL_SCHEMA)])
    replies: list[Response] = []

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> Any:
        for to in (brief.input, OTHER, "carol@elsewhere.net", "[EMAIL:bcdfghjklmnp]"):
            replies.append(await brief.delegate("b", capability="SEND", input={"to": to}))
        return replies[0].result

    async with hub:
        direct = await ask(hub, "b", capability="SEND", input={"to": MAIL})
        response = await ask(hub, "a", input=MAIL)
        record = await everything(hub)
    assert (direct.result, response.result) == ({"to": MAIL}, {"to": MAIL})
    assert [each.status for each in replies] == [Status.SUCCESS] * 2 + [Status.REFUSED] * 2
    assert "carol@elsewhere.net" not in record


async def test_a_result_that_does_not_fit_is_told_without_what_stood_in_it(hub: Hub) -> None:
    """X12: what the schema's validator says of a value is redacted like any error."""
    schema = {"properties": {"to": {"type": "integer"}}}

    @hub.agent("b", capabilities=[Capability(code="SEND", input_schema=schema, result_schema=schema)])
    async def b(brief: Brief) -> Any:
        return {"to": MAIL}

    async with hub:
        wrong_input = await ask(hub, "b", capability="SEND", input={"to": MAIL})
        wrong_result = await ask(hub, "b", capability="SEND", input={"to": 1})
        record = await everything(hub)
    assert wrong_input.fault is not None
    assert wrong_result.fault is not None
    assert [wrong_input.fault.code, wrong_result.fault.code] == [
        Code.INPUT_VALIDATION_FAILED,
        Code.RESULT_VALIDATION_FAILED,
    ]
    assert MAIL not in record + str(wrong_input.fault) + str(wrong_result.fault)


# HOLE: the complaint quotes the restored value, and without its name no detector knows it.
async def test_a_callee_cannot_read_a_value_from_what_a_schema_says_of_it(hub: Hub) -> None:
    """X12: an agent that has only a token sends it where it cannot fit; the complaint must not quote the value."""
    complaints: list[Any] = []
    schema = {"properties": {"password": {"type": "integer"}, "x": {"maxLength": 2}}}

    @hub.agent("b", capabilities=[Capability(code="LOGIN", input_schema=schema, result_schema=schema)])
    async def b(brief: Brief) -> Any:
        return "unreachable"

    @hub.agent("c", capabilities=[Capability(code="TELL", result_schema=schema)])
    async def c(brief: Brief) -> Any:
        return {"x": brief.input}

    @hub.agent("a", may_call=["b", "c"])
    async def a(brief: Brief) -> Any:
        token = brief.input["password"]
        complaints.append((await brief.delegate("b", capability="LOGIN", input={"password": token})).fault)
        complaints.append((await brief.delegate("b", capability="LOGIN", input={"x": token})).fault)
        complaints.append((await brief.delegate("c", capability="TELL", input=token)).fault)
        return token

    async with hub:
        response = await ask(hub, "a", input={"password": "hunter2go"})
        record = await everything(hub)
    assert response.result == "hunter2go"
    assert [each.code for each in complaints] == [
        Code.INPUT_VALIDATION_FAILED,
        Code.INPUT_VALIDATION_FAILED,
        Code.RESULT_VALIDATION_FAILED,
    ]
    assert "hunter2go" not in str(complaints)
    assert "hunter2go" not in record


# ── what is kept ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_conversations_and_facts_hold_tokens(hub: Hub) -> None:
    """Decision 13: sessions and facts hold tokens, for every reader."""
    read: list[str] = []

    @hub.agent("a")
    async def a(brief: Brief) -> Answer:
        read.append(texts_of(await brief.conversation()) + str(await brief.facts()))
        return Answer(f"noted {OTHER}", new_facts=(f"reads {OTHER}", f"lives at {brief.text}"))

    async with hub:
        await ask(hub, "a", MAIL, session="s-1")
        await ask(hub, "a", MAIL, session="s-1")
        record = await everything(hub)
        facts = await hub.store.facts("u-1")
    assert read[0] == "()"
    assert len(EMAIL.findall(read[1])) >= 4
    assert not any(raw in read[1] + str(facts) + record for raw in (MAIL, OTHER))


async def test_the_asker_of_a_stream_gets_the_end_raw_and_every_other_listener_tokens(seen: Seen) -> None:
    """X12: only whoever asked gets back what was redacted."""
    seen.echo("b")
    seen.relay("a", "b")
    async with asyncio.timeout(PATIENCE_S), seen.hub as hub:
        everyone = hub.events()
        records = [record async for record in hub.stream("a", input=MAIL, user="u-1")]
        everyone.close()
        overheard = [record async for record in everyone]
    assert [record.kind for record in records] == [record.kind for record in overheard]
    assert isinstance(records[-1].body, Response)
    assert records[-1].body.result == MAIL
    assert MAIL not in texts_of(records[:-1])
    assert MAIL not in texts_of(overheard)


async def test_a_stream_of_a_duplicate_ends_with_the_answer_raw(seen: Seen) -> None:
    seen.echo("a")
    async with asyncio.timeout(PATIENCE_S), seen.hub as hub:
        await ask(hub, "a", input=MAIL, request_id="1")
        records = [record async for record in hub.stream("a", input=MAIL, user="u-1", request_id="1")]
    assert [each.body.result for each in records if isinstance(each.body, Response)] == [MAIL]


async def test_a_duplicate_is_answered_raw_by_another_hub_later(tmp_path: Path, make_hub: MakeHub) -> None:
    """X12: the vault survives a restart, and is encrypted in the store."""
    for number in range(3):
        seen = Seen(make_hub())
        seen.echo("a")
        async with seen.hub as hub:
            response = await ask(hub, "a", input=[MAIL, CARD], request_id="1")
        assert response.result == [MAIL, CARD]
        assert ("a" in seen.of) is (number == 0)
    sealed = rows(tmp_path, "SELECT value FROM sealed")
    assert len(sealed) == 2
    assert not any(MAIL.encode() in value or str(CARD).encode() in value for (value,) in sealed)


async def test_a_hub_with_another_key_has_tokens_to_give_and_nothing_more(make_hub: MakeHub) -> None:
    """X12: whoever has the file without the secret has nothing."""
    seen = Seen(make_hub(vault_key=b"one" * 16))
    seen.echo("a")
    async with seen.hub as hub:
        run = (await ask(hub, "a", input=MAIL, request_id="1")).run
    async with make_hub(vault_key=b"two" * 16) as other:
        sealed = await other.store.unseal(run)
        keys = other._parts.redactor.keys  # pyright: ignore[reportPrivateUsage]
        assert [keys.unlock(each.value, f"{run} {each.token}") for each in sealed] == [None]


async def test_what_is_kept_of_a_user_under_a_key_of_ones_own_is_erased(make_hub: MakeHub, tmp_path: Path) -> None:
    hub = make_hub(vault_key=b"one" * 16)

    @hub.agent("a")
    async def a(brief: Brief) -> Answer:
        return Answer("noted", new_facts=(f"They can be reached at {MAIL}",))

    async with hub:
        await hub.ask("a", user="u-1")
        assert isinstance(hub.store, SqliteStore)
        erased = await hub.store.erase("u-1")
    assert (erased.facts, rows(tmp_path, "SELECT value FROM sealed")) == (1, [])


async def test_the_vault_is_emptied_when_the_outcome_is_forgotten(
    tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X12: it lives as long as the answer can be had again."""
    seen.echo("a")
    async with seen.hub as hub:
        await ask(hub, "a", input=MAIL, request_id="1")
        await hub.store.sweep(max_attempts=3, keep_ms=leases.KEEP_MS)
        assert len(rows(tmp_path, "SELECT * FROM sealed")) == 1
        await hub.store.sweep(max_attempts=3, keep_ms=-1_000)
        assert rows(tmp_path, "SELECT * FROM sealed") == []


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(folder / "hub.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(connection.execute(query))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    finally:
        connection.close()


# ── after a restart ───────────────────────────────────────────────────────────────────────────────────────────────────


class Journey:
    """A hub with a resumable agent that stops after its first step, and a clerk who remembers what it was told."""

    arrivals: list[Any]

    def __init__(self, folder: Path, arrivals: list[Any]) -> None:
        self.store = SqliteStore(folder / "hub.db", durability="process")
        self.hub = Hub(store=self.store)
        self.arrivals = arrivals
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        self.steps: list[Any] = []
        self.root_saw: list[Any] = []

        @self.hub.tool()
        async def look() -> str:
            return f"seen {OTHER}"

        @self.hub.agent("clerk", resumable=True)
        async def clerk(brief: Brief) -> Any:
            self.arrivals.append(brief.input)
            return self.arrivals[0] if brief.input == "again" else brief.input

        @self.hub.agent("root", resumable=True, may_call=["clerk"], tools=["look"])
        async def root(brief: Brief) -> Any:
            self.root_saw.append(brief.input)
            self.steps.append((await brief.delegate("clerk", input=[brief.input, OTHER])).result)
            self.steps.append(await brief.use("look"))
            await self.store.flush()
            self.reached.set()
            await self.go_on.wait()
            self.steps.append((await brief.delegate("clerk", input="again")).result)
            return self.steps


def take_lease(folder: Path) -> None:
    """Make the worker that has the run look dead."""
    connection = apsw.Connection(str(folder / "hub.db"))
    connection.set_busy_timeout(5_000)
    connection.execute(  # pyright: ignore[reportUnknownMemberType]
        "UPDATE request SET worker = 'dead', lease_until_ms = 0 WHERE state = 0"
    )
    connection.close()


async def resumed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Journey, Response, str]:
    """Let a hub fall silent after the first steps, and another one take its run up."""
    monkeypatch.setattr(root_runs, "LEASE_MS", 300)
    arrivals: list[Any] = []
    first, second = Journey(folder, arrivals), Journey(folder, arrivals)
    async with asyncio.timeout(PATIENCE_S), first.hub:
        task = asyncio.create_task(first.hub.ask("root", input=MAIL, user="u-1", request_id="1"))
        await first.reached.wait()
        heartbeat, keeper, _ = first.hub._engine.leases._attendants  # pyright: ignore[reportPrivateUsage]
        for task in (heartbeat, keeper):
            task.cancel()
        take_lease(folder)
        second.go_on.set()
        async with second.hub:
            response = await second.hub.ask("root", input=MAIL, user="u-1", request_id="1")
            record = await everything(second.hub)
        first.go_on.set()
        await asyncio.wait({task})
    return second, response, record


async def test_a_run_that_is_taken_up_again_has_the_same_tokens_and_the_same_raw_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X12, decision 4: the vault survives a restart, and the journal holds raw values only encrypted."""
    journey, response, record = await resumed(tmp_path, monkeypatch)
    assert journey.steps[0] == [journey.root_saw[0], OTHER]
    assert journey.steps[1] == f"seen {OTHER}"
    assert is_token(journey.root_saw[0])
    assert response.ok
    assert response.result[:2] == [[MAIL, OTHER], f"seen {OTHER}"]
    assert not any(raw in record for raw in (MAIL, OTHER))
    assert not any(raw.encode() in each.read_bytes() for each in tmp_path.iterdir() for raw in (MAIL, OTHER))


# HOLE: a step that the journal answers adds nothing to what its caller holds.
async def test_an_agent_that_is_run_again_still_holds_what_it_had_sent_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X12, decision 4: a step that the journal answers counts as sent, so later answers come back as they did."""
    journey, response, _ = await resumed(tmp_path, monkeypatch)
    assert journey.steps[2] == [journey.root_saw[0], OTHER]
    assert response.result[2] == [MAIL, OTHER]


# ── detectors that fail ───────────────────────────────────────────────────────────────────────────────────────────────


class Flaky:
    """A detector that raises, with all that it looked at, where a text holds a certain word."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.detect = detector_pipeline()

    def __call__(self, text: str) -> Iterable[Finding]:
        if self.word in text:
            raise ValueError(f"cannot read {text}")
        return self.detect(text)


def code_of(response: Response) -> Code | None:
    return response.fault.code if response.fault else None


async def test_a_detector_that_raises_lets_nothing_through(make_hub: MakeHub, caplog: pytest.LogCaptureFixture) -> None:
    """X12: the callee is not run, nothing raw is written or logged, and everyone is answered."""
    caplog.set_level("DEBUG")
    seen = Seen(make_hub(redaction=Flaky("boom")))
    replies: list[Response] = []
    seen.echo("b")

    @seen.hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> Any:
        replies.append(await brief.delegate("b", input=f"boom {MAIL}"))
        return "survived"

    async with seen.hub as hub:
        root = await ask(hub, "b", input=f"boom {MAIL}")
        response = await ask(hub, "a")
        record = await everything(hub)
    assert (root.status, code_of(root)) == (Status.REFUSED, Code.PERMISSION_DENIED)
    assert (replies[0].status, code_of(replies[0])) == (Status.REFUSED, Code.PERMISSION_DENIED)
    assert response.result == "survived"
    assert seen.of == {}
    assert MAIL not in record + caplog.text + str(root) + str(replies)


# HOLE: the reported partial takes the place of the answer, raw.
async def test_a_detector_that_raises_on_an_answer_keeps_it_from_everyone(
    make_hub: MakeHub, caplog: pytest.LogCaptureFixture
) -> None:
    """X12: neither the answer nor what was reported before it is given or written."""
    caplog.set_level("DEBUG")
    hub = make_hub(redaction=Flaky("boom"))
    replies: list[Response] = []

    @hub.agent("b")
    async def b(brief: Brief) -> Answer:
        brief.progress("half", partial=Answer(f"half of {MAIL}", summary=OTHER, artifacts=(an_artifact(MAIL),)))
        return Answer(f"boom {MAIL}")

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> Any:
        replies.append(await brief.delegate("b"))
        return "survived"

    async with hub:
        root = await ask(hub, "b")
        response = await ask(hub, "a")
        record = await everything(hub)
    assert (root.status, replies[0].status, response.result) == (Status.FAILED, Status.FAILED, "survived")
    assert not any(raw in record + caplog.text + str(root) + str(replies) for raw in (MAIL, OTHER))


def an_artifact(value: Any) -> Artifact:
    return Artifact(type="json", value=value)


# HOLE: `RootAdmission.redacted` lets the error of the detector out of `hub.ask`.
@pytest.mark.parametrize("agent", ["a", "b"])
async def test_a_detector_that_raises_where_a_person_would_be_asked_lets_nothing_through(
    make_hub: MakeHub, caplog: pytest.LogCaptureFixture, agent: str
) -> None:
    """X12: nobody is asked about what cannot be redacted, and whoever asked is answered."""
    caplog.set_level("DEBUG")

    async def agree(question: Question) -> bool:
        return True

    def asks(request: Request, facts: Facts) -> Verdict:
        return Ask("sure?") if request.target == "b" else ALLOW

    hub = make_hub(
        redaction=Flaky("boom"),
        approver=agree,
        guards=[asks],
    )
    seen = Seen(hub)
    replies: list[Response] = []
    seen.echo("b")

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> Any:
        replies.append(await brief.delegate("b", input=f"boom {MAIL}"))
        return "survived"

    async with hub:
        response = await ask(hub, agent, input=f"boom {MAIL}" if agent == "b" else None)
        record = await everything(hub)
    assert (response.result == "survived") is (agent == "a")
    assert all(each.status is Status.REFUSED for each in (replies if agent == "a" else [response]))
    assert seen.of == {}
    assert MAIL not in record + caplog.text


# ── attacks ───────────────────────────────────────────────────────────────────────────────────────────────────────────


# HOLE: said without its name, it is found by no detector.
async def test_a_value_that_is_known_by_its_name_alone_is_struck_wherever_it_is_said_again(hub: Hub) -> None:
    """X12: who may see it may say it anywhere; the record and other agents get the token all the same."""
    replies: list[Response] = []

    @hub.tool()
    async def login(secret: str) -> str:
        raise ValueError(f"the door said: {secret}")

    @hub.agent("door", sees=["PASSWORD"], tools=["login"])
    async def door(brief: Brief) -> Any:
        brief.progress(f"trying {brief.input['password']}")
        with suppress(RemitError):
            await brief.use("login", secret=brief.input["password"])
        return f"opened by {brief.input['password']}"

    @hub.agent("a", may_call=["door"])
    async def a(brief: Brief) -> Any:
        replies.append(await brief.delegate("door", input=brief.input))
        return replies[0].result

    async with hub:
        response = await ask(hub, "a", input={"password": "hunter2go"})
        record = await everything(hub)
    assert response.result == "opened by hunter2go"
    assert "hunter2go" not in str(replies)
    assert "hunter2go" not in record


# HOLE: all that is struck from the edited call counts as the caller's own.
async def test_an_agent_does_not_get_what_a_person_put_into_its_request(make_hub: MakeHub) -> None:
    """X12: raw is only what it sent itself; what the person wrote instead comes back as a token."""

    async def edit(question: Question) -> Decision:
        return Decision(agreed=True, by="carol", edits={"input": [question.request.input[0], OTHER]})

    def asks(request: Request, facts: Facts) -> Verdict:
        return Ask("sure?", frozenset({"input"})) if request.target == "b" else ALLOW

    seen = Seen(make_hub(approver=edit, guards=[asks]))
    seen.echo("b")
    got: list[Any] = []

    @seen.hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> Any:
        got.extend((await brief.delegate("b", input=[MAIL])).result)
        return got

    async with seen.hub as hub:
        response = await ask(hub, "a")
        record = await everything(hub)
    assert [is_token(each) for each in seen.of["b"]] == [True, True]
    assert got[0] == MAIL
    assert is_token(got[1])
    assert response.result[0] == MAIL
    assert not any(raw in record for raw in (MAIL, OTHER))


# HOLE: all that is struck from the rewritten call counts as the caller's own.
async def test_an_agent_does_not_get_what_a_guard_put_into_its_request(make_hub: MakeHub) -> None:
    """X12: a guard that adds an address for the callee does not give it to the caller."""

    def adds(request: Request, facts: Facts) -> Verdict:
        return Rewrite(replace(request, input=[request.input, OTHER])) if request.target == "b" else ALLOW

    seen = Seen(make_hub(guards=[adds]))
    seen.echo("b")
    seen.relay("a", "b")
    async with seen.hub as hub:
        await ask(hub, "a", input=MAIL)
    assert [is_token(each) for each in seen.of["a is told"]] == [True, True]


# HOLE: `question.decision` holds reason and edits raw.
async def test_what_a_person_wrote_is_in_no_file(make_hub: MakeHub, tmp_path: Path) -> None:
    """X12: an answer of the inbox, its reason and its edits, and a cancellation hold what people said."""

    def asks(request: Request, facts: Facts) -> Verdict:
        return Ask("sure?", frozenset({"input"}))

    seen = Seen(make_hub(approver="inbox", guards=[asks]))
    seen.echo("b")
    async with seen.hub as hub:
        answering = asyncio.create_task(ask(hub, "b", input=MAIL))
        pending = await eventually(hub.pending)
        assert MAIL not in str(pending)
        await hub.decide(pending[0].id, agreed=True, by="carol", reason=f"for {OTHER}", edits={"input": OTHER})
        response = await answering
        await hub.store.flush()
        files = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert is_token(seen.of["b"])
    assert response.result == OTHER
    assert MAIL.encode() not in files
    assert OTHER.encode() not in files


# HOLE: `control.reason` holds it raw.
async def test_the_reason_of_a_cancellation_from_elsewhere_is_in_no_file(seen: Seen, tmp_path: Path) -> None:
    seen.echo("a")
    async with seen.hub as hub:
        await hub.store.control("no-such-run", "cancel", "carol", f"by order of {OTHER}")
        await hub.store.flush()
        files = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert OTHER.encode() not in files


async def test_tokens_of_another_run_or_user_bring_nothing_back(seen: Seen) -> None:
    """X12: foreign tokens stay, for users, for callers and for those who may see the kind."""
    seen.echo("b", sees=["EMAIL"], capabilities=[Capability(code="X", sees_fields=frozenset({"x"}))])
    seen.relay("a", "b")
    async with seen.hub as hub:
        await ask(hub, "a", input=MAIL, user="u-1")
        token = seen.of["a"]
        other_run = await ask(hub, "a", input=[token, OTHER], user="u-1")
        seen_by_b = seen.of["b"]
        other_user = await ask(hub, "a", input=[token], user="u-2")
        field = await ask(hub, "b", capability="X", input={"x": token}, user="u-1")
    assert other_run.result == [token, OTHER]
    assert seen_by_b == [token, OTHER]
    assert (other_user.result, field.result) == ([token], {"x": token})


async def test_an_agent_gets_nothing_of_its_sibling(hub: Hub) -> None:
    """X12: what one callee of a caller had sent, another cannot have restored by naming its token."""
    tokens: list[str] = []
    answers: list[Any] = []

    @hub.agent("echo")
    async def echoing(brief: Brief) -> Any:
        tokens.extend(EMAIL.findall(str(brief.input)))
        return brief.input

    @hub.agent("one", may_call=["echo"])
    async def one(brief: Brief) -> Any:
        await brief.delegate("echo", input=MAIL)
        return "done"

    @hub.agent("two", may_call=["echo"])
    async def two(brief: Brief) -> Any:
        answers.append((await brief.delegate("echo", input=tokens[0])).result)
        return answers

    @hub.agent("a", may_call=["one", "two"])
    async def a(brief: Brief) -> Any:
        await brief.delegate("one")
        return (await brief.delegate("two")).result

    async with hub:
        response = await ask(hub, "a")
    assert answers == [tokens[0]]
    # Nor does the user: nobody told them, and it was no answer of theirs.
    assert response.result == [tokens[0]]


async def test_one_who_may_see_is_no_way_to_a_value_for_one_who_may_not(hub: Hub) -> None:
    """X12: a deputy that repeats, raises, reports or keeps what it sees gives away no more than the token."""
    got: list[Any] = []

    @hub.agent("deputy", sees=["EMAIL"])
    async def deputy(brief: Brief) -> Any:
        assert MAIL in brief.text
        match brief.objective:
            case "raise":
                raise ValueError(brief.text)
            case "fault":
                raise RemitError(fault(Code.DELEGATION_FAILED, brief.text, suggestion=brief.text, foreign=brief.text))
            case "partial":
                brief.progress(brief.text, partial=Answer(brief.text))
                raise ValueError(brief.text)
            case _:
                return Answer(
                    {brief.text: [brief.text]},
                    summary=brief.text,
                    warnings=(brief.text,),
                    new_facts=(brief.text,),
                    metadata={"x": brief.text},
                )

    @hub.agent("a", may_call=["deputy"])
    async def a(brief: Brief) -> Any:
        for how in ("repeat", "raise", "fault", "partial"):
            got.append(await brief.delegate("deputy", objective=how, input=f"mail of {brief.text}"))
        got.append(await brief.facts())
        return "done"

    async with hub:
        await ask(hub, "a", MAIL)
        record = await everything(hub)
    assert len(got) == 5
    assert MAIL not in str(got)
    assert MAIL not in record


async def test_a_token_that_a_user_makes_up_is_a_text_like_any_other(seen: Seen) -> None:
    seen.echo("b", sees=["EMAIL"])
    seen.relay("a", "b")
    made_up = "[EMAIL:bcdfghjklmnp] [API_KEY:" + "b" * 12 + "]"
    async with seen.hub as hub:
        response = await ask(hub, "a", input=made_up)
    assert response.result == seen.of["a"] == seen.of["b"] == made_up


async def test_what_an_agent_does_to_tokens_brings_nothing_back(hub: Hub) -> None:
    """X12: split, changed in case, or cut, a token is none any more; put together again, it is."""

    @hub.agent("a")
    async def a(brief: Brief) -> Any:
        token = brief.text
        return [token.lower(), token.upper(), token[:10], token[10:], f"{token[:10]}{token[10:]}", f"({token})"]

    async with hub:
        response = await ask(hub, "a", MAIL)
    *broken, whole, quoted = response.result
    assert (whole, quoted) == (MAIL, f"({MAIL})")
    assert MAIL not in broken


async def test_a_long_text_full_of_secrets_can_still_be_read_from_the_record(seen: Seen) -> None:
    """X12: tokens are longer than much of what they stand for, and what is recorded must be readable."""
    text = "a@b.co " * 14_000
    seen.echo("b")

    @seen.hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> Any:
        reply = await brief.delegate(
            "b", objective=text, input="x", handoff=Handoff(original_request=text), max_tokens=40_000
        )
        return [reply.status, text]

    async with seen.hub as hub:
        response = await ask(hub, "a", text)
        runs_listed = await hub.store.runs()
        delegations = await hub.delegations(response.run)
    assert response.result == [Status.SUCCESS, text]
    assert [each.status for each in delegations] == [Status.SUCCESS] * 2
    assert len(runs_listed) == 1


# HOLE: `for_record` refuses more than 4 MiB, and the result is never recorded.
async def test_an_answer_that_tokens_make_larger_is_recorded_like_any_other(make_hub: MakeHub) -> None:
    def every_letter(text: str) -> list[Finding]:
        return [Finding(at, at + 1, "X" * 32) for at, char in enumerate(text) if char == "x"]

    hub = make_hub(redaction=every_letter, limits=Limits(root_time_ms=240_000, delegation_time_ms=240_000))

    @hub.agent("b")
    async def b(brief: Brief) -> Any:
        return {"x": "x" * 120_000}

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> Any:
        return (await brief.delegate("b")).status

    async with hub:
        response = await ask(hub, "a")
        delegations = await hub.delegations(response.run)
    assert response.result == "success"
    assert [each.status for each in delegations] == [Status.SUCCESS] * 2


# HOLE: `worded` and `progress` cut before they redact.
async def test_a_secret_is_not_cut_in_half_before_it_is_looked_for(hub: Hub) -> None:
    """X12: error texts and progress are cut to a length; half a card number is found by no detector."""
    number = "4111 1111 1111 1111"

    @hub.agent("raises")
    async def raises(brief: Brief) -> Any:
        raise ValueError("x" * 983 + " " + number)

    @hub.agent("reports")
    async def reports(brief: Brief) -> Any:
        brief.progress("x" * 1_984 + " " + number)
        return "done"

    async with hub:
        failed = await ask(hub, "raises")
        await ask(hub, "reports")
        record = await everything(hub)
        texts = [each.body.text for each in await hub.store.records() if isinstance(each.body, Progress)]
    assert len(texts) == 1
    assert failed.fault is not None
    assert "4111 1111" not in record + failed.fault.message


async def test_arguments_nested_too_deep_to_be_redacted_reach_no_tool(hub: Hub) -> None:
    """X12: nothing is done that cannot be recorded."""
    ran: list[Any] = []

    @hub.tool(safe_to_repeat=True)
    async def take(value: Any) -> str:
        ran.append(value)
        return "taken"

    @hub.agent("a", tools=["take"])
    async def a(brief: Brief) -> Any:
        value: Any = MAIL
        for _ in range(400):
            value = [value]
        try:
            return await brief.use("take", value=value)
        except (RemitError, RecursionError) as error:
            return type(error).__name__

    async with hub:
        response = await ask(hub, "a")
        uses = [each for each in await hub.store.records() if each.kind is Kind.TOOL]
    assert response.result == "taken" or not ran
    assert len(uses) >= len(ran)


async def test_the_same_run_gives_the_same_token_in_whatever_form_a_value_comes(seen: Seen) -> None:
    """X12: in a text, under a name, in a list or a key, from the user or from an agent."""
    tokens = set[str]()
    seen.echo("b")

    @seen.hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> Any:
        forms = (MAIL, f"to {MAIL}!", {"to": MAIL}, [MAIL], {MAIL: 1}, brief.input)
        for number, form in enumerate(forms):
            await brief.delegate("b", objective=str(number), input=form)
            tokens.update(EMAIL.findall(str(seen.of["b"])))
        return "done"

    async with seen.hub as hub:
        await ask(hub, "a", input=MAIL)
    assert len(tokens) == 1


async def test_a_detector_that_cannot_tell_of_a_bare_value_holds_nothing_up(make_hub: Callable[..., Hub]) -> None:
    """What is struck is remembered by itself, whatever the detector says of it alone."""

    def flaky(text: str) -> list[Finding]:
        if text == "Zorro77":
            raise RuntimeError(f"no answer on {text}")
        start = text.find("Zorro77")
        return [Finding(start, start + 7, "NICK")] if start >= 0 else []

    hub = make_hub(redaction=flaky)

    @hub.agent("b")
    async def b(brief: Brief) -> str:
        return f"{brief.text}: it is Zorro77 indeed"

    @hub.agent("a", may_call=["b"])
    async def a(brief: Brief) -> Any:
        return (await brief.delegate("b", objective="tell Zorro77 now")).unwrap()

    async with hub, asyncio.timeout(PATIENCE_S):
        response = await hub.ask("a", "hello Zorro77 hi", user="u-1")
    assert response.result == "tell Zorro77 now: it is Zorro77 indeed"
