"""What users are asked, and what becomes of their replies (K7, K9, K13, K14)."""

import asyncio
from collections.abc import Callable
from typing import Any

from remit import Answer, Brief, Capability, Hub, Response, Status, Step, Workflow
from remit_orchestrator import add_orchestrator, add_workflow
from scripted_reader import ScriptedReader

MakeHub = Callable[..., Hub]

TRIP = Workflow(
    name="trip-check",
    description="Compare what is known of a trip",
    steps=(Step(name="the_receipts", capability="RECEIPTS"), Step(name="the_bank", capability="BANK")),
    compare=("the_receipts", "the_bank"),
)


SCRIPT = {
    "compare it": [("trip-check", 0.9)],
    "perhaps": [("trip-check", 0.35), ("CLAIM", 0.3)],
    "maybe": [("CLAIM", 0.45)],
    "claim it": [("CLAIM", 0.9)],
}


def team(hub: Hub, bank: dict[str, Any], sure: float = 0.9) -> list[Brief]:
    """Two sources that are compared, of which the bank says what is given; and one who uses what was decided."""
    briefs: list[Brief] = []

    @hub.agent("reader", capabilities=[Capability(code="RECEIPTS", read_only=True)])
    async def reader(_: Brief) -> Answer:
        return Answer({"lunch": "54.00 EUR", "hotel": "119.00 EUR", "vat_rate": "19 %"}, confidence=0.9)

    @hub.agent("bank-desk", capabilities=[Capability(code="BANK", read_only=True)])
    async def desk(_: Brief) -> Answer:
        return Answer(bank, confidence=sure)

    @hub.agent("tax-office", capabilities=[Capability(code="CLAIM", description="Claim the tax back")])
    async def office(brief: Brief) -> str:
        briefs.append(brief)
        return "Claimed."

    add_workflow(hub, TRIP)
    add_orchestrator(hub, reader=ScriptedReader(SCRIPT), glossary={"VAT": "tax"})
    return briefs


async def say(hub: Hub, *texts: str, **options: Any) -> Response:
    *_, last = [await hub.ask("orchestrator", text, user="u", session="s", **options) for text in texts]
    return last


# ── what sources disagree on ──────────────────────────────────────────────────────────────────────────────────────────


async def test_the_user_is_asked_which_value_counts_and_the_reply_is_known_to_who_is_asked_next(hub: Hub) -> None:
    """K9, K14: a tie is the user's to decide, and what they decide is not asked again."""
    briefs = team(hub, {"lunch": "45.00 EUR", "hotel": "119.00 EUR"})
    async with hub:
        tied = await say(hub, "compare it")
        decided = await say(hub, "the bank is right")
        await say(hub, "claim it", "yes")
    assert tied.requires_followup
    assert tied.result.endswith("The sources disagree on lunch: 54.00 EUR, or 45.00 EUR. Which one should count?")
    assert decided.result == "Lunch: 45.00 EUR counts, not 54.00 EUR."
    assert not decided.requires_followup
    assert "Lunch: 45.00 EUR counts, not 54.00 EUR." in [note.text for note in briefs[0].known]


async def test_of_several_questions_those_that_were_not_answered_are_asked_again(hub: Hub) -> None:
    """K9."""
    team(hub, {"lunch": "45.00 EUR", "hotel": "130.00 EUR", "vat_rate": "7 %"})
    async with hub:
        await say(hub, "compare it")
        first = await say(hub, "lunch was 45 and the hotel 119")
        last = await say(hub, "19 %")
    lines = first.result.splitlines()
    assert sorted(lines[:2]) == [
        "Hotel: 119.00 EUR counts, not 130.00 EUR.",
        "Lunch: 45.00 EUR counts, not 54.00 EUR.",
    ]
    assert lines[2].startswith("The sources disagree on tax rate: ")
    assert first.requires_followup
    assert last.result == "Tax rate: 19 % counts, not 7 %."


async def test_who_wants_something_else_instead_of_deciding_gets_it(hub: Hub) -> None:
    briefs = team(hub, {"lunch": "45.00 EUR"})
    async with hub:
        response = await say(hub, "compare it", "claim it", "yes")
    assert len(briefs) == 1
    assert "Claimed." in response.result


async def test_conflicts_of_a_workflow_within_are_told_once_and_known_to_programs(hub: Hub) -> None:
    """K9: whoever asks the orchestrator gets what whoever asks the workflow gets."""
    team(hub, {"lunch": "45.00 EUR"})
    async with hub:
        inner = await hub.ask("trip-check", "compare it", user="u")
        outer = await say(hub, "compare it")
    assert outer.result == inner.result
    (conflict,) = outer.metadata["conflicts"]
    assert [side["sources"] for side in conflict["values"]] == [["The receipts"], ["The bank"]]
    assert outer.finished == ("The receipts", "The bank")


# ── options ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_options_are_told_once_each(hub: Hub) -> None:
    """K7: several valid routes are offered."""
    team(hub, {})
    async with hub:
        offered = await say(hub, "perhaps")
    assert offered.result == (
        "Which of these do you want? Please say the number.\n"
        "1. Compare what is known of a trip\n2. Claim the tax back\n"
        "3. None of these"
    )


async def test_who_asks_what_can_be_done_is_told(hub: Hub) -> None:
    """K7: what nobody has described is not offered."""
    team(hub, {})
    async with hub:
        response = await say(hub, "What can you do?")
    assert response.result == (
        "Hello! What I can do:\nI can tell you:\n- Compare what is known of a trip\n"
        "I can do for you:\n- Claim the tax back"
    )


# ── time and tokens ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_who_does_the_work_gets_the_time_of_the_run_and_a_share_of_its_tokens(hub: Hub) -> None:
    briefs = team(hub, {})
    async with hub:
        await say(hub, "claim it", "yes", max_tokens=40_000, deadline_ms=100_000)
    assert briefs[0].remit.tokens == 10_000
    assert briefs[0].remit.time_ms > 90_000


async def test_a_workflow_that_says_less_gets_less(hub: Hub) -> None:
    briefs = team(hub, {})
    steps = (Step(name="one", capability="CLAIM"),)
    add_workflow(hub, Workflow(name="maybe-claim", description="Claim", steps=steps), time_ms=5_000, tokens=700)

    add_orchestrator(hub, "front", reader=ScriptedReader({"claim some": [("maybe-claim", 0.9)]}))
    async with hub:
        await hub.ask("front", "claim some", user="u", session="f")
        await hub.ask("front", "yes", user="u", session="f")
    assert briefs[0].remit.tokens == 175
    assert briefs[0].remit.time_ms <= 5_000


# ── restarts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_reply_that_was_being_carried_out_goes_on_after_a_restart(make_hub: MakeHub) -> None:
    """K13: what the user was asked is known again, though it was taken for answered."""
    begun, done = asyncio.Event(), list[str]()

    def make(*, stays: bool) -> Hub:
        hub = make_hub()

        @hub.agent("office", capabilities=[Capability(code="CLAIM", description="Claim the tax", read_only=True)])
        async def office(brief: Brief) -> str:
            done.append(brief.objective)
            begun.set()
            if stays:
                await asyncio.Event().wait()
            return "Claimed."

        add_orchestrator(hub, reader=ScriptedReader(SCRIPT))
        return hub

    async with make(stays=True) as hub:
        await say(hub, "maybe")
        replying = asyncio.create_task(hub.ask("orchestrator", "yes", user="u", session="s", request_id="reply"))
        await begun.wait()
    await asyncio.wait([replying])
    async with make(stays=False) as hub:
        response = await hub.ask("orchestrator", "yes", user="u", session="s", request_id="reply")
    assert response.status is Status.SUCCESS
    assert response.result.startswith("Claimed.")
    assert done == ["maybe", "maybe"]
