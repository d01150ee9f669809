"""What agents of a peer are told here, and how their words, sessions and answers are kept apart from the users'."""

from pathlib import Path
from typing import Any

from remit import Brief, Capability, Code, Hub, RemitError
from remit_testing.memory import MemoryStore
from serving import client_of, posted, serving

DECIDED = "We decided to use PostgreSQL."


async def test_what_an_agent_of_a_peer_decides_is_not_told_as_the_users_word() -> None:
    hub, known = Hub(store=MemoryStore(), redaction=False), list[list[tuple[str, str]]]()

    @hub.agent("desk")
    async def desk(brief: Brief) -> str:
        known.append([(note.text, note.by) for note in brief.known])
        return "noted"

    async with serving(hub) as server, client_of(server, "north") as north, client_of(server) as web:
        for client, origin in ((north, {"origin": "boss"}), (web, {})):
            ask: dict[str, Any] = {"user": "anna", "target": "desk", "session": "s", **origin}
            await posted(client, ask | {"objective": DECIDED, "handoff": {"decisions": ["Refund it"]}})
            await posted(client, ask | {"objective": "Go on"})
    assert [sorted(each) for each in known] == [
        [],
        [("Refund it", "boss@north"), (DECIDED, "boss@north")],
        [],
        [("Refund it", ""), (DECIDED, "")],
    ]


async def test_a_platform_agent_gives_a_reference_to_a_conversation_of_its_own(tmp_path: Path) -> None:
    """K5: a peer's references are names of its own sessions, never of others."""
    hub = Hub(store=str(tmp_path / "remit.db"))

    @hub.agent("desk")
    async def desk(brief: Brief) -> str:
        return "noted"

    @hub.agent("scribe")
    async def scribe(brief: Brief) -> Any:
        try:
            return [message.text for message in await brief.history(brief.handoff.history) if message.role == "user"]
        except RemitError as error:
            return str(error.fault.code)

    async with serving(hub) as server, client_of(server, "north") as north:
        ask = {"user": "anna", "origin": "ORC"}
        _, first = await posted(north, ask | {"target": "desk", "objective": "I like tea"})
        _, chosen = await posted(north, ask | {"target": "desk", "objective": "And milk", "session": "sess-789"})
        async with client_of(server) as web:
            _, local = await posted(web, {"user": "anna", "target": "desk", "objective": "local"})
        read: list[Any] = []
        for given in (first["session"], chosen["session"], local["session"]):
            body = ask | {"target": "scribe", "objective": f"Read {given}", "handoff": {"history": given}}
            read.append((await posted(north, body))[1]["result"])
    assert read == [["I like tea"], ["And milk"], Code.NOT_FOUND]


async def test_what_was_said_to_a_user_here_is_not_told_to_a_peer_that_names_the_same_user() -> None:
    """C9: a callee may tell another organisation less; each has answers of its own."""
    hub = Hub(store=MemoryStore(), redaction=False)

    @hub.agent("expert", capabilities=[Capability(code="LOOK", read_only=True, cache_ms=60_000, public=True)])
    async def expert(brief: Brief) -> str:
        return "all of it" if brief.request.origin == "user" else "as much as others may know"

    ask: dict[str, Any] = {"user": "ann", "target": "expert", "capability": "LOOK"}
    came: list[Any] = []
    async with serving(hub) as server, client_of(server) as web, client_of(server, "north") as north:
        for client, more in ((web, {}), (north, {"origin": "boss"}), (web, {}), (north, {"origin": "boss"})):
            _, told = await posted(client, ask | more)
            came.append((told["result"], told["cache"]))
    others = "as much as others may know"
    assert came == [("all of it", "miss"), (others, "miss"), ("all of it", "hit"), (others, "hit")]
