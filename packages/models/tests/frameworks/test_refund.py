"""One refund, asked about by a rule, in every kind of agent: a ledger beside the hub counts what really happened.

The model of each agent is scripted and answers over a real socket; a person answers in the inbox of the store.
"""

import asyncio
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from frameworks.conftest import NEEDED, installed
from frameworks.suite import FrameworkConformance, Say, Script, Seen, Use
from openai_server import OpenAIServer, call, say
from remit import Brief, Hub, RemitError
from remit_cli import Rule, guard_of
from remit_models import ModelAgent
from waiting import eventually

pytestmark = pytest.mark.filterwarnings("ignore")  # frameworks warn of much that they do themselves

ARGUMENTS = {"order": "o-7", "cents": 5000}
RULE = Rule(then="ask", tool="refund", where={"cents": "> 1000"}, say="Refund this?", edit=frozenset({"input"}))

Add = Callable[[Hub, Callable[..., str], str], None]
"""Adds the agent `desk` to a hub, with the tool that refunds, and the address of its model."""


def add_function(hub: Hub, refund: Callable[..., str], _: str) -> None:
    hub.tool("refund")(refund)

    @hub.agent("desk", tools=["refund"])
    async def desk(brief: Brief) -> object:
        try:
            return await brief.use("refund", **ARGUMENTS)
        except RemitError as error:
            return f"No: {error.fault.message}"


def add_model(hub: Hub, refund: Callable[..., str], url: str) -> None:
    hub.tool("refund")(refund)
    hub.add("desk", ModelAgent("scripted", base_url=url), tools=["refund"])


def adding(suite: type[FrameworkConformance]) -> Add:
    return lambda hub, refund, url: hub.add("desk", suite().make(over_a_socket(url), [refund]))


def over_a_socket(url: str) -> Script:
    """Return a script for the model of a framework that asks the server what to do."""

    async def script(seen: Seen) -> Say | Use:
        texts = "\n".join((seen.text, *seen.tool_results))
        asked = {"model": "scripted", "messages": [{"role": "user", "content": texts}]}
        async with aiohttp.ClientSession() as session, session.post(f"{url}/chat/completions", json=asked) as reply:
            message = (await reply.json())["choices"][0]["message"]
        if not message.get("tool_calls"):
            return Say([message["content"]])
        [wanted] = message["tool_calls"]
        return Use(wanted["function"]["name"], json.loads(wanted["function"]["arguments"]))

    return script


def suites() -> dict[str, type[FrameworkConformance]]:
    """Return the suites of the frameworks that are installed, by name: each knows how to make an agent."""
    modules = [import_module(f"frameworks.{Path(file).stem}") for file, needed in NEEDED.items() if installed(needed)]
    classes = {name: each for module in modules for name, each in vars(module).items() if name.startswith("Test")}
    return {name: each for name, each in classes.items() if issubclass(each, FrameworkConformance)}


SUITES = suites()
KINDS: dict[str, Add] = {
    "function": add_function,
    **({"model": add_model} if installed("pydantic_ai") else {}),  # it brings the client of our own models
    **{name.removeprefix("Test"): adding(suite) for name, suite in SUITES.items()},
}
WITHOUT_EDITS = {name.removeprefix("Test") for name, suite in SUITES.items() if suite.no_edits}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answer", ["yes", "edited", "no", "nobody"])
async def test_a_refund_happens_once_after_a_yes_as_the_person_wants_it_and_never_without(
    kind: str, answer: str, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    ledger.touch()

    def refund(order: str, cents: int) -> str:
        """Pay a customer back."""
        with ledger.open("a", encoding="utf-8") as file:
            file.write(f"{order} {cents}\n")
        return "refunded"

    edits: dict[str, Any] = {"input": ARGUMENTS | {"cents": 1200}} if answer == "edited" else {}
    with OpenAIServer([call("refund", **ARGUMENTS), say("That is all.")]) as server:
        approver = None if answer == "nobody" else "inbox"
        hub = Hub(store=tmp_path / "hub.db", guards=[guard_of([RULE])], approver=approver)
        KINDS[kind](hub, refund, server.base_url)
        async with hub:
            asking = asyncio.create_task(hub.ask("desk", "Refund order o-7", user="u-1"))
            if answer != "nobody":
                pending = await eventually(hub.pending, when=lambda found: found or asking.done())
                assert pending, asking.result().fault
                [question] = pending
                assert (question.text, question.request.act) == ("Refund this?", "tool")
                assert (question.request.target, question.request.input) == ("refund", ARGUMENTS)
                assert ledger.read_text() == "", "it was refunded before anybody agreed"
                await hub.decide(question.id, agreed=answer != "no", by="ann", reason="too much", edits=edits)
            response = await asking
            pending = await hub.pending()
    refunded = {"yes": "o-7 5000\n", "edited": "" if kind in WITHOUT_EDITS else "o-7 1200\n"}.get(answer, "")
    assert (ledger.read_text(), response.ok, pending) == (refunded, True, []), response.fault
    # Whoever wanted it is told why it was not done: an agent, or a model in its next request.
    reasons = [str(response.result), *(each.text for each in server.requests[1:])]
    assert any("too much" in each for each in reasons) == (answer == "no")
