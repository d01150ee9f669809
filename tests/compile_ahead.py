"""Compile the code and the tests once, before several processes read them.

Where Python is told to write no bytecode, each process would compile anew all that it imports. Test modules are
compiled as pytest does it, which rewrites their assertions: that takes longer than the rest of collecting them.
Hypothesis keeps the constants that it finds in the code, to draw some of them: each process would search all of it.
"""

import ast
import compileall
import gc
import importlib.util
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType

from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _read_pyc,  # pyright: ignore[reportPrivateUsage]
    _write_pyc_fp,  # pyright: ignore[reportPrivateUsage]
    get_cache_dir,
    rewrite_asserts,
)
from hypothesis.internal.constants_ast import constants_from_module, is_local_module_file

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("packages", "tests", "docs", "bench")


def compile_ahead(path: Path) -> None:
    """Leave behind the bytecode of *path* as Python or pytest will look for it."""
    if path.name != "conftest.py" and not path.match("test_*.py"):
        compileall.compile_file(path, quiet=2)
        find_constants(path)
        return
    cached = get_cache_dir(path) / f"{path.stem}{PYC_TAIL}"
    if _read_pyc(path, cached) is not None:
        return
    source = path.read_bytes()
    try:
        tree = ast.parse(source, filename=str(path))
        rewrite_asserts(tree, source, str(path))
        code = compile(tree, str(path), "exec", dont_inherit=True)
    except SyntaxError:
        return  # the test run names the place
    cached.parent.mkdir(exist_ok=True)
    with cached.open("wb") as file:
        _write_pyc_fp(file, importlib.util.source_hash(source), code)


def find_constants(path: Path) -> None:
    """Have Hypothesis keep the constants of *path*, in `.hypothesis`, if it would draw them."""
    if is_local_module_file(str(path)):
        module = ModuleType(path.stem)
        module.__file__ = str(path)
        constants_from_module(module)


def modules() -> list[Path]:
    paths: list[Path] = []
    for folder in FOLDERS:
        for place, folders, names in os.walk(ROOT / folder):
            # npm may be writing there.
            folders[:] = [each for each in folders if each != "node_modules"]
            paths += [Path(place, name) for name in names if name.endswith(".py")]
    # The largest first, so that no process is left alone with one of them at the end.
    return sorted(paths, key=lambda path: path.stat().st_size, reverse=True)


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    # A syntax tree has no circles: to search for some takes a tenth of the time.
    with ProcessPoolExecutor(initializer=gc.disable) as pool:
        for _ in pool.map(compile_ahead, modules(), chunksize=8):
            pass
