"""Gives the package its addresses, and its README links that work outside of the repository.

`[tool.remit.addresses]` in pyproject.toml names the repository and the documentation. Where they are empty, the package
has no addresses, and the README is taken as it is.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[((?:`[^`]*`|!\[[^\]]*\]\([^)]*\)|[^\]`])*)\]\((?!\w+:|#)([^)\s]+)\)")


class PackageAddresses(MetadataHookInterface):
    """Fills in `readme` and `urls`."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Add both to the metadata of the package."""
        import tomllib

        settings = tomllib.loads(Path(self.root, "pyproject.toml").read_text(encoding="utf-8"))
        addresses: dict[str, str] = settings["tool"]["remit"]["addresses"]
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        source = addresses["source"]
        if source:
            readme = absolute(readme, source, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
        metadata["urls"] = urls(source, addresses["documentation"])


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
