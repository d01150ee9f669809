"""Old names of methods, properties and arguments still work, and say the new name."""

import inspect
from collections.abc import Callable

import pytest

from remit.protocol.deprecation import Renamed, renamed_arguments, with_new_name


class Lamp:
    """A class with a method, a property and an argument that had other names."""

    @renamed_arguments(how_bright="watts")
    def shine(self, *, watts: int = 1) -> int:
        return watts

    @property
    def is_on(self) -> bool:
        return True

    glow = Renamed("shine")
    burns = Renamed("is_on")


def test_an_old_method_and_an_old_property_work_and_warn() -> None:
    with pytest.warns(DeprecationWarning, match=r"`Lamp.glow` is deprecated: use `Lamp.shine`") as found:
        assert Lamp().glow(watts=3) == 3
    assert found[0].filename == __file__, "the warning names the line that has to change"
    with pytest.warns(DeprecationWarning, match=r"use `Lamp.is_on`"):
        assert Lamp().burns is True
    with pytest.warns(DeprecationWarning, match=r"use `Lamp.shine`"):
        assert Lamp.glow(Lamp()) == 1


def test_an_old_argument_works_and_warns_but_not_beside_the_new_one() -> None:
    shine: Callable[..., int] = Lamp().shine
    with pytest.warns(DeprecationWarning, match=r"`Lamp.shine\(how_bright=…\)` is deprecated: use `watts=…`") as found:
        assert shine(how_bright=5) == 5
    assert found[0].filename == __file__
    with pytest.raises(TypeError, match="both `watts` and its old name `how_bright`"):
        shine(watts=1, how_bright=2)
    assert list(inspect.signature(Lamp.shine).parameters) == ["self", "watts"]


def test_a_method_that_users_write_is_found_under_its_old_name() -> None:
    class OldListener:
        def hears(self) -> str:
            return "heard"

    class Listener:
        def classify(self) -> str:
            return "classified"

    with pytest.warns(DeprecationWarning, match=r"`OldListener.hears` is deprecated: use `OldListener.classify`"):
        made: object = with_new_name(OldListener(), old="hears", new="classify")
    assert getattr(made, "classify")() == "heard"  # noqa: B009 - its type does not have it
    listener = Listener()
    assert with_new_name(listener, old="hears", new="classify") is listener
