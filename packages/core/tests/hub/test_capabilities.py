"""What a capability asks of its input (K1, K2): all that is missing is named, and so is all that is wrong."""

from typing import Any

import pytest

from remit import Brief, Capability, Code, Hub, Status
from samples import code_of

NPV = Capability(
    code="ANL_NPV",
    input_schema={
        "type": "object",
        "required": ["cash_flows", "discount_rate"],
        "properties": {
            "cash_flows": {"type": "array", "minItems": 2},
            "discount_rate": {"type": "number"},
            "market": {"type": "object", "required": ["country"]},
            "by_mail": {"type": "object", "additionalProperties": {"type": "object", "required": ["share"]}},
        },
        "dependentRequired": {"market": ["currency"]},
    },
)

MAIL = "ann@example.org"
WHOLE = {"cash_flows": [-1, 2], "discount_rate": 0.1}


def analyst(hub: Hub) -> list[Any]:
    ran: list[Any] = []

    @hub.agent("ANL", capabilities=[NPV])
    async def anl(brief: Brief) -> str:
        ran.append(brief.input)
        return "done"

    return ran


MISSING: dict[str, tuple[Any, list[str], str]] = {
    "one": ({"cash_flows": [-1, 2]}, ["$.discount_rate"], "discount_rate"),
    "all": ({}, ["$.cash_flows", "$.discount_rate"], "cash_flows, discount_rate"),
    "nothing given": (None, ["$.cash_flows", "$.discount_rate"], "cash_flows, discount_rate"),
    "deep": ({**WHOLE, "currency": "EUR", "market": {}}, ["$.market.country"], "country"),
    "because of another": ({**WHOLE, "market": {"country": "AT"}}, ["$.currency"], "currency"),
}


@pytest.mark.parametrize(("given", "paths", "named"), MISSING.values(), ids=MISSING)
async def test_an_input_that_lacks_what_is_required_is_refused_with_the_paths_of_what_is_missing(
    hub: Hub, given: Any, paths: list[str], named: str
) -> None:
    """K1, K2: `DATA_MISSING_REQUIRED_INPUT`, before the agent runs."""
    ran = analyst(hub)
    async with hub:
        response = await hub.ask("ANL", user="u", capability="ANL_NPV", input=given)
    assert (response.status, ran) == (Status.REFUSED, [])
    assert response.fault is not None
    assert response.fault.code is Code.DATA_MISSING_REQUIRED_INPUT
    assert response.fault.message == f"the input of ANL_NPV lacks {named}"
    assert [problem.path for problem in response.fault.problems] == paths


WRONG: dict[str, tuple[Any, list[str]]] = {
    "wrong": ({"cash_flows": [1], "discount_rate": 0.1}, ["$.cash_flows"]),
    "wrong and missing": ({"cash_flows": [1]}, ["$.cash_flows", "$.discount_rate"]),
    "of another type": ("cash", ["$"]),
}


@pytest.mark.parametrize(("given", "paths"), WRONG.values(), ids=WRONG)
async def test_an_input_with_something_wrong_in_it_is_refused_with_all_that_is_wrong_or_missing(
    hub: Hub, given: Any, paths: list[str]
) -> None:
    """K1, K2: `INPUT_VALIDATION_FAILED`."""
    ran = analyst(hub)
    async with hub:
        response = await hub.ask("ANL", user="u", capability="ANL_NPV", input=given)
    assert (response.status, ran) == (Status.REFUSED, [])
    assert response.fault is not None
    assert response.fault.code is Code.INPUT_VALIDATION_FAILED
    assert sorted(problem.path for problem in response.fault.problems) == paths


async def test_nothing_given_where_nothing_is_required_is_of_the_wrong_type(hub: Hub) -> None:
    @hub.agent("a", capabilities=[Capability(code="ANY", input_schema={"type": "object"})])
    async def a(brief: Brief) -> str:
        raise AssertionError

    async with hub:
        response = await hub.ask("a", user="u", capability="ANY")
    assert code_of(response) is Code.INPUT_VALIDATION_FAILED


async def test_a_caller_is_told_what_is_missing_and_nothing_that_it_may_not_see(hub: Hub) -> None:
    """X12: a field within what a token stands for is named, and the place that would show it is not."""
    analyst(hub)
    seen: list[Any] = []

    @hub.agent("boss", may_call=["ANL"])
    async def boss(brief: Brief) -> str:
        seen.append(await brief.delegate("ANL", capability="ANL_NPV", input={**WHOLE, "by_mail": {brief.input: {}}}))
        seen.append(await brief.delegate("ANL", capability="ANL_NPV", input={"cash_flows": [1, brief.input]}))
        return "done"

    async with hub:
        await hub.ask("boss", user="u", input=MAIL)
    hidden, shown = (each.fault for each in seen)
    assert hidden.code is shown.code is Code.DATA_MISSING_REQUIRED_INPUT
    assert [(each.path, each.message) for each in hidden.problems] == [("$.by_mail", "`share` is required but missing")]
    assert [(each.path, each.message) for each in shown.problems] == [("$.discount_rate", "is required but missing")]
    assert MAIL not in str(seen)
