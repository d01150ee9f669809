"""Stores by their addresses: a plugin that nobody here knows brings one, and an unknown address says what is known."""

from pathlib import Path

import pytest

from plugins import install_plugin, run_python
from remit import Hub, RemitError

PLUGIN = """
from remit.ports import StoreEngine

def stores():
    return {"forgetful": StoreEngine("forgetful:make_store")}

def make_store(address, **options):
    from remit_testing import MemoryStore

    return MemoryStore()
"""
PROGRAM = """
from remit import Hub

hub = Hub(store="forgetful://anywhere")

@hub.agent("parrot")
async def parrot(brief):
    return f"{type(hub.store).__name__}: {brief.text}"

print(hub.ask_sync("parrot", "hello", user="u-1").result)
"""


@pytest.mark.processes
def test_an_installed_plugin_brings_a_store_for_its_scheme(tmp_path: Path) -> None:
    install_plugin(tmp_path, "forgetful", PLUGIN)
    done = run_python(tmp_path, "-c", PROGRAM)
    assert done.stdout == "MemoryStore: hello\n", done.stderr


def test_an_address_that_no_plugin_knows_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(RemitError, match=r"no installed plugin opens a store at `mysql://`; known: .*`postgresql://`"):
        Hub(store="mysql://localhost/db")
