"""The rules for files that travel with a message: their names, number, sizes and types. Pure.

The same rules hold where a file is sent and where it arrives. On arrival nothing that the sender says is believed: the
size is that of the content, and the type must fit it.
"""

import re
from collections.abc import Sequence
from typing import Annotated
from unicodedata import category, normalize

from msgspec import Meta, Struct

from remit.protocol.errors import Code, Fault, fault
from remit.words.components import cut
from remit.words.file_types import is_among, is_type, mismatch

# All files of one message together: as text they take a third more, and a message has at most 16 MiB.
MAX_TOTAL = 8 * 1024 * 1024
# More than anybody sends at once; it limits what a peer can make this device look at.
MAX_FILES = 64
# The longest name that common file systems take, in bytes.
_LONGEST_NAME = 255
_SHOWN = 80
# Not allowed in file names of Windows, and separators elsewhere.
_RESERVED = re.compile(r'[/\\<>:"|?*]')
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)


class FileRules(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which files may travel. Without types, none may."""

    types: Annotated[tuple[Annotated[str, Meta(max_length=200)], ...], Meta(max_length=100)] = ()
    """Media types: `image/png`, `text/*` or `*/*`."""
    # A megabyte: a long text, a photograph, a page of a document.
    max_size: Annotated[int, Meta(ge=1)] = 1_000_000
    """The most bytes of one file."""
    max_count: Annotated[int, Meta(ge=1)] = 4
    """The most files of one message."""


class AttachedFile(Struct, frozen=True, kw_only=True):
    """A file inside a message. It says no size: that is the length of its content."""

    name: str
    media_type: str
    data: bytes


class Attachment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file of a run, without its content."""

    id: str
    name: str
    media_type: str
    size: int
    at_ms: int
    """When it was stored."""
    refused: str = ""
    """Why it was not accepted from the other device; its content was not stored."""


def refused_file(
    rules: FileRules, file: AttachedFile, others: Sequence[AttachedFile | Attachment] = (), *, who: str
) -> Fault | None:
    """Return why a file may not be in a message with *others*; *who* names the place of the rules."""
    shown = repr(cut(file.name, _SHOWN))
    if not rules.types:
        return fault(Code.PERMISSION_DENIED, f"the file {shown} is refused: {who} allows no attachments")
    if (why := name_problem(file.name)) is not None:
        return fault(Code.INPUT_VALIDATION_FAILED, f"the file {shown} is refused: its name {why}")
    if any(_folded(each.name) == _folded(file.name) for each in others):
        return fault(Code.INPUT_VALIDATION_FAILED, f"the file {shown} is refused: another one has the same name")
    if len(others) >= rules.max_count:
        most = f"{rules.max_count} file{'' if rules.max_count == 1 else 's'} in a message"
        return fault(Code.TOO_LARGE, f"the file {shown} is refused: {who} allows at most {most}")
    if len(file.data) > rules.max_size:
        size = f"it has {len(file.data):,} bytes, and {who} allows at most {rules.max_size:,}"
        return fault(Code.TOO_LARGE, f"the file {shown} is refused: {size}")
    if len(file.data) + sum(map(_size, others)) > MAX_TOTAL:
        return fault(
            Code.TOO_LARGE, f"the file {shown} is refused: the files of a message have at most {MAX_TOTAL:,} bytes"
        )
    return _refused_type(rules, file, shown, who)


def refused_files(rules: FileRules, files: Sequence[AttachedFile], *, who: str) -> Fault | None:
    """Return why a message may not have these files; None: it may."""
    if len(files) > MAX_FILES:
        return fault(Code.TOO_LARGE, f"the message has {len(files)} files; the limit is {MAX_FILES}")
    for place, each in enumerate(files):
        if (why := refused_file(rules, each, files[:place], who=who)) is not None:
            return why
    return None


def _refused_type(rules: FileRules, file: AttachedFile, shown: str, who: str) -> Fault | None:
    media_type = file.media_type
    if not is_type(media_type):
        return fault(Code.INPUT_VALIDATION_FAILED, f"the file {shown} is refused: it has no valid media type")
    if not is_among(media_type, rules.types):
        allowed = ", ".join(rules.types[:10])
        return fault(
            Code.PERMISSION_DENIED, f"the file {shown} is refused: it is {media_type}, and {who} allows {allowed}"
        )
    if (content := mismatch(media_type, file.data)) is not None:
        why = f"it is called {media_type}, but its content is {content}"
        return fault(Code.INPUT_VALIDATION_FAILED, f"the file {shown} is refused: {why}")
    return None


def name_problem(name: str) -> str | None:
    """Return why a file may not have this name: it is written to disk under it, on the other device too."""
    if not name or name != name.strip():
        return "is empty, or begins or ends with a space"
    if any(category(char)[0] == "C" or category(char) in ("Zl", "Zp") for char in name):
        return "has control or invisible characters"
    if _RESERVED.search(name):
        return 'has one of / \\ < > : " | ? *'
    if name.startswith((".", "-", "~")) or name.endswith("."):
        return "begins with . - or ~, or ends with ."
    if _DEVICES.fullmatch(name):
        return "is the name of a device on Windows"
    if len(name.encode()) > _LONGEST_NAME:
        return f"has more than {_LONGEST_NAME} bytes"
    return None


def _folded(name: str) -> str:
    """Return a name as file systems compare it that ignore case and forms of letters."""
    return normalize("NFC", name).casefold()


def _size(file: AttachedFile | Attachment) -> int:
    return file.size if isinstance(file, Attachment) else len(file.data)
