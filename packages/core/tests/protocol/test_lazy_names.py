"""Names of a package that are imported when they are first used."""

import gc
import sys
from types import ModuleType

import pytest

from remit.protocol.lazy_names import lazy_names


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("a_package")
    monkeypatch.setitem(sys.modules, "a_package", made)
    return made


def test_a_name_is_imported_from_its_home_and_kept(package: ModuleType) -> None:
    load = lazy_names("a_package", {"fractions": ("Fraction",)})
    assert load("Fraction") is vars(package)["Fraction"]


@pytest.mark.usefixtures("package")
def test_an_unknown_name_is_reported_as_python_does() -> None:
    load = lazy_names("a_package", {"fractions": ("Fraction",)})
    with pytest.raises(AttributeError, match="module 'a_package' has no attribute 'Faction'"):
        load("Faction")


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("collects", [True, False])
def test_garbage_collection_is_as_it_was(collects: bool) -> None:
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        lazy_names("a_package", {"fractions": ("Fraction",)})("Fraction")
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()
