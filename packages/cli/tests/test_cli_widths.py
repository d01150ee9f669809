"""What commands print fits the terminal: no line is too long, and no column is narrower than its words."""

import asyncio
from pathlib import Path

import pytest

from command_line import document, make_team, remit
from remit import Brief, Hub
from remit_cli.config.rules import Rule, guard_of
from remit_cli.show.screen import beside, cells, laid_out, wrapped
from shared_teams import introduce, make_annas, make_bobs
from waiting import eventually

WIDTHS = (46, 80, 120)
TASK = "Agents call agents, and every call is guarded, counted, limited and recorded, whoever asks for it."
WHOLE = (
    ("runs", "list"),
    ("agents", "list"),
    ("agents", "show", "assistant"),
    ("audit", "tail"),
    ("errors",),
    ("errors", "LOOP_DETECTED"),
    ("policy", "guards"),
    ("policy", "explain", "counter", "reader", "Say what this text is about"),
    ("policy", "explain", "user", "assistant", "Say what this text is about"),
    ("keys", "show"),
    ("doctor",),
    ("docs",),
    ("docs", "--search", "token budget"),
)
# A tree has one line for each call, a step shows the beginning of its data, and a checkup says the time.
CUT = (("runs", "tree", "last"), ("runs", "show", "last"), ("runs", "print", "last"), ("doctor", "--all"))


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("office")
    make_team(folder)
    assert remit("run", "assistant", TASK, "--user", "ann", folder=folder).returncode == 0
    assert remit("run", "counter", TASK, "--user", "bob", folder=folder).returncode == 0
    assert remit("keys", "init", folder=folder).returncode == 0
    return folder


def fits(*command: str, folder: Path, whole: bool = True) -> None:
    """Check what a command prints at each width against what it prints into a pipe."""
    plain = remit(*command, folder=folder).stdout
    for width in WIDTHS:
        output = remit(*command, folder=folder, COLUMNS=str(width)).stdout
        # The answer of an agent is printed as it is.
        lines = output.partition("\nAnswer\n")[0].splitlines()
        # A word that is longer than a line, such as a key, stays whole, so that it can be copied.
        assert [line for line in lines if cells(line) > width and len(line.split()) > 1] == []
        if whole:
            # Headings of columns that move below the rows are in small letters there.
            words, shown_words = ({word.rstrip(":") for word in text.lower().split()} for text in (plain, output))
            assert words - shown_words == set()


@pytest.mark.parametrize("command", WHOLE, ids=" ".join)
def test_what_is_printed_fits_and_no_word_is_broken(office: Path, command: tuple[str, ...]) -> None:
    fits(*command, folder=office)


@pytest.mark.parametrize("command", CUT, ids=" ".join)
def test_trees_steps_and_checks_fit(office: Path, command: tuple[str, ...]) -> None:
    fits(*command, folder=office, whole=False)


def test_ids_in_a_narrow_list_can_be_typed(office: Path) -> None:
    listed = remit("runs", "list", folder=office, COLUMNS="46").stdout.splitlines()
    ids = [line.split()[0] for line in listed[1:] if not line.startswith(" ")]
    assert len(ids) == 2
    for each in ids:
        assert document("runs", "show", each, folder=office)["run"].startswith(each)


async def test_pending_questions_fit(tmp_path: Path) -> None:
    rule = Rule(then="ask", to="cashier", say="May the shop pay for the flowers that were ordered in the morning?")
    async with Hub(store=tmp_path / ".remit" / "hub.db", approver="inbox", guards=[guard_of([rule])]) as hub:

        @hub.agent("cashier")
        async def cashier(brief: Brief) -> str:  # pyright: ignore[reportUnusedFunction]
            return brief.objective

        task = asyncio.create_task(hub.ask("cashier", "Pay", user="ann"))
        await eventually(hub.pending)
        for width in WIDTHS:
            output = (await asyncio.to_thread(remit, "pending", "list", folder=tmp_path, COLUMNS=str(width))).stdout
            assert "flowers" in output
            assert max(map(len, output.splitlines())) <= width
        task.cancel()


def test_devices_fit(tmp_path: Path) -> None:
    annas, bobs = make_annas(tmp_path / "anna"), make_bobs(tmp_path / "bob")
    introduce(annas, bobs)
    fits("devices", "list", folder=annas, whole=False)


def test_columns_that_do_not_fit_move_below_their_row() -> None:
    rows = [("7f3a9c", "assistant", "Sort my receipts by month and say what is missing")]
    table = laid_out(("run", "agent", "task"), rows, 30, folds=("agent",))
    assert [line for line, _ in table] == [
        "run",
        "7f3a9c",
        "    agent: assistant",
        "    task: Sort my receipts by",
        "    month and say what is",
        "    missing",
    ]


def test_wide_characters_count_twice() -> None:
    assert wrapped("請求 整理 済み", 6) == ["請求", "整理", "済み"]
    assert beside("task  ", "請求書 整理して", 16) == ["task", "    請求書", "    整理して"]


def test_a_word_that_is_longer_than_a_line_can_be_copied_whole() -> None:
    link = "remit:pair#eyJraW5kIjoicmVtaXQ"
    assert beside("link  ", link, 24) == ["link", link]
    assert [line for line, _ in laid_out(("key", "of"), [(link, "this hub")], 24)] == ["key", link, "    of: this hub"]
