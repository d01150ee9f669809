"""The figures of the source tree that `bench/layout.py` prints."""

from layout import imports_within, measure


def test_every_figure_of_the_layout_is_measured_and_meets_its_goal() -> None:
    figures = {figure.name.removeprefix("layout: "): figure for figure in measure()}
    assert [name for name, figure in figures.items() if figure.ok is False] == []
    assert figures["modules"].value > 300
    assert figures["files run by hub.ask with a nested delegation"].value > 10
    assert figures["files run by a POST to a served hub"].value > 10


def test_imports_within_a_package_are_found_by_module_and_by_name() -> None:
    imports = imports_within("runtime")
    assert "runtime.frames" in imports["runtime.context"]
    assert "runtime.delegation.combine" in imports["runtime.brief_backend"], "an import within a function counts too"
    assert "runtime.engine" not in imports["runtime.frames"]
