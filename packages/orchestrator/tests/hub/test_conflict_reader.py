"""A model as second reader of conflicts (K9): over a real socket, with what it says scripted."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from openai_server import Answer as Served
from openai_server import Garbage, OpenAIServer, call, say
from openai_server import Status as HttpStatus
from remit import Answer, Brief, Hub, Response, Step, Workflow
from remit_models import ModelAgent
from remit_orchestrator import add_orchestrator, add_workflow

Serve = Callable[..., OpenAIServer]

PAID, OPEN = "The invoice has been paid.", "The invoice is still open."


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that starts a server with a script."""
    with ExitStack() as stack:
        yield lambda *script: stack.enter_context(OpenAIServer(script))


def points_at(one: str, other: str) -> Served:
    pair = {"first": {"result": 1, "quote": one}, "second": {"result": 2, "quote": other}}
    return call("final_result", contradictions=[pair])


async def check(
    hub: Hub,
    server: OpenAIServer,
    compare: tuple[str, ...] = ("books", "bank"),
    request: str = "Is it paid?",
    **options: Any,
) -> Response:
    for name, text in (("a", PAID), ("b", OPEN)):

        @hub.agent(name)
        async def answer(_: Brief, text: str = text) -> Answer:
            return Answer(text, confidence=0.8)

    steps = (Step(name="books", agent="a"), Step(name="bank", agent="b"))
    add_workflow(hub, Workflow(name="check", steps=steps, compare=compare))
    model = ModelAgent("scripted", base_url=server.base_url, settings={"max_retries": 0})
    add_orchestrator(hub, conflicts=model)
    async with hub:
        return await hub.ask("check", request, user="u", **options)


async def test_what_a_model_points_at_is_asked_about_like_any_conflict(hub: Hub, serve: Serve) -> None:
    """K9: a conflict that takes knowledge of the world is found as well."""
    server = serve(points_at(PAID, OPEN))
    response = await check(hub, server)
    (conflict,) = response.metadata["conflicts"]
    assert [each["sources"] for each in conflict["values"]] == [["Books"], ["Bank"]]
    assert (response.requires_followup, response.metadata["second_reader"]) == (True, "model")
    assert "Where the results differ" in response.result
    assert "Result 2 (question 1):" in server.requests[0].message_texts
    assert response.usage.total == 30, "what the model used is the workflow's"


async def test_a_quote_that_a_model_made_up_is_left_out(hub: Hub, serve: Serve) -> None:
    response = await check(hub, serve(points_at(PAID, "The invoice was never paid.")))
    assert response.metadata["conflicts"] == []
    assert response.metadata["pointed_out"] == 0


@pytest.mark.parametrize(
    "reply", [HttpStatus(500), Garbage(), say("They differ."), call("final_result", contradictions=5)]
)
async def test_where_the_model_fails_the_rules_alone_are_heard(hub: Hub, serve: Serve, reply: Served) -> None:
    """K10: nothing that was found is lost."""
    response = await check(hub, serve(reply))
    assert (response.metadata["conflicts"], response.metadata["second_reader"]) == ([], "none")
    assert response.metadata["not_read"]
    assert PAID in response.result


async def test_a_model_is_not_asked_where_nothing_is_compared(hub: Hub, serve: Serve) -> None:
    server = serve(points_at(PAID, OPEN))
    response = await check(hub, server, compare=())
    assert (server.requests, "second_reader" in response.metadata) == ([], False)


async def test_a_model_is_not_asked_with_too_few_tokens(hub: Hub, serve: Serve) -> None:
    server = serve(points_at(PAID, OPEN))
    response = await check(hub, server, max_tokens=1_500)
    assert (len(server.requests), response.metadata["not_read"]) == (0, "too few tokens are left")


async def test_a_model_quotes_what_goes_against_the_users_words(hub: Hub, serve: Serve) -> None:
    """K5: the user reads the demand and the passage, and judges."""
    against = {"sentence": 1, "quotes": [{"result": 2, "quote": OPEN}]}
    server = serve(call("final_result", contradictions=[]), call("final_result", passages=[against]))
    response = await check(hub, server, request="Is it paid? It must be paid.")
    warning = f"You said “It must be paid.”, but this may not keep to it: “{OPEN}”."
    assert response.metadata["broken"] == [warning]
    assert f"## Not as you asked\n\n- {warning}" in response.result
    assert "Sentence 1: It must be paid." in server.requests[1].message_texts
