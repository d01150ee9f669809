"""One plain example of what property tests say in general: coverage is whole whatever is drawn."""

from typing import Any

import pytest
from msgspec.structs import replace

from remit.policy.aggregate import start
from remit.policy.budget import grant_tokens, settle
from remit.policy.guards import tokens
from remit.policy.limits import Limits
from remit.policy.reception import received
from remit.policy.verdict import ALLOW, Facts
from remit.protocol.card import AgentCard
from remit.protocol.envelope import Answer, Message, Strategy
from remit.protocol.trace import TraceContext, place_of
from remit.words.components import Component
from remit_orchestrator.text.conflicts import find
from remit_orchestrator.text.grounding import unfounded
from remit_orchestrator.text.summaries import Summary, extend
from remit_orchestrator.workflow_plan import filled, literal
from samples import a_card, a_remit, a_request, a_response


@pytest.mark.parametrize(("wanted", "left", "granted"), [(5, 9, 5), (9, 5, 5), (-1, 9, 0), (9, -1, 0)])
def test_tokens_are_granted_as_asked_but_never_more_than_are_left(wanted: int, left: int, granted: int) -> None:
    assert grant_tokens(wanted, left) == granted


def test_of_a_grant_some_is_settled_and_the_rest_released_or_overrun() -> None:
    assert (settle(10, 4), settle(10, 14)) == ((4, 6, 0), (10, 0, 4))


def test_a_request_whose_input_is_no_text_is_estimated() -> None:
    request = a_request(objective="Add", input=[1, 2], remit=a_remit(tokens=100))
    assert tokens(request, Facts(target=a_card())) == ALLOW


def test_a_place_in_a_trace_is_read_as_it_was_written() -> None:
    for sampled in (True, False):
        place = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", sampled)
        assert place_of(str(place)) == place


def test_a_message_that_a_summary_covers_changes_nothing() -> None:
    messages = [Message(role="user", text="I want a red car.", seq=1)]
    summary = extend(Summary(), messages)
    assert extend(summary, messages) == summary


def test_a_request_from_elsewhere_is_cut_to_what_its_caller_has() -> None:
    request = a_request(remit=replace(a_remit(), chain=("y@z",), tools=None, targets=None))
    cut = received(request, AgentCard(name="x", authority="caller"), Limits())
    assert (cut.remit.tools, cut.remit.targets) == (frozenset(), frozenset())
    assert received(request, AgentCard(name="x", authority="own"), Limits()) is request


def test_a_structure_that_somebody_else_wrote_comes_back_as_it_was() -> None:
    value: Any = {"{a}": ["{b.c}", 1, {"plain": None}]}
    assert filled(literal(value), {"a": 1, "b": {"c": 2}}) == value


def test_all_that_came_is_merged_in_the_order_asked() -> None:
    merging = start(Strategy.MERGE_ALL, 2).add(a_response(result="second"), 1).add(a_response(result="first"), 0)
    answer = merging.finish()
    assert isinstance(answer, Answer)
    assert answer.result == "first\n\nsecond"


def test_a_quoted_phrase_is_founded_if_the_source_has_it_as_a_whole() -> None:
    assert unfounded("Take “the long road”.", "He said the long road is best.") == ()
    assert unfounded("Take “the long road”.", "He said the long roads are best.") != ()


def test_a_name_that_only_begins_like_one_in_the_source_is_unfounded() -> None:
    assert unfounded("See ABC-12.", "Of ABC-123 nothing is known.") == ("ABC-12",)


def test_a_field_that_is_spelled_in_several_ways_is_in_no_conflict_with_itself() -> None:
    spelled = {"priceUsd": "2026-03-04", "price": "4 March", "Price": "$1", "departure": "The train departs at 9:40."}
    assert find([Component("a", [False]), Component("b", spelled)]).conflicts == ()


@pytest.mark.parametrize("text", ["0C Paris", "ParisABC-1", "0À'0", ".0May C", "Ask Jean-Luc A. Picard of ABC-1."])
def test_a_text_is_founded_on_itself(text: str) -> None:
    assert unfounded(text, text) == ()
