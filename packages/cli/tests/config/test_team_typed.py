"""Typed agents in a team file: their signatures give the schemas, and `remit validate` says what is wrong with them."""

from pathlib import Path

import pytest

from remit import RemitError
from remit_cli import hub_of, load_team

CODE = """
from dataclasses import dataclass
from remit import Brief

@dataclass
class Order:
    item: str

async def quote(brief: Brief, order: Order) -> Order:
    return order

async def untyped(brief, order):
    return order

async def alone(order: Order):
    return order
"""
TEAM = """
name = "shop"

[store]
path = "hub.db"

[agents.pricing]
run = "{module}:{function}"
capabilities = ["QUOTE"]

[capabilities.QUOTE]
description = "A price."
"""


def write(folder: Path, module: str, function: str) -> Path:
    """Return a team file; of modules only one of each name is loaded."""
    (folder / f"{module}.py").write_text(CODE)
    (folder / "remit.toml").write_text(TEAM.format(module=module, function=function))
    return folder / "remit.toml"


async def test_an_agent_of_a_team_file_is_typed_by_its_signature(tmp_path: Path) -> None:
    hub = hub_of(load_team(write(tmp_path, "typed_shop", "quote")))
    (capability,) = hub.cards["pricing"].capabilities
    assert capability.description == "A price."
    assert capability.input_schema is not None
    assert capability.input_schema["required"] == ["item"]
    async with hub:
        assert (await hub.ask("pricing", user="u-1", input={"item": "tea"})).result == {"item": "tea"}


@pytest.mark.parametrize(
    ("function", "why"), [("untyped", "give it a type"), ("alone", "its first parameter takes the brief")]
)
def test_a_parameter_that_cannot_be_filled_is_named_with_what_to_do(tmp_path: Path, function: str, why: str) -> None:
    with pytest.raises(RemitError) as raised:
        load_team(write(tmp_path, f"shop_with_{function}", function))
    (problem,) = raised.value.fault.problems
    assert "agents.pricing.run" in problem.path
    assert why in problem.message
