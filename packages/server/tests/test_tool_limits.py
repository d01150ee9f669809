"""Limits on the arguments of tools over HTTP: of a client's request, and of a hub's credential, which is a ceiling."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from meddling import Keys, served
from remit import Brief, Hub, RemitError
from remit.ports import OutgoingRequest
from remit.protocol.codec import encode
from remit.protocol.envelope import VERSION, Request
from remit.protocol.remit import Remit
from serving import client_of, posted, serving

MakeHub = Callable[..., Hub]
PATH = "/v1/delegations"
NO = "TOOL_NOT_ALLOWED"


class Till:
    """An agent that pays three amounts, and says what it was granted."""

    def __init__(self, hub: Hub) -> None:
        self.paid: list[int] = []
        self.remits: list[Remit] = []

        @hub.tool()
        async def pay(amount: int, to: str = "bob") -> str:
            self.paid.append(amount)
            return f"paid {to}"

        @hub.agent("till", tools=["pay"])
        async def till(brief: Brief) -> list[str]:
            self.remits.append(brief.remit)

            async def one(amount: int) -> str:
                try:
                    return str(await brief.use("pay", amount=amount, to="bob"))
                except RemitError as error:
                    return error.fault.code

            return [await one(amount) for amount in (40, 80, 400)]


async def test_a_client_limits_the_arguments_of_tools(make_hub: MakeHub) -> None:
    hub = make_hub()
    till = Till(hub)
    ask = {"target": "till", "user": "anna", "objective": "pay"}
    async with serving(hub) as server, client_of(server) as client:
        limits = {"pay": [{"amount": "<= 100"}, {"amount": {"below": 50}, "to": ["bob", "ann"]}]}
        status, body = await posted(client, ask | {"tools": limits})
        assert (status, body["result"]) == (200, ["paid bob", NO, NO])
        status, body = await posted(client, ask | {"tools": {"pay": {"amount": {"most": 50}}}})
        assert (status, [each["path"] for each in body["fault"]["problems"]]) == (400, ["$.tools.pay.amount.most"])
        status, body = await posted(client, ask | {"tools": {"pay": {"amount": "<= lots"}}})
        assert (status, body["fault"]["code"]) == (400, "INPUT_VALIDATION_FAILED")
    assert till.paid == [40]


GRANTED: dict[str, Any] = {"tools": {"pay": {"amount": "<= 50"}}, "cost": 900}


@pytest.mark.parametrize(
    ("claimed", "results", "cost"),
    [
        ({}, ["paid bob", NO, NO], 900),  # as if it had no limits
        ({"tools": {"pay": {}}, "cost": 10**6}, ["paid bob", NO, NO], 900),
        ({"tools": {"pay": {"amount": "<= 500"}}}, ["paid bob", NO, NO], 900),
        ({"tools": {"pay": {"amount": "<= 30"}}, "cost": 20}, [NO, NO, NO], 20),
        ({"tools": frozenset({"look"})}, [NO, NO, NO], 900),
    ],
)
async def test_a_request_narrows_what_its_credential_grants_and_never_widens_it(
    tmp_path: Path, claimed: dict[str, Any], results: list[str], cost: int
) -> None:
    hub, keys = Hub(name="back", store=tmp_path / "back.db", durability="process"), Keys.made()
    till = Till(hub)
    fields: dict[str, Any] = {"user": "ann", "depth": 0, "max_depth": 3, "time_ms": 60_000, "tokens": 8_000}
    given, sent = (
        Request(version=VERSION, id="r-1", origin="user", target="till", objective="pay", run="r-1", remit=remit)
        for remit in (Remit(**fields, **GRANTED), Remit(**fields, **claimed))
    )
    async with served(hub, keys) as server, ClientSession(server.address) as client:
        body = encode(sent)
        headers = await keys.papers()(given, OutgoingRequest("POST", PATH, body))
        async with client.post(PATH, data=body, headers=headers | {"content-type": "application/json"}) as reply:
            answer = await reply.json()
    assert (answer["result"], till.remits[0].cost) == (results, cost)
    assert till.paid == [40][: results.count("paid bob")]
