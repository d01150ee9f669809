"""The page about the architecture names what is there: packages, and the layers that import-linter checks."""

import re

import pytest

from checkout import ROOT
from doc_pages import page_text
from layout import PACKAGES, needs
from picture_architecture import LABELS, STEPS, layers, packages

PAGE = page_text("architecture")
CORE = ROOT / "packages" / "core" / "src" / "remit"
SOURCES = sorted(ROOT.glob("packages/*/src"))

FOLDERS = sorted(
    f"{folder.parent.relative_to(CORE if folder.is_relative_to(CORE) else source)}/"
    for source in SOURCES
    for folder in source.rglob("__init__.py")
    if folder.parent != CORE
)
NAMED = sorted(set(re.findall(r"`([\w/]+(?:\.py|/))`", PAGE)) - {"packages/", "packages/core/src/remit/", "team/"})


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_of_code_is_in_the_module_map(folder: str) -> None:
    assert f"`{folder}`" in section("The module map")


@pytest.mark.parametrize("path", NAMED)
def test_every_module_on_the_page_exists(path: str) -> None:
    exists = any((place / path).exists() for place in (CORE, *SOURCES))
    assert exists or path == "section.py", f"the page architecture names {path}, which no package has"


def test_the_table_of_packages_says_what_each_asks_for() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| .*? \| (.*?) ?\|$", section("The packages"), re.MULTILINE)
    assert {(name, *re.findall(r"`(\w+)`", below)) for name, _, below in rows} == {
        (name, *sorted(needs(name) - {name})) for name in PACKAGES
    }
    assert all((ROOT / "packages" / name / "src" / module).is_dir() for name, module, _ in rows)


def test_the_table_of_layers_is_the_import_contract() -> None:
    rows = re.findall(r"^\| (`.*?) \|", section("The layers of the core"), re.MULTILINE)
    assert [tuple(re.findall(r"`(\w+)`", row)) for row in rows] == layers()


def test_the_module_map_is_in_the_order_in_which_packages_can_be_read() -> None:
    """No package stands above one that it imports from."""
    height = {name: place for place, row in enumerate(reversed(layers())) for name in row}
    named = re.findall(r"^\| \*\*`(\w+)/`", section("The module map"), re.MULTILINE)
    read = [name for name in named if not name.startswith("remit_")]
    assert [height[name] for name in read] == sorted(height[name] for name in read)


def test_the_steps_in_the_picture_are_those_of_the_text() -> None:
    steps = re.findall(r"^\d\. \*\*(\w+)\.\*\*", section("One request, step by step"), re.MULTILINE)
    assert [step.name for step in STEPS] == [name.lower() for name in steps]


def test_every_file_in_the_picture_is_in_the_text() -> None:
    assert {file for step in STEPS for file in step.files} <= set(NAMED)


def test_the_picture_has_a_label_for_each_package_and_layer_and_no_other() -> None:
    assert set(LABELS) == {name for row in (*packages(), *layers()) for name in row}


def test_no_package_in_the_picture_stands_above_one_that_needs_it() -> None:
    order = [name for row in packages() for name in row]
    assert sorted(order) == [name for name in PACKAGES if name != "core"]
    assert all(order.index(name) < order.index(below) for name in order for below in needs(name) - {name, "core"})
