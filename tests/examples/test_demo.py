"""The demo is the first thing that a newcomer runs."""

import asyncio
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from commands import run_program
from remit import Progress, Record, Response
from remit.protocol.codec import text_of
from remit.protocol.records import Approval
from remit.stores.sqlite import SqliteStore
from remit_cli.config.load import load_team

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "demo.py"
TEAM = load_team(ROOT / "packages" / "cli" / "src" / "remit_cli" / "templates" / "household" / "remit.toml", code=False)


class Shown:
    """What one demo printed, and where."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        environment = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONWARNINGS": "error", "PYTHONUTF8": "1"}
        self.done = run_program([sys.executable, str(DEMO)], folder=folder, variables={**environment, **variables})
        assert self.done.returncode == 0, self.done.stdout + self.done.stderr
        self.text = self.done.stdout
        # A machine that gives the demo no time for half a second makes the hub warn of the agent that was running.
        self.errors = [line for line in self.done.stderr.splitlines() if "blocks the event loop" not in line]
        # However its lines are broken.
        self.flowing = " ".join(self.text.split())


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return Shown(tmp_path_factory.mktemp("demo"))


def test_the_demo_tells_its_story_then_the_tree_the_totals_and_the_verdict(shown: Shown) -> None:
    assert (shown.done.returncode, shown.errors) == (0, [])
    for essential in (
        # a chain
        r"Reading the receipts… Sorting them by category… Adding them up… Travel: 272\.20 EUR; Meals: 65\.90 EUR",
        r"each given the result before: document-reader, categoriser, analyst\]",
        # a clarification
        r"Which of these do you want\? Please say the number\. 1\. Compare what the receipts, the bank and your",
        # a fan-out, a conflict in which one source is preferred, and a tie
        r"one answer from what they say: document-reader, bank-desk, diary-reader\]",
        r"or 130\.00 EUR \(Your diary, confidence low\)\. 119\.00 EUR is preferred, because that source is the more",
        r"The sources disagree on lunch: 54\.00 EUR, or 45\.00 EUR\. Which one should count\?",
        r"Ada The bank is right\. Lunch: 45\.00 EUR counts, not 54\.00 EUR\.",
        # a run that was killed, and went on
        r"Waiting for the tax office to confirm it… \[kill -9 \d+: ",
        r"75\.67 EUR of tax will be paid to DE89370400440532013000\.",
        r"filed the claim once, asked the tax office twice\]",
        # personal data
        r"to \[IBAN:[a-z]{12}\]\. I am at \[EMAIL:[a-z]{12}\], \[PHONE:[a-z]{12}\]\.”\]",
        r"The tax office was told: “I am at ada\.weber@example\.org, \+49 30 901820\.”",
        # a payment by a tool, which waits for a person; what was declined was not paid
        r'\[Pay this\? bookkeeper wants to use pay with amount = 249\.5, iban = "DE44500105175407324931", to = "E',
        r'with amount = 249\.5, iban = "LT221010112345678901", to = "Elektro Voss"\]',
        r"\[ada says no: the same again, to another account\]",
        r"249\.50 EUR to Elektro Voss was paid\. - 249\.50 EUR to Elektro Voss was not paid: you declined it\.",
        r"the tool that pays: paid 47\.60 EUR to Cloudhaus, DE…0661; paid 249\.50 EUR to Elektro Voss, DE…4931\]",
        # a loop, a blown budget, a time-out with a partial answer
        r"refused: analyst > tax-specialist, LOOP_DETECTED: tax-specialist is already in the",
        r"failed: close-look > analyst, TOKEN_BUDGET_EXCEEDED: analyst spent \d+ tokens of 900",
        r"timeout: close-look > analyst, TIMEOUT: Delegation timeout after 450ms\]",
        r"What the bank booked: not (finished|done); it took too long\.",
        r"What it was for: not done; it would have cost more than is allowed for it\.",
        # all of it
        r"ada > orchestrator +success +\d+ +916 └─ monthly-report +success +\d+ +916 ├─ document-reader +success",
        r"└─ tax-specialist +refused +\d+ +0 LOOP_DETECTED",
        r"runs 8 of one user, with 30 calls: 25 success, 2 partial, 1 failed, 1 timeout, 1 refused",
        r"audit the record is whole: \d+ rows, \d checkpoints, 0 rows after the last",
    ):
        assert re.search(essential, shown.flowing), f"{essential} is not in:\n{shown.text}"
    assert "\033" not in shown.text
    assert len(shown.text.splitlines()) <= 145, "it is less than three screens"


def test_no_step_that_was_done_before_the_kill_is_done_again(shown: Shown) -> None:
    """K8: by what the agents noted themselves when they did it."""
    done = (shown.folder / ".remit" / "demo-desk" / "done.txt").read_text(encoding="utf-8").splitlines()
    claim = ["read the receipts", "sorted them", "worked out the tax", "filed the claim", "asked the tax office"]
    paid = ["paid 47.60 EUR to Cloudhaus, DE…0661", "paid 249.50 EUR to Elektro Voss, DE…4931"]
    assert done == [*claim, "asked the tax office", *paid]


def test_the_demo_leaves_no_personal_data_behind(shown: Shown) -> None:
    """X12: neither the record nor anything beside it holds what the user said of themselves."""
    written = b"".join(file.read_bytes() for file in (shown.folder / ".remit").rglob("*") if file.is_file())
    assert b"[EMAIL:" in written
    for private in (b"ada.weber", b"901820", b"0532 0130", b"DE89370400440532013000"):
        assert private not in written


def test_the_demo_can_be_shown_again_on_the_same_record_and_without_unicode(shown: Shown) -> None:
    again = Shown(shown.folder, PYTHONIOENCODING="ascii")
    assert (again.done.returncode, again.errors) == (0, [])
    assert "|- document-reader" in again.text
    assert again.text.isascii()
    assert "audit the record is whole" in again.flowing


# ── what users read (K6) ──────────────────────────────────────────────────────────────────────────────────────────────

NAMES = sorted({*TEAM.everyone, *TEAM.capabilities})


def named_in(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return every name of an agent or a workflow, and every code of a capability, with the text that it stands in."""
    patterns = {name: re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])", re.IGNORECASE) for name in NAMES}
    return [(name, text) for text in texts for name, pattern in patterns.items() if pattern.search(text)]


def read_by_users(records: Iterable[Record]) -> Iterator[str]:
    """Yield every text of the events of a run that a user reads: progress, questions, options, answers."""
    for record in records:
        match record.body:
            case Progress(text=text):
                yield text
            case Approval(question=question):
                yield question
            case Response() as response if response.id == response.run:
                yield text_of(response.result)
                yield from (response.summary, *response.warnings, *response.finished, *response.unfinished)
            case _:
                pass


async def recorded(folder: Path) -> list[Record]:
    store = SqliteStore(folder / ".remit" / "demo.db")
    await store.open()
    try:
        records: list[Record] = []
        while page := await store.records(after=records[-1].seq if records else 0):
            records += page
        return records
    finally:
        await store.close()


def test_nothing_that_a_user_reads_names_an_agent_or_a_capability(shown: Shown) -> None:
    """K6: progress, questions, options and answers speak of the work, and not of who does it."""
    texts = list(read_by_users(asyncio.run(recorded(shown.folder))))
    for essential in ("Reading the receipts…", "Pay this?", "Which of these do you want?"):
        assert any(essential in text for text in texts), "what is looked through must be what users read"
    assert sum("Confidence: " in text for text in texts) >= 4
    assert named_in(texts) == []


def test_nothing_that_the_demo_shows_ada_names_an_agent_or_a_capability(shown: Shown) -> None:
    """K6: what is not in brackets."""
    story = shown.text[shown.text.index("\n1. ") : shown.text.index("\nWho asked whom")]
    headings = re.compile(r"^\d\. .*$", re.MULTILINE)
    for_ada = re.sub(r"^ +\[.*?\]$", "", headings.sub("", story), flags=re.MULTILINE | re.DOTALL)
    assert "Travel: 272.20 EUR" in for_ada
    assert named_in([for_ada]) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_name_would_be_found_wherever_it_stood(name: str) -> None:
    """K6: the two tests above can fail."""
    for poisoned in (f"Let me ask {name} for it…", f"- {name.lower()}: done", f"1. {name.upper()}\n2. Something else"):
        assert (name, poisoned) in named_in([poisoned, "Reading the receipts…"])
