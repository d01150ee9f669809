"""Nobody's words can forge a line of the log."""

import io
import logging
import re
import sys
from collections.abc import Generator

import pytest

from checkout import ROOT
from remit import Brief, Hub
from remit.runtime import LOGGERS, as_one_record

FORGED = "2026-01-01 00:00:00 ERROR remit payment 17 approved by ada"


@pytest.fixture
def lines() -> Generator[io.StringIO]:
    """Return what a program with an ordinary log file finds in it."""
    kept = io.StringIO()
    handler = logging.StreamHandler(kept)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.getLogger().addHandler(handler)
    yield kept
    logging.getLogger().removeHandler(handler)


def begun(kept: io.StringIO) -> list[str]:
    """Return the lines that begin like a record."""
    return [line for line in re.split("[\n\r\x0b\x0c\x85\u2028\u2029]", kept.getvalue()) if re.match(r"\d{4}-", line)]


@pytest.mark.parametrize("between", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
async def test_the_text_of_an_exception_cannot_forge_a_line(hub: Hub, lines: io.StringIO, between: str) -> None:
    @hub.agent("liar")
    async def liar(brief: Brief) -> None:
        raise ValueError(f"boring{between}{FORGED}\x1b[2J\x9b2J")

    async with hub:
        await hub.ask("liar", user="u-1")
    assert [line for line in begun(lines) if "liar failed" in line]
    assert not [line for line in begun(lines) if line.startswith(FORGED)]
    assert FORGED in lines.getvalue(), "it can still be read"
    assert not set("\x1b\x9b") & set(lines.getvalue())


@pytest.mark.parametrize("name", LOGGERS)
def test_a_traceback_cannot_either(lines: io.StringIO, name: str) -> None:
    log = logging.getLogger(name)
    try:
        raise ValueError(f"boring\n{FORGED}")
    except ValueError:
        log.exception("a listener of %s failed", f"x\n{FORGED}")
    assert not [line for line in begun(lines) if line.startswith(FORGED)]
    assert "ValueError: boring" in lines.getvalue()


def test_an_ordinary_record_stays_as_it_is(lines: io.StringIO) -> None:
    logging.getLogger("remit").warning("agent %s failed %d times: 100 %%", "tax-ai", 3)
    assert lines.getvalue().endswith(" WARNING remit agent tax-ai failed 3 times: 100 %\n")
    assert as_one_record("one\ntwo") == "one\n  | two"


def test_every_logger_of_remit_is_kept_plain() -> None:
    """A filter holds for one logger; a new one has to be named."""
    used = {
        name
        for file in ROOT.glob("packages/*/src/**/*.py")
        for name in re.findall(r"""getLogger\(["'](remit[^"']*)["']\)""", file.read_text(encoding="utf-8"))
    }
    assert used == set(LOGGERS)
    assert "remit.runtime" in sys.modules
