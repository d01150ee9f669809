"""A remit can only be narrowed."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.protocol.codec import decode, encode
from remit.protocol.conditions import ValueBounds, checked_condition, holds
from remit.protocol.remit import URGENCY, Priority, Remit, Tools, meet, meet_tools, terms_of, tools_within
from samples import a_remit
from strategies import counts, name_sets, names, optional, priorities, remits, tool_limits

# What a caller may ask for is its own affair: also the impossible is asked for.
wishes = st.integers(-10, 10_000)
narrowings: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "caller": names,
        "time_ms": wishes,
        "tokens": wishes,
        "max_depth": optional(wishes),
        "context_tokens": optional(wishes),
        "tools": optional(tool_limits),
        "targets": optional(name_sets),
        "may_delegate": st.booleans(),
        "priority": optional(priorities),
        "cost": optional(wishes),
    }
)
roots = remits.flatmap(lambda remit: st.integers(0, 100).map(lambda depth: replace(remit, depth=depth))) | st.builds(
    Remit,
    user=names,
    depth=st.just(0),
    max_depth=st.integers(0, 10),
    time_ms=st.integers(0, 10_000),
    tokens=st.integers(0, 10_000),
    tools=optional(tool_limits),
    targets=optional(name_sets),
    cost=optional(st.integers(0, 10_000)),
)


@st.composite
def lineages(draw: st.DrawFn) -> list[Remit]:
    """A remit and its descendants, each narrowed from the one before it."""
    lineage = [draw(roots)]
    for narrowing in draw(st.lists(narrowings, min_size=1, max_size=5)):
        lineage.append(lineage[-1].narrow(**narrowing))
    return lineage


def bounded_by(outer: frozenset[str] | None, bound: frozenset[str] | None) -> bool:
    return outer is None or (bound is not None and bound <= outer)


@given(lineages())
def test_no_descendant_has_more_time_than_its_ancestor(lineage: list[Remit]) -> None:
    """C7: remaining time shrinks at each hop."""
    assert all(0 <= child.time_ms <= parent.time_ms for parent, child in pairwise(lineage))


@given(lineages())
def test_no_descendant_has_more_tokens_than_its_ancestor(lineage: list[Remit]) -> None:
    """X7: a budget covers the callee and all below it."""
    assert all(0 <= child.tokens <= parent.tokens for parent, child in pairwise(lineage))


@given(lineages())
def test_no_descendant_has_more_money_than_its_ancestor(lineage: list[Remit]) -> None:
    for parent, child in pairwise(lineage):
        assert parent.cost is None or (child.cost is not None and 0 <= child.cost <= parent.cost)


@given(lineages())
def test_no_descendant_may_use_a_tool_that_its_ancestor_may_not(lineage: list[Remit]) -> None:
    """O6: the caller can restrict the callee's tools, never widen them."""
    for parent, child in pairwise(lineage):
        assert parent.tools is None or (child.tools is not None and tools_within(child.tools, parent.tools))


TERMS = st.dictionaries(
    st.sampled_from(["amount", "to"]),
    st.sampled_from(
        [
            "<= 2",
            "> 1",
            1,
            "bob",
            "b*",
            ("bob", "eve"),
            ValueBounds(not_in=("eve", 3)),
            ValueBounds(below=3),
            ValueBounds(under=("b",)),
        ]
    ),
    max_size=2,
)
PAY, LOOK = st.just("pay"), st.just("look")
LIMITS = optional(
    st.frozensets(PAY | LOOK) | st.dictionaries(PAY | LOOK, TERMS | st.lists(TERMS, max_size=2).map(tuple))
)
VALUES = st.integers(0, 4) | st.sampled_from(["bob", "eve", "ann"])
ARGUMENTS = st.dictionaries(st.sampled_from(["amount", "to"]), VALUES | st.lists(VALUES, max_size=2))


def may_use(tools: Tools | None, tool: str, arguments: dict[str, Any]) -> bool:
    """Return whether a bound on tools allows a use of one with these arguments."""
    return tools is None or (
        tool in tools
        and all(
            holds(checked_condition(condition), arguments, path, every=True)
            for terms in terms_of(tools, tool)
            for path, condition in terms.items()
        )
    )


@given(st.lists(LIMITS, min_size=1, max_size=5), PAY | LOOK, ARGUMENTS)
def test_a_use_of_a_tool_is_allowed_if_and_only_if_all_bounds_above_allow_it(
    limits: list[Tools | None], tool: str, arguments: dict[str, Any]
) -> None:
    remit = a_remit(tools=limits[0])
    for each in limits[1:]:
        remit = remit.narrow(caller="tag@hub", time_ms=1_000, tokens=100, tools=each)
    assert may_use(remit.tools, tool, arguments) == all(may_use(each, tool, arguments) for each in limits)


@given(LIMITS, LIMITS, PAY | LOOK, ARGUMENTS)
def test_what_is_within_another_bound_allows_no_use_that_this_one_does_not(
    one: Tools | None, other: Tools | None, tool: str, arguments: dict[str, Any]
) -> None:
    if a_remit(tools=one).within(a_remit(tools=other)) and may_use(one, tool, arguments):
        assert may_use(other, tool, arguments)


@given(lineages())
def test_no_descendant_may_call_whom_its_ancestor_may_not(lineage: list[Remit]) -> None:
    assert all(bounded_by(parent.targets, child.targets) for parent, child in pairwise(lineage))


@given(lineages())
def test_no_descendant_may_go_deeper_than_its_ancestor(lineage: list[Remit]) -> None:
    """X3: each hop is one deeper, and its limit no further down."""
    assert all(
        child.depth == parent.depth + 1 and child.max_depth <= parent.max_depth for parent, child in pairwise(lineage)
    )


@given(lineages())
def test_no_descendant_is_shown_more_than_its_ancestor_or_than_it_can_pay(lineage: list[Remit]) -> None:
    assert all(
        child.context_tokens <= parent.context_tokens and child.context_tokens <= child.tokens
        for parent, child in pairwise(lineage)
    )


@given(lineages())
def test_the_right_to_delegate_does_not_come_back_once_it_is_gone(lineage: list[Remit]) -> None:
    assert all(parent.may_delegate or not child.may_delegate for parent, child in pairwise(lineage))


@given(lineages())
def test_no_descendant_is_more_urgent_than_its_ancestor(lineage: list[Remit]) -> None:
    assert all(URGENCY[child.priority] <= URGENCY[parent.priority] for parent, child in pairwise(lineage))


@given(lineages())
def test_every_descendant_acts_for_the_same_user_and_knows_who_stands_above_it(lineage: list[Remit]) -> None:
    """X10: nobody below can act for another user."""
    assert {remit.user for remit in lineage} == {lineage[0].user}
    assert all(child.chain[:-1] == parent.chain for parent, child in pairwise(lineage))


@given(lineages())
def test_a_descendant_would_be_within_its_ancestor_if_it_stood_in_its_place(lineage: list[Remit]) -> None:
    first, last = lineage[0], lineage[-1]
    assert replace(last, depth=first.depth, chain=first.chain).within(first)


@given(remits)
def test_every_remit_is_within_itself(remit: Remit) -> None:
    assert remit.within(remit)


BOUNDED = a_remit(tools=frozenset({"read", "write"}), targets=frozenset({"tag", "byte"}), context_tokens=500, cost=9)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_depth": 4},
        {"time_ms": 1},
        {"tokens": 1},
        {"context_tokens": 1},
        {"tools": frozenset({"read"})},
        {"tools": {"read": {"path": "/tmp/*"}, "write": {}}},
        {"targets": frozenset[str]()},
        {"may_delegate": False},
        {"priority": Priority.LOW},
        {"cost": 1},
    ],
)
def test_a_remit_with_less_of_anything_is_within_but_not_the_other_way_round(changes: dict[str, Any]) -> None:
    less = replace(BOUNDED, **changes)
    assert (less.within(BOUNDED), BOUNDED.within(less)) == (True, False)


@pytest.mark.parametrize(
    "changes",
    [{"user": "u-2"}, {"depth": 0}, {"chain": ("tag@hub",)}, {"tools": None}, {"targets": None}, {"cost": None}],
)
def test_a_remit_for_another_user_from_another_place_or_without_bounds_is_not_within(changes: dict[str, Any]) -> None:
    """X10: nobody else's remit will do."""
    assert not replace(BOUNDED, **changes).within(BOUNDED)


@given(lineages())
def test_a_narrowed_remit_can_always_be_sent(lineage: list[Remit]) -> None:
    assert decode(encode(lineage[-1]), Remit) == lineage[-1]


def test_a_callee_gets_what_was_asked_for_where_there_is_enough() -> None:
    parent = a_remit(tools=frozenset({"read", "write"}), targets=frozenset({"tag", "byte"}))
    assert parent.narrow(
        caller="tag@hub",
        time_ms=500,
        tokens=400,
        max_depth=3,
        context_tokens=300,
        tools=frozenset({"read", "shell"}),
        targets=frozenset({"byte"}),
        may_delegate=False,
        priority=Priority.LOW,
    ) == Remit(
        user="u-1",
        depth=2,
        max_depth=3,
        time_ms=500,
        tokens=400,
        chain=("prime@hub", "tag@hub"),
        context_tokens=300,
        tools=frozenset({"read"}),
        targets=frozenset({"byte"}),
        may_delegate=False,
        priority=Priority.LOW,
    )


def test_a_callee_that_is_asked_without_limits_gets_those_of_its_caller() -> None:
    parent = a_remit(tools=frozenset({"read"}), priority=Priority.HIGH, context_tokens=900)
    assert parent.narrow(caller="tag@hub", time_ms=10_000, tokens=1_000) == replace(
        parent, depth=2, chain=("prime@hub", "tag@hub")
    )


@given(counts, counts)
def test_what_is_shown_never_costs_more_than_the_budget(tokens: int, context_tokens: int) -> None:
    child = a_remit(context_tokens=context_tokens).narrow(caller="tag@hub", time_ms=1, tokens=tokens)
    assert child.context_tokens == min(context_tokens, child.tokens)


READ, WRITE = frozenset({"read"}), frozenset({"read", "write"})


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (None, None, None),
        (READ, None, READ),
        (None, READ, READ),
        (READ, WRITE, READ),
        (READ, frozenset[str](), frozenset[str]()),
    ],
)
def test_two_bounds_allow_what_both_allow(one: Any, other: Any, both: Any) -> None:
    assert meet(one, other) == both


SMALL, BOB = {"amount": "<= 100"}, {"to": ("bob",)}


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (None, READ, READ),
        (WRITE, READ, READ),
        (None, {"pay": SMALL}, {"pay": SMALL}),
        ({"pay": SMALL}, None, {"pay": SMALL}),
        (frozenset({"pay"}), {"pay": SMALL, "look": {}}, {"pay": (SMALL,)}),
        ({"pay": SMALL, "look": {}}, {"look": BOB, "pay": (BOB,)}, {"pay": (SMALL, BOB), "look": (BOB,)}),
        ({"pay": SMALL, "look": {}}, {"pay": (BOB, SMALL)}, {"pay": (BOB, SMALL)}),
        ({"pay": SMALL}, {"look": {}}, {}),
    ],
)
def test_two_bounds_on_tools_allow_what_both_allow(one: Any, other: Any, both: Any) -> None:
    assert meet_tools(one, other) == both
