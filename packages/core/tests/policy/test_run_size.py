"""How many delegations a run may ask for, and how much room its records may take."""

from typing import Any

import pytest

from remit.policy.guards import delegations, record
from remit.policy.limits import Limits
from remit.policy.verdict import ALLOW, Facts, refuse
from remit.protocol.errors import Code
from samples import a_card, a_request

LIMITS = Limits(max_delegations=10, max_agent_delegations=4, max_record_bytes=1_000)


def facts(**changes: Any) -> Facts:
    return Facts(target=a_card(), limits=LIMITS, **changes)


@pytest.mark.parametrize(("of_run", "of_agent"), [(0, 0), (1, 1), (10, 4)])
def test_as_many_delegations_as_are_allowed_pass(of_run: int, of_agent: int) -> None:
    assert delegations(a_request(), facts(delegations=of_run, agent_delegations=of_agent)) == ALLOW


def test_one_more_is_refused_and_the_limit_is_named() -> None:
    assert delegations(a_request(), facts(delegations=11, agent_delegations=1)) == refuse(
        Code.MAX_DELEGATIONS_EXCEEDED, "this run has asked for 10 delegations, as many as it may (`max_delegations`)"
    )
    assert delegations(a_request(), facts(delegations=11, agent_delegations=5)) == refuse(
        Code.MAX_DELEGATIONS_EXCEEDED, "prime has asked for 4 delegations, as many as it may (`max_agent_delegations`)"
    )


def test_records_may_take_as_much_room_as_is_allowed_and_no_more() -> None:
    assert record(a_request(), facts(record_bytes=999)) == ALLOW
    assert record(a_request(), facts(record_bytes=12_345)) == refuse(
        Code.RECORD_LIMIT_EXCEEDED,
        "the records of this run take 12,345 bytes of at most 1,000 (`max_record_bytes`)",
    )


def test_the_defaults_follow_from_the_time_of_a_run_and_the_fan_out() -> None:
    """A model that answers in 0.3 s, asked one after another for all the time of a run, and three at once."""
    limits = Limits()
    assert limits.max_agent_delegations == limits.root_time_ms // 300
    assert limits.max_delegations == limits.max_agent_delegations * limits.max_fan_out
    assert limits.max_record_bytes > limits.max_delegations * 2 * 10_000
