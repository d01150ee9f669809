"""A failing agent in the terminal: `remit run` and `remit runs show` say in which line of its code it failed."""

from pathlib import Path

from command_line import document, remit

TEAM = """
name = "shop"

[agents.clerk]
run = "shop_code:clerk"
"""
CODE = """
def price(item):
    raise KeyError(f"{item} of ada@example.org")


async def clerk(brief):
    return price("tea")
"""


def test_the_place_of_an_error_is_printed_and_kept(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text(TEAM)
    (tmp_path / "shop_code.py").write_text(CODE)
    run = remit("run", "clerk", "go", folder=tmp_path)
    assert run.returncode == 1
    (line,) = document("runs", "list", folder=tmp_path)["runs"]
    shown = remit("runs", "show", line["run"], folder=tmp_path)
    assert shown.returncode == 0
    for text in (run.stderr, shown.stdout):
        assert "at shop_code.py:7, in clerk: return price(" in text
        assert "at shop_code.py:3, in price: raise KeyError" in text
        assert "/src/remit" not in text
        assert "ada@example.org" not in text
    origin = document("runs", "show", line["run"], folder=tmp_path)["fault"]["origin"]
    assert (origin["agent"], [each["line"] for each in origin["frames"]]) == ("clerk", [7, 3])
