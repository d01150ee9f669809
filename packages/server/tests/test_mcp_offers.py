"""`/mcp` besides its tools: resources, prompts, completion and log messages."""

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from checkout import TESTS
from hosts import ERAS, Person, data, host_at
from remit import Answer, Artifact, Ask, Brief, Capability, Facts, Hub, Request, Verdict
from remit.policy.reception import Sender
from remit.policy.verdict import ALLOW
from remit_models.mcp import add_mcp
from serving import serving
from waiting import PATIENCE_S

ANNA = Sender(name="anna-desk", users=frozenset({"anna"}), may_approve=True)
BOB = Sender(name="bob-desk", users=frozenset({"bob"}), may_approve=True)
MANY = Sender(name="office")
STRICT = Sender(name="strict", users=frozenset({"anna"}), targets=frozenset({"echo"}))
ALL = (ANNA, BOB, MANY, STRICT)

era = pytest.mark.parametrize("era", ERAS)


def asks_before_paying(request: Request, facts: Facts) -> Verdict:
    return Ask("May this be paid?") if request.target == "pay" and not facts.approved else ALLOW


@pytest.fixture
def hub(make_hub: Callable[..., Hub]) -> Hub:
    hub = make_hub(approver="inbox", guards=[asks_before_paying])
    weather = Capability(
        code="FORECAST",
        description="Forecasts the weather.",
        input_schema={"type": "object", "properties": {"town": {"type": "string"}}},
        examples=("Will it rain in Oslo?", "Will it snow?"),
    )

    @hub.agent("echo", description="Says it again.")
    async def echo(brief: Brief) -> str:
        return f"{brief.user}: {brief.objective}"

    @hub.agent("pay")
    async def pay(brief: Brief) -> dict[str, str]:
        return {"paid": brief.objective}

    @hub.agent("oracle", capabilities=[weather], may_call=["echo"])
    async def oracle(brief: Brief) -> object:
        await brief.delegate("nobody", objective="x")
        return (await brief.delegate("echo", objective=brief.objective)).result

    assert {echo, pay, oracle}
    return hub


def content(result: types.ReadResourceResult) -> types.TextResourceContents:
    (found,) = result.contents
    assert isinstance(found, types.TextResourceContents)
    return found


# ── resources ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@era
async def test_a_run_its_answer_and_its_audit_log_are_resources(hub: Hub, era: str) -> None:
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era) as host:
        done = await host.call_tool("delegate_task", {"agent": "echo", "task": "write to ann@example.com"})
        run = data(done)["id"]
        listed = [str(each.uri) for each in (await host.list_resources()).resources]
        found = [content(await host.read_resource(uri)) for uri in listed]
        templates = [each.uri_template for each in (await host.list_resource_templates()).resource_templates]
    assert listed == ["remit://runs", *(f"remit://runs/{run}{part}" for part in ("", "/answer", "/audit"))]
    assert templates == [f"remit://runs/{{run}}{part}" for part in ("", "/answer", "/artifacts/{number}", "/audit")]
    runs, state, answer, audit = found
    assert json.loads(runs.text)["delegations"][0]["id"] == run
    assert json.loads(state.text) == data(done)
    assert (answer.mime_type, answer.text) == ("text/plain", "anna: write to ann@example.com")
    records = [json.loads(line) for line in audit.text.splitlines()]
    assert [each["kind"] for each in records] == ["started", "result"]
    assert "ann@example.com" not in audit.text, "the log is redacted"


@era
async def test_what_is_of_others_or_is_not_there_cannot_be_read(hub: Hub, era: str) -> None:
    async with (
        serving(hub, *ALL) as server,
        host_at(server.address, "anna-desk", era) as anna,
        host_at(server.address, "bob-desk", era) as bob,
        host_at(server.address, "strict", era) as strict,
        host_at(server.address, "office", era) as nobody,
    ):
        run = data(await anna.call_tool("delegate_task", {"agent": "pay", "task": "the rent"}))["id"]
        assert json.loads(content(await anna.read_resource(f"remit://runs/{run}")).text)["state"] == "waiting"
        for host, uri in (
            (bob, f"remit://runs/{run}"),
            (bob, f"remit://runs/{run}/audit"),
            (strict, f"remit://runs/{run}"),
            (anna, f"remit://runs/{run}/answer"),
            (anna, "remit://runs/nothing"),
            (anna, "file:///etc/passwd"),
            (anna, f"remit://runs/{run}/../other"),
        ):
            with pytest.raises(MCPError, match="no such resource") as raised:
                await host.read_resource(uri)
            assert raised.value.code == (-32002 if era == "legacy" else types.INVALID_PARAMS)
        assert [each.name for each in (await bob.list_resources()).resources] == ["runs"]
        with pytest.raises(MCPError, match="X-Remit-User is missing"):
            await nobody.list_resources()


@era
async def test_artifacts_are_shown_beside_the_text_and_can_be_read(hub: Hub, era: str) -> None:
    picture, sound, raw = ({"raw": "AAAA", "mediaType": kind} for kind in ("image/png", "audio/wav", "text/csv"))
    values: list[tuple[Any, Any]] = [
        ("file", picture),
        ("file", sound),
        ("file", raw),
        ("file", {"raw": "no base64", "mediaType": "image/png"}),
        ("url", "https://example.org/rates"),
        ("table", [["rent", 900]]),
    ]

    @hub.agent("painter")
    async def paint(brief: Brief) -> Answer:
        artifacts = tuple(Artifact(type=kind, value=value, label="it") for kind, value in values)
        return Answer(result="see", artifacts=artifacts)

    assert paint
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era) as host:
        done = await host.call_tool("delegate_task", {"agent": "painter", "task": "x"})
        base = f"remit://runs/{data(done)['id']}/artifacts"
        blob = (await host.read_resource(f"{base}/0")).contents[0]
        table = content(await host.read_resource(f"{base}/5"))
        with pytest.raises(MCPError, match="no such resource"):
            await host.read_resource(f"{base}/6")
    said, image, audio, file, broken, link, rows = done.content
    assert isinstance(said, types.TextContent)
    assert isinstance(image, types.ImageContent)
    assert (image.data, image.mime_type) == ("AAAA", "image/png")
    assert isinstance(audio, types.AudioContent)
    assert isinstance(file, types.EmbeddedResource)
    assert file.resource == types.BlobResourceContents(uri=f"{base}/2", mime_type="text/csv", blob="AAAA")
    assert isinstance(broken, types.EmbeddedResource)
    assert broken.resource.mime_type == "application/json"
    assert isinstance(link, types.ResourceLink)
    assert link.uri == "https://example.org/rates"
    assert isinstance(rows, types.EmbeddedResource)
    assert rows.resource == table
    assert table.text == '[["rent",900]]'
    assert isinstance(blob, types.BlobResourceContents)


async def test_a_host_hears_that_a_run_it_subscribed_to_waits_and_has_ended(hub: Hub) -> None:
    updates: asyncio.Queue[str] = asyncio.Queue()

    async def heard(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            updates.put_nowait(str(message.params.uri))

    async with (
        serving(hub, *ALL) as server,
        host_at(server.address, "anna-desk", message_handler=heard) as host,
        host_at(server.address, "bob-desk") as bob,
        asyncio.timeout(PATIENCE_S),
    ):
        run = data(await host.call_tool("delegate_task", {"agent": "pay", "task": "the rent"}))["id"]
        uri, answer = f"remit://runs/{run}", f"remit://runs/{run}/answer"
        for each in (uri, uri, answer):
            assert await subscribed(host, each) == types.EmptyResult()
        stop = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=answer))
        await host.session.send_request(stop, types.EmptyResult)
        with pytest.raises(MCPError, match="no such resource"):
            await subscribed(bob, uri)
        (question,) = await hub.pending()
        await hub.decide(question.id, agreed=True, by="the boss")
        async with asyncio.timeout(PATIENCE_S):  # the answer of the person and the end may be told together
            while json.loads(content(await host.read_resource(uri)).text)["state"] != "finished":
                assert await updates.get() == uri
        assert json.loads(content(await host.read_resource(uri)).text)["status"] == "success"
        assert await subscribed(host, uri) == types.EmptyResult(), "what has ended can be subscribed to, in vain"
    assert {updates.get_nowait() for _ in range(updates.qsize())} <= {uri}


async def subscribed(host: Client, uri: str) -> types.EmptyResult:
    wanted = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
    return await host.session.send_request(wanted, types.EmptyResult)


@era
async def test_what_an_earlier_run_gave_can_be_attached_to_a_prompt(hub: Hub, era: str) -> None:
    @hub.agent("painter")
    async def painter(_: Brief) -> Answer:
        return Answer("see", artifacts=(Artifact(type="file", value={"raw": "AAAA", "mediaType": "image/png"}),))

    assert painter
    async with (
        serving(hub, *ALL) as server,
        host_at(server.address, "anna-desk", era) as anna,
        host_at(server.address, "bob-desk", era) as bob,
    ):
        run = data(await anna.call_tool("delegate_task", {"agent": "painter", "task": "a rose"}))["id"]
        uri = f"remit://runs/{run}/answer"
        told = await anna.get_prompt("echo", {"task": "Say it.", "attach": uri})
        seen = await anna.get_prompt("echo", {"attach": f"remit://runs/{run}/artifacts/0"})
        with pytest.raises(MCPError, match="no such resource"):
            await bob.get_prompt("echo", {"attach": uri})
        ref = types.PromptReference(type="ref/prompt", name="echo")
        known = await anna.complete(ref, {"name": "attach", "value": "remit://"})
    attached, words = (each.content for each in told.messages)
    assert isinstance(attached, types.EmbeddedResource)
    assert isinstance(attached.resource, types.TextResourceContents)
    assert (str(attached.resource.uri), attached.resource.text) == (uri, "see")
    assert isinstance(words, types.TextContent)
    assert uri not in words.text
    assert seen.messages[0].content == types.ImageContent(type="image", data="AAAA", mime_type="image/png")
    assert known.completion.values == [uri]


# ── prompts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@era
async def test_there_is_a_prompt_for_each_agent_and_capability(hub: Hub, era: str) -> None:
    async with (
        serving(hub, *ALL) as server,
        host_at(server.address, "anna-desk", era) as host,
        host_at(server.address, "strict", era) as strict,
    ):
        found = (await host.list_prompts()).prompts
        asked = await host.get_prompt("oracle.FORECAST", {"task": "Rain in Oslo?"})
        open_ = await host.get_prompt("echo")
        any_ = await host.get_prompt("delegate", {"agent": "echo", "task": "hello"})
        hidden = (await strict.list_prompts()).prompts
        for name, given in (("nothing", {}), ("delegate", {"agent": "nobody"}), ("delegate", {})):
            with pytest.raises(MCPError, match="no such"):
                await host.get_prompt(name, given)
        with pytest.raises(MCPError, match="no such prompt"):
            await strict.get_prompt("oracle.FORECAST")
    assert [each.name for each in found] == ["delegate", "echo", "pay", "oracle", "oracle.FORECAST"]
    assert [each.name for each in hidden] == ["delegate", "echo"]
    assert all(each.description for each in found)
    assert words(asked) == (
        "Use the tool delegate_task with agent `oracle` and capability `FORECAST`.\n\nIts `input` must fit this JSON "
        'schema: {"properties":{"town":{"type":"string"}},"type":"object"}\n\nThe task: Rain in Oslo?'
    )
    assert words(open_).endswith("Ask me for the task first, unless it follows from our conversation.")
    assert words(any_) == "Use the tool delegate_task with agent `echo`.\n\nThe task: hello"


def words(result: types.GetPromptResult) -> str:
    (message,) = result.messages
    assert isinstance(message.content, types.TextContent)
    return message.content.text


@era
async def test_arguments_are_completed_with_agents_capabilities_examples_and_runs(hub: Hub, era: str) -> None:
    async with serving(hub, *ALL) as server, host_at(server.address, "anna-desk", era) as host:
        run = data(await host.call_tool("delegate_task", {"agent": "echo", "task": "x"}))["id"]

        async def completed(ref: Any, name: str, value: str, **context: str) -> list[str]:
            found = await host.complete(ref, {"name": name, "value": value}, context_arguments=context or None)
            return list(found.completion.values)

        any_ = types.PromptReference(name="delegate")
        assert await completed(any_, "agent", "E") == ["echo"]
        assert await completed(any_, "agent", "") == ["echo", "pay", "oracle"]
        assert await completed(any_, "capability", "f") == ["FORECAST"]
        assert await completed(any_, "capability", "", agent="echo") == []
        forecast = types.PromptReference(name="oracle.FORECAST")
        assert await completed(forecast, "task", "will it r") == ["Will it rain in Oslo?"]
        assert await completed(types.PromptReference(name="echo"), "task", "") == []
        template = types.ResourceTemplateReference(uri="remit://runs/{run}")
        assert await completed(template, "run", run[:6]) == [run]
        assert await completed(template, "other", "") == []


# ── log messages ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Log:
    """Hears what a server logs."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    async def __call__(self, params: types.LoggingMessageNotificationParams) -> None:
        assert params.logger == "remit"
        self.lines.append((params.level, params.data["message"]))


async def logged(hub: Hub, era: str, agent: str, level: types.LoggingLevel | None) -> list[tuple[str, str]]:
    log, person = Log(), Person("accept")
    options: dict[str, Any] = {"logging_callback": log} | ({} if level is None else {"log_level": level})
    async with (
        serving(hub, *ALL) as server,
        host_at(server.address, "anna-desk", era, person=person, **options) as host,
    ):
        if level is not None and era == "legacy":
            chosen = types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
            await host.session.send_request(chosen, types.EmptyResult)
        await host.call_tool("delegate_task", {"agent": agent, "task": "hello"})
    return log.lines


@era
async def test_a_host_hears_what_happens_in_a_run(hub: Hub, era: str) -> None:
    lines = await logged(hub, era, "oracle", "info")
    assert [each for each in lines if each[0] == "info"] == [
        ("info", "oracle called echo"),
        ("info", "echo ended: success"),
        ("info", "oracle ended: success"),
    ]
    (refused,) = [text for level, text in lines if level == "warning"]
    assert refused.startswith("oracle could not call nobody: ")


@era
async def test_a_host_hears_nothing_below_the_level_that_it_chose(hub: Hub, era: str) -> None:
    assert [level for level, _ in await logged(hub, era, "oracle", "warning")] == ["warning"]
    assert await logged(hub, era, "oracle", "error") == []


async def test_a_host_that_chose_no_level_hears_of_questions_to_a_person_and_not_of_every_step(hub: Hub) -> None:
    assert await logged(hub, "legacy", "pay", None) == [
        ("notice", "a person is asked: May this be paid?"),
        ("notice", "approved by anna: May this be paid?"),
    ]
    assert await logged(hub, "2026-07-28", "pay", None) == [], "there, each request says that it wants to hear them"


# ── the forms of other servers ────────────────────────────────────────────────────────────────────────────────────────


@era
async def test_a_person_at_a_host_fills_in_the_form_of_an_mcp_server(hub: Hub, era: str) -> None:
    server = TESTS / "asking_server.py"
    add_mcp(hub, "desk", sys.executable, [str(server), "modern"], allow=["book"])

    @hub.agent("clerk", tools=["desk.book"])
    async def clerk(brief: Brief) -> object:
        return await brief.use("desk.book")

    assert clerk
    person = Person("accept", name="Bob", seats=3)
    async with serving(hub, *ALL) as served, host_at(served.address, "anna-desk", era, person=person) as host:
        done = await host.call_tool("delegate_task", {"agent": "clerk", "task": "book"})
    assert json.loads(data(done)["result"]) == {"action": "accept", "content": {"name": "Bob", "seats": 3}}
    (form,) = person.forms
    described = {"type": "string", "title": "Name", "description": "Your name", "default": "Ann"}
    assert form["properties"]["name"] == described
    assert form["properties"]["seats"] == {
        "type": "integer",
        "title": "Seats",
        "description": "How many",
        "default": 2,
    }
    assert person.questions[0].startswith("MCP server desk asks: For whom?")
