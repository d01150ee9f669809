"""The wheel that a release publishes is whole."""

from pathlib import Path

import remit
from build_wheel import build, in_source, in_wheel


def test_the_wheel_holds_every_module_and_every_template(tmp_path: Path) -> None:
    sdist, wheel = build(tmp_path)
    assert in_wheel(wheel) == in_source()
    assert sdist.name == f"remit-{remit.__version__}.tar.gz"
    assert wheel.name == f"remit-{remit.__version__}-py3-none-any.whl"
