"""Serve an answer by FastAPI within two seconds: what is not ready by then is named, what is ready is given."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
from fastapi import FastAPI, Header

from remit import Answer, Brief, Call, Hub
from remit_testing import MemoryStore

SHOPS = ("north", "south", "slow")
hub = Hub(store=MemoryStore())


@hub.agent("shop")
async def shop(brief: Brief) -> float:
    if brief.input == "slow":
        await asyncio.Event().wait()  # a service that never answers
    return {"north": 4.2, "south": 3.9}[brief.input]


@hub.agent("prices", may_call=["shop"])
async def prices(brief: Brief) -> Answer:
    calls = [Call(target="shop", objective="Price of sencha", input=name, deadline_ms=300) for name in SHOPS]
    replies = dict(zip(SHOPS, await brief.fan_out(calls), strict=True))
    known = {name: reply.result for name, reply in replies.items() if reply.ok}
    return Answer(known, finished=tuple(known), unfinished=tuple(name for name in SHOPS if name not in known))


@asynccontextmanager
async def open_hub(_: FastAPI) -> AsyncIterator[None]:
    async with hub:
        yield


app = FastAPI(lifespan=open_hub)


@app.get("/prices")
async def get_prices(x_user: Annotated[str, Header()]) -> dict[str, object]:
    response = await hub.ask("prices", "Prices of sencha", user=x_user, deadline_ms=2_000)
    return {"status": response.status, "prices": response.result, "missing": response.unfinished}


async def main() -> None:
    async with open_hub(app), httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
        answer = await client.get("/prices", headers={"X-User": "ada"})
        print(answer.status_code, answer.json())


if __name__ == "__main__":
    asyncio.run(main())
