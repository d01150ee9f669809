"""How deep, how long, in a circle or all at once: what the lineage of a request forbids."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from remit.policy.guards import chain, cycle, depth, fan_out, loop, nesting, version
from remit.policy.limits import Limits
from remit.policy.verdict import ALLOW, Facts, refuse
from remit.protocol.errors import Code
from samples import a_card, a_remit, a_request, code_of

FACTS = Facts(target=a_card(), address="tag@hub")


def test_a_version_that_is_read_here_passes() -> None:
    """X14: the envelope says its version."""
    facts = Facts(target=a_card(), versions=("1.1", "1.2", "1.3"))
    assert version(a_request(version="1.1"), facts) == ALLOW
    assert code_of(version(a_request(version="1.0"), facts)) is Code.VERSION_UNSUPPORTED


def test_prime_may_ask_byte_but_byte_may_not_ask_tag_where_the_limit_is_one() -> None:
    """X3: user -> Prime (0) -> Byte (1) runs, -> Tag (2) is refused; its limit of 2 is exclusive, ours of 1 is not."""
    prime, byte, tag = (a_request(remit=a_remit(depth=level, max_depth=1)) for level in range(3))
    assert [depth(prime, FACTS), depth(byte, FACTS)] == [ALLOW, ALLOW]
    assert code_of(depth(tag, FACTS)) is Code.MAX_DEPTH_EXCEEDED


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_a_callee_is_never_deeper_than_both_its_remit_and_this_hub_allow(level: int, remit: int, hub: int) -> None:
    """C6, O5: depth 5 unless a remit or a team says otherwise; a peer cannot claim more than this hub allows."""
    request = a_request(remit=a_remit(depth=level, max_depth=remit))
    verdict = depth(request, Facts(target=a_card(), limits=Limits(max_depth=hub)))
    assert (verdict == ALLOW) == (level <= min(remit, hub))


def test_the_fifth_level_below_the_first_agent_is_the_last() -> None:
    """C6, O5: depth 5."""
    verdicts = [depth(a_request(remit=a_remit(depth=level, max_depth=99)), FACTS) for level in (5, 6)]
    assert verdicts == [
        ALLOW,
        refuse(
            Code.MAX_DEPTH_EXCEEDED,
            "Delegation depth limit reached (5/5). Cannot delegate further. Return results to parent.",
            suggestion="If calls have to go deeper, have the team raise `max_depth`.",
        ),
    ]


def test_a_chain_of_ten_passes_and_one_of_eleven_does_not() -> None:
    """C6: chain 10."""
    names = tuple(f"a{number}@hub" for number in range(11))
    assert chain(a_request(remit=a_remit(chain=names[:10])), FACTS) == ALLOW
    assert code_of(chain(a_request(remit=a_remit(chain=names)), FACTS)) is Code.CHAIN_TOO_LONG


def test_an_agent_that_is_in_the_chain_is_not_asked_again() -> None:
    """C6, O5: no agent twice in a chain (A -> B -> C -> A)."""
    request = a_request(remit=a_remit(chain=("prime@hub", "tag@hub", "byte@hub")))
    assert code_of(loop(request, FACTS)) is Code.LOOP_DETECTED


def test_an_agent_may_be_called_below_itself_if_its_card_says_so() -> None:
    request = a_request(remit=a_remit(chain=("prime@hub", "tag@hub")))
    assert FACTS.target is not None
    assert loop(request, replace(FACTS, target=replace(FACTS.target, recursive=True))) == ALLOW
    assert loop(request, replace(FACTS, target=None)) != ALLOW


def test_an_agent_of_the_same_name_on_another_hub_is_another_agent() -> None:
    """C6: chain entries are `agent@hub`."""
    assert loop(a_request(remit=a_remit(chain=("prime@hub", "tag@elsewhere"))), FACTS) == ALLOW


def test_the_same_caller_does_not_ask_the_same_callee_for_the_same_objective_again() -> None:
    """X5: cycle detection on origin, target and objective."""
    assert cycle(a_request(), FACTS) == ALLOW
    assert code_of(cycle(a_request(), Facts(target=a_card(), repeated=True))) is Code.CYCLE_DETECTED


def test_an_agent_that_was_asked_without_the_right_to_delegate_may_not() -> None:
    """O5: nested calls need permission."""
    may, may_not = a_remit(may_delegate=True), a_remit(may_delegate=False)
    assert nesting(a_request(), Facts(target=a_card(), held=None)) == ALLOW
    assert nesting(a_request(), Facts(target=a_card(), held=may)) == ALLOW
    assert code_of(nesting(a_request(), Facts(target=a_card(), held=may_not))) is Code.NESTED_CALLS_FORBIDDEN


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_three_delegations_at_once_are_allowed(at_once: int) -> None:
    """X4: three at once."""
    assert fan_out(a_request(), Facts(target=a_card(), held=a_remit(), at_once=at_once)) == ALLOW


def test_four_delegations_at_once_are_refused_with_the_limit_and_what_to_do() -> None:
    """X4: four are refused whole before any starts."""
    assert code_of(fan_out(a_request(), Facts(target=a_card(), held=a_remit(), at_once=4))) is Code.FAN_OUT_EXCEEDED


def test_a_person_may_ask_many_agents_at_once() -> None:
    assert fan_out(a_request(), Facts(target=a_card(), held=None, at_once=50)) == ALLOW
