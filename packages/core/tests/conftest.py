"""Tests of the core need no process and no socket, except those that are marked as needing them."""

import sys
from collections.abc import Generator

import pytest

_NEED_PROCESSES = frozenset({"subprocess.Popen", "os.fork", "os.posix_spawn", "socket.bind", "socket.connect"})
_running_without: list[str] = []


def _refuse(event: str, _: object) -> None:
    if event in _NEED_PROCESSES and _running_without:
        raise AssertionError(f"{event} in {_running_without[-1]}: mark the test with `processes`")


sys.addaudithook(_refuse)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("processes"):
        return (yield)
    _running_without.append(item.nodeid)
    try:
        return (yield)
    finally:
        _running_without.clear()
