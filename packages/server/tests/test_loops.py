"""A server runs in uvloop where that is installed, unless it has to count connections before a TLS handshake."""

import sys
from types import ModuleType

import pytest

from remit_server.server import fast_loop


def made() -> None:
    """Stand in for what makes a loop."""


def test_a_server_uses_uvloop_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    uvloop = ModuleType("uvloop")
    uvloop.new_event_loop = made  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "uvloop", uvloop)
    assert fast_loop(tls=False) is made
    assert fast_loop(tls=True) is None


def test_without_uvloop_a_server_uses_the_loop_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert fast_loop(tls=False) is None
