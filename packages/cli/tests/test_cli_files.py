"""`remit run --file`: files are sent, and those of the answer are named and saved without replacing anything."""

import json
from pathlib import Path

import pytest

from crew import remit
from remit.protocol.errors import RemitError
from remit.protocol.files import MAX_FILE_BYTES
from remit_cli.drive.order import save

TEAM = """
name = "office"

[store]
durability = "process"

[agents.keeper]
run = "office_code:keep"

[agents.link]
run = "office_code:link"
"""
CODE = """
from remit import Answer, Brief, File


async def keep(brief: Brief) -> Answer:
    assert all("example.org" not in (file.text or "") for file in brief.files)
    return Answer([[file.name, file.media_type] for file in brief.files], files=brief.files)


async def link(brief: Brief) -> Answer:
    return Answer("there", files=(File(name="b.pdf", media_type="application/pdf", url="https://example.org/b"),))
"""
PNG = b"\x89PNG\r\n\x1a\n\x00\xff"


@pytest.fixture
def office(tmp_path: Path) -> Path:
    folder = tmp_path / "office"
    folder.mkdir()
    (folder / "remit.toml").write_text(TEAM)
    (folder / "office_code.py").write_text(CODE)
    (folder / "a.png").write_bytes(PNG)
    (folder / "letter.txt").write_text("Write to joe@example.org")
    return folder


def test_files_are_sent_and_those_of_the_answer_are_saved(office: Path) -> None:
    sent = ("--file", "a.png", "--file", "letter.txt")
    done = remit(office, "run", "keeper", "Keep these", *sent, "--save", "out/new")
    assert (done.returncode, json.loads(done.stdout)) == (0, [["a.png", "image/png"], ["letter.txt", "text/plain"]])
    assert "File a.png (image/png, 10 bytes) is saved as out/new/a.png" in done.stderr
    assert (office / "out/new/a.png").read_bytes() == PNG
    assert (office / "out/new/letter.txt").read_text() == "Write to joe@example.org", "as its user sent it"


def test_nothing_is_replaced(office: Path) -> None:
    done = remit(office, "run", "keeper", "x", "--file", "a.png", "--file", "a.png", "--save", ".")
    assert done.returncode == 0
    assert sorted(each.name for each in office.glob("a*.png")) == ["a (2).png", "a (3).png", "a.png"]


def test_files_are_named_where_they_are_not_saved(office: Path) -> None:
    done = remit(office, "run", "keeper", "x", "--file", "a.png")
    assert "File a.png (image/png, 10 bytes)\nSave files with --save FOLDER.\n" in done.stderr
    done = remit(office, "run", "link", "x", "--save", "out")
    assert "File b.pdf (application/pdf) is at https://example.org/b\n" in done.stderr
    assert not (office / "out").exists()


def test_one_document_holds_the_files(office: Path) -> None:
    done = remit(office, "run", "keeper", "x", "--file", "a.png", "--json")
    (file,) = json.loads(done.stdout)["files"]
    assert (file["name"], file["media_type"]) == ("a.png", "image/png")


def test_the_answer_of_a_run_in_the_background_is_saved_later(office: Path) -> None:
    begun = remit(office, "run", "keeper", "x", "--file", "letter.txt", "--detach")
    assert begun.returncode == 0, begun.stderr
    done = remit(office, "runs", "answer", begun.stdout.strip(), "--wait", "--save", "out")
    assert done.returncode == 0, done.stderr
    assert (office / "out/letter.txt").read_text() == "Write to joe@example.org"
    wrong = remit(office, "run", "keeper", "x", "--detach", "--save", "out")
    assert (wrong.returncode, "remit runs answer RUN --wait --save FOLDER" in wrong.stderr) == (2, True)


def test_a_file_that_cannot_be_sent_is_named(office: Path) -> None:
    (office / "large").write_bytes(bytes(MAX_FILE_BYTES + 1))
    for arguments, why in (
        (("--file", "none.png"), "cannot read none.png: No such file or directory"),
        (("--file", "large"), f"large has more than {MAX_FILE_BYTES} bytes"),
        (("--file", "a.png") * 17, "17 files; at most 16 can be sent"),
    ):
        done = remit(office, "run", "keeper", "x", *arguments)
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("name", "saved"),
    [
        ("a.png", "a.png"),
        (".profile", "profile"),
        ("...", "file"),
        ('a<b>:"|?*.txt', "a_b______.txt"),
        ("ü" * 200 + ".txt", "ü" * 118 + ".txt"),
        ("no ending", "no ending"),
    ],
)
def test_names_are_made_safe(tmp_path: Path, name: str, saved: str) -> None:
    assert save(name, b"x", tmp_path) == tmp_path / saved
    assert (tmp_path / saved).read_bytes() == b"x"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").symlink_to(tmp_path / "elsewhere")
    assert save("a.txt", b"x", tmp_path) == tmp_path / "a (2).txt"
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RemitError) as caught:
        save("a", b"", tmp_path / "file" / "below")
    assert "cannot save a in" in caught.value.fault.message
