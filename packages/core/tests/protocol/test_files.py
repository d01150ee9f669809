"""Files of requests and answers: valid names and types, content or a URL, and limits."""

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.protocol.codec import checked, decode_submission, digest, encode
from remit.protocol.envelope import Answer
from remit.protocol.errors import RemitError
from remit.protocol.files import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_FILES_BYTES,
    File,
    encoded_size,
    fitting,
    is_file_name,
    is_file_url,
    safe_name,
    safe_type,
    texts_of,
)
from remit.protocol.records import outline
from samples import a_request, a_response

PICTURE = File(name="receipt.png", media_type="image/png", data=b"\x89PNG\r\n")
LINK = File(name="report.pdf", media_type="application/pdf", url="https://example.org/report.pdf")


def problem_of(file: dict[str, Any]) -> tuple[str, str]:
    """Return the one problem of a submission with this file."""
    with pytest.raises(RemitError) as caught:
        decode_submission(encode({"target": "tag", "files": [file]}))
    (problem,) = caught.value.fault.problems
    return problem.path, problem.message


def test_a_file_is_base64_in_json_and_absent_where_there_is_none() -> None:
    assert b"files" not in encode(a_request())
    sent = encode(a_request(files=(PICTURE, LINK)))
    assert msgspec.json.decode(sent)["files"] == [
        {"name": "receipt.png", "media_type": "image/png", "data": base64.b64encode(b"\x89PNG\r\n").decode()},
        {"name": "report.pdf", "media_type": "application/pdf", "url": "https://example.org/report.pdf"},
    ]
    assert checked(a_request(files=(PICTURE, LINK))).files == (PICTURE, LINK)


def test_a_file_is_read_from_plain_json() -> None:
    for file in (PICTURE, LINK):
        assert File.of(msgspec.to_builtins(file)) == file
    with pytest.raises(ValueError, match="either"):
        File.of({"name": "a"})


def test_a_file_may_be_empty() -> None:
    assert checked(Answer(files=(File(name="empty", data=b""),))).files == (File(name="empty", data=b""),)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\nb", "a\x00", "a\u202eb", "x" * 201])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    assert problem_of({"name": name, "data": ""})[0] == "$.files[0].name"
    assert not is_file_name(name)


@pytest.mark.parametrize("name", ["a", "...", ".env", "Rechnung März.pdf", "[EMAIL:bcdfghjklmnp].txt", "x" * 200])
def test_a_plain_name_is_accepted(name: str) -> None:
    assert decode_submission(encode({"target": "t", "files": [{"name": name, "data": ""}]})).files[0].name == name
    assert is_file_name(name)


@pytest.mark.parametrize("media_type", ["", "png", "image/", "text/plain; charset=utf-8", "a b/c", "x/" + "y" * 126])
def test_a_media_type_has_two_parts_and_no_parameters(media_type: str) -> None:
    assert problem_of({"name": "a", "media_type": media_type, "data": ""})[0] == "$.files[0].media_type"


@pytest.mark.parametrize("url", ["", "https://example.org/a b", "https://example.org/\n", "x" * 4001])
def test_a_url_has_no_spaces_and_is_bounded(url: str) -> None:
    assert problem_of({"name": "a", "url": url})[0] == "$.files[0].url"
    assert not is_file_url(url)


@pytest.mark.parametrize("given", [{}, {"data": "", "url": "https://example.org"}])
def test_a_file_has_either_content_or_a_url(given: dict[str, str]) -> None:
    assert problem_of({"name": "a", **given}) == ("$.files[0]", "a file has either `data` or a `url`")
    with pytest.raises(ValueError, match="either"):
        File(name="a", **{name: each.encode() if name == "data" else each for name, each in given.items()})  # pyright: ignore[reportArgumentType]


def test_a_file_that_is_too_large_or_no_base64_is_named_with_the_limit() -> None:
    too_large = base64.b64encode(bytes(MAX_FILE_BYTES + 1)).decode()
    wrong = ("$.files[0].data", f"expected base64 of at most {MAX_FILE_BYTES} bytes; send a larger file as a `url`")
    assert problem_of({"name": "a", "data": too_large}) == wrong
    assert problem_of({"name": "a", "data": "?"}) == wrong
    largest = File(name="a", data=bytes(MAX_FILE_BYTES))
    assert checked(Answer(files=(largest,))).files == (largest,)


def test_a_request_has_at_most_sixteen_files() -> None:
    assert len(checked(Answer(files=(PICTURE,) * MAX_FILES)).files) == MAX_FILES
    with pytest.raises(RemitError) as caught:
        checked(Answer(files=(PICTURE,) * (MAX_FILES + 1)))
    assert [each.path for each in caught.value.fault.problems] == ["$.files"]


@pytest.mark.parametrize(
    "media_type", ["text/csv", "TEXT/plain", "application/json", "image/svg+xml", "a/b+json", "message/rfc822"]
)
def test_text_is_what_its_media_type_says(media_type: str) -> None:
    assert File(name="a", media_type=media_type, data="Grüße".encode()).text == "Grüße"


@pytest.mark.parametrize("media_type", ["application/x-sh", "application/octet-stream", "application/x-pem-file"])
def test_what_can_be_read_as_text_is_text_whatever_its_type(media_type: str) -> None:
    for encoding in ("utf-8", "utf-16"):
        data = "#!/bin/sh\n\tcurl -u anna:Grüße\n".encode(encoding)
        assert File(name="a", media_type=media_type, data=data).text == "#!/bin/sh\n\tcurl -u anna:Grüße\n"
    for binary in (b"", b"PK\x03\x04", b"\xff\xd8\xff", b"\xff\xfea", b"Gr\xfc\xdfe"):
        assert File(name="a", media_type=media_type, data=binary).text is None, binary
    assert File(name="a", media_type="image/x-odd", data=b"readable").text is None


def test_other_content_has_no_text() -> None:
    assert PICTURE.text is None
    assert File(name="a", media_type="text/plain", url="https://example.org").text is None
    assert texts_of((PICTURE, File(name="a", media_type="text/plain", data=b"hello"), LINK)) == ("hello",)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_text_that_can_be_written_back(data: bytes) -> None:
    file = File(name="a", media_type="text/plain", data=data)
    text = file.text
    assert text is not None
    again = File(name="a", media_type="text/plain", data=file.with_text(text))
    assert again.text == text


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
def test_a_changed_text_keeps_its_encoding(encoding: str) -> None:
    file = File(name="a", media_type="text/plain", data="Grüße an Anna".encode(encoding))
    assert file.text == "Grüße an Anna"
    assert file.with_text("Grüße an Bob") == "Grüße an Bob".encode(encoding)


def test_half_a_character_of_utf_16_is_read_byte_by_byte() -> None:
    assert File(name="a", media_type="text/plain", data=b"\xff\xfea").text == "ÿþa"


def test_a_url_has_no_content() -> None:
    assert (LINK.size, PICTURE.size) == (0, 6)
    assert LINK.with_text("x") == b"x"


def test_what_the_files_take_as_json_is_known_before_they_are_written() -> None:
    files = [File(name="a", data=bytes(size)) for size in range(5)]
    assert encoded_size([*files, "no file"]) == sum(len(base64.b64encode(file.data or b"")) for file in files)


def test_only_as_many_files_are_kept_as_an_envelope_holds() -> None:
    assert fitting([PICTURE] * MAX_FILES) == ((PICTURE,) * MAX_FILES, ())
    most = f"at most {MAX_FILES} files, of {MAX_FILES_BYTES} bytes in all, fit into one answer"
    assert fitting([PICTURE] * 19) == ((PICTURE,) * MAX_FILES, (f"3 of 19 files are left out: {most}",))
    large = File(name="a", data=bytes(MAX_FILE_BYTES))
    kept, _ = fitting([large] * 4)
    assert kept == (large,) * 2
    assert sum(file.size for file in kept) <= MAX_FILES_BYTES
    checked(a_response(files=kept))


def test_a_request_with_another_file_is_another_request() -> None:
    plain, one = a_request(), a_request(files=(PICTURE,))
    assert len({digest(plain), digest(one), digest(a_request(files=(LINK,)))}) == 3


def test_the_outline_of_an_envelope_has_no_files() -> None:
    assert outline(a_request(files=(PICTURE,))) == outline(a_request())
    assert outline(a_response(files=(PICTURE,))) == outline(a_response())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a.png", "a.png"),
        (" a.png", " a.png"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\a b.txt", "a b.txt"),
        ("a\x07\u202eb", "ab"),
        ("", "file-1"),
        ("a/", "file-1"),
        ("a/..", "file-1"),
        ("x" * 300, "x" * 200),
    ],
)
def test_a_foreign_name_is_made_safe(text: str, name: str) -> None:
    assert safe_name(text, "file-1") == name


@pytest.mark.parametrize(
    ("text", "media_type"),
    [
        ("image/png", "image/png"),
        ("Text/Plain; charset=utf-8", "Text/Plain"),
        ("", "application/octet-stream"),
        ("png", "application/octet-stream"),
        (f"x/{'y' * 200}", "application/octet-stream"),
    ],
)
def test_a_foreign_media_type_loses_its_parameters(text: str, media_type: str) -> None:
    assert safe_type(text) == media_type
