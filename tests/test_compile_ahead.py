"""What is compiled ahead is what pytest and Python look for, so that no worker compiles it again."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _read_pyc,  # pyright: ignore[reportPrivateUsage]
    _rewrite_test,  # pyright: ignore[reportPrivateUsage]
    get_cache_dir,
)
from hypothesis.configuration import StorageDirectory
from hypothesis.internal import constants_ast

from compile_ahead import compile_ahead, modules
from remit.stores import schema


def written(path: Path, text: str = "def test_it() -> None:\n    assert 1 == 2, 'no'\n") -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["test_one.py", "conftest.py"])
def test_pytest_takes_a_module_that_was_compiled_ahead_as_its_own(
    tmp_path: Path, pytestconfig: pytest.Config, name: str
) -> None:
    path = written(tmp_path / name)
    compile_ahead(path)
    code = _read_pyc(path, get_cache_dir(path) / f"{path.stem}{PYC_TAIL}")
    assert code == _rewrite_test(path, pytestconfig)[1]


def test_a_module_that_was_changed_is_compiled_again(tmp_path: Path) -> None:
    path = written(tmp_path / "test_one.py")
    compile_ahead(path)
    compile_ahead(written(path, "def test_it() -> None:\n    assert True\n"))
    assert _read_pyc(path, get_cache_dir(path) / f"{path.stem}{PYC_TAIL}") is not None


def test_other_modules_are_compiled_as_python_does_it(tmp_path: Path) -> None:
    path = written(tmp_path / "samples.py")
    compile_ahead(path)
    assert Path(importlib.util.cache_from_source(path)).exists()


def test_the_constants_of_the_code_are_kept_for_hypothesis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = StorageDirectory(tmp_path / "constants", home_directory=tmp_path)
    monkeypatch.setattr(constants_ast, "storage_directory", {"constants": place}.__getitem__)
    module = ModuleType("schema")
    module.__file__ = str(schema.__file__)
    compile_ahead(Path(module.__file__))
    (kept,) = place.path.iterdir()
    assert str(schema.APPLICATION_ID) in kept.read_text()
    # That is what is read for the module.
    kept.write_text("[4711]")
    assert list(constants_ast.constants_from_module(module).set_for_type("integer")) == [4711]


def test_a_module_that_cannot_be_compiled_is_left_to_the_test_run(tmp_path: Path) -> None:
    path = written(tmp_path / "test_one.py", "def (")
    compile_ahead(path)
    assert not (tmp_path / "__pycache__").exists()


def test_the_code_and_all_tests_are_compiled_and_nothing_that_was_installed() -> None:
    paths = modules()
    assert Path(__file__) in paths
    assert not [path for path in paths if "node_modules" in path.parts]
