"""What an agent's card lets it do."""

from typing import Any

import pytest

from remit.protocol.card import Capability
from samples import a_card


@pytest.mark.parametrize(
    ("card", "may"),
    [
        ({}, False),
        ({"may_call": frozenset({"byte"})}, True),
        ({"may_call": frozenset({"byte"}), "allow_sub_agent_calls": True}, True),
        ({"may_call": frozenset({"byte"}), "allow_sub_agent_calls": False}, False),
        ({"may_call": frozenset({"*"})}, True),
        ({"may_call": frozenset({"*"}), "allow_sub_agent_calls": False}, False),
        ({"may_call": frozenset({"ledger"})}, False),
        ({"allow_sub_agent_calls": True}, True),
        ({"allow_sub_agent_calls": True, "may_call": frozenset({"prime"})}, False),
    ],
)
def test_an_agent_reaches_whom_its_team_names_unless_it_may_call_nobody(card: dict[str, Any], may: bool) -> None:
    """O5: only an agent with allow_sub_agent_calls may call."""
    assert a_card(**card).may_reach("byte") is may


def test_a_capability_is_found_by_its_code() -> None:
    """K1: capability_code must be registered."""
    npv, projection = Capability(code="ANL_NPV"), Capability(code="ANL_PROJECTION", version="2.0")
    card = a_card(capabilities=(npv, projection))
    assert [card.capability(code) for code in ("ANL_PROJECTION", "ANL_NPV", "DOC_GENERATE")] == [projection, npv, None]


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({}, []),
        ({"read_only": True, "hedge_ms": 0, "cache_ms": 0, "cache_similar": True}, []),
        ({"hedge_ms": 500}, ["hedge_ms"]),
        ({"cache_ms": 500}, []),
        ({"cache_ms": 500, "cache_similar": True}, ["cache_similar"]),
        ({"read_only": True, "cache_similar": True}, ["cache_similar"]),
        ({"hedge_ms": 0, "cache_similar": True}, ["cache_similar", "hedge_ms"]),
    ],
)
def test_only_what_changes_nothing_is_asked_of_two_or_answered_from_similar_requests(
    said: dict[str, Any], wrong: list[str]
) -> None:
    assert list(Capability(code="LOOK", **said).contradictions()) == wrong
