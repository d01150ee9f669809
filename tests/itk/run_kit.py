"""Runs A2A's integration test kit with a hub's agent in its chains: `make test-itk KIT=…`.

The kit's own agents run as they are, in a copy of the checkout, with packages from PyPI and npm: first with the
versions that the kit names, then with the newest ones. Its agents in Go, Java and Rust need what is fetched elsewhere
and are left out, and so are those that speak A2A 0.3.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from a2a_install import node

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BIN = Path(sys.executable).parent
# What the kit's agent and its runner import besides the SDK; its own list has the SDK from a repository.
PACKAGES = ("fastapi", "uvicorn", "grpcio", "protobuf", "sse-starlette", "httpx", "httpx-sse", "packaging")
NEEDED = ("run_tests.py", "testlib.py", "test_suite", "agents/python/v10/main.py", "agents/ts/v10/main.ts")
HELP = """\
`make test-itk` needs a checkout of A2A's integration test kit:

    git clone https://github.com/a2aproject/a2a-itk
    make test-itk KIT=a2a-itk
"""


def main(kit: Path) -> int:
    """Run all scenarios with both sets of versions, and return how many of the two had a failure."""
    if missing := [each for each in NEEDED if not (kit / each).exists()]:
        sys.stderr.write(f"{HELP}\n{kit.resolve()} has no {missing[0]}.\n")
        return 2
    if shutil.which("fuser") is None:
        sys.stderr.write("The kit frees its ports with `fuser`, which is in the package psmisc.\n")
        return 2
    return sum(_run(kit, name) for name in ("pinned", "newest"))


def _run(kit: Path, versions: str) -> bool:
    """Run all scenarios with one set of versions, and return whether one failed."""
    folder = ROOT / ".venv-itk" / versions
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(kit, folder, ignore=shutil.ignore_patterns(".git", ".venv", "node_modules", "repo"))
    (folder / "agents/repo").mkdir()
    (folder / "agents/repo/itk").symlink_to(HERE)
    (folder / "logs").mkdir(exist_ok=True)
    _install_python(folder, versions)
    _install_node(folder / "agents/ts/v10", versions)
    programs = os.pathsep.join((str(BIN), str(node() / "bin"), os.environ["PATH"]))
    environ = os.environ | {
        "PATH": programs,
        # Agents are started by `uv run`, each in the environment of its project, as it is.
        **{"UV_NO_SYNC": "1", "UV_FROZEN": "1", "UV_NO_PROGRESS": "1"},
        "ITK_LOG_LEVEL": "DEBUG",  # into files
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environ.pop("VIRTUAL_ENV", None)
    command = [folder / ".venv/bin/python", HERE / "kit_scenarios.py", versions]
    return subprocess.run(command, cwd=folder, env=environ, check=False).returncode != 0


def _install_python(folder: Path, versions: str) -> None:
    agent = folder / "agents/python/v10"
    pinned = re.search(r"a2a-python\.git@v([\w.]+)", (agent / "pyproject.toml").read_text(encoding="utf-8"))
    assert pinned is not None, "the kit names no version of a2a-sdk"
    sdk = "a2a-sdk[grpc,http-server]" + (f"=={pinned[1]}" if versions == "pinned" else "")
    for where, packages in ((agent, (sdk, *PACKAGES)), (folder, PACKAGES)):
        _uv("venv", where / ".venv")
        _uv("pip", "install", "--python", where / ".venv", *packages)


def _uv(*arguments: str | Path) -> None:
    subprocess.run([BIN / "uv", *arguments, "--quiet"], cwd=ROOT, check=True)


def _install_node(agent: Path, versions: str) -> None:
    program, npm = node() / "bin/node", node() / "lib/node_modules/npm/bin/npm-cli.js"
    quiet = ("--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--silent")
    subprocess.run([program, npm, "ci", *quiet], cwd=agent, check=True)
    if versions == "newest":
        subprocess.run([program, npm, "install", "--no-save", *quiet, "@a2a-js/sdk@latest"], cwd=agent, check=True)


if __name__ == "__main__":
    given = sys.argv[1] if len(sys.argv) > 1 else ""
    if not given:
        sys.stderr.write(HELP)
        sys.exit(2)
    sys.exit(main(Path(given)))
