"""A small team that goes through receipts: plain functions and no model, so that it runs anywhere."""

import asyncio
import csv
from pathlib import Path
from typing import Any

from remit import Answer, Brief, Call

HERE = Path(__file__).parent

Receipt = dict[str, Any]

# What a word on a receipt says about it, and the part of the value-added tax on it that may be claimed back.
CATEGORIES = {
    "travel": ("train", "night"),
    "meals": ("lunch", "coffee"),
    "office": ("paper", "monitor"),
    "services": ("server",),
    "books": ("handbook",),
}
CLAIMABLE_PERCENT = {"travel": 100, "meals": 70, "office": 100, "services": 100, "books": 100}


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def open_receipts(month: str) -> list[Receipt]:
    """Return the receipts of a month, given as 2026-03."""
    found = [row for row in _rows("receipts.csv") if row["date"].startswith(month)]
    return [{**row, "gross_cents": int(row["gross_cents"]), "vat_percent": int(row["vat_percent"])} for row in found]


async def find_transaction(receipt: str) -> dict[str, Any] | None:
    """Ask the bank what was booked for a receipt; the bank takes its time."""
    await asyncio.sleep(0.09)
    found = next((row for row in _rows("transactions.csv") if row["receipt"] == receipt), None)
    return {**found, "cents": int(found["cents"])} if found else None


def _rows(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# ── agents ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def document_reader(brief: Brief) -> list[Receipt]:
    receipts = await brief.use("open_receipts", month=str(brief.input))
    for receipt in receipts:
        think(brief, receipt)
    return receipts


async def categoriser(brief: Brief) -> list[Receipt]:
    return [{**receipt, "category": category_of(brief, receipt)} for receipt in brief.input]


async def analyst(brief: Brief) -> Answer:
    receipts: list[Receipt] = brief.input
    match brief.capability:
        case "EXPLAIN":
            return Answer([explain(brief, receipt) for receipt in receipts])
        case "RECONCILE":
            return await reconcile(brief, receipts)
        case "NET":
            # If it is the tax specialist that wants the net amounts, this would make it ask itself.
            reply = await brief.delegate("tax-specialist", capability="CLAIM", input=receipts)
            if reply.fault is not None:
                return Answer(totals(brief, receipts), warnings=("the totals are gross",))
            return Answer(totals(brief, receipts))
        case _:
            return Answer(totals(brief, receipts), confidence=0.9)


async def tax_specialist(brief: Brief) -> Answer:
    match brief.capability:
        case "ADVISE":
            # It repeats what it was told, as models do.
            return Answer(f"I will write to the address that you gave me: {brief.text}")
        case "FILE":
            return Answer(file_claim(brief))
        case "DEDUCT":
            reply = await brief.delegate("analyst", capability="NET", input=brief.input)
            return Answer(reply.result, warnings=reply.warnings)
        case _:
            cents = sum(claimable_cents(brief, receipt) for receipt in brief.input)
            return Answer({"claimable_cents": cents}, confidence=0.8)


async def orchestrator(brief: Brief) -> Answer:
    month = str(brief.input)[:7]
    match brief.capability:
        case "REVIEW":
            return await review(brief, month)
        case "CONTACT":
            reply = await brief.delegate("tax-specialist", capability="ADVISE", input=brief.objective)
            return Answer(reply.result)
        case "FILE_CLAIM":
            return await file_for(brief, month, account=brief.input[8:])
        case "DEDUCT":
            receipts = await sorted_receipts(brief, month)
            reply = await brief.delegate("tax-specialist", capability="DEDUCT", input=receipts)
            return Answer(f"{listed(reply.result)} ({', '.join(reply.warnings)})")
        case "EXPLAIN":
            return await explained(brief, month)
        case "RECONCILE":
            return await reconciled(brief, month)
        case _:
            steps = [
                Call(target="document-reader", capability="READ", input=month),
                Call(target="categoriser", capability="CATEGORISE"),
                Call(target="analyst", capability="TOTALS"),
            ]
            replies = await brief.chain(steps)
            return Answer(listed(replies[-1].unwrap()))


# ── what the orchestrator does with the answers ───────────────────────────────────────────────────────────────────────


async def sorted_receipts(brief: Brief, month: str) -> list[Receipt]:
    steps = [
        Call(target="document-reader", capability="READ", input=month),
        Call(target="categoriser", capability="CATEGORISE"),
    ]
    return (await brief.chain(steps))[-1].unwrap()


async def review(brief: Brief, month: str) -> Answer:
    """Ask two at once and make one answer of what they say."""
    receipts = await sorted_receipts(brief, month)
    spent, claim = await brief.fan_out(
        [
            Call(target="analyst", capability="TOTALS", input=receipts),
            Call(target="tax-specialist", capability="CLAIM", input=receipts),
        ]
    )
    total = sum(spent.unwrap().values())
    back = claim.unwrap()["claimable_cents"]
    sure = [reply.confidence for reply in (spent, claim) if reply.confidence is not None]
    return Answer(f"{euros(total)} spent, of which {euros(back)} of tax can be claimed back", confidence=min(sure))


async def file_for(brief: Brief, month: str, account: str) -> Answer:
    """Have the claim filed; the team's rules want a person to agree to that."""
    receipts = await sorted_receipts(brief, month)
    claim = await brief.delegate("tax-specialist", capability="CLAIM", input=receipts)
    what = {"cents": claim.unwrap()["claimable_cents"], "account": account}
    reply = await brief.delegate("tax-specialist", capability="FILE", objective="File the claim", input=what)
    return Answer(reply.unwrap())


async def explained(brief: Brief, month: str) -> Answer:
    receipts = await sorted_receipts(brief, month)
    reply = await brief.delegate("analyst", capability="EXPLAIN", input=receipts, max_tokens=900)
    if reply.ok:
        return Answer(reply.result)
    again = await brief.delegate("tax-specialist", capability="CLAIM", input=receipts)
    return Answer(
        f"stopped after {reply.usage.total} tokens; the next call was {again.status} too",
        unfinished=("explanations", "claim"),
    )


async def reconciled(brief: Brief, month: str) -> Answer:
    receipts = await sorted_receipts(brief, month)
    reply = await brief.delegate("analyst", capability="RECONCILE", input=receipts, deadline_ms=400)
    found = "; ".join(reply.result or ()) or "nothing wrong"
    return Answer(
        f"{len(reply.finished)} of {len(receipts)} checked, {found}",
        finished=reply.finished,
        unfinished=reply.unfinished,
    )


# ── what the others compute ───────────────────────────────────────────────────────────────────────────────────────────


def think(brief: Brief, receipt: Receipt) -> None:
    """Meter what a model would have read, at about four characters to a token."""
    brief.spend(prompt=len(str(receipt)) // 4, estimated=True)


def category_of(brief: Brief, receipt: Receipt) -> str:
    think(brief, receipt)
    words = receipt["what"].split()
    return next(category for category, known in CATEGORIES.items() if any(word in known for word in words))


def totals(brief: Brief, receipts: list[Receipt]) -> dict[str, int]:
    cents = dict.fromkeys(CATEGORIES, 0)
    for receipt in receipts:
        think(brief, receipt)
        cents[receipt["category"]] += receipt["gross_cents"]
    return cents


def claimable_cents(brief: Brief, receipt: Receipt) -> int:
    think(brief, receipt)
    rate = receipt["vat_percent"]
    vat = receipt["gross_cents"] * rate / (100 + rate)
    return round(vat * CLAIMABLE_PERCENT[receipt["category"]] / 100)


def file_claim(brief: Brief) -> str:
    """Check the account, as a bank does, and say what was filed."""
    account = brief.input["account"].replace(" ", "")
    moved = account[4:] + account[:4]
    if int("".join(str(int(sign, 36)) for sign in moved)) % 97 != 1:
        raise ValueError("there is no such account")
    return f"filed: {euros(brief.input['cents'])}, to be paid to {account}"


def explain(brief: Brief, receipt: Receipt) -> str:
    text = f"{receipt['what']} at {receipt['vendor']} is {receipt['category']}"
    brief.spend(prompt=len(str(receipt)) // 4, completion=4 * len(text), estimated=True)
    return text


async def reconcile(brief: Brief, receipts: list[Receipt]) -> Answer:
    """Compare each receipt with the bank, and report after each what is known so far."""
    names = tuple(receipt["id"] for receipt in receipts)
    wrong: list[str] = []
    for number, receipt in enumerate(receipts, start=1):
        booked = await brief.use("find_transaction", receipt=receipt["id"])
        cents = booked["cents"] if booked else None
        if cents != receipt["gross_cents"]:
            wrong.append(f"{receipt['id']} says {euros(receipt['gross_cents'])}, the bank {euros(cents)}")
        so_far = Answer([*wrong], finished=names[:number], unfinished=names[number:])
        brief.progress(f"{number} of {len(names)}", partial=so_far)
    return Answer(wrong, finished=names)


def euros(cents: int | None) -> str:
    return "nothing" if cents is None else f"{cents / 100:,.2f} EUR"


def listed(cents: dict[str, int]) -> str:
    return ", ".join(f"{category} {amount / 100:.2f}" for category, amount in cents.items()) + " EUR"
