"""What `import remit` gives, and what it costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import remit
from waiting import PATIENCE_S

STUB = Path(remit.__file__).with_suffix(".pyi")


def exported_by_stub() -> list[str]:
    nodes = ast.parse(STUB.read_text(encoding="utf-8")).body
    return sorted(
        alias.asname for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names if alias.asname
    )


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_type_checkers_and_programs_see_the_same_names() -> None:
    assert exported_by_stub() == remit.__all__


def test_each_name_comes_from_where_the_stub_says() -> None:
    nodes = ast.parse(STUB.read_text(encoding="utf-8")).body
    homes = {
        alias.name: node.module
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if node.module
    }
    for name, home in homes.items():
        __import__(home)
        assert getattr(remit, name) is getattr(sys.modules[home], name)


@pytest.mark.parametrize("name", remit.__all__)
def test_each_public_name_loads(name: str) -> None:
    assert getattr(remit, name) is not None
    assert name in dir(remit)


def test_a_name_that_is_not_there_is_refused_like_that_of_any_module() -> None:
    with pytest.raises(AttributeError, match="'remit' has no attribute 'Hubb'"):
        getattr(remit, "Hubb")  # noqa: B009 - as a program that misspells it would


def test_importing_remit_loads_neither_the_event_loop_nor_the_codec() -> None:
    loaded = run_python("import sys, remit; print(*sys.modules)").split()
    assert {"asyncio", "msgspec", "apsw", "logging", "remit.runtime"} & set(loaded) == set()


def test_typed_agents_load_neither_pydantic_nor_attrs() -> None:
    code = """
import sys
from dataclasses import dataclass
from remit import Brief, Capability, Hub

@dataclass
class Order:
    count: int

async def clerk(brief: Brief, order: Order) -> Order:
    return order

Hub(store="never-opened.db").add("clerk", clerk, capabilities=[Capability(code="ONE", input_schema=Order), "TWO"])
print(*sys.modules)
"""
    loaded = {name.partition(".")[0] for name in run_python(code).split()}
    assert {"pydantic", "pydantic_core", "annotated_types", "attr", "attrs"} & loaded == set()


def test_a_star_import_brings_every_public_name_and_nothing_else() -> None:
    brought = run_python(
        "before = set(globals()); from remit import *; print(*sorted(set(globals()) - before))"
    ).split()
    assert [name for name in brought if name != "before"] == remit.__all__


def test_the_version_is_a_version() -> None:
    assert [part.isdigit() for part in remit.__version__.split(".")] == [True, True, True]
