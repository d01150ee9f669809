"""The media types of files: guessed from a name, and checked against the content. Pure."""

import mimetypes
import re
from fnmatch import fnmatchcase
from functools import cache

OCTETS = "application/octet-stream"
_TEXT = "text"
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}", re.ASCII)
_PATTERN = re.compile(r"(\*/\*|[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/(\*|[a-z0-9][a-z0-9!#$&^_.+-]{0,126}))", re.ASCII)

# The first bytes of common types, from their specifications; those in RIFF and MP4 files begin later.
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\x00", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"\x7fELF", "application/x-executable"),
    (b"\xcf\xfa\xed\xfe", "application/x-mach-binary"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (b"ID3", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
)
# Other names for a type with the same first bytes, and types whose files are ZIP archives.
_OTHER_NAMES = {
    "image/jpeg": "image/jpg",
    "application/gzip": "application/x-gzip",
    "application/zip": "application/x-zip-compressed application/java-archive application/epub+zip",
    "application/vnd.sqlite3": "application/x-sqlite3",
    "audio/flac": "audio/x-flac",
    "audio/mpeg": "audio/mp3",
    "audio/x-wav": "audio/wav audio/wave",
    "video/mp4": "audio/mp4 video/quicktime",
    "audio/ogg": "application/ogg video/ogg",
    "video/webm": "video/x-matroska audio/webm",
    "application/x-ole-storage": "application/msword application/vnd.ms-excel application/vnd.ms-powerpoint",
    "application/x-executable": "application/x-sharedlib application/x-pie-executable",
    "application/x-msdownload": "application/vnd.microsoft.portable-executable application/x-dosexec",
}
_SAME = {name: media_type for media_type, names in _OTHER_NAMES.items() for name in names.split()}
_ZIPPED = ("application/vnd.openxmlformats-", "application/vnd.oasis.opendocument.")
# Texts outside of `text/`.
_TEXTUAL = frozenset(
    {
        *("application/json", "application/javascript", "application/sql", "application/toml", "application/yaml"),
        *("application/x-ndjson", "application/x-sh", "application/x-python", "application/xml", "application/x-yaml"),
        "image/svg+xml",
    }
)
_ADDED = (
    ("text/markdown", ".md"),
    ("text/x-diff", ".diff"),
    ("text/x-diff", ".patch"),
    ("application/toml", ".toml"),
    ("application/yaml", ".yaml"),
    ("application/yaml", ".yml"),
    ("application/x-ndjson", ".jsonl"),
    ("text/x-log", ".log"),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", ".docx"),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", ".xlsx"),
    ("application/vnd.openxmlformats-officedocument.presentationml.presentation", ".pptx"),
    ("application/vnd.oasis.opendocument.text", ".odt"),
    ("application/vnd.oasis.opendocument.spreadsheet", ".ods"),
)


@cache
def _by_name() -> mimetypes.MimeTypes:
    """Return the types by endings of names, the same on every machine: the tables of the system differ."""
    known = mimetypes.MimeTypes(filenames=())
    for media_type, ending in _ADDED:
        known.add_type(media_type, ending)
    return known


def is_type(media_type: str) -> bool:
    """Return whether a text is a media type, in lower case and without parameters."""
    return _TYPE.fullmatch(media_type) is not None


def is_among(media_type: str, patterns: tuple[str, ...]) -> bool:
    """Return whether one of the patterns covers a media type."""
    return any(fnmatchcase(media_type, each) for each in patterns if _PATTERN.fullmatch(each))


def guessed(name: str, data: bytes) -> str:
    """Return the media type of a file from its content, and from its name where that fits the content."""
    by_name, encoded = _by_name().guess_type(f"x-{name}", strict=False)
    if by_name and by_name != OCTETS and not encoded and is_type(by_name) and mismatch(by_name, data) is None:
        return by_name
    content = _content(data)
    return "text/plain" if content == _TEXT else content or OCTETS


def mismatch(media_type: str, data: bytes) -> str | None:
    """Return what the content of a file is, if it cannot be of a media type; None: it can.

    Only the first bytes of the common binary types are known, and what a text is: valid UTF-8 without control
    characters. A type that is not known here is refused if the content is of one that is.
    """
    if media_type == OCTETS:
        return None
    content, wanted = _content(data), _SAME.get(media_type, media_type)
    if wanted.startswith(_ZIPPED):
        wanted = "application/zip"
    if wanted.startswith("text/") or wanted in _TEXTUAL or wanted.endswith(("+json", "+xml")):
        return None if content == _TEXT else content or "binary data"
    if wanted in _KNOWN:
        return None if content == wanted else _described_type(content)
    return None if content is None else _described_type(content)


def _described_type(content: str | None) -> str:
    return "a text" if content == _TEXT else content or "of another type"


def _content(data: bytes) -> str | None:
    """Return the type that the first bytes show, `text`, or None if they show none."""
    # A text may begin with `ID3` or `BZh`; a PDF file may be a text.
    if _is_text(data):
        return "application/pdf" if data.startswith(b"%PDF-") else _TEXT
    for magic, media_type in _MAGIC:
        if data.startswith(magic):
            return media_type
    if data[:4] == b"RIFF" and data[8:12] in _RIFF:
        return _RIFF[data[8:12]]
    if data[4:8] == b"ftyp":
        return "image/avif" if data[8:12] == b"avif" else "video/mp4"
    return "application/x-msdownload" if data[:2] == b"MZ" else None


_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/x-wav", b"AVI ": "video/x-msvideo"}
_KNOWN = frozenset(
    {*(media_type for _, media_type in _MAGIC), *_RIFF.values(), "image/avif", "video/mp4", "application/x-msdownload"}
)
# All but tab, line feed, form feed, carriage return and escape (of terminal colours).
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")


def _is_text(data: bytes) -> bool:
    if _CONTROLS.search(data):
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
