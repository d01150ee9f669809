"""A rule of the team file about words, as `remit run` meets it: also in files, in names, and disguised."""

from pathlib import Path

import pytest

from command_line import make_team, remit

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
