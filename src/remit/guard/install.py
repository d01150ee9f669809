"""Puts the guard into the files of coding tools, and takes it out again."""

import os
import shlex
import time
from pathlib import Path

from msgspec import Struct
from msgspec.json import decode, encode

from remit.guard.places import script_of, socket_of
from remit.guard.tools.coding_tool import CodingTool

SCRIPT = """\
#!/bin/sh
# Asks the guard of Remit. With "spawn", nothing starts without its answer; with "meter", the tool goes on.
# --disable: a ~/.curlrc could change or drop the answer, and tools take what they cannot read for a yes.
answer=$(curl --disable --silent --fail --max-time "$3" --unix-socket {socket} \\
  --header 'Content-Type: application/json' --data-binary @- "http://guard/hooks/$1") &&
  {{ printf '%s' "$answer"; exit 0; }}
code=$?
[ "$2" = spawn ] || exit 0
if [ "$code" -eq 22 ]; then
  echo "Remit: the guard could not judge this, so no sub-agent may start. Its log says why." >&2
else
  echo "Remit: the guard does not answer, so no sub-agent may start. To start it: remit guard serve" >&2
fi
exit 2
"""


class Installed(Struct, kw_only=True):
    """What was changed in a file, so that it can be undone byte for byte."""

    tool: str
    path: str
    before: str | None
    """The content before; None: there was no file."""
    after: str
    at_ms: int = 0
    """When it was changed."""


def install(tool: CodingTool, path: Path, folder: Path) -> None:
    """Write the script, and the file of the tool; what was there before is kept in the guard's folder."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    script = script_of(folder)
    script.write_text(SCRIPT.format(socket=shlex.quote(str(socket_of(folder)))), encoding="utf-8")
    script.chmod(0o700)
    before = _content(path)
    known = [each for each in installed(folder) if each.path == str(path)]
    if known and before == known[0].after:
        before = known[0].before
    after = tool.put_in(before, folder)
    others = [each for each in installed(folder) if each.path != str(path)]
    new = Installed(tool=tool.name, path=str(path), before=before, after=after, at_ms=time.time_ns() // 1_000_000)
    _write(_list(folder), encode([*others, new]))
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, after.encode())


def uninstall(tool: CodingTool, path: Path, folder: Path) -> bool:
    """Undo it; return whether the file is as it was, byte for byte. One that was changed since loses the guard only."""
    known = next((each for each in installed(folder) if each.path == str(path)), None)
    now = _content(path)
    is_ours = known is not None and now == known.after
    before = known.before if known is not None and is_ours else None
    if is_ours and before is None:
        path.unlink()
    elif is_ours and before is not None:
        _write(path, before.encode())
    elif now is not None and (rest := tool.take_out(now, folder)) is not None:
        _write(path, rest.encode())
    _write(_list(folder), encode([each for each in installed(folder) if each.path != str(path)]))
    return is_ours


def installed(folder: Path) -> list[Installed]:
    """Return what the guard was put into."""
    try:
        return decode(_list(folder).read_bytes(), type=list[Installed])
    except FileNotFoundError:
        return []


def is_in(tool: CodingTool, path: Path, folder: Path) -> bool:
    """Return whether a file has all of the guard."""
    text = _content(path)
    return text is not None and tool.is_in(text, folder)


def _content(path: Path) -> str | None:
    return path.read_bytes().decode() if path.exists() else None


def _list(folder: Path) -> Path:
    return folder / "installed.json"


def _write(path: Path, content: bytes) -> None:
    """Replace a file in one step, so that nobody ever reads half of it."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_bytes(content)
    if path.exists():
        new.chmod(path.stat().st_mode & 0o777)
    new.replace(path)
