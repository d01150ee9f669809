"""Tools that see raw values: they get what a token stands for, and nobody else does."""

import asyncio
import json
import logging
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from checkout import TESTS
from collector import Collector
from remit import Brief, Capability, Code, Hub, Notice, RemitError, ToolUse, fault
from remit.policy.redaction import TOKEN
from remit.policy.verdict import Finding
from remit.protocol.codec import encode
from remit.runtime import journal
from remit_models import ModelAgent
from remit_models.mcp import add_mcp
from remit_otel import send_telemetry
from remit_redaction import detector_pipeline

EMAIL = "canary.bird@example.org"
PHONE = "+1 415-555-2671"
IBAN = "GB29 NWBK 6016 1331 9268 19"
PATIENCE = 60.0


def raw_in(text: object, *values: str) -> list[str]:
    """Return the raw values that stand in a text, written as they are or without separators."""
    shown = text if isinstance(text, str) else repr(text)
    forms = {value: {value, re.sub(r"[\s+-]", "", value)} for value in values or (EMAIL, PHONE, IBAN)}
    return [value for value, written in forms.items() if any(form.lower() in shown.lower() for form in written)]


async def tool_uses(hub: Hub, run: str) -> list[ToolUse]:
    await hub.store.flush()
    return [record.body for record in await hub.store.records(run=run) if isinstance(record.body, ToolUse)]


# ── the canaries ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Model:
    """A model that passes the token which it reads on to a tool, and tells what it found."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    async def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        shown = repr(messages)
        self.shown.append(shown)
        results = [part.content for each in messages for part in each.parts if isinstance(part, ToolReturnPart)]
        if results:
            return ModelResponse(parts=[TextPart(f"Found: {results[-1]}")])
        [token] = {match[0] for match in TOKEN.finditer(shown)}
        return ModelResponse(parts=[ToolCallPart("find_customer", {"email": token, "note": f"asked by {token}"})])


async def test_the_tool_gets_the_value_and_nothing_else_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    given: list[dict[str, str]] = []
    model, places, steps = Model(), dict[str, object](), list[journal.JournalStep]()
    note = journal.note

    def noted(store: Any, run: Any, path: str, step: journal.JournalStep, keys: Any) -> None:
        steps.append(step)
        note(store, run, path, step, keys)

    monkeypatch.setattr(journal, "note", noted)
    hub = Hub(store=tmp_path / "hub.db", durability="process")

    @hub.tool(sees=["EMAIL"])
    async def find_customer(email: str, note: str) -> dict[str, str]:
        given.append({"email": email, "note": note})
        return {"name": "Ada", "email": email, "phone": PHONE, "iban": IBAN}

    hub.add("clerk", ModelAgent(FunctionModel(model)), tools=["find_customer"], resumable=True)
    with Collector() as collector:
        send_telemetry(hub, collector.endpoint, content=True)
        async with hub:
            events = hub.events()
            response = await hub.ask("clerk", f"Who is {EMAIL}?", user="u-1")
            await hub.store.flush()
            records = await hub.store.records(limit=1_000)
            events.close()
            places["events"] = [encode(each) async for each in events]
            places["runs"] = await hub.store.runs()
            # When a hub closes, what is not sent soon is dropped.
            sent = lambda: any(span.name.startswith("invoke_agent") for span in collector.spans)  # noqa: E731
            await asyncio.to_thread(collector.wait, sent)
        places["sent to the collector"] = [body for _, _, body in collector.bodies]
        places["spans"] = [(span.name, span.attributes) for span in collector.spans]
    places["what the model was shown"] = model.shown
    places["the record"] = [encode(each) for each in records]
    places["the log"] = caplog.text
    places["the journal"] = steps
    places["files"] = [file.read_bytes().decode("latin-1") for file in tmp_path.rglob("*") if file.is_file()]

    assert given == [{"email": EMAIL, "note": f"asked by {EMAIL}"}]
    assert [len(model.shown), len(steps) > 0, len(records) > 0] == [2, True, True]
    assert {place: raw_in(content) for place, content in places.items() if raw_in(content)} == {}
    # The user, for whom it was found, gets it as it is.
    assert raw_in(response.result) == [EMAIL, PHONE, IBAN]
    assert response.warnings == ()
    uses = [record.body for record in records if isinstance(record.body, ToolUse)]
    assert [(use.tool, use.begun, use.revealed) for use in uses] == [
        ("find_customer", True, ("EMAIL",)),
        ("find_customer", False, ("EMAIL",)),
    ]
    attributes = [span.attributes for span in collector.spans if span.name == "execute_tool find_customer"]
    assert [each.get("remit.revealed") for each in attributes] == [["EMAIL"]]


# ── what is put in ────────────────────────────────────────────────────────────────────────────────────────────────────


def using(hub: Hub, tool: str, seen: list[Any], **options: Any) -> None:
    """Add an agent that passes its input on to a tool as its arguments, and notes what it gets back."""

    @hub.agent("clerk", tools=[tool], **options)
    async def clerk(brief: Brief) -> Any:
        arguments = cast("dict[str, Any]", brief.input)
        seen.append(arguments)
        try:
            value = await brief.use(tool, **arguments)
        except RemitError as error:
            seen.append(error.fault)
            raise
        seen.append(value)
        return value


async def test_only_the_kinds_that_a_tool_sees_are_put_in(hub: Hub) -> None:
    given: list[Any] = []
    seen: list[Any] = []

    @hub.tool(sees=["EMAIL"])
    async def send(to: str, phone: str, more: dict[str, list[str]]) -> None:
        given.extend([to, phone, more])

    using(hub, "send", seen)
    async with hub:
        arguments = {"to": EMAIL, "phone": PHONE, "more": {EMAIL: [f"cc {EMAIL}, {PHONE}"]}}
        await hub.ask("clerk", user="u-1", input=arguments)
    assert given[0] == EMAIL
    assert given[1].startswith("[PHONE:")
    assert list(given[2]) == [EMAIL]
    assert given[2][EMAIL][0].startswith(f"cc {EMAIL}, [PHONE:")
    assert raw_in(seen) == []


async def test_a_tool_may_see_a_kind_in_one_parameter_alone(hub: Hub) -> None:
    given: list[str] = []

    @hub.tool(sees={"email": ["EMAIL"]})
    async def send(email: str, text: str) -> None:
        given.extend([email, text])

    using(hub, "send", [])
    async with hub:
        await hub.ask("clerk", user="u-1", input={"email": EMAIL, "text": f"I am {EMAIL}"})
    assert given[0] == EMAIL
    assert given[1].startswith("I am [EMAIL:")


async def test_a_number_is_put_in_as_a_number(hub: Hub) -> None:
    given: list[object] = []

    @hub.tool(sees=["CREDIT_CARD"])
    async def charge(card_number: int) -> int:
        given.append(card_number)
        return card_number

    seen: list[Any] = []
    using(hub, "charge", seen)
    async with hub:
        response = await hub.ask("clerk", user="u-1", input={"card_number": 5500005555555559})
    assert given == [5500005555555559]
    assert response.result == 5500005555555559
    assert all("5500005555555559" not in repr(each) for each in seen)


async def test_a_token_that_was_made_up_or_is_of_another_conversation_stays_as_it_is(hub: Hub) -> None:
    given: list[str] = []
    tokens: list[str] = []

    @hub.tool(sees=["EMAIL"])
    async def find(email: str) -> None:
        given.append(email)

    @hub.agent("clerk", tools=["find"])
    async def clerk(brief: Brief) -> None:
        tokens.extend(match[0] for match in TOKEN.finditer(brief.text))
        for token in ("[EMAIL:bcdfghjklmnp]", *tokens):
            await brief.use("find", email=token)

    async with hub:
        await hub.ask("clerk", EMAIL, user="u-1")
        await hub.ask("clerk", "another", user="u-2")
    assert given == ["[EMAIL:bcdfghjklmnp]", EMAIL, "[EMAIL:bcdfghjklmnp]", *tokens]


async def test_the_schema_is_held_against_the_value_and_what_is_wrong_does_not_show_it(hub: Hub) -> None:
    """A token would fit neither."""
    given: list[str] = []
    seen: list[Any] = []

    def staff(text: str) -> Iterable[Finding]:
        return [Finding(match.start(), match.end(), "STAFF") for match in re.finditer(r"ST-\d+", text)]

    hub = Hub(store=hub.store, redaction=detector_pipeline(extra=[staff]))

    @hub.tool(sees=["STAFF"])
    async def look(staff: str) -> None:
        given.append(staff)

    # As a server's tool would say it: a function has no pattern.
    tool = hub._parts.registry.tools["look"]  # pyright: ignore[reportPrivateUsage]
    schema = {"type": "object", "properties": {"staff": {"type": "string", "pattern": "^ST-[0-9]{4}$"}}}
    card = tool.card
    hub.describe_tool(type(card)(name="look", input_schema=schema, sees=card.sees))
    using(hub, "look", seen)
    async with hub:
        fits = await hub.ask("clerk", user="u-1", input={"staff": "ST-4711"})
        not_so = await hub.ask("clerk", user="u-1", input={"staff": "ST-471100"})
        uses = await tool_uses(hub, not_so.run)
    assert fits.ok, fits.fault
    assert not_so.fault is not None
    assert not_so.fault.code is Code.INPUT_VALIDATION_FAILED
    assert given == ["ST-4711"]
    assert raw_in([seen, not_so.fault, uses], "ST-4711", "ST-471100") == []


async def test_with_redaction_off_a_tool_and_its_agent_get_all_as_it_is(make_hub: Callable[..., Hub]) -> None:
    hub = make_hub(redaction=False)
    seen: list[Any] = []

    @hub.tool(sees=["EMAIL"])
    async def find(email: str) -> str:
        return f"{email} {PHONE}"

    using(hub, "find", seen)
    async with hub:
        response = await hub.ask("clerk", user="u-1", input={"email": EMAIL})
        uses = await tool_uses(hub, response.run)
    assert seen == [{"email": EMAIL}, f"{EMAIL} {PHONE}"]
    assert [use.revealed for use in uses] == [(), ()]


# ── what comes back ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_that_may_see_a_kind_gets_it_from_the_tool_as_well(hub: Hub) -> None:
    seen: list[Any] = []

    @hub.tool(sees=["EMAIL"])
    async def find(email: str) -> dict[str, str]:
        return {"email": email, "phone": PHONE}

    using(hub, "find", seen, sees=["PHONE"])
    async with hub:
        await hub.ask("clerk", user="u-1", input={"email": EMAIL})
    assert seen[-1]["email"].startswith("[EMAIL:")
    assert seen[-1]["phone"] == PHONE


async def test_an_agent_gets_back_what_it_said_raw_itself(hub: Hub) -> None:
    seen: list[Any] = []

    @hub.tool(sees=["EMAIL"])
    async def find(email: str) -> dict[str, str]:
        return {"email": email, "phone": PHONE}

    @hub.agent("clerk", tools=["find"])
    async def clerk(brief: Brief) -> None:
        seen.append(await brief.use("find", email=EMAIL))

    async with hub:
        response = await hub.ask("clerk", "x", user="u-1")
        [*_, use] = await tool_uses(hub, response.run)
    assert seen[0]["email"] == EMAIL
    assert seen[0]["phone"].startswith("[PHONE:")
    # Nothing was put in: the agent had it.
    assert (use.revealed, raw_in(use)) == ((), [])


async def test_what_a_tool_without_sees_returns_reaches_its_agent_as_before(hub: Hub) -> None:
    seen: list[Any] = []

    @hub.tool()
    async def find(key: str) -> str:
        return f"{key} {PHONE}"

    using(hub, "find", seen)
    async with hub:
        await hub.ask("clerk", user="u-1", input={"key": "x"})
    assert seen[-1] == f"x {PHONE}"


async def test_a_password_that_only_its_name_gave_away_does_not_come_back(hub: Hub) -> None:
    """No detector finds it by what it is."""
    seen: list[Any] = []
    secret = "correct7horse"

    @hub.tool(sees=["PASSWORD"])
    async def log_in(password: str) -> list[str]:
        assert password == secret
        return [f"Welcome, {password}!", f"<{secret}>"]

    using(hub, "log_in", seen)
    async with hub:
        await hub.ask("clerk", user="u-1", input={"password": secret})
    assert raw_in(seen, secret) == []
    assert str(seen[-1]).count("[PASSWORD:") == 2


@pytest.mark.parametrize("how", ["raises", "refuses", "chains"])
async def test_what_a_tool_says_when_it_fails_holds_tokens(
    hub: Hub, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[Any] = []
    secret = "correct7horse"

    @hub.tool(sees=["EMAIL", "PASSWORD"])
    async def log_in(email: str, password: str) -> None:
        text = f"no {email} with {password}, call {PHONE}"
        if how == "refuses":
            raise RemitError(fault(Code.DELEGATION_FAILED, text, suggestion=text, foreign=text))
        if how == "chains":
            raise ValueError(text) from KeyError(text)
        raise ValueError(text)

    using(hub, "log_in", seen)
    async with hub:
        response = await hub.ask("clerk", user="u-1", input={"email": EMAIL, "password": secret})
        uses = await tool_uses(hub, response.run)
    assert response.fault is not None
    assert "[EMAIL:" in response.fault.message
    places = {"seen": seen, "uses": uses, "fault": response.fault, "log": caplog.text}
    assert {
        place: values for place, content in places.items() if (values := raw_in(content, EMAIL, PHONE, secret))
    } == {}


async def test_a_long_result_is_redacted_as_a_short_one(hub: Hub) -> None:
    seen: list[Any] = []

    @hub.tool(sees=["EMAIL"])
    async def find(email: str) -> list[str]:
        return [f"{number} {email}" for number in range(500)]

    using(hub, "find", seen)
    async with hub:
        response = await hub.ask("clerk", user="u-1", input={"email": EMAIL})
    assert response.result == [f"{number} {EMAIL}" for number in range(500)]
    assert len(seen[-1]) == 500
    assert raw_in(seen) == []


async def test_what_cannot_be_redacted_is_not_given(
    make_hub: Callable[..., Hub], caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(text: str) -> Iterable[Finding]:
        if "Ada" in text:
            raise ValueError(text)
        return ()

    hub = make_hub(redaction=detector_pipeline(extra=[breaks]))
    seen: list[Any] = []

    @hub.tool(sees=["EMAIL"])
    async def find(email: str) -> str:
        return f"Ada is {email}"

    using(hub, "find", seen)
    async with hub:
        response = await hub.ask("clerk", user="u-1", input={"email": EMAIL})
    assert response.fault is not None
    assert "could not be redacted (ValueError)" in response.fault.message
    assert raw_in([seen, caplog.text]) == []


# ── after a restart ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_after_a_restart_the_tools_answer_comes_from_the_journal_as_tokens(tmp_path: Path) -> None:
    given: list[str] = []
    seen: list[Any] = []
    stuck = asyncio.Event()

    def made(*, ends: bool) -> Hub:
        hub = Hub(store=tmp_path / "hub.db", durability="process")

        @hub.tool(sees=["EMAIL"])
        async def find(email: str) -> dict[str, str]:
            given.append(email)
            return {"email": email, "phone": PHONE}

        @hub.agent("clerk", tools=["find"], resumable=True)
        async def clerk(brief: Brief) -> Any:
            seen.append(await brief.use("find", email=brief.text))
            if not ends:
                stuck.set()
                await asyncio.Event().wait()
            return seen[-1]

        return hub

    async with asyncio.timeout(PATIENCE):
        async with made(ends=False) as first:
            asking = asyncio.create_task(first.ask("clerk", EMAIL, user="u-1", request_id="1"))
            await stuck.wait()
        await asyncio.wait({asking})
        async with made(ends=True) as second:
            response = await second.ask("clerk", EMAIL, user="u-1", request_id="1")
            uses = await tool_uses(second, response.run)
    assert response.result == {"email": EMAIL, "phone": PHONE}
    assert given == [EMAIL]
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert raw_in([seen, uses]) == []
    assert [(use.begun, use.replayed, use.revealed) for use in uses] == [
        (True, False, ("EMAIL",)),
        (False, False, ("EMAIL",)),
        (False, True, ()),
    ]


# ── by other ways ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_in_a_process_of_its_own_sees_tokens_only(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(TESTS), *sys.path])
    from isolated_agents import find_by_email  # found by its process under that name

    given: list[str] = []

    @hub.tool(sees=["EMAIL"])
    async def find(email: str) -> dict[str, str]:
        given.append(email)
        return {"email": email, "phone": PHONE}

    hub.add("clerk", find_by_email, tools=["find"], isolation="process")
    async with asyncio.timeout(PATIENCE), hub:
        response = await hub.ask("clerk", EMAIL, user="u-1")
    assert response.ok, response.fault
    assert given == [EMAIL]
    # With the brackets of its tokens changed, nothing of it is restored for the user: it is what the process saw.
    assert raw_in(response.result) == []
    assert "<EMAIL:" in str(response.result)
    assert "<PHONE:" in str(response.result)


async def test_a_plain_function_in_a_thread_sees_tokens_only(hub: Hub) -> None:
    seen: list[Any] = []

    @hub.tool(sees=["EMAIL"])
    def find(email: str) -> str:
        assert email == EMAIL
        return f"{email} {PHONE}"

    @hub.agent("clerk", tools=["find"])
    def clerk(brief: Brief) -> None:
        seen.append(brief.wait(brief.use("find", email=brief.text)))

    async with hub:
        await hub.ask("clerk", EMAIL, user="u-1")
    assert seen
    assert raw_in(seen) == []


@pytest.mark.parametrize("sees", [["EMAIL"], {"shout": ["EMAIL"]}, {"shout": {"text": ["EMAIL"]}}])
async def test_a_tool_of_an_mcp_server_may_see_as_the_team_says(
    hub: Hub, caplog: pytest.LogCaptureFixture, sees: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[Any] = []
    add_mcp(hub, "shed", sys.executable, [str(TESTS / "quick_shed.py")], allow=["shout", "fail"], sees=sees)
    using(hub, "shed.shout", seen)

    @hub.agent("fails", tools=["shed.fail"])
    async def fails(brief: Brief) -> None:
        try:
            await brief.use("shed.fail", why=brief.text)
        except RemitError as error:
            seen.append(error.fault)

    async with asyncio.timeout(PATIENCE), hub:
        response = await hub.ask("clerk", user="u-1", input={"text": f"hello {EMAIL}"})
        uses = await tool_uses(hub, response.run)
        await hub.ask("fails", EMAIL, user="u-1")
    assert response.result == f"HELLO {EMAIL.upper()}"
    assert raw_in([seen, uses]) == []
    assert raw_in(caplog.text) == []
    assert uses[-1].revealed == ("EMAIL",)


async def test_of_an_mcp_server_only_the_tools_that_are_named_see(hub: Hub) -> None:
    add_mcp(
        hub, "shed", sys.executable, [str(TESTS / "quick_shed.py")], allow=["shout", "fail"], sees={"fail": ["EMAIL"]}
    )
    using(hub, "shed.shout", [])
    async with asyncio.timeout(PATIENCE), hub:
        response = await hub.ask("clerk", user="u-1", input={"text": EMAIL})
        uses = await tool_uses(hub, response.run)
    assert [use.revealed for use in uses] == [(), ()]
    assert str(response.result).startswith("[EMAIL:")


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sees", "why"),
    [
        ("EMAIL", "sees takes several kinds, not one text"),
        ({"email": "EMAIL"}, "sees.email takes several kinds, not one text"),
        (["e-mail"], "names `e-mail`, which is not a kind of data"),
        ({"mail": ["EMAIL"]}, "sees names `mail`, which is not one of its parameters; did you mean `email`"),
    ],
)
def test_a_wrong_sees_is_refused_with_what_to_do(hub: Hub, sees: Any, why: str) -> None:
    with pytest.raises(RemitError) as refused:

        @hub.tool(sees=sees)
        async def find(email: str) -> None: ...

    assert "tool `find`" in refused.value.fault.message
    assert why in refused.value.fault.message


def test_sees_of_an_mcp_server_names_only_tools_that_are_let_in(hub: Hub) -> None:
    with pytest.raises(RemitError, match="sees names `finde`, which is not in allow"):
        add_mcp(hub, "notes", "true", allow=["find"], sees={"finde": ["EMAIL"]})


# ── what is said of tokens where values are needed ────────────────────────────────────────────────────────────────────


async def test_a_tool_that_gets_a_token_in_the_place_of_an_address_is_named_in_the_response(hub: Hub) -> None:
    @hub.tool("crm.find")
    async def find(customer: dict[str, str], phone: str) -> str:
        return "nobody"

    using(hub, "crm.find", [])

    @hub.agent("boss", may_call=["clerk"])
    async def boss(brief: Brief) -> Any:
        return (await brief.delegate("clerk", input=brief.input)).result

    async with hub:
        response = await hub.ask("boss", user="u-1", input={"customer": {"email": EMAIL}, "phone": "none"})
        [notice] = await notices(hub, response.run)
    assert response.result == "nobody"
    [warning] = response.warnings
    assert warning == "Personal data was withheld from a part of the work, so its result may be incomplete."
    assert notice.agent == "clerk"
    assert "tool crm.find got a token in the place of a value in `customer.email`" in notice.text
    assert 'tools."crm.find".sees = ["EMAIL"]' in notice.text


async def notices(hub: Hub, run: str) -> list[Notice]:
    await hub.store.flush()
    return [each.body for each in await hub.store.records(run=run) if isinstance(each.body, Notice)]


async def test_a_tool_that_refuses_a_token_by_its_schema_is_named_as_well(hub: Hub) -> None:
    @hub.tool()
    async def find(contact: str) -> str:
        return "nobody"

    schema = {"type": "object", "properties": {"contact": {"type": "string", "format": "email", "maxLength": 5}}}
    tool = hub._parts.registry.tools["find"].card  # pyright: ignore[reportPrivateUsage]
    hub.describe_tool(type(tool)(name="find", input_schema=schema))
    using(hub, "find", [])
    async with hub:
        response = await hub.ask("clerk", user="u-1", input={"contact": EMAIL})
        [notice] = await notices(hub, response.run)
    assert response.fault is not None
    assert response.fault.code is Code.INPUT_VALIDATION_FAILED
    assert "in `contact`" in notice.text
    assert 'tools.find.sees = ["EMAIL"]' in notice.text


async def test_of_an_mcp_tool_the_warning_names_the_servers_key(hub: Hub) -> None:
    add_mcp(hub, "crm", sys.executable, [str(TESTS / "quick_shed.py")], allow=["call_back"])
    using(hub, "crm.call_back", [])
    async with asyncio.timeout(PATIENCE), hub:
        response = await hub.ask("clerk", user="u-1", input={"phone": PHONE})
        [notice] = await notices(hub, response.run)
    assert 'mcp.crm.sees.call_back = ["PHONE"]' in notice.text


async def test_nothing_is_said_where_a_token_does_no_harm(hub: Hub) -> None:
    """In a free text, in a field of another name, made up, or where the tool sees it."""

    @hub.tool(sees={"email": ["EMAIL"]})
    async def send(email: str, text: str, subject: str) -> None: ...

    using(hub, "send", [])
    async with hub:
        arguments = {"email": EMAIL, "text": f"Call {PHONE}", "subject": PHONE}
        response = await hub.ask("clerk", user="u-1", input=arguments)
    assert response.ok, response.fault
    assert response.warnings == ()


async def test_a_capability_that_gets_a_token_for_an_address_is_named_unless_somebody_can_use_it(hub: Hub) -> None:
    @hub.tool(sees=["EMAIL"])
    async def find(email: str) -> str:
        return email

    @hub.agent("knows", capabilities=["FIND"], tools=["find"])
    async def knows(brief: Brief) -> Any:
        return await brief.use("find", email=cast("dict[str, Any]", brief.input)["email"])

    @hub.agent("asks", capabilities=["HAVE_FOUND"], may_call=["knows"])
    async def asks(brief: Brief) -> None: ...

    @hub.agent("blind", capabilities=["SEARCH"])
    async def blind(brief: Brief) -> str:
        return "nobody"

    @hub.agent("sees", capabilities=[Capability(code="SEND", sees=frozenset({"EMAIL"}))])
    async def sees(brief: Brief) -> None: ...

    async with hub:
        fields: dict[str, Any] = {"user": "u-1", "input": {"email": EMAIL}}
        fine = [
            await hub.ask("knows", capability="FIND", **fields),
            await hub.ask("asks", capability="HAVE_FOUND", **fields),
            await hub.ask("sees", capability="SEND", **fields),
        ]
        warned = await hub.ask("blind", capability="SEARCH", **fields)
        warnings = await notices(hub, warned.run)
    assert fine[0].result == EMAIL
    assert [each.warnings for each in fine] == [(), (), ()]
    assert warned.warnings == ("Personal data was withheld from a part of the work, so its result may be incomplete.",)
    assert "capability SEARCH got a token in the place of a value in `email`" in warnings[0].text
    assert 'capabilities.SEARCH.sees = ["EMAIL"]' in warnings[0].text


def test_what_is_said_of_tools_can_be_written_as_json(hub: Hub) -> None:
    @hub.tool(sees={"email": ["EMAIL"]})
    async def find(email: str) -> None: ...

    card = hub._parts.registry.tools["find"].card  # pyright: ignore[reportPrivateUsage]
    assert json.loads(encode(card))["sees"] == {"email": ["EMAIL"]}
