"""Folders with a team in them, and none of their modules left behind."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CODE = '''
"""What the agents of the test teams do."""


async def prime(brief):
    reply = await brief.delegate("tag-ai", objective="Tag", input=brief.input)
    return reply.result if reply.fault is None else reply.fault.code


def tag(brief):
    """Tag receipts."""
    return f"3 categories for {brief.input}"


def count(text: str) -> int:
    return len(text)


def nothing():
    return None


number = 3
'''


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with the code of a team, `office.py`; what is imported from it is forgotten afterwards."""
    (tmp_path / "office.py").write_text(CODE, encoding="utf-8")
    path, loaded = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - loaded:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
