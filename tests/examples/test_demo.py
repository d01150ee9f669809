"""The demo is the first thing that a newcomer runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


def demo(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, DEMO],
        cwd=folder,
        env={"PATH": os.environ.get("PATH", os.defpath), "PYTHONWARNINGS": "error", "PYTHONUTF8": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )


def test_the_demo_shows_each_scene_then_the_tree_the_totals_and_the_verdict(tmp_path: Path) -> None:
    done = demo(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for essential in (
        r"calls    orchestrator > document-reader, categoriser, analyst\n",
        r"answer   679\.60 EUR spent, of which 76\.68 EUR of tax can be claimed back",
        r"it saw   Write to me at \[EMAIL:[a-z]{12}\] or call \[PHONE:[a-z]{12}\]; my account is\n +\[IBAN:[a-z]{12}\]",
        r"answer   I will write to the address that you gave me: Write to me at ada\.weber@example\.org",
        r"by       the allow-list, who said yes: `orchestrator -> tax-specialist` is on it",
        r"answer   filed: 76\.68 EUR, to be paid to DE89370400440532013000",
        r"refused  analyst > tax-specialist, LOOP_DETECTED: tax-specialist is already in the chain",
        r"failed   orchestrator > analyst, TOKEN_BUDGET_EXCEEDED: analyst spent \d+ tokens of 900 granted",
        r"timeout  orchestrator > analyst, TIMEOUT: Delegation timeout after 400ms",
        r"answer   \d of 9 checked",
        r"1\. user > orchestrator +success +\d+ +908\n   ├─ document-reader +success +\d+ +286\n",
        r"         └─ tax-specialist +refused +\d+ +0  LOOP_DETECTED",
        r"calls    31: 25 success, 2 partial, 1 failed, 1 timeout, 2 refused",
        r"verdict  the record is whole: \d+ rows, 1 checkpoint, 0 rows after the last",
    ):
        assert re.search(essential, done.stdout), f"{essential} is not in:\n{done.stdout}"
    assert "\033" not in done.stdout


def test_the_demo_can_be_shown_again_on_the_same_record(tmp_path: Path) -> None:
    demo(tmp_path)
    done = demo(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verdict  the record is whole" in done.stdout


def test_the_demo_is_plain_in_a_terminal_without_unicode(tmp_path: Path) -> None:
    done = demo(tmp_path, PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "   |- document-reader" in done.stdout


def test_the_demo_leaves_no_personal_data_behind(tmp_path: Path) -> None:
    """X12: neither the record nor anything beside it holds what the user said of themselves."""
    demo(tmp_path)
    written = b"".join(file.read_bytes() for file in (tmp_path / ".remit").iterdir() if file.is_file())
    assert b"[EMAIL:" in written
    for private in (b"ada.weber", b"901820", b"0532 0130", b"DE89370400440532013000"):
        assert private not in written
