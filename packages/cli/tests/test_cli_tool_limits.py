"""Limits on the arguments of tools, as a team meets them: a team file, `remit run`, and a process of its own."""

import json
from pathlib import Path

from command_line import remit

TEAM = """
name = "office"

[store]
durability = "process"

[tools.pay]
run = "office_code:pay"

[agents.boss]
run = "office_code:boss"
tools = ["pay"]
may_call = ["clerk"]

[agents.clerk]
run = "office_code:clerk"
tools = ["pay"]
isolation = "process"

[[rules]]
tool = "pay"
where = { amount = "> 60" }
then = "refuse"
say = "not that much"
"""
CODE = """
from remit import RemitError

def pay(to: str, amount: int = 1) -> str:
    with open("ledger", "a") as ledger:
        ledger.write(f"{to} {amount}\\n")
    return "paid"

async def boss(brief):
    limits = {"pay": {"amount": "<= 100", "to": ["bob", "ann"]}}
    return (await brief.delegate("clerk", objective="Pay", tools=limits)).unwrap()

async def clerk(brief):
    async def one(**given):
        try:
            return await brief.use("pay", **given)
        except RemitError as error:
            return error.fault.message
    return [await one(to="bob", amount=40), await one(to="bob", amount=80), await one(to="bob", amount=400),
            await one(to="eve", amount=4), await one(to="bob")]
"""


def test_a_team_is_held_to_its_rules_and_to_what_a_caller_hands_down(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text(TEAM, encoding="utf-8")
    (tmp_path / "office_code.py").write_text(CODE, encoding="utf-8")
    done = remit("run", "boss", "Pay", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    amount = 'the remit of clerk allows tool pay only where `amount` is "<= 100"'
    to = 'the remit of clerk allows tool pay only where `to` is ["bob","ann"]'
    assert json.loads(done.stdout)["result"] == ["paid", "not that much", amount, to, amount]
    assert (tmp_path / "ledger").read_text() == "bob 40\n"
