"""How the parts of a request are told apart by their structure: reasons, conditions, and what refers to what."""

import pytest

from remit_orchestrator.text.classification import ClassifiedText, ScoredCapability, hear
from remit_orchestrator.text.intent import Decision, Label, Planned, plan
from remit_orchestrator.text.request_plan import parts

LABELS = {code: Label(target=code.lower(), description=f"Do {code.lower()}") for code in ("DATE", "CARD", "OPEN")}
LABELS["OPEN"] = Label(target="open", description="Tell the hours", read_only=True, confirm="never")


def read(text: str) -> list[tuple[str, bool, str]]:
    """Return each part with whether it is surely a request, and its condition."""
    return [
        (each.text, each.sure, "" if each.condition is None else f"{each.condition.holds}: {each.condition.clause}")
        for each in parts(text)
        if not each.checks
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "We are celebrating on Friday, so please bring us four chairs",
            [("We are celebrating on Friday", False, ""), ("please bring us four chairs", True, "")],
        ),
        (
            "Wir feiern am Freitag, deshalb brauche ich vier Stühle",
            [("Wir feiern am Freitag", False, ""), ("brauche ich vier Stühle", True, "")],
        ),
        (
            "I moved house: please change my address",
            [("I moved house", False, ""), ("please change my address", True, "")],
        ),
        ("tell the driver: call me at noon", [("tell the driver: call me at noon", True, "")]),
        ("colour: red", [("colour: red", False, "")]),
        (
            "Is one free? If so, take it, and if not put me on the list",
            [
                ("Is one free?", True, ""),
                ("take it", True, "True: Is one free"),
                ("put me on the list", True, "False: Is one free"),
            ],
        ),
        (
            "Ist es offen? Wenn nicht, ruf mich an, und wenn doch, reserviere zwei Plätze",
            [
                ("Ist es offen?", True, ""),
                ("ruf mich an", True, "False: Ist es offen"),
                ("reserviere zwei Plätze", True, "True: Ist es offen"),
            ],
        ),
        (
            "Liegt er noch im Lager, bestellt eine Kiste",
            [("bestellt eine Kiste", True, "True: Liegt er noch im Lager")],
        ),
        (
            "Meldet den Wagen an, es sei denn, er steht noch hier",
            [("Meldet den Wagen an", True, "False: er steht noch hier")],
        ),
        ("yes or no, tell me", [("yes or no", False, ""), ("tell me", True, "")]),
        ("bring mir Tee oder Saft", [("bring mir Tee oder Saft", True, "")]),
        ("sage mir, wann ihr offen habt", [("sage mir, wann ihr offen habt", True, "")]),
        ("das Auto waschen und mir sagen, wann es fertig ist", [
            ("das Auto waschen", True, ""),
            ("mir sagen, wann es fertig ist", True, ""),
        ]),
    ],
)  # fmt: skip
def test_reasons_and_conditions_are_told_by_structure(text: str, expected: list[tuple[str, bool, str]]) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("Is an attic room free on Sunday? If so, take it for two nights.", "take an attic room for two nights."),
        ("Are there any lamps left? Then order three.", "order three lamps."),
        ("check whether the boat is ready and paint it", "paint the boat"),
        ("check whether one is ready and paint it", ""),
        ("find a boat and paint it", "paint a boat"),
    ],
)
def test_what_a_part_refers_to_is_the_subject_of_the_question_before(text: str, full: str) -> None:
    assert parts(text)[-1].full == full


def test_a_word_of_order_in_a_relative_clause_gives_no_order() -> None:
    assert parts("tell me the price and find a bus that goes home afterwards")[1].after == ()
    assert parts("tell me the price and find a bus afterwards")[1].after == (0,)


# ── with capabilities ─────────────────────────────────────────────────────────────────────────────────────────────────


class Keyed:
    """Knows a capability by a word."""

    WORDS = (("DATE", ("married", "date")), ("CARD", ("card",)), ("OPEN", ("open", "hours")))

    def scores(self, text: str) -> list[ScoredCapability]:
        low = text.casefold()
        return [ScoredCapability(code, 0.9) for code, words in self.WORDS if any(word in low for word in words)]


def planned(text: str) -> list[tuple[str, str]]:
    decision: Decision = plan(hear(text, Keyed()), LABELS)
    assert isinstance(decision, Planned), decision
    return [(each.intent.code if each.intent else each.how, each.text) for each in decision.parts]


def single(text: str) -> str:
    decision: Decision = plan(hear(text, Keyed()), LABELS)
    assert not isinstance(decision, Planned), decision
    return type(decision).__name__


@pytest.mark.parametrize(
    "text",
    [
        "we want to get married in June, reserve a date for us",
        "We would like to get married. Could you reserve a date for us?",
        "wir möchten im Juni unsere married Feier halten, reserviere ein date für uns",
    ],
)
def test_a_wish_and_the_request_for_it_are_one(text: str) -> None:
    assert single(text) == "Routed"


def test_a_wish_for_something_else_is_a_part_of_its_own() -> None:
    assert planned("I want to block my card, reserve a date for us") == [
        ("CARD", "I want to block my card"),
        ("DATE", "reserve a date for us"),
    ]
    assert [code for code, _ in planned("I want to reserve a date and reserve another date")] == ["DATE", "DATE"]


def test_a_statement_that_asks_for_something_else_is_not_dropped() -> None:
    assert planned("My card was stolen. When are you open?") == [
        ("CARD", "My card was stolen."),
        ("OPEN", "When are you open?"),
    ]


def test_what_is_taken_back_is_left_out() -> None:
    assert planned("I was going to block my card, but never mind: reserve a date and tell me the hours") == [
        ("left", "I was going to block my card"),
        ("DATE", "reserve a date"),
        ("OPEN", "tell me the hours"),
    ]


def test_what_looks_the_same_up_twice_is_asked_about_with_something_else_first() -> None:
    class Twice(Keyed):
        def scores(self, text: str) -> list[ScoredCapability]:
            return [ScoredCapability("OPEN", 0.9), ScoredCapability("DATE", 0.3)]

    classified: ClassifiedText = hear("look up the hours and book them", Twice())
    decision = plan(classified, LABELS)
    assert isinstance(decision, Planned)
    assert [each.how for each in decision.parts] == ["act", "ask"]
    assert [each.intent.code for each in decision.parts[1].options] == ["DATE", "OPEN"]
