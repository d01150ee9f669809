"""Contradictions between results are found, and what is none is left alone."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelled_cases import cases
from remit.words.components import Component, Conflict, Findings, ReportedValue
from remit.words.numbers import OTHER_MEANINGS
from remit_orchestrator.text.conflicts import find
from remit_orchestrator.text.figures import NAMES, figures
from strategies import json_values

# Each pair says two things of one, of which at most one can be right.
CONTRADICTIONS: list[tuple[Any, Any]] = cases("conflicts", "contradictions")

# Each pair says the same in other words, or different things, or one of them says nothing.
HARMLESS: list[tuple[Any, Any]] = [
    *cases("conflicts", "harmless"),
    ({"approved": None}, {"approved": True}),
    ({"a": 1}, None),
]


def of(*results: Any) -> Findings:
    """Compare results of a, b and c, none of which says how sure it is."""
    return find([Component(name, result) for name, result in zip("abcdefghij", results, strict=False)])


@pytest.mark.parametrize(("one", "other"), CONTRADICTIONS)
def test_what_cannot_both_be_right_is_a_conflict(one: Any, other: Any) -> None:
    """K9: conflicts are shown, in whichever order the results come."""
    here, there = of(one, other), of(other, one)
    assert [len(here.conflicts), len(there.conflicts)] in ([1, 1], [2, 2])
    assert here.agreement == there.agreement < 1


@pytest.mark.parametrize(("one", "other"), HARMLESS)
def test_what_can_both_be_right_is_none(one: Any, other: Any) -> None:
    """K9: a false conflict costs the user as much as a hidden one."""
    assert [of(one, other).conflicts, of(other, one).conflicts] == [(), ()]


@pytest.mark.parametrize(("one", "other"), cases("conflicts", "not_claimed"))
def test_what_rules_cannot_tell_surely_is_left_to_a_second_reader(one: str, other: str) -> None:
    assert of(one, other).conflicts == ()


# ── what is said of a conflict ────────────────────────────────────────────────────────────────────────────────────────


def test_a_conflict_names_the_place_the_values_and_who_says_which() -> None:
    findings = find(
        [
            Component("rail", {"flights": [{"id": "AF12", "departure": "9:40"}]}, 0.9),
            Component("air", {"flights": [{"id": "AF12", "departure": "10:40"}]}, 0.4),
            Component("bus", {"flights": [{"id": "AF12", "departure": "09:40"}]}),
        ]
    )
    assert findings == Findings(
        conflicts=(
            Conflict(
                path="flights[AF12].departure",
                severity="high",
                values=(ReportedValue("9:40", ("rail", "bus")), ReportedValue("10:40", ("air",))),
                preferred="9:40",
            ),
        ),
        agreement=1 / 3,
    )


def test_in_text_the_words_that_both_use_say_what_it_is_about() -> None:
    conflict = of("The train leaves at 9:40.", "At 10:40 the train leaves.").conflicts[0]
    assert conflict == Conflict(
        path="train leaves",
        severity="high",
        values=(ReportedValue("9:40", ("a",)), ReportedValue("10:40", ("b",))),
        question="The sources disagree on “train leaves”: 9:40, or 10:40. Which one should count?",
    )


@pytest.mark.parametrize(
    ("sure", "preferred"),
    [
        ((0.9, 0.4), 5),
        ((0.4, 0.9), 7),
        ((0.5, 0.5), None),
        ((None, None), None),
        ((None, 0.1), 7),
        ((0.501, 0.499), None),
    ],
)
def test_the_more_confident_source_is_preferred_and_on_a_tie_the_user_is_asked(
    sure: tuple[float | None, float | None], preferred: int | None
) -> None:
    """K9: the more confident source preferred, and the user asked where it matters."""
    conflict = find([Component("a", {"n": 5}, sure[0]), Component("b", {"n": 7}, sure[1])]).conflicts[0]
    assert conflict.preferred == preferred
    assert (conflict.question is None) == (preferred is not None)


@pytest.mark.parametrize(
    ("one", "other", "severity"),
    cases("conflicts", "how_grave_a_conflict_is_follows_from_how_far_apart_the_values_are"),
)
def test_how_grave_a_conflict_is_follows_from_how_far_apart_the_values_are(one: Any, other: Any, severity: str) -> None:
    assert [each.severity for each in of(one, other).conflicts] == [severity]


def test_of_what_hardly_matters_nobody_is_asked() -> None:
    """K9: the user is asked where it matters."""
    assert [each.question for each in of({"n": 10_000}, {"n": 10_001}).conflicts] == [None]


def test_the_gravest_come_first() -> None:
    one, other = {"b": 10_000, "a": 100, "c": 1}, {"b": 10_001, "a": 105, "c": 2}
    assert [each.path for each in of(one, other).conflicts] == ["c", "a", "b"]


def test_a_path_is_shown_as_it_is_written() -> None:
    one, same, other = {"growth_rate": 0.1}, {"growthRate": 0.1}, {"growth_rate": 0.2}
    assert [each.path for each in of(one, other).conflicts] == ["growth_rate"]
    assert [each.path for each in of(one, same, other).conflicts] == ["growthRate"]


def test_three_sources_can_have_three_opinions() -> None:
    findings = of("The fee is $50.", "The fee is $60.", "The fee is $70.")
    assert [each.values for each in findings.conflicts] == [
        (ReportedValue("$50", ("a",)), ReportedValue("$60", ("b",)), ReportedValue("$70", ("c",)))
    ]


def test_two_conflicts_in_which_one_source_is_alone_are_one() -> None:
    findings = of("The fee is $50.", "The fee is $60.", "The fee is $60.", "The fee is $50.")
    assert [each.values for each in findings.conflicts] == [
        (ReportedValue("$50", ("a", "d")), ReportedValue("$60", ("b", "c")))
    ]


def test_what_agrees_with_a_side_is_on_it_in_other_words() -> None:
    findings = of("The train leaves at 9:40.", "The train leaves at 10:40.", "The train leaves today at 9:40.")
    assert [each.values for each in findings.conflicts] == [
        (ReportedValue("9:40", ("a", "c")), ReportedValue("10:40", ("b",)))
    ]


def test_what_two_may_have_rounded_from_the_third_is_no_conflict() -> None:
    assert of("The fee is $51.50.", "The fee is $51.", "The fee is $52.").conflicts == ()
    assert of({"fee": "$51.50"}, {"fee": "$51"}, {"fee": "$52"}).conflicts == ()


def test_whoever_cannot_be_compared_takes_no_side() -> None:
    findings = of({"eta": "9:40"}, {"eta": "10:40"}, {"eta": "in the morning"})
    assert [each.values for each in findings.conflicts] == [
        (ReportedValue("9:40", ("a",)), ReportedValue("10:40", ("b",)))
    ]


# ── how far they agree ────────────────────────────────────────────────────────────────────────────────────────────────


def test_agreement_is_the_share_of_comparisons_that_agree() -> None:
    one = {"a": 1, "b": 2, "c": 3, "d": 4}
    assert of(one, one | {"d": 5}).agreement == 0.75
    assert of(one, one, one | {"d": 5}).agreement == 10 / 12
    assert [of().agreement, of(one).agreement, of({"a": 1}, {"b": 2}).agreement] == [1, 1, 1]


def test_agreement_counts_what_sentences_say_too() -> None:
    assert (
        of("The fee is $50. The train leaves at 9:40.", "The fee is $50. The train leaves at 10:40.").agreement == 0.5
    )


# ── laws ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

sentences = st.builds(
    "The {} {}.".format,
    st.sampled_from(["train", "morning train", "fee", "Paris office", "loan", "order 12"]),
    st.sampled_from(
        [
            *("leaves at 9:40", "leaves at 10:40", "is $50", "is about $52", "is €50", "has 30 staff", "has 31 staff"),
            *("was approved", "was not approved", "grew by 5 %", "grew to 5 %", "is due on 4 March", "is open"),
        ]
    ),
)
texts = st.lists(sentences, max_size=4).map(" ".join)
fields = st.dictionaries(
    st.sampled_from(["price", "Price", "priceUsd", "train_departure", "items", "approved", "note"]),
    st.sampled_from(
        [
            *(
                1,
                1.0,
                True,
                "yes",
                "$1",
                "1 %",
                "9:40",
                "09:40",
                None,
                "n/a",
                "Paris",
                "paris",
                "4 March",
                "2026-03-04",
            ),
            *(
                [1, 2],
                [2, 1],
                [{"id": 1, "n": 5}],
                [{"id": 1, "n": 6}, {"id": 2, "n": 5}],
                "The train departs at 9:40.",
            ),
        ]
    ),
    max_size=4,
)
results = texts | fields | json_values


@given(st.lists(results, max_size=3), st.lists(st.sampled_from([None, 0.3, 0.8]), min_size=3, max_size=3))
def test_the_order_of_components_changes_nothing_but_the_order_of_listing(
    several: list[Any], sure: list[float | None]
) -> None:
    components = [Component(name, *each) for name, each in zip("abc", zip(several, sure, strict=False), strict=False)]

    def listing_of(order: Sequence[Component]) -> tuple[set[Any], float]:
        findings = find(order)
        listed = {
            (
                each.path,
                each.severity,
                repr(each.preferred),
                frozenset((repr(reported.value), frozenset(reported.names)) for reported in each.values),
                each.question is None,
            )
            for each in findings.conflicts
        }
        return listed, findings.agreement

    assert all(listing_of(order) == listing_of(components) for order in permutations(components))


@given(results)
def test_a_component_never_conflicts_with_itself(result: Any) -> None:
    assert find([Component("a", result), Component("b", result)]).conflicts == ()
    assert find([Component("a", result)]) == Findings()


@given(st.lists(results, min_size=2, max_size=3))
def test_every_conflict_is_between_different_sources(several: list[Any]) -> None:
    for conflict in of(*several).conflicts:
        sides = [set(reported.names) for reported in conflict.values]
        assert any(one - other and other - one for one in sides for other in sides)


# ── what several sources have in common is read once ──────────────────────────────────────────────────────────────────

prices: list[Any] = [1, True, 1.0, 2, "2 %", None, float("nan"), 10**30]


@st.composite
def things(draw: st.DrawFn) -> list[Any]:
    """Make a list of objects that are told apart by their names."""
    names = draw(st.sets(st.sampled_from(["A1", "B2", "C3"])))
    return [{"name": name, "price": draw(st.sampled_from(prices)), "parts": draw(results)} for name in sorted(names)]


@given(st.lists(things(), min_size=2, max_size=3))
def test_things_of_lists_are_compared_the_same_whether_or_not_they_are_written_the_same(several: list[Any]) -> None:
    # Of what a result says of its own making nothing is compared.
    marked = [[thing | {"elapsed_ms": owner + 0.5} for thing in each] for owner, each in enumerate(several)]
    plain, other = (of(*({"items": each, "fee": 5} for each in results)) for results in (several, marked))
    assert repr(plain) == repr(other)


def test_what_is_written_the_same_is_still_not_the_same() -> None:
    """In JSON not a number is written as nothing, and that says nothing of a price."""
    nothing, infinite, exact = ({"items": [{"id": "a", "price": each}]} for each in (None, float("inf"), 7))
    assert of(nothing, infinite).conflicts == ()
    assert [each.path for each in of(nothing, exact, {"items": [{"id": "a", "price": 8}]}).conflicts] == [
        "items[a].price"
    ]


def test_shared_things_of_lists_count_towards_what_is_looked_at() -> None:
    shared = [{"id": place, "price": place} for place in range(3_000)]
    assert of({"items": shared}, {"items": shared}).complete
    more = {"items": shared, "others": {f"field{place}": place for place in range(2_500)}}
    assert not of({"items": shared}, more).complete


def test_a_sentence_that_one_source_only_asks_is_said_by_the_other_alone() -> None:
    statement, question = "The fee is $5. All is well.", "The fee is $5? All is well."
    without = of(statement, "All is well.", "The fee is $6.")
    assert of(statement, question, "The fee is $6.").conflicts == without.conflicts
    assert of(question, "The fee is $6.").conflicts == ()


def test_a_field_and_a_sentence_that_say_the_same_are_on_one_side() -> None:
    (conflict,) = of({"height": 5}, "The height is 5.", "The height is 7.").conflicts
    assert {reported.value: reported.names for reported in conflict.values} == {"5": ("a", "b"), "7": ("c",)}


def test_what_says_nothing_is_neither_denied_nor_affirmed() -> None:
    conflicts = of("It is so. The bridge stands in Lyon.", "The bridge doesn't stand in Lyon.").conflicts
    assert [each.path for each in conflicts] == ["bridge stand lyon"]


def test_several_figures_of_other_kinds_cannot_be_compared() -> None:
    assert of({"size": "5 kg, 3 m"}, {"size": "9:40 and 10:40"}).conflicts == ()


@pytest.mark.parametrize("name", sorted(NAMES - OTHER_MEANINGS))
def test_a_figure_that_is_a_word_is_found_wherever_it_stands(name: str) -> None:
    assert [(each.start, each.end) for each in figures(f"“{name.upper()}”")] == [(1, 1 + len(name.upper()))]
    assert figures(f"x{name}y") == []


# ── what was made to do harm ──────────────────────────────────────────────────────────────────────────────────────────


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": [value, {"b": value}]} if depth < 20 else [value]
    return value


@pytest.mark.parametrize(
    "result",
    [
        nested(50_000),
        nested(12),
        ["a"] * 50_000,
        {f"field{place}": place for place in range(20_000)},
        {"k" * 100_000: 1},
        "9" * 100_000,
        "9:" * 50_000,
        "1.2." * 30_000,
        "1,1 " * 25_000,
        "a\n" * 50_000,
        "The fee is $5. " * 10_000,
        "and, " * 20_000,
        "x " * 50_000,
        " ".join(f"The fee of item{place} is ${place}." for place in range(5_000)),
        " ".join(f"The fee is ${place}." for place in range(3_000)),
        "(" * 100_000,
        "#" * 100_000,
        "**" * 50_000,
        "March " * 20_000,
        "-" * 100_000,
        10**400,
        float("nan"),
        float("inf"),
        {"n": [float("nan"), 10**400]},
        "\ue000 5 \ue000",
        "It is 45/67/2020, 25:40, 13 pm, 2026-99-99T99:99:99+99:99, 5x and 12345678901234567890123456.",
        "İ 5 İ is $5. İ is not open.",
        "The fee is 5 mıo, ſix, ſıx, ınr 5 or 5 ſep 2025 on ſunday.",
        "twenty-" * 20_000,
        "two hundred and " * 10_000,
        {"": {"": 5}},
        [[], [1], ["a", 1]],
        [{}, {"a": {}}],
        ["a", {"b": 1}, None],
    ],
    ids=lambda value: repr(value)[:20] if not isinstance(value, list) else "list",
)
def test_hostile_results_are_compared_in_bounded_time(result: Any) -> None:
    other = "The fee is $7. The loan was rejected." if isinstance(result, str) else {"field0": 7, "n": 5}
    find([Component("a", result), Component("b", other), Component("c", result)])


def test_what_is_not_looked_at_is_admitted() -> None:
    whole = [
        {"a": 1},
        "The fee is $5.",
        {"note": "All is well here, says everybody who was asked about it in the last year."},
    ]
    assert all(of(result, result).complete for result in whole)
    several: list[Any] = [
        {f"field{place}": place for place in range(6_000)},
        "The fee is $5. " * 2_000,
        "The fee is $5." + " " * 100_000,
        " ".join(f"The fee is ${place}." for place in range(300)),
    ]
    assert not any(of(result, result).complete for result in several)
    fewer = [{f"field{place}": place + more for place in range(200)} for more in (1, 1000)]
    listed = of(*fewer)
    assert (len(listed.conflicts), listed.complete) == (100, False)
