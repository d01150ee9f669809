"""The agents of this team: plain functions. Each does one step, and knows nothing of the others."""

from typing import Any

from remit import Brief


async def scales(brief: Brief) -> dict[str, Any]:
    """Say what an order weighs."""
    return {"kilos": sum(item.get("kilos", 1) for item in brief.input)}


async def courier(brief: Brief) -> dict[str, Any]:
    """Say what a small parcel costs."""
    brief.progress("looking at the tariff")
    return {"by": "courier", "euros": 6.5}


async def haulier(brief: Brief) -> dict[str, Any]:
    """Say what a load costs."""
    return {"by": "haulier", "euros": 40 + brief.input}


async def clerk(brief: Brief) -> str:
    """Write the offer, from whichever of the two was asked."""
    offer = brief.input["parcel"] or brief.input["load"]
    return f"{brief.input['kilos']} kg by {offer['by']}: {offer['euros']:.2f} EUR"
