"""Pages of the documentation by name, wherever they lie below docs/."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def page_path(name: str) -> Path:
    """Return the one page of this name, without its ending."""
    (path,) = DOCS.rglob(f"{name}.md")
    return path


def page_text(name: str) -> str:
    return page_path(name).read_text(encoding="utf-8")
