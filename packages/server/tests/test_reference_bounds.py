"""A history reference opens no conversation to a client that may not see it otherwise."""

from typing import Any

from remit import Brief, Code, Hub
from remit.policy.reception import Sender
from remit_testing.memory import MemoryStore
from serving import WEB, client_of, posted, serving

DESK_APP = Sender(name="desk-app", users=frozenset({"anna"}), targets=frozenset({"desk"}))


async def test_a_client_of_some_agents_cannot_have_conversations_with_others_read() -> None:
    """K5, X10: what it may not ask for, it may not have read out by whom it may ask."""
    hub = Hub(store=MemoryStore())

    async def answer(brief: Brief) -> Any:
        if brief.handoff.history is None:
            return "noted"
        return [message.text for message in await brief.history(brief.handoff.history) if message.role == "user"]

    hub.add("desk", answer)
    hub.add("payroll", answer)
    async with serving(hub, WEB, DESK_APP) as server, client_of(server) as web, client_of(server, "desk-app") as app:
        for target in ("desk", "payroll"):
            ask = {"user": "anna", "target": target, "objective": f"Hello {target}", "session": f"with-{target}"}
            await posted(web, ask)
        read: list[Any] = []
        for client in (web, app):
            for target in ("desk", "payroll"):
                body = {"user": "anna", "target": "desk", "objective": "Read", "handoff": {"history": f"with-{target}"}}
                _, told = await posted(client, body)
                read.append(told["fault"]["code"] if "fault" in told else told["result"])
    assert read == [["Hello desk"], ["Hello payroll"], ["Hello desk"], Code.NOT_FOUND]
