"""What the example team of `remit dev` does at first, so that the console has something to show."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from remit.hub.hub import Hub
from remit.protocol.errors import RemitError
from remit.relay.session_service import SessionService

OBJECTIVE = "Review Bob's API for security issues"
SESSION = "march"
# Ada's words; the agents get placeholders in place of the account, the address and the number.
CLAIM = "Claim the tax back, to DE89 3704 0044 0532 0130 00. I am at ada.weber@example.org, +49 30 901820."
# The receipts hold nothing of the kind, so that the agent that sorts them fails.
STRANGE = [{"id": "r-99", "what": "yacht rental", "vendor": "Marina", "gross_cents": 120_000, "vat_percent": 19}]

log = logging.getLogger("remit")


async def play(hub: Hub, host: SessionService | None, profile: str, partner: str) -> None:
    """Let two users ask the example team, and start a chat with a shared agent if there is a *host* for it.

    All of it is recorded, so that it is done once. Only the question that waited for an answer ended with the process.
    """
    parts = [_claim(hub)] if await hub.store.runs(limit=1) else [_ada(hub), _ben(hub)]
    if host is not None and not host.runs:
        parts.append(_chat(host, profile, partner))
    async with asyncio.TaskGroup() as tasks:
        for part in parts:
            tasks.create_task(_told(part))


async def _told(part: Coroutine[Any, Any, None]) -> None:
    try:
        await part
    except RemitError as error:
        log.warning("a part of the example failed: %s", error.fault.message)


async def _ada(hub: Hub) -> None:
    """Ask for a chain of agents, an unclear wish, a conflict, refusals and limits, and what waits for an approval."""
    for text in (
        "What did I spend in March?",
        "Something is wrong with my receipts.",
        "The second one.",
        "The bank is right.",
        "Look closely at every receipt",
    ):
        await hub.ask("orchestrator", text, user="ada", session=SESSION)
    await _claim(hub)


async def _claim(hub: Hub) -> None:
    await hub.ask("orchestrator", CLAIM, user="ada", session=SESSION)


async def _ben(hub: Hub) -> None:
    """Ask some agents directly, one of which fails."""
    for month in ("2026-03", "2026-02"):
        await hub.ask("document-reader", f"Read the receipts of {month}", user="ben", capability="RECEIPTS_READ")
    await hub.ask("categoriser", "Sort these", input=STRANGE, user="ben", capability="RECEIPTS_SORT")
    await hub.ask("orchestrator", "how much did I spend on travel", user="ben", session="travel")


async def _chat(host: SessionService, profile: str, partner: str) -> None:
    await host.start(profile, partner, OBJECTIVE)
