"""Texts that people read, as files beside the tests that make them; `make transcripts` writes them anew."""

from collections.abc import Callable

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--transcripts", action="store_true", help="write the transcripts anew, and run nothing else")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--transcripts"):
        items[:] = [item for item in items if "transcript" in getattr(item, "fixturenames", ())]


@pytest.fixture
def transcript(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return what compares a text with the one in `transcripts/`, which is named after the test."""
    path = request.path.parent / "transcripts" / f"{request.node.name.removeprefix('test_')}.txt"

    def compare(text: str) -> None:
        if request.config.getoption("--transcripts"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), "if the new text is right: make transcripts"

    return compare
