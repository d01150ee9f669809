"""Ask an agent of another hub over HTTP: time, tokens, depth and the user travel with the request."""

import asyncio
import secrets
import tempfile
from pathlib import Path

from remit import Brief, Hub
from remit_server import connect, serve

TOKEN = secrets.token_urlsafe()  # both hubs know it; it authenticates one to the other


async def tax(brief: Brief) -> str:
    remit = brief.remit
    return f"{brief.input * 0.19:.2f} EUR (for {brief.user}, depth {remit.depth}, {remit.tokens} tokens)"


async def prime(brief: Brief) -> str:
    reply = await brief.delegate("tax", objective="Work out the tax", input=100, max_tokens=700, deadline_ms=5_000)
    return reply.unwrap()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        office = Hub(name="office", store=Path(folder) / "office.db")
        office.add("tax", tax)
        household = Hub(name="household", store=Path(folder) / "household.db")
        household.add("prime", prime, may_call=["tax"])
        async with office, serve(office, hubs={"household": TOKEN}) as address:
            connect(household, "tax", address, token=TOKEN)
            async with household:
                response = await household.ask("prime", "How much tax is it?", user="ada")
                print(response.unwrap())
            (run,) = await office.store.runs()
            print(f"recorded at the office: asked by {run.user}, {run.state}")


if __name__ == "__main__":
    asyncio.run(main())
