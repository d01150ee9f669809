"""Builds the sdist and the wheel without network, and tries the wheel in an empty environment: `make build`.

The wheel is built from the unpacked sdist, so that a file which the sdist lacks shows.
"""

import json
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from remit.cli.manual import DOORS

ROOT = Path(__file__).resolve().parents[1]
# Why an editable install has no console (hatch_build.py).
TROUBLE = ".trouble"
CODE = ROOT / "src" / "remit"


def build(folder: Path) -> tuple[Path, Path]:
    """Build both into *folder*, with the installed hatchling, and return the sdist and the wheel."""
    _hatchling("sdist", folder, ROOT)
    (sdist,) = folder.glob("remit-*.tar.gz")
    with TemporaryDirectory() as unpacked:
        # Not by tarfile: its filter, without which newer versions of Python warn, came with 3.11.4.
        run(["tar", "-xzf", sdist.resolve(), "-C", unpacked], folder)
        _hatchling("wheel", folder, Path(unpacked, sdist.name.removesuffix(".tar.gz")))
    (wheel,) = folder.glob("remit-*.whl")
    return sdist, wheel


def _hatchling(target: str, folder: Path, project: Path) -> None:
    run([sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder.resolve()], project)


def run(command: Sequence[str | Path], folder: Path) -> None:
    """Run a command, and show what it printed if it fails."""
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        words = " ".join(map(str, command))
        raise SystemExit(f"{words} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def in_wheel(wheel: Path) -> set[str]:
    """Return the files of the package that a wheel holds, relative to the package."""
    with zipfile.ZipFile(wheel) as archive:
        return {name.removeprefix("remit/") for name in archive.namelist() if name.startswith("remit/")}


def in_source() -> set[str]:
    """Return the files of the package: modules, type stubs, templates, the built page of the console, documentation."""
    files = (path.relative_to(CODE) for path in CODE.rglob("*") if path.is_file())
    pages = (path.relative_to(ROOT / "docs") for door in DOORS for path in (ROOT / "docs" / door).rglob("*.md"))
    return {path.as_posix() for path in files if not {"__pycache__", ".remit", TROUBLE}.intersection(path.parts)} | {
        f"pages/{path.as_posix()}" for path in pages
    }


def try_out(wheel: Path) -> None:
    """Install a wheel into an empty environment, and make and run the first team of the tutorial with it.

    The environment gets this one's dependencies by a path: there need be no network. The sources are not on that path.
    """
    with TemporaryDirectory() as folder:
        home = Path(folder, "venv")
        venv.create(home, symlinks=True, with_pip=True)
        python, remit = home / "bin" / "python", home / "bin" / "remit"
        pip = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-index", "--no-deps"]
        run([*pip, wheel], home)
        site = next(home.glob("lib/python*/site-packages"))
        (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        team = Path(folder, "team")
        for command in (
            [python, "-c", f"import remit; assert remit.__file__.startswith({str(site)!r}), remit.__file__"],
            [remit, "--version"],
            [remit, "docs", "first-team"],
            [remit, "init", team, "--yes"],
            [remit, "validate", "--code", "--team", team / "remit.toml"],
            [remit, "run", "assistant", "It works.", "--team", team / "remit.toml"],
        ):
            run(command, home)
        _open_console([remit, "serve", "--console", "--json", "--port", "0", "--team", team / "remit.toml"])


def _open_console(command: Sequence[str | Path]) -> None:
    """Serve the console, and get its page and what the page loads first."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["console"]
            page = _got(address)
            for path in re.findall(r'(?:src|href)="/([^"]+)"', page):
                assert _got(address + path), path
        finally:
            server.terminate()
    if "<script" not in page:
        raise SystemExit(f"{address} is not the console")


def _got(address: str) -> str:
    with urlopen(address, timeout=60) as reply:
        return reply.read().decode()


def main() -> None:
    """Build into the folder that is named, and say what was built."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    sdist, wheel = build(folder)
    if missing := in_source() - in_wheel(wheel):
        sys.exit(f"the wheel lacks {', '.join(sorted(missing))}")
    try_out(wheel.resolve())
    for path in (sdist, wheel):
        sys.stdout.write(f"{path}  {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
