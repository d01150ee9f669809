"""The page about the architecture names what is there, and the layers that import-linter checks."""

import re
from pathlib import Path

import pytest

from doc_pages import page_text
from picture_architecture import LABELS, STEPS, layers

ROOT = Path(__file__).resolve().parents[2]
CODE = ROOT / "src" / "remit"
PAGE = page_text("architecture")

PACKAGES = sorted(
    f"{folder.parent.relative_to(CODE)}/" for folder in CODE.rglob("__init__.py") if folder.parent != CODE
)
NAMED = sorted({path for path in re.findall(r"`([\w/]+(?:\.py|/))`", PAGE) if path != "src/remit/"})


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_in_the_module_map(package: str) -> None:
    assert f"`{package}`" in section("The module map")


@pytest.mark.parametrize("path", NAMED)
def test_every_module_on_the_page_exists(path: str) -> None:
    assert (CODE / path).exists(), f"the page architecture names {path}, which is not in src/remit"


def test_the_table_of_layers_is_the_import_contract() -> None:
    rows = re.findall(r"^\| (`.*?) \|", section("The layers"), re.MULTILINE)
    assert [tuple(re.findall(r"`(\w+)`", row)) for row in rows] == layers()


def test_the_module_map_is_in_the_order_in_which_packages_can_be_read() -> None:
    """No package stands above one that it imports from."""
    height = {name: place for place, row in enumerate(reversed(layers())) for name in row}
    read = re.findall(r"^\| \*\*`(\w+)/`", section("The module map"), re.MULTILINE)
    assert [height[name] for name in read] == sorted(height[name] for name in read)


def test_the_steps_in_the_picture_are_those_of_the_text() -> None:
    told = re.findall(r"^\d\. \*\*(\w+)\.\*\*", section("One request, step by step"), re.MULTILINE)
    assert [step.name for step in STEPS] == [name.lower() for name in told]


def test_every_file_in_the_picture_is_in_the_text() -> None:
    assert {file for step in STEPS for file in step.files} <= set(NAMED)


def test_the_picture_has_a_label_for_each_package_and_no_other() -> None:
    assert set(LABELS) == {name for row in layers() for name in row}
