"""Shows log messages of the hub as single lines on stderr."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

from remit.runtime.log_lines import NEXT_LINE
from remit.text.terminal import one_line, several_lines


class _Handler(logging.Handler):
    def __init__(self, say: Callable[[str], None], *, whole: bool) -> None:
        super().__init__(logging.DEBUG if whole else logging.WARNING)
        self._say = say
        self._whole = whole

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
            level = record.levelname.lower()
            self._say(several_lines(f"{level}: {message}") if self._whole else f"{level}: {_gist(message)}")
        except Exception:  # noqa: BLE001 - what cannot be logged must not end a run
            self.handleError(record)


def _gist(message: str) -> str:
    """Return a message in one line; of a traceback, its message and the exception."""
    first, *others = [line for line in message.split(NEXT_LINE) if line.strip()] or [""]
    return one_line(
        f"{first.removesuffix('Traceback (most recent call last):').rstrip()} {others[-1]}" if others else first
    )


@contextmanager
def logging_to(say: Callable[[str], None], *, verbose: bool) -> Generator[None]:
    """Show log messages: warnings as one line each, or everything unchanged."""
    log = logging.getLogger("remit")
    handler, level = _Handler(say, whole=verbose), log.level
    log.addHandler(handler)
    if verbose:
        log.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
