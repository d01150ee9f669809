"""Where in an agent's own code an exception was raised."""

import os
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import cast

from msgspec.structs import replace

import remit
from remit.protocol.errors import Fault, Origin, RemitError, SourceLine

# What is said of an error is for people to read.
MAX_WORDS = 1_000
# As much is redacted before it is cut to that length: of half a number no detector knows whose it is. No more, because
# what an error says may be a stranger's text, and this is done in the event loop.
MAX_READ = 4 * MAX_WORDS
# The innermost say where it happened; the ones around them, how the program came there.
MOST_FRAMES = 5
_LONGEST_CODE = 120
_LONGEST_PATH = 200
# As much of an exception's text tells it from others.
_TELLING = 100

_HERE = str(Path(remit.__file__).parent) + os.sep
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_STANDARD = tuple(
    {str(Path(path).resolve()) + os.sep for name in ("stdlib", "platstdlib") if (path := sysconfig.get_path(name))}
)


def worded(error: BaseException) -> str:
    """Return an error's type and text, as far as they can be said."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - it is someone else's `__str__`
        text = "(no words for it)"
    inner = _first_of(error)
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    said = said if inner is None else f"{said}: {worded(inner)}"
    return said[:MAX_READ].encode(errors="replace").decode()


def _first_of(error: BaseException) -> BaseException | None:
    """Return the first of several that were raised at once, as in a task group: it says where to look."""
    if not isinstance(error, BaseExceptionGroup):
        return None
    return cast("BaseExceptionGroup[BaseException]", error).exceptions[0]


def origin_of(
    error: BaseException, agent: str, *, tool: str = "", worded: Callable[[BaseException], str] = worded
) -> Origin:
    """Return where an exception comes from; *worded* gives its type and text, as they may be told."""
    quoted = _quoted(error) if isinstance(error, RemitError) else error
    return Origin(agent=agent, tool=tool, error="" if quoted is None else worded(quoted), frames=own_frames(error))


def _quoted(error: RemitError) -> BaseException | None:
    """Return the exception whose text is in the message of a fault, if it is: an adapter's message often is."""
    cause = error.__cause__
    if cause is None:
        return None
    text = worded(cause).partition(": ")[2][:_TELLING]
    return cause if text and text in error.fault.message else None


def own_frames(error: BaseException) -> tuple[SourceLine, ...]:
    """Return the last frames of an exception that are not Remit's, of the standard library or of a package.

    If there are none, as in a program that is itself installed as a package, those of packages count.
    """
    found = list(_frames(error))
    own = [each for each in found if not any(part in each.filename for part in _PACKAGES)]
    return tuple(_shown(each) for each in (own or found)[-MOST_FRAMES:])


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not _is_foreign(each.filename)]
    inner = _first_of(error)
    # Python itself raises another error where a coroutine lets StopIteration out.
    if inner is None and (isinstance(error, RemitError) or not frames):
        inner = error.__cause__
    return frames if inner is None else [*frames, *_frames(inner)]


def at_home(origin: Origin) -> Origin:
    """Return the origin of an agent in a process of its own with paths as they are written in this one."""
    return replace(origin, frames=tuple(replace(each, file=_path(each.file)) for each in origin.frames))


def places(why: Fault) -> str:
    """Return the lines of a log that say where a fault comes from."""
    return "".join(f"\n  at {each}" for each in why.origin.frames) if why.origin is not None else ""


def _is_foreign(file: str) -> bool:
    if file.startswith(("<frozen", _HERE)):
        return True
    return file.startswith(_STANDARD) and not any(part in file for part in _PACKAGES)


def _shown(frame: traceback.FrameSummary) -> SourceLine:
    return SourceLine(_path(frame.filename), frame.lineno or 0, frame.name, (frame.line or "")[:_LONGEST_CODE])


def _path(file: str) -> str:
    """Return a file's path from the working folder on, if it is in there."""
    try:
        inside = Path(file).relative_to(Path.cwd())
    except (ValueError, OSError):
        return file[-_LONGEST_PATH:]
    return str(inside)[-_LONGEST_PATH:]
