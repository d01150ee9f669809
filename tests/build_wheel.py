"""Builds the sdists, the wheels and their bill of materials without network, and tries the wheels: `make build`.

Each wheel is built from the unpacked sdist, so that a file which the sdist lacks shows.
"""

import os
import re
import signal
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import Distribution, PathDistribution, distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.request import urlopen

from packaging.utils import canonicalize_name

from build_sbom import required_by, write_bill
from checkout import ROOT
from doc_pages import EXIT, blocks
from remit_cli.docs import DOORS

# Why an editable install has no console (packages/server/hatch_build.py).
TROUBLE = ".trouble"
SOURCES = sorted(ROOT.glob("packages/*/src"))
PROJECTS = (ROOT, *sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml")))
# hatchling takes most of a second to load: one process builds all projects.
_BUILD = """
import sys
from importlib import import_module
from pathlib import Path
kind, folder, *projects = sys.argv[1:]
builder = getattr(import_module(f"hatchling.builders.{kind}"), {"sdist": "SdistBuilder", "wheel": "WheelBuilder"}[kind])
for project in projects:
    for _ in builder(project).build(directory=folder, versions=["standard"]):
        pass
"""


class Built(NamedTuple):
    """What a release publishes of one package."""

    sdist: Path
    wheel: Path


def build(folder: Path) -> dict[str, Built]:
    """Build every package into *folder*, with the installed hatchling, and return what was built by its name."""
    _hatchling("sdist", folder, PROJECTS)
    sdists = sorted(folder.glob("*.tar.gz"))
    with TemporaryDirectory() as unpacked:
        for sdist in sdists:
            # Not by tarfile: its filter, without which newer versions of Python warn, came with 3.11.4.
            run(["tar", "-xzf", sdist.resolve(), "-C", unpacked], folder)
        _hatchling("wheel", folder, [Path(unpacked, sdist.name.removesuffix(".tar.gz")) for sdist in sdists])
    names = {sdist: sdist.name.rpartition("-")[0] for sdist in sdists}
    return {
        name.replace("_", "-"): Built(sdist, next(folder.glob(f"{name}-[0-9]*.whl"))) for sdist, name in names.items()
    }


def _hatchling(target: str, folder: Path, projects: Iterable[Path]) -> None:
    variables = {**os.environ, "REMIT_RELEASE": "1"}
    run([sys.executable, "-c", _BUILD, target, folder.resolve(), *projects], folder, variables=variables)


def run(
    command: Sequence[str | Path], folder: Path, *, variables: Mapping[str, str] | None = None, code: int = 0
) -> str:
    """Run a command and return its output, or show all that it printed unless it ends with *code*."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=variables,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode != code:
        words = " ".join(map(str, command))
        raise SystemExit(f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def in_wheels(built: Mapping[str, Built]) -> set[str]:
    """Return the files that the wheels hold, without those that describe the packages."""
    names: set[str] = set()
    for each in built.values():
        with zipfile.ZipFile(each.wheel) as archive:
            names.update(name for name in archive.namelist() if ".dist-info/" not in name)
    return names


def in_source() -> set[str]:
    """Return the files of the packages: modules, type stubs, templates, the page of the console, documentation."""
    files = (
        path.relative_to(code) for code in ROOT.glob("packages/*/src") for path in code.rglob("*") if path.is_file()
    )
    pages = (
        path.relative_to(ROOT / "docs")
        for door in DOORS
        for path in (ROOT / "docs" / door).glob("*")
        if path.suffix in {".md", ".json"}
    )
    return {path.as_posix() for path in files if not {"__pycache__", ".remit", TROUBLE}.intersection(path.parts)} | {
        f"remit_cli/pages/{path.as_posix()}" for path in pages
    }


# ── the wheel in an empty environment ─────────────────────────────────────────────────────────────────────────────────


# What an install may take of a disk, with what it needs of others.
CORE_MB, REMIT_MB = 40, 120
# What extras bring, and modules import. The types of mcp are a package of their own.
OF_EXTRAS = {
    "agent_framework",
    "agents",
    "autogen_agentchat",
    "biscuit_auth",
    "crewai",
    "google",
    "httpx2",
    "joserfc",
    "langchain_core",
    "mcp",
    "pydantic_ai",
}
# Imports every module, and prints the packages that are not there.
_IMPORT_ALL = """
import importlib, pkgutil, sys
lacking = set()
for package in pkgutil.iter_modules():
    if package.name.partition("_")[0] == "remit":
        for module in pkgutil.walk_packages(importlib.import_module(package.name).__path__, f"{package.name}."):
            if not module.name.endswith(("__main__", "process_main", "process_reaper", "detached")):
                try:
                    importlib.import_module(module.name)
                except ImportError as error:
                    lacking.add(error.name)
print(*sorted(lacking))
"""


def try_out(built: Mapping[str, Built], pages: Iterable[Path]) -> None:
    """Install the wheels without extras into an empty environment, and do there what the pages say."""
    with TemporaryDirectory() as folder:
        scripts = install(built, "remit", Path(folder, "venv"))
        _check_size("remit", Path(folder, "venv"), REMIT_MB)
        variables = _variables(scripts, folder)
        here = f"import remit; assert remit.__file__.startswith({folder!r}), remit.__file__"
        run(["python", "-c", here], Path(folder), variables=variables)
        printed = run(["python", "-c", _IMPORT_ALL], Path(folder), variables=variables)
        lacking = {name.removesuffix("_types") for name in printed.split()}
        if lacking != OF_EXTRAS:
            raise SystemExit(f"without extras the modules of the wheels lack {lacking}")
        for page in pages:
            follow(page, Path(folder, page.stem), variables)
        run(["remit", "docs", "first-team"], Path(folder), variables=variables)
        _is_told_what_to_install(Path(folder, "missing"), variables)
        _look_around(Path(folder, "dev"), variables)


def try_core(built: Mapping[str, Built]) -> set[str]:
    """Install the core alone, run there the README's example in Python, and return the names of what is installed."""
    with TemporaryDirectory() as folder:
        home = Path(folder, "venv")
        scripts = install(built, "remit-core", home)
        (example,) = (block.text for block in blocks(ROOT / "README.md") if block.language == "python")
        run(["python", "-c", example], Path(folder), variables=_variables(scripts, folder))
        _check_size("remit-core", home, CORE_MB)
        return {canonicalize_name(each.metadata["Name"]) for each in distributions(path=[str(_site(home))])}


def _check_size(name: str, home: Path, most_mb: int) -> None:
    """Refuse an environment, in which a package is installed, that takes more of a disk than a user would expect."""
    parts = (each.resolve() for each in _site(home).iterdir())
    files = (file for part in parts for file in ([part] if part.is_file() else part.rglob("*")) if file.is_file())
    size_mb = sum(file.stat().st_size for file in files) / 1_000_000
    if size_mb > most_mb:
        raise SystemExit(f"what `pip install {name}` brings takes {size_mb:.0f} MB: at most {most_mb}")


def _variables(scripts: Path, home: str) -> dict[str, str]:
    return {
        "HOME": home,
        "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONWARNINGS": "error",
        "PYTHONUTF8": "1",
    }


def install(built: Mapping[str, Built], name: str, home: Path) -> Path:
    """Install a package into a new environment with what it needs, and return the folder of its commands.

    What it needs of others is linked from the environment of this process, by the metadata of the wheels: there need be
    no network, and nothing else is there.
    """
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    with zipfile.ZipFile(built[name].wheel) as archive:
        (info,) = {path.partition("/")[0] for path in archive.namelist() if ".dist-info/" in path}
        requirements = PathDistribution(zipfile.Path(archive, f"{info}/")).requires or []
    needed = required_by(requirements)
    wheels = [built[each].wheel for each in (name, *needed) if each in built]
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-qq", "--no-compile", "--no-index", "--no-deps"]
    run([*pip, *wheels], home)
    for each in (package for other, package in needed.items() if other not in built):
        assert isinstance(each, Distribution), f"{each} is not installed here"
        for part in {path.parts[0] for path in each.files or [] if path.parts[0] not in ("..", "__pycache__")}:
            (_site(home) / part).symlink_to(Path(str(each.locate_file(part))).resolve())
    return python.parent


def _site(home: Path) -> Path:
    (site,) = home.glob("lib/python*/site-packages")
    return site


# ── the pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────

# The tutorials that are not followed with the wheel alone, and the extra that each tells its reader to install.
NEED_EXTRA = {"model-that-delegates.md": "llm", "shared-agents.md": "relay", "two-companies.md": "credentials"}
# The commands of the other pages that are not run, and why.
NOT_RUN = {("README.md", "pip install ."): "the wheel is installed already, from a checkout that was built"}


def followed_pages() -> list[Path]:
    """Return the pages whose commands need the wheel alone."""
    tutorials = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
    return [ROOT / "README.md", *(page for page in tutorials if page.name not in NEED_EXTRA)]


def follow(page: Path, folder: Path, variables: Mapping[str, str]) -> None:
    """Save the files of a page in an empty folder, and run its commands there, in the order of the page."""
    folder.mkdir()
    for block in blocks(page):
        if block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "console" and "no-run" not in block.marks:
            for command in block.commands:
                if (page.name, command) not in NOT_RUN:
                    code = EXIT.search(command)
                    run(["sh", "-c", command], folder, variables=variables, code=int(code[1]) if code else 0)


def _is_told_what_to_install(folder: Path, variables: Mapping[str, str]) -> None:
    """Use a command and a section that an extra brings: the errors name it."""
    folder.mkdir()
    (folder / "remit.toml").write_text('[bus]\nurl = "nats://127.0.0.1"\n')
    for command, extra in ((["remit", "up"], "relay"), (["remit", "worker"], "nats"), (["remit", "validate"], "nats")):
        done = subprocess.run(command, cwd=folder, env=variables, check=False, capture_output=True, text=True)
        output = done.stdout + done.stderr
        if not done.returncode or f"pip install 'remit[{extra}]'" not in output:
            raise SystemExit(f"{' '.join(command)} without the extra ended with {done.returncode}:\n{output}")


def _look_around(folder: Path, variables: Mapping[str, str]) -> None:
    """Open the console with `remit dev`, which says that the chat is off; get its page and what that loads."""
    folder.mkdir()
    command = ["remit", "dev", "--no-browser"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder, env=variables) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            match = re.fullmatch(
                r"The chat demo is off: it needs `pip install 'remit\[relay\]'`\. "
                r"Everything else is at (http://127\.0\.0\.1:\d+) \(Ctrl-C to stop\)\.\n",
                line,
            )
            if match is None:
                server.terminate()
                raise SystemExit(f"remit dev without extras:\n{line}{server.stderr.read()}")
            page = _got(f"{match[1]}/")
            for path in re.findall(r'(?:src|href)="/([^"]+)"', page):
                assert _got(f"{match[1]}/{path}"), path
        finally:
            server.send_signal(signal.SIGINT)
            rest = server.communicate()[1]
    if "<script" not in page or server.returncode:
        raise SystemExit(f"remit dev ended with {server.returncode}, and its page was:\n{page}\n{rest}")


def _got(address: str) -> str:
    with urlopen(address, timeout=60) as reply:
        return reply.read().decode()


def main() -> None:
    """Build into the folder that is named, and say what was built."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    built = build(folder)
    if missing := in_source() - in_wheels(built):
        sys.exit(f"the wheels lack {', '.join(sorted(missing))}")
    try_out({name: Built(each.sdist, each.wheel.resolve()) for name, each in built.items()}, followed_pages())
    for path in (*(path for each in built.values() for path in each), write_bill(built["remit"].wheel, folder)):
        sys.stdout.write(f"{path}  {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
