"""The agents of this team: plain functions. Put a model, a database or a web service behind them whenever you like."""

import csv
from pathlib import Path
from typing import Any

from remit import Answer, Brief

Receipt = dict[str, Any]

# What a word on a receipt says about it, and the part of the tax on it that may be claimed back.
CATEGORIES = {"train": "travel", "night": "travel", "lunch": "meals", "paper": "office", "server": "office"}
CLAIMABLE_PERCENT = {"travel": 100, "meals": 70, "office": 100, "other": 100}


async def assistant(brief: Brief) -> Answer:
    """Have the receipts sorted, then ask what can be claimed back."""
    # By capability, whoever offers it; or by name: brief.delegate("bookkeeper", …).
    receipts = await brief.delegate(capability="SORT", objective=brief.text)
    # A call always ends in a response, also if it was refused or took too long: `ok` says whether there is a result.
    if not receipts.ok:
        return Answer(f"the receipts could not be sorted: {receipts.fault and receipts.fault.message}", confidence=0.1)
    spent: dict[str, int] = {}
    for receipt in receipts.result:
        spent[receipt["category"]] = spent.get(receipt["category"], 0) + receipt["gross_cents"]
    sums = ", ".join(f"{category} {euros(cents)}" for category, cents in sorted(spent.items()))
    claim = await brief.delegate(capability="CLAIM", input=receipts.result, max_tokens=400)
    back = euros(claim.result) if claim.ok else "an unknown sum"
    return Answer(f"{sums}; of that, {back} of tax can be claimed back", confidence=0.9 if claim.ok else 0.4)


async def bookkeeper(brief: Brief) -> list[Receipt]:
    """Open the receipts and say what each was for."""
    receipts: list[Receipt] = await brief.use("open_receipts")
    for number, receipt in enumerate(receipts, start=1):
        words = receipt["what"].split()
        receipt["category"] = next((CATEGORIES[word] for word in words if word in CATEGORIES), "other")
        brief.progress(f"{number} of {len(receipts)} sorted")
    return receipts


async def tax(brief: Brief) -> int:
    """Return the cents of value-added tax that can be claimed back."""
    return round(sum(claimable_cents(receipt) for receipt in brief.input))


def open_receipts() -> list[Receipt]:
    """Read receipts.csv; a tool of the bookkeeper's."""
    with Path(__file__).with_name("receipts.csv").open(encoding="utf-8", newline="") as file:
        return [
            {**row, "gross_cents": int(row["gross_cents"]), "vat_percent": int(row["vat_percent"])}
            for row in csv.DictReader(file)
        ]


def claimable_cents(receipt: Receipt) -> float:
    rate = receipt["vat_percent"]
    return receipt["gross_cents"] * rate / (100 + rate) * CLAIMABLE_PERCENT[receipt["category"]] / 100


def euros(cents: int) -> str:
    return f"{cents / 100:,.2f} EUR"
