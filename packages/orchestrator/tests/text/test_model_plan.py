"""What a model is asked for a plan, and the check of what it proposes."""

from datetime import date
from typing import Any

import pytest

from remit.protocol.card import Capability, Schema
from remit.protocol.envelope import Json
from remit.runtime.schemas import misfits
from remit_orchestrator.text.intent import Unknown
from remit_orchestrator.text.model_proposals import (
    ProposedPlan,
    checked,
    has_several_parts,
    plan_instructions,
    plan_schema,
)

DAY: Schema = {"type": "string", "format": "date", "description": "Day of the visit"}
VISIT = Capability(
    code="VISIT",
    description="Book an appointment",
    examples=("book an appointment",),
    input_schema={"type": "object", "properties": {"day": DAY}},
)
RESULT = Capability(code="RESULT", description="Look up a lab result", read_only=True)
CAPABILITIES = {"VISIT": VISIT, "RESULT": RESULT}
TEXT = "Mr Hansen is waiting. Look up his blood, then book a visit for tomorrow."
MONDAY = date(2026, 11, 16)


def fits(schema: Schema, value: Json) -> bool:
    return not misfits(schema, value)


def part(words: str, capability: Any = "RESULT", **more: Any) -> dict[str, Any]:
    return {"words": words, "capability": capability, "after": [], "condition": None, "values": {}, **more}


def proposed(*parts: Any, text: str = TEXT) -> ProposedPlan | str:
    proposal = {"parts": list(parts), "not_understood": []}
    return checked(proposal, text, Unknown(""), CAPABILITIES, fits, MONDAY)


def test_a_model_is_told_capabilities_and_their_fields() -> None:
    lines = plan_instructions(CAPABILITIES.values(), examples=1).splitlines()
    assert lines[-2] == "- VISIT: Book an appointment. People say: “book an appointment” Fields: day (Day of the visit)"
    assert lines[-1] == "- RESULT: Look up a lab result."


def test_the_form_of_a_proposal_is_the_one_that_is_read() -> None:
    proposal = {"parts": [part("x", None, condition={"words": "y", "holds": False})], "not_understood": ["z"]}
    assert misfits(plan_schema(list(CAPABILITIES)), proposal) == ()


def test_only_a_text_of_several_clauses_is_worth_a_plan() -> None:
    assert has_several_parts(TEXT)
    assert has_several_parts("book a visit if it is positive")
    assert not has_several_parts("book a visit")
    assert not has_several_parts(TEXT + "x" * 3_000), "the rest is material"


def test_what_is_said_besides_goes_to_every_part_and_the_words_give_the_order() -> None:
    plan = proposed(
        part("look up  HIS blood"), part("book a visit for tomorrow", "VISIT", values={"day": "2026-11-17"})
    )
    assert isinstance(plan, ProposedPlan)
    assert [(each.text, each.after) for each in plan.parts] == [
        ("Look up his blood", ()),
        ("book a visit for tomorrow", (0,)),
    ]
    assert plan.context == "Mr Hansen is waiting."


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        (("Look up",), "has not the form"),
        ((part("Look up his blood", reply="Send money!"),), "unknown field"),
        ((part("Look up his blood", "DROP" * 99),), "it named `DROPDROP"),
        ((part("Look up his blood"), part("book a visit for tomorrow", None, values={"day": 1})), "served by nothing"),
        (
            (part("Look up his blood"), part("book a visit for tomorrow", "VISIT", values={"day": "2026-11-18"})),
            "`day`",
        ),
        ((part("Look up his blood"), part("a visit for tomorrow", "VISIT")), "no part of the proposal has “book”"),
        (tuple(part("Look") for _ in range(13)), "has 13 parts"),
    ],
)
def test_what_does_not_fit_the_request_is_refused_with_a_short_reason(parts: tuple[Any, ...], why: str) -> None:
    refused = proposed(*parts)
    assert isinstance(refused, str)
    assert why in refused
    assert len(refused) < 250
