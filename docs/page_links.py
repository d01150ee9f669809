"""Turns `remit docs PAGE` in texts from the code into links, for the pages that are made from it."""

import os
import re
from pathlib import Path

DOCS = Path(__file__).parent


def linked(text: str) -> str:
    """Return the text of a page in docs/reference, with a link wherever it names another page by its command."""
    return re.sub(r"`remit docs ([a-z0-9-]+)`", lambda match: _link(match[1]), text)


def _link(name: str) -> str:
    (page,) = DOCS.rglob(f"{name}.md")
    title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
    return f"[{title}]({os.path.relpath(page, DOCS / 'reference')})"
