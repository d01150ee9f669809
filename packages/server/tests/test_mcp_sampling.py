"""Agents that ask the model of the MCP host that waits for them."""

import asyncio
from collections.abc import Callable

import mcp_types as types
import pytest
from mcp.client.session import ClientRequestContext

from hosts import ERAS, Progress, data, host_at, text
from remit import Brief, Hub, RemitError
from remit.policy.reception import Sender
from remit_server import serve
from remit_server.mcp.host_delegations import McpOffer
from serving import serving
from waiting import PATIENCE_S

ANNA = Sender(name="anna-desk", users=frozenset({"anna"}))


class HostModel:
    """The model of a host, which says the same each time."""

    def __init__(self, *said: types.TextContent | types.ImageContent | types.ErrorData) -> None:
        self._said = list(said)
        self.asked: list[types.CreateMessageRequestParams] = []

    async def __call__(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        self.asked.append(params)
        said = self._said.pop(0)
        if isinstance(said, types.ErrorData):
            return said
        return types.CreateMessageResult(role="assistant", content=said, model="tiny")


def says(words: str) -> types.TextContent:
    return types.TextContent(type="text", text=words)


@pytest.fixture
def hub(make_hub: Callable[..., Hub]) -> Hub:
    hub = make_hub()

    @hub.agent("poet", may_call=["helper"])
    async def poet(brief: Brief) -> object:
        return (await brief.delegate("helper", objective=brief.objective)).unwrap()

    @hub.agent("helper")
    async def helper(brief: Brief) -> object:
        return await brief.sample(brief.objective, system="Be brief.", max_tokens=50)

    assert {poet, helper}
    return hub


async def test_agents_of_a_run_ask_the_model_of_the_host_within_their_budget(hub: Hub) -> None:
    model = HostModel(says("Roses are red."))
    async with (
        serving(hub, ANNA) as server,
        host_at(server.address, "anna-desk", sampling_callback=model) as host,
    ):
        told = await host.call_tool("delegate_task", {"agent": "poet", "task": "Write a poem."})
        dear = await host.call_tool("delegate_task", {"agent": "poet", "task": "Write " * 100, "max_tokens": 60})
    assert text(told) == "Roses are red."
    assert data(told)["tokens_used"] > 0
    (asked,) = model.asked
    assert (asked.system_prompt, asked.max_tokens) == ("Be brief.", 50)
    assert [each.content for each in asked.messages] == [says("Write a poem.")]
    assert data(dear)["fault"]["code"] == "TOKEN_BUDGET_EXCEEDED"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (types.ErrorData(code=-1, message="the user declined"), "DELEGATION_UNAVAILABLE"),
        (types.ImageContent(type="image", data="AA==", mime_type="image/png"), "RESULT_VALIDATION_FAILED"),
    ],
)
async def test_a_model_that_gives_no_text_is_a_fault(
    hub: Hub, said: types.ErrorData | types.ImageContent, code: str
) -> None:
    async with (
        serving(hub, ANNA) as server,
        host_at(server.address, "anna-desk", sampling_callback=HostModel(said)) as host,
    ):
        told = await host.call_tool("delegate_task", {"agent": "helper", "task": "x"})
    assert data(told)["fault"]["code"] == code


@pytest.mark.parametrize(
    ("era", "offers", "sampling"), [(ERAS[0], False, True), (ERAS[0], True, False), (ERAS[1], True, True)]
)
async def test_a_host_that_lends_no_model_is_not_asked(hub: Hub, era: str, offers: bool, sampling: bool) -> None:
    model = HostModel(says("no"))
    async with (
        serving(hub, ANNA, mcp=McpOffer(sampling=sampling)) as server,
        host_at(server.address, "anna-desk", era, sampling_callback=model if offers else None) as host,
    ):
        told = await host.call_tool("delegate_task", {"agent": "helper", "task": "x"})
    assert data(told)["fault"]["code"] == "DELEGATION_UNAVAILABLE"
    assert "no MCP host lends its model" in text(told)
    assert model.asked == []


async def test_a_program_may_serve_its_hub_without_asking_models_of_hosts(hub: Hub) -> None:
    model = HostModel(says("Roses are red."))
    async with (
        hub,
        serve(hub, clients={"anna-desk": "anna-desk"}, users={"anna-desk": ["anna"]}, mcp_sampling=False) as address,
        host_at(address, "anna-desk", sampling_callback=model) as host,
    ):
        told = await host.call_tool("delegate_task", {"agent": "poet", "task": "Write a poem."})
    assert data(told)["fault"]["code"] == "DELEGATION_UNAVAILABLE"
    assert model.asked == []


async def test_nobody_lends_a_model_to_a_run_without_a_host(hub: Hub) -> None:
    async with hub:
        response = await hub.ask("helper", "x", user="anna")
    assert response.fault is not None
    assert response.fault.code == "DELEGATION_UNAVAILABLE"


async def test_texts_that_are_asked_for_at_once_share_what_is_left(make_hub: Callable[..., Hub]) -> None:
    hub, model = make_hub(), HostModel(*[says("Red.")] * 9)

    @hub.agent("poet", tokens=1_000)
    async def poet(brief: Brief) -> list[str]:
        asked = [asyncio.ensure_future(brief.sample("Roses?", max_tokens=400)) for _ in range(9)]
        done, _ = await asyncio.wait(asked)
        return sorted(str(each.exception())[:21] if each.exception() else "text" for each in done)

    assert poet
    async with (
        serving(hub, ANNA) as server,
        host_at(server.address, "anna-desk", sampling_callback=model) as host,
    ):
        told = await host.call_tool("delegate_task", {"agent": "poet", "task": "Write.", "max_tokens": 1_000})
    assert data(told)["result"] == ["TOKEN_BUDGET_EXCEEDED"] * 6 + ["text"] * 3
    assert sum(each.max_tokens for each in model.asked) <= 1_000


async def test_a_host_that_asks_for_a_run_at_work_lends_its_model_to_it(make_hub: Callable[..., Hub]) -> None:
    hub, model = make_hub(), HostModel(says("Roses are red."))
    begun, go = asyncio.Event(), asyncio.Event()

    @hub.agent("poet")
    async def poet(brief: Brief) -> str:
        begun.set()
        await go.wait()
        return await brief.sample(brief.objective)

    assert poet
    asked, joined = {"agent": "poet", "task": "Write.", "request_id": "r-1"}, Progress()
    async with (
        serving(hub, ANNA) as server,
        host_at(server.address, "anna-desk") as first,
        host_at(server.address, "anna-desk", sampling_callback=model) as second,
        asyncio.TaskGroup() as both,
    ):
        one = both.create_task(first.call_tool("delegate_task", asked))
        await begun.wait()
        two = both.create_task(second.call_tool("delegate_task", asked, progress_callback=joined))
        await joined.until(bool)
        go.set()
    assert [text(each.result()) for each in (one, two)] == ["Roses are red."] * 2


async def test_an_agent_does_not_wait_for_the_model_of_a_host_that_has_given_up(make_hub: Callable[..., Hub]) -> None:
    hub, asked, said = make_hub(), asyncio.Event(), asyncio.Event()

    @hub.agent("poet")
    async def poet(brief: Brief) -> str:
        try:
            return await brief.sample(brief.objective)
        except RemitError as error:
            said.set()
            return error.fault.message

    async def never(context: ClientRequestContext, params: types.CreateMessageRequestParams) -> types.ErrorData:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    assert poet
    late = types.CancelledNotificationParams(request_id=1, reason="request timed out")
    async with (
        serving(hub, ANNA) as server,
        host_at(server.address, "anna-desk", sampling_callback=never) as host,
        asyncio.timeout(PATIENCE_S),
    ):
        call = asyncio.ensure_future(host.call_tool("delegate_task", {"agent": "poet", "task": "Write."}))
        await asked.wait()
        for number in range(1, 9):  # whichever number the call has
            given_up = late.model_copy(update={"request_id": number})
            await host.session.send_notification(types.CancelledNotification(params=given_up))
        await said.wait()
        call.cancel()
        (run,) = data(await host.call_tool("delegation_status", {}))["delegations"]
        told = await host.call_tool("delegation_status", {"id": run["id"]})
    assert text(told) == "the MCP host no longer waits for this run"
