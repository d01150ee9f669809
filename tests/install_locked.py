"""Install locked packages into the environment of this Python: with uv, or with pip where uv does not work.

`python install_locked.py LOCK…`. uv comes from requirements.lock, installed by pip, and looks for packages where pip is
configured to look. pip installs them several times slower, in one process.
"""

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

LOCK = Path(__file__).resolve().parents[1] / "requirements.lock"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq"]
UV = str(Path(sys.executable).with_name("uv"))
HASHED = ("--require-hashes", "--no-deps")
PIN = re.compile(r"^uv==.*\n(?: .*\n)*", re.MULTILINE)

# The settings of pip, the variables of uv for the same, and what separates several values there.
SETTINGS = (
    ("index-url", "UV_DEFAULT_INDEX", " "),
    ("extra-index-url", "UV_INDEX", " "),
    ("find-links", "UV_FIND_LINKS", ","),
    ("trusted-host", "UV_INSECURE_HOST", " "),
    ("no-index", "UV_NO_INDEX", " "),
    ("cert", "SSL_CERT_FILE", " "),
    ("proxy", "ALL_PROXY", " "),
)


def variables_for_uv(settings: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables that have uv find packages as pip does, by what `pip config list` prints.

    Variables that are set already win. Any index may have the version that is locked: the hashes say what is meant.
    """
    given = [(*line.partition("=")[0].rpartition(".")[::2], line.partition("=")[2]) for line in settings.splitlines()]
    # As for pip, the last one of these counts.
    scopes = ("global", "install", ":env:")
    pip_settings = {name: ast.literal_eval(value) for scope in scopes for place, name, value in given if place == scope}
    made = {uv: separator.join(pip_settings[pip].split()) for pip, uv, separator in SETTINGS if pip in pip_settings}
    return {"UV_INDEX_STRATEGY": "unsafe-best-match", **made, **environ}


def install(locks: Sequence[Path]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        uv, others = Path(folder, "uv.txt"), Path(folder, "others.txt")
        others.write_text("".join(PIN.sub("", lock.read_text()) for lock in locks))
        uv.write_text("".join(PIN.findall(LOCK.read_text())))
        options = ["--quiet", "--python", sys.executable, *HASHED]
        has_uv = _works([*PIP, "install", "--only-binary", ":all:", *HASHED, "-r", str(uv)])
        if not has_uv or not _works([UV, "pip", "install", *options, "-r", str(others)], _variables()):
            print("uv cannot install the packages here: pip does, which takes longer", file=sys.stderr)
            subprocess.run([*PIP, "install", *HASHED, "-r", str(others)], check=True)


def _variables() -> dict[str, str]:
    settings = subprocess.run([*PIP, "config", "list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return variables_for_uv(settings, os.environ)


def _works(command: list[str], variables: Mapping[str, str] | None = None) -> bool:
    return subprocess.run(command, env=variables, stderr=subprocess.DEVNULL, check=False).returncode == 0


if __name__ == "__main__":
    install([Path(name) for name in sys.argv[1:]])
