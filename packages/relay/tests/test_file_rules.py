"""The files that may travel with a message: their names, number, sizes and types."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.protocol.errors import Code
from remit.words.file_types import guessed, is_among, mismatch
from remit_relay.session.profile import (
    MAX_FILES,
    MAX_TOTAL,
    AttachedFile,
    FileRules,
    name_problem,
    refused_file,
    refused_files,
)

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
PDF = b"%PDF-1.7\n"
ELF = b"\x7fELF\x02\x01\x01\x00"
RULES = FileRules(types=("text/*", "image/png"), max_size=100, max_count=2)


def file(name: str = "notes.txt", media_type: str = "text/plain", data: bytes = b"hello") -> AttachedFile:
    return AttachedFile(name=name, media_type=media_type, data=data)


def test_without_types_no_file_may_travel() -> None:
    why = refused_file(FileRules(), file(), who="the profile mine")
    assert why is not None
    assert why.code is Code.PERMISSION_DENIED
    assert why.message == "the file 'notes.txt' is refused: the profile mine allows no attachments"


def test_what_the_rules_name_may_travel() -> None:
    assert refused_files(RULES, [file(), file("a.png", "image/png", PNG)], who="it") is None


@pytest.mark.parametrize(
    ("attached", "code", "says"),
    [
        (file(data=b"x" * 101), Code.TOO_LARGE, "it has 101 bytes, and the profile mine allows at most 100"),
        (file("a.pdf", "application/pdf", PDF), Code.PERMISSION_DENIED, "it is application/pdf, and the profile mine"),
        (file(media_type="text/plain", data=PNG), Code.INPUT_VALIDATION_FAILED, "its content is image/png"),
        (file("a.png", "image/png", ELF), Code.INPUT_VALIDATION_FAILED, "its content is application/x-executable"),
        (file("a.png", "image/png", b"hello"), Code.INPUT_VALIDATION_FAILED, "its content is a text"),
        (file(data=b"\x00\x01"), Code.INPUT_VALIDATION_FAILED, "its content is binary data"),
        (file(media_type="text/html; charset=x"), Code.INPUT_VALIDATION_FAILED, "no valid media type"),
        (file(media_type="*/*"), Code.INPUT_VALIDATION_FAILED, "no valid media type"),
    ],
)
def test_a_refusal_names_the_file_and_the_rule(attached: AttachedFile, code: Code, says: str) -> None:
    why = refused_file(RULES, attached, who="the profile mine")
    assert why is not None
    assert why.code is code
    assert repr(attached.name) in why.message
    assert says in why.message


def test_there_are_limits_for_the_number_and_the_sum_of_files() -> None:
    three = [file(f"{number}.txt") for number in range(3)]
    assert "allows at most 2 files in a message" in str(refused_files(RULES, three, who="the profile mine"))
    large = FileRules(types=("*/*",), max_size=MAX_TOTAL, max_count=MAX_FILES)
    half = b"x" * (MAX_TOTAL // 2 + 1)
    assert "the files of a message have at most" in str(
        refused_files(large, [file("1", data=half), file("2", data=half)], who="it")
    )
    many = [file(str(number)) for number in range(MAX_FILES + 1)]
    assert f"the limit is {MAX_FILES}" in str(refused_files(large, many, who="it"))


@pytest.mark.parametrize("other", ["notes.txt", "NOTES.TXT", "nötes.txt", "no\u0308tes.txt"])
def test_two_files_of_a_message_never_share_a_name(other: str) -> None:
    first = "nötes.txt" if "t" in other and not other.isascii() else "notes.txt"
    assert "another one has the same name" in str(refused_files(RULES, [file(first), file(other)], who="it"))


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../secret",
        "/etc/passwd",
        "..\\secret",
        "C:\\x",
        "C:x",
        "a/b",
        ".bashrc",
        "-rf",
        "~root",
        " a",
        "a ",
        "a.",
        "a\nb",
        "a\x00b",
        "a\x1b[2Jb",
        "gpj.\u202eexe",
        "a\u200bb",
        "a\u2028b",
        "a\ud800b",
        "NUL",
        "com1.txt",
        "a" * 256,
        "ä" * 128,
    ],
)
def test_a_name_with_a_path_or_with_tricks_is_refused(name: str) -> None:
    assert name_problem(name) is not None


@pytest.mark.parametrize("name", ["a", "Größe 2.txt", "report (final).pdf", "a..b", "数据.csv", "a" * 255])
def test_a_plain_name_is_taken(name: str) -> None:
    assert name_problem(name) is None


@given(st.text(max_size=20))
def test_no_name_that_is_taken_leaves_its_folder(name: str) -> None:
    if name_problem(name) is None:
        assert "/" not in name
        assert "\\" not in name
        assert name not in (".", "..")
        assert name.isprintable()


@given(st.binary(max_size=64), st.text(max_size=10))
def test_a_guessed_type_fits_the_content(data: bytes, name: str) -> None:
    assert mismatch(guessed(name, data), data) is None


@pytest.mark.parametrize(
    ("name", "data", "media_type"),
    [
        ("a.png", PNG, "image/png"),
        ("a.txt", PNG, "image/png"),
        ("a.md", b"# hello", "text/markdown"),
        ("a.json", b"{}", "application/json"),
        ("a.docx", b"PK\x03\x04\x14\x00", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("a.zip", b"PK\x03\x04\x14\x00", "application/zip"),
        ("a.tar.gz", b"\x1f\x8b\x08\x00", "application/gzip"),
        ("README", b"read me", "text/plain"),
        ("about.txt", b"ID3 is a tag", "text/plain"),
        ("data", b"\x00\x01\x02", "application/octet-stream"),
        ("a.webp", b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        ("a.mp4", b"\x00\x00\x00\x18ftypisom", "video/mp4"),
        ("a.avif", b"\x00\x00\x00\x18ftypavif", "image/avif"),
        ("a.bin", b"MZ\x90\x00\x03", "application/x-msdownload"),
        ("empty.txt", b"", "text/plain"),
    ],
)
def test_the_type_comes_from_the_content_and_then_from_the_name(name: str, data: bytes, media_type: str) -> None:
    assert guessed(name, data) == media_type


def test_an_unknown_type_is_refused_if_the_content_is_of_a_known_one() -> None:
    assert mismatch("image/x-unheard-of", ELF) == "application/x-executable"
    assert mismatch("image/x-unheard-of", b"\x00\x01") is None
    assert mismatch("application/octet-stream", ELF) is None
    assert mismatch("video/mp4", b"\x00\x00") == "of another type"


def test_patterns_of_types_cover_a_kind_or_everything_and_nothing_else() -> None:
    assert is_among("image/png", ("image/*",))
    assert is_among("image/png", ("*/*",))
    assert not is_among("image/png", ("image/jpeg", "text/*", "*", "i*/png", "[i]mage/png"))
