"""Puts the pages that `remit docs` shows into the package when it is built."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DOORS = ("tutorials", "how-to", "reference", "explanation")
PAGES = "remit_cli/pages"


class PagesBuild(BuildHookInterface[Any]):
    """Brings the pages from `docs`; in an unpacked sdist they are part of the package already."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the folders of pages; an editable install reads them where they are."""
        if version == "editable" or Path(self.root, "src", PAGES).is_dir():
            return
        docs = Path(self.root).parents[1] / "docs"
        inside = f"src/{PAGES}" if self.target_name == "sdist" else PAGES
        # The decisions behind the code are for who changes it, in a checkout.
        pages = (page for door in DOORS for page in (docs / door).glob("*.*"))
        build_data["force_include"] |= {str(page): f"{inside}/{page.parent.name}/{page.name}" for page in pages}
