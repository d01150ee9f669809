"""Where in an agent's own code an exception was raised."""

import os
import sys
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import cast

from msgspec.structs import replace

from remit.protocol.errors import Code, Fault, Origin, RemitError, SourceLine, fault

# Error texts are for people to read.
MAX_WORDS = 1_000
# This much is redacted before it is cut to that length: a detector does not recognise half a number. No more, because
# an error text may come from a stranger, and this runs in the event loop.
MAX_READ = 4 * MAX_WORDS
# The innermost frames show where it happened; the outer ones, how the program got there.
MOST_FRAMES = 5
_LONGEST_CODE = 120
_LONGEST_PATH = 200
# This much of an exception's text tells it from others.
_TELLING = 100

_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def failure_of_tool(agent: str, tool: str, error: str) -> Fault:
    """Return the fault for a tool that an agent brought along, and that failed with these words."""
    origin = Origin(agent=agent, tool=tool, error=error)
    return replace(fault(Code.DELEGATION_FAILED, f"tool {tool} failed: {error}"), origin=origin)


def worded(error: BaseException) -> str:
    """Return an error's type and text, as far as they can be obtained."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a foreign `__str__`
        text = "(no message)"
    inner = _first_of(error)
    words = f"{type(error).__name__}: {text}" if text else type(error).__name__
    words = words if inner is None else f"{words}: {worded(inner)}"
    return words[:MAX_READ].encode(errors="replace").decode()


def _first_of(error: BaseException) -> BaseException | None:
    """Return the first of several exceptions that were raised at once, as in a task group."""
    if not isinstance(error, BaseExceptionGroup):
        return None
    return cast("BaseExceptionGroup[BaseException]", error).exceptions[0]


def origin_of(
    error: BaseException, agent: str, *, tool: str = "", worded: Callable[[BaseException], str] = worded
) -> Origin:
    """Return the origin of an exception; *worded* returns its type and text in a form that may be shown."""
    quoted = _quoted(error) if isinstance(error, RemitError) else error
    return Origin(agent=agent, tool=tool, error="" if quoted is None else worded(quoted), frames=own_frames(error))


def _quoted(error: RemitError) -> BaseException | None:
    """Return the exception whose text is in a fault's message, if it is: an adapter's message often quotes one."""
    cause = error.__cause__
    if cause is None:
        return None
    text = worded(cause).partition(": ")[2][:_TELLING]
    return cause if text and text in error.fault.message else None


def own_frames(error: BaseException) -> tuple[SourceLine, ...]:
    """Return the last frames of an exception outside Remit, the standard library and installed packages.

    If there are none, as in a program that is itself installed as a package, frames of packages count.
    """
    frames = list(_frames(error))
    own = [each for each in frames if not any(part in each.filename for part in _PACKAGES)]
    return tuple(_source_line(each) for each in (own or frames)[-MOST_FRAMES:])


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    homes = _homes()
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not _is_foreign(each.filename, homes)]
    inner = _first_of(error)
    # Python itself raises another error when a coroutine lets StopIteration escape.
    if inner is None and (isinstance(error, RemitError) or not frames):
        inner = error.__cause__
    return frames if inner is None else [*frames, *_frames(inner)]


def at_home(origin: Origin) -> Origin:
    """Return the origin of an agent in a separate process, with paths as seen from this process."""
    return replace(origin, frames=tuple(replace(each, file=_path(each.file)) for each in origin.frames))


def places(why: Fault) -> str:
    """Return the log lines that show where a fault comes from."""
    return "".join(f"\n  at {each}" for each in why.origin.frames) if why.origin is not None else ""


@cache
def _standard_library() -> tuple[str, ...]:
    """Return its folders; found when an agent first fails, because that loads how this Python was built."""
    import sysconfig

    paths = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
    return tuple({str(Path(path).resolve()) + os.sep for path in paths if path})


def _homes() -> tuple[str, ...]:
    """Return the folders of Remit's packages that are loaded, and of plugins that are named as they are."""
    names = (name for name in tuple(sys.modules) if name == "remit" or (name.startswith("remit_") and "." not in name))
    files = (Path(getattr(sys.modules[name], "__file__", None) or "") for name in names)
    return tuple(f"{file.parent}{os.sep}" for file in files if file.name == "__init__.py")


def _is_foreign(file: str, homes: tuple[str, ...]) -> bool:
    if file.startswith(("<frozen", *homes)):
        return True
    return file.startswith(_standard_library()) and not any(part in file for part in _PACKAGES)


def _source_line(frame: traceback.FrameSummary) -> SourceLine:
    return SourceLine(_path(frame.filename), frame.lineno or 0, frame.name, (frame.line or "")[:_LONGEST_CODE])


def _path(file: str) -> str:
    """Return a file's path relative to the working folder, if it is inside."""
    try:
        inside = Path(file).relative_to(Path.cwd())
    except (ValueError, OSError):
        return file[-_LONGEST_PATH:]
    return str(inside)[-_LONGEST_PATH:]
