"""MCP servers as tools: what agents get from them, and what servers that die or lie can do."""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shed_tools
from checkout import TESTS
from commands import forked_command, popen
from programs import is_alive
from remit import Brief, File, Hub, RemitError
from remit.agents.piped_process import LineSplitter, OverlongLine
from remit.agents.program import Program
from remit.protocol.card import ToolCard
from remit.protocol.errors import Code
from remit.protocol.records import Kind, ToolUse
from remit_models.mcp import add_mcp
from remit_models.mcp import server as module
from remit_models.mcp import streams as pipes
from remit_models.mcp.server import McpServer
from remit_models.mcp.settings import Settings, hub_name
from remit_models.toolbox import offers
from remit_testing.memory import MemoryStore
from waiting import PATIENCE_S, eventually

# The same tools twice: on the SDK, and on nothing, which starts in a fiftieth of the time.
SHED, QUICK_SHED = (str(TESTS / name) for name in ("toolshed.py", "quick_shed.py"))
LIAR = str(Path(__file__).parents[1] / "liar.py")


@pytest.fixture
def hub() -> Hub:
    return Hub(store=MemoryStore())


def add_shed(hub: Hub, *allow: str, program: str = QUICK_SHED, **options: Any) -> None:
    # The server with the SDK takes a second of CPU to start; the other one imports next to nothing.
    command = forked_command(Path(program)) if program == SHED else [sys.executable, program]
    add_mcp(hub, "shed", command[0], command[1:], allow=allow, **options)


def worker(hub: Hub, *tools: str) -> None:
    """Add an agent that uses the tools that it is told to, one after another, and says what came of each."""

    @hub.agent("worker", tools=tools, resumable=True)
    async def work(brief: Brief) -> list[Any]:
        results: list[Any] = []
        for tool, arguments in cast("list[Any]", brief.input):
            try:
                results.append(await brief.use(tool, **arguments))
            except RemitError as error:
                results.append([str(error.fault.code), error.fault.message])
        return results

    assert work


async def used(hub: Hub, *uses: tuple[str, dict[str, Any]], **options: Any) -> list[Any]:
    response = await hub.ask("worker", "x", user="u", input=[list(each) for each in uses], **options)
    return cast("list[Any]", response.unwrap())


async def there(file: Path) -> str:
    return await eventually(lambda: file.read_text() if file.exists() else "")


async def listening(port: int) -> None:
    def answers() -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0

    await eventually(answers)


async def gone(pid: int) -> None:
    await eventually(lambda: not is_alive(pid))


# ── a server that is what it says ─────────────────────────────────────────────────────────────────────────────────────


async def test_agents_use_the_tools_of_a_server(hub: Hub) -> None:
    add_shed(hub, "add", "shout", "picture", program=SHED)
    worker(hub, "shed.add", "shed.shout", "shed.picture")
    async with hub:
        results = await used(
            hub,
            ("shed.add", {"a": 1, "b": 2}),
            ("shed.shout", {"text": "hello"}),
            ("shed.picture", {}),
            ("shed.add", {"a": "one"}),
        )
    assert results[:3] == [3, "HELLO", "see\n[image/png, which cannot be shown here]"]
    assert results[3][0] == Code.INPUT_VALIDATION_FAILED


async def test_pictures_and_other_data_are_files_where_the_team_says_so(hub: Hub) -> None:
    add_shed(hub, "album", "shout", program=SHED, files=True)
    worker(hub, "shed.album", "shed.shout")
    async with hub:
        album, shout = await used(hub, ("shed.album", {}), ("shed.shout", {"text": "hello"}))
    assert album["content"].splitlines() == [
        "see",
        "[file-1.png]",
        "[image/png, which cannot be shown here]",
        "[page one.pdf]",
        "notes",
        "[c.html]",
    ]
    assert [File.of(each) for each in album["files"]] == [
        File(name="file-1.png", media_type="image/png", data=b"\x00\x00\x00"),
        File(name="page one.pdf", media_type="application/pdf", data=b"hi"),
        File(name="c.html", media_type="text/html", url="https://example.org/c.html"),
    ]
    assert shout == {"content": "HELLO", "files": []}, "the form is the same without files"


async def test_a_tool_that_sees_raw_values_brings_no_files(hub: Hub) -> None:
    add_shed(hub, "picture", program=SHED, files=True, sees=["EMAIL"])
    worker(hub, "shed.picture")
    async with hub:
        assert await used(hub, ("shed.picture", {})) == ["see\n[image/png, which cannot be shown here]"]


async def test_a_model_is_offered_what_is_let_in_with_its_schema_and_whose_words_it_reads(hub: Hub) -> None:
    add_shed(hub, "add", "shout")
    seen: list[tuple[str, str, Any]] = []

    @hub.agent("model", tools=["shed.add"])
    async def model(brief: Brief) -> str:
        seen.extend((offer.name, offer.description, offer.schema["required"]) for offer in offers(brief))
        return await offers(brief)[0].call({"a": 20, "b": 22})

    assert model
    async with hub:
        response = await hub.ask("model", "x", user="u")
    assert response.result == "42"
    assert seen == [("shed_add", "[MCP server shed] Add two numbers.", ["a", "b"])]


async def test_the_server_without_the_sdk_is_met_as_the_one_with_it(tmp_path: Path) -> None:
    tools = [each.__name__ for each in shed_tools.PLAIN]
    uses: list[tuple[str, dict[str, Any]]] = [
        ("add", {"a": 1, "b": 2}),
        ("shout", {"text": "hello"}),
        ("call_back", {"phone": "1"}),
        ("count", {}),
        ("fail", {"why": "x"}),
        ("huge", {"size": 3}),
        ("complain", {"size": 3}),
    ]
    met: list[Any] = []
    for program in (SHED, QUICK_SHED):
        hub = Hub(store=MemoryStore())
        starts = tmp_path / Path(program).name
        add_shed(hub, *tools, "wait", program=program, env={"SHED_STARTS": str(starts)})
        names = [f"shed.{tool}" for tool in (*tools, "wait")]
        worker(hub, *names)
        async with hub:
            results = await used(hub, *((f"shed.{tool}", arguments) for tool, arguments in uses))
            cards = [hub._parts.registry.tools[name].card for name in names]  # pyright: ignore[reportPrivateUsage]
            schemas: list[Any] = [each.input_schema for each in cards]
        takes = [{name: each["type"] for name, each in schema["properties"].items()} for schema in schemas]
        required = [schema.get("required", []) for schema in schemas]
        met.append((results, [each.description for each in cards], takes, required))
    assert met[0] == met[1]


async def test_a_tool_that_is_not_let_in_or_not_in_the_remit_cannot_be_used(hub: Hub) -> None:
    add_shed(hub, "add", "shout")
    worker(hub, "shed.add", "shed.shout")
    async with hub:
        results = await used(hub, ("shed.environment", {}), ("shed.shout", {"text": "x"}), tools=["shed.add"])
    assert [code for code, _ in results] == [Code.TOOL_NOT_ALLOWED, Code.TOOL_NOT_ALLOWED]


def test_a_team_cannot_name_a_tool_that_is_not_let_in(hub: Hub) -> None:
    add_shed(hub, "add")
    worker(hub, "shed.environment")
    with pytest.raises(RemitError, match=r"there is no tool `shed\.environment`"):
        asyncio.run(hub.__aenter__())


async def test_a_server_is_started_with_the_first_request_that_may_need_it_and_once(hub: Hub, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    add_shed(hub, "count", env={"SHED_STARTS": str(starts)})
    worker(hub, "shed.count")

    @hub.agent("idle")
    async def idle(brief: Brief) -> str:
        return "fine"

    assert idle
    async with hub:
        await hub.ask("idle", "x", user="u")
        assert not starts.exists()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(used(hub, ("shed.count", {}))) for _ in range(5)]
    assert [task.result() for task in tasks] == [[{"starts": 1}]] * 5


async def test_a_server_gets_the_environment_it_is_given_and_none_of_the_hubs_secrets(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the hub's own")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret@proxy")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    add_shed(hub, "environment", env={"SHED_TOKEN": "for the shed"})
    worker(hub, "shed.environment")
    async with hub:
        ((variables),) = await used(hub, ("shed.environment", {}))
    assert variables["SHED_TOKEN"] == "for the shed"
    assert variables["TZ"] == "Europe/Berlin"
    assert not {"OPENAI_API_KEY", "HTTPS_PROXY"} & variables.keys()
    assert {"PATH", "HOME"} <= variables.keys()


async def test_what_a_tool_says_of_its_failure_is_redacted_in_the_record(hub: Hub) -> None:
    iban = "DE89370400440532013000"
    settings = liar("refusing")
    add_mcp(hub, "liar", settings.command, settings.args, allow=["echo"])
    add_shed(hub, "shout")
    worker(hub, "shed.shout", "liar.echo")
    async with hub:
        await used(hub, ("shed.shout", {"text": iban}), ("liar.echo", {"text": iban}))
        records = await hub.store.records()
    uses = [record.body for record in records if record.kind is Kind.TOOL]
    assert [each.tool for each in uses if isinstance(each, ToolUse) and not each.begun] == ["shed.shout", "liar.echo"]
    assert iban not in repr(uses)


async def test_output_is_cut_at_what_an_agent_may_be_given(hub: Hub) -> None:
    add_shed(hub, "huge", max_output=1_000)
    worker(hub, "shed.huge")
    async with hub:
        ((text),) = await used(hub, ("shed.huge", {"size": 5_000}))
    assert text == "x" * 1_000 + "\n… (cut off: it had 5000 characters)"


async def test_an_answer_too_long_to_be_read_fails_that_call_and_no_other(hub: Hub) -> None:
    add_shed(hub, "huge", "shout", "complain")
    worker(hub, "shed.huge", "shed.shout", "shed.complain")
    async with hub:
        results = await used(
            hub,
            ("shed.huge", {"size": 5_000_000}),
            ("shed.complain", {"size": 3_000_000}),
            ("shed.shout", {"text": "x"}),
        )
    assert results[0][0] == Code.RESULT_VALIDATION_FAILED
    assert results[1:] == ["said", "X"]


async def test_tools_that_change_are_held_and_new_ones_stay_out(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    add_shed(hub, "grow", "shout", program=SHED)
    worker(hub, "shed.grow", "shed.shout")
    seen: list[dict[str, ToolCard]] = []

    @hub.agent("looker", tools=["shed.shout"])
    async def look(brief: Brief) -> None:
        seen.append({card.name: card for card in brief.tool_cards})

    assert look
    async with hub:
        await hub.ask("looker", "x", user="u")
        (grown,) = await used(hub, ("shed.grow", {}))
        async with asyncio.timeout(PATIENCE_S):
            while seen[-1] == seen[0]:  # that it has changed need not be heard before the answer
                await hub.ask("looker", "y", user="u")
        (shouted,) = await used(hub, ("shed.shout", {"text": "x"}))
        names = set(hub._parts.registry.tools)  # pyright: ignore[reportPrivateUsage]
    assert grown == "grown"
    assert shouted[0] == Code.TOOL_NOT_ALLOWED
    assert shouted[1] == "MCP server shed has changed its tool shout; it is held until somebody agrees"
    assert [each["shed.shout"].description for each in (seen[0], seen[-1])] == [
        "[MCP server shed] Say it louder.",
        "[MCP server shed] The server has changed this tool; it cannot be used until a person agrees.",
    ]
    assert names == {"shed.grow", "shed.shout"}
    assert "MCP server shed has changed its tool shout" in caplog.text


async def test_a_server_over_http_is_used_alike(hub: Hub) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with popen([sys.executable, SHED, "http", str(port)], stdout=DEVNULL, stderr=DEVNULL) as process:
        try:
            await listening(port)
            add_mcp(
                hub, "far", url=f"http://127.0.0.1:{port}/mcp", allow=["add", "huge"], safe_to_repeat=["add"], token="t"
            )
            worker(hub, "far.add", "far.huge")
            async with hub:
                results = await used(hub, ("far.add", {"a": 1, "b": 2}), ("far.huge", {"size": 5_000_000}))
                assert results[0] == 3
                assert results[1][0] == Code.RESULT_VALIDATION_FAILED, results[1]
                assert await used(hub, ("far.add", {"a": 2, "b": 2})) == [4]
                process.kill()
                process.wait()
                ((code, message),) = await used(hub, ("far.add", {"a": 1, "b": 2}))
                assert code in (Code.DELEGATION_FAILED, Code.DELEGATION_UNAVAILABLE), message
        finally:
            process.kill()


async def test_of_a_server_elsewhere_that_cannot_be_reached_the_record_says_where_it_should_be(hub: Hub) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/mcp"
    add_mcp(hub, "far", url=url, allow=["add"])
    worker(hub, "far.add")
    async with hub:
        ((code, message),) = await used(hub, ("far.add", {"a": 1, "b": 2}))
        bodies = [each.body for each in await hub.store.records()]
    (use,) = [each for each in bodies if isinstance(each, ToolUse) and not each.begun]
    assert (code, message) == (Code.DELEGATION_UNAVAILABLE, "MCP server far cannot be reached")
    assert use.fault is not None
    assert use.fault.detail.startswith(f"{url}: ")


# ── a server that dies ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_server_that_is_killed_in_the_middle_is_started_again(hub: Hub, tmp_path: Path) -> None:
    starts, waits = tmp_path / "starts", tmp_path / "waits"
    add_shed(hub, "wait", "add", "count", env={"SHED_STARTS": str(starts)}, safe_to_repeat=["add"])
    worker(hub, "shed.wait", "shed.add", "shed.count")
    async with hub:
        call = asyncio.create_task(
            used(hub, ("shed.wait", {"file": str(waits)}), ("shed.add", {"a": 1, "b": 2}), ("shed.count", {}))
        )
        os.kill(int(await there(waits)), signal.SIGKILL)
        interrupted, added, counted = await asyncio.wait_for(call, PATIENCE_S)
    assert interrupted[0] == Code.OUTCOME_UNKNOWN
    assert "its process ended (signal 9); it is not known whether it took effect" in interrupted[1]
    assert (added, counted) == (3, {"starts": 2})


async def test_a_cancelled_agent_does_not_wait_for_its_tool(hub: Hub, tmp_path: Path) -> None:
    waits = tmp_path / "waits"
    add_shed(hub, "wait", "add")
    worker(hub, "shed.wait", "shed.add")
    async with hub:
        call = asyncio.create_task(hub.ask("worker", "x", user="u", input=[["shed.wait", {"file": str(waits)}]]))
        pid = int(await there(waits))
        (run,) = [each.run for each in await hub.store.runs()]
        hub.cancel(run)
        assert (await asyncio.wait_for(call, PATIENCE_S)).status == "cancelled"
        assert is_alive(pid), "others may still be using it"
        assert await used(hub, ("shed.add", {"a": 1, "b": 2})) == [3]


async def test_with_the_hub_a_server_ends_and_all_that_it_started(hub: Hub, tmp_path: Path) -> None:
    noted = tmp_path / "child"
    add_shed(hub, "spawn")
    worker(hub, "shed.spawn")
    async with hub:
        await used(hub, ("shed.spawn", {"file": str(noted)}))
        child = int(noted.read_text())
        assert is_alive(child)
    await gone(child)


async def test_a_hub_can_be_opened_again(hub: Hub) -> None:
    add_shed(hub, "add")
    worker(hub, "shed.add")
    for _ in range(2):
        async with hub:
            assert await used(hub, ("shed.add", {"a": 1, "b": 2})) == [3]


# ── a server that lies ────────────────────────────────────────────────────────────────────────────────────────────────


def liar(how: str) -> Program:
    return Program(command=sys.executable, args=(LIAR, how))


class Watched:
    """A server under a clock that tests turn, and what the hub would be told of its tools."""

    def __init__(self, how: str, **settings: Any) -> None:
        self.cards: dict[str, ToolCard] = {}
        self.time = 1_000.0
        self.server = McpServer(
            Settings(name="liar", reach=liar(how), allow=("echo",), **settings),
            lambda card: self.cards.update({card.name: card}),
            now=lambda: self.time,
        )

    async def echo(self, text: str = "hello") -> Any:
        return await asyncio.wait_for(self.server.use("liar.echo", {"text": text}), PATIENCE_S)

    async def fault(self, text: str = "hello") -> tuple[str, str]:
        with pytest.raises(RemitError) as caught:
            await self.echo(text)
        return str(caught.value.fault.code), caught.value.fault.message


@asynccontextmanager
async def lying(how: str, **settings: Any) -> AsyncGenerator[Watched]:
    watched = Watched(how, **settings)
    try:
        yield watched
    finally:
        await asyncio.wait_for(watched.server.close(), PATIENCE_S)


@pytest.mark.parametrize(
    "how", ["garbage", "chatty", "twice", "endless", "hidden", "outside", "bottomless", "unsound", "bomb", "circular"]
)
async def test_who_says_too_much_is_heard_for_what_matters(how: str) -> None:
    async with lying(how) as watched:
        assert await watched.echo("hello") == "hello"
        assert set(watched.cards) == {"liar.echo"}


async def test_the_first_tool_of_a_name_counts() -> None:
    async with lying("twice") as watched:
        await watched.server.ready()
        assert watched.cards["liar.echo"].description == "[MCP server liar] Says it again."


async def test_a_description_shows_all_that_it_says_and_not_too_much() -> None:
    async with lying("hidden") as watched:
        await watched.server.ready()
        description = watched.cards["liar.echo"].description
    assert description.startswith("[MCP server liar] Nice.[2Jxxx")
    assert len(description) < 1_100
    assert description.isprintable()


@pytest.mark.parametrize("how", ["outside", "bottomless", "unsound", "bomb", "circular"])
async def test_a_schema_that_leads_elsewhere_or_nowhere_is_left_out(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async with lying(how) as watched:
        await watched.server.ready()
        assert watched.cards["liar.echo"].input_schema == {"type": "object"}
    assert "the schema of liar.echo is not used" in caplog.text


@pytest.mark.parametrize("how", ["types", "none"])
async def test_an_answer_of_the_wrong_form_is_none(how: str) -> None:
    async with lying(how) as watched:
        assert (await watched.fault())[0] == Code.RESULT_VALIDATION_FAILED


async def test_more_data_than_is_taken_is_an_error() -> None:
    async with lying("wide") as watched:
        assert (await watched.fault())[0] == Code.RESULT_VALIDATION_FAILED


async def test_a_refusal_is_told_without_what_would_steer_a_terminal() -> None:
    async with lying("refusing") as watched:
        code, message = await watched.fault()
    assert code == Code.DELEGATION_FAILED
    assert message.startswith("liar.echo was refused by its server: no[2J way yyy")
    assert len(message) < 600


async def test_a_server_gets_nothing_that_it_asks_for() -> None:
    async with lying("asking") as watched:
        assert await watched.echo() == "refused refused refused"


@pytest.mark.parametrize("how", ["unlisted", "misshapen", "abyss"])
async def test_a_server_whose_tools_cannot_be_told_is_out_of_reach(how: str) -> None:
    async with lying(how) as watched:
        code, message = await watched.fault()
        assert code == Code.DELEGATION_UNAVAILABLE
        assert message == "MCP server liar cannot be reached"
        assert watched.cards["liar.echo"].description.endswith("The server cannot be reached now.")


async def test_a_server_that_does_not_greet_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_S", 0.2)
    async with lying("silent") as watched:
        with pytest.raises(RemitError) as caught:
            await watched.echo()
        assert "it had not greeted" in caught.value.fault.detail
        await watched.server.ready()  # says so in the log, and lets the agent begin


@pytest.mark.parametrize("how", ["flooding", "spamming", "closing"])
async def test_a_server_that_only_makes_noise_is_ended_and_started_again(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "MAX_SKIPPED", 2 * pipes.MAX_LINE)  # a flood of 256 MB takes seconds
    async with lying(how) as watched:
        code, message = await watched.fault()
        assert code == Code.OUTCOME_UNKNOWN, message
        assert (await watched.fault())[0] == Code.OUTCOME_UNKNOWN, "the second start is at once"


async def test_nothing_more_is_read_of_a_server_that_is_given_up() -> None:
    noise = "while True: print('nothing', flush=True)"
    reading = pipes.Pipes(Program(command=sys.executable, args=("-c", noise)))
    async with reading as (receive_stream, send_stream), receive_stream, send_stream:
        process = reading._process  # pyright: ignore[reportPrivateUsage]
        assert process is not None
        await eventually(process.tasks[0].done)
        gc.collect()
        (transport, _) = process._transports  # pyright: ignore[reportPrivateUsage]
        await eventually(lambda: not cast("asyncio.ReadTransport", transport).is_reading())


async def test_a_server_that_keeps_failing_is_left_alone_for_longer_and_longer() -> None:
    async with lying("closing") as watched:
        for pause_s in (0, *module.PAUSES_S[:5]):
            watched.time += pause_s
            assert (await watched.fault())[0] == Code.OUTCOME_UNKNOWN
        with pytest.raises(RemitError) as caught:
            await watched.echo()
    assert caught.value.fault.code == Code.DELEGATION_UNAVAILABLE
    assert caught.value.fault.retry_after_ms == 16_000


async def test_a_server_that_is_always_late_is_started_anew() -> None:
    async with lying("late", time_s=0.05) as watched:
        for _ in range(module.MAX_LATE):
            code, message = await watched.fault()
            assert code == Code.OUTCOME_UNKNOWN
            assert "did not answer within 0.05 s" in message
        assert watched.server._link is None  # pyright: ignore[reportPrivateUsage]
    async with lying("late", time_s=0.05, safe_to_repeat=frozenset({"echo"})) as watched:
        assert (await watched.fault())[0] == Code.DELEGATION_FAILED, "what is safe to repeat has no unknown outcome"


async def test_a_server_that_will_not_go_is_killed() -> None:
    async with lying("stubborn") as watched:
        await watched.echo()
        link = watched.server._link  # pyright: ignore[reportPrivateUsage]
        assert link is not None
        pid = link._pipes._process.pid  # pyright: ignore
    assert not is_alive(pid)


async def test_a_server_that_is_not_there_is_said_to_be_so() -> None:
    server = McpServer(
        Settings(name="none", reach=Program(command="/nowhere/at/all"), allow=("echo",)), lambda card: None
    )
    with pytest.raises(RemitError, match="it cannot be started: No such file or directory"):
        await server.use("none.echo", {})
    await server.close()


# ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"allow": ["x"]}, "needs `command`, which starts it, or `url`"),
        ({"command": "x", "url": "http://x", "allow": ["x"]}, "needs `command`, which starts it, or `url`"),
        ({"url": "http://x", "args": ["x"], "allow": ["x"]}, "args, env and folder are for one that has a `command`"),
        ({"command": "x", "token": "t", "allow": ["x"]}, "a token is for one that has a `url`"),
        ({"command": "x", "args": "-v", "allow": ["x"]}, "args takes several texts"),
        ({"command": "x", "allow": "x"}, "allow takes several names"),
        ({"command": "x", "allow": []}, "allow names no tool"),
        ({"command": "x", "allow": ["a"], "safe_to_repeat": ["b"]}, "safe_to_repeat names `b`, which is not in allow"),
        ({"command": "x", "allow": ["a b", "a/b"]}, "`a b` and `a/b` would both be `s.a_b`"),
        ({"command": "x", "allow": ["x" * 200]}, "cannot be a tool's name"),
        ({"command": "x", "allow": ["a"], "prefix": "-"}, "`-.a` cannot be a tool's name"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused(hub: Hub, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RemitError, match="MCP server `s`") as caught:
        add_mcp(hub, "s", **options)
    assert message in caught.value.fault.message


def test_tools_are_named_after_their_server_or_as_is_said(hub: Hub) -> None:
    add_mcp(hub, "one", "x", allow=["read_file", "a/b"])
    add_mcp(hub, "two", "x", allow=["read_file"], prefix="")
    add_mcp(hub, "three", "x", allow=["read_file"], prefix="files")
    names = set(hub._parts.registry.tools)  # pyright: ignore[reportPrivateUsage]
    assert names == {"one.read_file", "one.a_b", "read_file", "files.read_file"}
    with pytest.raises(RemitError, match="there are two tools named `read_file`"):
        add_mcp(hub, "four", "x", allow=["read_file"], prefix="")


@given(st.text(max_size=50))
def test_a_name_in_the_hub_holds_nothing_that_would_need_quoting(tool: str) -> None:
    assert all(letter.isascii() and (letter.isalnum() or letter in "_.-") for letter in hub_name("s", tool))


def test_secrets_show_in_no_traceback() -> None:
    program = Program(command="x", env={"TOKEN": "the secret"})
    assert "the secret" not in repr(Settings(name="s", reach=program, allow=("x",)))


# ── lines ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), st.integers(1, 7))
def test_lines_come_out_as_they_went_in_however_they_are_cut(lines: list[bytes], size: int) -> None:
    stream, splitter = b"".join(line + b"\n" for line in lines), LineSplitter(20)
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    split_lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    assert split_lines == [line for line in lines if line.strip()]


def test_a_line_that_is_too_long_is_passed_over_and_the_next_is_read() -> None:
    splitter = LineSplitter(10)
    split_lines = [
        line for chunk in (b"short\nvery very", b" long indeed", b" so\nnext\n") for line in splitter.feed(chunk)
    ]
    assert split_lines == [b"short", OverlongLine(b"very very long indeed"), b"next"]
