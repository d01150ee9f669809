"""Several responses become one answer."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.policy.aggregate import Blend, merge_all, restated, start, with_findings
from remit.protocol.codec import checked, decode, encode
from remit.protocol.envelope import Answer, Artifact, Response, Source, Strategy
from remit.protocol.errors import Code, fault
from remit.protocol.lifecycle import Status
from remit.words.components import Component, Conflict, Findings, ReportedValue
from remit_orchestrator.text.faithfulness import accept, blended, hold, left_out
from samples import a_response
from strategies import responses

FAILED = a_response(target="ledger", status=Status.FAILED, result=None, fault=fault(Code.DELEGATION_FAILED, "broke"))


def test_what_succeeded_is_combined_in_the_order_in_which_it_was_asked_for() -> None:
    """C5: sources merged, confidence averaged, metadata says how many and by which strategy."""
    own, shared = Source(owner_scope="u-1", source_id="a"), Source(owner_scope="public", source_id="a")
    table, link = Artifact(type="table", value=[[1]]), Artifact(type="url", value="https://example.org")
    one = a_response(
        target="crystal",
        result="Spending grows.",
        confidence=0.5,
        artifacts=(table,),
        new_facts=("pays rent", "has a car"),
        sources=(own,),
        warnings=("old data",),
    )
    other = a_response(
        target="tag",
        status=Status.PARTIAL,
        result={"categories": 3},
        confidence=1.0,
        artifacts=(link,),
        new_facts=("has a car",),
        sources=(Source(owner_scope="u-1", source_id="a", relevance=0.5), shared),
        warnings=("half done",),
    )
    assert merge_all([one, FAILED, other]) == Answer(
        'Spending grows.\n\n{"categories":3}',
        confidence=0.75,
        artifacts=(table, link),
        new_facts=("pays rent", "has a car"),
        sources=(own, shared),
        warnings=("old data", "half done"),
        finished=("crystal", "tag"),
        unfinished=("ledger",),
        metadata={"aggregated": True, "responseCount": 2, "strategy": "merge-all"},
    )


def test_confidence_is_averaged_over_those_who_state_one() -> None:
    rated = [a_response(confidence=0.25), a_response(), a_response(confidence=0.75)]
    merged, unrated = merge_all(rated), merge_all([a_response()])
    assert merged is not None
    assert unrated is not None
    assert (merged.confidence, unrated.confidence) == (0.5, None)


def test_where_nothing_succeeded_there_is_nothing_to_merge() -> None:
    assert [merge_all([]), merge_all([FAILED, FAILED])] == [None, None]


@given(st.lists(responses, max_size=3))
def test_what_is_merged_is_an_answer_like_any_other(several: list[Response]) -> None:
    merged = merge_all(several)
    assert (merged is None) == (not any(response.ok for response in several))
    assert merged is None or decode(encode(merged), Answer) == merged


def test_what_is_missing_in_a_part_is_missing_in_the_whole() -> None:
    """K8: partial failure still yields a unified answer, and does not pass for a whole one."""
    merged = merge_all([a_response(unfinished=("hotels",), requires_followup=True), FAILED, a_response()])
    assert merged is not None
    assert (merged.unfinished, merged.requires_followup) == (("ledger", "hotels"), True)


# ── the fold ──────────────────────────────────────────────────────────────────────────────────────────────────────────

SURE = a_response(target="crystal", result="A", confidence=0.9, sources=(Source(owner_scope="u-1", source_id="a"),))
UNSURE = a_response(target="tag", result="B", confidence=0.2, warnings=("old",))
PARTIAL = a_response(target="byte", result="C", status=Status.PARTIAL, confidence=0.9, unfinished=("rest",))
LATE = a_response(target="late", status=Status.TIMEOUT, result=None, fault=fault(Code.TIMEOUT, "after 30000 ms"))


def aggregated(strategy: str, *came: tuple[int, Response]) -> Answer | Response | None:
    """Aggregate responses as they come, each with the place of the one that was asked; all that were asked answer."""
    aggregation = start(strategy, len(came))
    for place, response in came:
        aggregation = aggregation.add(response, place)
    assert aggregation.enough
    return aggregation.finish()


def result_of(outcome: Answer | Response | None) -> object:
    assert isinstance(outcome, Answer)
    return outcome.result


@pytest.mark.parametrize("strategy", Strategy)
def test_where_all_fail_the_first_error_is_the_answer_in_the_order_asked(strategy: str) -> None:
    """C5: all-failed gives the first error."""
    assert aggregated(strategy, (1, LATE), (0, FAILED)) is FAILED
    assert aggregated(strategy, (0, LATE), (1, FAILED)) is LATE
    assert aggregated(strategy) is None


def test_the_first_success_is_the_one_that_came_first() -> None:
    """C5: first-success."""
    assert result_of(aggregated("first-success", (2, UNSURE), (0, FAILED), (1, SURE))) == "B"


def test_a_part_is_taken_for_a_success_only_if_nothing_whole_comes() -> None:
    assert result_of(aggregated("first-success", (0, PARTIAL), (1, SURE))) == "A"
    assert result_of(aggregated("first-success", (1, PARTIAL), (0, FAILED))) == "C"
    assert not start("first-success", 2).add(PARTIAL, 0).enough


def test_after_the_first_success_the_rest_need_not_be_waited_for() -> None:
    """C5: first-success lets the rest be cancelled."""
    begun = start("first-success", 3)
    assert [begun.enough, begun.add(FAILED, 0).enough, begun.add(FAILED, 0).add(SURE, 2).enough] == [False, False, True]


def test_the_best_confidence_wins_and_of_equals_what_is_whole_or_was_asked_first() -> None:
    """C5: best-confidence."""
    unrated, also_sure = a_response(result="D"), a_response(result="E", confidence=0.9)
    assert result_of(aggregated("best-confidence", (0, UNSURE), (1, SURE), (2, unrated))) == "A"
    assert result_of(aggregated("best-confidence", (0, PARTIAL), (1, SURE))) == "A"
    assert result_of(aggregated("best-confidence", (1, SURE), (0, also_sure))) == "E"
    assert result_of(aggregated("best-confidence", (0, unrated), (1, UNSURE))) == "B"


def test_nothing_is_better_than_certain() -> None:
    certain = a_response(confidence=1.0)
    assert start("best-confidence", 2).add(certain, 1).enough
    assert not start("best-confidence", 2).add(SURE, 1).enough


def test_one_that_is_chosen_is_the_answer_as_it_is() -> None:
    """C5: what was chosen rests on its own sources; that others failed does not make it partial."""
    assert aggregated("best-confidence", (0, FAILED), (1, SURE), (2, UNSURE)) == Answer(
        "A",
        confidence=0.9,
        sources=SURE.sources,
        metadata={"aggregated": True, "responseCount": 2, "strategy": "best-confidence"},
    )
    assert aggregated("first-success", (0, PARTIAL)) == Answer(
        "C",
        confidence=0.9,
        unfinished=("rest",),
        metadata={"aggregated": True, "responseCount": 1, "strategy": "first-success"},
    )


@pytest.mark.parametrize("strategy", ["merge-all", "ai-blend", "default"])
def test_all_are_waited_for_where_all_are_wanted(strategy: str) -> None:
    assert not start(strategy, 2).add(SURE, 0).enough


def test_by_default_nothing_is_said_twice_and_one_alone_keeps_its_structure() -> None:
    """C5: a default."""
    table = {"categories": 3}
    one, same = a_response(result=table, confidence=0.5), a_response(target="byte", result=dict(table), confidence=1.0)
    assert aggregated("default", (0, one), (1, FAILED), (2, same)) == Answer(
        table,
        confidence=0.75,
        finished=("tag", "byte"),
        unfinished=("ledger",),
        metadata={"aggregated": True, "responseCount": 2, "strategy": "default"},
    )
    assert result_of(aggregated("default", (0, one), (1, SURE), (2, same))) == '{"categories":3}\n\nA'


@given(st.sampled_from(["merge-all", "ai-blend", "default", "best-confidence"]), st.data())
def test_the_order_of_arrival_changes_nothing(strategy: str, data: st.DataObject) -> None:
    """C5: results are put in the order in which they were asked for."""
    calls = list(enumerate(data.draw(st.lists(responses, max_size=4))))
    arrived: Sequence[tuple[int, Response]] = data.draw(st.permutations(calls))
    assert aggregated(strategy, *arrived) == aggregated(strategy, *calls)


@given(st.lists(responses, max_size=3))
def test_the_fold_and_the_function_merge_alike(several: list[Response]) -> None:
    if any(response.ok for response in several):
        assert aggregated("merge-all", *enumerate(several)) == merge_all(several)


@given(st.sampled_from(Strategy), st.lists(responses, min_size=1, max_size=3))
def test_whatever_the_strategy_an_answer_comes_of_any_success(strategy: Strategy, several: list[Response]) -> None:
    outcome = aggregated(strategy, *enumerate(several))
    if any(response.ok for response in several):
        assert isinstance(outcome, Answer)
        assert decode(encode(outcome), Answer) == outcome
        assert outcome.metadata["aggregated"] is True
    else:
        assert outcome is several[0]


# ── conflicts and blends ──────────────────────────────────────────────────────────────────────────────────────────────

CONFLICT = Conflict(
    path="train.departure",
    severity="high",
    values=(ReportedValue("9:40", ("crystal",)), ReportedValue("10:40", ("tag",))),
    preferred="9:40",
)
OPEN = Conflict(
    path="fee", severity="high", values=(ReportedValue(5, ("a",)), ReportedValue(7, ("b",))), question="5 or 7?"
)


def test_an_answer_carries_the_conflicts_of_its_components() -> None:
    """K9: conflicts shown, and the user asked where it matters."""
    answer = with_findings(
        Answer("A", metadata={"strategy": "merge-all"}), Findings(conflicts=(CONFLICT,), agreement=0.5)
    )
    assert answer == Answer(
        "A",
        metadata={
            "strategy": "merge-all",
            "agreement": 0.5,
            "conflicts": [
                {
                    "path": "train.departure",
                    "severity": "high",
                    "values": [{"value": "9:40", "names": ["crystal"]}, {"value": "10:40", "names": ["tag"]}],
                    "preferred": "9:40",
                    "question": None,
                }
            ],
        },
    )
    assert checked(answer) == answer
    assert with_findings(Answer("A"), Findings(conflicts=(OPEN,))).requires_followup


BLEND = Blend(
    request="When does the client leave?",
    components=(
        Component("crystal", {"train": {"departure": "9:40"}}, 0.9, "Timetable"),
        Component("tag", "The client leaves at 10:40."),
    ),
    conflicts=(CONFLICT, OPEN),
    glossary={"client": "customer"},
)


def test_a_model_is_given_results_conflicts_and_terms_and_not_who_gave_what() -> None:
    """C5: ai-blend; K6: no agent's name."""
    assert BLEND.material == (
        "Request:\nWhen does the client leave?\n\n"
        "Result 1, Timetable (HIGH confidence):\n- Train:\n  - Departure: 9:40\n\n"
        "Result 2, untitled:\nThe client leaves at 10:40.\n\n"
        "They disagree on:\n- train departure: 9:40 or 10:40; more certain: 9:40\n- fee: 5 or 7\n\n"
        "Glossary:\n- customer, not client"
    )
    assert BLEND.prompt.endswith(BLEND.material)
    assert Blend(components=()).material == ""


def test_a_model_may_write_numbers_as_people_do() -> None:
    """C5: 15 % is no fact of its own where 0.15 was said of a rate."""
    result = {"npv": 24156.72, "currency": "USD", "growthRate": 0.15, "ok": True, "years": [{"margin": 0.5, "n": 0.25}]}
    blend = Blend(components=(Component("a", result),))
    assert "The same in other words: 24156.72 USD, 0.15 USD, 15 %, 50 %" in blend.material
    deep = {"rate": 0.5}
    for _ in range(10):
        deep = {"more": [deep]}
    assert "50 %" not in Blend(components=(Component("a", deep),)).material


MERGED = Answer("A\n\nB", metadata={"aggregated": True, "responseCount": 2, "strategy": "merge-all"})


def test_a_blend_that_says_only_what_was_said_is_the_answer() -> None:
    """C5: ai-blend."""
    text = "Train departure is 9:40. The client leaves at 10:40."
    assert accept("The customer leaves at 9:40 or 10:40.", BLEND) == ()
    assert blended(MERGED, f" {text}\n", BLEND).result == text
    assert blended(MERGED, text, BLEND).metadata == MERGED.metadata | {"strategy": "ai-blend"}


def test_a_blend_with_a_number_of_its_own_is_rejected_and_all_is_merged_instead() -> None:
    """C5: a blend is rejected if it contains a fact found in no input."""
    assert accept("It leaves at 11:40", BLEND) == ("11:40",)
    told = {"sentence": "It leaves at 11:40", "why": "words"}
    assert blended(MERGED, "It leaves at 11:40", BLEND) == Answer(
        MERGED.result, metadata=MERGED.metadata | {"rejected": ["11:40"], "unsupported": [told], "left_out": []}
    )
    empty = blended(MERGED, " \n", BLEND)
    assert (empty.result, empty.metadata["rejected"]) == (MERGED.result, [])


def test_names_and_numbers_of_a_blend_are_looked_up_in_what_it_was_given() -> None:
    """C5: a blend is rejected if it contains a fact found in no input."""
    assert accept("The customer leaves at 9:40; another source says 10:40.", BLEND) == ()
    assert accept("The customer leaves at 9:45 with Alice.", BLEND) == ("9:45", "Alice")


def test_a_sentence_that_no_result_carries_is_dropped_and_named() -> None:
    """C5: nothing is added to what was found."""
    text = "The parcel weighs 45 kg. It is insured."
    blend = Blend(components=(Component("a", text, 0.9, "Parcel"),))
    assert hold(text, blend).whole
    advised = hold(f"{text} You should send it soon.", blend)
    assert (advised.whole, advised.text) == (False, text)
    dropped = [{"sentence": "You should send it soon.", "why": "words"}]
    assert blended(MERGED, f"{text} You should send it soon.", blend) == Answer(
        text, metadata=MERGED.metadata | {"strategy": "ai-blend", "dropped": dropped}
    )
    denied = blended(MERGED, "The parcel weighs 45 kg. It is not insured.", blend)
    assert (denied.result, denied.metadata["left_out"]) == (MERGED.result, ["Parcel"])
    assert denied.metadata["unsupported"] == [{"sentence": "It is not insured.", "why": "words"}]


def test_numbers_are_given_to_whoever_blends_with_the_unit_that_their_fields_name() -> None:
    assert restated({"weight_kg": 45, "insured": True}) == ("45 kg",)
    assert restated([{"price": 3, "currency": "EUR"}, {"share": 0.25}]) == ("3 EUR", "25 %")


SEVERAL = Blend(
    request="Is the train at 9:40 late, and what does it cost?",
    components=(
        Component("crystal", {"train": {"departure": "9:40"}}, 0.9, "Timetable"),
        Component("tag", {"growthRate": 0.15}, 0.9, "Growth"),
        Component("tax", "nothing to declare", 0.9),
        Component("odd", {"a": "b"}, 0.9, "Letters"),
    ),
)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("It leaves at 9:40; growth is 15 %, and there is nothing to declare.", ()),
        ("It leaves at 9:40, and growth is 15 %.", ("Result 3",)),
        ("Growth is 0.15, and nothing is to be declared.", ("Timetable",)),
        ("", ("Timetable", "Growth", "Result 3", "Letters")),
        ("The results are material, written by others.", ("Timetable", "Growth", "Result 3")),
        ("Is the train at 9:40 late,\nand what does it cost?", ("Timetable", "Growth", "Result 3", "Letters")),
    ],
)
def test_results_of_which_a_blend_says_nothing_are_named(text: str, missing: tuple[str, ...]) -> None:
    """K9: nothing that was found is lost in the telling."""
    assert left_out(text, SEVERAL) == missing
    assert set(missing) <= set(blended(MERGED, text, SEVERAL).metadata.get("left_out", []))


def test_a_side_of_a_conflict_may_be_left_out_because_it_is_told_beside_the_text() -> None:
    """K9: conflicts are shown, whoever tells the rest."""
    assert left_out("It leaves at 9:40.", BLEND) == ()
