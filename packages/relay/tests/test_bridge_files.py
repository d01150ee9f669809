"""Files of a folder that are read for a local agent: what is given out, and what never is."""

import os
from pathlib import Path

import pytest

from remit_relay.bridge import acp_link
from remit_relay.bridge.acp_link import FolderReader, UnreadableError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "project"
    (inside / "src").mkdir(parents=True)
    (inside / "src" / "a.py").write_text("one\ntwo\nthree\n")
    (tmp_path / "outside.txt").write_text("not for you")
    return inside


def refusal(folder: Path, path: object) -> str:
    with pytest.raises(UnreadableError) as caught:
        FolderReader(str(folder)).read(str(path))
    return str(caught.value)


def test_a_text_is_read_whole_or_by_its_lines(folder: Path) -> None:
    path = str(folder / "src" / "a.py")
    reader = FolderReader(str(folder))
    assert reader.read(path) == "one\ntwo\nthree\n"
    assert reader.read(path, line=2) == "two\nthree\n"
    assert reader.read(path, line=2, limit=1) == "two\n"
    assert reader.read(path, line=0, limit=1) == "one\n"
    assert reader.read(path, line=9) == ""
    assert reader.read(path, limit=0) == ""
    assert reader.read(path, line=2**70, limit=2**70) == reader.read(path, limit=-1) == ""


def test_a_folder_that_is_itself_behind_a_link_is_read_by_either_name(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "way").symlink_to(folder)
    reader = FolderReader(str(tmp_path / "way"))
    for each in (tmp_path / "way", folder):
        assert reader.read(str(each / "src" / "a.py"), limit=1) == "one\n"


def test_nothing_outside_of_the_folder_is_read(folder: Path, tmp_path: Path) -> None:
    only = f"only files in {folder} can be read"
    assert refusal(folder, tmp_path / "outside.txt") == only
    assert refusal(folder, f"{folder}-else/a.py") == only
    assert refusal(folder, folder) == only
    assert refusal(folder, "/etc/passwd") == only
    assert refusal(folder, f"{folder}/../outside.txt") == "the path must not contain .."
    assert refusal(folder, f"{folder}/src/../src/a.py") == "the path must not contain .."
    assert refusal(folder, "src/a.py") == "the path must be absolute"
    assert refusal(folder, f"{folder}/src/a.py\0") == "the path must be absolute"


def test_no_link_is_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    (folder / "up").symlink_to(tmp_path)
    (folder / "same").symlink_to(folder / "src")
    for path, name in (("link.txt", "link.txt"), ("up/outside.txt", "outside.txt"), ("same/a.py", "a.py")):
        assert refusal(folder, folder / path) == f"cannot read {name}: symbolic links are not followed"


def test_hidden_files_are_not_read(folder: Path) -> None:
    """The device's own keys lie in a hidden folder beside the team file."""
    (folder / ".remit").mkdir()
    (folder / ".remit" / "device.key").write_text("key")
    (folder / ".env").write_text("KEY=1")
    for path in (".env", ".remit/device.key"):
        assert refusal(folder, folder / path) == "hidden files cannot be read"


def test_only_texts_of_some_length_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "image").write_bytes(b"\x89PNG\xff")
    assert refusal(folder, folder / "pipe") == "pipe is not a file"
    assert refusal(folder, folder / "src") == "src is not a file"
    assert refusal(folder, folder / "image") == "image is not UTF-8 text"
    assert refusal(folder, folder / "none.txt") == "cannot read none.txt: No such file or directory"
    monkeypatch.setattr(acp_link, "MAX_BYTES", 13)
    assert refusal(folder, folder / "src" / "a.py") == "a.py is larger than the limit of 13 bytes"
    monkeypatch.setattr(acp_link, "MAX_BYTES", 14)
    assert FolderReader(str(folder)).read(str(folder / "src" / "a.py")) == "one\ntwo\nthree\n"
