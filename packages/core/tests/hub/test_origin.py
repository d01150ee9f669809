"""When an agent raises, its own hub says where: file, line and the last frames of its own code."""

import logging
from pathlib import Path

import pytest

import faulty_code
from remit import AgentCard, Brief, Code, Fault, Hub, Origin, Request, Response, SourceLine, Status
from remit.ports import Remote, RemoteHandle

RAISED_AT = Path(faulty_code.__file__).read_text().splitlines().index('    raise LookupError(f"{name}: {SECRET}")') + 1


def origin_of(response: Response) -> Origin:
    assert response.fault is not None
    assert response.fault.origin is not None
    return response.fault.origin


@pytest.mark.parametrize("agent", [faulty_code.direct, faulty_code.in_thread])
async def test_the_fault_says_in_which_line_of_the_agents_code_it_was_raised(hub: Hub, agent: object) -> None:
    hub.add("clerk", agent)
    async with hub:
        origin = origin_of(await hub.ask("clerk", user="u-1"))
    assert origin.agent == "clerk"
    assert origin.error == f"LookupError: rate: {faulty_code.SECRET}"
    assert Path(origin.file).name == "faulty_code.py"
    assert origin.line == RAISED_AT
    assert [each.function for each in origin.frames] == [getattr(agent, "__name__", ""), "look_up"]
    assert origin.frames[-1].code.startswith("raise LookupError")
    assert str(origin.frames[-1]).endswith(f"faulty_code.py:{RAISED_AT}, in look_up: {origin.frames[-1].code}")


async def test_only_frames_of_the_agents_own_code_are_shown(hub: Hub) -> None:
    """Not those of Remit, of asyncio or the standard library; of a task group, those of what failed in it."""
    hub.add("library", faulty_code.in_library)
    hub.add("group", faulty_code.in_group)
    async with hub:
        library = origin_of(await hub.ask("library", user="u-1"))
        group = origin_of(await hub.ask("group", user="u-1"))
    assert [each.function for each in library.frames] == ["in_library"]
    assert [each.function for each in group.frames] == ["in_group", "direct", "look_up"]


async def test_a_fault_keeps_the_place_where_it_began_on_its_way_up(hub: Hub) -> None:
    hub.add("direct", faulty_code.direct)
    hub.add("boss", faulty_code.passing_on, may_call=["direct"])
    async with hub:
        origin = origin_of(await hub.ask("boss", user="u-1"))
    assert (origin.agent, origin.line) == ("direct", RAISED_AT)


async def test_a_tool_that_raises_is_named_with_its_line(hub: Hub) -> None:
    hub.tool("look_up")(faulty_code.look_up)
    hub.add("clerk", faulty_code.careless, tools=["look_up"])
    async with hub:
        response = await hub.ask("clerk", user="u-1")
    origin = origin_of(response)
    assert (origin.agent, origin.tool, origin.line) == ("clerk", "look_up", RAISED_AT)
    outward = response.outward().fault
    assert outward is not None
    assert outward.message == "tool look_up of clerk failed; the reason is on record at its hub"


async def test_a_fault_that_was_raised_on_purpose_keeps_its_words_everywhere(hub: Hub) -> None:
    hub.add("shop", faulty_code.on_purpose)
    async with hub:
        response = await hub.ask("shop", user="u-1")
    assert origin_of(response).error == ""
    assert [each.function for each in origin_of(response).frames] == ["on_purpose"]
    assert response.outward().fault == Fault(
        code=Code.DELEGATION_FAILED,
        message="the shop is closed",
        recoverable=True,
        suggestion=response.fault.suggestion if response.fault else "",
    )


@pytest.mark.parametrize("agent", [faulty_code.direct, faulty_code.adapted])
async def test_what_others_are_told_has_neither_the_place_nor_the_exceptions_text(hub: Hub, agent: object) -> None:
    hub.add("clerk", agent)
    async with hub:
        response = await hub.ask("clerk", user="u-1")
    assert response.fault is not None
    assert faulty_code.SECRET in response.fault.message
    outward = response.outward()
    assert outward.fault is not None
    assert (outward.status, outward.fault.code, outward.fault.origin) == (Status.FAILED, Code.DELEGATION_FAILED, None)
    assert outward.fault.message == "clerk failed; the reason is on record at its hub"


async def test_the_log_has_it_at_error_and_without_personal_data(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    hub.add("clerk", faulty_code.with_mail)
    with caplog.at_level(logging.ERROR, logger="remit"):
        async with hub:
            response = await hub.ask("clerk", user="u-1")
    (record,) = [each for each in caplog.records if each.name == "remit"]
    assert record.levelno == logging.ERROR
    message = record.getMessage()
    assert "agent clerk failed on" in message
    assert "in with_mail: raise ValueError" in message
    assert "faulty_code.py:" in message
    origin = origin_of(response)
    assert "ada@example.org" not in message + origin.error + str(origin.frames)
    assert "[EMAIL:" in origin.error


async def test_a_very_long_exception_leaves_no_trace_of_its_text_either(hub: Hub) -> None:
    @hub.agent("clerk")
    async def clerk(brief: Brief) -> None:
        raise ValueError("secret " * 2_000)

    async with hub:
        response = await hub.ask("clerk", user="u-1")
    outward = response.outward().fault
    assert outward is not None
    assert "secret" not in outward.message
    assert origin_of(response).agent == "clerk"


class Boasting(Remote):
    """An agent elsewhere that says where in its code it failed."""

    async def send(self, request: Request, line: RemoteHandle) -> Response:
        origin = Origin(agent="far", error="ValueError: x", frames=(SourceLine("/etc/passwd", 1, "f"),))
        why = Fault(code=Code.DELEGATION_FAILED, message="far failed", origin=origin)
        return Response(version="1.0", id=request.id, target=request.target, status=Status.FAILED, fault=why)


async def test_what_a_peer_says_of_its_code_is_not_taken_over(hub: Hub) -> None:
    """Nothing a peer says is trusted: an origin is this hub's own."""
    hub.register(AgentCard(name="far"), Boasting())
    async with hub:
        response = await hub.ask("far", user="u-1")
    assert response.fault is not None
    assert response.fault.origin is None
