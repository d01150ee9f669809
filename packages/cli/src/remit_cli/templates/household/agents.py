"""A small team that goes through receipts: plain functions and no model, so that it runs anywhere."""

import asyncio
import csv
import os
import re
from calendar import month_name
from pathlib import Path
from typing import Any

from remit import Answer, Brief, Code, RemitError

HERE = Path(__file__).parent

Receipt = dict[str, Any]

# What a word on a receipt says about it, and the part of the value-added tax on it that may be claimed back.
CATEGORIES = {
    "travel": ("train", "hotel"),
    "meals": ("lunch", "coffee"),
    "office": ("paper", "monitor"),
    "services": ("server",),
    "books": ("handbook",),
}
CLAIMABLE_PERCENT = {"travel": 100, "meals": 70, "office": 100, "services": 100, "books": 100}
TRIP = ("2026-03-01", "2026-03-04")


# ── tools ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def open_receipts(month: str) -> list[Receipt]:
    """Return the receipts of a month, given as 2026-03."""
    receipts = [row for row in _rows("receipts.csv") if row["date"].startswith(month)]
    return [{**row, "gross_cents": int(row["gross_cents"]), "vat_percent": int(row["vat_percent"])} for row in receipts]


async def find_transaction(receipt: str) -> dict[str, Any] | None:
    """Ask the bank what was booked for a receipt; the bank takes its time."""
    await asyncio.sleep(0.1)
    transaction = next((row for row in _rows("transactions.csv") if row["receipt"] == receipt), None)
    return {**transaction, "cents": int(transaction["cents"])} if transaction else None


def open_bills() -> list[dict[str, str]]:
    """Return the bills that nobody has paid."""
    return _rows("bills.csv")


def pay(amount: float, iban: str, to: str) -> None:
    """Pay from the account of the household."""
    did(f"paid {amount:.2f} EUR to {to}, {iban[:2]}…{iban[-4:]}")


def _rows(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# ── agents ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def document_reader(brief: Brief) -> Answer:
    if brief.capability == "TRIP_RECEIPTS":
        return Answer(trip("receipts.csv", "gross_cents"), confidence=0.9)
    receipts = await brief.use("open_receipts", month=month_in(brief.text))
    for receipt in receipts:
        think(brief, receipt)
    did("read the receipts")
    return Answer(receipts, confidence=0.9)


async def bank_desk(_: Brief) -> Answer:
    return Answer(trip("transactions.csv", "cents"), confidence=0.9)


async def diary_reader(_: Brief) -> Answer:
    # Written down in the evening, from memory.
    return Answer(trip("diary.csv", "cents"), confidence=0.3)


async def categoriser(brief: Brief) -> Answer:
    did("sorted them")
    return Answer([{**each, "category": category_of(brief, each)} for each in brief.input], confidence=0.9)


async def analyst(brief: Brief) -> Answer:
    match brief.capability:
        case "RECEIPTS_EXPLAIN":
            return Answer([explain(brief, receipt) for receipt in await sorted_receipts(brief)])
        case "BANK_COMPARE":
            return await compare(brief, await sorted_receipts(brief))
        case "RECEIPTS_NET":
            receipts = await sorted_receipts(brief)
            # It is the tax specialist that wants to know: this would make it ask itself.
            reply = await brief.delegate("tax-specialist", capability="TAX_WORK_OUT", input=receipts)
            gross = () if reply.ok else ("These are gross amounts; the tax in them is not known.",)
            return Answer(totals(brief, receipts), confidence=0.7, warnings=gross)
        case _:
            return Answer(totals(brief, brief.input), confidence=0.9)


async def tax_specialist(brief: Brief) -> Answer:
    match brief.capability:
        case "TAX_DEDUCT":
            reply = await brief.delegate("analyst", capability="RECEIPTS_NET", input=brief.input)
            return Answer(reply.result, confidence=reply.confidence, warnings=reply.warnings)
        case "TAX_FILE":
            return Answer(file_claim(brief), confidence=1.0)
        case "TAX_CONFIRM":
            return await confirm(brief)
        case _:
            cents = sum(claimable_cents(brief, receipt) for receipt in as_decided(brief))
            did("worked out the tax")
            return Answer({"cents": cents}, confidence=0.8)


async def bookkeeper(brief: Brief) -> Answer:
    results: list[str] = []
    for bill in await brief.use("open_bills"):
        what = f"{bill['euros']} EUR to {bill['vendor']}"
        try:
            await brief.use("pay", amount=float(bill["euros"]), iban=bill["iban"], to=bill["vendor"])
        except RemitError as error:
            if error.fault.code is not Code.APPROVAL_DECLINED:
                raise
            results.append(f"{what} was not paid: you declined it.")
        else:
            results.append(f"{what} was paid.")
    return Answer(results, confidence=1.0)


# ── what they compute ─────────────────────────────────────────────────────────────────────────────────────────────────


def think(brief: Brief, receipt: Receipt) -> None:
    """Meter what a model would have read, at about four characters to a token."""
    brief.spend(prompt=len(str(receipt)) // 4, estimated=True)


def month_in(text: str) -> str:
    """Return the month that a text names, as 2026-03; else the newest one that there are receipts of."""
    if match := re.search(r"\b(\d{4}-\d{2})\b", text):
        return match[1]
    newest = max(row["date"] for row in _rows("receipts.csv"))[:7]
    words = re.findall(r"\b(?:in|for|of|from) (\w+)", text.lower())
    named = next((place for place, name in enumerate(month_name) if name.lower() in words), None)
    return newest if named is None else f"{newest[:4]}-{named:02}"


def trip(name: str, cents: str) -> dict[str, str]:
    """Return what a source says of the trip."""
    first, last = TRIP
    rows = [row for row in _rows(name) if first <= row["date"] <= last]
    return {row["what"].split()[0]: euros(int(row[cents])) for row in rows}


async def sorted_receipts(brief: Brief) -> list[Receipt]:
    receipts = await brief.use("open_receipts", month=month_in(brief.text))
    return [{**receipt, "category": category_of(brief, receipt)} for receipt in receipts]


def category_of(brief: Brief, receipt: Receipt) -> str:
    think(brief, receipt)
    words = receipt["what"].split()
    return next(category for category, known in CATEGORIES.items() if any(word in known for word in words))


def totals(brief: Brief, receipts: list[Receipt]) -> dict[str, str]:
    cents = dict.fromkeys(CATEGORIES, 0)
    for receipt in receipts:
        think(brief, receipt)
        cents[receipt["category"]] += receipt["gross_cents"]
    return {category: euros(amount) for category, amount in cents.items()}


def as_decided(brief: Brief) -> list[Receipt]:
    """Return the receipts with the amounts that the user decided on, where sources disagreed about the trip."""
    matches = (re.match(r"(\w+): ([\d.]+) EUR counts", note.text) for note in brief.known)
    decided = {each[1].lower(): round(float(each[2]) * 100) for each in matches if each}
    return [
        {**each, "gross_cents": decided.get(each["what"].split()[0], each["gross_cents"])}
        if each["date"] <= TRIP[1]
        else each
        for each in brief.input
    ]


def claimable_cents(brief: Brief, receipt: Receipt) -> int:
    think(brief, receipt)
    rate = receipt["vat_percent"]
    vat = receipt["gross_cents"] * rate / (100 + rate)
    return round(vat * CLAIMABLE_PERCENT[receipt["category"]] / 100)


def file_claim(brief: Brief) -> dict[str, str]:
    """Find the account in what the user said, check it as a bank does, and file the claim."""
    match = re.search(r"DE\d{2}(?: ?\d){18}", brief.input["account"])
    account = match[0].replace(" ", "") if match else ""
    moved = account[4:] + account[:4]
    if int("".join(str(int(sign, 36)) for sign in moved) or 0) % 97 != 1:
        raise ValueError("there is no such account")
    did("filed the claim")
    return {"amount": euros(brief.input["cents"]), "account": account}


async def confirm(brief: Brief) -> Answer:
    """Wait for the tax office, and repeat what one was told, as models do."""
    did("asked the tax office")
    await opened()
    claim, (*_, last) = brief.input["claim"], re.split(r"(?<=\.) ", brief.input["contact"])
    paid = f"{claim['amount']} of tax will be paid to {claim['account']}."
    return Answer(f"{paid} The tax office was told: “{last}”", confidence=0.95)


def explain(brief: Brief, receipt: Receipt) -> str:
    text = f"{receipt['what']} at {receipt['vendor']} is {receipt['category']}"
    brief.spend(prompt=len(str(receipt)) // 4, completion=4 * len(text), estimated=True)
    return text


async def compare(brief: Brief, receipts: list[Receipt]) -> Answer:
    """Compare each receipt with the bank, and report after each what is known so far."""
    names = tuple(receipt["what"] for receipt in receipts)
    wrong: list[str] = []
    for number, receipt in enumerate(receipts, start=1):
        booked = await brief.use("find_transaction", receipt=receipt["id"])
        cents = booked["cents"] if booked else None
        if cents != receipt["gross_cents"]:
            says = f"the receipt says {euros(receipt['gross_cents'])}, the bank {euros(cents)}"
            wrong.append(f"{receipt['what']}: {says}")
        so_far = Answer([*wrong], finished=names[:number], unfinished=names[number:])
        brief.progress(f"{number} of {len(names)} receipts compared", partial=so_far)
    return Answer(wrong, finished=names)


def euros(cents: int | None) -> str:
    return "nothing" if cents is None else f"{cents / 100:,.2f} EUR"


# ── for those who watch ───────────────────────────────────────────────────────────────────────────────────────────────

# In the folder that this names, what was really done is noted, and the tax office is closed as long as a file says so.
DESK = Path(os.environ["RECEIPTS_DESK"]) if "RECEIPTS_DESK" in os.environ else None
DONE, CLOSED = "done.txt", "tax-office-is-closed"


async def opened() -> None:
    while DESK is not None and (DESK / CLOSED).exists():  # noqa: ASYNC110 - it is another process that opens it
        await asyncio.sleep(0.02)


def did(what: str) -> None:
    if DESK is not None:
        with (DESK / DONE).open("a", encoding="utf-8") as file:
            file.write(f"{what}\n")
