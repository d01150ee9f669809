"""`--max-cost` of commands that start a run: an amount of money, in the currency of the team."""

import json
from pathlib import Path

import msgspec
import pytest

from crew import remit
from remit_server.documents.runs import RunDetails

TEAM = """
currency = "EUR"

[agents.writer]
run = "paid:writer"

[prices."acme:small"]
input = 2
output = 10
"""

# Each page costs 0.02 EUR.
CODE = """
from remit import Answer


async def writer(brief):
    for page in range(1, 4):
        brief.spend(completion=2_000, model="acme:small")
        brief.progress(f"page {page}", partial=Answer(page))
    return brief.remit.cost
"""


@pytest.fixture
def paid(tmp_path: Path) -> Path:
    (tmp_path / "remit.toml").write_text(TEAM, encoding="utf-8")
    (tmp_path / "paid.py").write_text(CODE, encoding="utf-8")
    return tmp_path


def test_a_run_stops_at_its_money_and_is_retried_with_more(paid: Path) -> None:
    done = remit(paid, "run", "writer", "Three pages", "--max-cost", "0.03 EUR")
    assert (done.returncode, done.stdout) == (5, "1\n"), done.stderr
    assert "writer spent 0.04 of 0.03 EUR" in done.stderr
    same = remit(paid, "runs", "retry", "last")
    assert (same.returncode, same.stdout) == (5, "1\n"), "a retry keeps the limit of its run"
    more = remit(paid, "runs", "retry", "last", "--max-cost", "0.10 EUR", "--json")
    assert msgspec.json.decode(more.stdout, type=RunDetails).result == 100_000, more.stderr


def test_a_run_in_the_background_has_its_money_too(paid: Path) -> None:
    detached = remit(paid, "run", "writer", "Three pages", "--max-cost", "0.03 EUR", "--detach")
    assert detached.returncode == 0, detached.stderr
    answer = remit(paid, "runs", "answer", "last", "--wait")
    assert (answer.returncode, answer.stdout) == (5, "1\n"), answer.stderr


def test_each_answer_of_a_chat_has_its_money(paid: Path) -> None:
    done = remit(paid, "chat", "writer", "--max-cost", "0.03 EUR", input="a\nb\n/budget\n")
    assert done.returncode == 5
    assert "writer spent 0.04 of 0.03 EUR" in done.stderr
    assert "an answer may take 1,000,000 tokens and 0.03 EUR, 5 min" in done.stderr


def test_the_orchestrator_has_the_money_that_its_request_brings(paid: Path) -> None:
    with (paid / "remit.toml").open("a", encoding="utf-8") as file:
        file.write("\n[orchestrator]\n")
    done = remit(paid, "ask", "Write three pages", "--max-cost", "0.03 EUR", "--jsonl")
    started = json.loads(done.stdout.splitlines()[0])
    assert (started["kind"], started["body"]["remit"]["cost"]) == ("started", 30_000), done.stderr


def test_a_decision_is_explained_with_an_amount(paid: Path) -> None:
    words = ("policy", "explain", "user", "writer", "Three pages")
    assert remit(paid, *words, "--max-cost", "0.03 EUR").returncode == 0
    assert remit(paid, *words, "--max-cost", "3 USD").returncode == 2


@pytest.mark.parametrize("command", [("run", "writer", "x"), ("chat", "writer"), ("runs", "retry", "last")])
@pytest.mark.parametrize(
    ("amount", "why"),
    [
        ("0.50", "expected an amount with its currency, such as \"0.50 USD\", got '0.50'"),
        ("-1 EUR", "expected an amount with its currency"),
        ("1 eur", "expected an amount with its currency"),
        ("0.0000001 EUR", "expected an amount with its currency"),
        ("0.50 USD", "0.50 USD is not in the team's currency; give it in EUR"),
    ],
)
def test_a_wrong_amount_is_an_error_of_usage(paid: Path, command: tuple[str, ...], amount: str, why: str) -> None:
    done = remit(paid, *command, "--max-cost", amount, input="")
    assert done.returncode == 2
    assert "--max-cost" in done.stderr
    assert why in " ".join(done.stderr.split())
