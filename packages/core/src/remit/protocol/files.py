"""Files that travel with a request or an answer: content, or the address of content that nobody fetches."""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

# More than one message has in practice; it limits what a peer can make a hub look at.
MAX_FILES = 16
# A photograph, some pages of a document. An envelope has at most 4 MiB, and as base64 a file takes a third more.
MAX_FILE_BYTES = 1024 * 1024
MAX_FILE_NAME = 200
MAX_URL = 4_000
MAX_MEDIA_TYPE = 127
# What is left of an envelope of 4 MiB for its files, before base64: the rest of it needs some room, too.
MAX_FILES_BYTES = 2_900_000

MAX_FILES_JSON = 4 * (MAX_FILES_BYTES + 2 * MAX_FILES) // 3

OCTETS = "application/octet-stream"

# No separators, no control characters, no characters that change the direction of a text, no `.` and `..`.
_NAME = r"^(?!\.{1,2}\Z)[^/\\\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+\Z"
_TYPE = r"^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]*\Z"
_URL = r"^[^\s\x00-\x20\x7f-\x9f]+\Z"

FileName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_FILE_NAME,
        pattern=_NAME,
        extra={"rule": f"a file name has 1 to {MAX_FILE_NAME} characters, without / and \\ and control characters"},
    ),
]
MediaType = Annotated[
    str,
    Meta(
        max_length=MAX_MEDIA_TYPE,
        pattern=_TYPE,
        extra={"rule": "expected a media type without parameters: `image/png`"},
    ),
]
FileUrl = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_URL,
        pattern=_URL,
        extra={"rule": f"a URL has at most {MAX_URL} characters, and no spaces"},
    ),
]
FileContent = Annotated[
    bytes,
    Meta(
        max_length=MAX_FILE_BYTES,
        extra_json_schema={"pattern": "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"},
        extra={"rule": f"expected base64 of at most {MAX_FILE_BYTES} bytes; send a larger file as a `url`"},
    ),
]

_NOT_IN_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

# Few requests have files: compiled at the first one.
_TEXTUAL = r"(?i)(?:text|message|multipart)/.*|.*\+(?:json|xml)|application/(?:json|xml|yaml|sql|csv|javascript)"
_MEDIA = ("image/", "audio/", "video/", "font/")
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
# No text has these; tab, line ends, form feed and escape are in logs and scripts.
_CONTROL = bytes(byte for byte in range(32) if byte not in b"\t\n\r\f\x1b") + b"\x7f"


class File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A file: its name, its media type, and either its content or a URL.

    A URL is a reference. It is passed on as it is: no hub ever fetches it.
    """

    name: FileName
    """Its name, without a folder."""
    media_type: MediaType = OCTETS
    """Its media type."""
    data: FileContent | None = None
    """The content; base64 in JSON."""
    url: FileUrl | None = None
    """Where it is; never fetched by a hub."""

    def __post_init__(self) -> None:
        if (self.data is None) is (self.url is None):
            raise ValueError("a file has either `data` or a `url`")

    @classmethod
    def of(cls, value: object) -> "File":
        """Return a file from plain JSON, with its content as base64; raise a `ValueError` if it is not one."""
        return msgspec.convert(value, cls)

    @property
    def size(self) -> int:
        """The number of bytes that are here; 0 for a URL."""
        return 0 if self.data is None else len(self.data)

    @property
    def text(self) -> str | None:
        """The content as text, if its media type or the content itself says that it is text; None for all else."""
        if self.data is None or not _is_text(self.media_type, self.data):
            return None
        return self.data.decode(_encoding(self.data))

    def with_text(self, text: str) -> bytes:
        """Return the content that this file has with another text, in its own encoding."""
        data = self.data or b""
        return text.encode(_encoding(data), errors="replace")


def _only(field: str, other: str) -> dict[str, object]:
    return {"required": [field], "properties": {field: {"type": "string"}, other: {"type": "null"}}}


_ONE_OF = Meta(extra_json_schema={"oneOf": [_only("data", "url"), _only("url", "data")]})
Files = Annotated[tuple[Annotated[File, _ONE_OF], ...], Meta(max_length=MAX_FILES)]


def is_file_name(text: str) -> bool:
    """Return whether a text can be the name of a file."""
    return len(text) <= MAX_FILE_NAME and re.match(_NAME, text) is not None


def is_file_url(text: str) -> bool:
    """Return whether a text can be the URL of a file."""
    return len(text) <= MAX_URL and re.match(_URL, text) is not None


def safe_name(text: str, fallback: str) -> str:
    """Return a foreign text as the name of a file: the last part of a path, without control characters."""
    if is_file_name(text):
        return text
    name = _NOT_IN_NAMES.sub("", re.split(r"[/\\]", text)[-1])[:MAX_FILE_NAME].strip()
    return name if is_file_name(name) else fallback


def safe_type(text: str) -> str:
    """Return a foreign text as a media type without parameters; that of plain bytes if it is not one."""
    name = text.partition(";")[0].strip()
    return name if len(name) <= MAX_MEDIA_TYPE and re.match(_TYPE, name) else OCTETS


def _is_text(media_type: str, data: bytes) -> bool:
    """Return whether a file is read as text: searched for personal data, and counted in tokens.

    There are too many types of text to list: scripts, mails, keys. What can be read as text is text, unless its type
    says that it is a picture, a sound, a film or a font.
    """
    if re.fullmatch(_TEXTUAL, media_type) is not None:
        return True
    if media_type.lower().startswith(_MEDIA) or not data:
        return False
    if data.startswith(_UTF_16):
        return _encoding(data) == "utf-16"
    return len(data.translate(None, _CONTROL)) == len(data) and _encoding(data) == "utf-8"


def _encoding(data: bytes) -> str:
    """Return the encoding of a text: UTF-8, UTF-16 if it says so, or one in which every byte is a character."""
    for name in ("utf-16",) if data.startswith(_UTF_16) else ("utf-8",):
        try:
            data.decode(name)
        except UnicodeDecodeError:
            continue
        return name
    return "latin-1"


def texts_of(files: Iterable[File]) -> tuple[str, ...]:
    """Return the texts in files that are text."""
    return tuple(text for file in files if (text := file.text) is not None)


def encoded_size(files: Iterable[object]) -> int:
    """Return how many bytes of JSON the contents of files take; what is no file has none."""
    return sum(4 * ((file.size + 2) // 3) for file in files if isinstance(file, File))


def fitting(files: Sequence[File]) -> tuple[tuple[File, ...], tuple[str, ...]]:
    """Return as many of the files, from the first on, as one envelope holds, and a warning about the others."""
    kept: list[File] = []
    left = MAX_FILES_BYTES
    for file in files[:MAX_FILES]:
        left -= file.size
        if left < 0:
            break
        kept.append(file)
    missing = len(files) - len(kept)
    most = f"at most {MAX_FILES} files, of {MAX_FILES_BYTES} bytes in all, fit into one answer"
    return tuple(kept), (f"{missing} of {len(files)} files are left out: {most}",) if missing else ()
