"""Personal data and secrets that tests plant, and ways by which they come to a model."""

import random
import sys
from collections.abc import Sequence
from pathlib import Path

from checkout import TESTS
from remit import Hub
from remit_models.mcp import add_mcp

PLANTED = 500
_SERVER = """
import sys
sys.path.insert(0, {folder!r})
from quick_shed import serve

def customers() -> str:
    return {text!r}

serve(customers)
"""


def _card_number(drawn: random.Random) -> str:
    digits = [4, *(drawn.randrange(10) for _ in range(14))]
    doubled = [sum(divmod(digit * 2, 10)) if place % 2 == 0 else digit for place, digit in enumerate(digits)]
    return "".join(map(str, (*digits, -sum(doubled) % 10)))


def _aws_key(drawn: random.Random) -> str:
    return "AKIA" + "".join(drawn.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", k=16))


def _email(drawn: random.Random) -> str:
    return f"{''.join(drawn.choices('abcdefgh', k=9))}@example.org"


def planted() -> list[str]:
    """Return e-mail addresses, card numbers and AWS keys, the same each time."""
    drawn = random.Random(34)
    return [(_email, _card_number, _aws_key)[number % 3](drawn) for number in range(PLANTED)]


def sentence(values: Sequence[str]) -> str:
    return " and ".join(f"this is {value}" for value in values)


def add_server(hub: Hub, text: str, folder: Path) -> None:
    """Add an MCP server whose tool `customers` returns a text."""
    (folder / "server.py").write_text(_SERVER.format(folder=str(TESTS), text=text))
    add_mcp(hub, "shop", sys.executable, [str(folder / "server.py")], allow=["customers"])
