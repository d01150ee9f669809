"""What is done about what a reader proposes, whoever the reader is."""

import pytest

from remit_orchestrator.dialogue.commands import Command, NothingFits, StartCapability, TextSpan
from remit_orchestrator.dialogue.gate import Label, decide, words_for

AT = TextSpan(0, 1)
LABELS = {
    code: Label(target="x", description=f"{code.lower()} it".capitalize(), read_only=code.startswith("R"))
    for code in ("READ", "REST", "ROAM", "SEND", "SELL")
}


def proposed(*ranked: tuple[str, float], far: float = 0.1) -> list[Command]:
    starts: list[Command] = [StartCapability(capability=code, confidence=sure, span=AT) for code, sure in ranked]
    return [*starts, NothingFits(confidence=far, span=AT)]


@pytest.mark.parametrize(
    ("ranked", "far", "action", "codes"),
    [
        ([("READ", 0.9), ("SEND", 0.1)], 0.1, "do", ("READ",)),
        ([("READ", 0.6), ("SEND", 0.1)], 0.1, "say_back", ("READ", "SEND")),
        # However sure: what changes something is said back.
        ([("SEND", 1.0), ("READ", 0.1)], 0.1, "say_back", ("SEND", "READ")),
        ([("SEND", 0.3), ("READ", 0.2)], 0.1, "offer", ("SEND", "READ")),
        ([("SEND", 0.3), ("READ", 0.2), ("SELL", 0.1), ("REST", 0.05)], 0.1, "offer", ("SEND", "READ", "SELL")),
        ([("SEND", 0.1), ("READ", 0.05)], 0.9, "cannot", ("SEND", "READ")),
        ([], 0.9, "cannot", ()),
        ([("GONE", 0.9)], 0.1, "cannot", ()),
    ],
)
def test_the_gate_decides_by_cost_and_confidence(
    ranked: list[tuple[str, float]], far: float, action: str, codes: tuple[str, ...]
) -> None:
    decision = decide(proposed(*ranked, far=far), LABELS)
    assert (decision.action, decision.codes) == (action, codes)


def test_what_a_model_wants_to_read_needs_the_support_of_another_reader() -> None:
    model = proposed(("READ", 1.0))
    others = proposed(("SEND", 0.5), ("SELL", 0.4), ("REST", 0.3), ("READ", 0.2))
    assert decide(model, LABELS, support=proposed(("SEND", 0.5), ("READ", 0.1))).action == "do"
    unsupported = decide(model, LABELS, support=others)
    assert (unsupported.action, unsupported.codes) == ("say_back", ("READ", "SEND", "SELL"))


def test_what_has_to_be_agreed_to_each_time_is_said_back() -> None:
    label = Label(target="x", description="Read it", read_only=True, confirm=True)
    assert decide(proposed(("READ", 1.0)), {"READ": label}).action == "say_back"


def test_six_are_offered_without_an_encoder_for_the_language_and_equal_words_once() -> None:
    ranked = [(code, 0.2) for code in ("SEND", "READ", "SELL", "REST", "ROAM")]
    labels = {**LABELS, "SELL": LABELS["SEND"]}
    assert decide(proposed(*ranked), labels, options=6).codes == ("SEND", "READ", "REST", "ROAM")


def test_a_description_that_shows_codes_or_agents_is_not_shown() -> None:
    labels = {"SKY_LOOK": Label(target="sky-desk", description="Ask sky-desk for the weather. It knows.")}
    assert words_for("SKY_LOOK", labels) == ""
    labels = {"SKY_LOOK": Label(target="sky-desk", description="Tell the weather. It knows.")}
    assert words_for("SKY_LOOK", labels) == "Tell the weather"
