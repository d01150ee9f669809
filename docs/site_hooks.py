"""What mkdocs asks while it builds the site: the navigation, the pages beside docs/, and the text of each page."""

import os
import tomllib

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from site_build import VERSION
from site_nav import DOCS, PROJECT_PAGES, navigation
from site_text import ROOT, for_site, links_outside, site_place, source_page

# Where in the repository each page of the site that is not below docs/ comes from.
_places: dict[str, str] = {}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the navigation from docs/index.md, and the addresses from pyproject.toml, where they are named."""
    config.nav = navigation((DOCS / "index.md").read_text(encoding="utf-8"))
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    addresses = settings["tool"]["remit"]["addresses"]
    site, version = addresses["documentation"].rstrip("/"), os.environ.get(VERSION)
    config.site_url = f"{site}/{f'{version}/' if version else ''}" if site else ""
    config.repo_url = addresses["source"] or None
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the root of the repository, and every file that a page links to."""
    _places.clear()  # of the build before, while the site is served
    texts = {f"docs/{file.src_uri}": file.content_string for file in files.documentation_pages()}
    waiting = [*PROJECT_PAGES, *(link for place, text in texts.items() for link in links_outside(text, place))]
    while waiting:
        place = waiting.pop()
        if site_place(place) in _places or not (ROOT / place).exists():  # mkdocs says which link is broken
            continue
        _places[site_place(place)] = place
        written = place.endswith(".md")
        text = (ROOT / place).read_text(encoding="utf-8") if written else source_page(place)
        if written:
            waiting.extend(links_outside(text, place))
        files.append(File.generated(config, site_place(place), content=text))
    files.append(File.generated(config, "assets/icon.svg", abs_src_path=str(ROOT / "web" / "public" / "icon.svg")))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Give mkdocs the text that it understands."""
    uri = page.file.src_uri
    text = for_site(markdown, _places.get(uri, f"docs/{uri}"))
    if uri.startswith("reference/python"):
        page.meta["search"] = {"boost": 0.5}  # a page that explains a word is found before one that only has it
    if uri != "index.md":
        return text
    page.meta["hide"] = ["navigation"]  # the page is the navigation
    return _with_cards(text)


def _with_cards(text: str) -> str:
    """Show the first list of the home page, the four doors, as cards."""
    start = text.index("\n- ") + 1
    end = text.index("\n\n", start)
    return f'{text[:start]}<div class="grid cards" markdown>\n\n{text[start:end]}\n\n</div>{text[end:]}'
