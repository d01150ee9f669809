"""The execution of delegations: async, and against ports only.

Everything that logs is on this floor or above it, so log lines are made safe here. The text of an exception, a name or
an address may come from a peer, a model or a file. A line break in it would begin a line that looks like another
record, and an escape sequence would act on the terminal that shows the log.
"""

import logging

from remit.words.terminal import several_lines

LOGGERS = ("remit", "remit.guard", "remit.relay", "remit.store")
"""Every logger that Remit writes to; a filter applies to a logger itself, not to its children."""

NEXT_LINE = "\n  | "
"""The prefix of further lines of a record, such as a traceback."""


def as_one_record(text: str) -> str:
    """Return a text of which only the first line looks like a record."""
    return several_lines(text).replace("\n", NEXT_LINE)


def _make_plain(record: logging.LogRecord) -> bool:
    record.msg, record.args = as_one_record(record.getMessage()), ()
    if record.exc_info and not record.exc_text:
        record.exc_text = "  | " + as_one_record(logging.Formatter().formatException(record.exc_info))
    return True


for _name in LOGGERS:
    logging.getLogger(_name).addFilter(_make_plain)
