"""Builds the sdist, the wheel and its bill of materials without network, and tries the wheel: `make build`.

The wheel is built from the unpacked sdist, so that a file which the sdist lacks shows.
"""

import os
import re
import signal
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from build_sbom import required_by, write_bill
from doc_pages import EXIT, ROOT, blocks
from remit.cli.manual import DOORS

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


def run(
    command: Sequence[str | Path], folder: Path, *, variables: Mapping[str, str] | None = None, code: int = 0
) -> None:
    """Run a command, and show what it printed unless it ends with *code*."""
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


# ── the wheel in an empty environment ─────────────────────────────────────────────────────────────────────────────────


def try_out(wheel: Path) -> None:
    """Install a wheel without extras into an empty environment, and do there what README and tutorials say."""
    with TemporaryDirectory() as folder:
        scripts = install(wheel, Path(folder, "venv"))
        variables = {
            "HOME": folder,
            "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONWARNINGS": "error",
            "PYTHONUTF8": "1",
        }
        here = f"import remit; assert remit.__file__.startswith({folder!r}), remit.__file__"
        run(["python", "-c", here], Path(folder), variables=variables)
        for page in followed_pages():
            follow(page, Path(folder, page.stem), variables)
        run(["remit", "docs", "first-team"], Path(folder), variables=variables)
        _look_around(Path(folder, "dev"), variables)


def install(wheel: Path, home: Path) -> Path:
    """Install a wheel into a new environment with what it needs, and return the folder of its commands.

    What it needs is linked from the environment of this process, by the metadata of the wheel: there need be no
    network, and nothing else is there.
    """
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            python,
            "install",
            "-qq",
            "--no-compile",
            "--no-index",
            "--no-deps",
            wheel,
        ],
        home,
    )
    (site,) = home.glob("lib/python*/site-packages")
    (installed,) = distributions(path=[str(site)])
    for needed in required_by(installed.requires or []).values():
        assert isinstance(needed, Distribution), f"{needed} is not installed here"
        for name in {path.parts[0] for path in needed.files or [] if path.parts[0] not in ("..", "__pycache__")}:
            (site / name).symlink_to(Path(str(needed.locate_file(name))).resolve())
    return python.parent


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


def _look_around(folder: Path, variables: Mapping[str, str]) -> None:
    """Open the console with `remit dev`, which says that the chat is off; get its page and what that loads."""
    folder.mkdir()
    command = ["remit", "dev", "--no-browser"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder, env=variables) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            told = re.fullmatch(
                r"The chat demo is off: it needs `pip install 'remit\[relay\]'`\. "
                r"Everything else is at (http://127\.0\.0\.1:\d+) \(Ctrl-C to stop\)\.\n",
                line,
            )
            if told is None:
                server.terminate()
                raise SystemExit(f"remit dev without extras:\n{line}{server.stderr.read()}")
            page = _got(f"{told[1]}/")
            for path in re.findall(r'(?:src|href)="/([^"]+)"', page):
                assert _got(f"{told[1]}/{path}"), path
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
    sdist, wheel = build(folder)
    if missing := in_source() - in_wheel(wheel):
        sys.exit(f"the wheel lacks {', '.join(sorted(missing))}")
    try_out(wheel.resolve())
    for path in (sdist, wheel, write_bill(wheel, folder)):
        sys.stdout.write(f"{path}  {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
