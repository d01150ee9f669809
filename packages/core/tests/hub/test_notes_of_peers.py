"""Notes say who said so: an agent of a peer is not taken for the user, nor for an agent of this hub."""

from typing import Any

from remit import Brief, Hub
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
