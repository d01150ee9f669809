"""Builds the site of one version into site/VERSION, beside those of other versions: `make site`."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "site"

VERSION = "SITE_VERSION"
"""The variable that tells the hooks of mkdocs which version is built."""

# The newest version is what the address of the site leads to.
FRONT = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Remit</title>
<meta http-equiv="refresh" content="0; url={version}/">
<a href="{version}/">Remit {version}</a>
</html>
"""


def version_in_code() -> str:
    """Return the version that the site is named after: fixes (the third number) change no page's meaning."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return ".".join(project["version"].split(".")[:2])


def versions(folder: Path) -> list[str]:
    """Return the versions that are built there, newest first; one that is no number, such as `dev`, comes last."""

    def order(name: str) -> tuple[int, ...]:
        return tuple(int(part) if part.isdigit() else -1 for part in name.split("."))

    return sorted((page.parent.name for page in folder.glob("*/index.html")), key=order, reverse=True)


def write_front(folder: Path) -> None:
    """Write the list of versions, which the pages offer, and the page that leads to the newest."""
    built = versions(folder)
    listed = [{"version": each, "title": each, "aliases": ["latest"] if each == built[0] else []} for each in built]
    (folder / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(FRONT.format(version=built[0]), encoding="utf-8")


if __name__ == "__main__":
    version = sys.argv[1] if sys.argv[1:] else version_in_code()
    # Not `--quiet`: with it, mkdocs does not count its warnings either, and builds whatever is wrong.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(SITE / version)]
    variables = {**os.environ, VERSION: version}
    done = subprocess.run(command, cwd=ROOT, env=variables, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit("".join(line for line in done.stderr.splitlines(keepends=True) if not line.startswith("INFO")))
    write_front(SITE)
    sys.stdout.write(f"Built {(SITE / version / 'index.html').relative_to(ROOT)}\n")
