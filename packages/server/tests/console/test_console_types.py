"""The types that the console is checked against are those of the servers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from a2a_install import node
from checkout import ROOT

WEB = ROOT / "web"


def test_the_types_of_the_console_are_made_from_the_openapi_documents_of_now(tmp_path: Path) -> None:
    if not (WEB / "node_modules").exists():
        pytest.skip("the packages of web/ are not installed: there was no registry when the console was built")
    command = [node() / "bin" / "node", WEB / "types.mjs", tmp_path]
    subprocess.run(command, cwd=WEB, check=True, timeout=300, env={**os.environ, "PYTHON": sys.executable})
    for name in ("operator.ts", "shared.ts"):
        made, kept = (tmp_path / name).read_text(), (WEB / "src" / "api" / name).read_text()
        assert made == kept, f"web/src/api/{name} is not up to date: run `npm run types` in web/"
    package = WEB.parent / "clients" / "ts" / "src" / "api.ts"
    assert (tmp_path / "operator.ts").read_text() == package.read_text(), "run `npm run types` in web/"
