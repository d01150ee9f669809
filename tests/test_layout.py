"""What the modules of the runtime and its ports keep to, read from their source."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import remit.runtime
from layout import PACKAGES, against_arrows, import_levels

ROOT = Path(remit.runtime.__file__).parents[1]


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax trees of all modules by path."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for folder in ("ports", "runtime")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


MOST_LEVELS = 8
MOST_LINES_OF_A_MODULE = 700
MOST_LINES_OF_A_FUNCTION = 60


def targets_in(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield everything that is assigned or deleted, also within tuples."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                parts = list(targets)
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target) | ast.NamedExpr(target=target):
                parts = [target]
            case ast.For(target=target) | ast.AsyncFor(target=target):
                parts = [target]
            case ast.withitem(optional_vars=ast.expr() as target):
                parts = [target]
            case _:
                continue
        yield from (part for target in parts for part in ast.walk(target) if isinstance(part, ast.expr))


def test_only_the_frame_itself_changes_its_state() -> None:
    places = [
        (path, target.lineno)
        for path, tree in trees().items()
        for target in targets_in(tree)
        if isinstance(target, ast.Attribute) and target.attr == "state"
    ]
    assert [path for path, _ in places] == ["runtime/frames.py"]


def test_a_reader_climbs_few_levels_of_imports() -> None:
    assert import_levels("remit.runtime") <= MOST_LEVELS


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_what_it_asks_for_and_no_other(package: str) -> None:
    assert against_arrows(package) == set()


def test_the_facts_for_the_guards_are_made_where_a_request_is_admitted() -> None:
    # Parsing every module takes seconds.
    texts = {path: text for path in ROOT.rglob("*.py") if "Facts(" in (text := path.read_text(encoding="utf-8"))}
    makers = {
        path.relative_to(ROOT).as_posix()
        for path, text in texts.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Facts"
    }
    # A peer's calls are counted over all processes of a store, and judged by two guards alone.
    assert makers == {
        "runtime/delegation/admission.py",
        "runtime/delegation/answers.py",
        "runtime/delegation/dispatch.py",
        "policy/peer_calls.py",
    }


def test_nobody_uses_the_private_members_of_another_object() -> None:
    uses = {
        f"{path}:{node.lineno} {ast.unparse(node)}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in ("_replace", "_asdict", "_fields", "_make")  # public in a named tuple
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "sys"))
    }
    assert uses == set()


def test_no_module_is_too_long() -> None:
    lengths = {
        path: max((getattr(node, "end_lineno", 0) for node in tree.body), default=0) for path, tree in trees().items()
    }
    assert {path: length for path, length in lengths.items() if length > MOST_LINES_OF_A_MODULE} == {}


def test_no_function_is_too_long() -> None:
    lengths = {
        f"{path} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: length for name, length in lengths.items() if length > MOST_LINES_OF_A_FUNCTION} == {}
