"""Gives the package `remit` what it installs, its README, and its addresses.

`[tool.remit]` in pyproject.toml names the packages of this repository that it brings, and those of its extras. An
install from a checkout takes them from there; a release (`REMIT_RELEASE`, set by `make build`) asks for its own version
of each.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[((?:`[^`]*`|!\[[^\]]*\]\([^)]*\)|[^\]`])*)\]\((?!\w+:|#)([^)\s]+)\)")


class PackageMetadata(MetadataHookInterface):
    """Fills in `dependencies`, `optional-dependencies`, `readme` and `urls`."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Add them to the metadata of the package."""
        import tomllib

        root = Path(self.root)
        settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["remit"]
        addresses: dict[str, str] = settings["addresses"]
        readme = (root / "README.md").read_text(encoding="utf-8")
        source = addresses["source"]
        version: str = metadata["version"]
        if source:
            readme = absolute(readme, source, f"v{version}")
        checkout = None if os.environ.get("REMIT_RELEASE") or not (root / "packages").is_dir() else root
        metadata["dependencies"] = requirements(settings["packages"], version, checkout)
        metadata["optional-dependencies"] = {
            extra: requirements(names, version, checkout) for extra, names in settings["extras"].items()
        }
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
        metadata["urls"] = urls(source, addresses["documentation"])


def requirements(names: Iterable[str], version: str, checkout: Path | None) -> list[str]:
    """Return what asks for some packages of this repository, such as `relay[acp]`: from a checkout, or at a version."""
    if checkout is None:
        return [f"remit-{name}=={version}" for name in names]
    found: list[str] = []
    for name in names:
        folder = name.partition("[")[0]
        # pip takes a folder for `remit-core` only if that is asked for by itself, and not with an extra alone.
        place = (checkout / "packages" / folder).resolve().as_uri()
        found += [f"remit-{each} @ {place}" for each in dict.fromkeys((folder, name))]
    return found


def urls(source: str, documentation: str) -> dict[str, str]:
    """Return what an index shows beside a package."""
    named = {"Documentation": documentation}
    if source:
        named |= {
            "Source": source,
            "Changelog": f"{source}/blob/main/CHANGELOG.md",
            "Issues": f"{source}/issues",
        }
    return {name: address for name, address in named.items() if address}


def absolute(readme: str, source: str, tag: str) -> str:
    """Return a README whose links lead to the repository as it was at a tag."""

    def link(found: re.Match[str]) -> str:
        kind = "raw" if found[1] else "blob"
        return f"{found[1]}[{found[2]}]({source}/{kind}/{tag}/{found[3]})"

    return _LINK.sub(link, readme)
