"""Debian's Chromium for the browser tests: installed by root, else unpacked into a folder of the virtual environment.

Run by `make test`, and by the tests that need it where that was not done.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

# Without a font of its own, a page has no letters on a bare machine.
PACKAGES = ("chromium", "fonts-dejavu-core")
FOLDER = Path(sys.prefix) / "share" / "remit-chromium"
# About 100 packages, 120 MB; a mirror that does not answer must not hold up the tests.
SECONDS = 300


class UnavailableError(Exception):
    """Chromium is not on this machine, and cannot be had."""


@cache
def chromium() -> Path:
    """Return the program, installed if it is missing; raise `UnavailableError` with the reason."""
    if (path := _present()) is not None:
        return path
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with FOLDER.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test processes come at once
        if (path := _present()) is not None:
            return path
        for needed in ("apt-get", "dpkg-deb"):
            if not shutil.which(needed):
                raise UnavailableError(f"there is no {needed} to fetch Debian's Chromium with")
        if os.getuid() == 0:
            _install()
        else:
            _unpack()
    if (path := _present()) is None:
        raise UnavailableError("Debian's packages hold no program `chromium`")
    return path


def _present() -> Path | None:
    """Return the program if it starts."""
    for name in ("/usr/bin/chromium", shutil.which("chromium"), FOLDER / "chromium"):
        if name and Path(name).exists() and not _failure(Path(name)):
            return Path(name)
    return None


def _failure(program: Path) -> str:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip()[-300:] or f"status {done.returncode}" if done.returncode else ""


# ── by root ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _install() -> None:
    command = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *PACKAGES]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        _run(command, env=environment)
    except UnavailableError:  # an image comes without the lists of packages, or with old ones
        _run(["apt-get", "update", "-qq"], env=environment)
        _run(command, env=environment)


# ── without root ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _unpack() -> None:
    """Unpack the packages with everything they need that is not installed, and write a script that starts them."""
    with tempfile.TemporaryDirectory(dir=FOLDER.parent) as name:
        draft = Path(name)
        draft.chmod(0o755)
        simulated = _run(["apt-get", "install", "--simulate", "--no-install-recommends", *PACKAGES])
        wanted = re.findall(r"^Inst (\S+)", simulated, re.MULTILINE)
        _run(["apt-get", "download", *wanted], cwd=draft)
        for archive in sorted(draft.glob("*.deb")):
            _run(["dpkg-deb", "-x", str(archive), str(draft)])
            archive.unlink()
        start = draft / "chromium"
        libraries = [f"$here/{each.relative_to(draft)}" for each in sorted((draft / "usr/lib").glob("*-linux-gnu*"))]
        start.write_text(
            "#!/bin/sh\n"
            'here=$(cd "$(dirname "$0")" && pwd)\n'
            f'export LD_LIBRARY_PATH="{":".join(libraries)}"\n'
            'export XDG_DATA_DIRS="$here/usr/share:/usr/local/share:/usr/share"\n'
            'exec "$here/usr/lib/chromium/chromium" "$@"\n',
            encoding="utf-8",
        )
        start.chmod(0o755)
        if failure := _failure(start):
            raise UnavailableError(f"the unpacked Chromium does not start: {failure}")
        shutil.copytree(draft, FOLDER, symlinks=True, dirs_exist_ok=True)


def _run(command: list[str], env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    named = " ".join(command[:2])
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS, env=env, cwd=cwd)
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"`{named}` had not ended after {SECONDS} s") from None
    if done.returncode != 0:
        raise UnavailableError(f"`{named}` failed: {' '.join(done.stderr.split())[-300:]}")
    return done.stdout


if __name__ == "__main__":
    try:
        chromium()
    except UnavailableError as error:
        # The tests that need it say so once more, and are skipped.
        sys.stderr.write(f"NOT TESTED: the console in a browser, since Chromium cannot be had: {error}\n")
    else:
        ready = Path(sys.prefix) / ".chromium-ready"
        ready.touch()
