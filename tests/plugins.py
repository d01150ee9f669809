"""Plugins of strangers, as pip installs them, and what they use of Remit."""

import ast
import re
import subprocess
import sys
from pathlib import Path

from checkout import ROOT
from command_line import environment
from commands import run_program
from doc_pages import page_text

PUBLIC = frozenset(re.findall(r"^\| `([\w.]+)` \|", page_text("plugins"), re.MULTILINE))
"""The modules that the page "Write a plugin" names."""
_PACKAGES = {path.name for path in ROOT.glob("packages/*/src/remit*")}


def private_imports(source: str) -> set[str]:
    """Return the modules of Remit that a plugin imports although they are not for plugins."""
    nodes = [*ast.walk(ast.parse(source))]
    imported = {name.name for each in nodes if isinstance(each, ast.Import) for name in each.names}
    imported |= {each.module for each in nodes if isinstance(each, ast.ImportFrom) and each.module is not None}
    return {module for module in imported if module.partition(".")[0] in _PACKAGES} - PUBLIC


def install_plugin(folder: Path, name: str, source: str) -> None:
    """Install a module as a plugin in a folder; programs find it with the folder in PYTHONPATH, as in `run_python`."""
    assert private_imports(source) == set(), "a plugin uses what the page names, and nothing else"
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[remit.plugins]\n{name} = {name}\n")


def run_python(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder with the plugins that are installed there."""
    command = [sys.executable, *arguments]
    return run_program(command, folder=folder, variables=environment(PYTHONPATH=str(folder), **variables))
