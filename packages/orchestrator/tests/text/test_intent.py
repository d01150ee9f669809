"""What a request asks for: routed when it is clear, asked about when it is not, and admitted when nobody does it."""

import time
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from labelled_cases import cases
from remit.protocol.orchestration import Thresholds
from remit_orchestrator.placement import WHY, Case, Local, LocalReason, Route, RouteReason, place
from remit_orchestrator.text import request_plan
from remit_orchestrator.text.classification import Clarity, ClassifiedText, ScoredCapability, hear
from remit_orchestrator.text.intent import (
    Choose,
    Confirm,
    Decision,
    DetectedIntent,
    Label,
    Option,
    Phrases,
    Planned,
    Routed,
    Unclear,
    Unknown,
    Vague,
    continued,
    decide,
    offer,
    plan,
)
from remit_orchestrator.text.request_plan import MOST_PARTS

PROJECT = Label(target="ANL", description="Project revenue and costs")
WRITE = Label(target="DOC", description="Write a report. Takes a template and an outline.")
VALUE = Label(target="ANL", description="Calculate the net present value")
LABELS = {"ANL_PROJECTION": PROJECT, "DOC_GENERATE": WRITE, "ANL_NPV": VALUE}


def scored(**confidences: float) -> list[ScoredCapability]:
    return [ScoredCapability(code, confidence) for code, confidence in confidences.items()]


def intent(code: str, confidence: float) -> DetectedIntent:
    return DetectedIntent(code, LABELS[code].target, confidence)


def decided(*parts: Sequence[ScoredCapability], labels: dict[str, Label] = LABELS, **whole: float) -> Decision:
    return plan(ClassifiedText(scored(**whole), parts), labels)


class Echo:
    """Knows each text as a capability of that name, and remembers what it was asked."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def scores(self, text: str) -> list[ScoredCapability]:
        self.texts.append(text)
        return [ScoredCapability(text, 1.0)]


def parts(text: str) -> list[str]:
    return [each.text for each in request_plan.parts(text)]


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    cases("intent", "a_request_is_split_where_it_may_ask_for_something_else"),
)
def test_a_request_is_split_where_it_may_ask_for_something_else(text: str, expected: list[str]) -> None:
    assert list(parts(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Project revenue and costs",
        "Write it as a report, and quickly",
        "Call Dr. Smith",
        "Compare 3.5 percent with 4 percent",
        "transfer from checking and savings",
    ],
)
def test_a_fragment_stays_with_its_neighbour(text: str) -> None:
    """K7: a part that is only a piece of the first is no intent."""
    assert len(parts(text)) == 1


def test_a_greeting_is_no_request() -> None:
    assert [each.sure for each in request_plan.parts("Hi! Project our revenue")] == [False, True]


def test_no_more_parts_are_looked_at_than_anyone_asks_for_and_the_rest_is_one_more() -> None:
    assert len(parts("write one more report. " * 500)) == MOST_PARTS + 1


@given(st.text())
def test_parts_hold_nothing_but_words_of_the_text(text: str) -> None:
    assert [word for part in parts(text) for word in part.split() if word not in text] == []


@pytest.mark.parametrize("unit", [" ", ". ", " and", ", ", "- ", "a. ", "\n", "1) ", "und dann ", "。"])
def test_a_text_that_is_made_to_be_slow_is_not(unit: str) -> None:
    start = time.process_time()
    parts(unit * 200_000)
    assert time.process_time() - start < 0.5


def test_a_classifier_is_asked_about_the_whole_and_about_parts_if_there_are_several() -> None:
    echo = Echo()
    assert hear("write a report", echo) == ClassifiedText([ScoredCapability("write a report", 1.0)], [])
    assert hear("Project our revenue; write a report", echo).parts == [
        [ScoredCapability("Project our revenue", 1.0)],
        [ScoredCapability("write a report", 1.0)],
    ]
    assert echo.texts == [
        "write a report",
        "Project our revenue; write a report",
        "Project our revenue",
        "write a report",
    ]


# ── what is clear ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_clear_is_routed_with_its_confidence() -> None:
    """K7: the primary intent with its target."""
    assert decided(ANL_PROJECTION=0.85, DOC_GENERATE=0.1) == Routed(DetectedIntent("ANL_PROJECTION", "ANL", 0.85))


def test_a_request_with_several_parts_has_several_intents_in_the_order_of_its_text() -> None:
    """K7: the document's own example."""
    decision = decided(scored(ANL_PROJECTION=0.85), scored(DOC_GENERATE=0.9), DOC_GENERATE=0.5, ANL_PROJECTION=0.4)
    assert isinstance(decision, Planned)
    assert [each.intent for each in decision.parts] == [intent("ANL_PROJECTION", 0.85), intent("DOC_GENERATE", 0.9)]


def test_parts_that_ask_for_the_same_are_one_intent() -> None:
    decision = decided(scored(ANL_NPV=0.9), scored(ANL_NPV=0.95), ANL_NPV=0.97)
    assert decision == Routed(intent("ANL_NPV", 0.97))


def test_a_part_that_is_not_sure_enough_is_asked_about() -> None:
    """K7: no part is dropped in silence."""
    decision = decided(scored(ANL_NPV=0.9), scored(DOC_GENERATE=0.55), [], ANL_NPV=0.8)
    assert isinstance(decision, Planned)
    assert [(each.how, each.text) for each in decision.parts] == [
        ("act", "Calculate the net present value"),
        ("ask", "Write a report"),
    ]


def test_one_clear_part_is_enough_if_the_whole_is_muddled() -> None:
    assert decided([], scored(DOC_GENERATE=0.9), ANL_NPV=0.3) == Routed(intent("DOC_GENERATE", 0.9))


def test_what_is_not_among_the_labels_is_not_meant() -> None:
    assert decided(SECRET=0.99, ANL_NPV=0.9) == Routed(intent("ANL_NPV", 0.9))
    assert isinstance(decided(SECRET=0.99), Unknown)


def test_capabilities_that_are_described_alike_are_one_to_the_user_and_go_to_the_likeliest() -> None:
    labels = {"A": Label(target="a", description="Book a flight"), "B": Label(target="b", description="book a  FLIGHT")}
    assert decided(labels=labels, B=0.4, A=0.5) == Routed(DetectedIntent("A", "a", 0.9))
    assert decided(labels=labels, B=0.7, A=0.7) == Routed(DetectedIntent("B", "b", 1.0))


def test_the_order_in_which_a_classifier_answers_does_not_matter() -> None:
    assert decided(ANL_NPV=0.1, DOC_GENERATE=0.8) == Routed(intent("DOC_GENERATE", 0.8))


# ── what is asked ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_close_routes_are_offered_in_the_words_of_their_descriptions() -> None:
    """K7: several valid routes are offered."""
    assert decided(ANL_PROJECTION=0.45, ANL_NPV=0.35, DOC_GENERATE=0.05) == Choose(
        (
            Option(intent("ANL_PROJECTION", 0.45), "Project revenue and costs"),
            Option(intent("ANL_NPV", 0.35), "Calculate the net present value"),
        ),
        "Which of these do you want: “Project revenue and costs” or “Calculate the net present value”?",
    )


def test_three_are_the_most_that_are_offered() -> None:
    labels = {code: Label(target=code, description=f"Do {code}") for code in "pqrs"}
    decision = decided(labels=labels, p=0.25, q=0.25, r=0.25, s=0.25)
    assert isinstance(decision, Choose)
    assert decision.question == "Which of these do you want: “Do p”, “Do q” or “Do r”?"


def test_below_the_threshold_a_specific_question_is_asked() -> None:
    """K7: below the threshold it asks."""
    assert decided(ANL_NPV=0.5, DOC_GENERATE=0.1) == Unclear(
        "Do you want this: “Calculate the net present value”? If not, please say in other words what you want.",
        intent("ANL_NPV", 0.5),
    )


def test_routes_that_are_close_but_unlikely_together_are_asked_about_one_by_one() -> None:
    assert isinstance(decided(ANL_NPV=0.25, DOC_GENERATE=0.2), Unclear)


def test_a_team_may_ask_in_its_own_words() -> None:
    labels = {"PAY": Label(target="bank", description="Pay a bill", ask="Is there a bill to be paid?")}
    assert decided(labels=labels, PAY=0.4) == Unclear("Is there a bill to be paid?", DetectedIntent("PAY", "bank", 0.4))


def test_what_has_no_description_cannot_be_offered() -> None:
    labels = {"A": Label(target="a"), "B": Label(target="b", description="Book a flight"), "C": Label(target="c")}
    again = "Please say in other words what you want."
    assert decided(labels=labels, A=0.4, B=0.4) == Unclear(again, DetectedIntent("A", "a", 0.4))
    assert isinstance(decided(labels=labels, B=0.4, A=0.4), Unclear)
    assert decided(labels=labels, A=0.3, C=0.25) == Unclear(again, DetectedIntent("A", "a", 0.3))


# ── how clear it is ───────────────────────────────────────────────────────────────────────────────────────────────────

READ = Label(target="ANL", description="Look up the revenue", confirm="never")
PLAIN = Clarity(clear=0.9, vague=0.05, foreign=0.05)
LIKELY = Clarity(clear=0.5, vague=0.3, foreign=0.2)
VAGUE = Clarity(clear=0.0, vague=1.0, foreign=0.0)
FOREIGN = Clarity(clear=0.1, vague=0.1, foreign=0.8)


def judged(clarity: Clarity, label: Label = WRITE, **whole: float) -> Decision:
    labels = {**LABELS, "DOC_GENERATE": label}
    return decide(ClassifiedText(scored(**whole), clarity=clarity), labels)


def test_what_changes_nothing_is_tried_with_less() -> None:
    """K7: what a mistake would cost decides how sure it has to be."""
    assert isinstance(judged(LIKELY, READ, DOC_GENERATE=0.5), Routed)
    assert isinstance(judged(LIKELY, WRITE, DOC_GENERATE=0.5), Confirm)
    assert isinstance(judged(PLAIN, WRITE, DOC_GENERATE=0.9), Routed)


def test_what_is_likely_and_changes_something_is_said_back() -> None:
    assert judged(LIKELY, DOC_GENERATE=0.9) == Confirm(
        (intent("DOC_GENERATE", 0.9),), "Write a report? Please say yes or no."
    )


def test_a_classifier_that_is_not_certain_confirms_whatever_changes_something() -> None:
    assert isinstance(judged(PLAIN._replace(certain=False), DOC_GENERATE=0.99), Confirm)
    assert isinstance(judged(PLAIN._replace(certain=False), READ, DOC_GENERATE=0.99), Routed)


def test_without_a_clear_lead_nothing_is_done() -> None:
    decision = judged(PLAIN, DOC_GENERATE=0.5, ANL_NPV=0.4)
    assert isinstance(decision, Choose)
    assert [each.intent.code for each in decision.options] == ["DOC_GENERATE", "ANL_NPV"]


def test_what_is_vague_is_asked_about_however_sure_the_classifier_is() -> None:
    for label in (READ, WRITE):
        decision = judged(VAGUE, label, DOC_GENERATE=0.95, ANL_NPV=0.02, ANL_PROJECTION=0.01)
        assert isinstance(decision, Choose)
        assert [each.intent.code for each in decision.options] == ["DOC_GENERATE", "ANL_NPV", "ANL_PROJECTION"]


def test_what_says_nothing_is_answered_with_the_question_what_is_wanted() -> None:
    assert judged(VAGUE) == Vague(
        "What can I do for you?\n- Project revenue and costs\n- Write a report\n- Calculate the net present value"
    )


def test_what_is_foreign_is_admitted_however_sure_the_classifier_is() -> None:
    assert isinstance(judged(FOREIGN, DOC_GENERATE=0.9), Unknown)


def test_parts_are_held_to_the_same_rules() -> None:
    parts = scored(ANL_NPV=0.95), scored(DOC_GENERATE=0.95)
    classified = ClassifiedText((), parts, clarity=LIKELY, part_clarities=(PLAIN, LIKELY))
    decision = plan(classified, LABELS)
    assert isinstance(decision, Planned)
    assert [each.how for each in decision.parts] == ["act", "confirm"]
    unclear = plan(classified._replace(part_clarities=(PLAIN, VAGUE)), LABELS)
    assert isinstance(unclear, Planned)
    assert [each.how for each in unclear.parts] == ["act", "ask"]


def test_a_reply_counts_with_the_words_before_it_unless_it_asks_for_something_else() -> None:
    """K14."""
    write, value = Routed(intent("DOC_GENERATE", 0.9)), Routed(intent("ANL_NPV", 0.9))
    said_back = Confirm((intent("DOC_GENERATE", 0.7),), "?")
    nothing = Unknown("")
    assert continued(nothing, write, ["DOC_GENERATE"]) == write
    assert continued(write, nothing, ["DOC_GENERATE"]) == write
    assert continued(nothing, said_back, []) == said_back
    assert continued(write, said_back, []) == write
    assert continued(value, write, [], refused=True) is None
    assert continued(value, write, ["DOC_GENERATE"]) is None, "something else"
    assert continued(nothing, nothing, ["DOC_GENERATE"]) is None


# ── what is admitted ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_nobody_does_is_admitted_plainly_with_what_can_be_done_the_nearest_first() -> None:
    """K7: none is admitted plainly."""
    assert decided(ANL_NPV=0.1) == Unknown(
        "I cannot do that. What I can do:\n- Calculate the net present value\n- Project revenue and costs\n"
        "- Write a report"
    )


def test_everything_is_named_and_nothing_twice() -> None:
    """K7: whoever reads five of eight cannot know the others."""
    labels = {f"c{each}": Label(target="t", description=f"Do {each // 2}") for each in range(20)}
    listed = "\n".join(f"- Do {each}" for each in range(10))
    assert decided(labels=labels) == Unknown(f"I cannot do that. What I can do:\n{listed}")


def test_what_only_tells_something_stands_apart_from_what_changes_something() -> None:
    labels = {**LABELS, "ANL_NPV": replace(VALUE, read_only=True)}
    assert offer(labels) == (
        "What I can do:\nI can tell you:\n- Calculate the net present value\n"
        "I can do for you:\n- Project revenue and costs\n- Write a report"
    )


def test_without_anything_to_name_it_is_still_admitted() -> None:
    assert decided(labels={}, X=0.9) == Unknown("I cannot do that.")


def test_who_asks_what_can_be_done_is_told_all_that_is_described_and_nothing_twice() -> None:
    """K7."""
    labels = {**LABELS, "DOC_AGAIN": WRITE, "ANL_QUIET": Label(target="ANL")}
    assert offer(labels) == (
        "What I can do:\n- Project revenue and costs\n- Write a report\n- Calculate the net present value"
    )
    assert offer({"ANL_QUIET": Label(target="ANL")}) == "I cannot do that."


# ── what users read ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "description",
    [
        "Runs ANL_NPV for you",
        "Ask tag-ai, which sorts receipts",
        "Ask Tag-AI.",
        "Handled by ORC",
        "tag-ai's sorting",
    ],
)
def test_codes_and_names_of_agents_never_show(description: str) -> None:
    """K6: a description that names them is as good as none."""
    labels = {
        "ANL_NPV": Label(target="ORC", description=description),
        "TAG": Label(target="tag-ai", description="Sort receipts"),
    }
    for decision in (decided(labels=labels, ANL_NPV=0.4, TAG=0.4), decided(labels=labels)):
        assert not any(
            name in str(decision).replace("code='ANL_NPV'", "") for name in ("Runs", "Ask", "Handled", "sorting")
        )


def test_a_name_that_is_a_plain_word_gives_nothing_away() -> None:
    labels = {"FILE": Label(target="taxes", description="File your taxes")}
    decision = decided(labels=labels)
    assert decision == Unknown("I cannot do that. What I can do:\n- File your taxes")


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ("Book a flight.", "Book a flight"),
        ("Book a flight. Needs a date.", "Book a flight"),
        ("Book\n  a flight", "Book a flight"),
        ("预订机票。需要日期。", "预订机票"),
        ("Convert 3.5 km", "Convert 3.5 km"),
        ("Book " + "very " * 40 + "far flights", "Book" + " very" * 23 + " …"),
        ("预" * 200, "预" * 120 + " …"),
    ],
)
def test_users_read_the_first_sentence_of_a_description(description: str, words: str) -> None:
    decision = decided(labels={"A_1": Label(target="a", description=description)})
    assert decision == Unknown(f"I cannot do that. What I can do:\n- {words}")


def test_a_team_may_speak_another_language() -> None:
    phrases = Phrases(which="Was davon: {options}?", last=" oder ")
    labels = {"A": Label(target="a", description="Flug buchen"), "B": Label(target="b", description="Hotel buchen")}
    decision = decide(ClassifiedText(scored(A=0.4, B=0.4)), labels, phrases=phrases)
    assert isinstance(decision, Choose)
    assert decision.question == "Was davon: “Flug buchen” oder “Hotel buchen”?"


def test_braces_in_a_description_are_only_braces() -> None:
    labels = {"A": Label(target="a", description="Fill {options} in {0}")}
    assert decided(labels=labels) == Unknown("I cannot do that. What I can do:\n- Fill {options} in {0}")


def test_thresholds_are_shares() -> None:
    assert msgspec.json.decode(b'{"act": 0.9}', type=Thresholds) == Thresholds(act=0.9)
    for wrong in (b'{"act": 1.5}', b'{"nothing": -0.1}', b'{"atc": 0.5}'):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(wrong, type=Thresholds)


confidences = st.floats(0, 1)
somewhere = st.dictionaries(st.sampled_from([*LABELS, "OTHER"]), confidences).map(lambda each: scored(**each))


@given(somewhere, st.lists(somewhere, max_size=4))
def test_nothing_is_routed_below_the_threshold_nor_outside_the_labels(
    whole: list[ScoredCapability], several: list[list[ScoredCapability]]
) -> None:
    match plan(ClassifiedText(whole, several), LABELS):
        case Routed(primary=primary):
            named = [primary]
            assert primary.confidence >= Thresholds().act
        case Choose(options=options):
            named = [each.intent for each in options]
            assert 2 <= len(named) <= 3
        case Unclear(option=option):
            named = [option]
        case Confirm(intents=intents):
            named = list(intents)
        case Unknown() | Vague() | Planned():
            named = []
    assert all(LABELS[each.code].target == each.target for each in named)
    assert len({each.code for each in named}) == len(named)


# ── route it, or handle it here ───────────────────────────────────────────────────────────────────────────────────────

BOTH = Case(own={"A"}, elsewhere={"A", "B"}, needs="A")
SURE, UNSURE = ScoredCapability("B", 0.9), ScoredCapability("B", 0.3)


@pytest.mark.parametrize(
    ("case", "decision"),
    [
        (Case(own={"A"}, elsewhere={"B"}, needs="B"), Route(RouteReason.CAPABILITY)),
        (Case(own={"A"}, elsewhere={"B"}, intent=SURE), Route(RouteReason.INTENT)),
        (Case(own={"A"}, elsewhere={"B"}, intent=UNSURE), Local(LocalReason.EQUIVALENCE)),
        (Case(own={"A"}, elsewhere={"B"}, intent=UNSURE, simple=True), Local(LocalReason.SIMPLICITY)),
        (Case(own={"A"}, elsewhere={"B"}), Local(LocalReason.EQUIVALENCE)),
        (Case(own={"A"}, elsewhere={"B"}, needs="C"), Local(LocalReason.EQUIVALENCE)),
        (Case(own={"A"}, elsewhere={"B"}, needs="A", intent=SURE), Local(LocalReason.SCOPE)),
        (BOTH, Local(LocalReason.SCOPE)),
        (msgspec.structs.replace(BOTH, lacks_data=True, simple=True), Route(RouteReason.DATA)),
        (msgspec.structs.replace(BOTH, simple=True), Local(LocalReason.SIMPLICITY)),
        (
            msgspec.structs.replace(BOTH, time_left_ms=500, time_elsewhere_ms=900, quality=0.1, quality_elsewhere=0.9),
            Local(LocalReason.LATENCY),
        ),
        (
            msgspec.structs.replace(BOTH, time_left_ms=900, time_elsewhere_ms=500, quality=0.6, quality_elsewhere=0.9),
            Route(RouteReason.EXPERTISE),
        ),
        (
            msgspec.structs.replace(BOTH, time_left_ms=500, quality=0.8, quality_elsewhere=0.85),
            Local(LocalReason.EQUIVALENCE),
        ),
        (msgspec.structs.replace(BOTH, quality=0.2), Local(LocalReason.SCOPE)),
    ],
)
def test_one_of_the_documents_reasons_decides_whether_to_route(case: Case, decision: Route | Local) -> None:
    """K4: capability, intent, expertise, data; scope, latency, simplicity, equivalence."""
    assert place(case) == decision


def test_every_reason_can_be_read_as_a_sentence() -> None:
    """K4: visibly."""
    assert set(WHY) == {*RouteReason, *LocalReason}
