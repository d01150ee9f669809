"""What plugins bring to a hub, and what a hub says without them."""

import logging
from collections.abc import Generator
from pathlib import Path

import pytest

from plugins import install_plugin, run_python
from remit import Brief, Call, ContextFilter, Hub, RemitError
from remit.installed import as_installed, install_command
from remit.policy.aggregate import Blend
from remit.ports import text_reader
from remit_testing.memory import MemoryStore

PLUGIN = """
import re

class Bot:
    "An agent of a framework that nobody knows."

def agent(value):
    async def answer(brief):
        return f"A bot was told: {brief.text}"
    return answer if isinstance(value, Bot) else None

def detectors():
    from remit import Finding
    return [lambda text: [Finding(*found.span(), "BADGE") for found in re.finditer(r"badge \\d+", text)]]
"""
PROGRAM = """
from remit import Hub
from strange import Bot

hub = Hub()
hub.add("bot", Bot())
hub.add("reader", lambda brief: f"I read the number: {'4711' in brief.text}")
print(hub.ask_sync("bot", "It is badge 4711.", user="u-1").result)
print(hub.ask_sync("reader", "It is badge 4711.", user="u-1").result)
"""


@pytest.mark.processes
def test_a_plugin_brings_agents_and_detectors(tmp_path: Path) -> None:
    install_plugin(tmp_path, "strange", PLUGIN)
    done = run_python(tmp_path, "-c", PROGRAM)
    assert done.stdout == "A bot was told: It is badge 4711.\nI read the number: False\n", done.stderr


@pytest.fixture
def without_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a hub as if nothing were installed beside the core."""

    def nothing(_: str) -> tuple[()]:
        return ()

    monkeypatch.setattr("remit.hub.hub.brought", nothing)
    monkeypatch.setattr("remit.agents.function.brought", nothing)


@pytest.mark.usefixtures("without_plugins")
async def test_a_hub_without_plugins_works_and_says_that_it_redacts_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "remit")
    hub = Hub(store=MemoryStore())

    @hub.agent("echo")
    async def echo(brief: Brief) -> str:
        return brief.text

    assert echo
    async with hub:
        assert (await hub.ask("echo", "hello", user="u-1")).result == "hello"
    assert "no detectors are installed: personal data is not redacted" in caplog.text


@pytest.mark.usefixtures("without_plugins")
def test_an_option_that_no_plugin_knows_is_refused() -> None:
    hub = Hub(store=MemoryStore(), redaction=False)

    def echo(brief: Brief) -> str:
        return brief.text

    with pytest.raises(RemitError, match='no installed plugin knows the option isolation="process"'):
        hub.add("apart", "module:function", isolation="process")
    with pytest.raises(RemitError, match="no installed plugin knows the option route"):
        hub.add("routed", echo, route=True)


# ── no reader of texts ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def no_reader(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setattr(text_reader, "brought", lambda _: ())  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    text_reader.text_reader.cache_clear()
    yield
    text_reader.text_reader.cache_clear()


@pytest.mark.usefixtures("no_reader")
async def test_a_hub_without_a_reader_of_texts_answers_in_conversations(hub: Hub) -> None:
    shown: list[Brief] = []

    @hub.agent("planner", may_call=["coder"])
    async def planner(brief: Brief) -> str:
        wanted = ContextFilter(known="all", include_summary=True)
        return (await brief.delegate("coder", objective="code", context=wanted)).unwrap()

    @hub.agent("coder")
    async def coder(brief: Brief) -> str:
        shown.append(brief)
        return "coded"

    async with hub:
        answers = [await hub.ask("planner", "Stay below 500 euros", user="u", session="s") for _ in range(2)]
        refused = await hub.ask("nobody", "Stay below 500 euros", user="u")
    assert [each.result for each in answers] == ["coded", "coded"]
    assert [each.known for each in shown] == [(), ()]
    assert all(each.request.view is None or not each.request.view.summary for each in shown)
    assert refused.fault is not None


@pytest.mark.usefixtures("no_reader")
async def test_without_a_reader_of_texts_the_text_of_a_model_is_not_used(hub: Hub) -> None:
    async def blend(_: Blend) -> str:
        return "One says 1, the other 2."

    @hub.agent("asker", may_call=["one", "two"])
    async def asker(brief: Brief) -> object:
        combined = await brief.combine(
            [Call(target="one"), Call(target="two")], strategy="ai-blend", about="n", blend=blend
        )
        assert combined.answer is not None
        return combined.answer

    @hub.agent("one")
    async def one(brief: Brief) -> int:
        return 1

    @hub.agent("two")
    async def two(brief: Brief) -> int:
        return 2

    async with hub:
        assert (await hub.ask("asker", "n", user="u")).result == "1\n\n2"


@pytest.mark.parametrize(
    ("noted", "named"),
    [
        (None, "remit"),
        ('{"url": "file:///dist/remit_core-0.1.0.whl", "archive_info": {}}', "remit"),
        ('{"url": "file:///home/ann/my%20remit/packages/core", "dir_info": {}}', "/home/ann/my remit"),
        ('{"url": "file:///src/packages/core", "dir_info": {"editable": true}}', "/src"),
    ],
    ids=["from an index", "from a wheel", "from a checkout", "from an editable checkout"],
)
def test_an_extra_is_installed_from_where_remit_came_from(
    noted: str | None, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = tmp_path / "remit_core-0.1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Name: remit-core\nVersion: 0.1.0\n", encoding="utf-8")
    if noted is not None:
        (described / "direct_url.json").write_text(noted, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))  # pyright: ignore[reportUnknownMemberType]
    assert install_command("relay") == f"pip install '{named}[relay]'"
    assert install_command() == f"pip install '{named}'"
    page = "`pip install '.[llm]'`, and in a checkout `pip install .`"
    assert as_installed(page) == f"`pip install '{named}[llm]'`, and in a checkout `pip install .`"
