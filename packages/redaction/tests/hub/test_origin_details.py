"""What a failure says of itself in the odd cases: without words, several at once, in a process, in a tool."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import faulty_code
from remit import Brief, Hub, Origin, Response
from remit.policy.verdict import Finding
from remit.protocol.records import Notice
from remit_redaction.pipeline import detector_pipeline

LINES = Path(faulty_code.__file__).read_text().splitlines()
RAISED_AT = LINES.index('    raise LookupError(f"{name}: {SECRET}")') + 1


def failure_of(response: Response) -> tuple[str, Origin]:
    assert response.fault is not None
    assert response.fault.origin is not None
    return response.fault.message, response.fault.origin


async def test_an_error_without_words_is_named_by_its_type_alone(hub: Hub) -> None:
    hub.add("clerk", faulty_code.without_words)
    async with hub:
        message, _ = failure_of(await hub.ask("clerk", user="u-1"))
    assert message == "clerk raised Shy"


async def test_of_several_errors_at_once_the_first_is_told(hub: Hub) -> None:
    hub.add("clerk", faulty_code.in_group)
    async with hub:
        message, _ = failure_of(await hub.ask("clerk", user="u-1"))
    assert message.endswith(f"(1 sub-exception): LookupError: rate: {faulty_code.SECRET}")


async def test_where_python_raises_another_error_the_line_of_the_first_is_told(hub: Hub) -> None:
    hub.add("clerk", faulty_code.stopping)
    async with hub:
        _, origin = failure_of(await hub.ask("clerk", user="u-1"))
    assert origin.line == LINES.index("    raise StopIteration") + 1


async def test_the_log_is_redacted_also_of_an_agent_in_a_process(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    """The line of the code holds the address as its text does."""
    hub.add("clerk", faulty_code.with_mail, isolation="process")
    with caplog.at_level(logging.ERROR, "remit"):
        async with hub:
            _, origin = failure_of(await hub.ask("clerk", user="u-1"))
    messages = [record.getMessage() for record in caplog.records if "clerk failed" in record.getMessage()]
    assert len(messages) == 1
    assert "[EMAIL:" in messages[0]
    assert "ada@" not in messages[0] + str(origin)


async def test_a_process_shows_paths_from_the_working_folder_of_the_hub(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(faulty_code.__file__).parent)
    hub.add("clerk", faulty_code.direct, isolation="process")
    async with hub:
        _, origin = failure_of(await hub.ask("clerk", user="u-1"))
    assert origin.file == "faulty_code.py"


async def test_what_a_tool_raised_is_told_in_full_also_if_a_process_passes_it_on(hub: Hub) -> None:
    """The process sees no code of others; whoever runs the hub does."""
    hub.tool("look_up")(faulty_code.look_up)
    hub.add("clerk", faulty_code.careless, tools=["look_up"], isolation="process")
    hub.add("direct", faulty_code.direct)
    hub.add("boss", faulty_code.passing_on, may_call=["direct"], isolation="process")
    async with hub:
        by_tool, tool = failure_of(await hub.ask("clerk", user="u-1"))
        by_agent, agent = failure_of(await hub.ask("boss", user="u-1"))
    assert by_tool == f"tool look_up raised LookupError: rate: {faulty_code.SECRET}"
    assert (tool.tool, tool.frames[-1].function) == ("look_up", "look_up")
    assert by_agent == f"direct raised LookupError: rate: {faulty_code.SECRET}"
    assert agent.agent == "direct"


async def test_the_log_says_in_which_line_a_tool_failed(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    hub.tool("look_up")(faulty_code.look_up)
    hub.add("clerk", faulty_code.careless, tools=["look_up"])
    with caplog.at_level(logging.ERROR, "remit"):
        async with hub:
            await hub.ask("clerk", user="u-1")
    message = next(record.getMessage() for record in caplog.records if "tool look_up failed" in record.getMessage())
    assert "LookupError" in message.splitlines()[0]
    assert f"faulty_code.py:{RAISED_AT}, in look_up" in message
    assert "desk.py" not in message


async def test_an_error_is_redacted_beside_the_event_loop(make_hub: Callable[..., Hub]) -> None:
    """Detectors take time to load; and whoever holds the loop meanwhile would be named as an agent that blocks it."""
    threads: list[str] = []
    detect = detector_pipeline()

    def looking(text: str) -> Iterable[Finding]:
        if "no account" in text:
            threads.append(threading.current_thread().name)
        return detect(text)

    hub = make_hub(redaction=looking)
    hub.add("clerk", faulty_code.with_mail)
    async with hub:
        await hub.ask("clerk", user="u-1")
    assert threads
    assert threads[0] != threading.main_thread().name


async def test_an_agent_is_not_named_for_what_the_hub_does_with_its_answer(make_hub: Callable[..., Hub]) -> None:
    """Detectors that load, or take long, hold the loop in the name of nobody."""

    def slow(text: str) -> Iterable[Finding]:
        end = time.monotonic() + (0.9 if text == "the answer" else 0)
        while time.monotonic() < end:
            pass
        return ()

    hub = make_hub(redaction=slow)

    @hub.agent("clerk")
    async def clerk(brief: Brief) -> str:
        return "the answer"

    assert clerk
    async with hub:
        response = await hub.ask("clerk", user="u-1")
        await hub.store.flush()
        records = await hub.store.records(run=response.run)
    assert [record.body for record in records if isinstance(record.body, Notice)] == []
