"""Puts the guard into the files of coding tools, and takes it out again."""

import os
import shlex
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

from msgspec import Struct
from msgspec.json import decode, encode

from remit.protocol.errors import Code, RemitError, fault
from remit_guard.places import judged_of, script_of, socket_of
from remit_guard.tools.coding_tool import CodingTool
from remit_guard.tools.json_lines import forms

SCRIPT = """\
#!/bin/sh
# Asks the guard of Remit. With "spawn", nothing starts without its answer; with "meter", the tool goes on; with "tool",
# it goes on unless the team has rules about tools.
# --disable: a ~/.curlrc could change or drop the answer, and tools take what they cannot read for a yes.
# --speed-time: while a person is asked, the guard sends spaces; one that hangs sends nothing.
answer=$(curl --disable --silent --fail --max-time "$3" --speed-limit 1 --speed-time 60 --unix-socket {socket} \\
  --header 'Content-Type: application/json' --data-binary @- "http://guard/hooks/$1") &&
  {{ printf '%s' "${{answer#"${{answer%%[! ]*}}"}}"; exit 0; }}
code=$?
case $2 in
  spawn) what='no sub-agent may start' ;;
  tool) [ -e {judged} ] || exit 0; what='no tool may be used: the team has rules about tools' ;;
  *) exit 0 ;;
esac
if [ "$code" -eq 22 ]; then
  echo "Remit: the guard could not judge this, so $what. Its log says why." >&2
else
  echo "Remit: the guard does not answer, so $what. To start it: remit guard serve" >&2
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
    with _alone(folder):
        _write(script_of(folder), _script(folder), 0o700)
        before = _content(path)
        known = next((each for each in installed(folder) if each.path == str(path)), None)
        if known is not None and before == known.after:
            before = known.before
        elif before is not None and has_trace(before, folder):  # it was changed since: undo must not bring ours back
            before = tool.take_out(before, folder)
        after = tool.put_in(before, folder)
        others = [each for each in installed(folder) if each.path != str(path)]
        new = Installed(tool=tool.name, path=str(path), before=before, after=after, at_ms=time.time_ns() // 1_000_000)
        _write(_list(folder), encode([*others, new]), 0o600)
        _write(path, after.encode(), 0o666 & ~_umask())


def uninstall(tool: CodingTool, path: Path, folder: Path) -> bool:
    """Undo it; return whether the file is as it was, byte for byte. One that was changed since loses the guard only."""
    with _alone(folder):
        known = next((each for each in installed(folder) if each.path == str(path)), None)
        now = _content(path)
        is_ours = known is not None and now == known.after
        before = known.before if known is not None and is_ours else None
        if is_ours and before is None:
            path.resolve().unlink()
        elif is_ours and before is not None:
            _write(path, before.encode())
        elif now is not None and has_trace(now, folder):
            rest = tool.take_out(now, folder)
            if rest is None:
                raise RemitError(
                    fault(
                        Code.STATE_CONFLICT,
                        f"{path} was changed since the guard was put in",
                        suggestion="Remove the file yourself if you need none of it.",
                    )
                )
            _write(path, rest.encode())
        _write(_list(folder), encode([each for each in installed(folder) if each.path != str(path)]), 0o600)
        return is_ours


def has_trace(text: str, folder: Path) -> bool:
    """Return whether a content has anything of the guard, also of another version of it."""
    places = (str(script_of(folder)), shlex.quote(str(script_of(folder))), str(socket_of(folder)))
    return any(form in text for place in places for form in forms(place))


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


def script_problem(path: Path, folder: Path) -> str:
    """Say why the script cannot be run that a file names, and what to do; empty: it can, or none is named."""
    script, text = script_of(folder), _content(path)
    if text is None or not any(form in text for form in forms(shlex.quote(str(script)))):
        return ""
    try:
        is_ours = script.read_bytes() == _script(folder) and os.access(script, os.X_OK)
    except OSError:
        is_ours = False
    if not is_ours:
        return f"{script} is missing, or not as this version of Remit writes it\n→ put the guard in again"
    return "" if shutil.which("curl") else "curl was not found: hooks ask the guard by it\n→ install curl"


def _script(folder: Path) -> bytes:
    socket, judged = shlex.quote(str(socket_of(folder))), shlex.quote(str(judged_of(folder)))
    return SCRIPT.format(socket=socket, judged=judged).encode()


def is_traced(path: Path, folder: Path) -> bool:
    """Return whether a file has anything of the guard."""
    text = _content(path)
    return text is not None and has_trace(text, folder)


@contextmanager
def _alone(folder: Path) -> Generator[None]:
    """Change files while no other process does, so that none loses what the other has noted."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "install.lock").open("ab") as file:
        flock(file, LOCK_EX)
        yield


def _content(path: Path) -> str | None:
    try:
        return path.read_bytes().decode() if path.exists() else None
    except UnicodeDecodeError as error:
        raise RemitError(
            fault(Code.INPUT_VALIDATION_FAILED, f"{path} is not UTF-8: {error}", suggestion="Correct it.")
        ) from error


def _list(folder: Path) -> Path:
    return folder / "installed.json"


def _write(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file in one step, so that nobody ever reads half of it; a link stays one.

    *mode* is for a file that is new. Settings may have keys in them, so their copies are never readable by others.
    """
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        new.chmod(path.stat().st_mode & 0o777 if path.exists() else mode)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
