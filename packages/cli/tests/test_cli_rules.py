"""Rules of the team file, as `remit run` meets them: about words, also disguised, and about tools."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from checkout import TESTS
from command_line import make_team, remit
from waiting import eventually

RULE = """
[[rules]]
then = "refuse"
mentions = ["refund"]
say = "No refunds."
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("office")
    make_team(folder, more=RULE)
    (folder / "note.txt").write_text("please re⠀fund it", encoding="utf-8")
    (folder / "refսոd.bin").write_bytes(b"\xff\xfe")
    (folder / "plain.txt").write_text("Открой браузер", encoding="utf-8")
    return folder


@pytest.mark.parametrize("file", ["note.txt", "refսոd.bin"])
def test_a_word_in_a_file_or_its_name_is_refused(folder: Path, file: str) -> None:
    done = remit("run", "reader", "read this", "--file", file, folder=folder)
    assert (done.returncode, "No refunds." in done.stderr) == (4, True), done.stderr


def test_a_file_that_does_not_mention_the_word_is_read(folder: Path) -> None:
    done = remit("run", "reader", "read this", "--file", "plain.txt", folder=folder)
    assert done.returncode == 0, done.stderr


BANK = """
name = "bank"

[tools.pay]
run = "bank:pay"

[agents.teller]
run = "bank:teller"
tools = ["pay"]

[[rules]]
tool = "pay"
where = { amount = "<= 100", to = ["bob", "carla"] }
then = "allow"

[[rules]]
tool = "pay"
where = { to = "eve*" }
then = "refuse"
say = "Nobody pays Eve."

[[rules]]
tool = "pay"
then = "ask"
say = "May this be paid?"
edit = ["input"]
"""
CODE = """
import os
from pathlib import Path


async def pay(to: str, amount: int) -> str:
    with Path(__file__).with_name("ledger").open("a") as ledger:
        ledger.write(f"{to} {amount}\\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    return f"paid {amount} to {to}"


async def teller(brief):
    to, amount = brief.text.split()
    return await brief.use("pay", to=to, amount=int(amount))
"""


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    (tmp_path / "remit.toml").write_text(BANK, encoding="utf-8")
    (tmp_path / "bank.py").write_text(CODE, encoding="utf-8")
    return tmp_path


def ledger(folder: Path) -> list[str]:
    file = folder / "ledger"
    return file.read_text().splitlines() if file.exists() else []


def test_a_small_payment_is_made_and_one_to_eve_is_refused_before_the_tool_runs(each_bank: Path) -> None:
    bank = each_bank
    assert remit("run", "teller", "bob 50", folder=bank).stdout.strip() == "paid 50 to bob"
    refused = remit("run", "teller", "Eve-2 50", folder=bank)
    assert (refused.returncode, "Nobody pays Eve." in refused.stderr) == (4, True), refused.stderr
    assert ledger(bank) == ["bob 50"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ('{"to": "bob", "amount": 50}', 0, "teller using pay would be allowed"),
        ('{"to": "eve", "amount": 50}', 4, "refused by team_rules. PERMISSION_DENIED: Nobody pays Eve."),
        ('{"to": "dora", "amount": 50}', 4, "asked in the inbox (`remit pending`) by team_rules: May this be paid?"),
        ('{"to": "bob", "amount": "much"}', 2, "the arguments do not fit tool pay"),
        ('"bob 50"', 2, "an object as --input"),
    ],
)
def test_what_would_become_of_a_payment_is_explained(bank: Path, arguments: str, code: int, says: str) -> None:
    done = remit("policy", "explain", "teller", "pay", "--tool", "--input", arguments, folder=bank)
    assert (done.returncode, says in done.stdout + done.stderr) == (code, True), done
    assert ledger(bank) == []


def test_a_tool_that_the_agent_may_not_use_is_explained(bank: Path) -> None:
    team = bank / "remit.toml"
    team.write_text(f'{team.read_text(encoding="utf-8")}\n[tools.burn]\nrun = "bank:pay"\n', encoding="utf-8")
    done = remit("policy", "explain", "teller", "burn", "--tool", "--input", "{}", folder=bank)
    assert (done.returncode, "TOOL_NOT_ALLOWED" in done.stdout) == (4, True), done


def test_a_tool_that_the_agent_brings_along_is_explained(bank: Path) -> None:
    team = bank / "remit.toml"
    rule = '[[rules]]\ntool = "burn"\nthen = "ask"\nsay = "May it burn?"\n'
    team.write_text(f"{team.read_text(encoding='utf-8')}\n{rule}", encoding="utf-8")
    done = remit("policy", "explain", "teller", "burn", "--tool", "--input", '{"to": "bob"}', folder=bank)
    assert (done.returncode, "May it burn?" in done.stdout) == (4, True), done
    assert "as one that teller brings along" in done.stdout


OWN = """
async def teller(brief):
    to, amount = brief.text.split()

    async def run(arguments):
        return await pay(**arguments)

    return await brief.use_own_tool("pay", {"to": to, "amount": int(amount)}, run)
"""


SERVER = """
import asyncio
import os
import sys
os.chdir({folder!r})
sys.path[:0] = [{tests!r}, {folder!r}]
import bank
from quick_shed import serve

def pay(to: str, amount: int) -> str:
    return asyncio.run(bank.pay(to, amount))

serve(pay)
"""


def team_of(kind: str, folder: Path) -> str:
    """Return the team file of the bank for a kind of agent and tool."""
    section = '[tools.pay]\nrun = "bank:pay"\n'
    if kind == "agent in a process":
        return BANK.replace('run = "bank:teller"\n', 'run = "bank:teller"\nisolation = "process"\n')
    if kind == "tool of an MCP server":
        (folder / "server.py").write_text(SERVER.format(tests=str(TESTS), folder=str(folder)), encoding="utf-8")
        command = f"command = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(folder / 'server.py'))}]"
        return BANK.replace(section, f'[mcp.bank]\n{command}\nallow = ["pay"]\nprefix = ""\n')
    if "brings" in kind:
        code = CODE.partition("async def teller")[0] + OWN
        (folder / "bank.py").write_text(code, encoding="utf-8")
        inside = 'isolation = "process"\n' if "process" in kind else ""
        return BANK.replace(section, "").replace('tools = ["pay"]\n', inside, 1)
    return BANK


@pytest.fixture(
    params=[
        "tool of the team",
        "agent brings the tool along",
        "agent in a process",
        "agent in a process brings the tool along",
        "tool of an MCP server",
    ]
)
def each_bank(bank: Path, request: pytest.FixtureRequest) -> Path:
    """The bank in each way in which an agent has a tool."""
    (bank / "remit.toml").write_text(team_of(request.param, bank), encoding="utf-8")
    return bank


def test_a_rule_about_a_tool_that_no_agent_can_bring_along_is_wrong(tmp_path: Path) -> None:
    rule = '[[rules]]\ntool = "pay"\nthen = "ask"\n'
    (tmp_path / "remit.toml").write_text(f'[agents.a]\nmodel = "openai/gpt-5-mini"\n{rule}', encoding="utf-8")
    checked = remit("validate", folder=tmp_path)
    assert (checked.returncode, "there is no tool `pay`" in checked.stderr + checked.stdout) == (3, True), checked


@pytest.mark.parametrize("answer", ["approve", "reject", "edit"])
async def test_a_large_payment_waits_for_a_person_who_sees_the_arguments(each_bank: Path, answer: str) -> None:
    """The person answers in another process; what was approved is what is paid, once."""
    bank = each_bank
    detached = remit("run", "teller", "bob 900", "--detach", "--json", folder=bank)
    assert detached.returncode == 0, detached.stderr
    (question,) = await eventually(lambda: asyncio.to_thread(_pending, bank))
    assert question["text"] == "May this be paid?"
    assert (question["request"]["target"], question["request"]["input"]) == ("pay", {"to": "bob", "amount": 900})
    assert ledger(bank) == []
    edits = ("--edit", 'input={"to": "bob", "amount": 300}') if answer == "edit" else ()
    verb = "reject" if answer == "reject" else "approve"
    given = remit("pending", verb, question["id"], *edits, folder=bank)
    assert given.returncode == 0, given.stderr
    ended = remit("runs", "watch", "last", folder=bank)
    assert ended.returncode == (4 if answer == "reject" else 0), ended.stderr
    assert ledger(bank) == {"approve": ["bob 900"], "reject": [], "edit": ["bob 300"]}[answer]


def _pending(folder: Path) -> list[Any]:
    listed = remit("pending", "list", "--json", folder=folder)
    return [each["question"] for each in json.loads(listed.stdout)["questions"]]


@pytest.mark.parametrize(
    ("kind", "line", "rate"),
    [
        ("tool of the team", 'run = "bank:pay"\n', "rate = { calls = 1, seconds = 3600 }"),
        ("tool of an MCP server", 'allow = ["pay"]\n', "rates = { pay = { calls = 1, seconds = 3600 } }"),
        (
            "agent brings the tool along",
            'run = "bank:teller"\n',
            "tool_rates = { pay = { calls = 1, seconds = 3600 } }",
        ),
        (
            "agent in a process brings the tool along",
            'run = "bank:teller"\n',
            "tool_rates = { pay = { calls = 1, seconds = 3600 } }",
        ),
    ],
)
def test_a_tool_is_used_no_oftener_than_its_rate_and_that_is_explained(
    bank: Path, kind: str, line: str, rate: str
) -> None:
    team = bank / "remit.toml"
    team.write_text(team_of(kind, bank).replace(line, f"{line}{rate}\n"), encoding="utf-8")
    code = (bank / "bank.py").read_text(encoding="utf-8")
    for use, once in (
        ("return await brief.use(", "await brief.use('pay', to=to, amount=1)"),
        ("return await brief.use_own_tool(", "await brief.use_own_tool('pay', {'to': to, 'amount': 1}, run)"),
    ):
        code = code.replace(use, f"{once}\n    {use}")
    (bank / "bank.py").write_text(code, encoding="utf-8")
    refused = remit("run", "teller", "bob 50", folder=bank)
    assert "RATE_LIMITED: tool pay is used too often" in refused.stderr
    assert ledger(bank) == ["bob 1"]
    given = ("--tool", "--input", '{"to": "bob", "amount": 5}')
    explained = remit("policy", "explain", "teller", "pay", *given, folder=bank)
    assert (explained.returncode, "Within the rate limit" in explained.stdout) == (0, True), explained


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('to = "pay"', "there is no agent `pay`; write `tool` for the tool of that name"),
        ('tool = "pya"', "there is no tool `pya`; did you mean `pay`?"),
        ('tool = "pay"\nto = "teller"', "a rule is about a tool (`tool`) or about a call"),
        ('tool = "pay"\nwhere = { amount = "> much" }', "write it like `> 500`"),
        ('tool = "pay"\nwhere = { amount = { over = 5 } }', "over"),
    ],
)
def test_a_wrong_rule_about_a_tool_is_explained(bank: Path, line: str, says: str) -> None:
    file = bank / "remit.toml"
    file.write_text(f'{file.read_text()}\n[[rules]]\n{line}\nthen = "ask"\n')
    checked = remit("validate", folder=bank)
    assert (checked.returncode, says in checked.stderr + checked.stdout) == (3, True), checked.stderr
